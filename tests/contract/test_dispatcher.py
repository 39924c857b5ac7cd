"""The decorator style: one path for warm-up and launches, on Triton under the stub device."""

from __future__ import annotations

import inspect
import time

import pytest
import torch
import triton
import triton.language as tl

from jitwarm import JitWarmupRegistry, Monitor
from jitwarm.backends.triton.naming import function_at, import_path
from jitwarm.config import EngineConfig
from jitwarm.contract import (
    NoKeys,
    OpaqueRecipe,
    TritonCompileKey,
    TritonWarmupTensor,
    WarmupChoices,
    WarmupIntRange,
    _when,
    triton_kernel_dispatcher_with_warmup,
    triton_warmup_inputs,
)
from jitwarm.declare.tensor import TensorSpec
from jitwarm.errors import BindingError, DeclarationError, EmptySpaceError, WrongKindError
from jitwarm.plan import make_plan

pytestmark = pytest.mark.triton
X, OUT = TritonWarmupTensor("float32", shape=(64,)), TritonWarmupTensor("float32", shape=(64,))


@triton.jit(do_not_specialize=["n"])
def _scale(x_ptr, OUT, n, x_stride0, BLOCK: tl.constexpr, SHIFT: tl.constexpr = 1):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(OUT + at, tl.load(x_ptr + at * x_stride0, mask=at < n) + SHIFT, mask=at < n)


def cases(config=None):
    aligned = WarmupChoices(True, False)
    n = WarmupIntRange(1, 9)
    _when(aligned or n > 4)
    return {"x": TritonWarmupTensor("float32", aligned=aligned), "out": OUT, "n": n}


def dispatcher(provider, kernel=_scale):
    @triton_kernel_dispatcher_with_warmup(warmup_inputs=provider, kernel=kernel)
    def scale(x, out, n, *, shift=3):
        """Scale x into out."""
        block = triton.next_power_of_2(n)
        return (triton.cdiv(n, block),), {"BLOCK": block, "SHIFT": shift, "num_warps": 8}, out

    return scale


def one(**changes):
    return lambda: {"x": X, "out": OUT, "n": 7} | changes


@triton_kernel_dispatcher_with_warmup(
    warmup_inputs=lambda: [
        triton_warmup_inputs(_native, pointer_dtypes={"int32": "x_ptr"}, n=n, BLOCK=16, num_warps=2)
        for n in (1, 16, 17, 33)
    ]
)
@triton.jit
def _native(x_ptr, n, BLOCK: tl.constexpr):
    """Count."""
    at = tl.arange(0, BLOCK)
    tl.store(x_ptr + at, at, mask=at < n)


@pytest.fixture
def monitor():
    with Monitor("record", count_hits=True) as watching:
        yield watching


def arguments(text):
    """The arguments of a key of `_scale`, without the pointers' types."""
    return text.partition("[")[2].partition("]")[0]


def test_the_result_is_called_like_the_function_and_warmed_keys_serve_it(stub, monitor):
    scale = dispatcher(cases)
    registry = JitWarmupRegistry(EngineConfig())
    with registry.activate():
        scale.register_warmup()
    plan = make_plan(registry)
    # Blocks 1, 2, 4 and 8 of the aligned x, 8 of the other.
    assert [plan.funnel.points, plan.funnel.keys, plan.funnel.backend_keys] == [12, 5, 5]
    assert {item.backend for item in plan.items} == {"triton"}
    assert registry.warmup().warmed == 5
    monitor.begin_serving()
    x, out = torch.empty(65), torch.empty(64)
    assert len(scale.binding._calls) == 1  # no launch has to generate its binding
    before = monitor.count()
    for n in range(1, 9):
        assert scale(x, out, n) is out
        assert scale(x[:64], out=out, n=n, shift=3) is out
    assert scale(x[1:], out, 5) is out
    assert monitor.count() == before == 10  # five compiles, five loads
    assert sorted(monitor.launches()) == sorted(plan.backend_keys)
    scale(x[1:], out, 4)  # dropped by _when
    scale(x, out, 8, shift=4)
    assert monitor.count("compile") == 7


