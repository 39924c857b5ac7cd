"""Autotuned kernels: every configuration planned and compiled, the choice made at start-up."""

from __future__ import annotations

import dataclasses
import pickle
from pathlib import Path

import pytest
import torch
import triton
from triton.compiler.errors import CompileTimeAssertionFailure

import tuned_subjects as subjects
from jitwarm import JitWarmupRegistry, Monitor, device
from jitwarm.backends import backend_of
from jitwarm.backends.triton import tuning
from jitwarm.backends.triton.keytext import parse_key
from jitwarm.backends.triton.tuning import TunedRecipe
from jitwarm.backends.triton.unwrap import (
    by_position,
    choice_text,
    choices_in,
    inner_launches,
    is_tuned,
    tuning_text,
)
from jitwarm.contract import OpaqueRecipe, triton_kernel_dispatcher_with_warmup
from jitwarm.declare.tensor import TensorSpec
from jitwarm.errors import BindingError, DeclarationError, DeviceError, RunError, WrongKindError
from jitwarm.observe.phases import phase
from jitwarm.plan import make_plan
from jitwarm.warm import DEPTHS, warm

pytestmark = pytest.mark.triton
SKIPPED = " (tuning skipped: a stub device times nothing; the first usable is taken)"


@pytest.fixture(autouse=True)
def nothing_is_tuned():
    for kernel in (subjects.tuned, subjects.native.kernel, subjects.single, subjects.picky):
        kernel.cache.clear()


def plan_of(kernel, *args, **kwargs):
    registry = JitWarmupRegistry()
    with registry.activate():
        kernel.register_warmup(*args, **kwargs)
    return registry, make_plan(registry)


def chosen(plan):
    """(BLOCK, num_warps) of each Triton key of a plan, in order."""
    found = [parse_key(item.backend_key)[1] for item in plan.items if item.backend == "triton"]
    return [(f["BLOCK"].partition("=")[2], f.get("num_warps", "4")) for f in found]


@pytest.mark.parametrize("kernel", [subjects.TunedKernel(), subjects.tune], ids=["class", "case"])
def test_a_key_for_each_configuration_that_pruning_leaves(stub, kernel):
    _, plan = plan_of(kernel, (8, 24))
    # 8 allows blocks up to 32, 24 all three.
    assert chosen(plan) == [("16", "4"), ("32", "8"), ("16", "4"), ("32", "8"), ("64", "4")]
    texts = [item.declared for item in plan.items]
    assert texts[0].endswith(" {BLOCK=16, num_warps=4, num_ctas=1, num_stages=3, EVEN=True}")
    base = texts[0].partition(" {")[0]
    assert texts[1].startswith(base + " {BLOCK=32, num_warps=8, ")
    choice = "tuned_subjects.tuned[n:8; x_ptr:float32]{tune}"
    assert texts[2] == f"{base} choice for {choice}{SKIPPED}"
    assert choices_in(texts[2]) == [choice] and not choices_in(texts[1])
    kinds = [type(item.recipe) for item in plan.items]
    one = [TunedRecipe, TunedRecipe, OpaqueRecipe]
    assert kinds == [*one, TunedRecipe, *one]
    # n is 8 or 24: one class of the integer, so only EVEN differs between the two cases.
    assert len({item.backend_key for item in plan.items if item.backend == "triton"}) == 5


def test_recipes_of_configurations_can_be_pickled(stub):
    recipes = [part.recipe for part in subjects.tune.enumerate_keys(None, (), {}).declared]
    tuned = [recipe for recipe in recipes if isinstance(recipe, TunedRecipe)]
    assert pickle.loads(pickle.dumps(tuned)) == tuned
    assert {backend_of(recipe).name for recipe in tuned} == {"triton"}


def test_pruning_sees_its_arguments_as_in_a_launch(stub):
    subjects.asked.clear()
    kernel = subjects.TunedKernel()
    kernel.enumerate_keys(None, ((8,),), {})
    planned = subjects.asked[-1]
    subjects.tuned.cache.clear()
    kernel(torch.empty(64), 8, 3)
    assert subjects.asked[-1] == planned == (["m", "n", "x_ptr"], ["grid", "warmup"])


