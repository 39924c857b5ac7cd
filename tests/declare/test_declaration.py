"""Declarations beside a kernel: names, cases, reasons, and every mistake with the kernel's name."""

from __future__ import annotations

import pytest
import torch
import triton
import triton.language as tl

from jitwarm.config import EngineConfig, SchedulerConfig
from jitwarm.declare import (
    Declaration,
    NoKeys,
    TensorSpec,
    WarmupChoices,
    WarmupIntRange,
    declare,
    launch,
)
from jitwarm.errors import BindingError, DeclarationError, EmptySpaceError, KeyValueError
from jitwarm.registry import JitWarmupRegistry

X = TensorSpec("float32")


@triton.jit
def scale(x_ptr, n, BLOCK: tl.constexpr):
    pass


@triton.autotune([triton.Config({"BLOCK": 16})], key=["n"])
@triton.jit
def tuned(x_ptr, n, BLOCK: tl.constexpr):
    pass


def enumerate_(cases, *args, config=None, **kwargs):
    return declare(scale, name="Scale")(cases).enumerate_keys(config, args, kwargs)


def test_the_name_is_the_function_s_or_the_given_one():
    @declare(scale)
    def Scale():
        """Copies."""

    assert isinstance(Scale, Declaration)
    assert (Scale.kernel_name, Scale.kernel, Scale.__doc__) == ("Scale", scale, "Copies.")
    assert repr(Scale) == f"Declaration(Scale of {__name__}.scale)"
    assert declare(scale, name="Other")(list).kernel_name == "Other"


def test_points_keys_and_recipes():
    def cases():
        yield launch(BLOCK=64, x_ptr=X, n=WarmupChoices(1, 17), num_warps=8, num_stages=2)
        yield launch(x_ptr=X, n=17, BLOCK=64, num_stages=2, num_warps=8)
        yield launch(x_ptr=X, n=17, BLOCK=64, num_warps=8, num_stages=2)

    found = enumerate_(cases)
    assert (found.name, found.points) == ("Scale", 4)
    assert (found.no_keys_reason, found.silent) == (None, False)
    path = f"{__name__}.scale"
    assert [declared.text for declared in found.declared] == [
        f"{path}(x_ptr=tensor(float32, aligned), n=1, BLOCK=64, num_warps=8, num_stages=2)",
        f"{path}(x_ptr=tensor(float32, aligned), n=17, BLOCK=64, num_warps=8, num_stages=2)",
        f"{path}(x_ptr=tensor(float32, aligned), n=17, BLOCK=64, num_stages=2, num_warps=8)",
    ]
    assert found.declared[0].recipe.kernel == path
    assert found.declared[0].recipe.arguments == (("x_ptr", X), ("n", 1), ("BLOCK", 64))
    assert found.declared[0].recipe.options == (("num_warps", 8), ("num_stages", 2))


@pytest.mark.parametrize(
    "cases",
    [
        lambda: launch(x_ptr=X, n=1, BLOCK=16),
        lambda: [launch(x_ptr=X, n=1, BLOCK=16)],
        lambda: (launch(x_ptr=X, n=n, BLOCK=16) for n in (1,)),
    ],
    ids=["one case", "a list", "a generator"],
)
def test_ways_to_give_cases(cases):
    assert enumerate_(cases).points == 1


def returning():
    return NoKeys("not on this backend")


def generating():
    if not X:
        yield launch()
    return NoKeys("not on this backend")


@pytest.mark.parametrize("cases", [returning, generating])
def test_no_keys_may_be_returned_by_a_function_or_a_generator(cases):
    found = enumerate_(cases)
    assert (found.points, found.declared, found.silent) == (0, (), False)
    assert found.no_keys_reason == "not on this backend"


@pytest.mark.parametrize("silent", [list, lambda: iter(()), lambda: ()])
def test_a_silent_zero_is_told_from_a_spoken_one(silent):
    found = enumerate_(silent)
    assert (found.declared, found.silent) == ((), True)
    assert found.no_keys_reason == "its declaration yielded no launch and no reason"


