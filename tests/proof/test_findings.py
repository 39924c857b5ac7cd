"""Each kind of finding about keys and envelopes, and beside it the same thing done right."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pytest
import triton
import triton.language as tl

from jitwarm import Envelope, Ints, KeyFunction, Values, affine, next_power_of_two, pointer, prove
from jitwarm.declare import TensorSpec, declare, launch
from jitwarm.proof.compare import KeyTable, table_findings
from jitwarm.proof.unread import unread_arguments

sys.path.insert(0, str(Path(__file__).parent))

import proof_kernels as k

pytestmark = pytest.mark.usefixtures("stub")


def found(proof, *fields):
    return [(f.kind, *(getattr(f, name) for name in fields)) for f in proof.findings]


def prove_function(key, high=40, plan=None, program=None):
    """A key function of a whole number n, of which everything is planned unless said otherwise."""
    function = KeyFunction("f", key, program)
    envelope = Envelope(function, "", {"n": Ints(1, high)}, lambda n: {"n": n})
    if plan is None:
        plan = [key(n) for n in range(1, high + 1)]
    return prove(function, plan, envelope)


# KEY-UNSTABLE


class Identity:
    """Compared by identity, as a tensor of no dimensions is."""


def test_a_key_that_holds_an_identity():
    proof = prove_function(lambda n: (n % 2, Identity()), plan=[])
    assert found(proof, "field", "smallest") == [("KEY-UNSTABLE", "key1", "n=1")]
    assert "field 'key1' of its key" in proof.findings[0].message
    assert proof.kernels[0].verdict == "SEARCHED"
    assert "Identity, which is compared by identity" in proof.findings[0].message
    assert proof.findings[0].message.count("f: ") == 1
    assert prove_function(lambda n: (n % 2, str(Identity.__name__))).findings == ()


def test_a_planned_key_that_holds_an_identity():
    proof = prove_function(lambda n: (n % 2, "x"), plan=[(0, "x"), (1, Identity()), (1, "x")])
    assert found(proof, "field", "smallest") == [("KEY-UNSTABLE", "key1", "")]
    assert (proof.kernels[0].verdict, proof.kernels[0].planned) == ("PROVED", 2)


class HeldKernel(k.BandKernel):
    """Its key has a field for an object."""

    @dataclass(frozen=True)
    class CompileKey:
        bands: int
        layout: object

    def dispatch(self, *, tokens, layout):
        return self.CompileKey(tokens // 16, layout)

    def get_warmup_keys(self):
        return [self.CompileKey(1, self.layout)]


def test_a_key_class_that_holds_an_identity():
    kernel = HeldKernel()
    for kernel.layout, fields in ((Identity(), ["layout"]), ("rows", [])):
        launches = [{"tokens": 16, "layout": kernel.layout}]
        assert [f.field for f in prove(kernel, None, launches).findings] == fields
    # Without such a launch the refused declaration is all that is known.
    kernel.layout = Identity()
    proof = prove(kernel, None, [])
    assert found(proof, "field") == [("KEY-UNSTABLE", "")]


def test_a_key_function_that_gives_one_and_true():
    proof = prove_function(lambda n: (n > 1, 0), high=2, plan=[(1, 0), (False, 0)])
    unstable = [f for f in proof.findings if f.kind == "KEY-UNSTABLE"]
    assert [(f.field, f.warmed, f.seen) for f in unstable] == [
        ("key0", "1", "True"),
    ]
    assert prove_function(lambda n: (n > 1, 0), high=2).findings == ()


def growing():
    """A key that holds a workspace, which grows with the largest request so far."""
    state = {"rows": 0}

    def key(n):
        state["rows"] = max(state["rows"], n)
        return state["rows"]

    return key


def test_a_key_that_depends_on_history():
    proof = prove_function(growing(), plan=list(range(1, 41)))
    assert found(proof, "field", "smallest", "warmed", "seen") == [
        ("KEY-UNSTABLE", "key", "n=1", "1", "40")
    ]
    assert "evaluated backwards" in proof.findings[0].message
    assert prove_function(lambda n: n).findings == ()


def test_a_key_that_counts_its_builds():
    built = []

    def key(n):
        built.append(n)
        return f"kernel_{n}_{len(built)}"

    assert ("KEY-UNSTABLE",) in found(prove_function(key, plan=[]))
    named = lambda n: f"kernel_{n}"
    assert found(prove_function(named)) == []


def test_a_dispatch_that_depends_on_history():
    class Remembers(k.BandKernel):
        largest = 0

        def dispatch(self, *, tokens):
            type(self).largest = max(self.largest, tokens)
            return self.CompileKey(self.largest)

        def get_warmup_keys(self):
            return [self.CompileKey(n) for n in range(1, 9)]

    kernel = Remembers()
    envelope = Envelope(kernel, "", {"tokens": Ints(1, 8)}, lambda tokens: {"tokens": tokens})
    assert found(prove(kernel, None, envelope), "smallest") == [("KEY-UNSTABLE", "tokens=1")]


def test_constants_that_python_takes_for_one():
    def launches(flag):
        return [{"x_ptr": k.X, "n": 17, "BLOCK": block, "num_warps": 8} for block in (1, flag)]

    assert "KEY-UNSTABLE" in {f.kind for f in prove(k.Copy, (), launches(True)).findings}
    assert "KEY-UNSTABLE" not in {f.kind for f in prove(k.Copy, (), launches(2)).findings}


def test_tables_of_two_processes():
    one = KeyTable("f", ["n=1", "n=2", "n=3"], [["f[a=1; b=2]"], ["f[a=1; b=2]"], ["f[a=9]"]])
    other = msgspec.structs.replace(one, keys=[["f[a=1; b=2]"], ["f[a=2; b=3]"], ["f[a=8]"]])
    (finding,) = table_findings(one, other, "elsewhere")
    assert (finding.field, finding.warmed, finding.seen) == ("a, b", "1, 2", "2, 3")
    assert (finding.kernel, finding.smallest) == ("f", "n=2")
    assert not list(table_findings(one, one, "elsewhere"))
    many, shifted = (
        KeyTable("f", [""], [[f"f[n={n}; at={n % 2}]" for n in ns]])
        for ns in ((1, 3, 5), (3, 5, 7))
    )
    (finding,) = table_findings(many, shifted, "elsewhere")
    assert (finding.field, finding.warmed, finding.seen) == ("n", "1", "7")
    (fewer,) = table_findings(many, KeyTable("f", [""], [many.keys[0][:2]]), "elsewhere")
    assert fewer.field == "the number of launches"
    assert not list(table_findings(one, KeyTable("f"), "elsewhere"))


# KEY-INCOMPLETE


def test_two_programs_under_one_key():
    proof = prove_function(
        lambda n: n % 2, plan=[0, 1], program=lambda n: f"block {n % 2} stages {n // 20}"
    )
    assert found(proof, "field", "warmed", "seen", "smallest") == [
        ("KEY-INCOMPLETE", "n", "1", "21", "n=21")
    ]
    assert "under the key f[key=1]; " in proof.findings[0].message
    assert "(n=1 and n=21)" in proof.findings[0].message
    complete = prove_function(lambda n: (n % 2, n // 20), program=lambda n: f"{n % 2} {n // 20}")
    assert complete.findings == ()


def scale_views(kernel, *, offsets=None):
    return Envelope(
        kernel,
        "",
        {"n": Ints(1, 64), "offset": offsets or Ints(0, 7)},
        lambda n, offset: k.scale_call(n, 1, offset),
    )


def test_a_declared_key_with_two_binaries():
    kernel = k.ForgetfulKernel()
    plan = prove(kernel, None, scale_views(kernel))
    kinds = [kind for (kind,) in found(plan)]
    assert kinds.count("KEY-INCOMPLETE") == 1
    (incomplete,) = [f for f in plan.findings if f.kind == "KEY-INCOMPLETE"]
    assert (incomplete.field, incomplete.smallest) == ("x_ptr", "n=1, offset=1")
    aligned = prove(kernel, None, scale_views(kernel, offsets=Values(0, 4)))
    assert {kind for (kind,) in found(aligned)} == {"UNREACHED"}


def test_a_key_whose_inputs_lead_to_another():
    kernel = k.LosingKernel()
    proof = prove(kernel, None, scale_views(kernel, offsets=Values(0)))
    incomplete = [f for f in proof.findings if f.kind == "KEY-INCOMPLETE"]
    assert [f.smallest for f in incomplete] == ["n=1, offset=0"]
    # Block 16 with each of three strides and two alignments is the only one of seven that is right.
    assert [(f.field, f.warmed, f.seen) for f in incomplete] == [("block", "16", "1")]
    assert "block 16 instead of 1" in incomplete[0].message
    # What its inputs lead to is what a warm-up without this check builds: block 16 for all.
    missed = [f for f in proof.findings if f.kind == "MISS"]
    assert [(f.field, f.warmed, f.seen) for f in missed] == [
        ("BLOCK", "constexpr=16", f"constexpr={block}") for block in (1, 2, 4, 8, 32, 64)
    ]
    assert incomplete[0].message.endswith("; so do 35 more of its keys")
    right = k.ScaleKernel()
    assert not [
        f
        for f in prove(right, None, scale_views(right)).findings
        if f.kind in ("KEY-INCOMPLETE", "MISS")
    ]


def test_a_key_whose_inputs_lead_to_another_in_two_fields():
    class Swapped(k.ScaleKernel):
        def warmup_inputs(self, key):
            other = self.CompileKey(16, 2, key.aligned)
            return super().warmup_inputs(other)

        def get_warmup_keys(self):
            return [self.CompileKey(32, 1, True), self.CompileKey(16, 1, True)]

    proof = prove(Swapped(), None, [k.scale_call(16)])
    incomplete = [f for f in proof.findings if f.kind == "KEY-INCOMPLETE"]
    assert [(f.field, f.warmed, f.seen) for f in incomplete] == [
        ("stride_class", "2", "1"),
        ("block, stride_class", "16, 2", "32, 1"),
    ]


@triton.jit
def narrow(x_ptr, n: tl.int32, m: tl.uint8, k: tl.int64):
    tl.store(x_ptr, n + m + k)


@pytest.mark.parametrize(
    ("n", "m", "fields"),
    [
        (2**31, 0, ["n"]),
        (-(2**31) - 1, 255, ["n"]),
        (2**31 - 1, 256, ["m"]),
        (-(2**31), 255, []),
        (2**31, -1, ["n", "m"]),
    ],
)
def test_an_annotated_integer_that_is_cut_off(n, m, fields):
    proof = prove(narrow, (), [{"x_ptr": k.X, "n": n, "m": m, "k": 2**40}])
    incomplete = [f for f in proof.findings if f.kind == "KEY-INCOMPLETE"]
    assert [f.field for f in incomplete] == fields
    values = {"n": ("i32", str(n)), "m": ("u8", str(m))}
    assert [(f.warmed, f.seen) for f in incomplete] == [values[field] for field in fields]


def test_inputs_through_the_strides_of_a_mock():
    """Triton's stand-in for a tensor gives 8 where a tensor has 16."""
    from triton.runtime.jit import MockTensor

    def launches(stride):
        return [{"x_ptr": k.X, "n": stride, "BLOCK": 16, "num_warps": 8}]

    @declare(k.copy)
    def Mock():
        return launch(x_ptr=k.X, n=MockTensor(None, (2, 8, 16)).stride()[1], BLOCK=16, num_warps=8)

    (missed,) = prove(Mock, None, launches(16)).findings[:1]
    assert (missed.kind, missed.field) == ("MISS", "n")
    assert "of shape (2, 8, 16) are (128, 8, 1), a contiguous tensor's are (128, 16, 1)" in (
        missed.advice
    )
    assert "MockTensor" not in prove(k.Copy, (), launches(16)).findings[0].advice


