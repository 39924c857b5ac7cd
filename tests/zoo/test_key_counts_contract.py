"""The declared keys of the contract kernels: how many, that each reproduces, what calls have.

Nothing is compiled or launched: keys come from `get_warmup_keys`, Triton's classes from its own
binder, and calls are caught where they would launch.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import triton

from jitwarm.backends.triton.binder import bind, bind_recipe
from jitwarm.backends.triton.stub import StubDriver
from jitwarm.config import (
    CacheConfig,
    EngineConfig,
    HFConfig,
    ModelConfig,
    ParallelConfig,
    SchedulerConfig,
    SpeculativeConfig,
)
from jitwarm.contract import TritonPointerInputVariant
from jitwarm.declare import NoKeys
from jitwarm.errors import DeclarationError
from jitwarm.zoo.kernels import convert_req_index_entry_points as entry_points
from jitwarm.zoo.kernels.build_prefill_chunk_metadata import build_prefill_chunk_metadata
from jitwarm.zoo.kernels.compute_prefill_metadata import compute_prefill_metadata
from jitwarm.zoo.kernels.compute_slot_mapping import block_table_width
from jitwarm.zoo.kernels.convert_req_index_to_global_index import convert_req_index_to_global_index
from jitwarm.zoo.kernels.correct_attn_cp_out import correct_attn_cp_out
from jitwarm.zoo.kernels.pack_dcp_topk_candidates import pack_dcp_topk_candidates
from jitwarm.zoo.kernels.prepare_uniform_decode import PrepareUniformDecode

KERNELS: list[Any] = [
    pack_dcp_topk_candidates,
    correct_attn_cp_out,
    convert_req_index_to_global_index,
    build_prefill_chunk_metadata,
    compute_prefill_metadata,
]
DEVICE_INDEX = 97  # no other test binds kernels there, whatever architecture it uses
OWN_LAYER = {"num_heads": 16, "head_dim": 512, "is_base_e": True}  # of an MLA layer, TP 8
# Kernels whose own space is what their engine can reach, and which have the wider one of the engine
# that they come from too.
TIGHTENED = (
    correct_attn_cp_out,
    convert_req_index_to_global_index,
    build_prefill_chunk_metadata,
)


def engine(
    dcp: int = 1,
    rank: int = 0,
    *,
    pcp: int = 1,
    interleave: int = 1,
    seqs: int = 256,
    tokens: int = 8192,
    **model: Any,
) -> EngineConfig:
    """DeepSeek-V3.2 on 8 GPUs, block size 64."""
    numbers = {"num_attention_heads": 128, "v_head_dim": 128, "index_topk": 2048} | model
    return EngineConfig(
        ModelConfig(max_model_len=163_840, hf_config=HFConfig(num_hidden_layers=61, **numbers)),
        ParallelConfig(8, dcp, pcp, interleave, rank),
        CacheConfig(block_size=64),
        SchedulerConfig(seqs, tokens),
    )


def declared(kernel: Any, config: EngineConfig, **more: Any) -> list[Any]:
    """The keys that a model of this configuration registers; none where the kernel says so."""
    own = OWN_LAYER if kernel is correct_attn_cp_out else {}
    keys = kernel.get_warmup_keys(config, **own | more)
    return [] if isinstance(keys, NoKeys) else list(keys)


def published(kernel: Any, config: EngineConfig, **more: Any) -> list[Any]:
    """The keys of the engine that the kernel comes from."""
    as_published = {"as_published": True} if kernel in TIGHTENED else {}
    return declared(kernel, config, **as_published | more)


# Counts.


@pytest.mark.parametrize("dcp", [2, 4, 8, 16])
def test_pack_dcp_declares_two_keys_a_rank(dcp: int) -> None:
    for rank in range(dcp):
        keys = declared(pack_dcp_topk_candidates, engine(dcp, rank))
        assert [key.has_row_starts for key in keys] == [False, True]
        assert {(key.dcp_rank, key.dcp_world_size, key.topk, key.block_size) for key in keys} == {
            (rank, dcp, 2048, 512)
        }


def test_pack_dcp_of_a_pooled_indexer() -> None:
    keys = declared(pack_dcp_topk_candidates, engine(4, 1, interleave=64, index_kpool=32))
    assert {(key.topk, key.cp_interleave) for key in keys} == {(64, 2)}
    with pytest.raises(DeclarationError, match="must be a multiple of index_kpool"):
        declared(pack_dcp_topk_candidates, engine(4, 1, interleave=8, index_kpool=32))


def test_pack_dcp_says_why_it_has_no_key() -> None:
    for config in (engine(1), engine(8, index_topk=0)):
        assert isinstance(pack_dcp_topk_candidates.get_warmup_keys(config), NoKeys)


@pytest.mark.parametrize(("dcp", "one_base"), [(2, 2), (4, 3), (8, 3), (16, 3)])
def test_correct_attn_counts(dcp: int, one_base: int) -> None:
    config = engine(dcp)
    heads = {"num_heads": 16, "head_dim": 512, "as_published": True}
    for is_base_e in (True, False):
        keys = correct_attn_cp_out.get_warmup_keys(
            config, output_dtype=torch.bfloat16, is_base_e=is_base_e, **heads
        )
        assert len(keys) == one_base
    assert len(correct_attn_cp_out.get_warmup_keys(config, **heads)) == 2 * one_base
    assert correct_attn_cp_out.get_warmup_keys(
        config, as_published=True
    ) == correct_attn_cp_out.get_warmup_keys(
        config, output_dtype="bfloat16", num_heads=16, head_dim=128, as_published=True
    )


@pytest.mark.parametrize(("rank", "index"), [(0, 16), (1, 1), (2, 2), (7, 2)])
def test_correct_attn_declares_one_rank(rank: int, index: int) -> None:
    (key,) = declared(correct_attn_cp_out, engine(8, rank))
    assert key.lse_idx == index
    assert key in published(correct_attn_cp_out, engine(8, 0))


@pytest.mark.parametrize(
    ("heads", "dcp", "both_bases"),
    [
        (16, 2, 4),
        (16, 4, 6),
        (2, 2, 8),
        (4, 2, 8),
        (8, 2, 8),
        (2, 4, 12),
        (4, 4, 12),
        (8, 16, 12),
        (1, 2, 12),
        (1, 4, 18),
        (1, 8, 18),
    ],
)
def test_correct_attn_counts_of_few_heads(heads: int, dcp: int, both_bases: int) -> None:
    """`heads` of the corrected tensor itself."""
    given = {"head_dim": 512, "gathered_heads": heads, "as_published": True}
    keys = correct_attn_cp_out.get_warmup_keys(engine(dcp), **given)
    assert len(keys) == both_bases
    one = correct_attn_cp_out.get_warmup_keys(engine(dcp), **given, is_base_e=False)
    assert len(one) == both_bases // 2


def test_correct_attn_enumerates_the_gathered_heads() -> None:
    """One head a rank of four: strides are those of four heads."""
    given = {"head_dim": 512, "is_base_e": True}
    keys = correct_attn_cp_out.get_warmup_keys(engine(4), num_heads=1, **given)
    assert keys == correct_attn_cp_out.get_warmup_keys(engine(4), gathered_heads=4, **given)


@pytest.mark.parametrize(("tokens", "count"), [(1, 4), (7, 4), (8, 8), (9, 8), (8192, 8)])
def test_correct_attn_with_few_tokens(tokens: int, count: int) -> None:
    """With two heads the first stride of the lses is 2*T: divisible by 16 from T = 8 on."""
    given = {"num_heads": 1, "head_dim": 512}
    config = engine(2, tokens=tokens)
    keys = correct_attn_cp_out.get_warmup_keys(config, **given, as_published=True)
    assert len(keys) == count
    # One rank of the two; and no more tokens than requests.
    assert 2 * len(correct_attn_cp_out.get_warmup_keys(config, **given)) == count
    config = engine(2, tokens=8192, seqs=tokens)
    assert 2 * len(correct_attn_cp_out.get_warmup_keys(config, **given)) == count


def test_correct_attn_says_why_it_has_no_key() -> None:
    for config in (engine(1), engine(8, tokens=0), engine(8, num_attention_heads=0)):
        assert isinstance(correct_attn_cp_out.get_warmup_keys(config, head_dim=512), NoKeys)


@pytest.mark.parametrize(
    ("dcp", "pcp", "count"), [(1, 1, 4), (1, 2, 4), (2, 1, 5), (4, 1, 5), (8, 1, 5), (8, 2, 6)]
)
@pytest.mark.parametrize("interleave", [1, 16])
def test_convert_counts(dcp: int, pcp: int, count: int, interleave: int) -> None:
    """A process alone converts with counts and in place; a rank of several filters."""
    for rank in {0, dcp - 1}:
        config = engine(dcp, rank, pcp=pcp, interleave=interleave)
        keys = published(convert_req_index_to_global_index, config, block_stride_rows=64)
        assert len(keys) == count
        assert {key.dcp_rank for key in keys if key.dcp_size > 1} <= {rank}
        own = declared(convert_req_index_to_global_index, config, block_stride_rows=64)
        assert len(own) == (2 if dcp == 1 else 1 + (pcp > 1))
        assert set(own) <= set(keys)


def test_convert_of_an_fp8_cache() -> None:
    """Prefills read what is gathered for them: rows of a workspace, counted."""
    bf16 = engine()
    fp8 = dataclasses.replace(bf16, cache_config=CacheConfig(64, 4096, "fp8_ds_mla"))
    modes = [
        [
            (key.has_prefill_workspace, key.count_valid)
            for key in declared(convert_req_index_to_global_index, config, block_stride_rows=64)
        ]
        for config in (bf16, fp8)
    ]
    assert modes == [[(False, False), (False, True)], [(True, True), (False, True)]]


@pytest.mark.parametrize(("dcp", "count"), [(1, 6), (8, 7)])
def test_a_hierarchical_sparse_cache_adds_two_keys(dcp: int, count: int) -> None:
    class Hierarchical:
        """A configuration that is an EngineConfig with one thing more."""

        hierarchical_sparse_config = object()

        def __getattr__(self, name: str) -> Any:
            return getattr(engine(dcp), name)

    keys = published(convert_req_index_to_global_index, Hierarchical(), block_stride_rows=64)
    assert len(keys) == count and sum(key.has_idx_mapping for key in keys) == 2


def test_convert_keys_carry_the_row_stride_and_the_class_of_the_table() -> None:
    for dcp, max_model_len in ((1, 163_840), (8, 163_840), (1, 64 * 17), (1, 64)):
        config = engine(dcp)
        config = EngineConfig(
            ModelConfig(max_model_len=max_model_len, hf_config=config.model_config.hf_config),
            config.parallel_config,
            config.cache_config,
            config.scheduler_config,
        )
        width = block_table_width(max_model_len, 64, dcp)
        keys = convert_req_index_to_global_index.get_warmup_keys(config, block_stride_rows=80)
        assert {key.block_stride_rows for key in keys} == {80}
        assert {key.block_table_stride for key in keys} == {2 if width % 16 else 16}


def test_convert_modes_in_order() -> None:
    keys = published(convert_req_index_to_global_index, engine(8, 3), block_stride_rows=64)
    assert [
        (k.has_prefill_workspace, k.count_valid, k.compact_to_front, k.dcp_size, k.num_warps)
        for k in keys
    ] == [
        (False, False, False, 1, 4),
        (False, True, True, 1, 8),
        (True, True, True, 1, 8),
        (False, True, False, 8, 8),
        (False, True, True, 8, 8),
    ]


@pytest.mark.parametrize("dcp", [1, 2, 4, 8])
def test_build_counts(dcp: int) -> None:
    def count(rank: int = 0, **more: Any) -> int:
        return len(published(build_prefill_chunk_metadata, engine(dcp, rank, **more)))

    assert count() == count(dcp - 1) == count(seqs=1024) == 36
    assert [count(tokens=tokens) for tokens in (1, 2, 7, 8, 9)] == [24, 24, 24, 36, 36]
    assert count(compress_ratios=(1, 4, 128)) == count(compress_ratios=(0, 0, 4, 128, 4, 0)) == 108
    assert count(compress_ratios=(0, 4, 128), index_kpool=32) == 144
    assert count(compress_ratios=(1, 4, 128), interleave=128) == 216  # classes 16 and 1
    assert count(pcp=2) == (36 if dcp == 1 else 72)


def test_build_without_a_ratio_of_one() -> None:
    config = engine(interleave=4, compress_ratios=(4, 128), index_kpool=32)
    keys = published(build_prefill_chunk_metadata, config)
    assert {key.compress_ratio for key in keys} == {4, 128, 32}
    assert {key.dcp_interleave for key in keys} == {1}  # 4 // 4; the plain 4 is left out
    # What a process alone passes is the plain 4.
    assert {key.dcp_interleave for key in declared(build_prefill_chunk_metadata, config)} == {2}


@pytest.mark.parametrize("dcp", [1, 2, 4, 8])
def test_build_declares_the_slices_of_the_engine(dcp: int) -> None:
    """Slices are (0, any end) and (2, 16 or 2), each behind decodes or not."""

    def count(rank: int = 0, **more: Any) -> int:
        keys = declared(build_prefill_chunk_metadata, engine(dcp, rank, **more))
        assert {key.input_variant.is_aligned("cu_compressed_seq_lens") for key in keys} == {True}
        return len(keys)

    assert count() == count(dcp - 1) == count(seqs=1024) == 10
    # A single request is never behind another one, and a step of one token has one slice.
    assert count(seqs=1) == 5
    # Few tokens are not sliced: 1, and from two on behind a decode too; neither 1 nor 16; 16.
    assert [count(tokens=tokens) for tokens in (1, 2, 3, 15, 16, 17)] == [1, 3, 4, 4, 5, 6]
    # 40,960 states of 4 tokens slice 8,192 queries, 1,280 of 128 do not.
    assert count(compress_ratios=(1, 4, 128), interleave=128) == 10 + 10 + 6
    assert count(pcp=2) == (10 if dcp == 1 else 20)


def test_build_keys_are_among_the_published_ones() -> None:
    for config in (engine(), engine(8, 5), engine(2, 1, interleave=128, compress_ratios=(1, 128))):
        own = declared(build_prefill_chunk_metadata, config)
        assert set(own) < set(published(build_prefill_chunk_metadata, config))


def test_build_of_some_ratios_and_of_a_context_without_states() -> None:
    config = engine(compress_ratios=(1, 4, 128))
    keys = declared(build_prefill_chunk_metadata, config, ratios=(4,))
    assert {key.compress_ratio for key in keys} == {4}
    assert len(keys) == 10
    assert isinstance(build_prefill_chunk_metadata.get_warmup_keys(config, ratios=(2**20,)), NoKeys)
    # Turns that tear states apart: no such indexer is sharded.
    torn = engine(2, interleave=2, compress_ratios=(1, 4))
    assert {key.compress_ratio for key in declared(build_prefill_chunk_metadata, torn)} == {1}


@pytest.mark.parametrize(
    ("max_model_len", "drafts", "width", "tokens"),
    [(163_840, 0, 2560, 1), (64, 0, 2, 1), (64 * 17, 3, 18, 4), (163_840, 15, 2560, 16)],
)
def test_prepare_uniform_decode_has_one_key_of_27(
    max_model_len: int, drafts: int, width: int, tokens: int
) -> None:
    config = dataclasses.replace(
        engine(),
        model_config=ModelConfig(max_model_len=max_model_len),
        speculative_config=SpeculativeConfig("dspark", drafts) if drafts else None,
    )
    (own,) = PrepareUniformDecode.enumerate_keys(config, (), {}).declared
    given = dict(own.recipe.arguments)
    assert (given["block_table_stride"], given["expanded_stride"]) == (width, width)
    assert given["tokens_per_request"] == tokens
    wide = PrepareUniformDecode.enumerate_keys(config, (), {"as_published": True})
    assert len(wide.declared) == wide.points == 27


@pytest.mark.parametrize(
    ("seqs", "tokens", "count"),
    [
        (64, 8192, 7),
        (128, 8192, 8),
        (200, 8192, 9),
        (256, 8192, 9),
        (257, 8192, 10),
        (1024, 8192, 11),
        (1024, 100, 8),
        (1, 8192, 1),
        (0, 0, 1),
    ],
)
def test_compute_prefill_metadata_counts(seqs: int, tokens: int, count: int) -> None:
    keys = declared(compute_prefill_metadata, engine(seqs=seqs, tokens=tokens))
    assert [key.block_size for key in keys] == [2**power for power in range(count)]


@pytest.mark.parametrize(
    ("dcp", "expected", "wide"),
    [(1, [0, 0, 2, 10, 9], [0, 0, 4, 36, 9]), (8, [2, 1, 1, 10, 9], [2, 3, 5, 36, 9])],
)
def test_a_whole_model(dcp: int, expected: list[int], wide: list[int]) -> None:
    assert [len(declared(kernel, engine(dcp))) for kernel in KERNELS] == expected
    assert [len(published(kernel, engine(dcp))) for kernel in KERNELS] == wide


def test_names() -> None:
    assert [kernel.kernel_name for kernel in KERNELS] == [
        "PackDCPTopkCandidates",
        "CorrectAttnCPOut",
        "ConvertReqIndexToGlobalIndex",
        "BuildPrefillChunkMetadata",
        "ComputePrefillMetadata",
    ]


# Keys and Triton's classes.

CONFIGS = {
    "dcp1": engine(),
    "dcp2-rank1": engine(2, 1),
    "dcp4-rank3-interleave16": engine(4, 3, interleave=16),
    "dcp8-pcp2": engine(8, 5, pcp=2),
    "ratios": engine(seqs=33, compress_ratios=(1, 4, 128), interleave=128),
    "few-tokens": engine(2, tokens=3),
}
anywhere = pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
each_kernel = pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.kernel_name)


@anywhere
@each_kernel
def test_warmup_inputs_give_the_key_back(
    kernel: Any, config: EngineConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Any] = []
    dispatch = kernel.dispatch

    def spy(**inputs: Any) -> Any:
        seen.append(dispatch(**inputs))
        return seen[-1]

    keys = {*declared(kernel, config), *published(kernel, config)}
    monkeypatch.setattr(kernel, "dispatch", spy)
    for key in keys:
        kernel.bound_launch(key)
        assert seen.pop() == key and not seen


@pytest.fixture
def binder(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Triton's binder without a device of the process."""
    if triton.knobs.runtime.interpret:
        pytest.skip("the interpreter has no binder")

    class Driver(StubDriver):
        def get_current_device(self) -> int:
            return DEVICE_INDEX

    monkeypatch.setattr(triton.runtime.driver, "_active", Driver(90))
    yield
    for kernel in KERNELS:
        kernel.kernel.device_caches.pop(DEVICE_INDEX, None)


