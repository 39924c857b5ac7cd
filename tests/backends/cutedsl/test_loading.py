"""Loads: what each kind of executor needs, told with what it took."""

from __future__ import annotations

import pytest

import cute_subjects as subjects
from cute_subjects import Key
from jitwarm.backends.cutedsl import library, loading
from jitwarm.observe.monitor import Monitor


class Native:
    """As the compiler's own functions: they load on request."""

    def __init__(self):
        self.loaded = 0

    def __call__(self, *args):
        """One launch."""

    def to(self, device=None):
        self.loaded += 1


Function = type("Function", (Native,), {"__module__": "tvm_ffi.core"})


@pytest.fixture
def kernel(stub, monkeypatch):
    monkeypatch.setattr(library, "is_imported", lambda: True)
    return subjects.OwnCompileKernel()


def load(kernel, executor):
    kernel._compiled_cache[Key(1)] = executor
    with Monitor("record") as monitor:
        doubts = [kernel.load(Key(1)), kernel.load(Key(1))]
    return doubts, [(event.kind, event.key) for event in monitor.events]


def test_a_native_function_loads_on_request_and_once(kernel):
    executor = Native()
    assert load(kernel, executor) == (["", ""], [("load", kernel.backend_key(Key(1)))])
    assert executor.loaded == 1


def test_a_tvm_ffi_function_has_no_load_of_its_own(kernel):
    doubts, events = load(kernel, Function())
    assert (
        doubts
        == ["OwnCompile loads its module at its first launch: the class has no scratch_launch(key)"]
        * 2
    )
    assert events == []


def test_a_scratch_launch_that_fails_is_an_error(kernel, monkeypatch):
    def no_memory(key):
        raise MemoryError(key)

    monkeypatch.setattr(kernel, "scratch_launch", no_memory, raising=False)
    with pytest.raises(MemoryError):
        load(kernel, Function())


@pytest.mark.cutedsl
def test_on_the_stub_device_there_is_nothing_to_load(stub):
    real = subjects.AddKernel()
    with Monitor("record") as monitor:
        real.compile(Key(32))
        assert real.load(Key(32)) == ""
        real("x", "y", n=32)
    assert [event.kind for event in monitor.events] == ["compile"]


@pytest.mark.cutedsl
def test_tvm_ffi_functions_are_told_from_native_ones(stub):
    ours = subjects.AddKernel().compile(Key(32)).compiled
    native = subjects.NativeKernel().compile(Key(32)).compiled
    assert loading.is_tvm_ffi(ours) and not loading.is_tvm_ffi(native)
    assert callable(native.to)
