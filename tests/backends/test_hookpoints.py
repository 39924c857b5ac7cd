"""A compiler without one of the places that it is watched from is refused, by name and version."""

from __future__ import annotations

from importlib import metadata

import pytest
import triton
from triton.compiler import CompiledKernel
from triton.runtime.autotuner import Autotuner
from triton.runtime.jit import JITFunction

from jitwarm.backends import sinks
from jitwarm.backends.hookpoints import require, require_parameters, version_of
from jitwarm.errors import HookPointMissing, RunError
from jitwarm.observe.monitor import Monitor

POINTS = [
    (JITFunction, "_pack_args"),
    (JITFunction, "_do_compile"),
    (CompiledKernel, "_init_handles"),
    (Autotuner, "_bench"),
]


def in_place():
    return [getattr(owner, name, None) for owner, name in POINTS]


@pytest.mark.triton
@pytest.mark.parametrize(("owner", "name"), POINTS)
def test_a_triton_without_one_of_its_places(monkeypatch, owner, name):
    monkeypatch.delattr(owner, name)
    before = in_place()
    with pytest.raises(HookPointMissing) as raised, Monitor("record"):
        pass
    error = raised.value
    place = f"{owner.__module__}.{owner.__qualname__}.{name}"
    assert (error.backend, error.version) == ("triton", metadata.version("triton"))
    assert error.attribute == place
    assert str(error).startswith(f"triton {error.version}: {place} is not there, so its compiles ")
    assert "install a release that jitwarm knows" in str(error)
    assert isinstance(error, RunError | AttributeError)
    # All or nothing: no other place was wrapped, and nobody watches.
    assert in_place() == before and not sinks.active()


@pytest.mark.triton
def test_a_compile_that_takes_other_arguments(monkeypatch):
    def _do_compile(self, key, signature):
        pass

    _do_compile.__module__ = JITFunction.__module__
    monkeypatch.setattr(JITFunction, "_do_compile", _do_compile)
    words = r"_do_compile takes \(self, key, signature\) and not \(self, key, signature, device"
    with pytest.raises(HookPointMissing, match=words), Monitor("record"):
        pass


@pytest.mark.triton
def test_somebody_else_s_wrapper_may_take_what_it_likes(monkeypatch):
    original = JITFunction._do_compile

    def theirs(*args, **kwargs):
        return original(*args, **kwargs)

    monkeypatch.setattr(JITFunction, "_do_compile", theirs)
    with Monitor("record"):
        assert JITFunction._do_compile is not theirs
    assert JITFunction._do_compile is theirs
    theirs.__module__, theirs.__wrapped__ = JITFunction.__module__, original
    with Monitor("record"):
        pass


@pytest.mark.cutedsl
@pytest.mark.parametrize("name", ["generate_mlir", "compile_and_cache"])
def test_a_cute_dsl_without_one_of_its_places(monkeypatch, name):
    pytest.importorskip("cutlass.cute")
    from cutlass.base_dsl.dsl import BaseDSL

    monkeypatch.delattr(BaseDSL, name)
    before = in_place()
    words = rf"^cutedsl \d.*BaseDSL\.{name} is not there"
    with pytest.raises(HookPointMissing, match=words), Monitor("record"):
        pass
    assert in_place() == before and not sinks.active()


def test_places_are_named_and_versions_looked_up():
    require("x", "pytest", triton, ("jit",))
    with pytest.raises(HookPointMissing, match=r"^x \(version unknown\): triton\.nothing is not"):
        require("x", "no-such-package", triton, ("jit", "nothing"))
    require_parameters("x", "pytest", JITFunction, "_pack_args", tuple_of(JITFunction._pack_args))
    assert version_of("pytest") == pytest.__version__


def tuple_of(function):
    return tuple(function.__code__.co_varnames[: function.__code__.co_argcount])
