"""The DeepSeek-V4 family on the stub device: funnels by hand, launches of a step, no miss."""

from __future__ import annotations

import dataclasses
import re
import sys
from collections import Counter
from pathlib import Path

import msgspec
import pytest

from command_line import ROOT, funnel, jitwarm, records, rows
from jitwarm.backends.triton.keytext import parse_key
from jitwarm.config import (
    CacheConfig,
    EngineConfig,
    ModelConfig,
    ParallelConfig,
    SchedulerConfig,
    SpeculativeConfig,
)
from jitwarm.device import Device
from jitwarm.errors import ScenarioError
from jitwarm.harness import Settings, plan_case
from jitwarm.harness import needed_keys as replay_needed
from jitwarm.registry import JitWarmupRegistry
from jitwarm.scenario_file import load
from jitwarm.traffic import Batch
from jitwarm.zoo.models.deepseek_v4 import DeepSeekV4Flash, DeepSeekV4Pro
from jitwarm.zoo.models.dsv4_dcp import DeepSeekV4DCP

sys.path.insert(0, str(Path(__file__).parent))

from needed_keys import cases, golden, needed_text

# Registrations, distinct, keys and backend keys by hand; docs/kernels.md derives them. Pro: 61
# layers, of which 30 have an indexer; all of them compress.
PRO = {
    "ComputeSWAIndicesAndLens": (61, 1, 1, 1),
    "ComputePrefillMetadata": (61, 1, 9, 9),
    "CompressedSlotMapping": (61, 1, 2, 2),
    "CombineTopkSwaIndices": (61, 1, 16, 16),
    "PackSeq": (30, 1, 1, 1),
    "UnpackSeq": (30, 1, 1, 1),
    "PrepareUniformDecode": (30, 1, 1, 1),
    "BuildPrefillChunkMetadata": (30, 1, 10, 10),
}
# Three block tables, two block sizes.
TABLES = {"ComputeSlotMapping": (3, 2, 2, 2)}
# Flash: 43 layers, of which 21 have an indexer and 2 compress nothing.
FLASH = {
    "ComputeSWAIndicesAndLens": (43, 1, 1, 1),
    "ComputePrefillMetadata": (43, 1, 9, 9),
    "CompressedSlotMapping": (41, 1, 2, 2),
    "CombineTopkSwaIndices": (43, 1, 18, 18),
    "PackSeq": (21, 1, 1, 1),
    "UnpackSeq": (21, 1, 1, 1),
    "PrepareUniformDecode": (21, 1, 1, 1),
    "BuildPrefillChunkMetadata": (21, 1, 10, 10),
}
# Images: three widths and variants of windows are two binaries; combined rows with and without.
IMAGES = {"ComputeSWAIndicesAndLens": (43, 1, 3, 2), "CombineTopkSwaIndices": (43, 1, 36, 36)}
DRAFTS = {"ComputeDSparkNoncausalSWAIndices": (61, 1, 1, 1)}
# The model for DCP: 60 layers, 20 of each kind; ratios 1 and 4 have contexts that are sliced (10
# keys), 1,024 states of 128 are not (6).
DCP1 = {
    "PackSeq": (40, 1, 1, 1),
    "UnpackSeq": (40, 1, 1, 1),
    "CompressedSlotMapping": (60, 1, 2, 2),
    "PrepareUniformDecode": (60, 1, 1, 1),
    "BuildPrefillChunkMetadata": (60, 1, 26, 26),
    "ComputePrefillMetadata": (60, 1, 9, 9),
    "ComputeSlotMapping": (3, 1, 1, 1),
    "ConvertReqIndexToGlobalIndex": (20, 1, 2, 2),
}
DCP4 = DCP1 | {
    "PackDCPTopkCandidates": (20, 1, 2, 2),
    "StableTopKFromGatheredCandidates": (20, 1, 1, 1),
    "CorrectAttnCPOut": (60, 1, 1, 1),
    "ConvertReqIndexToGlobalIndex": (20, 1, 1, 1),
}
STUB = Device("stub", "sm90", "", "")


