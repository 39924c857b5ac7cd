"""StableTopKFromGatheredCandidates in CuTe DSL, without a GPU.

The keys; the algorithm, on numpy; the compiled kernel, by running its PTX on numpy; and which twin
is chosen. test_stable_topk_cutedsl_gpu.py launches it.
"""

from __future__ import annotations

import importlib.util
import re
import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from jitwarm.config import EngineConfig, HFConfig, ModelConfig, ParallelConfig
from jitwarm.contract import NoKeys
from jitwarm.errors import BindingError, MissingExtraError
from jitwarm.zoo.kernels import stable_topk as dispatcher
from jitwarm.zoo.kernels.stable_topk_cutedsl import StableTopKCuTeDSLKernel, stable_topk_cutedsl
from jitwarm.zoo.kernels.stable_topk_triton import stable_topk_triton

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parent / "numerics"))

from references_stable_topk import assert_same_sets
from references_stable_topk import stable_topk as reference
from stable_topk_emulation import Pass, keys_of, select
from stable_topk_ptx import Block, KernelError, Memory, parse

SHAPES = [(512, 1024), (512, 4096), (1024, 8192), (2048, 4096), (2048, 16384)]
EDGE_SHAPES = [(1, 512), (512, 512), (700, 512), (37, 1536)]  # all of them, more, an odd part
Key = StableTopKCuTeDSLKernel.CompileKey


def engine(dcp, **model):
    return EngineConfig(
        model_config=ModelConfig(hf_config=HFConfig(**model)),
        parallel_config=ParallelConfig(
            tensor_parallel_size=dcp, decode_context_parallel_size=dcp, dcp_rank=0
        ),
    )


# Keys.


@pytest.mark.parametrize(
    ("dcp", "model", "key"),
    [
        (2, {"index_topk": 2048}, Key(2048, 4096)),
        (8, {"index_topk": 2048}, Key(2048, 16384)),
        (4, {"index_topk": 512}, Key(512, 2048)),
        (8, {"index_topk": 2048, "index_kpool": 32}, Key(64, 512)),
    ],
)
def test_the_one_key_of_a_model(dcp, model, key):
    assert stable_topk_cutedsl.get_warmup_keys(engine(dcp, **model)) == [key]


def test_nothing_to_warm_is_said():
    alone = stable_topk_cutedsl.get_warmup_keys(engine(1, index_topk=2048))
    dense = stable_topk_cutedsl.get_warmup_keys(engine(4))
    assert isinstance(alone, NoKeys) and "parallelism" in alone.reason
    assert isinstance(dense, NoKeys) and "index_topk" in dense.reason


def test_rows_that_the_kernel_does_not_have_are_refused_at_start_up():
    with pytest.raises(BindingError, match=r"multiple of 512 candidates, got 64 of 128"):
        stable_topk_cutedsl.get_warmup_keys(engine(2, index_topk=2048, index_kpool=32))


def test_a_process_without_the_library_registers_and_plans(fresh_process):
    found = fresh_process("""
import sys
sys.modules["cutlass"] = None
from jitwarm import device
from jitwarm.config import EngineConfig, HFConfig, ModelConfig, ParallelConfig
from jitwarm.plan import make_plan
from jitwarm.registry import JitWarmupRegistry
from jitwarm.zoo.kernels.stable_topk_cutedsl import stable_topk_cutedsl
device.activate("stub", "sm100")
config = EngineConfig(
    model_config=ModelConfig(hf_config=HFConfig(index_topk=512)),
    parallel_config=ParallelConfig(tensor_parallel_size=4, decode_context_parallel_size=4),
)
registry = JitWarmupRegistry(config)
with registry.activate():
    stable_topk_cutedsl.register_warmup()
    stable_topk_cutedsl.register_warmup()
print([item.backend_key for item in make_plan(registry).items])
""")
    assert "num_candidates=2048" in found and found.count("sm_100a") == 1


# Calls.


@pytest.mark.cutedsl
def test_a_launch_on_the_stub_device(stub):
    kernel = StableTopKCuTeDSLKernel()
    gathered = torch.full((3, 1024, 2), -1.0)
    out = torch.zeros((3, 512), dtype=torch.int32)
    assert kernel(gathered, topk=512, out=out) is out
    assert kernel(gathered, topk=512).shape == (3, 512)
    assert list(kernel._compiled_cache) == [Key(512, 1024)]  # compiled once


def test_no_rows_launch_nothing():
    """Not even a compile: this needs no device and no library."""
    kernel = StableTopKCuTeDSLKernel()
    assert kernel(torch.empty((0, 1024, 2)), topk=512).shape == (0, 512)
    assert not kernel._compiled_cache