@pytest.mark.parametrize("kernel", [subjects.TunedKernel(), subjects.tune], ids=["class", "case"])
def test_warmed_launches_compile_nothing_and_tune_nothing(stub, kernel):
    registry, plan = plan_of(kernel, (8, 24))
    with Monitor("record", count_hits=True) as monitor:
        report = registry.warmup()
        assert report.warmed == len(plan.backend_keys) == 7
        monitor.begin_serving()
        before = monitor.count()
        assert before == monitor.count("compile", "load") == 10
        x = torch.empty(64)
        for n in (8, 24, 8):
            assert kernel(x, n, 3) is x
        assert monitor.count() == before
        # Launches go to the inner JITFunction, and only the choice is launched: the first.
        launched = monitor.launches()
        assert {parse_key(key)[1]["BLOCK"] for key in launched} == {"constexpr=16"}
        assert sum(launched.values()) == 3
        assert launched.keys() < plan.backend_keys.keys()


def test_a_launch_that_nobody_declared_tunes_while_serving(stub):
    registry, _ = plan_of(subjects.tune, (8,))
    with Monitor("record", count_hits=True) as monitor:
        registry.warmup()
        before = monitor.count()
        subjects.tune(torch.empty(64), 24)
        subjects.tune(torch.empty(64), 24)
    late = monitor.events[before:]
    [event] = [event for event in late if event.kind == "tune"]
    assert event.key == "tuned_subjects.tuned[n:24; x_ptr:float32]{tune}"
    assert (event.kernel, event.phase) == ("tuned_subjects.tuned", "serve")
    assert event.ms > sum(e.ms for e in late if e.kind == "compile") > 0
    assert event.site.startswith(f"{__name__}.test_a_launch_that_nobody")
    assert [e.kind for e in late].count("compile") == 3  # EVEN is another one for 24


def test_tuning_in_warm_up_is_told_as_such(stub):
    with Monitor("record") as monitor, phase("warm"):
        subjects.tuned[(1,)](torch.empty(64), 24, 3)
    assert [e.phase for e in monitor.events if e.kind == "tune"] == ["warm"]


def test_a_refused_tuning_is_refused_again_and_chooses_nothing(stub):
    x = torch.empty(64)
    with Monitor("error") as monitor:
        for _ in range(2):
            with pytest.raises(Exception, match="which was not warmed"):
                subjects.tuned[(1,)](x, 24, 3)
    assert [event.kind for event in monitor.events] == ["refused", "refused"]
    assert subjects.tuned.cache == {}


def test_native_form(stub):
    registry, plan = plan_of(subjects.native)
    assert plan.items[0].declared == (
        "native(x_ptr=tensor(float32, aligned, shape=(64,)), n=8, m=3)"
        " {BLOCK=16, num_warps=4, num_ctas=1, num_stages=3}"
    )
    assert plan.funnel.points == 2
    # The keys of n=8 are those of n=24, and yet there are two choices to make.
    assert [item.backend for item in plan.items].count("opaque") == 2
    assert plan.funnel.backend_keys == 4
    with Monitor("record") as monitor:
        registry.warmup()
        before = monitor.count()
        for n in (8, 24):
            subjects.native[(4,)](torch.empty(64), n, 3)
        assert monitor.count() == before
        subjects.native[(4,)](torch.empty(64), 56, 3)
    assert [event.kind for event in monitor.events[before:]] == ["tune"]


def test_keys_of_the_decorator_style(stub):
    keys = subjects.tune.get_warmup_keys(ns=(8, 24, 24))
    assert [len(key.backend_keys) for key in keys] == [2, 3]
    assert keys[0].choices == ("tuned_subjects.tuned[n:8; x_ptr:float32]{tune}",)
    assert keys[0].canonical().startswith("tuned_subjects.tuned[n:8; x_ptr:float32]{tune} of ")
    with Monitor("record") as monitor:
        made = subjects.tune.compile(keys[0])
        assert len(made) == 2 == monitor.count("compile")
        assert subjects.TunedKernel().compile(subjects.TunedKernel.CompileKey(8)) == made


def test_a_single_configuration_is_no_choice(stub):
    @triton_kernel_dispatcher_with_warmup(
        warmup_inputs=lambda: {"x": subjects.X, "n": 3}, kernel=subjects.single
    )
    def one(x, n):
        return (1,), {}

    registry, plan = plan_of(one)
    assert [(item.backend, item.declared.endswith("n=3)")) for item in plan.items] == [
        ("triton", True)
    ]
    registry.warmup()
    with Monitor("record") as monitor:
        one(torch.empty(64), 3)
    assert monitor.count() == 0


