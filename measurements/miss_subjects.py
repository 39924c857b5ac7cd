"""Kinds of late work: what is warmed, a steady launch, and the launch that misses.

Each is made in a process of its own. `finding` and `argument` are what the monitor's events have to
be judged as.
"""

# mypy: allow-untyped-defs, allow-untyped-decorators

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
import triton
import triton.language as tl

from jitwarm.config import CacheConfig, EngineConfig, HFConfig, ModelConfig, ParallelConfig
from jitwarm.contract import triton_kernel_dispatcher_with_warmup
from jitwarm.declare import TensorSpec, declare, launch

ROWS = 4096


@triton.jit(do_not_specialize=["size"])
def scale(x_ptr, out_ptr, stride, size, BLOCK: tl.constexpr):
    """Twice x into out, the first BLOCK elements of a strided x, below size."""
    at = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at * stride, mask=at < size)
    tl.store(out_ptr + at, x * 2, mask=at < size)


@declare(scale)
def Scale() -> Any:
    """One class of each argument."""
    return launch(
        x_ptr=TensorSpec("float32"), out_ptr=TensorSpec("float32"), stride=2, size=17, BLOCK=256
    )


@triton.autotune(
    configs=[triton.Config({"BLOCK": 64}), triton.Config({"BLOCK": 128}, num_warps=8)], key=["size"]
)
@triton.jit
def tuned(x_ptr, size, BLOCK: tl.constexpr):
    """Copy x onto itself, the first BLOCK elements below size."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x_ptr + at, tl.load(x_ptr + at, mask=at < size), mask=at < size)


def _tuned_cases() -> dict[str, Any]:
    return {"x": TensorSpec("float32", shape=(ROWS,), init=1), "size": 1024}


@triton_kernel_dispatcher_with_warmup(warmup_inputs=_tuned_cases, kernel=tuned)
def tune(x: Any, size: int) -> Any:
    """One launch of the autotuned kernel."""
    return lambda meta: (triton.cdiv(size, meta["BLOCK"]),), {}, x


@dataclass(frozen=True, slots=True)
class Subject:
    """`register` warms, `steady` is launched in each step, `miss` once, later than all of them.

    `depth` is how far warm-up goes, `keep` says of a declared key whether it is warmed at all.
    """

    finding: str
    argument: str
    register: Callable[[], None]
    steady: Callable[[], object]
    miss: Callable[[], object]
    config: EngineConfig = field(default_factory=EngineConfig)
    depth: str = "loaded"
    keep: Callable[[str], bool] = bool


def _scaled(
    device: str, miss: Callable[[Any, Any], object], finding: str, argument: str
) -> Subject:
    x, out = torch.ones(2 * ROWS, device=device), torch.empty(2 * ROWS, device=device)
    return Subject(
        finding,
        argument,
        Scale.register_warmup,
        lambda: scale[(1,)](x, out, 2, 17, BLOCK=256),
        lambda: miss(x, out),
    )


def pointer(device: str) -> Subject:
    """A view that begins 4 bytes later."""
    return _scaled(
        device, lambda x, out: scale[(1,)](x[1:], out, 2, 17, BLOCK=256), "MISS", "x_ptr"
    )


def stride(device: str) -> Subject:
    """A stride of 1, which is a constant to Triton."""
    return _scaled(device, lambda x, out: scale[(1,)](x, out, 1, 17, BLOCK=256), "MISS", "stride")


def size(device: str) -> Subject:
    """A size that does not fit 32 bits."""
    return _scaled(device, lambda x, out: scale[(1,)](x, out, 2, 2**31, BLOCK=256), "MISS", "size")


def dtype(device: str) -> Subject:
    """Another dtype of one tensor."""
    other = torch.ones(2 * ROWS, device=device, dtype=torch.bfloat16)
    return _scaled(
        device, lambda _, out: scale[(1,)](other, out, 2, 17, BLOCK=256), "MISS", "x_ptr"
    )


def constexpr(device: str) -> Subject:
    """A block size that nobody declared."""
    return _scaled(device, lambda x, out: scale[(1,)](x, out, 2, 17, BLOCK=512), "MISS", "BLOCK")


def cold_load(device: str) -> Subject:
    """Compiled at start-up and not loaded: the steady launch is of another kernel."""
    x, out = torch.ones(2 * ROWS, device=device), torch.empty(2 * ROWS, device=device)
    return Subject(
        "NOT-EXECUTED",
        "",
        Scale.register_warmup,
        lambda: torch.add(x, 1, out=out),
        lambda: scale[(1,)](x, out, 2, 17, BLOCK=256),
        depth="compiled",
    )


def tuning(device: str) -> Subject:
    """A size that the autotuner has not chosen for."""
    x = torch.ones(ROWS, device=device)
    return Subject(
        "AUTOTUNE", "size", tune.register_warmup, lambda: tune(x, 1024), lambda: tune(x, 2048)
    )


def cute(device: str) -> Subject:
    """A selection from twice as many candidates, in CuTe DSL."""
    from jitwarm.zoo.kernels.stable_topk_cutedsl import stable_topk_cutedsl as select

    model = ModelConfig(hf_config=HFConfig(index_topk=512))
    config = EngineConfig(model, ParallelConfig(decode_context_parallel_size=2))
    gathered = {n: torch.zeros(4, n, 2, device=device) for n in (1024, 2048)}
    return Subject(
        "MISS",
        "num_candidates",
        select.register_warmup,
        lambda: select(gathered[1024], topk=512),
        lambda: select(gathered[2048], topk=512),
        config,
    )


def short_query(device: str) -> Subject:
    """Attention of flash-attention 4 for one query, where only long queries were warmed."""
    from jitwarm.zoo.kernels.inkling_fa4_rel_attention import inkling_fa4_rel_attention as attention

    heads, dim, block, extent = 8, 128, 16, 512
    hf = HFConfig(
        num_attention_heads=heads,
        num_key_value_heads=1,
        local_num_key_value_heads=1,
        head_dim=dim,
        sliding_window=extent,
        rel_extent=extent,
    )
    config = EngineConfig(
        ModelConfig(max_model_len=extent, hf_config=hf), cache_config=CacheConfig(block_size=block)
    )

    def zeros(*shape: int, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
        return torch.zeros(*shape, dtype=dtype, device=device)

    cache = zeros(extent // block + 1, 2, block, 1, dim)
    table = torch.arange(extent // block, dtype=torch.int32, device=device)[None]

    def attend(tokens: int) -> object:
        return attention(
            zeros(tokens, heads, dim),
            cache[:, 0],
            cache[:, 1],
            table,
            torch.tensor([256], dtype=torch.int32, device=device),
            torch.tensor([0, tokens], dtype=torch.int32, device=device),
            zeros(tokens, heads, extent),
            is_local=False,
            max_query_len=tokens,
            max_kv_len=extent,
            num_reqs=1,
        )

    return Subject(
        "MISS",
        "static_persistent",
        attention.register_warmup,
        lambda: attend(256),
        lambda: attend(1),
        config,
        keep=lambda declared: "is_local=False" in declared and "max_seqlen_q=256," in declared,
    )


def no_compile(device: str) -> Subject:
    """A slow step in which nothing is compiled."""
    return _scaled(device, lambda *_: time.sleep(0.05), "NOT-JIT", "step")


SUBJECTS: dict[str, Callable[[str], Subject]] = {
    "pointer at +4 bytes": pointer,
    "stride 1": stride,
    "64-bit size": size,
    "dtype": dtype,
    "new constexpr": constexpr,
    "cold module load": cold_load,
    "autotune": tuning,
    "late CuTe compile": cute,
    "short query, flash-attention 4": short_query,
    "slow step, no compile": no_compile,
}