# BUDGET


def copy_blocks(block):
    return Envelope(
        k.Copy,
        "",
        {"n": Ints(1, 100), "one": Ints(1, 1)},
        lambda n, one: {"x_ptr": k.X, "n": 17, "BLOCK": block(n), "num_warps": 8},
    )


def test_a_constant_that_follows_a_parameter():
    budget = [
        f for f in prove(k.Copy, None, copy_blocks(lambda n: n)).findings if f.kind == "BUDGET"
    ]
    assert [(f.kind, f.field) for f in budget] == [("BUDGET", "BLOCK")]
    assert "at least 100 values, one for nearly every value of n" in budget[0].message
    rounded = prove(k.Copy, None, copy_blocks(lambda n: 1 << (n - 1).bit_length()))
    assert "BUDGET" not in {f.kind for f in rounded.findings}


def test_a_constant_that_follows_a_parameter_is_found_by_its_form_too():
    parameters = {"n": Ints(1, 3_000)}

    def launch(n):
        return {"x_ptr": k.X, "n": 17, "BLOCK": n, "num_warps": 8}

    proof = prove(
        k.Copy, (), Envelope(k.Copy, "", parameters, launch, forms={"BLOCK": affine(n=1)})
    )
    assert {"UNDECLARED", "BUDGET"} == {f.kind for f in proof.findings}
    assert proof.kernels[0].needed == 3_000


