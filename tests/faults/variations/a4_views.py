"""Views of other sizes, of the second pointer: 8-bit elements make most offsets unaligned."""

import torch
import triton
import triton.language as tl

from jitwarm.faults import Envelope, Expected, Fault, Ints, TensorSpec, launch


@triton.jit
def _requantise(out, scales, codes, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    value = tl.load(codes + at).to(tl.float32) * tl.load(scales)
    tl.store(out + at, value)


def requantise(*, aligned):
    return launch(
        out=TensorSpec("float32"),
        scales=TensorSpec("float32"),
        codes=TensorSpec("uint8", aligned=aligned),
        BLOCK=32,
    )


def at_offset(rows):
    # `rows` decode rows of 24 bytes come before the prefill rows.
    codes = TensorSpec("uint8", aligned=rows * 24 % 16 == 0)
    return {"out": TensorSpec("float32"), "scales": TensorSpec("float32"), "codes": codes,
            "BLOCK": 32}  # fmt: skip


PREFILL = Envelope(_requantise, "prefill rows", {"rows": Ints(0, 256)}, at_offset)
EVEN = Envelope(
    _requantise, "prefill rows", {"pairs": Ints(0, 128)}, lambda pairs: at_offset(2 * pairs)
)


def serve_views_that_are_aligned():
    out, scales = torch.zeros(32), torch.zeros(1)
    codes = torch.zeros(64, dtype=torch.uint8)
    _requantise[(1,)](out, scales, codes[16:48], BLOCK=32)
    _requantise[(1,)](out, scales, codes[7:7], BLOCK=32)  # empty: its address is null


FAULT = Fault(
    "an odd number of decode rows",
    kernel=_requantise,
    declared=[requantise(aligned=True)],
    launches=PREFILL,
    expected=[
        Expected("MISS", field="codes", warmed="*u8/D", seen="*u8/", smallest="rows=1", count=1)
    ],
)
TWIN_EVEN = Fault(
    "decode rows come in pairs",
    kernel=_requantise,
    declared=[requantise(aligned=True)],
    launches=EVEN,
)
TWIN_ALIGNED = Fault(
    "16 bytes on, and an empty view anywhere",
    kernel=_requantise,
    declared=[requantise(aligned=True)],
    launches=serve_views_that_are_aligned,
)