@anywhere
@each_kernel
def test_each_key_is_one_binary(kernel: Any, config: EngineConfig, binder: None) -> None:
    for keys in (declared(kernel, config), published(kernel, config)):
        texts = {bind_recipe(kernel.kernel, kernel.recipe(key)).text for key in keys}
        assert len(texts) == len(keys)


@pytest.fixture
def catch(binder: None, monkeypatch: pytest.MonkeyPatch) -> Callable[[Any], list[str]]:
    """`catch(kernel)`: the list that gets the key of each call from now on; nothing is launched."""

    def start(kernel: Any) -> list[str]:
        texts: list[str] = []

        def launch(spec: Any, inputs: dict[str, Any]) -> Any:
            call: Any = type(kernel).__call__
            binding = call.launcher.binding
            bound = binding.bind(kernel, spec, tuple(inputs.values()))
            texts.append(bind(kernel.kernel, (), bound.arguments | bound.options).text)
            return spec[2] if len(spec) > 2 else None

        monkeypatch.setattr(kernel, "launch", launch, raising=False)
        return texts

    return start


def planned(kernel: Any, config: EngineConfig) -> set[str]:
    """The backend keys of the published space: the calls below are those of any engine."""
    keys = published(kernel, config)
    return {bind_recipe(kernel.kernel, kernel.recipe(key)).text for key in keys}


