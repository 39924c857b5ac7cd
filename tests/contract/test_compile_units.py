"""Opaque CuTe DSL compiles: collected from who is alive, each key once, none costs another."""

from __future__ import annotations

import gc
import importlib.util

import pytest
import torch

from jitwarm.backends.cutedsl import library
from jitwarm.contract import CuTeDSLCompileUnit, compile_units, register_cutedsl_warmup_provider
from jitwarm.contract.compile_units import compile_registered_units
from jitwarm.errors import KeyValueError, RegistrationError, WrongKindError
from jitwarm.observe import phases


class Provider:
    def __init__(self, *units):
        self.units = units

    def get_cutedsl_warmup_compile_units(self):
        return self.units


@pytest.fixture(autouse=True)
def providers(stub, monkeypatch):
    monkeypatch.setattr(compile_units, "_providers", [])
    monkeypatch.setattr(library, "why_not_here", lambda: "")
    monkeypatch.setattr(library, "compiling", lambda arch: phases.phase("warm"))
    return compile_units._providers


@pytest.fixture
def log():
    return []


def unit(log, key, name="unit"):
    return CuTeDSLCompileUnit(name, key, lambda: log.append(key))


def test_each_key_is_compiled_once_in_order(log):
    first = Provider(unit(log, ("topk", 8), "a"), unit(log, ("topk", 16), "b"))
    second = Provider(unit(log, ("topk", 16), "c"), unit(log, ("fold", 1), "d"))
    for provider in (first, second, first):
        register_cutedsl_warmup_provider(provider)
    report = compile_registered_units()
    assert log == [("topk", 8), ("topk", 16), ("fold", 1)]
    assert [outcome.names for outcome in report.outcomes] == [("a",), ("b", "c"), ("d",)]
    assert (report.found, report.errors, report.skipped) == (3, [], "")
    assert all(outcome.seconds >= 0 for outcome in report.outcomes)


def test_keys_are_told_apart_by_type(log):
    provider = Provider(*(unit(log, key) for key in (1, True, 1.0, 1)))
    register_cutedsl_warmup_provider(provider)
    assert len(compile_registered_units().outcomes) == 3
    assert list(map(repr, log)) == ["1", "True", "1.0"]


def test_providers_are_held_weakly(log, providers):
    provider, other = Provider(unit(log, 1)), Provider(unit(log, 2))
    register_cutedsl_warmup_provider(provider)
    register_cutedsl_warmup_provider(other)
    del provider
    gc.collect()
    assert len(providers) == 1
    assert compile_registered_units().found == 1
    assert log == [2]


def test_equal_providers_are_two():
    class Equal(Provider):
        __hash__ = None

        def __eq__(self, other):
            return True

    one, two = Equal(unit([], 1)), Equal(unit([], 2))
    register_cutedsl_warmup_provider(one)
    register_cutedsl_warmup_provider(two)
    assert compile_registered_units().found == 2


def test_units_run_in_inference_mode_and_in_the_warm_phase():
    seen = []

    def compile_():
        seen.append((torch.is_inference_mode_enabled(), phases.current_phase()))

    provider = Provider(CuTeDSLCompileUnit("unit", 1, compile_))
    register_cutedsl_warmup_provider(provider)
    compile_registered_units()
    assert seen == [(True, "warm")]
    assert not torch.is_inference_mode_enabled() and phases.current_phase() == "serve"


def test_one_bad_unit_costs_no_other(log):
    def fail():
        raise LookupError("no")

    class Broken(Provider):
        def get_cutedsl_warmup_compile_units(self):
            raise OSError("gone")

    bad = CuTeDSLCompileUnit("bad", ("bad",), fail)
    no_value = CuTeDSLCompileUnit("no value", object(), fail)
    provider, broken = Provider(bad, no_value, unit(log, 2)), Broken()
    register_cutedsl_warmup_provider(broken)
    register_cutedsl_warmup_provider(provider)
    report = compile_registered_units()
    assert log == [2]
    assert [type(error) for error in report.errors] == [OSError, KeyValueError, LookupError]
    notes = [error.__notes__ for error in report.errors]
    assert notes[0][-1].endswith("Broken for its compile units")
    assert notes[0][-1].startswith("while asking")
    assert notes[1:] == [
        ["while reading the key of the compile unit no value"],
        ["while compiling the unit bad"],
    ]


