"""StableTopKFromGatheredCandidates, the Triton twin: the best K of all ranks' candidates, sorted.

Every rank of a decode-context-parallel group sends K pairs (score, id), see
pack_dcp_topk_candidates.py. For row r of the gathered pairs,

    out[r] = ids of the K best pairs: higher score first, equal scores by lowest id,
             -1 behind the last valid pair

A negative id is invalid. +0 and -0 are equal scores. A NaN score is below -inf, and its id is
still valid. (The CuTe DSL twin gives the same set in no defined order, tells +0 from -0 and places
NaN by its sign.)

Shapes: gathered float32 [R, N, 2], pairs contiguous, rows at any even stride from an address
divisible by 8; out int32 [R, K], elements contiguous, rows at any stride. N = W*K for W ranks.
R = 0 is legal.
Limits: K is a power of two, N a multiple of K. Ids are whole numbers below 2**30; float32 holds
each of them up to 2**24. Offsets inside a row are 32-bit.

One program of 8 warps does a row. Score and id become one 64-bit integer whose order is the wanted
one. The K best so far stay sorted; each tile of K is sorted the other way round, so that the larger
of each two entries are the K best of both, in bitonic order, which log2(K) steps sort again.

Callers and reachable classes
-----------------------------
Every sparse indexer with W > 1 that does not take the CuTe DSL twin, once a layer for the decode
rows and once a layer and prefill chunk for the prefill rows, right behind the all-gather.

* gathered_ptr: the fresh result of the all-gather, float32. Classes: aligned.
* out_ptr: fresh; or `topk_buffer[:num_rows]`, or rows of it from `[start:stop]`: a row is K
  elements. Classes: aligned where K is a multiple of 4.
* gathered_stride0, out_stride0: any. Classes: i32, unspecialised.
* TOPK, NUM_CANDIDATES: fixed by the configuration. Classes: one pair.

Not reached and therefore not declared: gathered rows of another buffer at an odd offset (compiles
on first use).
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators
# (kernel arguments have no Python types)

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import triton
import triton.language as tl

from jitwarm.contract import TritonJitKernel, TritonWarmupTensor, kernel_launcher
from jitwarm.declare import NoKeys
from jitwarm.errors import BindingError

INVALID = tl.constexpr(-(2**63))  # below every valid candidate
LARGEST_ID = tl.constexpr(2**30 - 1)
INFINITY_BITS = tl.constexpr(0x7F800000)


@triton.jit
def _candidates(pair_ptr, TOPK: tl.constexpr):
    """One tile of pairs as integers: higher is better, `INVALID` where the id is negative."""
    offset = tl.arange(0, TOPK)[:, None] * 2 + tl.arange(0, 2)[None, :]
    score, token = tl.split(tl.load(pair_ptr + offset))
    valid = token >= 0
    token = tl.where(valid, token, 0.0).to(tl.int32)
    bits = score.to(tl.int32, bitcast=True)
    order = bits ^ ((bits >> 31) & 0x7FFFFFFF)  # integers in the order of the floats
    order = tl.where(order == -1, 0, order)  # -0 is 0
    is_number = (order <= INFINITY_BITS) & (order >= -INFINITY_BITS - 1)
    order = tl.where(is_number, order, -(2**31))
    candidate = order.to(tl.int64) * (LARGEST_ID + 1) + (LARGEST_ID - token)
    return tl.where(valid, candidate, INVALID)


@triton.jit
def _sort_bitonic(values, TOPK: tl.constexpr, STEPS: tl.constexpr):
    """Bitonic values in descending order.

    Each step compares the two halves and interleaves what it got, which turns the index by one bit:
    after all steps every bit was the highest once and the order is the original one.
    """
    for _ in tl.static_range(STEPS):
        first, second = tl.split(tl.trans(tl.reshape(values, (2, TOPK // 2))))
        pairs = tl.join(tl.maximum(first, second), tl.minimum(first, second))
        values = tl.reshape(pairs, (TOPK,))
    return values


@triton.jit(do_not_specialize=["gathered_stride0", "out_stride0"])
def _stable_topk(
    gathered_ptr,
    out_ptr,
    gathered_stride0,
    out_stride0,
    TOPK: tl.constexpr,
    NUM_CANDIDATES: tl.constexpr,
    STEPS: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    # A pair is 8 bytes and rows start on pairs, so that a pair is one access.
    pair_ptr = gathered_ptr + tl.multiple_of(row * gathered_stride0, 2)
    best = tl.full((TOPK,), INVALID, tl.int64)
    for first in range(0, NUM_CANDIDATES, TOPK):
        tile = tl.sort(_candidates(pair_ptr + first * 2, TOPK))
        best = _sort_bitonic(tl.maximum(best, tile), TOPK, STEPS)
    token = LARGEST_ID - (best & LARGEST_ID).to(tl.int32)
    token = tl.where(best == INVALID, -1, token)
    tl.store(out_ptr + row * out_stride0 + tl.arange(0, TOPK), token)


class StableTopKTritonKernel(TritonJitKernel["StableTopKTritonKernel.CompileKey"]):
    """Selects among gathered candidates; see the module's text."""

    kernel = _stable_topk
    kernel_name = "StableTopKFromGatheredCandidates"

    @dataclass(frozen=True, slots=True)
    class CompileKey:
        """Both are constexprs of the kernel."""

        topk: int
        num_candidates: int

    def dispatch(self, *, topk: int, num_candidates: int) -> CompileKey:
        """The key of rows of this many candidates.

        Raises `BindingError` (a ValueError) for a number that the kernel does not have.
        """
        if topk < 1 or topk & (topk - 1) or num_candidates < 1 or num_candidates % topk:
            raise BindingError(
                f"{self.kernel_name}: needs a power of two to select, from a multiple of it, "
                f"got {topk} of {num_candidates}"
            )
        return self.CompileKey(topk, num_candidates)

    def get_warmup_keys(self, config: Any) -> list[CompileKey] | NoKeys:
        """The one key of a model: every rank's selection, once gathered."""
        model = config.model_config.hf_config
        world_size = config.parallel_config.decode_context_parallel_size
        if world_size <= 1:
            return NoKeys("no decode context parallelism: nothing is gathered")
        topk = getattr(model, "index_topk", 0) // getattr(model, "index_kpool", 1)
        if topk <= 0:
            return NoKeys("the model has no sparse indexer (index_topk)")
        return self._trace_dispatch(self.dispatch)(topk=topk, num_candidates=world_size * topk)

    def warmup_inputs(self, key: CompileKey) -> dict[str, Any]:
        """Arguments of a call that has this key."""
        return {
            "gathered": TritonWarmupTensor(torch.float32, shape=(2, key.num_candidates, 2)),
            "topk": key.topk,
            "out": TritonWarmupTensor(torch.int32, shape=(2, key.topk)),
        }

    @kernel_launcher
    def __call__(
        self, gathered: torch.Tensor, *, topk: int, out: torch.Tensor | None = None
    ) -> Any:
        """Fill `out` (allocated if absent) and return it.

        Raises `BindingError` (a ValueError) for dtypes, shapes, strides or a top-k that do not fit.
        """
        rows, num_candidates = gathered.shape[:2]
        key = self.dispatch(topk=topk, num_candidates=num_candidates)
        if not (
            gathered.dtype is torch.float32
            and gathered.shape == (rows, num_candidates, 2)
            and (rows == 0 or _holds_pairs(gathered))
            and (out is None or (out.dtype is torch.int32 and out.shape == (rows, topk)))
            and (out is None or rows == 0 or out.stride(1) == 1)
        ):
            raise BindingError(
                f"{self.kernel_name}: needs gathered float32 [R, N, 2] of whole pairs at addresses "
                "divisible by 8 and out int32 [R, K] of whole rows, got "
                + ", ".join(
                    f"{t.dtype} {tuple(t.shape)} of strides {tuple(t.stride())}"
                    for t in (gathered, out)
                    if t is not None
                )
            )
        if out is None:
            out = torch.empty((rows, topk), dtype=torch.int32, device=gathered.device)
        launch = {
            "out_ptr": out,
            "TOPK": key.topk,
            "NUM_CANDIDATES": key.num_candidates,
            "STEPS": topk.bit_length() - 1,
            "num_warps": 8,
        }
        return (rows,) if rows else None, launch, out


def _holds_pairs(gathered: torch.Tensor) -> bool:
    """Whether each pair is one aligned word of 8 bytes."""
    row, pair, half = gathered.stride()
    return (pair, half) == (2, 1) and row % 2 == 0 and gathered.data_ptr() % 8 == 0


stable_topk_triton = StableTopKTritonKernel()
