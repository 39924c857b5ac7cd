"""What the decode rows of a step launch: they come first in the batch, so that every slice is the
start of its buffer, and only their number changes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from jitwarm.config import EngineConfig
from jitwarm.proof.envelope import Envelope, Ints
from jitwarm.proof.forms import affine
from jitwarm.zoo.envelopes.limits import Limits
from jitwarm.zoo.envelopes.stand_ins import from_start
from jitwarm.zoo.kernels.compute_slot_mapping import block_table_width
from jitwarm.zoo.kernels.correct_attn_cp_out import correct_attn_cp_out
from jitwarm.zoo.kernels.pack_seq import PackSeq, pack_seq_launch
from jitwarm.zoo.kernels.prepare_uniform_decode import PrepareUniformDecode, uniform_decode_launch
from jitwarm.zoo.kernels.unpack_seq import UnpackSeq, unpack_seq_launch


def uniform_decode(config: EngineConfig, *, block_size: int) -> Envelope:
    """Decode rows without padding, from the table of blocks of `block_size` tokens to a buffer of
    the same width.
    """
    limits = Limits.of(config)
    width = block_table_width(
        config.model_config.max_model_len,
        block_size,
        config.parallel_config.decode_context_parallel_size,
    )
    most = limits.decodes * limits.query_len

    def launch(decodes: int) -> Mapping[str, Any] | None:
        return uniform_decode_launch(
            from_start(torch.int32, decodes),
            from_start(torch.int32, decodes, width),
            from_start(torch.int32, most),
            from_start(torch.int32, most, width),
            from_start(torch.int32, most),
            tokens_per_request=limits.query_len,
        )

    site = "PrepareUniformDecode of a decode part without padding"
    return Envelope(PrepareUniformDecode, site, _decodes(limits), launch, forms={})


def pack(config: EngineConfig, *, dtype: torch.dtype) -> Envelope:
    """The indexer's queries of the decode rows, packed."""
    limits, model = Limits.of(config), config.model_config.hf_config
    width = model.index_n_heads * model.index_head_dim

    def launch(decodes: int) -> Mapping[str, Any] | None:
        return pack_seq_launch(
            from_start(dtype, decodes * limits.query_len, width),
            from_start(torch.int32, decodes),
            from_start(dtype, decodes, limits.query_len, width),
        )

    return Envelope(PackSeq, "PackSeq of decode queries", _decodes(limits), launch, forms={})


def unpack(config: EngineConfig) -> Envelope:
    """The indexer's selection of the decode rows, unpacked."""
    limits, topk = Limits.of(config), config.model_config.hf_config.index_topk

    def launch(decodes: int) -> Mapping[str, Any] | None:
        return unpack_seq_launch(
            from_start(torch.int32, decodes, limits.query_len, topk),
            from_start(torch.int32, decodes),
            from_start(torch.int32, decodes * limits.query_len, topk),
        )

    site = "UnpackSeq of decode selections"
    return Envelope(UnpackSeq, site, _decodes(limits), launch, forms={})


def corrected_output(config: EngineConfig, *, heads: int, head_dim: int) -> Envelope:
    """The attention output of the decode tokens with all ranks' heads, and the gathered
    log-sum-exps [ranks, tokens, heads], whose first stride counts tokens.
    """
    limits, parallel = Limits.of(config), config.parallel_config
    ranks = parallel.decode_context_parallel_size

    def launch(decodes: int) -> Mapping[str, Any]:
        return {
            "outputs": from_start(torch.bfloat16, decodes, heads, head_dim),
            "lses": from_start(torch.float32, ranks, decodes, heads),
            "lse_idx": parallel.dcp_rank,
            "is_base_e": True,
            "vlse": from_start(torch.float32, decodes, heads),
        }

    return Envelope(
        correct_attn_cp_out,
        "CorrectAttnCPOut of decode tokens",
        _decodes(limits),
        launch,
        forms={"lses_stride0": affine(decodes=heads)},
    )


def _decodes(limits: Limits) -> dict[str, Ints]:
    return {"decodes": Ints(1, limits.decodes)}
