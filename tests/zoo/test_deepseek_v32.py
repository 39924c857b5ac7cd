"""The main job on the stub device, through the command line, in fresh processes."""

from __future__ import annotations

import json

import msgspec
import pytest

from command_line import ROOT, funnel, jitwarm, records, rows
from jitwarm.record import Result
from jitwarm.scenario_file import load
from jitwarm.traffic import batches

SCENARIO = "scenarios/deepseek-v3.2-dcp.toml"

# Registrations, distinct, keys and backend keys by hand: 61 layers register each per-layer kernel
# once, the block table once; docs/kernels.md derives the keys.
DCP1 = {
    "PackSeq": (61, 1, 1, 1),
    "UnpackSeq": (61, 1, 1, 1),
    "PrepareUniformDecode": (61, 1, 1, 1),
    "BuildPrefillChunkMetadata": (61, 1, 10, 10),
    "ComputePrefillMetadata": (61, 1, 9, 9),
    "ComputeSlotMapping": (1, 1, 1, 1),
    "ConvertReqIndexToGlobalIndex": (61, 1, 2, 2),
    # Registered by every sparse MLA layer; without a compressed layer it has no keys.
    "CompressedSlotMapping": (61, 1, 0, 0),
}
DCP8 = DCP1 | {
    "PackDCPTopkCandidates": (61, 1, 2, 2),
    "StableTopKFromGatheredCandidates": (61, 1, 1, 1),
    "CorrectAttnCPOut": (61, 1, 1, 1),
    "ConvertReqIndexToGlobalIndex": (61, 1, 1, 1),
}


def one_record(done, code=0):
    """The one record that a command printed."""
    (record,) = records(done, code)
    return record


@pytest.mark.triton
@pytest.mark.parametrize(
    ("case", "totals", "kernels"),
    [
        ("dcp=1,arch=sm90", (61, 428, 8, 25, 25), DCP1),
        ("dcp=8,arch=sm100", (61, 611, 11, 28, 28), DCP8),
    ],
)
def test_the_funnel(case, totals, kernels):
    record = one_record(jitwarm("plan", SCENARIO, "--case", case, "--json"))
    assert funnel(record) == totals
    assert rows(record) == kernels
    assert record["funnel"]["dedup_ratio"] == totals[1] / totals[2]
    world = record["case"]["parallel"]["dcp"]
    assert [(p["rank"], p["keys"]) for p in record["rank_plans"]] == [
        (rank, totals[3]) for rank in range(world)
    ]


@pytest.mark.cutedsl
@pytest.mark.parametrize(
    ("case", "totals", "attention"),
    [
        # 489 + 61 CompressedSlotMapping + 61 StableTopK + 61 FA4MLAPrefill = 672.
        ("dcp=8,arch=sm100", (61, 672, 12, 37, 37), (61, 1, 9, 9)),
        ("dcp=8,arch=sm90", (61, 672, 12, 34, 34), (61, 1, 6, 6)),
        ("dcp=1,arch=sm90", (61, 489, 9, 31, 31), (61, 1, 6, 6)),
    ],
)
def test_the_funnel_with_all_kernels(case, totals, attention):
    """A declared key of FA4MLAPrefill is one launch of each binary that the limits admit."""
    full = "scenarios/deepseek-v3.2-full.toml"
    record = one_record(jitwarm("plan", full, "--case", case, "--json"))
    assert funnel(record) == totals
    own = DCP8 if case.startswith("dcp=8") else DCP1
    assert rows(record) == own | {"FA4MLAPrefill": attention}
    backends = {k["kernel"]: k["backend"] for k in record["kernels"]}
    assert backends["FA4MLAPrefill"] == "fa4"
    if own is DCP8:
        assert backends["StableTopKFromGatheredCandidates"] == "cutedsl"


def test_plans_are_the_same_for_any_hash_seed():
    seeds = ("1", "77")
    one, other = (
        one_record(
            jitwarm(
                "plan",
                SCENARIO,
                "--case",
                "dcp=4,arch=sm90",
                "--json",
                env={"PYTHONHASHSEED": seed},
            )
        )
        for seed in seeds
    )
    one.pop("enumeration_s"), other.pop("enumeration_s")
    assert one == other
    # Rank is a compile-time constant of three kernels, so each of the four ranks has its own set.
    assert len({plan["digest"] for plan in one["rank_plans"]}) == 4


