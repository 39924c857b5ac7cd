"""Launches that between them use everything a Triton key is made of.

`LAUNCHES` maps a name to (JITFunction, arguments, options); tensors are `TensorSpec`s, `real` makes
tensors of the same class. `lines()` is the golden file, one line a launch.
"""

from __future__ import annotations

import enum

import torch
import triton
import triton.language as tl

from jitwarm.backends.triton.binder import bind
from jitwarm.declare.tensor import TensorSpec, dtype_name


@triton.jit
def _copy(x_ptr, out_ptr, n, stride, BLOCK: tl.constexpr, FLAG: tl.constexpr = False):
    pass


_no_n = triton.jit(_copy.fn, do_not_specialize=["n", "x_ptr"])
_no_alignment = triton.jit(_copy.fn, do_not_specialize_on_alignment=["n", "x_ptr"])


@triton.jit
def _typed(x_ptr: tl.const, n: tl.int32, m: tl.int64, f: tl.float32, b: tl.int1):
    pass


@triton.jit
def _tuples(pair, x_ptr):
    pass


@triton.jit
def _one(x_ptr, VALUE: tl.constexpr):
    pass


@triton.jit
def _staged(x_ptr, num_stages: tl.constexpr, target):
    pass


@triton.jit
def _callee(x):
    return x + 1


def make(width, callee):
    @triton.jit
    def inner(x_ptr, n):
        tl.store(x_ptr, callee(n) + width)

    return inner


# Reachable, but not as attributes of this module.
CLOSURES = {width: make(tl.constexpr(width), _callee) for width in (16, 32)}


class Layout(enum.IntEnum):
    ROWS = 1


LAUNCHES = {}


def _add(name, fn, options=None, /, **arguments):
    LAUNCHES[name] = (fn, arguments, options or {})


F32, I32 = TensorSpec("float32"), TensorSpec("int32")
ODD = TensorSpec("float32", aligned=False)
BASE = {"x_ptr": F32, "out_ptr": F32, "n": 17, "stride": 17, "BLOCK": 64}

for dtype in (
    *("float16", "bfloat16", "float32", "float64", "int8", "int16", "int32", "int64", "uint8"),
    *("uint16", "uint32", "uint64", "bool", "float8_e4m3fn", "float8_e5m2"),
):
    _add(f"pointer {dtype}", _copy, **BASE | {"x_ptr": TensorSpec(getattr(torch, dtype))})
    if dtype in ("bfloat16", "int8", "int64"):
        _add(f"unaligned {dtype}", _copy, **BASE | {"x_ptr": TensorSpec(dtype, aligned=False)})
_add("empty tensor", _copy, **BASE | {"x_ptr": TensorSpec("int32", aligned=False, shape=(0,))})
_add("no pointer", _copy, **BASE | {"x_ptr": None})
INTEGERS = (0, 1, 2, 16, 17, 48, -1, -16, 2**31 - 1, 2**31, 2**31 - 16, 2**32, 2**63 - 1, 2**63)
for n in (*INTEGERS, -(2**31), -(2**31) - 1, 2**64 - 1, True, False, 1.0, 1.5):
    _add(f"argument {n!r}", _copy, **BASE | {"n": n})
for n in (1, 16, 17, 2**31):
    _add(f"do_not_specialize {n}", _no_n, **BASE | {"n": n, "x_ptr": ODD})
    _add(f"no alignment {n}", _no_alignment, **BASE | {"n": n, "x_ptr": ODD})
for n in (1, 16, 17):
    _add(f"annotated {n}", _typed, x_ptr=F32, n=n, m=n, f=1.0, b=True)
_add("annotated wide", _typed, x_ptr=ODD, n=2**31, m=2**40 + 1, f=2, b=False)
CONSTANTS = {
    "1": 1,
    "True": True,
    "1.0": 1.0,
    "-0.0": -0.0,
    "nan": float("nan"),
    "None": None,
    "string": "fp32",
    "quotes": "a'b\"c",
    "separators": "; y:i32]{cuda:80; k=1",
    "backslash": "\\';",
    "dtype": tl.float32,
    "tuple": (1, "x; y", None),
    "one tuple": (1.0,),
    "empty tuple": (),
    "enum": Layout.ROWS,
    "constexpr": tl.constexpr(7),
    "plain 7": 7,
    "constexpr tuple": tl.constexpr((1, True)),
    "kernel": _callee,
    "constexpr kernel": tl.constexpr(_callee),
    "big": 2**70,
}
for name, value in CONSTANTS.items():
    _add(f"constant {name}", _one, x_ptr=F32, VALUE=value)
_add("default given", _copy, **BASE, FLAG=False)
_add("default changed", _copy, **BASE, FLAG=True)
_add("tuple argument", _tuples, pair=(F32, 16, 1, 2.5, None), x_ptr=F32)
_add("nested tuple", _tuples, pair=((ODD, 17), (1,)), x_ptr=F32)
_add("tuple of constexpr", _tuples, pair=(tl.constexpr(3), 16), x_ptr=F32)
_add("empty tuple argument", _tuples, pair=(), x_ptr=F32)
_add("argument named like an option", _staged, x_ptr=F32, num_stages=5, target=16)
for width, inner in CLOSURES.items():
    _add(f"closure {width}", inner, x_ptr=I32, n=16)
del inner
for name, options in {
    "warps 4": {"num_warps": 4},
    "warps 8": {"num_warps": 8},
    "stages then warps": {"num_stages": 2, "num_warps": 8},
    "warps then stages": {"num_warps": 8, "num_stages": 2},
    "debug": {"debug": True},
    "no debug": {"debug": False},
    "registers": {"maxnreg": 128},
    "no fusion": {"enable_fp_fusion": False},
    "library": {"extern_libs": {"libx": "/some/where/libx.bc"}},
}.items():
    _add(f"option {name}", _copy, options, **BASE)


def real(value):
    """A tensor of the class of a `TensorSpec`; tuples of them too; anything else as it is."""
    if type(value) is tuple:
        return tuple(map(real, value))
    if not isinstance(value, TensorSpec):
        return value
    dtype = getattr(torch, dtype_name(value.dtype))
    memory = torch.zeros(256, dtype=torch.uint8)
    start = -memory.data_ptr() % 16 + (0 if value.aligned else dtype.itemsize)
    return memory[start : start + dtype.itemsize * value.numel()].view(dtype)


def planned(name):
    """The key that the binder gives a launch of the catalogue."""
    fn, arguments, options = LAUNCHES[name]
    return bind(fn, (), arguments | options)


def lines():
    """The golden file."""
    return [f"{name} => {planned(name).text}" for name in LAUNCHES]
