"""From registrations to backend keys: the funnel, what is found on the way, and what goes wrong."""

from __future__ import annotations

import pickle
import threading
from dataclasses import dataclass

import pytest

import plan_subjects as subjects
from jitwarm.contract import JitKernel
from jitwarm.declare import Declared, Enumeration
from jitwarm.errors import BindingError
from jitwarm.findings import Finding
from jitwarm.judge.plans import collision_findings
from jitwarm.keys import key_id
from jitwarm.plan import Funnel, KernelRow, PlanKey, make_plan
from jitwarm.registry import JitWarmupRegistry, owner
from jitwarm.warm import warm
from plan_subjects import X

pytestmark = pytest.mark.triton


@pytest.fixture(autouse=True)
def _alone(stub, outside):
    pass


def registered(build):
    registry = JitWarmupRegistry()
    with registry.activate():
        build()
    return registry


def key(text):
    return f"plan_subjects.copy[x_ptr:*fp32/D; {text}]{{cuda:90}}"


def declared(n, block=16):
    return f"plan_subjects.copy(x_ptr=tensor(float32, aligned), n={n}, BLOCK={block})"


def test_the_funnel_of_sixty_one_layers():
    def build():
        for layer in range(61):
            with owner(f"layers.{layer}"):
                subjects.Copy.register_warmup(16)
                subjects.Fill.register_warmup([1.0, 2.0])
        with owner("head"):
            subjects.Copy.register_warmup(block=32)

    plan = make_plan(registered(build))
    assert plan.funnel == Funnel(123, 3, 41.0, points=10, keys=8, backend_keys=6)
    assert plan.rows == (
        KernelRow("Copy", "triton", 62, 2, 8, 6, 4),
        KernelRow("Fill", "triton", 61, 1, 2, 2, 2),
    )
    assert (plan.findings, plan.failures) == ((), ())
    assert plan.enumeration_s > 0


def test_items_are_in_order_of_registration_and_know_who_asked():
    def build():
        subjects.Copy.register_warmup(16)
        with owner("b"), owner("a"):
            subjects.Copy.register_warmup(block=16)

    plan = make_plan(registered(build))
    assert plan.keys() == [
        PlanKey(
            "Copy",
            "triton",
            declared(n),
            key(f"n:i32/{cls}; BLOCK:constexpr=16"),
            owner="a",
            owners=1,
            values={"n": n},
        )
        for n, cls in ((17, ""), (33, ""), (16, "D"))
    ]
    assert [item.owners for item in plan.items] == [("", "a")] * 3
    assert [item.id for item in plan.items] == [key_id(item.backend_key) for item in plan.items]
    assert list(plan.backend_keys) == [
        key("n:i32/; BLOCK:constexpr=16"),
        key("n:i32/D; BLOCK:constexpr=16"),
    ]
    assert [item.declared for item in plan.backend_keys.values()] == [declared(17), declared(16)]


def test_recipes_can_be_sent_to_another_process():
    plan = make_plan(registered(lambda: subjects.Copy.register_warmup(16)))
    for item in plan.items:
        assert pickle.loads(pickle.dumps(item.recipe)) == item.recipe


def test_an_empty_plan():
    plan = make_plan(JitWarmupRegistry())
    assert plan.funnel == Funnel(0, 0, 0.0, 0, 0, 0)
    assert (plan.items, plan.rows, plan.findings) == ((), (), ())


def test_planning_compiles_nothing(triton_cache):
    make_plan(registered(lambda: subjects.Copy.register_warmup(16)))
    assert not triton_cache.exists()
    assert subjects.copy.device_caches[0][0] == {}


def test_a_kernel_that_cannot_be_enumerated_costs_no_other():
    def build():
        subjects.Raising.register_warmup()
        subjects.Copy.register_warmup(16)
        subjects.Copy.register_warmup(wrong=1)

    plan = make_plan(registered(build))
    assert [(name, type(error).__name__) for name, error in plan.failures] == [
        ("Raising", "LookupError"),
        ("Copy", "DeclarationError"),
    ]
    assert plan.rows == (
        KernelRow("Raising", "-", 1, 1, 0, 0, 0),
        KernelRow("Copy", "triton", 2, 2, 4, 3, 2),
    )


def test_a_key_that_cannot_be_bound_costs_no_other_of_its_kernel():
    plan = make_plan(registered(subjects.Unbindable.register_warmup))
    ((name, error),) = plan.failures
    assert (name, type(error)) == ("Unbindable", BindingError)
    assert error.__notes__ == [
        (
            "while planning plan_subjects.copy(x_ptr=tensor(float32, aligned), n=17, BLOCK=16, "
            "num_warp=4)"
        )
    ]
    assert [item.backend_key.partition("{")[2] for item in plan.items] == [
        "cuda:90}",
        "cuda:90; num_warps=8}",
    ]
    assert plan.rows == (KernelRow("Unbindable", "triton", 1, 1, 3, 2, 2),)