@pytest.mark.parametrize("depth", DEPTHS)
def test_a_configuration_that_does_not_compile_is_passed_over(stub, depth):
    choosy = around(subjects.picky)
    _, plan = plan_of(choosy)
    report = warm(plan, jobs=1, depth=depth)
    assert [outcome.status for outcome in report.outcomes] == ["skipped", "warmed", "warmed"]
    assert (report.warmed, report.failed) == (2, [])
    reason = report.outcomes[0].reason
    assert reason.startswith("this configuration cannot be used here, and the autotuner passes ove")
    assert len(choosy.compile(choosy.get_warmup_keys()[0])) == 1
    with Monitor("error", count_hits=True) as monitor:
        choosy(torch.empty(64), 3)
    assert monitor.count("compile", "failed", "refused", "tune") == 0
    [key] = monitor.launches()
    assert parse_key(key)[1]["BLOCK"] == "constexpr=32"


def around(kernel):
    """The decorator style around a kernel `(x_ptr, n)`, with one case."""

    @triton_kernel_dispatcher_with_warmup(
        warmup_inputs=lambda: {"x": subjects.X, "n": 3}, kernel=kernel
    )
    def choosy(x, n):
        return (1,), {}

    return choosy


def with_blocks(kernel, *blocks):
    return triton.autotune([triton.Config({"BLOCK": block}) for block in blocks], key=["n"])(
        kernel.fn
    )


def test_a_configuration_that_does_not_fit_the_device_is_passed_over(stub, monkeypatch):
    from triton.compiler import CompiledKernel

    load = CompiledKernel._init_handles

    def load_if_it_fits(kernel):
        if "constexpr=16" in kernel.jitwarm_key[1]:
            raise triton.runtime.errors.OutOfResources(300_000, 232_448, "shared memory")
        return load(kernel)

    monkeypatch.setattr(CompiledKernel, "_init_handles", load_if_it_fits)
    tuner = with_blocks(subjects.single, 16, 32)
    _, plan = plan_of(around(tuner))
    with Monitor("record") as monitor:
        report = warm(plan, jobs=1, depth="compiled")
        assert (report.warmed, monitor.count("load")) == (3, 0)  # not asked of it, and yet known
    assert [config.kwargs for config in tuner.cache.values()] == [{"BLOCK": 32}]
    report = warm(plan, jobs=1)
    assert [outcome.status for outcome in report.outcomes] == ["skipped", "warmed", "warmed"]
    assert "out of resource" in report.outcomes[0].reason


def test_a_key_without_a_usable_configuration_fails_and_nothing_is_chosen(stub):
    tuner = with_blocks(subjects.picky, 16, 64)
    _, plan = plan_of(around(tuner))
    report = warm(plan, jobs=1)
    assert [outcome.status for outcome in report.outcomes] == ["skipped", "skipped", "failed"]
    [outcome] = report.failed
    assert isinstance(outcome.error, RunError)
    assert str(outcome.error).startswith(
        "tuned_subjects.picky: no configuration of its autotuner can be used for this launch: "
    )
    assert "only 32 fits" in str(outcome.error)
    with pytest.raises(RunError, match="^tuned_subjects.picky: no configuration") as caught:
        tuning.choose_configuration(tuner, {"x_ptr": subjects.X, "n": 3}, {}, (1,))
    assert isinstance(caught.value.__cause__, CompileTimeAssertionFailure)
    assert tuner.cache == {}


@pytest.mark.parametrize("jobs", [1, 2])
def test_choices_come_last_wherever_the_plan_has_them(stub, jobs):
    _, plan = plan_of(subjects.native)
    plan = dataclasses.replace(plan, items=plan.items[::-1])
    order = []
    report = warm(plan, jobs=jobs, progress=lambda done, total, item, s: order.append(item.backend))
    assert order == ["triton", "triton", "opaque", "opaque"]
    planned = ["opaque", "triton", "triton", "opaque"]
    assert [outcome.item.backend for outcome in report.outcomes] == planned