def test_a_run_writes_one_result_and_misses_nothing(tmp_path):
    done = jitwarm(
        "run", SCENARIO, "--case", "dcp=8,arch=sm90", "--steps", "60", "--jobs", "1",
        "--monitor", "error", "--out", str(tmp_path), "--json",
    )  # fmt: skip
    record = one_record(done)
    folder = tmp_path / "deepseek-v3.2-dcp" / "dcp-8_arch-sm90"
    assert sorted(path.name for path in folder.iterdir()) == [
        "events.rank0.jsonl",
        "events.rank1.jsonl",
        "events.rank7.jsonl",
        "result.json",
    ]
    result = msgspec.json.decode((folder / "result.json").read_bytes(), type=Result)
    assert msgspec.json.decode(msgspec.json.encode(result)) == record
    assert funnel(record) == (61, 611, 11, 28, 28)
    assert (result.funnel.compiled, result.funnel.disk_hits, result.funnel.loaded) == (28, 0, 28)
    assert (result.warm.warmed, result.warm.jobs, result.warm.redundant_compiles) == (28, 1, 0)
    assert result.missed == 0
    assert [c.rank for c in result.rank_coverage] == [1, 7]
    for coverage in (result.coverage, *result.rank_coverage):
        assert coverage.hit == coverage.needed == coverage.warmed - coverage.unreached
        assert coverage.steps == 60
        assert coverage.launches > 60 * 61
    loaded, cold, disk = (result.arms[arm] for arm in ("loaded", "cold", "disk"))
    assert "compiled" not in result.arms  # nothing to load on a stub device
    assert (loaded.compiles, loaded.disk_hits) == (0, 0)
    assert (disk.compiles, disk.disk_hits) == (0, 0)
    assert 0 < cold.compiles <= result.coverage.needed
    triton_files = result.caches["TRITON_CACHE_DIR"]
    assert triton_files.before == 0
    assert triton_files.after >= 28
    kinds = {
        json.loads(line)["kind"]
        for line in (folder / "events.rank0.jsonl").read_text().splitlines()
    }
    assert kinds == {"compile", "load"}
    assert any("host times" in check for check in result.checks)


@pytest.mark.parametrize("monitor", ["record", "error"])
def test_a_missing_value_of_one_axis_is_exactly_that_miss(tmp_path, monitor):
    case = next(c for c in load(ROOT / SCENARIO).cases if c.label == "dcp=1 arch=sm90")
    steps = 120
    done = jitwarm(
        "run", SCENARIO, "--case", "dcp=1,arch=sm90", "--steps", str(steps), "--json",
        "--set", "model=tests.zoo.faulty_models:WithoutBlocksOfFour",
        "--monitor", monitor, "--out", str(tmp_path),
    )  # fmt: skip
    record = one_record(done, code=1)
    assert record["funnel"]["keys"] == 24
    coverage = record["coverage"]
    (miss,) = coverage["misses"]
    assert coverage["missed"] == 1
    assert miss["kernel"] == "ComputePrefillMetadata"
    assert "BLOCK_SIZE:constexpr=4]" in miss["key"]
    # The 18 headline steps are one prefill and one decode batch; the traffic follows them.
    three_or_four = [
        18 + index
        for index, batch in zip(range(steps - 18), batches(case), strict=False)
        if batch.num_prefills in (3, 4)
    ]
    assert miss["first_step"] == three_or_four[0]
    finding = miss["finding"]
    assert (finding["kind"], finding["field"]) == ("MISS", "BLOCK_SIZE")
    assert finding["seen"] == "constexpr=4"
    events = [
        json.loads(line)
        for path in tmp_path.rglob("events.jsonl")
        for line in path.read_text().splitlines()
    ]
    late = [event for event in events if event["phase"] == "serve"]
    if monitor == "error":  # refused every time, nothing compiled
        assert [e["kind"] for e in late] == ["refused"] * len(three_or_four)
    else:  # compiled (and on this device loaded for free) once, then a hit
        assert [e["kind"] for e in late] == ["compile", "load"]
        assert miss["count"] == len(three_or_four)
    assert {event["step"] for event in late} <= set(three_or_four)


