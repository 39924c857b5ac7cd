"""The relative bias of Inkling's attention as a score modifier of flash-attn-4.

Needs the library: import it only where a launch or a key is asked for. Whatever the modifier
depends on has to stand in its source or in its arguments, because the library's key has a hash of
that source; so the extent of the bias is read from the tensor.
"""

# mypy: allow-untyped-defs, allow-untyped-decorators, allow-untyped-calls
# (the compiler that traces this has no types to name)

from __future__ import annotations

import cutlass
from cutlass import cute


@cute.jit
def relative_bias(scores, _batch, head, q_idx, kv_idx, seqlen_info, aux_tensors):
    """`scores` (one of them, scaled already) plus rel_logits[token, head, distance].

    `q_idx` and `kv_idx` count from the start of their sequences; the distance of the last query to
    the last key is 0. No bias where the distance is negative (masked anyway) or beyond the extent.
    """
    bias = aux_tensors[0]  # [T, H, E]
    distance = q_idx[0] + seqlen_info.seqlen_k - seqlen_info.seqlen_q - kv_idx[0]
    inside = (distance >= 0) & (distance < bias.shape[2])
    place = distance if inside else 0  # a place that can be read
    token = seqlen_info.offset_q + q_idx[0]
    value = cutlass.Float32(bias[token, head[0], place])
    added = cute.make_rmem_tensor(1, cutlass.Float32)
    added[0] = value if inside else cutlass.Float32(0.0)
    return scores + added.load()