@pytest.mark.triton
@pytest.mark.parametrize(
    ("scenario", "case", "totals", "kernels"),
    [
        ("deepseek-v4-pro", "seqs=256,arch=sm100", (61, 367, 10, 43, 43), PRO | TABLES),
        (
            "deepseek-v4-flash",
            "seqs=1024,arch=sm90",
            (43, 257, 10, 47, 47),
            FLASH | TABLES | {"ComputePrefillMetadata": (43, 1, 11, 11)},
        ),
        (
            "deepseek-v4-vision",
            "model=deepseek-v4-flash,arch=sm90",
            (43, 257, 10, 65, 64),
            FLASH | TABLES | IMAGES,
        ),
        ("deepseek-v4-dspark", "spec=15,arch=sm90", (61, 428, 11, 44, 44), PRO | TABLES | DRAFTS),
        ("dsv4-dcp", "dcp=1,arch=sm90", (60, 343, 8, 43, 43), DCP1),
        ("dsv4-dcp", "dcp=4,arch=sm100", (60, 443, 11, 46, 46), DCP4),
    ],
)
def test_the_funnel(scenario, case, totals, kernels):
    (record,) = records(jitwarm("plan", f"scenarios/{scenario}.toml", "--case", case, "--json"))
    assert rows(record) == kernels
    assert funnel(record) == totals


def test_364_registrations_of_61_layers_are_8():
    """Registered by layers, apart from the block tables."""
    registry = registered(DeepSeekV4Pro)
    from_layers = [
        request for request in registry if request.kernel.kernel_name != "ComputeSlotMapping"
    ]
    assert sum(request.registrations for request in from_layers) == 4 * 61 + 4 * 30 == 364
    assert len(from_layers) == 8
    names = {owner for request in from_layers for owner in request.owners}
    assert {name for name in names if "indexer" in name} == {
        f"model.layers.{index}.attn.indexer" for index in range(2, 61, 2)
    }
    assert len(names) == 61 + 30


def test_ratios_of_the_layers():
    pro, flash = (model.hf_config.compress_ratios for model in (DeepSeekV4Pro, DeepSeekV4Flash))
    assert (len(pro), len(flash)) == (62, 44)
    assert pro[:4] == (128, 128, 4, 128)
    assert flash[:4] == (0, 0, 4, 128)
    assert (pro[-3:], flash[-3:]) == ((128, 4, 0), (128, 4, 0))
    assert Counter(pro[:61]) == {128: 31, 4: 30}
    assert Counter(flash[:43]) == {4: 21, 128: 20, 0: 2}


def test_plans_are_the_same_for_any_hash_seed():
    one, other = (
        records(
            jitwarm(
                "plan",
                "scenarios/deepseek-v4-vision.toml",
                "--case",
                "model=deepseek-v4-pro,arch=sm90",
                "--json",
                env={"PYTHONHASHSEED": seed},
            )
        )[0]
        for seed in ("3", "9000")
    )
    one.pop("enumeration_s"), other.pop("enumeration_s")
    assert one == other


def test_a_backend_that_gathers_nothing_combines_nothing(monkeypatch):
    registry = registered(DeepSeekV4Pro, attention_backend="FLASHINFER_MLA_SPARSE")
    names = Counter()
    for request in registry:
        names[request.kernel.kernel_name] += request.registrations
    expected = {name: counts[0] for name, counts in PRO.items()}
    del expected["CombineTopkSwaIndices"]
    assert names == expected | {"ComputeSlotMapping": 1}  # the placeholder
    launches = stepped(
        monkeypatch,
        DeepSeekV4Pro,
        Batch((9,), (5,), (0,)),
        attention_backend="FLASHINFER_MLA_SPARSE",
    )
    assert launches.of("gather")
    assert not launches.of("combine")


