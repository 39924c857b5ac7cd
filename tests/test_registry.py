"""Registrations: scopes, owners, one request for all equal ones."""

from __future__ import annotations

import contextvars
import threading
from collections import Counter
from dataclasses import dataclass, field

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from jitwarm.config import EngineConfig
from jitwarm.declare import Enumeration
from jitwarm.errors import RegistrationError
from jitwarm.registry import JitWarmupRegistry, outside_scope, owner

register = JitWarmupRegistry.register


class Kernel:
    def __init__(self, name="Kernel"):
        self.kernel_name = name

    def enumerate_keys(self, config, args, kwargs):
        return Enumeration(self.kernel_name, 0, (), "a stand-in")

    def __repr__(self):
        return self.kernel_name


A, B = Kernel("A"), Kernel("B")


def register_and_raise(*args):
    register(*args)
    raise LookupError


def requests(registry):
    return [(r.kernel.kernel_name, r.args, r.kwargs, dict(r.owners)) for r in registry]


def test_equal_requests_are_one_and_keep_the_order_of_the_first(outside):
    registry = JitWarmupRegistry()
    with registry.activate():
        for layer in range(3):
            with owner(f"layer {layer}"):
                register(B, 1, dtype=torch.float32)
                register(A)
                register(B, dtype=torch.float32, *(1,))  # noqa: B026 - as a caller may write it
    assert requests(registry) == [
        ("B", (1,), {"dtype": torch.float32}, {"layer 0": 2, "layer 1": 2, "layer 2": 2}),
        ("A", (), {}, {"layer 0": 1, "layer 1": 1, "layer 2": 1}),
    ]
    assert (len(registry), registry.registrations, registry.superseded) == (2, 9, 0)
    assert [request.registrations for request in registry] == [6, 3]
    assert outside_scope() == {}


def test_scopes_nest_and_are_left_on_an_exception(outside):
    outer, inner = JitWarmupRegistry(), JitWarmupRegistry()
    with outer.activate():
        with pytest.raises(LookupError), inner.activate():
            register_and_raise(A, 1)
        register(A, 2)
    register(A, 3)
    assert [request.args for request in outer] == [(2,)]
    assert [request.args for request in inner] == [(1,)]
    assert outside_scope() == {"A": 1}


def test_activate_gives_the_registry():
    registry = JitWarmupRegistry(config := EngineConfig())
    with registry.activate() as active:
        assert active is registry
    assert registry.config is config


def test_owner_names_nest_and_are_left_on_an_exception():
    registry = JitWarmupRegistry()
    with registry.activate(), owner("outer"):
        with pytest.raises(LookupError), owner("inner"):
            register_and_raise(A, 1)
        register(A, 2)
    assert [list(request.owners) for request in registry] == [["inner"], ["outer"]]


@pytest.mark.parametrize("how", ["positional", "config", "vllm_config"])
def test_capture_runs_the_constructor_in_a_registry_of_its_own(how):
    class Runner:
        @JitWarmupRegistry.capture
        def __init__(self, *args, device, **kwargs):
            """Builds the model."""
            assert self.jit_warmup_registry is not None
            register(A, device)

    given = EngineConfig()
    runner = (
        Runner(given, device="d") if how == "positional" else Runner(**{how: given}, device="d")
    )
    assert [request.args for request in runner.jit_warmup_registry] == [("d",)]
    assert runner.jit_warmup_registry.config is given
    assert Runner.__init__.__doc__ == "Builds the model."


def test_a_registration_outside_any_scope_is_counted(outside):
    register(B)
    register(A)
    register(A, 1)
    assert outside_scope() == {"A": 2, "B": 1}


@pytest.mark.parametrize("how", ["environment", "class"])
def test_strict_refuses_a_registration_outside_any_scope(outside, monkeypatch, how):
    if how == "class":
        monkeypatch.setattr(JitWarmupRegistry, "strict", True)
    monkeypatch.setenv("JITWARM_STRICT", "1" if how == "environment" else "0")
    with pytest.raises(RegistrationError, match="^A: registered outside any warm-up scope"):
        register(A)
    assert outside_scope() == {}
    with JitWarmupRegistry().activate() as registry:
        register(A)
    assert len(registry) == 1


