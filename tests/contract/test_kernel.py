"""The contract class: key types, lifecycle, get-or-compile, and what the plan is told."""

from __future__ import annotations

import functools
import threading
import time
from dataclasses import dataclass
from typing import NamedTuple

import pytest

from jitwarm.config import EngineConfig
from jitwarm.contract import JitKernel, OpaqueRecipe, WarmupIntRange
from jitwarm.declare.enumeration import Declared, Enumeration
from jitwarm.declare.nokeys import NoKeys
from jitwarm.errors import (
    CompileRefused,
    DeclarationError,
    MissingInputError,
    NothingStoredError,
    UnknownInputError,
    WrongKindError,
)
from jitwarm.observe.monitor import Monitor
from jitwarm.plan import make_plan
from jitwarm.registry import JitWarmupRegistry


class BucketKernel(JitKernel["BucketKernel.CompileKey"]):
    """Compiles by remembering; `broken` keys fail."""

    @dataclass(frozen=True, slots=True)
    class CompileKey:
        size: object

    def __init__(self, broken=()):
        self.broken = broken
        self.compiled = []

    def dispatch(self, *, n, wide=False):
        return self.CompileKey((1 << (n - 1).bit_length()) * (2 if wide else 1))

    def get_warmup_keys(self, config=None, *, most=5):
        return self._trace_dispatch(self.dispatch)(n=WarmupIntRange(1, most + 1))

    def compile(self, key):
        self.compiled.append(key.size)
        if key.size in self.broken:
            raise ValueError(f"no {key.size}")
        self._compiled_cache[key] = f"executor {key.size}"


class Hook(JitKernel["Hook.CompileKey"]):
    """Returns whatever it was given as keys."""

    class CompileKey(NamedTuple):
        a: object
        b: object = 0

    def __init__(self, keys=(), **ignored):
        self.keys = keys

    def get_warmup_keys(self):
        return self.keys

    def compile(self, key):
        pass


def kernel_class(key_type, **members):
    return type("Made", (JitKernel,), {"CompileKey": key_type, **members})


def test_names():
    class PlainKernel(BucketKernel):
        pass

    class Named(BucketKernel):
        kernel_name = "Other"

    assert [k.kernel_name for k in (BucketKernel, PlainKernel, Hook, Named)] == [
        "Bucket",
        "Plain",
        "Hook",
        "Other",
    ]


def test_key_type_is_checked_when_the_class_is_made():
    @dataclass
    class Loose:
        a: int

    class Identity:
        pass

    @dataclass(eq=True)
    class Unhashable:
        a: int

    with pytest.raises(DeclarationError, match=r"^Made: CompileKey is not frozen"):
        kernel_class(Loose)
    with pytest.raises(DeclarationError, match="not frozen"):
        kernel_class(Unhashable)
    with pytest.raises(DeclarationError, match="not hashable"):
        kernel_class(list)
    with pytest.raises(DeclarationError, match="compared by identity"):
        kernel_class(Identity)
    with pytest.raises(DeclarationError, match="not a class"):
        kernel_class(3)
    assert kernel_class(tuple).CompileKey is tuple


def test_warmup_compiles_all_keys_in_order():
    kernel = BucketKernel()
    kernel.warmup(most=9)
    assert kernel.compiled == [1, 2, 4, 8, 16]


def test_warmup_of_a_spoken_zero_compiles_nothing():
    Hook(NoKeys("not this backend")).warmup()


def test_every_key_is_tried_and_the_failures_come_together():
    kernel = BucketKernel(broken=(2, 8))
    with pytest.raises(ExceptionGroup, match="Bucket: 2 of 4 keys failed") as caught:
        kernel.warmup(most=8)
    assert kernel.compiled == [1, 2, 4, 8]
    assert [str(error) for error in caught.value.exceptions] == ["no 2", "no 8"]
    assert caught.value.exceptions[0].__notes__ == [
        "while compiling BucketKernel.CompileKey(size=2)"
    ]


def test_a_miss_compiles_once_and_a_warmed_key_never_again():
    kernel = BucketKernel()
    kernel.warmup(most=2)
    key = kernel.dispatch(n=7)
    assert kernel._get_or_compile(key) == "executor 8"
    assert kernel._get_or_compile(key) == "executor 8"
    assert kernel._get_or_compile(kernel.dispatch(n=2)) == "executor 2"
    assert kernel.compiled == [1, 2, 8]


def test_keys_that_python_calls_equal_are_compiled_apart():
    kernel = BucketKernel()
    for size in (1, True, 1.0):
        kernel._get_or_compile(kernel.CompileKey(size))
    assert [repr(size) for size in kernel.compiled] == ["1", "True", "1.0"]


