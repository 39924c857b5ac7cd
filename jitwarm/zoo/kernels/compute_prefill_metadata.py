"""ComputePrefillMetadata: how many key/value rows each prefill request of a step gathers for its sliding window.

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

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import triton
import triton.language as tl


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
