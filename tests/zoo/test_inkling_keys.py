"""InklingFA4RelAttention: declared keys, the binaries behind them, and what launches ask for."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from jitwarm import device
from jitwarm.backends.fa4.probes import texts_of
from jitwarm.backends.fa4.recipe import FA4Recipe
from jitwarm.contract import counting_points
from jitwarm.declare import NoKeys
from jitwarm.errors import BindingError, DeclarationError
from jitwarm.zoo.kernels import inkling_splits as splits
from jitwarm.zoo.kernels.inkling_fa4_rel_attention import inkling_fa4_rel_attention as attend

sys.path.insert(0, str(Path(__file__).parent))
import fa4_keys
from fa4_keys import LARGE, SMALL, inkling, inkling_launch, summary

HERE = Path(__file__).parent
DECLARED = {  # by TP 1, 2, 4, 8
    ("sm100", SMALL): (67, 88, 130, 181),
    ("sm100", LARGE): (99, 120, 162, 213),
    ("sm103", SMALL): (67, 88, 130, 181),
    ("sm90", SMALL): (28, 28, 28, 28),
    ("sm90", LARGE): (60, 60, 60, 60),
}
# Main binaries, then helpers, by TP.
COMBINE, SCHEDULE = "_flash_attn_fwd_combine", "_get_scheduler_metadata"
TABLE = {"_compute_blocks_to_batch": 1, "_compute_tile_cumsum": 2}
TABLE_SM100 = TABLE | {"_compute_tile_cumsum": 4}  # for one and for two query tiles
SPLIT = {1: 1, 2: 1, 4: 2, 8: 3}  # combine kernels (log2 of the splits), and schedules (warps)


@pytest.fixture
def on(monkeypatch):
    """Make the device one of another architecture: enough to declare, not to probe."""

    def activate(arch):
        found = device.Device("stub", arch, "stub device (no GPU)", "none")
        monkeypatch.setattr(device, "_active", found)
        return found

    return activate


# The two functions that warm-up and serving share.


@pytest.mark.parametrize(
    ("reqs", "query", "expected"),
    [
        (1, 1, (16, 32, 128, 128)),
        (8, 1, (2, 4, 8, 16)),
        (32, 1, (1, 1, 2, 4)),
        (1, 128, (2, 4, 8, 16)),
        (1, 2048, (1, 1, 1, 1)),
    ],
)
def test_splits_of_the_flagship(reqs, query, expected):
    for tp, wanted in zip((1, 2, 4, 8), expected, strict=True):
        shape = {"num_heads": 64 // tp, "num_kv_heads": 8 // tp, "max_kv_len": 131072}
        common = {"max_query_len": query, "num_reqs": reqs, **shape}
        assert splits.num_splits(**common, is_local=False, can_split=True) == wanted
        assert splits.num_splits(**common, is_local=True, can_split=True) == 1
        assert splits.num_splits(**common, is_local=False, can_split=False) == 1


@pytest.mark.parametrize(
    ("kv_heads", "max_kv_len", "expected"),
    [(2, 8192, 32), (2, 8193, 64), (2, 65536, 64), (2, 65537, 128), (1, 1024, 8), (16, 131072, 16)],
)
def test_caps_of_one_decode(kv_heads, max_kv_len, expected):
    found = splits.num_splits(
        max_query_len=1, num_reqs=1, max_kv_len=max_kv_len, num_heads=8 * kv_heads,
        num_kv_heads=kv_heads, is_local=False, can_split=True,
    )  # fmt: skip
    assert found == expected


@given(st.integers(1, 1 << 20))
def test_buckets(query_len):
    bucket = splits.query_bucket(query_len)
    assert bucket // 2 < query_len <= bucket
    assert bucket & (bucket - 1) == 0
    assert splits.query_bucket(splits.next_query_len(query_len)) == 2 * bucket


@given(st.integers(1, 4000))
def test_warps_of_the_schedule_kernel(num_reqs):
    bucket = splits.warps_bucket(num_reqs)
    fewest = splits.requests_of_bucket(bucket)
    assert fewest <= num_reqs
    assert splits.warps_bucket(fewest) == bucket
    assert fewest == 1 or splits.warps_bucket(fewest - 1) == bucket // 2


# Declared keys.


@pytest.mark.parametrize(("arch", "limits"), DECLARED)
def test_counts(on, arch, limits):
    on(arch)
    counts = tuple(len(attend.get_warmup_keys(inkling(tp, *limits))) for tp in (1, 2, 4, 8))
    assert counts == DECLARED[arch, limits]


def test_a_longer_context_declares_no_more(on):
    on("sm100")
    assert len(attend.get_warmup_keys(inkling(max_model_len=1 << 20))) == 67


def test_above_256_requests_there_is_a_key_more_a_bucket(on):
    """The library has other binaries there; between 257 and 1,024 requests, too."""
    on("sm90")
    keys = attend.get_warmup_keys(inkling(1, 1024, 8192))
    assert len(keys) == 56
    assert sum(key.large_num_reqs for key in keys) == 28


def test_points(on):
    on("sm90")
    for (seqs, tokens), points in ((SMALL, 7168), ((1024, 8192), 28672), (LARGE, 61440)):
        with counting_points() as count:
            attend.get_warmup_keys(inkling(1, seqs, tokens))
        assert count.points == points


def test_what_no_batch_can_have_is_not_declared(on):
    on("sm90")
    keys = attend.get_warmup_keys(inkling(1, 4, 4))
    assert {key.max_seqlen_q for key in keys} == {1, 2, 4}
    with counting_points() as count:
        attend.get_warmup_keys(inkling(1, 4, 4))
    assert count.points == 2 * (4 + 3 + 2)  # query 1 with 4 requests, 2 with 3, 3 with 2


@pytest.mark.parametrize(
    ("arch", "config", "reason"),
    [
        ("sm90", inkling(1, 0), "no batch is possible"),
        ("sm90", inkling(1, 8, 0), "no batch is possible"),
        ("sm120", inkling(), "no paged attention with a score modifier for sm120"),
        ("sm90", inkling(cache_dtype="fp8_e4m3"), "one dtype for queries and cache"),
    ],
)
def test_spoken_zeros(on, arch, config, reason):
    on(arch)
    found = attend.get_warmup_keys(config)
    assert isinstance(found, NoKeys)
    assert reason in found.reason


@pytest.mark.parametrize("tp", [3, 12])
def test_heads_that_cannot_be_shared_out(on, tp):
    on("sm90")
    with pytest.raises(DeclarationError, match=f"{tp} ranks cannot share 64 heads"):
        attend.get_warmup_keys(inkling(tp))


@given(data=st.data())
def test_every_batch_has_a_declared_key(data):
    declared = _declared_sm100()
    tp = data.draw(st.sampled_from((1, 2, 4, 8)))
    query_len = data.draw(st.integers(1, SMALL[1]))
    num_reqs = data.draw(st.integers(1, min(SMALL[0], SMALL[1] + 1 - query_len)))
    local = data.draw(st.booleans())
    key = attend.dispatch(
        is_local=local, num_heads=64 // tp, num_kv_heads=max(1, (16 if local else 8) // tp),
        head_dim=128, rel_extent=512 if local else 1024, dtype="bfloat16", kv_dtype="bfloat16",
        block_size=16, max_kv_len=512 if local else 131072, query_len=query_len,
        num_reqs=num_reqs, can_split=True,
    )  # fmt: skip
    assert key in declared[tp]


_cache = {}


def _declared_sm100():
    if not _cache:
        before = device._active
        device._active = device.Device("stub", "sm100", "", "")
        try:
            _cache.update({tp: set(attend.get_warmup_keys(inkling(tp))) for tp in (1, 2, 4, 8)})
        finally:
            device._active = before
    return _cache


def test_the_modules_import_and_declare_without_the_library(fresh_process):
    text = (
        "import sys\n"
        "for name in ('flash_attn', 'cutlass', 'quack', 'tvm_ffi'):\n"
        "    sys.modules[name] = None\n"
        "import fa4_keys\n"
        "from jitwarm import device\n"
        "from jitwarm.plan import make_plan\n"
        "from jitwarm.registry import JitWarmupRegistry\n"
        "device.activate('stub', 'sm90')\n"
        "registry = JitWarmupRegistry(fa4_keys.inkling(8))\n"
        "with registry.activate():\n"
        "    fa4_keys.inkling_fa4_rel_attention.register_warmup()\n"
        "print(len(fa4_keys.inkling_fa4_rel_attention.get_warmup_keys(fa4_keys.inkling(8))))\n"
        "plan = make_plan(registry)\n"
        "print(len(plan.failures), plan.failures[0][1])\n"
    )
    assert fresh_process(text, path=[HERE]).splitlines() == [
        "28",
        "28 attention needs flash-attn-4: pip install 'jitwarm[fa4]'",
    ]


# Binaries.


SM100 = ("sm100", 1, "small", "large", "launches")


@pytest.mark.cutedsl
def test_binaries_of_sm100():
    pytest.importorskip("flash_attn.cute")
    found = fa4_keys.asked(*SM100)
    for part, limits, main, table in (("small", SMALL, 8, {}), ("large", LARGE, 14, TABLE_SM100)):
        for tp, declared in zip((1, 2, 4, 8), DECLARED["sm100", limits], strict=True):
            counts = found[part][f"TP{tp}"]
            assert (counts["declared"], counts["main"]) == (declared, main)
            assert counts["helpers"] == {COMBINE: SPLIT[tp], SCHEDULE: SPLIT[tp]} | table
    for unknown, reached in found["launches"]:
        assert unknown == []
        assert reached > 6


@pytest.mark.cutedsl
def test_key_texts_are_the_same_in_every_process():
    pytest.importorskip("flash_attn.cute")
    other = fa4_keys.asked("sm100", 2, "small", "mla", "compiled")
    assert fa4_keys.asked(*SM100)["small"] == other["small"]  # digests of the texts included


@pytest.mark.cutedsl
def test_binaries_of_sm90(stub):
    pytest.importorskip("flash_attn.cute")
    for limits, main, helpers in ((SMALL, 4, {}), (LARGE, 8, TABLE)):
        digests = set()
        for tp, declared in zip((1, 2, 4, 8), DECLARED["sm90", limits], strict=True):
            counts = summary(fa4_keys.binaries(attend, inkling(tp, *limits)))
            digests.add(counts.pop("digest"))
            assert counts == {"declared": declared, "main": main, "helpers": helpers}
        assert len(digests) == 1  # the number of heads is no part of a key, only that of a group
    unknown, reached = fa4_keys.unknown_launches(8, *LARGE, 60, seed=3)
    assert unknown == []
    assert reached >= 6
    from flash_attn.cute import interface

    assert not interface._flash_attn_fwd.compile_cache.cache


@pytest.mark.cutedsl
def test_the_size_of_a_batch_is_no_part_of_the_key(stub):
    """Recipes have one token a request; a real batch has more."""
    pytest.importorskip("flash_attn.cute")
    from jitwarm.declare import TensorSpec

    for key in attend.get_warmup_keys(inkling(8)):
        small = attend.recipe(key)
        tokens = key.max_seqlen_q
        larger = dict(small.arguments)
        activations = TensorSpec("bfloat16", shape=(tokens, *larger["q"].shape[1:]))
        larger |= {
            "q": activations,
            "out": activations,
            "aux_tensors": (TensorSpec("bfloat16", shape=(tokens, 8, key.rel_extent)),),
            "page_table": TensorSpec("int32", shape=(1, 77)),
        }
        assert texts_of(FA4Recipe(tuple(larger.items()))) == texts_of(small)


@pytest.mark.cutedsl
def test_block_size_128_is_another_binary(stub):
    pytest.importorskip("flash_attn.cute")
    key = attend.get_warmup_keys(inkling(8))[0]
    by_size = {
        size: texts_of(attend.recipe(type(key)(**_fields(key) | {"block_size": size})))
        for size in (16, 64, 128)
    }
    assert by_size[16] == by_size[64] != by_size[128]


def _fields(key):
    return {name: getattr(key, name) for name in key.__slots__}


# Calls.


def test_tensors_that_do_not_fit(stub):
    def empty(*shape, dtype=torch.bfloat16):
        return torch.empty(*shape, dtype=dtype)

    index = torch.zeros(4, dtype=torch.int32)
    good = {"q": empty(3, 4, 128), "cache": empty(2, 2, 16, 2, 128), "rel": empty(3, 4, 64)}
    for bad in (
        {"q": empty(3, 4, 128, dtype=torch.float16)},
        {"cache": empty(2, 2, 16, 3, 128)},
        {"cache": empty(2, 2, 16, 2, 64)},
        {"rel": empty(2, 4, 64)},
    ):
        q, cache, rel = (good | bad).values()
        with pytest.raises(BindingError, match="InklingFA4RelAttention: needs q"):
            attend(
                q, cache[:, 0], cache[:, 1], index[:3, None], index[:3], index, rel,
                is_local=False, max_query_len=1, max_kv_len=99, num_reqs=3,
            )  # fmt: skip


@pytest.mark.cutedsl
def test_a_stub_launch_writes_nothing_and_counts(stub):
    pytest.importorskip("flash_attn.cute")
    from jitwarm.observe.monitor import Monitor

    with Monitor("record", null_kernels=True, count_hits=True) as monitor:
        inkling_launch(8, [1, 5, 2], is_local=False)
        inkling_launch(8, [1, 5, 2], is_local=False, total=40)
        inkling_launch(8, [1, 5, 2], is_local=True)
        assert sorted(monitor.launches().values()) == [1, 2]