def test_a_key_field_that_follows_a_parameter():
    assert [f.kind for f in prove_function(lambda n: n, high=65).findings] == ["BUDGET"]
    assert prove_function(lambda n: n, high=64).findings == ()
    assert prove_function(lambda n: -(-n // 16), high=1_000).findings == ()


def test_a_plan_beyond_the_budget():
    key = lambda n: (n % 2, 0, 0)
    plan = [(a, b, c) for a in range(12) for b in range(12) for c in range(12)]
    proof = prove_function(key, plan=plan)
    assert [f.field for f in proof.findings] == ["key2", "key1", "key0", ""]
    assert [f.kind for f in proof.findings] == ["UNREACHED"] * 3 + ["BUDGET"]
    said = proof.findings[-1].message
    assert "1728 keys are planned, 1000 are allowed; launches reach 2 of them (0.1%)" in said
    function = KeyFunction("f", key)
    seconds = dict.fromkeys((entry.backend_key for entry in function.planned(plan)), 0.5)
    launches = [{"n": 1}]
    cheap = prove(function, plan, launches, budget=2_000, seconds=seconds)
    assert "BUDGET" not in {f.kind for f in cheap.findings}
    dear = prove(function, plan, launches, budget=100, seconds=seconds)
    assert "1728 keys are planned, 864.0 s, 100 are allowed" in dear.findings[-1].message


# UNREAD


def test_arguments_that_are_never_read():
    assert unread_arguments(k.careless) == ["unused_ptr", "unused"]
    assert unread_arguments(k.numbers) == []
    launches = [
        {"x_ptr": k.X, "unused_ptr": k.X, "unused": n, "known": 3, "USELESS": 1} for n in (1, 16)
    ]
    unread = [f for f in prove(k.careless, (), launches).findings if f.kind == "UNREAD"]
    assert [f.field for f in unread] == ["unused_ptr", "unused"]


# ENVELOPE


def copy_space(forms, *, n=lambda m: m, high=400, where=None, aligned=lambda m: True):
    def launch(m):
        spec = TensorSpec("float32", aligned=aligned(m))
        return {"x_ptr": spec, "n": n(m), "BLOCK": 16, "num_warps": 8}

    return Envelope(k.Copy, "site", {"m": Ints(1, high)}, launch, where=where, forms=forms)


def test_forms_that_say_what_the_launch_does():
    proof = prove(k.Copy, None, copy_space({"n": affine(m=1)}))
    assert [(one.verdict, one.needed) for one in proof.kernels] == [("PROVED", 3)]
    assert found(proof) == [("UNREACHED",)]  # x is never unaligned


@pytest.mark.parametrize(
    ("forms", "n", "field", "problem"),
    [
        ({"n": affine(m=2)}, lambda m: m, "n", "the form of `n` says 2, the launch passes 1"),
        ({"n": affine(m=1)}, lambda m: min(m, 300), "n", "the form of `n` says"),
        (
            {"BLOCK": next_power_of_two(affine(m=1))},
            lambda m: 17,
            "BLOCK",
            "says 1, the launch passes 16",
        ),
        (
            {"n": affine(m=1), "x_ptr": pointer(offset=affine(m=4), length=affine(1))},
            lambda m: m,
            "x_ptr",
            "the form of `x_ptr` says 0, the launch passes an aligned pointer",
        ),
        ({}, lambda m: m, "n", "to its forms m=400 is the same launch as m=1, and `n` differs"),
        ({"n": affine(m=1), "N": affine(m=1)}, lambda m: m, "N", "a form of `N`, which is no arg"),
    ],
)
def test_forms_that_do_not(forms, n, field, problem):
    proof = prove(k.Copy, None, copy_space(forms, n=n))
    wrong = [f for f in proof.findings if f.kind == "ENVELOPE"]
    assert (wrong[0].field, wrong[0].site) == (field, "site")
    assert problem in wrong[0].message
    assert proof.kernels[0].verdict == "SEARCHED"


def test_what_a_wrong_form_hides_is_still_looked_for():
    """The random points are launches like any other: their keys count."""
    proof = prove(k.Copy, None, copy_space({}, n=lambda m: m, aligned=lambda m: m % 2 == 0))
    assert proof.kernels[0].needed > 2


def test_a_space_without_points():
    proof = prove(k.Copy, (), copy_space(None, where=lambda m: m > 400))
    assert found(proof, "site") == [("ENVELOPE", "site")]
    assert "`where` rejects every point" in proof.findings[0].message
    assert (proof.kernels[0].verdict, proof.kernels[0].of) == ("SEARCHED", 0)


def test_a_launch_that_fails_costs_only_itself():
    def n(m):
        if m % 2 == 0:
            raise LookupError(f"no table for {m}")
        return m

    proof = prove(k.Copy, None, copy_space(None, n=n))
    (one, failed) = proof.kernels[0], proof.findings[0]
    assert (failed.kind, failed.smallest) == ("ENVELOPE", "m=2")
    assert "200 of 400 points fail: LookupError: no table for 2" in failed.message
    assert (one.verdict, one.needed, one.points) == ("SEARCHED", 2, 400)


def test_the_launches_of_a_decorated_function_are_those_of_its_kernel():
    def with_name(name):
        def launch(rows):
            return {name: TensorSpec("float32"), "n": rows, "BLOCK": 16}

        return Envelope(k.copied, "site", {"rows": Values(1, 16)}, launch)

    proof = prove(k.copied, None, with_name("x_ptr"))
    assert (proof.findings, proof.kernels[0].needed) == ((), 2)
    failed = prove(k.copied, None, with_name("x")).findings[0]
    assert "2 of 2 points fail: BindingError: copy: Triton cannot bind" in failed.message
    assert failed.message.endswith(
        "; give the arguments and options of the native copy(x_ptr, n, BLOCK)"
    )


def test_a_class_that_only_whole_points_show_weakens_the_verdict(monkeypatch):
    """Whole thousands are not closed downwards, and the split values hold hardly any."""
    monkeypatch.setattr(sys.modules["jitwarm.proof.search"], "WHOLE", 0)
    monkeypatch.setattr(sys.modules["jitwarm.proof.search"], "WALKED_WITH_FORMS", 0)
    forms = {"n": affine(m=1)}
    thousands = lambda m: (m == 1) | (m % 1_000 == 0)
    proof = prove(k.Copy, None, copy_space(forms, high=1_000_000, where=thousands))
    assert (proof.kernels[0].verdict, proof.kernels[0].needed) == ("SEARCHED", 3)
    assert "ENVELOPE" not in {kind for (kind,) in found(proof)}
    closed = prove(k.Copy, None, copy_space(forms, high=1_000_000, where=lambda m: m < 130_000))
    assert (closed.kernels[0].verdict, closed.kernels[0].needed) == ("PROVED", 3)


def options_space(num_warps, forms, high=16_384):
    def launch(m):
        return {"x_ptr": k.X, "n": 3, "BLOCK": 16, "num_warps": num_warps(m)}

    return Envelope(k.copy, "site", {"m": Ints(33, high)}, launch, forms=forms)


def test_an_option_that_changes_without_a_form():
    proof = prove(k.copy, (), options_space(lambda m: 4 if m <= 200 else 8, {}))
    (wrong, *_) = [f for f in proof.findings if f.kind == "ENVELOPE"]
    assert (wrong.field, proof.kernels[0].verdict) == ("num_warps", "SEARCHED")
    assert proof.kernels[0].needed == 2


def test_an_option_may_have_a_form():
    forms = {"num_warps": next_power_of_two(affine(m=1))}
    warps = lambda m: 1 << (m - 1).bit_length()
    proof = prove(k.copy, (), options_space(warps, forms, high=1_000))
    assert (proof.kernels[0].verdict, proof.kernels[0].needed) == ("PROVED", 5)


def test_constancy_is_told_where_no_two_points_are_one_to_the_forms():
    forms = {"n": affine(m=1), "BLOCK": next_power_of_two(affine(m=1))}

    def launch(m):
        block = 1 << (m - 1).bit_length()
        warps = 8 if block > 256 else 4
        return {"x_ptr": k.X, "n": m, "BLOCK": block, "num_warps": warps}

    proof = prove(k.copy, (), Envelope(k.copy, "site", {"m": Ints(33, 999)}, launch, forms=forms))
    (wrong,) = [f for f in proof.findings if f.kind == "ENVELOPE"]
    assert (wrong.field, proof.kernels[0].verdict) == ("num_warps", "SEARCHED")
    assert "`num_warps` has no form and changes" in wrong.message


@pytest.mark.parametrize(
    "where",
    [
        lambda m, s: (s > 1) | (m % 1_000 == 500),
        lambda m, s: (s > 1) | (m == 777_216),
    ],
)
def test_a_where_that_a_split_cannot_stand_for(where):
    def launch(m, s):
        return {"x_ptr": k.X, "n": s, "BLOCK": 16}

    space = {"m": Ints(1, 1 << 20), "s": Ints(1, 1 << 20)}
    envelope = Envelope(k.copy, "site", space, launch, where=where, forms={"n": affine(s=1)})
    (one,) = prove(k.copy, (), envelope).kernels
    assert (one.verdict, one.needed) == ("SEARCHED", 3)
    assert any("along s there are points" in why or "along m" in why for why in one.reasons)


# Declared keys that no dispatch gives


def test_a_declared_key_that_dispatch_never_gives():
    class Coarse(k.ScaleKernel):
        """Its key tells sizes apart that share a block."""

        class CompileKey(k.ScaleKernel.CompileKey):
            pass

        def get_warmup_keys(self):
            return [self.CompileKey(16, stride, True) for stride in (1, 3, 2)]

        def warmup_inputs(self, key):
            return super().warmup_inputs(key)

        def dispatch(self, *, n, stride, aligned):
            return self.CompileKey(16, stride, aligned)

    kernel = Coarse()
    envelope = Envelope(kernel, "", {"s": Ints(1, 2)}, lambda s: k.scale_call(16, s))
    proof = prove(kernel, None, envelope)
    assert [(f.kind, f.warmed) for f in proof.findings] == [
        ("UNREACHED", "Coarse(block=16, stride_class=3, aligned=True)")
    ]
    whole = Envelope(kernel, "", {"s": Ints(1, 3)}, lambda s: k.scale_call(16, s))
    assert prove(kernel, None, whole).findings == ()