def test_what_came_before_a_provider_s_error_is_compiled(log):
    class Torn(Provider):
        def get_cutedsl_warmup_compile_units(self):
            yield from self.units
            raise ValueError("the second one cannot be built")

    class Empty(Provider):
        def get_cutedsl_warmup_compile_units(self):
            return None

    torn, empty, good = Torn(unit(log, 1)), Empty(), Provider(unit(log, 2))
    for provider in (torn, empty, good):
        register_cutedsl_warmup_provider(provider)
    report = compile_registered_units()
    assert log == [1, 2] and len(report.outcomes) == 2
    assert [type(error) for error in report.errors] == [ValueError, TypeError]
    assert report.errors[0].__notes__[-1].endswith("Torn for its compile units")
    assert report.errors[1].__notes__[-1].endswith("Empty for its compile units")


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (("topk", 8, print), "an object of type tuple"),
        (None, "an object of type NoneType"),
        (CuTeDSLCompileUnit(["topk"], 8, print), "a unit whose name is of type list"),
        (CuTeDSLCompileUnit("topk", 8, "print"), "the unit topk whose compile is of type str"),
    ],
)
def test_what_is_no_unit_is_an_error_of_its_provider_and_costs_no_other(log, wrong, words):
    provider, other = Provider(wrong, unit(log, 1)), Provider(unit(log, 2))
    register_cutedsl_warmup_provider(provider)
    register_cutedsl_warmup_provider(other)
    report = compile_registered_units()
    assert log == [1, 2]
    [error] = report.errors
    assert type(error) is WrongKindError
    assert str(error).startswith(f"Provider.get_cutedsl_warmup_compile_units() gave {words}; it ")


def test_a_library_that_is_broken_is_one_error(log, monkeypatch):
    def broken():
        raise ImportError("libfoo.so: cannot open shared object file")

    provider, bad = Provider(unit(log, 1), unit(log, 2)), Provider(None)
    register_cutedsl_warmup_provider(provider)
    register_cutedsl_warmup_provider(bad)
    monkeypatch.setattr(library, "why_not_here", broken)
    report = compile_registered_units()
    assert (log, report.outcomes, report.found, report.skipped) == ([], (), 2, "")
    assert [type(error) for error in report.errors] == [WrongKindError, ImportError]
    assert report.errors[1].__notes__ == [
        "while asking whether 2 CuTe DSL compile units can compile here"
    ]


def test_where_they_cannot_run_they_are_skipped_with_one_line(log, monkeypatch):
    provider = Provider(unit(log, 1), unit(log, 2))
    register_cutedsl_warmup_provider(provider)
    monkeypatch.setattr(library, "why_not_here", lambda: "CuTe DSL does not compile for sm_75")
    report = compile_registered_units()
    assert (report.skipped, report.found) == ("CuTe DSL does not compile for sm_75", 2)
    assert (log, report.outcomes, report.errors) == ([], (), [])


def test_without_units_the_library_is_not_asked_for(monkeypatch):
    def asked():
        raise AssertionError

    monkeypatch.setattr(library, "why_not_here", asked)
    assert compile_registered_units() == compile_units.UnitsReport()


def test_what_is_no_provider_is_refused():
    class NoWeak:
        __slots__ = ()

        def get_cutedsl_warmup_compile_units(self):
            return ()

    with pytest.raises(RegistrationError, match="object has no get_cutedsl_warmup_compile_units"):
        register_cutedsl_warmup_provider(object())
    with pytest.raises(RegistrationError, match="NoWeak cannot be held weakly"):
        register_cutedsl_warmup_provider(NoWeak())


@pytest.mark.cutedsl
def test_a_real_unit_is_an_event_of_warm_up(monkeypatch):
    monkeypatch.undo()
    assert importlib.util.find_spec("cutlass") is not None

    def compile_():
        from cutlass import cute

        import cute_device

        x = cute_device.fake_vector()
        add = cute_device.Add(32, 1.0)
        made.append(cute.compile(add, x, x, cute_device.fake_stream(), options="--enable-tvm-ffi"))

    from jitwarm.observe.monitor import Monitor

    made, provider = [], Provider(CuTeDSLCompileUnit("add", ("add", 32), compile_))
    register_cutedsl_warmup_provider(provider)
    with Monitor("error") as monitor:
        report = compile_registered_units()
    assert report.errors == [] and len(made) == 1
    [event] = monitor.events
    assert (event.kind, event.phase) == ("compile", "warm")
    assert event.key.startswith("cute_device.Add[") and event.key.endswith("{sm_90a}")
