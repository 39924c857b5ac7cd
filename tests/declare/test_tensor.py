"""Stand-ins say what a tensor of the same shape would say."""

from __future__ import annotations

import pickle

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from jitwarm.declare import TensorSpec
from jitwarm.declare.tensor import _DTYPES, dtype_name
from jitwarm.errors import DeclarationError
from jitwarm.keys import canonical

shapes = st.lists(st.integers(0, 4), max_size=4).map(tuple)


@given(shapes)
def test_compact_strides_are_those_of_torch(shape):
    spec, tensor = TensorSpec("float32", shape=shape), torch.empty(shape)
    assert spec.stride() == tensor.stride()
    assert (spec.size(), spec.numel(), spec.ndim) == (tensor.size(), tensor.numel(), tensor.ndim)
    assert spec.is_contiguous()
    for dim in range(-tensor.ndim, tensor.ndim):
        assert (spec.size(dim), spec.stride(dim)) == (tensor.size(dim), tensor.stride(dim))


@given(shapes, st.data())
def test_contiguous_means_what_it_means_in_torch(shape, data):
    strides = tuple(data.draw(st.integers(0, 9)) for _ in shape)
    spec = TensorSpec("float32", shape=shape, strides=strides)
    tensor = torch.zeros(200).as_strided(shape, strides)
    assert spec.stride() == tensor.stride()
    assert spec.is_contiguous() == tensor.is_contiguous()


@pytest.mark.parametrize(
    ("spec", "pointer"),
    [
        (TensorSpec("int32"), 0),
        (TensorSpec("int32", aligned=False), 1),
        (TensorSpec("int32", aligned=False, shape=(0,)), 0),
        (TensorSpec("int32", aligned=False, shape=(4, 0, 2)), 0),
        (TensorSpec("int32", aligned=False, shape=()), 1),
    ],
)
def test_pointers_of_empty_tensors_are_aligned_at_any_offset(spec, pointer):
    assert spec.data_ptr() == pointer


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        (TensorSpec("int32"), "tensor(int32, aligned)"),
        (TensorSpec(torch.int32), "tensor(int32, aligned)"),
        (TensorSpec("int32", aligned=False), "tensor(int32, unaligned)"),
        (TensorSpec("int32", shape=(2, 3)), "tensor(int32, aligned, shape=(2, 3))"),
        (TensorSpec("int32", shape=[2, 3]), "tensor(int32, aligned, shape=(2, 3))"),
        (TensorSpec("int32", shape=torch.Size((2, 3))), "tensor(int32, aligned, shape=(2, 3))"),
        (TensorSpec("int32", shape=(2, 3), strides=(3, 1)), "tensor(int32, aligned, shape=(2, 3))"),
        (
            TensorSpec("int32", shape=(2, 3), strides=[8, 1]),
            "tensor(int32, aligned, shape=(2, 3), strides=(8, 1))",
        ),
        (
            TensorSpec("int32", shape=(1, 3), strides=(8, 1)),
            "tensor(int32, aligned, shape=(1, 3), strides=(8, 1))",
        ),
        (TensorSpec("int32", init=7), "tensor(int32, aligned)"),
        (TensorSpec("int32", ptr_range_bytes=64), "tensor(int32, aligned, ptr_range=64)"),
    ],
)
def test_text(spec, text):
    assert canonical(spec) == text
    assert pickle.loads(pickle.dumps(spec)) == spec


def test_strides_that_do_not_fit_the_shape_are_an_error():
    with pytest.raises(DeclarationError, match=r"1 strides \(1,\) for a shape of 2 dimensions"):
        TensorSpec("int32", shape=(2, 3), strides=(1,))


def test_a_spec_is_a_value():
    assert TensorSpec("int32") == TensorSpec("int32")
    assert hash(TensorSpec("int32")) == hash(TensorSpec("int32"))
    with pytest.raises(AttributeError):
        TensorSpec("int32").aligned = False
    assert TensorSpec("int32").ptr_range() == 0
    assert TensorSpec("int32").device == torch.device("cpu")


TAKEN = (
    "bool, int, int1, int8, int16, int32, int64, uint1, uint8, uint16, uint32, uint64, half, "
    "float, double, bfloat16, float16, float32, float64, float8_e4m3fn, float8_e4m3fnuz, "
    "float8_e5m2, float8_e5m2fnuz"
)


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("bflaot16", "did you mean 'bfloat16'?"),
        ("torch.flaot32", "did you mean 'float32'?"),
        ("fp32", "did you mean 'float32'?"),
        ("complex64", f"Triton takes {TAKEN}"),
    ],
)
def test_an_unknown_dtype_name_is_an_error(name, advice):
    with pytest.raises(DeclarationError) as error:
        TensorSpec(name)
    assert str(error.value) == f"TensorSpec: unknown dtype {name!r}; {advice}"


@pytest.mark.triton
def test_known_dtype_names_are_those_of_torch_that_triton_takes():
    from triton._utils import type_canonicalisation_dict

    names = {name for name, value in vars(torch).items() if isinstance(value, torch.dtype)}
    assert set(_DTYPES) == names & set(type_canonicalisation_dict)
    assert len(set(_DTYPES)) == len(_DTYPES)


def test_dtype_objects_pass_through():
    import triton.language as tl

    for dtype in (torch.bfloat16, torch.complex64, tl.bfloat16, tl.int32):
        assert TensorSpec(dtype).dtype is dtype


def test_dtype_names():
    assert [dtype_name(dtype) for dtype in (torch.float16, "float16", "torch.float16")] == [
        "float16"
    ] * 3