def test_two_threads_that_miss_one_key_compile_it_once():
    started, release = threading.Event(), threading.Event()

    class Slow(BucketKernel):
        def compile(self, key):
            started.set()
            assert release.wait(60)
            super().compile(key)

    kernel = Slow()
    key, results = kernel.CompileKey(4), []
    threads = [
        threading.Thread(target=lambda: results.append(kernel._get_or_compile(key)))
        for _ in range(2)
    ]
    threads[0].start()
    assert started.wait(60)
    threads[1].start()
    locks = kernel._compiled_cache._locks
    # Until the second waits for the first, or both have given up.
    while [users for _, users in locks.values()] != [2] and any(one.is_alive() for one in threads):
        time.sleep(0.001)
    release.set()
    for thread in threads:
        thread.join()
    assert (kernel.compiled, results) == ([4], ["executor 4", "executor 4"])


def test_a_failed_compile_is_tried_again_by_the_next_caller():
    kernel = BucketKernel(broken=(4,))
    key = kernel.CompileKey(4)
    for _ in range(2):
        with pytest.raises(ValueError, match="no 4"):
            kernel._get_or_compile(key)
    assert kernel.compiled == [4, 4]


def test_a_compile_that_stores_nothing_says_so():
    kernel = Hook()
    with pytest.raises(
        RuntimeError, match=r"^Hook: compile\(CompileKey\(a=1, b=0\)\).*'step 7'"
    ) as caught:
        kernel._get_or_compile(kernel.CompileKey(1), runtime_context="step 7")
    assert isinstance(caught.value, NothingStoredError)


def test_compile_key():
    kernel = BucketKernel()
    assert kernel.compile_key({"n": 3, "wide": True}) == kernel.CompileKey(8)
    with pytest.raises(UnknownInputError, match="no input 'wid'; did you mean 'wide'"):
        kernel.compile_key({"n": 3, "wid": True})
    with pytest.raises(MissingInputError, match="requires 'n'"):
        kernel.compile_key({})
    with pytest.raises(TypeError, match="needs a dispatch") as caught:
        Hook().compile_key({})
    assert isinstance(caught.value, WrongKindError)
    with pytest.raises(NotImplementedError):
        Hook().dispatch()


def test_without_a_key_type():
    class Bare(JitKernel):
        def get_warmup_keys(self):
            return self._trace_dispatch(lambda n: n)(n=1)

        def compile(self, key):
            pass

    with pytest.raises(DeclarationError, match=r"^Bare: the class has no CompileKey"):
        Bare().warmup()


def enumerate_keys(kernel, *args, **kwargs):
    return kernel.enumerate_keys(EngineConfig(), args, kwargs)


def test_enumeration_has_texts_points_and_recipes():
    kernel = BucketKernel()
    found = enumerate_keys(kernel, most=9)
    assert found == Enumeration(
        "Bucket",
        9,
        tuple(
            Declared(f"Bucket(size={n})", OpaqueRecipe(kernel, kernel.CompileKey(n)))
            for n in (1, 2, 4, 8, 16)
        ),
    )


def test_keys_listed_by_hand_are_distinct_by_text():
    kernel = Hook(
        [Hook.CompileKey(1), Hook.CompileKey(True), Hook.CompileKey(1), Hook.CompileKey("x", 2)]
    )
    found = enumerate_keys(kernel)
    assert [declared.text for declared in found.declared] == [
        "Hook(a=1, b=0)",
        "Hook(a=True, b=0)",
        "Hook(a='x', b=2)",
    ]
    assert (found.points, found.no_keys_reason) == (4, None)


def test_key_text_without_fields():
    kernel = kernel_class(int, get_warmup_keys=lambda self: [3], compile=lambda self, key: None)()
    assert [d.text for d in enumerate_keys(kernel).declared] == ["Made(3)"]


def test_generators_are_read():
    kernel = Hook(Hook.CompileKey(a) for a in (1, 2))
    assert len(enumerate_keys(kernel).declared) == 2


def test_zero_keys_have_a_reason():
    assert enumerate_keys(Hook(NoKeys("one rank"))) == Enumeration("Hook", 0, (), "one rank")
    assert enumerate_keys(Hook([])) == Enumeration("Hook", 0, (), "returned no keys and no reason")
    with pytest.raises(ValueError, match="needs a reason"):
        NoKeys(" ")


@pytest.mark.parametrize("keys", [None, 3, {Hook.CompileKey(1)}])
def test_what_is_no_list_of_keys(keys):
    with pytest.raises(DeclarationError, match=r"^Hook: get_warmup_keys returned a "):
        enumerate_keys(Hook(keys))


def test_a_key_of_another_type():
    with pytest.raises(
        DeclarationError, match=r"^Hook: got a int where a key of type Hook.CompileKey"
    ):
        enumerate_keys(Hook([1]))


