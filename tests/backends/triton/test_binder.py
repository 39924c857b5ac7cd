"""The binder's key is the key of the launch, and asking for it changes nothing."""

from __future__ import annotations

import threading

import launch_catalogue as catalogue
import pytest
import torch
from launch_subjects import scale
from triton.runtime.jit import JITFunction

from jitwarm.backends.triton.binder import bind, option_names
from jitwarm.declare.tensor import TensorSpec
from jitwarm.errors import BindingError
from jitwarm.observe.monitor import Monitor

pytestmark = pytest.mark.triton
X = TensorSpec("float32")


@pytest.mark.parametrize("name", list(catalogue.LAUNCHES))
def test_the_planned_key_is_the_key_of_the_launch(stub, name):
    fn, arguments, options = catalogue.LAUNCHES[name]
    planned = catalogue.planned(name)
    seen = []
    with Monitor("record", count_hits=True, null_kernels=True) as monitor:
        monitor.on_miss, serve = (lambda miss: seen.append(miss) or serve(miss)), monitor.on_miss
        tensors = {key: catalogue.real(value) for key, value in arguments.items()}
        fn[(1,)](**tensors, **options)
        fn[(1,)](**tensors, **options)
        launches = monitor.launches()
    assert [(miss.text, miss.in_process) for miss in seen] == [(planned.text, planned.in_process)]
    assert launches == {planned.text: 2}


def second_route(fn, arguments, options):
    """Triton's in-process key by way of its own binder and key function, without `run`."""
    from triton import knobs
    from triton.runtime.jit import compute_cache_key

    kwargs = arguments | options
    kwargs["debug"] = kwargs.get("debug", fn.debug) or knobs.runtime.debug
    kwargs["instrumentation_mode"] = knobs.compilation.instrumentation_mode
    if hasattr(knobs.compilation, "fpsan_homomorphic_casts"):  # Triton 3.9
        kwargs["fpsan_homomorphic_casts"] = knobs.compilation.fpsan_homomorphic_casts
    *_, binder = fn.device_caches[0]
    _, pairs, rest = binder(**kwargs)
    return compute_cache_key({}, pairs, rest)


@pytest.mark.parametrize("name", list(catalogue.LAUNCHES))
def test_the_binder_agrees_with_the_second_route(stub, name):
    fn, arguments, options = catalogue.LAUNCHES[name]
    assert catalogue.planned(name).in_process == second_route(fn, arguments, options)


def test_binding_leaves_triton_as_it_is(stub):
    hooks = []
    catalogue._one.add_pre_run_hook(lambda *args, **kwargs: hooks.append(args))
    try:
        caches = catalogue._one.device_caches[0]
        methods = JITFunction._pack_args, JITFunction._do_compile
        bind(catalogue._one, (X,), {"VALUE": 1})
    finally:
        catalogue._one.pre_run_hooks.clear()
    assert hooks == []
    assert catalogue._one.device_caches[0] is caches
    assert (caches[0], caches[1]) == ({}, {})
    assert vars(catalogue._one).keys().isdisjoint({"_pack_args", "_do_compile"})
    assert methods == (JITFunction._pack_args, JITFunction._do_compile)


def test_equal_constants_of_other_types_do_not_shadow_each_other(stub):
    texts = [bind(catalogue._one, (X,), {"VALUE": value}).text for value in (1, True, 1.0, 1)]
    assert len(set(texts)) == 3
    assert texts[0] == texts[3]


def test_binding_and_launching_do_not_disturb_each_other(stub):
    stop = threading.Event()
    failures, launches = [], 0
    expected = {n: bind(scale, (X, X, n), {"BLOCK": 16}).text for n in (1, 16, 17)}

    def bind_all():
        while not stop.is_set():
            for n, text in expected.items():
                if bind(scale, (X, X, n), {"BLOCK": 16}).text != text:
                    failures.append(n)

    with Monitor("record", count_hits=True, null_kernels=True) as monitor:
        thread = threading.Thread(target=bind_all)
        thread.start()
        x = torch.zeros(16)
        try:
            for _ in range(100):
                for n in expected:
                    scale[(1,)](x, x, n, BLOCK=16)
                    launches += 1
        finally:
            stop.set()
            thread.join()
        counted = monitor.launches()
    assert failures == []
    assert counted == dict.fromkeys(sorted(expected.values()), launches // 3)


SPEC = "x_ptr=tensor(float32, aligned)"
UNKNOWN = "is neither an argument of _one nor an option of Triton"
CHECK = "; check the types of the arguments and the values of the options"


@pytest.mark.parametrize(
    ("arguments", "launch", "said"),
    [
        (
            {"x_ptr": X, "VALUE": 1, "num_warp": 4},
            f"{SPEC}, VALUE=1, num_warp=4",
            f"num_warp {UNKNOWN}; did you mean 'num_warps'?",
        ),
        (
            {"x_ptr": X, "VALU": 1},
            f"{SPEC}, VALU=1",
            f"the required argument 'VALUE' is missing; VALU {UNKNOWN}; did you mean 'VALUE'?",
        ),
        (
            {"x_ptr": X, "VALUE": 1, "device": 0},
            f"{SPEC}, VALUE=1, device=0",
            f"device {UNKNOWN}; correct it or leave it out",
        ),
        (
            {"num_warps": 4},
            "num_warps=4",
            (
                "the required arguments 'x_ptr', 'VALUE' are missing; "
                "name every argument of _one that has no default"
            ),
        ),
        (
            {"x_ptr": X, "VALUE": 1, "num_warps": 3},
            f"{SPEC}, VALUE=1, num_warps=3",
            f"num_warps must be a power of 2{CHECK}",
        ),
        (
            {"x_ptr": TensorSpec(torch.complex64), "VALUE": 1},
            "x_ptr=tensor(complex64, aligned), VALUE=1",
            "it has no type for the dtype torch.complex64 of argument 'x_ptr'; use another",
        ),
        (
            {"x_ptr": 2**64, "VALUE": 1},
            "x_ptr=18446744073709551616, VALUE=1",
            f"integer to be specialized too large to represent{CHECK}",
        ),
        (
            {"x_ptr": X, "VALUE": [1]},
            f"{SPEC}, VALUE=<list>",
            f"unhashable type: 'list'{CHECK}",
        ),
    ],
)
def test_what_triton_refuses_names_kernel_launch_and_remedy(stub, arguments, launch, said):
    with pytest.raises(BindingError) as error:
        bind(catalogue._one, (), arguments)
    assert str(error.value) == f"_one: Triton cannot bind launch({launch}): {said}"
    assert error.value.__cause__ is not None


def test_positional_values_count_as_named(stub):
    with pytest.raises(BindingError, match=r"bind launch\(x_ptr=7\): the .* 'VALUE' is missing; "):
        bind(catalogue._one, (7,), {})


def test_options_are_those_of_the_backend(stub):
    options = option_names(catalogue._one)
    assert {"num_warps", "num_stages", "maxnreg"} <= options
    assert options.isdisjoint({"x_ptr", "VALUE", "grid", "device", "stream"})
    assert option_names(object()) is None
