"""Inkling on the stub device, in fresh processes: the funnel by hand, what the traffic needs, and a
run that misses nothing.
"""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from jitwarm.device import Device
from jitwarm.errors import ScenarioError
from jitwarm.harness import Settings, needed_keys, plan_case, run_process
from jitwarm.jobs import Job
from jitwarm.judge.coverage import cover
from jitwarm.scenario import Scheduler
from jitwarm.scenario_file import load
from jitwarm.zoo.models.inkling import Inkling

ROOT = Path(__file__).parents[2]
SCENARIO = ROOT / "scenarios" / "inkling.toml"
FIRST_TOKEN = ROOT / "scenarios" / "inkling-first-token.toml"
STUB = Settings(device="stub", steps=30)
KERNEL = "InklingFA4RelAttention"
HELPERS = ("._flash_attn_fwd_combine[", "._get_scheduler_metadata[")


# 66 layers register the attention once, each of two block tables its slot mapping. The points: a
# longest query of 1, 2, 3, 5, 9 ... 4097 tokens x each number of requests, for global and for local
# layers. On sm100 keys grow with TP: fewer heads a rank leave more of the device to splits.
@pytest.mark.cutedsl
@pytest.mark.parametrize(
    ("path", "label", "points", "keys"),
    [
        (SCENARIO, "tp=1 arch=sm100", 14 * 256 * 2, 67),
        (SCENARIO, "tp=4 arch=sm90", 14 * 256 * 2, 28),
        (FIRST_TOKEN, "arch=sm100", 12 * 64 * 2, 165),
    ],
)
def test_the_funnel_and_what_the_traffic_needs(path, label, points, keys):
    """Keys of a replay without a compiler, in mode `record`. What splits need besides, a schedule
    and a combine kernel, is compiled with the main kernel and has no declared key.
    """
    pytest.importorskip("flash_attn.cute")
    (case,) = [case for case in load(path).cases if case.label == label]
    warmed = plan_case(case, STUB).warmed
    assert {
        row.kernel: (row.backend, row.registrations, row.distinct_registrations, row.points,
                     row.keys) for row in warmed.rows
    } == {
        KERNEL: ("fa4", 66, 1, points, keys),
        "ComputeSlotMapping": ("triton", 2, 1, 1, 1),
    }  # fmt: skip
    assert (warmed.layers, warmed.funnel.registrations, warmed.funnel.keys) == (66, 68, keys + 1)
    assert warmed.failed == warmed.findings == ()
    planned = {key.backend_key for key in warmed.keys}
    answer = needed_keys(case, STUB, 0)
    launches = answer.observed.launches
    helpers = {key for key in launches if any(name in key for name in HELPERS)} - planned
    assert launches.keys() - helpers <= planned
    # Each layer launched its attention once a step, each block table its mapping.
    assert sum(n for key, n in launches.items() if key not in helpers) == 30 * (66 + 2)
    assert not answer.emits_token  # on the stub device


@pytest.mark.cutedsl
def test_arm_loaded_misses_nothing(tmp_path):
    """With few tokens a step, so that two binaries do instead of four: they take seconds each."""
    pytest.importorskip("flash_attn.cute")
    (case,) = [case for case in load(SCENARIO).cases if case.label == "tp=8 arch=sm90"]
    case = msgspec.structs.replace(
        case,
        scheduler=Scheduler(max_num_seqs=8, max_num_batched_tokens=16, max_model_len=131072),
        traffic=msgspec.structs.replace(case.traffic, step=()),
    )
    job = Job(case, "loaded", (0,), 30, "stub", None, "error", progress=False)
    answer = run_process(job, tmp_path / "caches", tmp_path)
    coverage = cover(answer.warmed.keys, answer.warmed.ready, answer.observed)
    assert (coverage.needed, coverage.hit, coverage.missed, coverage.unreached) == (3, 3, 0, 0)
    assert coverage.launches == 30 * (66 + 2)
    # Query buckets 1 to 16 of two kinds of layers; the library tells none of them apart.
    assert (answer.warmed.funnel.keys, answer.warmed.funnel.backend_keys) == (2 * 5 + 1, 3)


@pytest.mark.parametrize(
    ("setting", "text"),
    [
        ("parallel.tp=3", "$.parallel.tp: tp 3 does not divide 64 heads"),
        (
            "cache.kv_cache_dtype=fp8",
            '$.cache.kv_cache_dtype: unknown "fp8": expected one of "bf16"',
        ),
        ("attention_backend=FLASH", "$.attention_backend: this model has only one"),
        ("parallel.dcp=2", "$.parallel.dcp: this model has no decode context parallelism"),
        ("parallel.pcp=2", "$.parallel.pcp: this model has no prefill context parallelism"),
        ("options.scale=3", "$.options.scale: expected one of 1, 2, 4, 8, 16, got 3"),
        ("options.tokens=true", "$.cache.num_blocks: with tokens, 256 sequences of 8192 blocks"),
        ("options.token=true", "$.options.token: unknown option: expected one of tokens, scale"),
    ],
)
def test_what_the_model_refuses(setting, text, outside):
    case = next(case for case in load(SCENARIO).cases if case.label == "tp=8 arch=sm90")
    field, _, value = setting.partition("=")
    top, _, name = field.partition(".")
    value = {"true": True}.get(value, int(value) if value.isdigit() else value)
    if top == "options":
        case = msgspec.structs.replace(case, options={name: value})
    elif name:
        changed = msgspec.structs.replace(getattr(case, top), **{name: value})
        case = msgspec.structs.replace(case, **{top: changed})
    else:
        case = msgspec.structs.replace(case, **{top: value})
    config = case.engine_config(0, Inkling.hf_config)
    with pytest.raises(ScenarioError) as caught:
        Inkling(config, Device("stub", "sm90", "stub device (no GPU)", "none"))
    assert str(caught.value).startswith(f"model inkling: {text}")
