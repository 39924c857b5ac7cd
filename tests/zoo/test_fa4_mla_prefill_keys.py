"""FA4MLAPrefill: declared keys and the binaries behind them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from jitwarm import device
from jitwarm.declare import NoKeys
from jitwarm.errors import BindingError
from jitwarm.zoo.kernels.fa4_mla_prefill import fa4_mla_prefill as prefill

sys.path.insert(0, str(Path(__file__).parent))
import fa4_keys
from fa4_keys import MLA_DIMS, mla, summary


@pytest.fixture
def on(monkeypatch):
    def activate(arch):
        found = device.Device("stub", arch, "stub device (no GPU)", "none")
        monkeypatch.setattr(device, "_active", found)

    return activate


@pytest.mark.parametrize(
    ("arch", "dims", "invariant", "expected"),
    [
        ("sm100", (128, 64, 128), False, 24),
        ("sm103", (128, 64, 128), False, 24),
        ("sm100", (192, 64, 256), False, 16),
        ("sm100", (64, 64, 128), False, 16),
        ("sm90", (128, 64, 128), False, 16),
        ("sm90", (256, 0, 256), False, 16),
        ("sm90", (128, 64, 128), True, 8),
        ("sm100", (128, 64, 128), True, 8),
        ("sm120", (64, 64, 128), True, 8),
    ],
)
def test_published_counts(on, arch, dims, invariant, expected):
    on(arch)
    keys = prefill.get_warmup_keys(mla(*dims), batch_invariant=invariant, as_published=True)
    assert len(keys) == expected
    assert {key.num_splits for key in keys} == {int(invariant)}


def test_the_configuration_may_ask_for_batch_invariance(on):
    on("sm90")
    config = mla(options=(("batch_invariant", True),))
    assert len(prefill.get_warmup_keys(config, as_published=True)) == 8
    assert {key.num_splits for key in prefill.get_warmup_keys(config)} == {1}


@pytest.mark.parametrize(
    ("arch", "config", "reason"),
    [
        ("sm90", mla(heads=0), "no heads"),
        ("sm100", mla(128, 72, 128), r"no kernel for head dims (200, 128) on sm100"),
        ("sm80", mla(), "no kernel for head dims (192, 128) on sm80"),
        ("sm90", mla(250, 64, 128), "no kernel for head dims (314, 128) on sm90"),
        ("sm120", mla(64, 64, 128), "batch-invariant mode only"),
    ],
)
def test_spoken_zeros(on, arch, config, reason):
    on(arch)
    found = prefill.get_warmup_keys(config)
    assert isinstance(found, NoKeys)
    assert reason in found.reason


def test_one_probe_in_full(on):
    on("sm100")
    key = prefill.get_warmup_keys(mla(dtype="float32"), as_published=True)[-1]
    assert prefill.key_text(key) == (
        "FA4MLAPrefill(q_shape=(129, 16, 192), k_shape=(8192, 16, 192), v_shape=(8192, 16, 128), "
        "q_dtype='bfloat16', max_seqlen_q=129, max_seqlen_k=8192, "
        "softmax_scale=0.07216878364870322, causal=True, fa_version=4, v_stride=(4096, 256, 1), "
        "cu_seqlens_q_shape=(2,), cu_seqlens_k_shape=(2,), window_size=None, "
        "return_softmax_lse=True, num_splits=0)"
    )


# As published: declared keys, main binaries; with splits there are helpers besides.
BINARIES = {
    "sm90": dict.fromkeys(MLA_DIMS, (16, 8)),
    "sm100": {
        (128, 64, 128): (24, 16),
        (192, 64, 256): (16, 12),
        (64, 64, 128): (16, 16),
        (256, 0, 256): (16, 12),
    },
}


@pytest.mark.cutedsl
def test_binaries_of_sm90(stub):
    pytest.importorskip("flash_attn.cute")
    for dims, (declared, main) in BINARIES["sm90"].items():
        plain, invariant = (
            summary(fa4_keys.binaries(prefill, mla(*dims), batch_invariant=each, as_published=True))
            for each in (False, True)
        )
        assert (plain["declared"], plain["main"], plain["helpers"]) == (declared, main, {})
        # The library cannot split there, so both modes have the same binaries.
        assert (invariant["declared"], invariant["digest"]) == (8, plain["digest"])


@pytest.mark.cutedsl
def test_binaries_of_sm100_and_a_compile():
    """In a process of its own, as a process has one device; the compile is a real one."""
    pytest.importorskip("flash_attn.cute")
    found = fa4_keys.asked("sm100", 2, "small", "mla", "compiled")
    for dims, (declared, main) in BINARIES["sm100"].items():
        plain, invariant = found["mla"][f"{dims} False"], found["mla"][f"{dims} True"]
        assert (plain["declared"], plain["main"]) == (declared, main)
        assert plain["helpers"] == {"_flash_attn_fwd_combine": 2, "_get_scheduler_metadata": 2}
        assert (invariant["declared"], invariant["main"], invariant["helpers"]) == (8, 8, {})
    ((kind, text),) = found["compiled"]["events"]
    assert kind == "compile"
    assert "static_persistent=True" in text
    # The number of SMs is built in, though it is no part of the library's key: the text has it.
    assert text.endswith("{sm_100a; num_sms=148}")
    assert found["compiled"]["asked"]


# Heads, head dims: declared keys, main binaries, helpers; more prefills than 256 among them.
REACHED = {
    "sm90": dict.fromkeys(
        (
            *(f"16 {dims}" for dims in MLA_DIMS),
            *("4 (64, 64, 128)", "4 (256, 0, 256)", "2 (128, 64, 128)", "1 (32, 32, 64)"),
            "1 (256, 0, 256)",
        ),
        (12, 12, 2),
    ),
    "sm100": {
        "16 (128, 64, 128)": (20, 20, 5),
        "16 (192, 64, 256)": (16, 16, 5),
        "16 (64, 64, 128)": (23, 23, 7),
        "16 (256, 0, 256)": (16, 16, 5),
        "4 (64, 64, 128)": (25, 23, 8),
        "4 (256, 0, 256)": (19, 18, 8),
        "2 (128, 64, 128)": (28, 22, 10),
        "1 (32, 32, 64)": (36, 23, 12),
        "1 (256, 0, 256)": (22, 18, 11),
    },
}


@pytest.mark.cutedsl
@pytest.mark.parametrize("arch", REACHED)
def test_launches_of_an_engine_need_what_it_declares_and_no_more(arch):
    """In a process of its own: none is missed, by the envelopes or by random launches, and none is
    declared that the envelopes do not need.
    """
    pytest.importorskip("flash_attn.cute")
    done = subprocess.run(
        [sys.executable, Path(__file__).with_name("fa4_mla_launches.py"), arch],
        capture_output=True, text=True, check=False,
        env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = {name: tuple(counts) for name, counts in json.loads(done.stdout).items()}
    assert found == {name: (*counts, 0, 0, 0) for name, counts in REACHED[arch].items()}


@pytest.mark.cutedsl
def test_an_engine_with_short_prompts_splits_nothing(stub, monkeypatch):
    """Keys of 2,047 tokens at most, as behind a selection of 2,048: SM100 and two head dims."""
    monkeypatch.setattr(device, "_active", device.Device("stub", "sm100", "", "none"))
    monkeypatch.setattr("jitwarm.backends.fa4.library.num_sms", lambda: 148)
    keys = prefill.get_warmup_keys(mla(), longest=2048)
    assert {(key.max_seqlen_q, key.max_seqlen_k) for key in keys if not key.causal} == {
        (1, 1), (129, 1), (257, 1)
    }  # fmt: skip
    assert len(keys) == 9
    # And without room for a context there is nothing to merge.
    alone = prefill.get_warmup_keys(mla(), longest=2048, contexts=0)
    assert {(key.causal, key.return_softmax_lse) for key in alone} == {(True, False)}
    assert len(alone) == 3


@pytest.mark.cutedsl
def test_a_stub_launch_asks_for_a_declared_binary(stub):
    pytest.importorskip("flash_attn.cute")
    from jitwarm.observe.monitor import Monitor

    _, declared, _ = fa4_keys.binaries(prefill, mla())
    joint = torch.empty(700, 16, 256, dtype=torch.bfloat16)
    k = torch.empty(700, 16, 192, dtype=torch.bfloat16)
    starts = torch.tensor([0, 200, 700], dtype=torch.int32)
    with Monitor("record", null_kernels=True, count_hits=True) as monitor:
        out = prefill(k, k, joint[..., 128:], starts, starts, 500, 500, causal=True)
        assert out.shape == (700, 16, 128)
        out, lse = prefill(
            k[:3], k, joint[..., 128:], starts, starts, 2, 500, causal=False, return_lse=True
        )
        assert (out.shape, lse.shape) == ((3, 16, 128), (16, 3))
        launched = monitor.launches()
    assert len(launched) == 2
    assert set(launched) <= declared


def test_tensors_that_do_not_fit(stub):
    q = torch.empty(3, 4, 192)
    starts = torch.zeros(2, dtype=torch.int32)
    for k, v, cu_k in (
        (torch.empty(3, 4, 128), torch.empty(3, 4, 128), starts),
        (q, torch.empty(2, 4, 128), starts),
        (q, torch.empty(3, 4, 128, dtype=torch.bfloat16), starts),
        (q, torch.empty(3, 4, 128), starts[:1]),
    ):
        with pytest.raises(BindingError, match="FA4MLAPrefill: needs q"):
            prefill(q, k, v, starts, cu_k, 3, 3, causal=True)