def test_what_does_not_fit_is_refused():
    call = stable_topk_cutedsl
    gathered = torch.zeros((2, 512, 2))
    with pytest.raises(BindingError, match="multiple of 512"):
        call(gathered[:, :500], topk=8)
    with pytest.raises(BindingError, match="one or more"):
        call(gathered, topk=0)
    with pytest.raises(BindingError, match="float64"):
        call(gathered.double(), topk=8)
    with pytest.raises(BindingError, match=r"strides \(2048, 4, 1\)"):
        call(torch.zeros((2, 512, 4))[..., :2], topk=8)
    with pytest.raises(BindingError, match=r"strides \(1025, 2, 1\)"):
        call(torch.zeros(4096).as_strided((2, 512, 2), (1025, 2, 1)), topk=8)
    with pytest.raises(BindingError, match="divisible by 8"):
        call(torch.zeros(4096)[1:].as_strided((2, 512, 2), (1024, 2, 1)), topk=8)
    for out in (
        torch.zeros((2, 8)),
        torch.zeros((2, 9), dtype=torch.int32),
        torch.zeros((8, 2), dtype=torch.int32).T,
    ):
        with pytest.raises(BindingError, match=r"out int32 \[R, K\]"):
            call(gathered, topk=8, out=out)


# The algorithm.

SPECIAL = [0x00000000, 0x80000000, 0x7F800000, 0xFF800000, 0x7FC00000, 0xFFC00000, 0x7F800001,
           0xFFFFFFFF, 0x00000001, 0x80000001, 0x3F800000, 0x3F800001, 0xBF800000]  # fmt: skip