def test_config_reaches_every_spelling_also_beside_other_arguments():
    def probe(function):
        seen = []

        @functools.wraps(function)
        def get_warmup_keys(*args, **kwargs):
            seen.append(function(*args, **kwargs))
            return NoKeys("probe")

        members = {"get_warmup_keys": staticmethod(get_warmup_keys), "compile": print}
        return kernel_class(tuple, **members)(), seen

    config, own = EngineConfig(), object()
    cases = [
        (lambda config: config, (), {}, config),
        (lambda vllm_config: vllm_config, (), {}, config),
        (lambda *, vllm_config, dtype: (vllm_config, dtype), (), {"dtype": 1}, (config, 1)),
        (lambda dtype, config: (dtype, config), (1,), {}, (1, config)),
        (lambda config, dtype=2: (config, dtype), (), {"dtype": 1}, (config, 1)),
        (lambda config: config, (own,), {}, own),
        (lambda config: config, (), {"config": own}, own),
        (lambda dtype=3: dtype, (), {}, 3),
    ]
    for function, args, kwargs, expected in cases:
        kernel, seen = probe(function)
        kernel.enumerate_keys(config, args, kwargs)
        assert seen == [expected]


def test_a_registration_that_does_not_fit_names_the_kernel():
    with pytest.raises(
        DeclarationError, match=r"^Bucket: registered with arguments that do not fit"
    ):
        enumerate_keys(BucketKernel(), mosst=3)


def test_registration_goes_to_the_active_registry():
    registry = JitWarmupRegistry(EngineConfig())
    kernel = BucketKernel()
    with registry.activate():
        kernel.register_warmup()
        kernel.register_warmup()
        kernel.register_warmup(most=3)
    assert (len(registry), kernel.compiled) == (2, [])


def key_of(*sizes):
    return [f"{__name__}.BucketKernel[size={size}]" for size in sizes]


def test_a_compile_while_serving_is_an_event_and_each_call_a_launch():
    kernel = BucketKernel(broken=(64,))
    with Monitor("record", count_hits=True) as monitor:
        kernel.warmup(most=2)
        monitor.begin_serving()
        for size in (1, 2, 2, 16):
            kernel._get_or_compile(kernel.CompileKey(size))
        with pytest.raises(ValueError, match="no 64"):
            kernel._get_or_compile(kernel.CompileKey(64))
        one, two, more, broken = key_of(1, 2, 16, 64)
        assert monitor.launches() == {one: 1, two: 2, more: 1, broken: 1}
    assert [(e.kind, e.kernel, e.key, e.phase) for e in monitor.events] == [
        ("compile", f"{__name__}.BucketKernel", more, "serve"),
        ("failed", f"{__name__}.BucketKernel", broken, "serve"),
    ]


def test_mode_error_refuses_the_compile_of_a_key_that_was_not_warmed():
    kernel = BucketKernel()
    kernel.warmup(most=2)
    with Monitor("error", prepay=False) as monitor:
        assert kernel._get_or_compile(kernel.CompileKey(2)) == "executor 2"
        with pytest.raises(CompileRefused, match=r"needs .*BucketKernel\[size=16\]"):
            kernel._get_or_compile(kernel.CompileKey(16))
    assert [(event.kind, event.key) for event in monitor.events] == [("refused", *key_of(16))]
    assert kernel.compiled == [1, 2]


def test_a_warm_up_after_start_up_asks_and_is_told():
    kernel, config = BucketKernel(), EngineConfig()
    with Monitor("record") as monitor:
        kernel.warmup(most=2)
        monitor.begin_serving()
        kernel.warmup(most=2)  # nothing new
        assert monitor.events == []
        kernel.compile_many([kernel.CompileKey(16)])
        assert [(e.kind, e.key, e.phase) for e in monitor.events] == [
            ("compile", *key_of(16), "warm")
        ]
    registry = JitWarmupRegistry(config)
    with registry.activate():
        kernel.register_warmup(most=4)
    with Monitor("error", prepay=False) as monitor:
        monitor.begin_serving()
        with pytest.raises(ExceptionGroup) as raised:
            registry.warmup()
    assert raised.value.subgroup(CompileRefused) is not None
    assert [(e.kind, e.key) for e in monitor.events] == [("refused", *key_of(4))]
    assert set(kernel.compiled) == {1, 2, 16}


def test_a_second_object_has_the_key_that_its_plan_gave_it():
    first, second = BucketKernel(), BucketKernel()
    registry = JitWarmupRegistry(EngineConfig())
    with registry.activate():
        first.register_warmup(most=1)
        second.register_warmup(most=1)
    plan = make_plan(registry)
    with Monitor("record", count_hits=True) as monitor:
        for kernel in (first, second, second):
            kernel._get_or_compile(kernel.CompileKey(1))
        launched = monitor.launches()
    assert launched == dict(zip(plan.backend_keys, (1, 2), strict=True))
    assert {event.kernel for event in monitor.events} == {f"{__name__}.BucketKernel"}
