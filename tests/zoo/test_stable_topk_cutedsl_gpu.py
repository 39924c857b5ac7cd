"""StableTopKFromGatheredCandidates in CuTe DSL on a GPU: real launches against the reference.

    python -m pytest -m gpu tests/zoo/test_stable_topk_cutedsl_gpu.py

A process of its own: the device is the GPU, and other tests make it the stub. A failure says which
ids of the first wrong row are missing or too many, and what each pass of the search had to find.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from jitwarm import device
from jitwarm.observe.monitor import Monitor
from jitwarm.zoo.kernels.stable_topk import stable_topk, stable_topk_from_gathered_candidates
from jitwarm.zoo.kernels.stable_topk_cutedsl import StableTopKCuTeDSLKernel, stable_topk_cutedsl
from jitwarm.zoo.kernels.stable_topk_triton import stable_topk_triton

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parent / "numerics"))

from references_stable_topk import stable_topk as reference
from stable_topk_emulation import keys_of, select

pytestmark = [pytest.mark.gpu, pytest.mark.cutedsl, pytest.mark.filterwarnings("default")]

SHAPES = [(512, 1024), (512, 4096), (1024, 8192), (2048, 4096), (2048, 16384)]
POISON = -1515870811  # 0xA5A5A5A5
SPECIAL = np.array(
    [0x00000000, 0x80000000, 0x7F800000, 0xFF800000, 0x7FC00000, 0xFFC00000, 0x7FFFFFFF,
     0xFFFFFFFF, 0x00000001, 0x80000001, 0x3F800000, 0xBF800000],
    np.uint32,
).view(np.float32)  # fmt: skip


@pytest.fixture(scope="module", autouse=True)
def gpu():
    if not torch.cuda.is_available():
        pytest.fail("no GPU here: leave these tests out with -m 'not gpu'")
    return device.activate("cuda")


@pytest.fixture
def rng():
    return np.random.default_rng(20261129)


def random_rows(rng, rows, candidates, invalid=0.3):
    """float32 [R, N, 2]: scores of all sizes, every id once, a part of them invalid."""
    ids = np.array([rng.permutation(3 * candidates)[:candidates] for _ in range(rows)])
    ids = ids.reshape(rows, candidates).astype(np.float32)
    ids[rng.random(ids.shape) < invalid] = -1
    return np.stack([rng.standard_normal(ids.shape).astype(np.float32), ids], axis=2)


def poisoned(rows, columns):
    return torch.full((rows, columns), POISON, dtype=torch.int32, device="cuda")


def differences(found, gathered, topk):
    """What is wrong, in words; empty if every row has the right ids."""
    expected = np.sort(reference(gathered, topk, "cutedsl"), axis=1)
    wrong = np.flatnonzero((np.sort(found, axis=1) != expected).any(axis=1))
    if not len(wrong):
        return ""
    row = wrong[0]
    (want, wants), (got, gots) = (
        np.unique(ids, return_counts=True) for ids in (expected[row], found[row])
    )
    counts = {int(i): [int(n), 0] for i, n in zip(want, wants, strict=True)}
    for i, n in zip(got, gots, strict=True):
        counts.setdefault(int(i), [0, 0])[1] = int(n)
    off = {i: f"{b} instead of {a}" for i, (a, b) in counts.items() if a != b}
    key = dict(zip(gathered[row, :, 1].astype(int).tolist(), keys_of(gathered[row]), strict=True))
    lines = [f"  id {i}: {off[i]}, key {int(key.get(i, 0)):#018x}" for i in list(off)[:8]]
    passes = [f"  {p}" for p in select(gathered[row], topk)[1]]
    return "\n".join(
        [
            f"{len(wrong)} of {len(found)} rows are wrong, first rows {wrong[:8].tolist()}",
            f"row {row}, {len(off)} ids ({POISON}: not written):", *lines,
            "the passes that were expected:", *passes,
        ]
    )  # fmt: skip


def check(gathered, topk, placed=None, out=None):
    """Launch on `placed` (default: a fresh copy of `gathered`) and compare every row."""
    if placed is None:
        placed = torch.from_numpy(gathered.copy()).cuda()
    if out is None:
        out = poisoned(len(gathered), topk)
    assert stable_topk_cutedsl(placed, topk=topk, out=out) is out
    problem = differences(out.cpu().numpy(), gathered, topk)
    assert not problem, problem


# Shapes.


@pytest.mark.parametrize(("topk", "candidates"), SHAPES)
@pytest.mark.parametrize("rows", [1, 7, 300])
def test_random_rows(rng, rows, topk, candidates):
    check(random_rows(rng, rows, candidates), topk)


@pytest.mark.parametrize(("topk", "candidates"), [(1, 512), (512, 512), (700, 512), (37, 1536)])
def test_all_of_them_more_and_odd_parts(rng, topk, candidates):
    check(random_rows(rng, 7, candidates), topk)
    check(random_rows(rng, 7, candidates, invalid=0), topk)


def test_no_rows():
    found = stable_topk_cutedsl(torch.empty((0, 1024, 2), device="cuda"), topk=512)
    assert found.shape == (0, 512) and found.dtype is torch.int32 and found.is_cuda


# Rows that are special.


@pytest.mark.parametrize(("topk", "candidates"), [(512, 1024), (2048, 16384)])
@pytest.mark.parametrize(
    "scores",
    ["few", "one", "special", "any bits", "neighbours", "lowest"],
)
def test_scores(rng, topk, candidates, scores):
    gathered = random_rows(rng, 7, candidates, invalid=0.1)
    shape = gathered.shape[:2]
    gathered[..., 0] = {
        "few": lambda: rng.integers(-3, 3, shape),
        "one": lambda: np.float32(-5),
        "special": lambda: rng.choice(SPECIAL, shape),
        "any bits": lambda: rng.integers(0, 2**32, shape, dtype=np.uint32).view(np.float32),
        "neighbours": lambda: 1 + rng.integers(0, 4, shape) * 2.0**-23,
        "lowest": lambda: SPECIAL[7],
    }[scores]()
    check(gathered, topk)


def test_ids_near_the_end_of_exact_floats(rng):
    gathered = random_rows(rng, 7, 1024, invalid=0)
    gathered[..., 0] = 1
    gathered[..., 1] = 2**24 - 1 - np.array([rng.permutation(1024) for _ in range(7)])
    check(gathered, 512)


@pytest.mark.parametrize("valid", [0, 1, 100, 511, 512, 513])
def test_few_valid_candidates(rng, valid):
    gathered = random_rows(rng, 7, 1024, invalid=0)
    for row in gathered:
        row[rng.permutation(1024)[valid:], 1] = rng.choice([-1, -2, -(2.0**31)])
    check(gathered, 512)


def test_copies_of_a_pair_count_each(rng):
    gathered = np.empty((5, 1024, 2), np.float32)
    gathered[:] = (2.5, 7)
    gathered[1:, :, 0] = rng.choice(np.float32([1, 2, 3]), (4, 1024))
    gathered[1:, :, 1] = rng.integers(0, 5, (4, 1024))
    check(gathered, 512)


def test_every_launch_gives_the_same_set(rng):
    """A race shows only sometimes: many launches of many blocks."""
    gathered = random_rows(rng, 264, 4096)
    gathered[::2, :, 0] = rng.integers(0, 50, gathered[::2, :, 0].shape)
    placed = torch.from_numpy(gathered).cuda()
    check(gathered, 512, placed)
    first = stable_topk_cutedsl(placed, topk=512).sort(dim=1).values
    for launch in range(100):
        found = stable_topk_cutedsl(placed, topk=512).sort(dim=1).values
        assert torch.equal(found, first), f"launch {launch}"


# Layouts.


@pytest.mark.parametrize("rows", [1, 7])
@pytest.mark.parametrize("apart", [2, 6, 10])
@pytest.mark.parametrize("offset", [2, 4, 6])
def test_rows_at_any_even_stride_and_address(rng, rows, apart, offset):
    """Addresses divisible by 8 and, for offsets 2 and 6, by nothing more."""
    gathered = random_rows(rng, rows, 1024)
    stride = 2048 + apart
    buffer = torch.full((offset + rows * stride,), float("nan"), device="cuda")
    placed = buffer[offset:].as_strided((rows, 1024, 2), (stride, 2, 1))
    placed.copy_(torch.from_numpy(gathered))
    check(gathered, 512, placed)


def test_every_second_row(rng):
    gathered = random_rows(rng, 6, 1024)
    both = torch.full((12, 1024, 2), 9.0, device="cuda")
    both[::2] = torch.from_numpy(gathered).cuda()
    check(gathered, 512, both[::2])


def test_rows_more_than_two_to_the_31_elements_apart(rng):
    stride = 2**31 + 2
    if torch.cuda.mem_get_info()[0] < 10 * 2**30:
        pytest.skip("needs 10 GiB of free memory")
    gathered = random_rows(rng, 2, 1024)
    buffer = torch.empty(stride + 2048, device="cuda")
    placed = buffer.as_strided((2, 1024, 2), (stride, 2, 1))
    placed.copy_(torch.from_numpy(gathered))
    check(gathered, 512, placed)


def test_an_output_that_is_part_of_a_buffer(rng):
    """Rows of a longer buffer, rows that are apart, an odd address: only the rows are written."""
    gathered = random_rows(rng, 7, 1024)
    buffer = poisoned(20, 515)
    out = buffer[5:12, 1:513]
    check(gathered, 512, out=out)
    buffer[5:12, 1:513] = POISON
    assert (buffer == POISON).all(), "wrote outside of its output"


def test_an_output_of_its_own(rng):
    gathered = random_rows(rng, 7, 1024)
    found = stable_topk_cutedsl(torch.from_numpy(gathered).cuda(), topk=512)
    assert found.is_cuda and found.is_contiguous() and found.dtype is torch.int32
    problem = differences(found.cpu().numpy(), gathered, 512)
    assert not problem, problem


def test_the_input_stays_as_it_is(rng):
    placed = torch.from_numpy(random_rows(rng, 7, 1024)).cuda()
    before = placed.clone()
    stable_topk_cutedsl(placed, topk=512)
    assert torch.equal(placed, before)


def test_tensors_of_another_device_are_refused():
    with pytest.raises(ValueError, match="device"):
        stable_topk_cutedsl(torch.zeros((2, 1024, 2)), topk=512)


# How it is launched.


def test_it_runs_on_the_current_stream(rng):
    gathered = random_rows(rng, 64, 4096)
    ready = torch.from_numpy(gathered).cuda()
    stable_topk_cutedsl(ready, topk=512)  # compiled and loaded
    placed, out = torch.full_like(ready, -1), poisoned(64, 512)
    torch.cuda.synchronize()
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(50_000_000)  # a launch on another stream would not wait
        placed.copy_(ready)
        stable_topk_cutedsl(placed, topk=512, out=out)
    stream.synchronize()
    problem = differences(out.cpu().numpy(), gathered, 512)
    assert not problem, problem


def test_it_can_be_captured(rng):
    first, second = random_rows(rng, 7, 1024), random_rows(rng, 7, 1024)
    placed, out = torch.from_numpy(first).cuda(), poisoned(7, 512)
    stable_topk_cutedsl(placed, topk=512, out=out)  # compiled and loaded
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        stable_topk_cutedsl(placed, topk=512, out=out)
    for gathered in (second, first):
        placed.copy_(torch.from_numpy(gathered))
        out.fill_(POISON)
        graph.replay()
        problem = differences(out.cpu().numpy(), gathered, 512)
        assert not problem, problem


def test_a_warmed_key_neither_compiles_nor_loads_at_its_first_launch(rng):
    kernel = StableTopKCuTeDSLKernel()
    key = kernel.dispatch(topk=512, num_candidates=1024)
    executor = kernel.compile(key)
    assert kernel.load(key) == "", "it has a scratch launch"
    gathered = random_rows(rng, 7, 1024)
    with Monitor("record") as monitor:
        found = kernel(torch.from_numpy(gathered).cuda(), topk=512)
    assert monitor.events == []
    assert kernel._compiled_cache[key] is executor
    problem = differences(found.cpu().numpy(), gathered, 512)
    assert not problem, problem


def test_both_twins_select_the_same_ordinary_candidates(rng):
    gathered = torch.from_numpy(random_rows(rng, 7, 1024)).cuda()
    assert stable_topk("auto") is stable_topk_cutedsl
    found = stable_topk_from_gathered_candidates(gathered, topk=512)
    other = stable_topk_triton(gathered, topk=512)
    assert torch.equal(found.sort(dim=1).values, other.sort(dim=1).values)