def ints(*shape: int) -> torch.Tensor:
    return torch.zeros(shape, dtype=torch.int32)


@pytest.mark.parametrize("rank", range(4))
def test_pack_dcp_calls_are_declared(rank: int, catch: Any) -> None:
    seen, config = catch(pack_dcp_topk_candidates), engine(4, rank, interleave=16)
    group = {"dcp_rank": rank, "dcp_world_size": 4, "cp_interleave": 16}
    buffer = ints(40, 2048)
    for rows in (1, 2, 15, 16, 17):
        for columns in (1, 16, 33):
            logits = torch.zeros(rows, columns)
            pack_dcp_topk_candidates(logits, buffer[:rows], **group)
            for start in (1, 2, 3):
                pack_dcp_topk_candidates(logits, buffer[start : start + rows], ints(rows), **group)
    assert set(seen) == planned(pack_dcp_topk_candidates, config)


@pytest.mark.parametrize("dcp", [2, 4, 8])
def test_correct_attn_calls_are_declared(dcp: int, catch: Any) -> None:
    seen = catch(correct_attn_cp_out)
    outputs = torch.empty(256, 16 * dcp, 512, dtype=torch.bfloat16)
    for rank in range(dcp):
        for tokens in (*range(1, 34), 255, 256):
            lses = torch.zeros(dcp, tokens, 16 * dcp)
            correct_attn_cp_out(outputs[:tokens], lses, rank)
    assert set(seen) == planned(correct_attn_cp_out, engine(dcp))


