"""A warm-up that raises half way, and one whose compiler takes the process with it."""

import os
import signal

import torch
import triton
import triton.language as tl

from jitwarm.faults import Expected, Fault, TensorSpec, WarmupChoices, launch


@triton.jit
def _offset(x, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(x + at, tl.load(x + at) + 1)


DECLARED = [launch(x=TensorSpec("float32"), BLOCK=WarmupChoices(32, 64))]


def run(block):
    _offset[(1,)](torch.zeros(64), BLOCK=block)


def first_and_raise():
    run(32)
    raise AttributeError("fake tensor has no attribute 'ndim'")


def first_and_die():
    run(32)
    os.kill(os.getpid(), signal.SIGSEGV)


RAISES = Fault(
    "the second key is never reached",
    kernel=_offset,
    declared=DECLARED,
    warmup=first_and_raise,
    expected=[
        Expected("WARM-CRASH", kernel="_offset", seen="AttributeError", message="ndim", count=1),
        Expected("MISS", kernel="_offset", warmed="1 of 2 keys", count=1),
    ],
)
DIES = Fault(
    "start-up dies",
    kernel=_offset,
    declared=DECLARED,
    warmup=first_and_die,
    expected=[Expected("WARM-CRASH", kernel="_offset", seen="signal SIGSEGV", count=1)],
)
TWIN = Fault(
    "both keys",
    kernel=_offset,
    declared=DECLARED,
    warmup=lambda: (run(32), run(64)),
    launches=lambda: run(64),
)