@pytest.mark.parametrize(
    ("given", "kind"),
    [
        (None, "NoneType"),
        (3, "int"),
        ([{"x_ptr": X}], "dict"),
        ([NoKeys("late")], "NoKeys"),
    ],
)
def test_what_is_no_case_is_an_error_that_names_the_kernel(given, kind):
    with pytest.raises(DeclarationError) as error:
        enumerate_(lambda: given)
    assert str(error.value) == (
        f"Scale: a declaration yields launch(...) cases, got {kind}; "
        "to say that there is none, return NoKeys('reason')"
    )


def test_an_empty_domain_names_the_kernel():
    with pytest.raises(EmptySpaceError, match="^Scale: "):
        enumerate_(lambda: launch(x_ptr=X, n=WarmupIntRange(5, 5), BLOCK=16))


def refused(kind, cases):
    """The text of the error with which the cases of `scale` are refused."""
    with pytest.raises(kind) as error:
        enumerate_(cases)
    assert type(error.value) is kind
    return str(error.value)


def test_an_argument_that_is_no_value_is_an_error_that_names_kernel_and_argument():
    said = refused(KeyValueError, lambda: launch(x_ptr=X, n=object(), BLOCK=16))
    assert said == (
        "Scale: argument 'n' of launch(...): a key holds a builtins.object, which is compared by "
        "identity: two processes would never agree on it; use a number, a string, a dtype, an "
        "enum, a tuple or a frozen dataclass of these"
    )


@pytest.mark.parametrize(
    "value",
    [
        torch.zeros(4, dtype=torch.int8),
        (1, torch.zeros(4, dtype=torch.int8)),
        WarmupChoices(torch.zeros(4, dtype=torch.int8)),
    ],
    ids=["plain", "in a tuple", "as a choice"],
)
def test_a_real_tensor_is_an_error_that_shows_its_stand_in(value):
    assert refused(BindingError, lambda: launch(x_ptr=value, n=1, BLOCK=16)) == (
        "Scale: argument 'x_ptr' of launch(...) holds a real Tensor, and a declaration has no "
        'storage: write TensorSpec("int8", aligned=...) instead'
    )


@pytest.mark.parametrize(
    ("name", "reason"),
    [("grid", "no key depends on it"), ("warmup", "planning and warming launch nothing")],
)
def test_what_a_declaration_does_not_have(name, reason):
    assert refused(DeclarationError, lambda: launch(x_ptr=X, n=1, BLOCK=16, **{name: (1,)})) == (
        f"Scale: {name!r} is given to launch(...), and a declaration has no {name} ({reason}): "
        "leave it out"
    )


def test_a_missing_argument_and_the_name_meant_for_it(stub):
    cases = lambda: launch(x_ptr=X, n=1, BLOK=16, tolerance=2, num_warps=4)
    unknown = "is neither an argument of scale nor an option of Triton"
    assert refused(BindingError, cases) == (
        "Scale: launch(x_ptr=tensor(float32, aligned), n=1, BLOK=16, tolerance=2, num_warps=4): "
        f"the required argument 'BLOCK' is missing; BLOK {unknown}; did you mean 'BLOCK'?; "
        f"tolerance {unknown}; correct it or leave it out"
    )


def test_a_missing_argument_without_a_device(monkeypatch):
    monkeypatch.setattr("jitwarm.backends.triton.binder.option_names", lambda fn: None)
    launched = "Scale: launch(x_ptr=tensor(float32, aligned), n=1, "
    assert refused(BindingError, lambda: launch(x_ptr=X, n=1, BLOK=16, num_warps=4)) == (
        f"{launched}BLOK=16, num_warps=4): the required argument 'BLOCK' is missing; "
        "BLOK is not an argument of scale; did you mean 'BLOCK'?"
    )
    assert refused(BindingError, lambda: launch(x_ptr=X, n=1, num_warps=4)) == (
        f"{launched}num_warps=4): the required argument 'BLOCK' is missing; "
        "name every argument of scale that has no default"
    )


def test_an_option_may_be_misspelt_until_a_device_binds_it():
    assert enumerate_(lambda: launch(x_ptr=X, n=1, BLOCK=16, num_warp=4)).points == 1


