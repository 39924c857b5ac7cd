"""`TritonJitKernel` with mock kernels: warm-up binds as a launch does, and disturbs none."""

from __future__ import annotations

import subprocess
import sys
import threading
from dataclasses import dataclass

import pytest
import torch
from torch._subclasses import FakeTensorMode

from jitwarm.contract import OpaqueRecipe, TritonJitKernel, TritonWarmupTensor, kernel_launcher
from jitwarm.declare.tensor import TensorSpec
from jitwarm.errors import BindingError, DeclarationError


class MockKernel:
    """Triton's launch and warm-up interface, recorded."""

    def __init__(self, *arg_names):
        self.arg_names, self.launches, self.warmups = arg_names, [], []

    def run(self, *args, grid, warmup, **kwargs):
        self.launches.append((args, grid, warmup, kwargs))

    def warmup(self, *args, grid, **kwargs):
        self.warmups.append((args, grid, kwargs))
        return f"binary {len(self.warmups)}"


def scale_class(kernel_object):
    class ScaleKernel(TritonJitKernel["ScaleKernel.CompileKey"]):
        kernel = kernel_object

        @dataclass(frozen=True)
        class CompileKey:
            block: int
            launch_pdl: bool = False

        def dispatch(self, *, n):
            return self.CompileKey(1 << (n - 1).bit_length())

        def get_warmup_keys(self, config):
            return self._trace_dispatch(self.dispatch)(n=(1, 3, 4))

        def warmup_inputs(self, key):
            return {"x": TritonWarmupTensor("float32", shape=(4, 8)), "n": key.block}

        @kernel_launcher
        def __call__(self, x, n, out=None):
            """Scale."""
            key = self.dispatch(n=n)
            grid = None if n == 0 else (n,)
            return grid, {"OUT": out, "BLOCK": key.block, "num_warps": 8, "launch_pdl": True}, "out"

    return ScaleKernel


NAMES = ("x_ptr", "n", "x_stride0", "OUT", "BLOCK")
SPEC = TensorSpec("float32", shape=(4, 8))


def test_compile_calls_the_warm_up_entry_with_bound_names_and_grid_one():
    mock = MockKernel(*NAMES)
    scale = scale_class(mock)()
    key = scale.CompileKey(4)
    assert scale.compile(key) == "binary 1"
    [(args, grid, kwargs)] = mock.warmups
    assert (args, grid) == ((), (1,))
    assert list(kwargs.items()) == [
        ("x_ptr", SPEC),
        ("n", 4),
        ("x_stride0", 8),
        ("OUT", None),
        ("BLOCK", 4),
        ("num_warps", 8),
        ("launch_pdl", False),
    ]
    assert (scale._compiled_cache[key], mock.launches) == ("binary 1", [])


def test_launch_and_warm_up_bind_alike():
    mock = MockKernel(*NAMES)
    scale = scale_class(mock)()
    inputs = scale.warmup_inputs(scale.CompileKey(4))
    assert scale(**inputs) == "out"
    [(args, grid, _, kwargs)] = mock.launches
    bound = scale.bound_launch(scale.CompileKey(4))
    assert dict(zip(NAMES, args, strict=True)) == bound.arguments
    assert list(kwargs) == list(bound.options)
    assert grid == (4,)


def test_a_grid_of_none_is_still_compiled():
    mock = MockKernel(*NAMES)
    scale = type(
        "Zero", (scale_class(mock),), {"warmup_inputs": lambda self, key: {"x": SPEC, "n": 0}}
    )()
    assert (scale(SPEC, 0), mock.launches) == ("out", [])
    scale.compile(scale.dispatch(n=0))
    assert mock.warmups[0][2]["n"] == 0


def test_a_launch_from_another_thread_during_warm_up_really_launches():
    inside, launched = threading.Event(), threading.Event()
    mock = MockKernel(*NAMES)

    class Watched(scale_class(mock)):
        def warmup_inputs(self, key):
            inside.set()
            assert launched.wait(60)
            return super().warmup_inputs(key)

    scale = Watched()
    warming = threading.Thread(target=scale.compile, args=(scale.CompileKey(4),))
    warming.start()
    assert inside.wait(60)
    assert scale(SPEC, 2) == "out"
    assert len(mock.launches) == 1
    launched.set()
    warming.join()
    assert (len(mock.launches), len(mock.warmups)) == (1, 1)


def test_enumeration_of_a_kernel_without_triton_is_opaque():
    mock = MockKernel(*NAMES)
    scale = scale_class(mock)()
    found = scale.enumerate_keys("config", (), {})
    assert [declared.text for declared in found.declared] == [
        "Scale(block=1, launch_pdl=False)",
        "Scale(block=4, launch_pdl=False)",
    ]
    assert found.points == 3
    assert found.declared[0].recipe == OpaqueRecipe(scale, scale.CompileKey(1))
    assert mock.warmups == []


