"""Dense prefill of an MLA layer through FA4MLAPrefill: new tokens causal, their contexts in a
second call, both merged by their log-sum-exps.

A sparse layer takes it for a batch whose requests are no longer than the selection: there dense
attention reads the same rows, and needs no selection.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import accumulate

import torch

from jitwarm.config import HFConfig
from jitwarm.traffic import Batch
from jitwarm.zoo.kernels.fa4_mla_prefill import fa4_mla_prefill

# Rows of the buffer that contexts are expanded into; a batch with more goes the sparse way.
CONTEXT_ROWS = 65536


@dataclass(frozen=True, slots=True)
class DenseBatch:
    """The prefill part of a batch: cumulative lengths int32 [P+1] of new tokens and of contexts on
    the device, the longest of each, and both sums.
    """

    new: torch.Tensor
    contexts: torch.Tensor
    longest_new: int
    longest_context: int
    tokens: int
    context_tokens: int


class DensePrefill:
    """Buffers for the inputs of the kernel, and its launches.

    `heads` are those of this rank, `longest` the longest sequence it serves.
    """

    def __init__(
        self, model: HFConfig, heads: int, max_tokens: int, longest: int, device: str
    ) -> None:
        """Allocate for the largest batch; the contents are left as they are."""
        self.longest, self.device = longest, device
        self.nope = model.qk_nope_head_dim
        key, joint = self.nope + model.qk_rope_head_dim, self.nope + model.v_head_dim

        def empty(rows: int, size: int) -> torch.Tensor:
            return torch.empty(rows, heads, size, dtype=torch.bfloat16, device=device)

        self.queries, self.keys, self.joint = (
            empty(max_tokens, key),
            empty(max_tokens, key),
            empty(max_tokens, joint),
        )
        self.context_keys, self.context_joint = empty(CONTEXT_ROWS, key), empty(CONTEXT_ROWS, joint)

    def batch(self, batch: Batch) -> DenseBatch | None:
        """The dense form of a batch's prefills; None if there is none or one is too long."""
        contexts = batch.prefill_contexts
        lengths = [n + c for n, c in zip(batch.prefill_chunks, contexts, strict=True)]
        if not lengths or max(lengths) > self.longest or sum(contexts) > CONTEXT_ROWS:
            return None
        return DenseBatch(
            self._starts(batch.prefill_chunks),
            self._starts(contexts),
            max(batch.prefill_chunks),
            max(contexts),
            sum(batch.prefill_chunks),
            sum(contexts),
        )

    def launches(self, dense: DenseBatch) -> Iterator[Callable[[], object]]:
        """The launches of one layer on the buffers."""
        tokens, rows = dense.tokens, dense.context_tokens
        queries = self.queries[:tokens]
        keys, values = self.keys[:tokens], self.joint[:tokens, :, self.nope :]
        yield lambda: attend_new(dense, queries, keys, values)
        if rows:
            earlier = self.context_keys[:rows], self.context_joint[:rows, :, self.nope :]
            yield lambda: attend_contexts(dense, queries, *earlier)

    def _starts(self, lengths: tuple[int, ...]) -> torch.Tensor:
        return torch.tensor([0, *accumulate(lengths)], dtype=torch.int32, device=self.device)


def attend_new(
    dense: DenseBatch, queries: torch.Tensor, keys: torch.Tensor, values: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """New tokens among themselves: output [T, heads, value], and the log-sum-exps where contexts
    are to be merged.
    """
    found = fa4_mla_prefill(
        queries,
        keys,
        values,
        dense.new,
        dense.new,
        dense.longest_new,
        dense.longest_new,
        causal=True,
        return_lse=dense.context_tokens > 0,
    )
    return found if isinstance(found, tuple) else (found, None)


def attend_contexts(
    dense: DenseBatch, queries: torch.Tensor, keys: torch.Tensor, values: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """New tokens with all of their contexts: output [T, heads, value] and log-sum-exps."""
    found: tuple[torch.Tensor, torch.Tensor] = fa4_mla_prefill(
        queries,
        keys,
        values,
        dense.new,
        dense.contexts,
        dense.longest_new,
        dense.longest_context,
        causal=False,
        return_lse=True,
    )
    return found


def merge(
    first: torch.Tensor, first_lse: torch.Tensor, second: torch.Tensor, second_lse: torch.Tensor
) -> torch.Tensor:
    """The attention over both sets of keys: outputs [T, heads, value] weighed by their
    log-sum-exps, float32 [heads, T].

    Every row of the first has a key. One without keys in the second has log-sum-exp -inf there,
    and its second output is not read.
    """
    # exp(b) / (exp(a) + exp(b)). Eight operators: seventeen of them took 69 % of a step's GPU time.
    share = torch.sigmoid(second_lse - first_lse).t()[:, :, None]
    read = torch.where(share > 0, second, 0.0)
    return torch.addcmul(first * (1 - share), read, share).to(first.dtype)
