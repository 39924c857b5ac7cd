"""A kernel that says on purpose that it needs no key, and is launched; and one nobody declared."""

import torch
import triton
import triton.language as tl

from jitwarm.faults import Expected, Fault, NoKeys, TensorSpec, launch


@triton.jit
def _mask_tokens(tokens, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(tokens + at, tl.load(tokens + at) & 0xFFFF)


def serve():
    _mask_tokens[(1,)](torch.zeros(64, dtype=torch.int64), BLOCK=64)


ONE = launch(tokens=TensorSpec("int64"), BLOCK=64)

SAID_NONE = Fault(
    "no keys, it says",
    kernel=_mask_tokens,
    declared=lambda config: NoKeys("only vision models mask") if config is None else [ONE],
    launches=[ONE],
    expected=[Expected("UNDECLARED", kernel="_mask_tokens", message="only vision models mask")],
)
NOT_DECLARED = Fault(
    "launched, and never declared",
    launches=serve,
    expected=[Expected("UNDECLARED", kernel="_mask_tokens", count=1)],
)
TWIN = Fault(
    "declared for the configuration that launches it",
    kernel=_mask_tokens,
    declared=lambda config: NoKeys("only vision models mask") if config is None else [ONE],
    config={"vision": True},
    launches=serve,
)