def test_a_plain_function_is_ready_without_a_compile():
    class Wrapper:
        def __init__(self, func):
            self.func = func

        def __getitem__(self, grid):
            return self.func

    calls = []

    def on_cpu(x, n, OUT, BLOCK, num_warps=1, launch_pdl=None):
        calls.append((n, BLOCK))

    scale = scale_class(Wrapper(on_cpu))()
    scale.warmup("config")
    assert len(scale._compiled_cache) == 2
    assert calls == []
    assert scale("x", 3) == "out"
    assert calls == [(3, 4)]


def test_tensors_become_stand_ins():
    base = torch.empty(64, dtype=torch.int32)
    with FakeTensorMode():
        fake = torch.empty(4, 6, dtype=torch.float16)[1:, :3]
        empty = torch.empty(8, dtype=torch.float16)[1:1]
    cases = [
        (base[:16].view(4, 4), TensorSpec(torch.int32, shape=(4, 4))),
        (base[1:5], TensorSpec(torch.int32, aligned=False, shape=(4,))),
        (base[1:1], TensorSpec(torch.int32, shape=(0,))),
        (base[:16].view(4, 4).t(), TensorSpec(torch.int32, shape=(4, 4), strides=(1, 4))),
        (fake, TensorSpec(torch.float16, aligned=False, shape=(3, 3), strides=(6, 1))),
        (empty, TensorSpec(torch.float16, shape=(0,))),
        (SPEC, SPEC),
        (5, 5),
    ]
    for value, expected in cases:
        mock = MockKernel("x", "n", "OUT", "BLOCK")
        made = scale_class(mock)
        made.warmup_inputs = lambda self, key, value=value: {"x": value, "n": 1}
        assert made().bound_launch(made.CompileKey(1)).arguments["x"] == expected


def test_warm_up_inputs_that_do_not_fit_the_call():
    made = scale_class(MockKernel(*NAMES))
    made.warmup_inputs = lambda self, key: {"x": SPEC, "m": 1}
    with pytest.raises(
        BindingError, match=r"^Scale: warmup_inputs\(.*does not fit __call__: .*'m'"
    ):
        made().compile(made.CompileKey(1))
    made.warmup_inputs = lambda self, key: {"x": SPEC}
    with pytest.raises(
        BindingError,
        match=r"does not fit __call__: scale_class.<locals>.ScaleKernel.__call__\(\) missing 1 "
        r"required positional argument: 'n'$",
    ):
        made().compile(made.CompileKey(1))


def test_what_a_class_may_lack():
    class Plain(TritonJitKernel["int"]):
        CompileKey = int
        kernel = MockKernel("x")

        def get_warmup_keys(self):
            return [1]

        def __call__(self, x):
            return (1,), {}

    with pytest.raises(DeclarationError, match=r"^Plain: __call__ is not decorated"):
        Plain().compile(1)

    class Without(Plain):
        __call__ = kernel_launcher(Plain.__call__)

    with pytest.raises(DeclarationError, match=r"^Without: the class has no warmup_inputs"):
        Without().compile(1)

    class Own(Without):
        def compile(self, key):
            self._compiled_cache[key] = "own"

    own = Own()
    [declared] = own.enumerate_keys(None, (), {}).declared
    assert declared.recipe == OpaqueRecipe(own, 1)


def test_kernels_that_bind_no_inputs_are_warmed_as_they_are_launched():
    mock = MockKernel("x", "n")
    mock.fn = lambda x, n=0: None

    class Direct(TritonJitKernel["int"]):
        CompileKey = int
        kernel = mock
        bind_launch_inputs = False

        def get_warmup_keys(self):
            return [1]

        def warmup_inputs(self, key):
            return {"n": key}

        @kernel_launcher
        def __call__(self, n):
            return (1,), {"x": n}

    Direct().warmup()
    Direct()(1)
    assert mock.warmups == [((), (1,), {"x": 1})]
    assert mock.launches == [((1,), (1,), False, {})]


def test_launch_pdl_of_the_key_is_not_added_to_a_launch_without_it():
    mock = MockKernel("n")

    class Quiet(scale_class(mock)):
        def warmup_inputs(self, key):
            return {"n": key.block}

        @kernel_launcher
        def __call__(self, n):
            return (1,), {}

    assert Quiet().bound_launch(Quiet.CompileKey(4, launch_pdl=True)).options == {}


def test_the_package_needs_neither_torch_nor_triton():
    code = (
        "import sys; sys.modules['torch'] = sys.modules['triton'] = None; "
        "import jitwarm.contract as c; print(len(c.__all__) > 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "True"