def test_a_later_scope_supersedes_what_the_owner_registered_before():
    registry = JitWarmupRegistry()
    with registry.activate():
        for layer in range(2):
            with owner(f"layer {layer}"):
                register(A, "placeholder")
                register(A, "placeholder 2")
                register(B, "kept")
        register(A, "by nobody")
    with registry.activate(), owner("layer 0"):
        register(A, "real")
    assert requests(registry) == [
        ("A", ("placeholder",), {}, {"layer 1": 1}),
        ("A", ("placeholder 2",), {}, {"layer 1": 1}),
        ("B", ("kept",), {}, {"layer 0": 1, "layer 1": 1}),
        ("A", ("by nobody",), {}, {"": 1}),
        ("A", ("real",), {}, {"layer 0": 1}),
    ]
    assert (registry.superseded, registry.registrations) == (2, 6)
    with registry.activate(), owner("layer 1"):
        register(A, "real")
    assert [request.args[0] for request in registry] == ["kept", "by nobody", "real"]
    assert registry.superseded == 4


def test_within_one_scope_nothing_is_superseded():
    registry = JitWarmupRegistry()
    with registry.activate(), owner("layer"):
        register(A, 1)
        register(A, 2)
        register(A, 1)
    assert [(r.args, dict(r.owners)) for r in registry] == [
        ((1,), {"layer": 2}),
        ((2,), {"layer": 1}),
    ]


def test_back_in_the_outer_scope_the_inner_one_stays_the_latest():
    registry = JitWarmupRegistry()
    with registry.activate(), owner("layer"):
        register(A, 1)
        with registry.activate():
            register(A, 2)
        register(A, 3)
    assert [request.args for request in registry] == [(2,), (3,)]


def test_a_late_registration_of_the_outer_scope_leaves_the_inner_one_the_latest():
    registry = JitWarmupRegistry()
    with registry.activate(), owner("layer"):
        outer = contextvars.copy_context()
        with registry.activate():
            register(A, 1)
            outer.run(register, A, 2)
            register(A, 3)
    assert [request.args for request in registry] == [(1,), (2,), (3,)]
    assert registry.superseded == 0


@dataclass
class Mutable:
    sizes: list = field(default_factory=list)


@dataclass(frozen=True)
class Frozen:
    sizes: list
    table: dict = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Slotted:
    inner: object


@dataclass
class Unset:
    given: int
    derived: int = field(init=False)


@dataclass
class Linked:
    to: object = None


@dataclass(frozen=True)
class FrozenLinked:
    to: list


def ring(kind, start):
    linked = kind(start)
    other = Linked(linked)
    if start is None:
        linked.to = other
    else:
        linked.to.append(other)
    return linked


class Valued:
    """Hashable, with an equality of its own."""

    def __init__(self, value):
        self.value = value

    def __eq__(self, other):
        return self.value == other.value

    def __hash__(self):
        return hash(self.value)


class Rude(Valued):
    def __eq__(self, other):
        raise RuntimeError("no truth value")

    __hash__ = Valued.__hash__


SAME = [
    (1, 1),
    ([1, 2], [1, 2]),
    ({"a": 1, "b": [2]}, {"b": [2], "a": 1}),
    ({1, 2}, {2, 1}),
    (([1],), ([1],)),
    (Mutable([1]), Mutable([1])),
    (Frozen([1], {"a": {2}}), Frozen([1], {"a": {2}})),
    (Slotted([Frozen([])]), Slotted([Frozen([])])),
    (Slotted(Valued(3)), Slotted(Valued(3))),
    (EngineConfig(), EngineConfig()),
    (Valued(3), Valued(3)),
    (torch.device("cpu"), torch.device("cpu")),
    (float("nan"), float("nan")),
]
DIFFERENT = [
    (1, True),
    (1, 1.0),
    (0.0, -0.0),
    ([1], (1,)),
    ([1], [True]),
    ({"a": 1}, {"a": 2}),
    (Mutable([1]), Mutable([2])),
    (Frozen([1]), Frozen([True])),
    (Frozen([1], {"a": 1}), Frozen([1], {"a": 2})),
    (Frozen([1]), Mutable([1])),
    (Unset(1), Unset(1)),
    (ring(Linked, None), ring(Linked, None)),
    (ring(FrozenLinked, []), ring(FrozenLinked, [])),
    (Valued(3), Valued(4)),
    (Rude(3), Rude(3)),
    (torch.zeros(1), torch.zeros(1)),
    (np.zeros(2), np.zeros(2)),
    (object(), object()),
]


@pytest.mark.parametrize(("one", "other", "distinct"), [
    *((one, other, 1) for one, other in SAME),
    *((one, other, 2) for one, other in DIFFERENT),
])  # fmt: skip
def test_which_arguments_are_the_same(one, other, distinct):
    registry = JitWarmupRegistry()
    with registry.activate():
        register(A, one)
        register(A, one)
        register(A, other)
    assert len(registry) == distinct
    assert registry.registrations == 3