def test_other_failures_of_a_configuration_are_failures():
    def fails(recipe):
        raise OSError("no space")

    with pytest.raises(OSError, match="no space"):
        tuning.compile_configuration(fails, None)

    class Big:
        def _init_handles(self):
            raise triton.runtime.errors.OutOfResources(300_000, 232_448, "shared memory")

    assert "out of resource" in tuning.Configuration(Big()).load()


@pytest.mark.parametrize("name", ["BLOCK", "num_warps"])
def test_a_value_that_launch_and_configuration_give(stub, name):
    @triton_kernel_dispatcher_with_warmup(
        warmup_inputs=lambda: {"x": subjects.X, "n": 3}, kernel=subjects.single
    )
    def twice(x, n):
        return (1,), {name: 16}

    with pytest.raises(BindingError, match=f"^twice: the launch gives '{name}', and so does"):
        twice.get_warmup_keys()


def test_positions_are_those_of_a_launch():
    class Kernel:
        arg_names = ("x", "BLOCK", "n")

    assert by_position(Kernel, {"x": 1, "n": 2}) == ((1,), {"n": 2})
    assert by_position(Kernel, {"n": 2, "x": 1, "BLOCK": 3}) == ((1, 3, 2), {})


def test_a_wrapper_that_is_not_tritons():
    class Own:
        arg_names, fn = ("n",), subjects.judged.fn

    with pytest.raises(WrongKindError, match="^k: .*Own is no wrapper of Triton's") as caught:
        inner_launches("k", Own(), {"n": 1}, {})
    assert isinstance(caught.value, TypeError)


def test_the_text_of_a_choice_is_that_of_the_launch(stub):
    launch = inner_launches("k", subjects.tuned, {"x_ptr": TensorSpec(torch.float32), "n": 8}, {})
    args = (torch.empty(4), 8, 3)
    assert launch[0].choices == (tuning_text(subjects.tuned, args, {}),)
    assert is_tuned(subjects.tuned) and not is_tuned(subjects.single)
    two = [tuning_text(subjects.tuned, (n,), {}) for n in (1, 2)]
    assert choices_in(f"K(1){choice_text(two)} (tuned)") == two


def test_a_choice_that_was_not_timed_does_not_reach_the_disk(stub, triton_cache, monkeypatch):
    monkeypatch.setattr(subjects.tuned, "cache_results", True)
    subjects.TunedKernel().warmup((8,))
    assert subjects.tuned.cache and not list(triton_cache.rglob("*.autotune.json"))


def test_a_hook_of_a_configuration_may_want_a_tensor(stub):
    def reset(named):
        named["x_ptr"].zero_()

    config = triton.Config({"BLOCK": 16}, pre_hook=reset)
    kernel = triton.autotune([config, triton.Config({"BLOCK": 32})], key=["n"])(subjects.single.fn)
    tuning.choose_configuration(kernel, {"x_ptr": subjects.X, "n": 3}, {}, (1,))
    assert list(kernel.cache.values()) == [config]


def test_wrappers_are_taken_out_again():
    from triton.runtime.autotuner import Autotuner

    before = (Autotuner.run, Autotuner._bench)
    with Monitor("record"):
        ours = Autotuner.run
        assert ours is not before[0] and ours.__wrapped__ is before[0]
    assert (Autotuner.run, Autotuner._bench) == before
    with Monitor("record"):
        ours, theirs = Autotuner.run, lambda tuner, *args, **kwargs: ours(tuner, *args, **kwargs)
        Autotuner.run = theirs  # somebody wraps ours: it stays below his and passes through
    assert Autotuner.run is theirs
    with Monitor("record") as monitor:
        subjects.tuned[(1,)](torch.empty(64), 24, 3)
    Autotuner.run = before[0]
    assert monitor.count("tune") == 1


class HostGPU:
    """The stub device, called a GPU: real tensors are made, in host memory."""

    kind, torch_device, waited = "cuda", "cpu", 0

    def synchronize(self):
        self.waited += 1


