"""Stand-ins with torch's dtypes, as fake and as real tensors, and back."""

from __future__ import annotations

import pytest
import torch
import triton.language as tl
from torch._subclasses.fake_tensor import FakeTensorMode

from jitwarm.declare import tensor as tensor_module
from jitwarm.declare.tensor import TensorSpec
from jitwarm.declare.torch_tensor import (
    fake_tensor,
    real_tensor,
    torch_dtype,
    with_torch_dtype,
    without_storage,
)

SPECS = [
    TensorSpec(torch.float16),
    TensorSpec(torch.int64, aligned=False, shape=(3, 4)),
    TensorSpec(torch.float32, shape=(3, 4), strides=(1, 3)),
    TensorSpec(torch.uint8, aligned=False, shape=(2, 5), strides=(64, 2)),
    TensorSpec(torch.bfloat16, shape=(4, 2), strides=(0, 1)),
    TensorSpec(torch.float32, shape=(0, 3)),
    TensorSpec(torch.bool, shape=()),
]


@pytest.mark.parametrize("name", [n for n in tensor_module._DTYPES if n not in ("int1", "uint1")])
def test_every_dtype_that_a_stand_in_takes_is_torchs(name):
    assert torch_dtype(name) is getattr(torch, name)
    assert real_tensor(TensorSpec(name, init=1)).tensor.to(torch.float32).tolist() == [1]


def test_dtypes_of_triton():
    dtypes = {
        tl.float32: torch.float32,
        tl.bfloat16: torch.bfloat16,
        tl.int1: torch.bool,
        tl.float8e4nv: torch.float8_e4m3fn,
        tl.float8e5: torch.float8_e5m2,
        tl.int8: torch.int8,
        tl.uint64: torch.uint64,
        tl.float16: torch.float16,
        tl.float64: torch.float64,
    }
    assert {dtype: torch_dtype(dtype) for dtype in dtypes} == dtypes


def test_only_stand_ins_change():
    spec = TensorSpec("int32", aligned=False, shape=(2,), init=5, ptr_range_bytes=7)
    changed = with_torch_dtype(spec)
    assert changed.dtype is torch.int32 and changed.canonical() == spec.canonical()
    assert (changed.init, changed.ptr_range_bytes) == (5, 7)
    assert with_torch_dtype(changed) is changed
    assert with_torch_dtype("int32") == "int32"


@pytest.mark.parametrize("spec", SPECS, ids=TensorSpec.canonical)
def test_there_and_back(spec):
    real = real_tensor(spec).tensor
    expected = spec if spec.numel() else TensorSpec(spec.dtype, shape=spec.shape)
    assert without_storage(real) == expected
    with FakeTensorMode():
        fake = fake_tensor(spec)
        assert type(fake).__name__ == "FakeTensor"
    assert without_storage(fake) == expected
    assert without_storage(spec) is spec and without_storage(3) == 3


def filled(**spec):
    return real_tensor(TensorSpec(**spec)).tensor


def test_init_fills():
    assert filled(dtype="float32", shape=(2, 2), init=1.5).tolist() == [[1.5] * 2] * 2
    assert filled(dtype="int32", shape=(3,), init=lambda t: t.fill_(4)).tolist() == [4, 4, 4]
    copied = filled(dtype="int32", aligned=False, shape=(3,), init=lambda t: torch.arange(3))
    assert copied.tolist() == [0, 1, 2] and copied.data_ptr() % 16 == 4
    quiet = filled(dtype="int32", shape=(2,), init=lambda t: t.zero_().tolist())
    assert quiet.tolist() == [0, 0]
    expanded = filled(dtype="float32", shape=(4, 2), strides=(0, 1), init=2)
    assert expanded.tolist() == [[2, 2]] * 4


@pytest.mark.parametrize("spec", SPECS, ids=TensorSpec.canonical)
def test_writing_behind_a_tensor_is_seen(spec):
    real = real_tensor(spec)
    tensor = real.tensor
    if spec.strides != (0, 1):
        tensor.fill_(1)
    assert not real.was_overrun()
    if spec.numel():
        last = sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride(), strict=True))
        behind = tensor.as_strided((1,), (1,), tensor.storage_offset() + last + 1)
        behind.fill_(1)
        assert real.was_overrun()