def test_defaults_take_part_and_strides_are_bound(stub):
    [key] = dispatcher(one(x=TritonWarmupTensor("float32", shape=(4, 8)))).get_warmup_keys()
    [text] = key.backend_keys
    assert arguments(text) == (
        "x_ptr:*fp32/D; OUT:*fp32/D; n:i32; x_stride0:i32/; BLOCK:constexpr=8; SHIFT:constexpr=3"
    )
    assert text.endswith("{cuda:90; num_warps=8}")
    assert key.options == ("num_warps",)


def test_keys_hold_no_addresses_and_compare_without_the_inputs(stub):
    keys = dispatcher(lambda: [one(n=n)() for n in (5, 6, 7, 8, 9)]).get_warmup_keys()
    assert [key.inputs["n"] for key in keys] == [5, 9]  # the first of each key
    assert keys[0] == TritonCompileKey(keys[0].backend_keys, ("num_warps",), (), {})
    assert hash(keys[0]) != hash(keys[1])
    assert "0x" not in keys[0].canonical()


def test_another_spelling_of_the_options_is_a_key_of_its_own(stub):
    def provider():
        return [{"x_ptr": X, "n": 2, "BLOCK": 16, **o} for o in ({}, {"num_warps": 4})]

    kernel = triton_kernel_dispatcher_with_warmup(warmup_inputs=provider)(_native.kernel)
    first, second = kernel.get_warmup_keys()
    assert first.backend_keys == second.backend_keys
    assert (first.options, second.options) == ((), ("num_warps",))


def test_an_extra_name_fails_at_enumeration(stub):
    scale = dispatcher(one(shfit=2))
    with pytest.raises(
        BindingError,
        match=r"^scale: a case of warmup_inputs does not fit the dispatch function: .*'shfit'; did "
        r"you mean 'shift'\? \(case: x, out, n, shfit; parameters: x, out, n, shift\)",
    ):
        scale.get_warmup_keys()
    with pytest.raises(BindingError, match=r"missing 1 required positional argument: 'n'"):
        dispatcher(lambda: {"x": X, "out": OUT}).get_warmup_keys()
    with pytest.raises(BindingError, match="Triton cannot bind .*num_warp is neither"):
        triton_kernel_dispatcher_with_warmup(
            warmup_inputs=lambda: {"x_ptr": X, "n": 2, "BLOCK": 16, "num_warp": 4}
        )(_native.kernel).get_warmup_keys()
    with pytest.raises(TypeError, match="unexpected keyword argument 'shfit'"):
        scale(X, OUT, 1, shfit=2)


def test_one_bad_case_costs_no_other(stub):
    scale = dispatcher(lambda: [one()(), one(m=1)(), 4, one(n=33)(), one(n="x")()])
    found = scale.enumerate_keys(None, (), {})
    assert (len(found.declared), len(found.failures), found.points) == (2, 3, 4)
    with pytest.raises(ExceptionGroup, match="^scale: cases that cannot be bound"):
        scale.get_warmup_keys()


@pytest.mark.parametrize(
    ("provider", "kwargs", "expected"),
    [
        (
            lambda: {"x": X, "out": OUT, "n": 1},
            {"vllm_config": "c"},
            1,
        ),  # not asked for: not passed
        (lambda config: {"x": X, "out": OUT, "n": config}, {"config": 2}, 2),
        (lambda config: {"x": X, "out": OUT, "n": config}, {"vllm_config": 2}, 2),
        (
            lambda vllm_config, n: {"x": X, "out": OUT, "n": n + vllm_config},
            {"n": 3, "config": 1},
            4,
        ),
    ],
)
def test_the_provider_gets_the_configuration_if_it_asks(stub, provider, kwargs, expected):
    scale = dispatcher(provider)
    [key] = scale.get_warmup_keys(**kwargs)
    assert key.inputs["n"] == expected
    registered = {name: kwargs[name] for name in kwargs if name not in ("config", "vllm_config")}
    config = kwargs.get("config", kwargs.get("vllm_config"))
    again = scale.enumerate_keys(config, (), registered)
    assert again == scale.enumerate_keys("other", (), kwargs)
    assert len(again.declared) == 1 and again.points == 1


