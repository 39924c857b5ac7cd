"""The round trip: `warmup_inputs(key)` leads `__call__` back to `key`, or the plan says where."""

from __future__ import annotations

import functools
import threading
from dataclasses import dataclass
from typing import NamedTuple

import pytest

from jitwarm.contract import TritonJitKernel, TritonWarmupTensor, kernel_launcher
from jitwarm.errors import DeclarationError
from jitwarm.plan import make_plan
from jitwarm.registry import JitWarmupRegistry


class MockKernel:
    """Triton's launch and warm-up interface, recorded; arguments are (x_ptr, n, BLOCK)."""

    arg_names = ("x_ptr", "n", "BLOCK")

    def __init__(self):
        self.launches, self.warmups = [], []

    def run(self, *args, grid, warmup, **kwargs):
        self.launches.append(args)

    def warmup(self, *, grid, **kwargs):
        self.warmups.append(kwargs)
        return kwargs["BLOCK"]


X = TritonWarmupTensor("float32")


class Base(TritonJitKernel["Base.CompileKey"]):
    """block is n in powers of two, n_class the class of n: 16 stands for all multiples of 16."""

    @dataclass(frozen=True)
    class CompileKey:
        block: object
        n_class: object = 16

    def __init__(self):
        self.kernel = MockKernel()

    def dispatch(self, n):
        return self.CompileKey(1 << (n - 1).bit_length(), 16 if n % 16 == 0 else 2)

    def get_warmup_keys(self):
        return self._trace_dispatch(self.dispatch)(n=(4096, 32))

    def warmup_inputs(self, key):
        return {"x": X, "n": key.block}

    @kernel_launcher
    def __call__(self, x, n):
        return (1,), {"BLOCK": self.dispatch(n).block}


class RepresentativeKernel(Base):
    """The mistake: the inputs hold the class of n, from which __call__ computes another block."""

    def warmup_inputs(self, key):
        return {"x": X, "n": key.n_class}


MESSAGE = (
    "Representative: warmup_inputs(key) leads __call__ to another key: block 16 instead of 4096; "
    "put what dispatch needs into the key or into the inputs "
    "(key: Representative(block=4096, n_class=16))"
)


def refused(kernel, key):
    """What was wrong, without the fixed words around it."""
    with pytest.raises(DeclarationError) as caught:
        kernel.bound_launch(key)
    return str(caught.value).partition("another key: ")[2].partition("; put")[0]


def test_a_key_that_the_inputs_lose_is_refused_before_anything_compiles():
    kernel = RepresentativeKernel()
    key = kernel.dispatch(4096)
    for make in (kernel.recipe, kernel.bound_launch, kernel.compile):
        with pytest.raises(DeclarationError) as caught:
            make(key)
        assert str(caught.value) == MESSAGE
    assert (kernel.kernel.warmups, len(kernel._compiled_cache)) == ([], 0)


def test_the_plan_reports_it_and_goes_on_with_the_others():
    registry = JitWarmupRegistry()
    with registry.activate():
        RepresentativeKernel().register_warmup()
        Base().register_warmup()
    plan = make_plan(registry)
    other = MESSAGE.replace("instead of 4096", "instead of 32").replace("block=4096", "block=32")
    assert [(name, str(error)) for name, error in plan.failures] == [
        ("Representative", MESSAGE),
        ("Representative", other),
    ]
    assert [item.declared for item in plan.items] == [
        "Base(block=4096, n_class=16)",
        "Base(block=32, n_class=16)",
    ]


def test_a_key_that_comes_back_is_warmed():
    kernel = Base()
    kernel.warmup()
    assert [warmed["BLOCK"] for warmed in kernel.kernel.warmups] == [4096, 32]


def test_all_differing_fields_are_named_with_both_values():
    assert refused(Base(), Base.CompileKey(24, "wide")) == (
        "block 32 instead of 24, n_class 2 instead of 'wide'"
    )


@pytest.mark.parametrize("value", [True, 1.0])
def test_values_are_compared_with_their_types(value):
    class Typed(Base):
        def warmup_inputs(self, key):
            return {"x": X, "n": 1}

    assert Typed().bound_launch(Base.CompileKey(1, 2)).arguments["BLOCK"] == 1
    assert refused(Typed(), Base.CompileKey(value, 2)) == f"block 1 instead of {value}"


def test_keys_that_are_no_dataclass():
    class Pair(NamedTuple):
        block: int
        odd: bool

    class Tupled(Base):
        CompileKey = Pair

        def dispatch(self, n):
            return Pair(16, False)

    class Plain(Base):
        CompileKey = int

        def dispatch(self, n):
            return 16

        def warmup_inputs(self, key):
            return {"x": X, "n": key}

        @kernel_launcher
        def __call__(self, x, n):
            return (1,), {"BLOCK": self.dispatch(n)}

    assert refused(Tupled(), Pair(16, True)) == "odd False instead of True"
    assert Tupled().bound_launch(Pair(16, False)).arguments["BLOCK"] == 16
    assert refused(Plain(), 4096) == "16 instead of 4096"
    assert Plain().bound_launch(16).arguments["BLOCK"] == 16


def test_a_call_that_never_asks_dispatch_is_not_judged():
    class Direct(RepresentativeKernel):
        @kernel_launcher
        def __call__(self, x, n):
            return (1,), {"BLOCK": 64}

    class NoKey(RepresentativeKernel):
        @kernel_launcher
        def __call__(self, x, n):
            return (1,), {"BLOCK": self.dispatch(n)[0]}

        def dispatch(self, n):
            return (64, "not a key")

    for kernel in (Direct(), NoKey()):
        assert kernel.bound_launch(Base.CompileKey(4096)).arguments["BLOCK"] == 64