def test_one_kernel_that_cannot_be_enumerated_costs_the_others_nothing(tmp_path):
    done = jitwarm(
        "run", SCENARIO, "--case", "dcp=1,arch=sm90", "--steps", "4", "--json",
        "--out", str(tmp_path),
        "--set", "model=tests.zoo.faulty_models:WithAKernelThatCannotEnumerate",
    )  # fmt: skip
    record = one_record(done, code=3)
    (failed,) = record["warm"]["failed"]
    assert failed["kernel"] == "ComputePrefillMetadata"
    place = f"{ROOT}/tests/zoo/faulty_models.py:26"
    assert failed["error"] == f"ZeroDivisionError: no prefills at all ({place})"
    assert failed["rank"] == 0
    assert record["warm"]["warmed"] == 16


def test_warm_up_switched_off_counts_registrations_and_compiles_nothing(tmp_path):
    done = jitwarm(
        "run", SCENARIO, "--case", "dcp=1,arch=sm90", "--steps", "2", "--json",
        "--out", str(tmp_path),
        "--set", "warmup.enable_jit_warmup=false",
    )  # fmt: skip
    record = one_record(done, code=1)
    assert funnel(record) == (61, 428, 8, 25, 25)
    assert record["funnel"]["compiled"] == record["warm"]["warmed"] == 0
    assert len(record["warm"]["skipped"]) == 25
    assert record["coverage"]["missed"] == record["coverage"]["needed"] > 0


def test_counts_do_not_depend_on_the_number_of_threads():
    one, two = (
        one_record(
            jitwarm("warm", SCENARIO, "--case", "dcp=1,arch=sm100", "--json", "--jobs", jobs)
        )
        for jobs in ("1", "2")
    )
    assert (one["warm"]["jobs"], two["warm"]["jobs"]) == (1, 2)
    for record in (one, two):
        for name in ("seconds", "cpu_seconds", "jobs"):
            del record["warm"][name]
        del record["enumeration_s"]
    assert one == two


def test_a_second_attention_backend_registers_nothing_of_the_first(tmp_path):
    text = (ROOT / SCENARIO).read_text()
    text = text.replace('"FLASHMLA_SPARSE" ', '"{backend}" ').replace(
        "[matrix]", '[matrix]\nbackend = ["FLASHMLA_SPARSE", "FLASHMLA"]'
    )
    scenario = tmp_path / "two.toml"
    scenario.write_text(text.replace('quick = ["dcp=1", "dcp=8"]', "quick = []"))
    done = jitwarm("plan", str(scenario), "--case", "dcp=8,arch=sm90", "--json")
    assert done.returncode == 0, done.stderr
    sparse, dense = map(json.loads, done.stdout.splitlines())
    assert rows(sparse) == DCP8
    assert rows(dense) == {
        "CorrectAttnCPOut": (61, 1, 1, 1),
        "ComputeSlotMapping": (1, 1, 1, 1),
    }


def test_a_failure_at_another_rank_fails_the_plan():
    done = jitwarm(
        "plan", SCENARIO, "--case", "dcp=2,arch=sm90", "--json",
        "--set", "model=tests.zoo.faulty_models:WithAKernelThatCannotEnumerateAtRankOne",
    )  # fmt: skip
    record = one_record(done, code=3)
    assert [(f["kernel"], f["rank"]) for f in record["failed"]] == [("ComputePrefillMetadata", 1)]
    assert [p["keys"] for p in record["rank_plans"]] == [28, 19]


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        (["parallel.tp=256"], "$.parallel.tp: tp 256 does not divide 128 heads"),
        (["parallel.pcp=2"], "$.parallel.pcp: this model has no prefill context parallelism"),
        (["cache.kv_cache_dtype=banana"], '$.cache.kv_cache_dtype: unknown "banana": expected'),
        (
            [
                "traffic.step=[]",
                "speculative.method=dspark",
                "speculative.num_speculative_tokens=3",
            ],
            "$.speculative: this model has no draft tokens",
        ),
        (["options.prefill=fast"], '$.options.prefill: expected one of "sparse", "fa4"'),
        (["options.tokens=true"], "$.options.tokens: a token needs the whole context"),
    ],
)
def test_what_the_model_refuses(settings, text):
    given = [part for setting in settings for part in ("--set", setting)]
    done = jitwarm("plan", SCENARIO, "--case", "dcp=2,arch=sm90", *given)
    assert done.returncode == 2
    assert f"model deepseek-v3.2: {text}" in done.stderr
