"""`kernel_launcher`: launches of mock kernels, by position, by name and through an adapter."""

from __future__ import annotations

import functools
import inspect
from types import SimpleNamespace

import pytest

from jitwarm.contract import LaunchSpec, TritonJitKernel, kernel_launcher
from jitwarm.errors import BindingError, DeclarationError


class Recorder:
    """A kernel with Triton's launch interface that only records."""

    def __init__(self, *arg_names, fn=None):
        self.arg_names, self.calls, self.fn = list(arg_names), [], fn

    def run(self, *args, grid, warmup, **kwargs):
        self.calls.append((args, grid, warmup, kwargs))


class Strided:
    def __init__(self, *strides):
        self.strides = strides

    def stride(self, dim):
        return self.strides[dim]


class Demo(TritonJitKernel["Demo.CompileKey"]):
    CompileKey = int

    def get_warmup_keys(self):
        return [1]


def owner(kernel, call, **members):
    made = type("Demo", (Demo,), {"kernel": kernel, "__call__": kernel_launcher(call), **members})
    return made()


def test_everything_bound_goes_by_position_and_options_by_name_in_launch_order():
    kernel = Recorder("x_ptr", "n", "x_stride0", "BLOCK")

    def call(self, x, n):
        return (n,), {"num_stages": 2, "BLOCK": 64, "num_warps": 8}

    x = Strided(5)
    assert owner(kernel, call)(x, 3) is None
    [(args, grid, warmup, kwargs)] = kernel.calls
    assert (args, grid, warmup) == ((x, 3, 5, 64), (3,), False)
    assert list(kwargs.items()) == [("num_stages", 2), ("num_warps", 8)]


def test_arguments_after_one_that_keeps_its_default_go_by_name():
    def source(x, FLAG=1, BLOCK=2):
        pass

    kernel = Recorder("x", "FLAG", "BLOCK", fn=source)
    owner(kernel, lambda self, x: ((1,), {"BLOCK": 64}))("X")
    assert kernel.calls == [(("X",), (1,), False, {"BLOCK": 64})]


def test_every_kind_of_parameter():
    kernel = Recorder("a", "b", "c", "d")

    def call(self, a, /, b, c=3, *rest, d, e=5, **more):
        return (1,), {}, (rest, e, more)

    demo = owner(kernel, call)
    assert demo(1, 2, d=4) == ((), 5, {})
    assert demo(1, 2, 7, 8, d=4, e=6, f=9) == ((8,), 6, {"f": 9})
    assert [args for args, *_ in kernel.calls] == [(1, 2, 3, 4), (1, 2, 7, 4)]


def test_signature_name_and_docstring_are_those_of_the_function():
    def call(self, x, *, n: int = 3):
        """Scale x."""
        return (1,), {}

    launcher = kernel_launcher(call)
    assert (launcher.__name__, launcher.__doc__, launcher.__wrapped__) == ("call", "Scale x.", call)
    assert inspect.signature(launcher) == inspect.signature(call)


def test_wrong_arguments_are_pythons_own_type_errors():
    demo = owner(Recorder("x"), lambda self, x: ((1,), {}))
    for args, kwargs in (((), {}), ((1, 2), {}), ((1,), {"y": 2})):
        with pytest.raises(TypeError):
            demo(*args, **kwargs)


def test_generated_functions_carry_the_name_of_what_they_stand_for():
    class Named(Demo):
        kernel_name = "Scale rows"

        class kernel:
            arg_names = ("x", "eps")

            @staticmethod
            def run(*args, **options):
                raise RuntimeError("no device")

        @kernel_launcher
        def __call__(self, x, eps):
            return (1,), {}

    own = "test_generated_functions_carry_the_name_of_what_they_stand_for.<locals>.Named.__call__()"
    missing = f"{own} missing 1 required positional argument: 'eps'"
    for function in (Named(), functools.partial(Named.__call__.launcher.collect, None)):
        with pytest.raises(TypeError) as caught:
            function(1)
        assert str(caught.value) == missing
    with pytest.raises(RuntimeError, match="no device") as caught:
        Named()(1, 2)
    frames = [entry.frame for entry in caught.traceback][1:-1]
    assert [frame.code.raw.co_qualname for frame in frames] == [
        own.removesuffix("()"),
        "InputBinding.run",
        "Scale rows.launch",
    ]
    # What they are part of: a monitor looks past it for the line that launched.
    assert {frame.f_globals["__name__"].rpartition(".")[0] for frame in frames} == {
        "jitwarm.contract"
    }


@pytest.mark.parametrize("spec", [LaunchSpec, lambda *parts: parts])
def test_outputs_are_returned(spec):
    kernel = Recorder("x")
    assert owner(kernel, lambda self, x: spec((2,), {}, "out"))(1) == "out"
    assert kernel.calls == [((1,), (2,), False, {})]


def test_grid_none_launches_nothing_and_returns_the_outputs():
    kernel = Recorder("x")
    demo = owner(kernel, lambda self, x: (None, {}, "out"))
    assert (demo(1), kernel.calls) == ("out", [])


@pytest.mark.parametrize("spec", [None, (1,), ((1,), {}, 1, 2), [(1,), {}]])
def test_a_result_that_is_no_specification(spec):
    with pytest.raises(DeclarationError, match=r"^Demo: __call__ returned "):
        owner(Recorder("x"), lambda self, x: spec)(1)


def test_another_kernel_for_one_launch():
    first, second = Recorder("x"), Recorder("n", "x")
    demo = owner(first, lambda self, x, n, kernel=None: ((1,), {"kernel": kernel}))
    demo(1, 2)
    demo(1, 2, second)
    demo(3, 4)
    assert [args for args, *_ in first.calls] == [(1,), (3,)]
    assert [args for args, *_ in second.calls] == [(2, 1)]