@pytest.mark.parametrize(("dcp", "pcp"), [(1, 1), (8, 1), (8, 2)])
def test_convert_calls_are_declared(dcp: int, pcp: int, catch: Any) -> None:
    kernel, config = convert_req_index_to_global_index, engine(dcp, dcp - 1, pcp=pcp)
    seen = catch(kernel)
    table = ints(40, block_table_width(163_840, 64, dcp))
    given = {"block_size": 64, "block_stride_rows": 64, "num_topk_tokens": 2048}
    group = {"dcp_size": dcp, "dcp_rank": dcp - 1, "dcp_interleave": 1}
    for queries in (1, 15, 16, 17):
        batch = ints(64)[:queries], table[:queries], ints(64, 2048)[:queries]
        prefill = {"prefill_request_id": ints(queries), "workspace_start": ints(3)}
        entry_points.convert(*batch, **given)
        entry_points.convert(*batch, **given, return_valid_counts=True)
        entry_points.convert(*batch, **given, **prefill, return_valid_counts=True)
        for counts in (False, True):
            entry_points.filter_dcp(*batch, **group, **given, return_valid_counts=counts)
        if dcp > 1:
            entry_points.filter_dcp(
                *batch, **group, **given, compact=False, return_valid_counts=True
            )
        if pcp > 1:
            entry_points.convert(*batch, **group, **given, **prefill, return_valid_counts=True)
    missing = planned(kernel, config) - set(seen)
    assert set(seen) <= planned(kernel, config)
    assert len(missing) == (1 if dcp == 1 else 0)  # count without compact is never hit at W = 1


