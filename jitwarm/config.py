"""Engine configuration in the shape of the field: what declarations read.

Declarations are duck-typed: any object with these attribute paths works. These frozen dataclasses
are what a scenario is resolved into, and being frozen they can be compared and hashed when
sixty-one layers register with the same one.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class ParallelConfig:
    """How the model is spread.

    `dcp_rank` is this process's rank in its decode-context-parallel group.
    """

    tensor_parallel_size: int = 1
    decode_context_parallel_size: int = 1
    prefill_context_parallel_size: int = 1
    cp_kv_cache_interleave_size: int = 1
    dcp_rank: int = 0


@dataclass(frozen=True, slots=True)
class CacheConfig:
    """The paged KV cache: `block_size` in tokens, `num_blocks` in blocks, `cache_dtype` as in
    `"bf16"` or `"fp8_ds_mla"`.
    """

    block_size: int = 64
    num_blocks: int = 4096
    cache_dtype: str = "bf16"


@dataclass(frozen=True, slots=True)
class SchedulerConfig:
    """Limits of one step: requests and tokens."""

    max_num_seqs: int = 256
    max_num_batched_tokens: int = 8192


@dataclass(frozen=True, slots=True)
class HFConfig:
    """The architecture numbers that kernels depend on, under the names of published model
    configurations.
    """

    num_hidden_layers: int = 1
    num_attention_heads: int = 1
    hidden_size: int = 1
    kv_lora_rank: int = 0
    qk_nope_head_dim: int = 0
    qk_rope_head_dim: int = 0
    v_head_dim: int = 0
    index_topk: int = 0
    index_n_heads: int = 0
    index_head_dim: int = 0
    compress_ratios: tuple[int, ...] = ()
    index_kpool: int = 1
    vocab_size: int = 1
    num_key_value_heads: int = 1
    head_dim: int = 0
    q_lora_rank: int = 0
    o_lora_rank: int = 0
    o_groups: int = 0
    sliding_window: int = 0
    vision_n_layers: int = 0
    vision_max_n_token: int = 0
    # Of layers whose attention is local, where they differ from the global ones.
    local_layer_ids: tuple[int, ...] = ()
    local_num_key_value_heads: int = 0
    rel_extent: int = 0
    d_rel: int = 0


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """The model: its dtype, context limit in tokens and architecture."""

    dtype: str = "bfloat16"
    max_model_len: int = 8192
    hf_config: HFConfig = field(default_factory=HFConfig)


@dataclass(frozen=True, slots=True)
class KernelConfig:
    """`enable_jit_warmup=False` turns start-up warming off; registrations are still counted."""

    enable_jit_warmup: bool = True


@dataclass(frozen=True, slots=True)
class SpeculativeConfig:
    """Draft tokens of a decode step: the method (`"dspark"`) and how many tokens it proposes."""

    method: str = ""
    num_speculative_tokens: int = 0


@dataclass(frozen=True, slots=True)
class EngineConfig:
    """One engine process as its kernels see it.

    `speculative_config` is None without drafts. `options` are a scenario's settings for its model,
    as (name, value) pairs sorted by name, so that a configuration can be compared and hashed.
    """

    model_config: ModelConfig = field(default_factory=ModelConfig)
    parallel_config: ParallelConfig = field(default_factory=ParallelConfig)
    cache_config: CacheConfig = field(default_factory=CacheConfig)
    scheduler_config: SchedulerConfig = field(default_factory=SchedulerConfig)
    kernel_config: KernelConfig = field(default_factory=KernelConfig)
    attention_backend: str = ""
    speculative_config: SpeculativeConfig | None = None
    options: tuple[tuple[str, str | int | float | bool], ...] = ()