@st.composite
def rows(draw, candidates):
    """float32 [N, 2]: a few scores or any bits, ids that repeat or not, part of it invalid."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    few = draw(st.lists(st.sampled_from(SPECIAL), max_size=4))
    bits = rng.integers(0, 2**32, candidates, dtype=np.uint32)
    if few:
        bits = rng.choice(np.array(few, np.uint32), candidates)
    ids = rng.permutation(candidates) + draw(st.sampled_from([0, 1, 2**24 - candidates]))
    ids = ids % draw(st.sampled_from([1, 5, 2**25]))
    invalid = rng.random(candidates) < draw(st.sampled_from([0, 0.1, 0.5, 0.95, 1]))
    ids = np.where(invalid, draw(st.sampled_from([-1, -7, -(2**31)])), ids)
    return np.stack([bits.view(np.float32), ids.astype(np.float32)], axis=1)


@settings(max_examples=120)
@given(rows(512), st.sampled_from([1, 2, 100, 255, 511, 512, 600]), st.integers(0, 99))
def test_the_algorithm_selects_what_the_reference_does(pairs, topk, seed):
    row, passes = select(pairs, topk, np.random.default_rng(seed))
    assert_same_sets(row[None], reference(pairs[None], topk, "cutedsl"))
    assert [p.shift for p in passes] == [53, 42, 31, 20, 9, 0][: len(passes)]


def pairs_of(scores, ids, candidates=512):
    pairs = np.empty((candidates, 2), np.float32)
    pairs[:, 0], pairs[:, 1] = scores, ids
    return pairs


def test_the_search_stops_as_soon_as_a_whole_bin_is_wanted():
    """Scores of other exponents need one pass, ids that differ in bit 21 four, copies all six."""
    ids = np.arange(512)
    _, passes = select(pairs_of(np.where(ids < 100, 2.0**40, 1.0), ids), 100)
    assert passes == [Pass(53, (0x53800000 + 2**31) >> 21, 0, 100)]
    _, passes = select(pairs_of(1.0, ids % 2 * 2**21), 256)
    assert [p.equal for p in passes] == [512, 512, 512, 256]
    _, passes = select(pairs_of(1.0, 7), 256)
    assert [(p.shift, p.equal) for p in passes] == [(s, 512) for s in (53, 42, 31, 20, 9, 0)]


def test_too_few_valid_entries_need_one_pass():
    row, passes = select(pairs_of(np.arange(512), np.where(np.arange(512) < 3, 5, -1)), 8)
    assert row.tolist() == [5, 5, 5, -1, -1, -1, -1, -1]
    assert [(p.digit, p.above, p.equal) for p in passes] == [(0, 3, 0)]
    row, passes = select(pairs_of(1.0, np.full(512, -1)), 8)
    assert (row == -1).all() and [(p.digit, p.above, p.equal) for p in passes] == [(0, 0, 0)]


def test_keys_order_scores_by_their_bits():
    scores = np.array(
        [0xFFFFFFFF, 0xFFC00000, 0xFF800000, 0xBF800000, 0x80000001, 0x80000000,
         0x00000000, 0x00000001, 0x3F800000, 0x7F800000, 0x7FC00000, 0x7FFFFFFF],
        np.uint32,
    ).view(np.float32)  # fmt: skip
    keys = keys_of(pairs_of(scores, 2**24, len(scores)))
    assert (keys[:-1] < keys[1:]).all() and keys[0] > 0
    assert (np.diff(keys_of(pairs_of(1.0, np.arange(5), 5)).astype(np.int64)) == -1).all()
    assert keys_of(pairs_of(np.inf, [-1, -2], 2)).tolist() == [0, 0]


# The compiled kernel.


@pytest.fixture(scope="module")
def compiled(tmp_path_factory):
    """`compiled(topk, candidates, arch)`: the binary of the device code and its PTX."""
    pytest.importorskip("tvm_ffi")
    cute = pytest.importorskip("cutlass.cute")
    from jitwarm.zoo.kernels import stable_topk_radix

    folder, made = tmp_path_factory.mktemp("cutedsl"), {}

    def make(topk, candidates, arch="sm_90a"):
        if (topk, candidates, arch) not in made:
            artifacts = cute.compile(
                stable_topk_radix.radix_topk,
                *stable_topk_radix.stand_ins(topk, candidates),
                cute.runtime.make_fake_stream(use_tvm_ffi_env_stream=True),
                options=f"--gpu-arch {arch} --enable-tvm-ffi --keep-ptx --keep-cubin "
                f"--dump-dir {folder}",
            ).artifacts
            made[topk, candidates, arch] = artifacts.CUBIN, artifacts.PTX
        return made[topk, candidates, arch]

    return make


def run_ptx(ptx, gathered, topk, order=None, out_stride=None):
    """The output of a launch and the number of passes of each block.

    `gathered` may have any even row stride; what is not part of a row may not be touched.
    """
    program = parse(ptx)
    rows = len(gathered)
    stride, out_stride = gathered.strides[0] // 4, out_stride or topk
    words = np.lib.stride_tricks.as_strided(
        gathered.view(np.uint32), ((rows - 1) * stride + gathered[0].size,), (4,)
    ).copy()
    readable = np.zeros(len(words), bool)
    out = np.full(rows * out_stride, 0xA5A5A5A5, np.uint32)
    for row in range(rows):
        readable[row * stride : row * stride + gathered[0].size] = True
    parameters = [
        struct.pack("<Qi4xq", 1 << 40, rows, stride),
        struct.pack("<Qi4xq", 1 << 41, rows, out_stride),
    ]
    source = Memory("gathered", 1 << 40, words, written=False)
    source.written[:] = readable
    target = Memory("output", 1 << 41, out, written=False)
    passes = []
    for row in range(rows):
        block = Block(
            program, threads=512, block=row, parameters=parameters, buffers=[source, target]
        )
        block.run(order)
        passes.append((block.barriers - 1) // 3)
    written = target.written.reshape(rows, out_stride)
    assert written[:, :topk].all() and not written[:, topk:].any()
    return out.view(np.int32).reshape(rows, out_stride)[:, :topk], passes


@pytest.mark.cutedsl
@pytest.mark.parametrize("arch", ["sm_90a", "sm_100a"])
@pytest.mark.parametrize(("topk", "candidates"), SHAPES)
def test_the_binary(compiled, tmp_path, topk, candidates, arch):
    cubin, ptx = compiled(topk, candidates, arch)
    assert f".target {arch}" in ptx and ".reqntid 512, 1, 1" in ptx
    assert ".local" not in ptx and parse(ptx).shared_bytes <= 8192 + 128
    (entry,) = re.findall(r"\.entry (\S+)\(", ptx)
    assert "0x" not in entry, "an address in a name: another binary in each process"
    (tmp_path / "kernel.cubin").write_bytes(cubin)
    triton = Path(importlib.util.find_spec("triton").origin).parent  # it ships the tool
    found = subprocess.run(
        [triton / "backends/nvidia/bin/cuobjdump", "-res-usage", tmp_path / "kernel.cubin"],
        capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    usage = {name: int(number) for name, number in re.findall(r"(\w+):(\d+)", found)}
    assert usage["STACK"] == usage["LOCAL"] == 0, "registers spill"
    assert usage["REG"] <= 64 and usage["SHARED"] <= 1024 + 8192 + 128


@pytest.mark.cutedsl
@pytest.mark.parametrize("arch", ["sm_90a", "sm_100a"])
@pytest.mark.parametrize(("topk", "candidates"), SHAPES + EDGE_SHAPES)
def test_the_kernel_selects_what_the_reference_does(compiled, topk, candidates, arch):
    rng = np.random.default_rng(topk + candidates)
    ids = np.stack([rng.permutation(candidates) for _ in range(3)]).astype(np.float32)
    ids[rng.random(ids.shape) < 0.2] = -1
    scores = rng.standard_normal(ids.shape).astype(np.float32)
    scores[1] = rng.integers(0, 5, candidates)
    ids[2, topk // 2 :] = -1
    gathered = np.stack([scores, ids], axis=2)
    found, passes = run_ptx(compiled(topk, candidates, arch)[1], gathered, topk)
    assert_same_sets(found, reference(gathered, topk, "cutedsl"))
    assert passes == [len(select(pairs, topk)[1]) for pairs in gathered]


@pytest.mark.cutedsl
@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rows(1024))
@example(pairs_of(1.0, 7, 1024))
def test_the_kernel_takes_any_row(compiled, pairs):
    found, (passes,) = run_ptx(compiled(512, 1024)[1], pairs[None], 512)
    assert_same_sets(found, reference(pairs[None], 512, "cutedsl"))
    assert passes == len(select(pairs, 512)[1])


@pytest.mark.cutedsl
@pytest.mark.parametrize("seed", range(3))
def test_the_order_of_warps_does_not_matter(compiled, seed):
    rng = np.random.default_rng(seed)
    pairs = pairs_of(rng.integers(0, 9, 1024), rng.permutation(1024), 1024)
    found, _ = run_ptx(compiled(512, 1024)[1], pairs[None], 512, order=rng)
    assert_same_sets(found, reference(pairs[None], 512, "cutedsl"))


@pytest.mark.cutedsl
def test_rows_at_any_even_stride(compiled):
    """And of an output whose rows are apart: nothing beside the rows is read or written."""
    rng = np.random.default_rng(0)
    wide = np.stack([rng.standard_normal((3, 1025)), rng.integers(-1, 999, (3, 1025))], axis=2)
    gathered = wide.astype(np.float32)[:, :1024]
    found, _ = run_ptx(compiled(512, 1024)[1], gathered, 512, out_stride=515)
    assert_same_sets(found, reference(gathered, 512, "cutedsl"))


@pytest.mark.cutedsl
@pytest.mark.parametrize("barrier", range(4))
def test_every_barrier_is_needed(compiled, barrier):
    """Without one of them the interpreter finds a race: it would find one in the kernel."""
    ptx = compiled(512, 1024)[1]
    parts = ptx.split("bar.sync")
    assert len(parts) == 5
    cut = "bar.sync".join(parts[: barrier + 1]) + "// " + "bar.sync".join(parts[barrier + 1 :])
    pairs = pairs_of(np.arange(1024) % 7, np.arange(1024), 1024)
    with pytest.raises(KernelError, match="race"):
        run_ptx(cut, pairs[None], 512)


# Which twin.


@pytest.mark.parametrize(("installed", "twin"), [(True, "cutedsl"), (False, "triton")])
def test_auto_takes_cutedsl_where_it_is_installed(monkeypatch, installed, twin):
    real = importlib.util.find_spec

    def find_spec(name, *more):
        return real(name, *more) if name != "cutlass" else "found" if installed else None

    monkeypatch.setattr(importlib.util, "find_spec", find_spec)
    kernels = {"cutedsl": stable_topk_cutedsl, "triton": stable_topk_triton}
    assert dispatcher.stable_topk() is dispatcher.stable_topk("auto") is kernels[twin]
    assert dispatcher.stable_topk("triton") is stable_topk_triton
    if installed:
        assert dispatcher.stable_topk("cutedsl") is stable_topk_cutedsl
    else:
        with pytest.raises(MissingExtraError, match=r"jitwarm\[cutedsl\]"):
            dispatcher.stable_topk("cutedsl")


def test_an_unknown_implementation_is_refused():
    with pytest.raises(BindingError, match="'cuda'.*choose auto, cutedsl or triton"):
        dispatcher.stable_topk("cuda")


def test_the_function_hands_everything_over(monkeypatch):
    calls = []
    monkeypatch.setitem(
        dispatcher.KERNELS, "triton", lambda *args, **more: calls.append((args, more)) or "result"
    )
    found = dispatcher.stable_topk_from_gathered_candidates(
        "gathered", topk=5, out="out", implementation="triton"
    )
    assert found == "result" and calls == [(("gathered",), {"topk": 5, "out": "out"})]