REFUSED_DCP = (
    "refused: the indexer of this model selects states of 4 tokens, and one that compresses cannot "
    "be sharded by decode context parallelism; set dcp = 1 (model dsv4-dcp has the kernels of this "
    "family that can be)"
)
OF_PRO = "expected one of FLASHMLA_SPARSE, FLASHINFER_MLA_SPARSE"
TORN = "turns of 64 tokens tear states of 128 tokens apart: choose a multiple of 128"
UNKNOWN_TOPK = 'expected one of "auto", "triton", "cutedsl", got "torch"'


@pytest.mark.parametrize(
    ("model", "changes", "field", "problem"),
    [
        (
            DeepSeekV4Pro,
            {"parallel_config": ParallelConfig(8, 2)},
            "parallel.dcp",
            REFUSED_DCP,
        ),
        (
            DeepSeekV4Flash,
            {"parallel_config": ParallelConfig(8, 1, 2)},
            "parallel.pcp",
            "this model has no prefill context parallelism: leave it out",
        ),
        (
            DeepSeekV4Flash,
            {"parallel_config": ParallelConfig(128)},
            "parallel.tp",
            "tp 128 does not divide 64 heads",
        ),
        (
            DeepSeekV4Pro,
            {"cache_config": CacheConfig(64)},
            "cache.block_size",
            "a block of 64 tokens does not hold whole states of 128 tokens",
        ),
        (
            DeepSeekV4Pro,
            {"attention_backend": "FLASHMLA"},
            "attention_backend",
            f"unknown backend 'FLASHMLA': {OF_PRO}",
        ),
        (
            DeepSeekV4Pro,
            {"options": (("visions", True),)},
            "options.visions",
            "unknown option: expected one of vision, tokens, scale, max_scores",
        ),
        (
            DeepSeekV4DCP,
            {"parallel_config": ParallelConfig(8, 2, cp_kv_cache_interleave_size=64)},
            "parallel.cp_kv_cache_interleave_size",
            TORN,
        ),
        (
            DeepSeekV4DCP,
            {"options": (("stable_topk", "torch"),)},
            "options.stable_topk",
            UNKNOWN_TOPK,
        ),
        (
            DeepSeekV4DCP,
            {"attention_backend": "FLASHMLA"},
            "attention_backend",
            "unknown backend 'FLASHMLA': expected FLASHMLA_SPARSE",
        ),
        (
            DeepSeekV4DCP,
            {"parallel_config": ParallelConfig(8, 1, 2)},
            "parallel.pcp",
            "this model has no prefill context parallelism: leave it out",
        ),
        (
            DeepSeekV4DCP,
            {"speculative_config": SpeculativeConfig("dspark", 3)},
            "speculative",
            "this model has no draft tokens: leave it out",
        ),
        (
            DeepSeekV4DCP,
            {"parallel_config": ParallelConfig(256)},
            "parallel.tp",
            "tp 256 does not divide 128 heads",
        ),
        (
            DeepSeekV4DCP,
            {"cache_config": CacheConfig(192)},
            "cache.block_size",
            "a block of 192 tokens does not hold whole states of 128 tokens",
        ),
    ],
)
def test_what_a_model_lacks_it_refuses(model, changes, field, problem):
    config = dataclasses.replace(configured(model), **changes)
    with pytest.raises(ScenarioError) as error, JitWarmupRegistry(config).activate():
        model(config, STUB)
    assert str(error.value) == f"model {model.name}: $.{field}: {problem}"


def test_decode_context_parallelism_is_refused_with_the_exit_code_of_a_bad_scenario():
    done = jitwarm(
        "plan", "scenarios/deepseek-v4-pro.toml", "--case", "seqs=64,arch=sm90",
        "--set", "parallel.dcp=2",
    )  # fmt: skip
    assert done.returncode == 2
    assert "$.parallel.dcp: refused: the indexer of this model selects states" in done.stderr


def configured(model, **changes):
    """A small engine for a model."""
    return dataclasses.replace(
        EngineConfig(
            ModelConfig(max_model_len=32_768, hf_config=model.hf_config),
            cache_config=CacheConfig(256, 16, "fp8_ds_mla"),
            scheduler_config=SchedulerConfig(16, 512),
            attention_backend="FLASHMLA_SPARSE",
        ),
        **changes,
    )