def test_one_of_several_keys_is_enough_and_the_nearest_is_named():
    class Both(Base):
        @kernel_launcher
        def __call__(self, x, n):
            self.dispatch(3)
            return (1,), {"BLOCK": max(self.dispatch(32).block, self.dispatch(n).block)}

    assert Both().bound_launch(Base.CompileKey(4096)).arguments["BLOCK"] == 4096
    assert refused(Both(), Base.CompileKey(4096, "wide")) == "n_class 16 instead of 'wide'"


def test_launch_pdl_may_differ_where_warm_up_takes_it_from_the_key():
    class Overlapped(Base):
        @dataclass(frozen=True)
        class CompileKey:
            block: int
            launch_pdl: bool = False

        def dispatch(self, n):
            return self.CompileKey(n)

        @kernel_launcher
        def __call__(self, x, n, option=True):
            launch = {"launch_pdl": False} if option else {}
            return (1,), {"BLOCK": self.dispatch(n).block} | launch

    class Without(Overlapped):
        def warmup_inputs(self, key):
            return {"x": X, "n": key.block, "option": False}

    key = Overlapped.CompileKey(16, launch_pdl=True)
    assert Overlapped().bound_launch(key).options == {"launch_pdl": True}
    assert refused(Without(), key) == "launch_pdl False instead of True"


class CachedKernel(RepresentativeKernel):
    @functools.lru_cache(maxsize=8)  # noqa: B019 - as kernels do it, and they are singletons
    def dispatch(self, n):
        return super().dispatch(n)


class InstanceCachedKernel(RepresentativeKernel):
    def __init__(self):
        super().__init__()
        self.dispatch = functools.lru_cache(self.dispatch)


class StoredKernel(RepresentativeKernel):
    def __init__(self):
        super().__init__()
        self.pick = self.dispatch

    @kernel_launcher
    def __call__(self, x, n):
        return (1,), {"BLOCK": self.pick(n).block}


class IndirectKernel(StoredKernel):
    def __init__(self):
        super().__init__()
        self.pick = self.choose

    def choose(self, n):
        decide = self.dispatch
        return decide(n=n)


class StaticKernel(RepresentativeKernel):
    @staticmethod
    def dispatch(n):
        return Base.CompileKey(1 << (n - 1).bit_length())


class SlottedKernel(RepresentativeKernel):
    """State in slots, and none for pickles."""

    __slots__ = ("lock",)

    def __init__(self):
        super().__init__()
        self.lock = threading.Lock()

    def __getstate__(self):
        return {}

    def __setattr__(self, name, value):
        if hasattr(self, "lock"):
            raise AttributeError("finished")
        super().__setattr__(name, value)

    @kernel_launcher
    def __call__(self, x, n):
        with self.lock:
            return (1,), {"BLOCK": self.dispatch(n).block}


KINDS = [
    CachedKernel,
    InstanceCachedKernel,
    StoredKernel,
    IndirectKernel,
    StaticKernel,
    SlottedKernel,
]


@pytest.mark.parametrize("kind", KINDS)
def test_every_way_to_have_a_dispatch(kind):
    kernel = kind()
    before = dict(vars(kernel))
    assert refused(kernel, Base.CompileKey(4096)) == "block 16 instead of 4096"
    assert kernel.bound_launch(Base.CompileKey(16)).arguments["BLOCK"] == 16
    assert vars(kernel) == before


def test_a_cached_dispatch_is_asked_once_a_recipe_and_keeps_its_cache():
    class Counting(CachedKernel):
        @kernel_launcher
        def __call__(self, x, n):
            self.dispatch.cache_info()
            return (1,), {"BLOCK": self.dispatch(n).block}

    CachedKernel.dispatch.cache_clear()
    kernel = Counting()
    for _ in range(3):
        kernel.bound_launch(Base.CompileKey(16))
    assert CachedKernel.dispatch.cache_info()[:2] == (2, 1)
    kernel(X, 16)
    assert CachedKernel.dispatch.cache_info()[:2] == (3, 1)


def test_warm_up_never_changes_the_live_object():
    class Writing(Base):
        last = None

        @kernel_launcher
        def __call__(self, x, n):
            self.last = self.dispatch(n)
            return (1,), {"BLOCK": self.last.block}

    kernel = Writing()
    kernel.warmup()
    assert kernel.last is None and "dispatch" not in vars(kernel)
    kernel(X, 32)
    assert kernel.last == Base.CompileKey(32)


def test_launches_of_other_threads_are_neither_recorded_nor_disturbed():
    inside, launched = threading.Event(), threading.Event()

    class Watched(RepresentativeKernel):
        @kernel_launcher
        def __call__(self, x, n):
            block = self.dispatch(n).block
            if n == 16:  # warm-up, on its wrong way
                inside.set()
                assert launched.wait(60)
            return (1,), {"BLOCK": block}

    kernel, caught = Watched(), []

    def warm():
        try:
            kernel.compile(Base.CompileKey(4096))
        except DeclarationError as error:
            caught.append(str(error))

    thread = threading.Thread(target=warm)
    thread.start()
    assert inside.wait(60)
    kernel(X, 4096)  # gives the asked-for key, and is none of warm-up's business
    launched.set()
    thread.join()
    assert kernel.kernel.launches == [(X, 4096, 4096)]
    assert [message.partition(": block")[2].partition(";")[0] for message in caught] == [
        " 16 instead of 4096"
    ]
