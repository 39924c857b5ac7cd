"""The configuration is handed to functions that ask for it by name and left it open."""

from __future__ import annotations

import pytest

from jitwarm.declare.config_argument import supply_config
from jitwarm.errors import DeclarationError

CONFIG, OWN = object(), object()


@pytest.mark.parametrize(
    ("function", "args", "kwargs", "supplied"),
    [
        (lambda: 0, (), {}, {}),
        (lambda config: 0, (), {}, {"config": CONFIG}),
        (lambda vllm_config: 0, (), {}, {"vllm_config": CONFIG}),
        (lambda config, vllm_config: 0, (), {}, {"config": CONFIG, "vllm_config": CONFIG}),
        (lambda config, *, dtype: 0, (), {"dtype": 1}, {"dtype": 1, "config": CONFIG}),
        (lambda *, dtype, config: 0, (), {"dtype": 1}, {"dtype": 1, "config": CONFIG}),
        (lambda config: 0, (OWN,), {}, {}),
        (lambda config: 0, (), {"config": OWN}, {"config": OWN}),
        (lambda config, dtype: 0, (OWN, 1), {}, {}),
        (lambda dtype, config: 0, (1,), {}, {"config": CONFIG}),
        (lambda config=None: 0, (), {}, {"config": CONFIG}),
        (lambda **rest: 0, (), {"dtype": 1}, {"dtype": 1}),
        (lambda configuration=1: 0, (), {}, {}),
    ],
)
def test_what_is_supplied(function, args, kwargs, supplied):
    assert supply_config("K", function, CONFIG, args, kwargs) == supplied
    function(*args, **supplied)


def cases(config, *, dtype):
    """As in a declaration."""


@pytest.mark.parametrize(
    ("args", "kwargs", "said"),
    [
        ((), {}, "missing a required argument: 'dtype'"),
        ((), {"dtype": 1, "dtyp": 2}, "got an unexpected keyword argument 'dtyp'"),
        ((1, 2), {"dtype": 1}, "too many positional arguments"),
        ((1,), {"config": 2, "dtype": 1}, "multiple values for argument 'config'"),
    ],
)
def test_a_registration_that_does_not_fit_names_kernel_and_function(args, kwargs, said):
    with pytest.raises(DeclarationError) as error:
        supply_config("Scale", cases, CONFIG, args, kwargs)
    assert str(error.value) == (
        f"Scale: registered with arguments that do not fit cases(config, *, dtype): {said}"
    )


def test_the_registration_s_own_arguments_are_not_changed():
    kwargs = {"dtype": 1}
    supply_config("Scale", cases, CONFIG, (), kwargs)
    assert kwargs == {"dtype": 1}
