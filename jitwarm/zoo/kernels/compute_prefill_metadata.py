"""ComputePrefillMetadata: how many key/value rows each prefill request gathers for its window.

For prefill request k, which is request d + k of the batch (d decode requests come first), with n
new query tokens:

    context       = max(seq_lens[d + k] - n, 0)
    gather_len[k] = n + min(max(context - replay_start[d + k], 0), window_size - 1)

Shapes, all int32: seq_lens [R or more], query_start_loc [R+1 or more], replay_start [R or more],
gather_lens [P or more], with R = num_decodes + num_prefills requests and P = num_prefills >= 1.
Below replay_start a context has no window entries. Entries past P are not written. A padded
request (seq_len below its query length) has no context.

Callers and reachable classes
-----------------------------
The sliding-window metadata builder, once a step that has prefill requests. The tensors are the
batch's own; the kernel skips the decode requests itself, so nothing is sliced at an odd offset.

* seq_lens_ptr, query_start_loc_ptr, replay_start_ptr: `buffer[:num_reqs]` (`[:num_reqs + 1]`):
  from the start, int32. Classes: aligned.
* gather_lens_ptr: fresh. Classes: aligned.
* num_prefills, num_decodes, window_size: any. Classes: i32, unspecialised.
* BLOCK_SIZE: np2(num_prefills). Classes: 1, 2, 4, ... up to np2(min(max_num_seqs,
  max_num_batched_tokens)).
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators
# (kernel arguments have no Python types)

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import triton
import triton.language as tl

from jitwarm.contract import (
    TritonJitKernel,
    TritonWarmupTensor,
    WarmupIntRange,
    kernel_launcher,
)
from jitwarm.errors import BindingError


@triton.jit(do_not_specialize=["num_prefills", "num_decodes", "window_size"])
def _compute_prefill_metadata(
    seq_lens_ptr,
    query_start_loc_ptr,
    replay_start_ptr,
    gather_lens_ptr,
    num_prefills,
    num_decodes,
    window_size,
    BLOCK_SIZE: tl.constexpr,
):
    prefill = tl.arange(0, BLOCK_SIZE)
    mask = prefill < num_prefills
    request = num_decodes + tl.minimum(prefill, num_prefills - 1)
    first = tl.load(query_start_loc_ptr + request)
    query_len = tl.load(query_start_loc_ptr + request + 1) - first
    context = tl.maximum(tl.load(seq_lens_ptr + request) - query_len, 0)
    visible = tl.maximum(context - tl.load(replay_start_ptr + request), 0)
    gather_len = query_len + tl.minimum(visible, window_size - 1)
    tl.store(gather_lens_ptr + prefill, gather_len, mask=mask)


class ComputePrefillMetadataKernel(TritonJitKernel["ComputePrefillMetadataKernel.CompileKey"]):
    """Computes the gather lengths of a step's prefill requests; see the module's text."""

    kernel = _compute_prefill_metadata
    kernel_name = "ComputePrefillMetadata"

    @dataclass(frozen=True, slots=True)
    class CompileKey:
        """One program does all requests, in a block of the next power of two."""

        block_size: int

    def dispatch(self, *, num_prefills: int) -> CompileKey:
        """The key of a step with this many prefill requests, at least one."""
        if num_prefills < 1:
            raise BindingError(f"{self.kernel_name}: needs a prefill request, got {num_prefills}")
        return self.CompileKey(_next_power_of_two(num_prefills))

    def get_warmup_keys(self, config: Any) -> list[CompileKey]:
        """A key for each power of two up to the most prefill requests that a step can have."""
        scheduler = config.scheduler_config
        most = max(1, min(scheduler.max_num_seqs, scheduler.max_num_batched_tokens))
        return self._trace_dispatch(self.dispatch)(
            num_prefills=WarmupIntRange(1, most + 1, advance=lambda n: _next_power_of_two(n) + 1)
        )

    def warmup_inputs(self, key: CompileKey) -> dict[str, Any]:
        """Arguments of a call that has this key."""

        def tensor(entries: int) -> Any:
            return TritonWarmupTensor(torch.int32, shape=(entries,))

        return {
            "seq_lens": tensor(key.block_size),
            "query_start_loc": tensor(key.block_size + 1),
            "replay_start": tensor(key.block_size),
            "num_prefills": key.block_size,
            "num_decodes": 0,
            "window_size": 2,
            "gather_lens": tensor(key.block_size),
        }

    @kernel_launcher
    def __call__(
        self,
        seq_lens: torch.Tensor,
        query_start_loc: torch.Tensor,
        replay_start: torch.Tensor,
        num_prefills: int,
        num_decodes: int,
        window_size: int,
        *,
        gather_lens: torch.Tensor | None = None,
    ) -> Any:
        """Fill the first `num_prefills` of `gather_lens` (allocated if absent) and return it.

        Raises `BindingError` (a ValueError) without a prefill request and for too short tensors.
        """
        key = self.dispatch(num_prefills=num_prefills)
        if gather_lens is None:
            gather_lens = seq_lens.new_empty(num_prefills)
        num_reqs = num_decodes + num_prefills
        if not (
            seq_lens.shape[0] >= num_reqs
            and query_start_loc.shape[0] > num_reqs
            and replay_start.shape[0] >= num_reqs
            and gather_lens.shape[0] >= num_prefills
        ):
            raise BindingError(
                f"{self.kernel_name}: {num_decodes} decode and {num_prefills} prefill requests "
                f"need {num_reqs} entries of seq_lens and replay_start, {num_reqs + 1} of "
                f"query_start_loc and {num_prefills} of gather_lens"
            )
        launch = {"gather_lens_ptr": gather_lens, "BLOCK_SIZE": key.block_size}
        return (1,), launch, gather_lens


def _next_power_of_two(n: int) -> int:
    return 1 << (n - 1).bit_length()


compute_prefill_metadata = ComputePrefillMetadataKernel()