def test_a_silent_zero_is_a_finding_and_a_spoken_one_is_not():
    def build():
        subjects.Silent.register_warmup()
        subjects.Spoken.register_warmup("there is no reason to warm this here")
        subjects.Spoken.register_warmup("nor there")

    plan = make_plan(registered(build))
    assert plan.findings == (
        Finding(
            "UNDECLARED",
            "Silent",
            "Silent is registered but its declaration yielded no launch and no reason",
            advice="return NoKeys('why') where no key is needed",
        ),
    )
    assert [row.no_keys_reason for row in plan.rows] == [
        "its declaration yielded no launch and no reason",
        "there is no reason to warm this here; nor there",
    ]


def test_a_silent_zero_of_one_request_is_not_hidden_by_the_keys_of_another():
    def build():
        subjects.Fill.register_warmup([])
        subjects.Fill.register_warmup([1.0])

    plan = make_plan(registered(build))
    assert [(finding.kind, finding.kernel) for finding in plan.findings] == [("UNDECLARED", "Fill")]
    assert [row.no_keys_reason for row in plan.rows] == [None]


def test_registrations_outside_any_scope_are_findings():
    subjects.Fill.register_warmup([1.0])
    subjects.Copy.register_warmup(16)
    subjects.Fill.register_warmup([2.0])
    plan = make_plan(JitWarmupRegistry())
    assert [(finding.kind, finding.message) for finding in plan.findings] == [
        ("UNDECLARED", "Copy was registered 1 time outside any warm-up scope and is not warmed"),
        ("UNDECLARED", "Fill was registered 2 times outside any warm-up scope and is not warmed"),
    ]


def test_constants_that_triton_takes_for_one_are_findings():
    plan = make_plan(registered(lambda: subjects.Fill.register_warmup([1, True, 2, 1.0, 1])))
    texts = [f"plan_subjects.fill[x_ptr:*fp32/D; VALUE:constexpr={v}]{{cuda:90}}" for v in
             ("1", "True", "1.0")]  # fmt: skip
    assert plan.funnel.backend_keys == 4
    assert plan.findings == tuple(
        Finding(
            "KEY-UNSTABLE",
            "Fill",
            f"Fill declares {text} and {texts[0]}: Triton serves whichever was compiled first "
            "to both",
            advice="use one type for this compile-time value",
        )
        for text in texts[1:]
    )


def unstable(*constants, kernel="k"):
    keys = [("K", f"{kernel}[x:*fp32/D; C:{c}]{{cuda:90}}") for c in constants]
    return len(list(collision_findings(keys)))


@pytest.mark.parametrize(
    ("constants", "count"),
    [
        (("constexpr=0", "constexpr=False", "constexpr=0.0", "constexpr=-0.0"), 3),
        (("constexpr=1", "constexpr=2", "constexpr='1'", "constexpr=None"), 0),
        (("constexpr=(1, 'a')", "constexpr=(True, 'a')", "constexpr=(1.0, 'b')"), 1),
        (("(i32/D, constexpr=1)", "(i32/D, constexpr=True)"), 1),
        (("constexpr=1", "constexpr=np.int64(1)", "constexpr=np.float64(1.0)"), 2),
        (("constexpr='True'", "constexpr='1'", "constexpr='1.0'"), 0),
        (("constexpr=1e+16", "constexpr=10000000000000000"), 1),
        (("constexpr=9007199254740993", "constexpr=9007199254740992"), 0),
        (("constexpr=1.5", "constexpr=1", "constexpr=nan", "constexpr=inf"), 0),
        (("constexpr=tl.int1", "constexpr=tl.int8"), 0),
        (("constexpr=constexpr(1)", "constexpr=constexpr(True)"), 1),
        (("constexpr=-1", "constexpr=-1.0", "constexpr=1"), 1),
        (("i32/", "i32/D", "i32", "constexpr=1"), 0),
    ],
)
def test_which_constants_are_one_to_triton(constants, count):
    assert unstable(*constants) == count


class Plain:
    """A kernel of another compiler."""

    kernel_name = "Plain"

    def enumerate_keys(self, config, args, kwargs):
        recipe = OpaqueRecipe(self, config)
        return Enumeration("Plain", 1, (Declared(f"Plain({config})", recipe),))


class OpaqueRecipe:
    def __init__(self, kernel, key):
        self.kernel, self.key = kernel, key