def test_tuning_launches_real_tensors_made_from_the_stand_ins(stub, monkeypatch):
    monkeypatch.setattr(device, "_active", HostGPU())
    made, seen = [], []

    def init(tensor):
        made.append(tensor)
        return torch.arange(tensor.numel()).view(tensor.shape)

    x = TensorSpec("float32", aligned=False, shape=(3, 5), strides=(8, 1), init=init)
    monkeypatch.setattr(subjects, "X", x)
    monkeypatch.setattr(
        subjects.tuned, "pre_hook", lambda named, reset_only=False: seen.append(named["x_ptr"])
    )
    registry, plan = plan_of(subjects.TunedKernel(), (8,))
    assert plan.items[-1].declared == (
        "Tuned(n=8) choice for tuned_subjects.tuned[n:8; x_ptr:float32]{tune} (tuned by launches)"
    )
    assert not made
    with Monitor("record") as monitor:
        registry.warmup()
    assert [e.kind for e in monitor.events] == ["compile", "load", "compile", "load", "tune"]
    assert {event.phase for event in monitor.events} == {"warm"}
    [tensor] = made
    assert all(given is tensor for given in seen) and len(seen) == 3
    assert (tensor.dtype, tuple(tensor.shape), tensor.stride()) == (torch.float32, (3, 5), (8, 1))
    assert tensor.data_ptr() % 16 == 4 and tensor[2].tolist() == [10, 11, 12, 13, 14]
    assert device.current().waited == 1
    with Monitor("record") as monitor:
        subjects.TunedKernel()(torch.empty(64)[1:], 8, 3)
    assert monitor.count() == 0


def test_a_tuning_that_writes_behind_its_tensors_is_an_error(stub, monkeypatch):
    def hook(named, reset_only=False):
        x = named["x_ptr"]  # a kernel that writes five elements into a stand-in of one
        x.as_strided((5,), (1,)).fill_(7)

    monkeypatch.setattr(device, "_active", HostGPU())
    monkeypatch.setattr(subjects, "X", TensorSpec("float32"))
    monkeypatch.setattr(subjects.tuned, "pre_hook", hook)
    _, plan = plan_of(subjects.TunedKernel(), (8,))
    report = warm(plan, jobs=1)
    [outcome] = report.failed
    assert outcome.item.backend == "opaque" and isinstance(outcome.error, DeclarationError)
    assert str(outcome.error).startswith(
        "tuned_subjects.tuned: its tuning wrote behind x_ptr: the stand-in is smaller"
    )


def test_a_choice_without_a_device_is_an_error(monkeypatch):
    monkeypatch.setattr(device, "_active", None)
    with pytest.raises(DeviceError, match="no device is active"):
        tuning.choose_configuration(subjects.tuned, {"x_ptr": subjects.X, "n": 8, "m": 1}, {}, (1,))


GPU = """
import torch, tuned_subjects as subjects
from jitwarm import JitWarmupRegistry, Monitor, device, make_plan
device.activate("cuda")
registry = JitWarmupRegistry()
filled = []
subjects.X = subjects.TritonWarmupTensor(
    "float32", shape=(64,), init=lambda t: filled.append(t.device.type) or t.fill_(1)
)
with registry.activate():
    subjects.TunedKernel().register_warmup((8, 24))
    subjects.native.register_warmup()
plan = make_plan(registry)
assert not filled
with Monitor("record", count_hits=True) as monitor:
    registry.warmup()
    assert filled and set(filled) == {"cuda"}, filled
    tunes = [e for e in monitor.events if e.kind == "tune"]
    assert len(tunes) == 4 and {e.phase for e in tunes} == {"warm"}, tunes
    assert all(e.ms > 0 for e in tunes)
    before = monitor.count()
    monitor.begin_serving()
    x = torch.zeros(64, device="cuda")
    for n in (8, 24):
        subjects.TunedKernel()(x, n, 3)
        subjects.native[(4,)](x, n, 3)
    torch.cuda.synchronize()
    assert monitor.count() == before, monitor.events[before:]
    assert set(monitor.launches()) <= set(plan.backend_keys)
    assert x[:24].tolist() == [3.0] * 24
    subjects.native[(4,)](x, 56, 3)
    assert [e.kind for e in monitor.events[before:]] == ["tune"]
print("tuned", [round(e.ms, 1) for e in tunes])
"""


@pytest.mark.gpu
def test_on_a_gpu_tuning_is_part_of_warm_up_and_the_launch_tunes_nothing(fresh_process):
    assert "tuned" in fresh_process(GPU, path=[Path(subjects.__file__).parent])