def registered(model, **changes):
    """What the layers of a model register in a small engine."""
    config = configured(model, **changes)
    registry = JitWarmupRegistry(config)
    with registry.activate():
        model(config, STUB)
    return registry


class Launches:
    """What a step launches: name, and what matters of the arguments."""

    def __init__(self, monkeypatch):
        from jitwarm.zoo.models import deepseek_v4_step
        from jitwarm.zoo.steps import block_tables, gathered_prefill

        self.made = []
        for module in (block_tables, deepseek_v4_step, gathered_prefill):
            for name in list(vars(module)):
                if name in NAMES:
                    monkeypatch.setattr(module, name, self.recorder(NAMES[name]))

    def recorder(self, name):
        return lambda *args, **kwargs: self.made.append((name, args, kwargs))

    def of(self, name):
        return [(args, kwargs) for made, args, kwargs in self.made if made == name]


NAMES = {
    "compute_slot_mapping": "slots",
    "compute_swa_indices_and_lens": "window",
    "compute_dspark_noncausal_swa_indices": "draft",
    "compute_prefill_metadata": "gather",
    "compressed_slot_mapping": "states",
    "prepare_uniform_decode": "uniform",
    "build_prefill_chunk_metadata": "chunk",
    "pack_seq": "pack",
    "unpack_seq": "unpack",
    "combine_topk_swa_indices": "combine",
}


def stepped(monkeypatch, model, batch, **changes):
    launches = Launches(monkeypatch)
    config = configured(model, **changes)
    with JitWarmupRegistry(config).activate():
        made = model(config, STUB)
        made.bind_kv_cache()
    made.set_up()
    assert launches.made == []
    made.step(batch)
    return launches


def test_the_order_of_a_mixed_step(monkeypatch):
    batch = Batch((9, 100, 7), (5, 30), (1000, 0))
    launches = stepped(monkeypatch, DeepSeekV4Flash, batch)
    once = "slots slots slots window window gather states states uniform chunk"
    layers = "combine combine" + " pack unpack combine combine" * 20 + " pack unpack combine"
    assert " ".join(name for name, _, _ in launches.made) == f"{once} {layers}"


def test_the_slices_of_a_mixed_step(monkeypatch):
    # 3 decodes; 5 new tokens behind 1,000, and 30 behind none.
    launches = stepped(monkeypatch, DeepSeekV4Flash, Batch((9, 100, 7), (5, 30), (1000, 0)))
    windows = [kwargs for _, kwargs in launches.of("window")]
    assert [(w["num_tokens"], w["token_offset"]) for w in windows] == [(3, 0), (35, 3)]
    assert all("left_visible" not in w and w["index_width"] == 128 for w in windows)
    assert [kwargs["kv_cache_block_size"] for _, kwargs in launches.of("slots")] == [64, 256, 256]
    states = [(k["compress_ratio"], k["block_size"]) for _, k in launches.of("states")]
    assert states == [(4, 64), (128, 2)]
    ((args, kwargs),) = launches.of("chunk")
    assert args[0].tolist() == [0, 5, 35]
    assert args[1].tolist() == [1005, 30]
    assert args[1].data_ptr() % 16 == 12  # behind 3 decodes
    assert args[2].tolist() == [0, 251, 258]
    assert args[3:] == (0, 35)
    assert (kwargs["compress_ratio"], len(kwargs["token_to_seq"])) == (4, 258)
    combined = {kwargs["compress_ratio"]: (args, kwargs) for args, kwargs in launches.of("combine")}
    assert set(combined) == {1, 4, 128}
    for ratio, top_k, most in ((1, 0, 0), (4, 512, 251), (128, 128, 7)):
        (topk, starts, lens, gathered), kwargs = combined[ratio]
        assert topk.shape == (35, top_k or 512)
        assert starts.tolist() == [3, 8, 38]
        assert lens.tolist() == [1005, 30]
        assert [t.data_ptr() % 16 for t in (topk, starts, lens, gathered)] == [0, 12, 12, 0]
        assert (kwargs["top_k"], kwargs["compressed_slots"]) == (top_k, most)
        assert kwargs["slots_per_request"] == most + 5 + 127  # the first gathers a whole window
        assert kwargs["indices"].shape == (35, top_k + 128)
        assert kwargs["left_visible"] is kwargs["right_visible"] is None


