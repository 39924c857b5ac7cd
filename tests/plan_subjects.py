"""Kernels with declarations for the tests of the plan and of warm-up."""

from __future__ import annotations

import triton
import triton.language as tl

from jitwarm.declare import NoKeys, TensorSpec, WarmupChoices, declare, launch

X, ODD = TensorSpec("float32"), TensorSpec("float32", aligned=False)


@triton.jit
def copy(x_ptr, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(x_ptr + at, at.to(tl.float32), mask=at < n)


@triton.jit
def fill(x_ptr, VALUE: tl.constexpr):
    tl.store(x_ptr, VALUE)


@triton.jit
def broken(x_ptr, n, WRONG: tl.constexpr):
    if WRONG:
        tl.store(x_ptr, n.no_such_attribute)


@declare(copy)
def Copy(block):
    """Four points, three declared keys of two backend keys: 17 and 33 are one class."""
    yield launch(x_ptr=X, n=WarmupChoices(17, 33, 16), BLOCK=block)
    yield launch(x_ptr=X, n=17, BLOCK=block)


@declare(fill)
def Fill(values):
    return [launch(x_ptr=X, VALUE=value) for value in values]


@declare(broken)
def Broken():
    """The middle one does not compile."""
    return launch(x_ptr=WarmupChoices(X, ODD), n=17, WRONG=WarmupChoices(False, True))


@declare(copy)
def Unbindable():
    """The middle one cannot be bound."""
    for options in ({}, {"num_warp": 4}, {"num_warps": 8}):
        yield launch(x_ptr=X, n=17, BLOCK=16, **options)


@declare(copy)
def Raising():
    raise LookupError("no such model")


@declare(copy)
def Silent():
    return []


@declare(copy)
def Spoken(reason):
    return NoKeys(reason)