@pytest.mark.parametrize(("dcp", "rank"), [(1, 0), (4, 0), (8, 1), (8, 7)])
@pytest.mark.parametrize("ratio", [1, 4])
def test_build_calls_are_declared(dcp: int, rank: int, ratio: int, catch: Any) -> None:
    config = engine(dcp, rank, interleave=16, compress_ratios=(1, 4))
    seen = catch(build_prefill_chunk_metadata)
    lens, cu = ints(64), ints(64)
    for first in range(5):
        for cu_first in range(5):
            for start, stop in (
                (0, 1),
                (0, 16),
                (0, 7),
                (1, 16),
                (1, 2),
                (16, 17),
                (5, 32),
                (3, 9),
            ):
                build_prefill_chunk_metadata(
                    ints(9),
                    lens[first : first + 8],
                    cu[cu_first : cu_first + 9],
                    start,
                    stop,
                    token_to_seq=ints(20),
                    compress_ratio=ratio,
                    row_starts=None if dcp == 1 else ints(9),
                    dcp_rank=rank,
                    dcp_world_size=dcp,
                    dcp_interleave=16 if dcp == 1 else 16 // ratio,
                )
    assert set(seen) <= planned(build_prefill_chunk_metadata, config)
    assert len(set(seen)) == 4 * 7  # a slice that ends at 1 starts at 0


def test_build_names_the_alignments() -> None:
    keys = published(build_prefill_chunk_metadata, engine())
    names = "uncompressed_seq_lens", "cu_compressed_seq_lens"
    assert {key.input_variant for key in keys} == {
        TritonPointerInputVariant(((names[0], first), (names[1], second)))
        for first in (True, False)
        for second in (True, False)
    }


def test_compute_prefill_metadata_calls_are_declared(catch: Any) -> None:
    seen = catch(compute_prefill_metadata)
    for prefills in range(1, 257):
        for decodes in (0, 1, 16):
            compute_prefill_metadata(ints(300), ints(301), ints(300), prefills, decodes, 128)
    assert set(seen) == planned(compute_prefill_metadata, engine())