def test_other_backends_have_the_key_that_people_read():
    registry = JitWarmupRegistry(7)
    with registry.activate():
        JitWarmupRegistry.register(Plain())
        subjects.Copy.register_warmup(16)
    plan = make_plan(registry)
    assert plan.rows[0] == KernelRow("Plain", "opaque", 1, 1, 1, 1, 1)
    assert plan.items[0].backend_key == f"{__name__}.Plain[7]"
    assert plan.funnel.backend_keys == 3


def test_two_kernels_of_one_name_share_a_row_and_no_key():
    from jitwarm.declare import declare, launch

    def build():
        declare(subjects.copy, name="Same")(
            lambda: launch(x_ptr=X, n=1, BLOCK=16)
        ).register_warmup()
        declare(subjects.fill, name="Same")(lambda: launch(x_ptr=X, VALUE=1)).register_warmup()

    plan = make_plan(registered(build))
    assert plan.rows == (KernelRow("Same", "triton", 2, 2, 2, 2, 2),)


class _Named(JitKernel):
    """Two objects of one class: their keys read the same and are not."""

    @dataclass(frozen=True)
    class CompileKey:
        block: int

    def __init__(self, made):
        self.made = made

    def get_warmup_keys(self):
        return [self.CompileKey(16), self.CompileKey(32)]

    def compile(self, key):
        self.made.append((self, key.block, threading.get_ident()))


def test_two_kernels_of_one_name_keep_their_keys():
    made = []
    one, other = _Named(made), _Named(made)
    registry = JitWarmupRegistry()
    with registry.activate():
        one.register_warmup()
        other.register_warmup()
    plan = make_plan(registry)
    assert [(row.kernel, row.registrations, row.keys) for row in plan.rows] == [("_Named", 2, 4)]
    assert len(plan.backend_keys) == 4
    assert warm(plan, jobs=4).warmed == 4
    # Whatever such a kernel does in compile, it does it one key at a time, in the caller's thread.
    here = threading.get_ident()
    assert made == [(one, 16, here), (one, 32, here), (other, 16, here), (other, 32, here)]


def test_a_kernel_may_register_another_while_it_is_enumerated():
    registry = JitWarmupRegistry()

    class Chatty(_Named):
        def get_warmup_keys(self):
            with registry.activate():
                _Named([]).register_warmup()
            return super().get_warmup_keys()

    with registry.activate():
        Chatty([]).register_warmup()
    assert len(make_plan(registry).items) == 2
    assert len(registry) == 2


class _Listed(_Named):
    """Its keys come one by one, and some are no keys."""

    def __init__(self, keys):
        super().__init__([])
        self.keys = keys

    def get_warmup_keys(self):
        return self.keys()


def _good_and_raising():
    yield _Named.CompileKey(1)
    raise LookupError("theirs")


@pytest.mark.parametrize(
    ("keys", "blocks", "errors"),
    [
        (lambda: [_Named.CompileKey(1), "no", _Named.CompileKey(2)], [1, 2], ["DeclarationError"]),
        (lambda: [_Named.CompileKey(object()), _Named.CompileKey(2)], [2], ["KeyValueError"]),
        (_good_and_raising, [1], ["LookupError"]),
    ],
)
def test_one_bad_key_of_a_contract_class_costs_no_other(keys, blocks, errors):
    plan = make_plan(registered(_Listed(keys).register_warmup))
    assert [item.recipe.key.block for item in plan.items] == blocks
    assert [type(error).__name__ for _, error in plan.failures] == errors


def _local_class(tag):
    class Local(_Named):
        pass

    return Local(tag)


def test_classes_of_one_qualified_name_are_told_apart_within_a_plan():
    for _ in range(2):  # and another plan of the process begins to count anew
        registry = JitWarmupRegistry()
        with registry.activate():
            _local_class([]).register_warmup()
            _local_class([]).register_warmup()
        plan = make_plan(registry)
        paths = [item.backend_key.partition("[")[0].rpartition(".")[2] for item in plan.items]
        assert paths == ["Local", "Local", "Local#2", "Local#2"]


def test_one_name_may_stand_for_kernels_of_two_backends():
    class Copy(_Named):
        kernel_name = "Copy"

    registry = JitWarmupRegistry()
    with registry.activate():
        subjects.Copy.register_warmup(16)
        Copy([]).register_warmup()
    plan = make_plan(registry)
    assert [(row.kernel, row.backend, row.keys) for row in plan.rows] == [
        ("Copy", "triton+opaque", 5)
    ]
    assert warm(plan, jobs=2).warmed == len(plan.backend_keys) == 4