def test_each_set_of_launch_kwargs_has_its_own_binding():
    kernel = Recorder("x", "n", fn=lambda x, n=0: None)
    demo = owner(kernel, lambda self, x, launch: ((1,), launch))
    demo(1, {})
    demo(1, {"n": 2, "num_warps": 4})
    demo(1, {"num_warps": 4, "n": 2})
    demo(1, {"n": 3})
    assert [(args, kwargs) for args, _, _, kwargs in kernel.calls] == [
        ((1,), {}),
        ((1, 2), {"num_warps": 4}),
        ((1, 2), {"num_warps": 4}),
        ((1, 3), {}),
    ]


def test_runtime_adapter_gets_a_positional_prefix_and_the_rest_by_name():
    kernel, calls = Recorder("x_ptr", "n", "x_stride", "BLOCK"), []

    def adapter(kernel, grid, *args, **kwargs):
        calls.append((kernel, grid, args, kwargs))

    def call(self, x, n, count):
        launch = {"BLOCK": 64, "num_warps": 8, "_runtime_launcher": adapter}
        return (n,), launch | ({} if count is None else {"_runtime_launcher_arg_count": count})

    x = Strided(5)
    demo = owner(kernel, call)
    for count in (3, 1, None):
        demo(x, 3, count)
    assert calls == [
        (kernel, (3,), (x, 3, 5), {"BLOCK": 64, "num_warps": 8}),
        (kernel, (3,), (x,), {"n": 3, "x_stride": 5, "BLOCK": 64, "num_warps": 8}),
        (kernel, (3,), (), {"x_ptr": x, "n": 3, "x_stride": 5, "BLOCK": 64, "num_warps": 8}),
    ]
    assert kernel.calls == []
    with pytest.raises(BindingError, match="_runtime_launcher_arg_count is 9"):
        demo(x, 3, 9)


def test_an_absent_adapter_is_an_ordinary_launch():
    kernel = Recorder("x")
    owner(kernel, lambda self, x: ((1,), {"_runtime_launcher": None}))(7)
    assert kernel.calls == [((7,), (1,), False, {})]


def test_a_wrapped_plain_function_is_launched_by_name():
    calls = []

    class Wrapper:
        def __init__(self, func):
            self.func = func

        def __getitem__(self, grid):
            return lambda **kwargs: calls.append((grid, self.func(**kwargs)))

    owner(Wrapper(lambda x, n, k=1: (x, n, k)), lambda self, n, x: ((4,), {}))(n=2, x="x")
    assert calls == [((4,), ("x", 2, 1))]


def test_an_object_that_cannot_be_launched():
    demo = owner(SimpleNamespace(arg_names=["x"]), lambda self, x: ((1,), {}))
    with pytest.raises(BindingError, match=r"^Demo: .* can be launched neither"):
        demo(1)


def test_an_overridden_launch_gets_the_inputs_by_name_and_may_call_the_base():
    kernel, seen = Recorder("x", "n"), []

    def launch(self, spec, inputs):
        seen.append((spec, inputs))
        return TritonJitKernel.launch(self, spec, {**inputs, "n": 9})

    demo = owner(kernel, lambda self, x, n=2: ((1,), {}, "out"), launch=launch)
    assert demo(7) == "out"
    assert seen == [(((1,), {}, "out"), {"x": 7, "n": 2})]
    assert kernel.calls == [((7, 9), (1,), False, {})]


def test_a_launch_set_on_the_instance_is_honoured():
    demo = owner(Recorder("x"), lambda self, x: ((1,), {}))
    demo.launch = lambda spec, inputs: (spec, inputs)
    assert demo(7) == (((1,), {}), {"x": 7})


def test_without_input_binding_launch_gets_the_raw_result_and_no_inputs():
    class Executor:
        bind_launch_inputs = False

        def launch(self, spec, inputs):
            return spec, inputs

        @kernel_launcher
        def __call__(self, *args, **kwargs):
            return "key", args

    assert Executor()(1, 2, a=3) == (("key", (1, 2)), {})
    kernel = Recorder("x", "n")
    demo = owner(kernel, lambda self, x: ((1,), {"x": 5, "n": x}), bind_launch_inputs=False)
    demo(7)
    assert kernel.calls == [((5, 7), (1,), False, {})]


def test_names_that_cannot_be_written_in_a_call():
    for name in ("num-warps", "class", "grid", "warmup"):
        demo = owner(Recorder("x"), lambda self, x, name: ((1,), {name: 1}))
        with pytest.raises(BindingError, match=f"'{name}' cannot be passed by name"):
            demo(1, name)


def test_a_function_without_self():
    with pytest.raises(DeclarationError, match="takes no self"):
        kernel_launcher(lambda: ((1,), {}))


def test_a_launch_neither_inspects_nor_builds_a_mapping_of_inputs(monkeypatch):
    kernel = Recorder("x", "n")
    demo = owner(kernel, lambda self, x, n=2: ((1,), {}))
    demo(1)

    def refuse(*args, **kwargs):
        raise AssertionError("inspected on a launch")

    monkeypatch.setattr(inspect, "signature", refuse)
    monkeypatch.setattr(inspect.Signature, "bind", refuse)
    monkeypatch.setattr("jitwarm.contract.launcher.plan_binding", refuse)
    monkeypatch.setattr("jitwarm.contract.launcher.call_code", refuse)
    monkeypatch.setattr("jitwarm.contract.launcher.binding_of", refuse)
    demo(3)
    assert [args for args, *_ in kernel.calls] == [(1, 2), (3, 2)]