def test_what_a_layer_does_to_its_arguments_later_changes_nothing():
    sizes, table, spec = [1, 2], {"a": [1]}, Mutable([1])
    registry = JitWarmupRegistry()
    with registry.activate():
        register(A, sizes, table=table, spec=spec)
        sizes.append(3)
        table["a"].append(2)
        spec.sizes.append(2)
    (request,) = registry
    assert request.args == ([1, 2],)
    assert request.kwargs == {"table": {"a": [1]}, "spec": Mutable([1])}


def test_a_frozen_argument_that_holds_a_list_is_copied_and_any_other_is_not():
    held, plain = Slotted(Frozen([1], {"a": [1]})), Slotted((1, EngineConfig()))
    registry = JitWarmupRegistry()
    with registry.activate():
        for _ in range(61):
            register(A, Slotted(Frozen([1], {"a": [1]})), plain)
        register(A, held, plain)
        held.inner.sizes.append(2)
        held.inner.table["a"].append(2)
    (request,) = registry
    assert request.args == (Slotted(Frozen([1], {"a": [1]})), plain)
    assert request.args[1] is plain
    assert request.registrations == 62


def test_an_object_that_cannot_be_taken_apart_is_shared_and_itself_alone():
    within, unset = ring(Linked, None), Unset(1)
    endless = []
    endless.append(endless)
    deep = Linked()
    for _ in range(5000):
        deep = Linked(deep)
    registry = JitWarmupRegistry()
    with registry.activate():
        for _ in range(2):
            register(A, [within, 1], unset, endless, deep)
    (request,) = registry
    assert request.args[0] == [within, 1]
    assert request.args[0][0] is within
    assert request.args[1] is unset
    assert request.args[2] is endless


def test_a_plain_thread_has_no_scope_and_is_counted(outside):
    registry = JitWarmupRegistry()
    with registry.activate():
        thread = threading.Thread(target=register, args=(A,))
        thread.start()
        thread.join()
    assert len(registry) == 0
    assert outside_scope() == {"A": 1}


def test_threads_that_were_given_the_scope_lose_no_registration():
    registry = JitWarmupRegistry()

    def build(layer):
        with owner(f"layer {layer}"):
            for size in range(250):
                register(A, size % 5)

    with registry.activate():
        threads = [
            threading.Thread(target=contextvars.copy_context().run, args=(build, layer))
            for layer in range(4)
        ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (len(registry), registry.registrations) == (5, 1000)
    assert all(set(request.owners.values()) == {50} for request in registry)


class Counted(Valued):
    comparisons = 0

    def __eq__(self, other):
        type(self).comparisons += 1
        return self.value == other.value

    __hash__ = Valued.__hash__


def test_distinct_registrations_are_not_compared_with_each_other():
    registry = JitWarmupRegistry()
    Counted.comparisons = 0
    with registry.activate(), owner("layer"):
        for value in range(8000):
            register(A, Counted(value))
    assert len(registry) == 8000
    assert Counted.comparisons < 8000


events = st.lists(
    st.one_of(
        st.just(("scope",)),
        st.tuples(
            st.just("register"),
            st.sampled_from([A, B]),
            st.sampled_from([0, 1, True, 1.0, "x"]),
            st.sampled_from(["", "layer 0", "layer 1"]),
        ),
    ),
    max_size=30,
)


@given(events)
def test_the_registry_is_a_list_of_registrations(history):
    """Against the naive model: a list, from which a later scope takes what an owner had before."""
    registry, naive, scope = JitWarmupRegistry(), [], 0
    superseded = 0
    active = registry.activate()
    active.__enter__()
    for event in history:
        if event[0] == "scope":
            active.__exit__(None, None, None)
            active = registry.activate()
            active.__enter__()
            scope += 1
            continue
        _, kernel, value, name = event
        with owner(name):
            register(kernel, value)
        if name:
            gone = [e for e in naive if e[0] < scope and e[1] is kernel and e[3] == name]
            superseded += len(gone)
            naive = [e for e in naive if e not in gone]
        naive.append((scope, kernel, (type(value), value), name))
    active.__exit__(None, None, None)
    expected = {}
    for _, kernel, value, name in naive:
        expected.setdefault((kernel, value), Counter())[name] += 1
    found = {(r.kernel, (type(r.args[0]), r.args[0])): r.owners for r in registry}
    assert found == expected
    assert registry.registrations == len(naive)
    assert registry.superseded == superseded