def test_an_even_number_of_decodes_is_no_aligned_slice_but_four_are(monkeypatch):
    for decodes, offset in ((2, 8), (4, 0)):
        launches = stepped(monkeypatch, DeepSeekV4Pro, Batch((9,) * decodes, (5,), (0,)))
        for (_, starts, lens, gathered), _ in launches.of("combine"):
            assert starts.data_ptr() % 16 == lens.data_ptr() % 16 == offset
            assert gathered.data_ptr() % 16 == 0


def test_a_decode_step_leaves_the_prefill_out_and_a_padded_one_the_uniform_decode(monkeypatch):
    launches = stepped(monkeypatch, DeepSeekV4Pro, Batch((9, 100), (), ()))
    once = "slots slots slots window states states uniform"
    assert " ".join(n for n, _, _ in launches.made) == once + " pack unpack" * 30
    launches = stepped(monkeypatch, DeepSeekV4Pro, Batch((9, 100, 3), (), (), padded=1))
    once = "slots slots slots window states states"
    assert " ".join(n for n, _, _ in launches.made) == once + " pack unpack" * 30


def test_the_widths_of_all_states_follow_the_longest_request_of_a_chunk(monkeypatch):
    # 32,000 tokens are 250 states: the second bucket. 12 requests fit one workspace.
    batch = Batch((), (1,) * 12, (31_999, *[50] * 11))
    launches = stepped(monkeypatch, DeepSeekV4Pro, batch)
    wide = [kwargs for _, kwargs in launches.of("combine") if kwargs["compress_ratio"] == 128]
    # A workspace has 4 * (256 + 128 + 512) rows; 12 requests of 250 + 128 do not fit, 8 do.
    assert [(k["top_k"], k["compressed_slots"]) for k in wide[:2]] == [(256, 250), (128, 0)]
    assert len(wide) == 31 * 2


def test_images_are_seen_in_prefills_alone(monkeypatch):
    vision = {"options": (("vision", True),)}
    launches = stepped(monkeypatch, DeepSeekV4Flash, Batch((9,), (40, 7), (0, 0)), **vision)
    decode, prefill = (kwargs for _, kwargs in launches.of("window"))
    assert (decode["index_width"], prefill["index_width"]) == (128, 128 + 1024)
    assert "left_visible" not in decode
    assert prefill["left_visible"].tolist()[1 + 10 : 1 + 30] == list(range(20))
    for args, kwargs in launches.of("combine"):
        assert kwargs["max_image_tokens"] == 1024
        assert kwargs["left_visible"].tolist()[10:30] == list(range(20))
        assert kwargs["right_visible"].tolist()[10:30] == list(range(19, -1, -1))
        assert len(kwargs["left_visible"]) == len(args[0]) == 47
        assert kwargs["left_visible"].data_ptr() % 16 == 4  # behind one decode token
        assert kwargs["indices"].shape[1] == kwargs["top_k"] + 1152
    launches = stepped(monkeypatch, DeepSeekV4Flash, Batch((9,), (41,), (0,)), **vision)
    assert all("left_visible" not in kwargs for _, kwargs in launches.of("window"))
    assert all(kwargs["left_visible"] is None for _, kwargs in launches.of("combine"))