@pytest.mark.parametrize(
    ("cases", "kind", "said"),
    [
        (lambda: launch(X), BindingError, r"launch\(...\) got values without a name \(TensorSpec"),
        (lambda: launch(x_ptr=TensorSpec("f")), DeclarationError, "TensorSpec: unknown dtype 'f'"),
        (lambda: (launch(X) for _ in "1"), BindingError, r"launch\(...\) got values without"),
    ],
)
def test_errors_inside_the_function_get_the_kernel_s_name(cases, kind, said):
    with pytest.raises(kind, match=f"^Scale: {said}") as error:
        enumerate_(cases)
    assert type(error.value.__cause__) is kind


def test_an_error_that_has_a_name_or_a_class_of_its_own_stays_as_it_is():
    named, own = DeclarationError("Scale: theirs"), EmptySpaceError("theirs")
    for mine in (named, own):

        def cases(mine=mine):
            raise mine

        with pytest.raises(DeclarationError) as error:
            enumerate_(cases)
        assert error.value is mine


WAY_OUT = (
    ", which decides itself what it launches: declare it with a class (TritonJitKernel) or with "
    "@triton_kernel_dispatcher_with_warmup (docs/contract-styles.md)"
)


@pytest.mark.parametrize(
    ("kernel", "given"),
    [
        (scale.fn, "function"),
        (object(), "object"),
        (tuned, f"Autotuner{WAY_OUT}"),
        (triton.heuristics({})(scale), f"Heuristics{WAY_OUT}"),
    ],
)
def test_only_a_jit_function_can_be_declared(kernel, given):
    with pytest.raises(DeclarationError) as error:

        @declare(kernel)
        def cases():
            return []

    assert str(error.value) == f"cases: declare() takes a @triton.jit function, got {given}"


def test_what_the_function_raises_passes_through():
    def cases():
        raise LookupError("theirs")
        yield

    with pytest.raises(LookupError, match="theirs"):
        enumerate_(cases)


def test_what_was_declared_before_an_error_stays_declared():
    def cases():
        yield launch(x_ptr=X, n=1, BLOCK=16)
        yield launch(x_ptr=torch.zeros(4), n=2, BLOCK=16)
        yield launch(x_ptr=X, n=WarmupChoices(), BLOCK=16)
        yield launch(x_ptr=X, n=16, BLOCK=16)
        raise LookupError("theirs")

    found = enumerate_(cases)
    assert [dict(d.recipe.arguments)["n"] for d in found.declared] == [1, 16]
    assert [type(failure).__name__ for failure in found.failures] == [
        "LookupError",
        "BindingError",
        "EmptySpaceError",
    ]


def test_register_warmup_registers_with_the_active_registry():
    declaration = declare(scale, name="Scale")(lambda dtype: [])
    with JitWarmupRegistry().activate() as registry:
        declaration.register_warmup(dtype="float16")
    (request,) = registry
    assert request.kernel is declaration
    assert (request.args, request.kwargs) == ((), {"dtype": "float16"})


CONFIG = EngineConfig(scheduler_config=SchedulerConfig(max_num_seqs=3))


def test_the_configuration_reaches_the_cases():
    def cases(config, *, dtype):
        yield launch(x_ptr=TensorSpec(dtype), n=config.scheduler_config.max_num_seqs, BLOCK=16)

    (declared,) = enumerate_(cases, config=CONFIG, dtype="int8").declared
    assert dict(declared.recipe.arguments) == {"x_ptr": TensorSpec("int8"), "n": 3, "BLOCK": 16}


def test_one_bad_case_costs_no_other():
    found = enumerate_(
        lambda: [launch(x_ptr=X, n=1, BLOCK=16), "oops", launch(x_ptr=X, n=16, BLOCK=16)]
    )
    assert [dict(d.recipe.arguments)["n"] for d in found.declared] == [1, 16]
    assert [str(failure).partition(";")[0] for failure in found.failures] == [
        "Scale: a declaration yields launch(...) cases, got str"
    ]


def test_all_failures_of_a_kernel_are_reported():
    found = enumerate_(lambda: ["oops", launch(n=1), 3])
    assert (found.declared, found.silent, len(found.failures)) == ((), False, 3)
    assert found.no_keys_reason == "none of its keys could be declared"