def test_a_registration_that_does_not_fit_the_provider(stub):
    with pytest.raises(DeclarationError, match=r"^scale: registered with arguments that do not"):
        dispatcher(one()).enumerate_keys(None, (), {"heads": 3})


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        (3, WrongKindError, "returned a int; return a mapping of names to values"),
        ("x", WrongKindError, "returned a str"),
        (None, WrongKindError, "returned a NoneType"),
        ([4], WrongKindError, "returned a int for a case"),
        ([{"n": WarmupChoices(1, 2)}], WrongKindError, r"'n': a list of cases has every value"),
    ],
)
def test_what_a_provider_may_not_return(stub, given, error, message):
    with pytest.raises(error, match=f"^scale: .*{message}") as caught:
        dispatcher(lambda: given).get_warmup_keys()
    assert isinstance(caught.value, TypeError)


def test_a_spoken_and_a_silent_zero(stub):
    spoken = dispatcher(lambda: NoKeys("no such layer"))
    assert spoken.get_warmup_keys() == NoKeys("no such layer")
    assert spoken.enumerate_keys(None, (), {}).no_keys_reason == "no such layer"
    silent = dispatcher(list)
    found = silent.enumerate_keys(None, (), {})
    assert found.silent and found.no_keys_reason == "its warmup_inputs gave no case and no reason"

    def never():
        _when(WarmupChoices(1, 2) > 2)
        return {}

    with pytest.raises(EmptySpaceError, match="_when dropped every point"):
        dispatcher(never).enumerate_keys(None, (), {})


def test_dispatch_sees_torch_dtypes_and_falls_back_to_fake_tensors(stub):
    seen = []

    @triton_kernel_dispatcher_with_warmup(
        warmup_inputs=lambda: {"x": TritonWarmupTensor("float32", False, (4, 8)), "rows": 2},
        kernel=_scale,
    )
    def head(x, rows):
        seen.append(type(x).__name__)
        assert x.dtype is torch.float32 and x.device.type == "cpu" and x.shape == (4, 8)
        assert x.data_ptr() % 16 in (1, 4)  # a stand-in's, a float's offset
        out = torch.empty_like(x)[:rows]  # a stand-in cannot be indexed or copied
        return (1,), {"OUT": out, "x_ptr": x, "n": out.numel(), "x_stride0": 1, "BLOCK": 16}, out

    [key] = head.get_warmup_keys()
    case = {"x": TritonWarmupTensor("float32", False, (4, 8), init=5), "rows": 1}
    assert head.bound_launch(case).arguments["x_ptr"].init == 5
    assert seen.pop() == "FakeTensor" and seen.pop() == "TensorSpec"
    assert seen == ["TensorSpec", "FakeTensor"]
    # x is handed on as the stand-in that it was, the output is aligned as a fresh allocation is.
    assert arguments(key.backend_keys[0]).startswith("x_ptr:*fp32/; OUT:*fp32/D; n:i32")
    with Monitor("record") as monitor:
        head.compile(key)
        before = monitor.count()
        storage = torch.empty(40)
        assert head(storage[1:33].view(4, 8), 2).shape == (2, 8)
    assert monitor.count("compile") == before == 1


def test_what_dispatch_raises_passes_through(stub):
    @triton_kernel_dispatcher_with_warmup(warmup_inputs=one(), kernel=_scale)
    def wrong(x, out, n):
        assert x.ndim == 2, "two dimensions"
        raise AssertionError

    with pytest.raises(AssertionError, match="two dimensions"):
        wrong.get_warmup_keys()

    @triton_kernel_dispatcher_with_warmup(warmup_inputs=lambda: {"n": 1}, kernel=_scale)
    def without(n):
        raise AttributeError("no such thing")

    with pytest.raises(AttributeError, match="no such thing"):
        without.get_warmup_keys()


def test_native_kernel_stays_native(stub, monitor):
    keys = _native.get_warmup_keys()
    assert [arguments(key.backend_keys[0]).split("; ")[1] for key in keys] == [
        "n:constexpr=1",
        "n:i32/D",
        "n:i32/",
    ]
    for key in keys:
        _native.compile(key)
    x = torch.empty(16, dtype=torch.int32)
    before = monitor.count()
    _native[(1,)](x, 17, BLOCK=16, num_warps=2)
    _native((1,), x, 16, BLOCK=16, num_warps=2)
    _native(x_ptr=x, n=1, grid=(1,), BLOCK=16, num_warps=2)
    assert monitor.count() == before + 3  # the loads, which compile() leaves to the launch
    assert monitor.count("compile") == before == 3


def test_a_native_kernel_keeps_its_importable_path(stub):
    path = import_path(_native.kernel)
    assert path == f"{__name__}._native"
    assert function_at(path) is _native.kernel