def test_drafts_follow_the_step_and_are_not_causal(monkeypatch):
    drafting = {"speculative_config": SpeculativeConfig("dspark", 3)}
    batch = Batch((9, 100), (5,), (0,), decode_query_len=4)
    launches = stepped(monkeypatch, DeepSeekV4Pro, batch, **drafting)
    assert [name for name, _, _ in launches.made].count("draft") == 1
    name, args, kwargs = launches.made[-1]
    assert name == "draft"
    assert (kwargs["num_tokens"], kwargs["num_speculative_tokens"]) == (8, 3)
    assert kwargs["indices"].shape[1:] == (1, 192)
    assert args[3].tolist() == [9, 100]
    windows = [(k["num_tokens"], k["token_offset"]) for _, k in launches.of("window")]
    assert windows == [(8, 0), (5, 8)]
    ((_, uniform),) = launches.of("uniform")
    assert uniform["tokens_per_request"] == 4
    (args, kwargs), *_ = launches.of("pack")
    assert (args[0].shape, args[1].tolist(), kwargs["max_len"]) == ((8, 8192), [4, 4], 4)
    alone = stepped(monkeypatch, DeepSeekV4Pro, Batch((), (5,), (0,), 0, 4), **drafting)
    assert not alone.of("draft")


@pytest.mark.triton
@pytest.mark.parametrize("scenario", ["deepseek-v4-pro", "deepseek-v4-vision"])
def test_the_traffic_needs_exactly_the_golden_keys(scenario):
    assert needed_text(cases(scenario)) == golden(scenario).read_text()


def test_every_reachable_combination_occurs_in_the_golden_keys():
    needed = {}
    for scenario in ("deepseek-v4-pro", "deepseek-v4-vision"):
        keys = re.findall(r"rank 0: (.*)", golden(scenario).read_text())
        needed[scenario] = [(path.split(".")[-2], fields) for path, fields in map(parse_key, keys)]
    pro, vision = needed["deepseek-v4-pro"], needed["deepseek-v4-vision"]
    assert Counter(kernel for kernel, _ in pro) == {
        "compute_swa_indices_and_lens": 1,
        "compute_prefill_metadata": 8,  # more than 128 prefills in one step did not occur
        "compressed_slot_mapping": 2,
        "combine_topk_swa_indices": 16,
        "pack_seq": 1,
        "unpack_seq": 1,
        "prepare_uniform_decode": 1,
        # Lengths aligned or not; slices from 0 that end at 1, at a multiple of 16 or elsewhere, and
        # later ones, whose start is no multiple of 16.
        "build_prefill_chunk_metadata": 2 * (3 + 2),
        "compute_slot_mapping": 2,
    }

    def combined(keys, *names):
        found = [fields for kernel, fields in keys if kernel == "combine_topk_swa_indices"]
        return {
            tuple(fields[name].removeprefix("constexpr=") for name in names) for fields in found
        }

    pointers = ("topk_indices_ptr", "query_start_loc_ptr", "seq_lens_ptr", "gather_lens_ptr")
    aligned, behind = ("*i32/D",) * 4, ("*i32/D", "*i32/", "*i32/", "*i32/D")
    assert combined(pro, *pointers) == {aligned, behind}
    buckets = {("128", str(128 * 2**n)) for n in range(7)}
    assert combined(pro, "COMPRESS_RATIO", "TOP_K") == {("4", "1024"), *buckets}
    assert combined(vision, "COMPRESS_RATIO", "TOP_K") == {("1", "0"), ("4", "512"), *buckets}
    assert combined(vision, "IMAGE_WIDTH") == {("0",), ("1024",)}
    windows = [fields for kernel, fields in vision if kernel == "compute_swa_indices_and_lens"]
    assert {fields["HAS_IMAGE"] for fields in windows} == {"constexpr=False", "constexpr=True"}


@pytest.mark.parametrize(
    ("scenario", "selector"),
    [
        ("deepseek-v4-flash", "seqs=1024,arch=sm100"),
        ("deepseek-v4-dspark", "spec=15,arch=sm90"),
        ("dsv4-dcp", "dcp=8,arch=sm90"),
        ("mla-blocks", "block=16,arch=sm90"),
    ],
)
def test_the_plan_holds_every_key_of_a_short_replay(scenario, selector):
    (case,) = load(ROOT / "scenarios" / f"{scenario}.toml").select((selector,))
    rank = case.replayed_ranks[-1]
    alone = msgspec.structs.replace(case.parallel, dcp_rank=rank)
    case = msgspec.structs.replace(case, parallel=alone)
    planned = {outcome.key for outcome in plan_case(case, Settings()).warmed.outcomes}
    needed = replay_needed(case, Settings(steps=60), rank).observed.launches
    assert len(needed) > 15
    assert set(needed) - planned == set()