def test_names_docstring_signature_and_attributes(stub):
    scale = dispatcher(cases)
    assert (scale.__name__, scale.__doc__) == ("scale", "Scale x into out.")
    assert scale.kernel_name == "scale" and scale.__module__ == __name__
    assert list(inspect.signature(scale).parameters) == ["x", "out", "n", "shift"]
    assert scale.arg_names is _scale.arg_names
    assert (_native.__name__, _native.__doc__) == ("_native", "Count.")
    assert "scale" in repr(scale)
    with pytest.raises(AttributeError, match="no_such"):
        _ = scale.no_such
    x = torch.empty(16)
    assert scale[(1,)](x, x, 4, 1, BLOCK=4).asm["cubin"]


@pytest.mark.parametrize("parameters", ["*args", "**kw", "x, /, n"])
def test_parameters_are_explicit(parameters):
    namespace = {}
    exec(f"def loose({parameters}): pass", namespace)
    with pytest.raises(WrongKindError, match="^loose: parameter .*binds by name") as caught:
        triton_kernel_dispatcher_with_warmup(warmup_inputs=cases, kernel=_scale)(namespace["loose"])
    assert isinstance(caught.value, TypeError)


def test_what_may_be_decorated(stub):
    def plain(x):
        pass

    decorate = triton_kernel_dispatcher_with_warmup(warmup_inputs=cases)
    with pytest.raises(WrongKindError, match="is no Triton kernel"):
        decorate(plain)
    with pytest.raises(WrongKindError, match="decorates a dispatch function, got a JITFunction"):
        triton_kernel_dispatcher_with_warmup(warmup_inputs=cases, kernel=_scale)(_scale)
    with pytest.raises(WrongKindError, match="^scale: .* is no Triton kernel"):
        dispatcher(one(), kernel=type("Odd", (), {"arg_names": ("n", "BLOCK", "SHIFT")})()
                   ).get_warmup_keys()  # fmt: skip
    with pytest.raises(TypeError):
        triton_kernel_dispatcher_with_warmup(cases)


def test_a_grid_of_none_is_compiled_and_not_launched(stub, monitor):
    @triton_kernel_dispatcher_with_warmup(
        warmup_inputs=lambda: {"x": X, "n": WarmupChoices(0, 16)}, kernel=_native.kernel
    )
    def maybe(x, n):
        return (1,) if n else None, {"BLOCK": 16}, "out"

    assert len(maybe.get_warmup_keys()) == 1
    assert maybe(torch.empty(16, dtype=torch.int32), 0) == "out"
    assert monitor.count() == 0


def test_registrations_of_equal_arguments_are_one(stub):
    scale = dispatcher(lambda config, *, most: {"x": X, "out": OUT, "n": WarmupIntRange(1, most)})
    registry = JitWarmupRegistry(EngineConfig())
    with registry.activate():
        for most in (3, 3, 5):
            scale.register_warmup(most=most)
    assert (len(registry), registry.registrations) == (2, 3)
    plan = make_plan(registry)
    assert (plan.funnel.points, plan.funnel.backend_keys) == (6, 3)
    assert plan.items[0].declared.startswith("scale(x_ptr=tensor(float32, aligned, shape=(64,)), ")


def test_recipes_of_plain_kernels_need_no_object(stub):
    scale = dispatcher(one())
    [declared] = scale.enumerate_keys(None, (), {}).declared
    assert not isinstance(declared.recipe, OpaqueRecipe)
    assert dict(declared.recipe.arguments)["x_ptr"] == TensorSpec(torch.float32, shape=(64,))


def test_a_range_of_8192_values_is_dispatched_in_full(stub):
    dispatched = []

    @triton_kernel_dispatcher_with_warmup(
        warmup_inputs=lambda: {"x": X, "n": WarmupIntRange(1, 8193)}, kernel=_native.kernel
    )
    def count(x, n):
        dispatched.append(n)
        return (1,), {"n": 2, "BLOCK": 16 if n <= 4096 else 32}

    start = time.process_time()
    found = count.enumerate_keys(None, (), {})
    assert time.process_time() - start < 3  # 0.6 s on the machine of docs/measurements.md
    assert (found.points, len(found.declared), dispatched) == (8192, 2, list(range(1, 8193)))