@pytest.mark.triton
def test_a_run_misses_nothing(tmp_path):
    done = jitwarm(
        "run", "scenarios/deepseek-v4-pro.toml", "--case", "seqs=64,arch=sm90", "--steps", "40",
        "--monitor", "error", "--out", str(tmp_path), "--json",
    )  # fmt: skip
    (record,) = records(done)
    assert funnel(record) == (61, 367, 10, 41, 41)
    assert (record["funnel"]["compiled"], record["funnel"]["disk_hits"]) == (41, 0)
    assert record["warm"]["warmed"] == 41
    coverage = record["coverage"]
    assert (coverage["missed"], coverage["warmed"], coverage["steps"]) == (0, 41, 40)
    assert coverage["hit"] == coverage["needed"] == 41 - coverage["unreached"] > 20
    assert coverage["launches"] > 40 * 61
    loaded, cold = record["arms"]["loaded"], record["arms"]["cold"]
    assert (loaded["compiles"], loaded["disk_hits"]) == (0, 0)
    assert cold["compiles"] == coverage["needed"]


def test_an_empty_declaration_is_missed_key_by_key(tmp_path):
    done = jitwarm(
        "run", "scenarios/deepseek-v4-flash.toml", "--case", "seqs=64,arch=sm90", "--steps", "40",
        "--monitor", "record", "--out", str(tmp_path), "--json",
        "--set", "model=tests.zoo.faulty_models_v4:WithoutChunkMetadata",
    )  # fmt: skip
    (record,) = records(done, code=1)
    assert record["funnel"]["keys"] == 43 - 10
    coverage = record["coverage"]
    assert {miss["kernel"].rpartition(".")[2] for miss in coverage["misses"]} == {
        "_build_prefill_chunk_metadata"
    }
    assert coverage["missed"] == len(coverage["misses"]) > 1
    assert coverage["hit"] == coverage["needed"] - coverage["missed"] > 3


def test_a_prefill_that_is_cut_elsewhere_misses_the_alignments_that_follow():
    (case,) = load(ROOT / "scenarios/deepseek-v4-flash.toml").select(("seqs=256,arch=sm90",))
    case = msgspec.structs.replace(case, model="tests.zoo.faulty_models_v4:CutAtThree")
    planned = {outcome.key for outcome in plan_case(case, Settings()).warmed.outcomes}
    needed = replay_needed(case, Settings(steps=100), 0).observed.launches
    pointers = ("query_start_loc_ptr", "gather_lens_ptr")
    missed = [parse_key(key) for key in set(needed) - planned]
    assert {path.rpartition(".")[2] for path, _ in missed} == {"_combine_topk_swa_indices"}
    assert {tuple(fields[name] for name in pointers) for _, fields in missed} == {
        ("*i32/D", "*i32/"),
        ("*i32/", "*i32/"),
    }


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("scenario", "case"),
    [
        ("deepseek-v4-pro", "seqs=256,arch=sm90"),
        ("deepseek-v4-flash", "seqs=1024,arch=sm90"),
        ("deepseek-v4-vision", "model=deepseek-v4-flash,arch=sm90"),
        ("deepseek-v4-dspark", "spec=15,arch=sm90"),
        ("dsv4-dcp", "dcp=8,arch=sm90"),
        ("mla-blocks", "block=16,arch=sm90"),
    ],
)
def test_a_gpu_misses_nothing_either(tmp_path, scenario, case):
    done = jitwarm(
        "run", f"scenarios/{scenario}.toml", "--case", case, "--steps", "100", "--device", "cuda",
        "--monitor", "error", "--out", str(tmp_path), "--json",
    )  # fmt: skip
    (record,) = records(done)
    assert record["coverage"]["missed"] == 0
    assert all(other["missed"] == 0 for other in record["rank_coverage"])
    assert record["coverage"]["hit"] == record["coverage"]["needed"] > 15
