"""prove(): the four kinds of kernels, verdicts, and each finding about missing and unreached."""

from __future__ import annotations

import sys
from pathlib import Path

import msgspec
import pytest

import jitwarm
from jitwarm import Envelope, Ints, KeyFunction, Values, affine, next_power_of_two, pointer, prove
from jitwarm.backends.triton.recipe import TritonRecipe
from jitwarm.declare import TensorSpec, declare, launch
from jitwarm.errors import DeclarationError, WrongKindError
from jitwarm.plan import make_plan
from jitwarm.proof.model import prove_model
from jitwarm.proof.plan import ProofPlan
from jitwarm.proof.prove import fingerprint, prove_envelopes
from jitwarm.proof.real_steps import switched_off, with_respelt
from jitwarm.proof.result import Proof
from jitwarm.registry import JitWarmupRegistry, owner

sys.path.insert(0, str(Path(__file__).parent))

import proof_kernels as k

pytestmark = pytest.mark.usefixtures("stub")


def plan_of(*requests):
    """A plan of (kernel, arguments) requests, each of a layer of its own."""
    registry = JitWarmupRegistry()
    with registry.activate():
        for number, (kernel, arguments) in enumerate(requests):
            with owner(f"layer{number}"):
                kernel.register_warmup(**arguments)
    return make_plan(registry)


def scale_envelope(kernel, low=1, high=64, forms=None, strides=(1, 2, 16), **others):
    def launch(n, offset, stride):
        return k.scale_call(n, stride, offset)

    parameters = {"n": Ints(low, high), "offset": Ints(0, 7), "stride": Values(*strides)}
    return Envelope(kernel, "a step", parameters, launch, forms=forms, **others)


SCALE_FORMS = {
    "BLOCK": next_power_of_two(affine(n=1)),
    "x_ptr": pointer(offset=affine(offset=4), length=affine(n=1)),
}


def copy_launch(n, block=16, aligned=True):
    return {"x_ptr": k.X if aligned else k.ODD, "n": n, "BLOCK": block, "num_warps": 8}


def said(proof, *fields):
    """The findings as tuples, kind first."""
    return [(f.kind, *(getattr(f, name) for name in fields)) for f in proof.findings]


def respelt(**changed):
    """Launches of a kernel that is declared with `num_warps=8` and its default, written out."""
    declaration = declare(k.copy)(lambda: [launch(**copy_launch(17), num_stages=3)])

    def call(aligned):
        given = {**copy_launch(17), "num_stages": 3, **changed}
        return {name: value for name, value in given.items() if value is not None}

    return prove(declaration, None, Envelope(declaration, "site", {"aligned": Values(1)}, call))


@pytest.mark.parametrize(
    ("changed", "differs"),
    [
        ({"num_stages": None}, ("num_stages", "3", "absent")),
        ({"num_ctas": 1}, ("num_ctas", "absent", "1")),
        ({"num_stages": None, "num_ctas": 1}, ("num_stages, num_ctas", "3; absent", "absent; 1")),
    ],
)
def test_a_warmed_launch_that_spells_its_options_in_another_way(changed, differs):
    proof = respelt(**changed)
    (one,) = proof.kernels
    assert (one.verdict, one.needed, one.planned, one.missing) == ("PROVED", 1, 1, 1)
    assert not proof.holds
    fields = ("field", "warmed", "seen", "smallest", "site")
    assert said(proof, *fields) == [("DISK-HIT", *differs, "aligned=1", "site")]
    assert "spells its options in another way: `num_" in proof.findings[0].message


def test_options_in_another_order():
    assert said(respelt(num_warps=4))[0] == ("MISS",)  # no spelling: another binary
    declaration = declare(k.copy)(lambda: [launch(**copy_launch(17), num_stages=3)])
    calls = [{**copy_launch(17), "num_stages": 3}]
    assert prove(declaration, None, calls).findings == ()
    swapped = dict(reversed(calls[0].items()))
    assert said(prove(declaration, None, [swapped]), "field", "warmed", "seen") == [
        (
            "DISK-HIT",
            "num_warps, num_stages",
            "num_warps, num_stages",
            "num_stages, num_warps",
        )
    ]
    plan = plan_of((declaration, {}))
    assert prove(declaration, plan.keys(), [swapped]).findings == ()  # spellings are not stored


def test_what_real_steps_spell_in_another_way_is_missing():
    declaration = declare(k.copy)(lambda: [launch(**copy_launch(17))])
    plan = plan_of((declaration, {}))
    key = plan.items[0].backend_key
    proof = prove_model(object(), plan, {key: 5})  # a model without envelopes
    assert (proof.kernels[0].missing, proof.findings) == (0, ())
    written = {**copy_launch(17), "num_stages": 3}
    recipe = TritonRecipe(plan.items[0].recipe.kernel, tuple(written.items()))
    respelt = [ProofPlan(plan).residents.ask(recipe).respelt]
    found = with_respelt(proof, plan, respelt)
    (one,) = found.kernels
    assert (one.missing, one.missing_keys) == (1, (key,))
    (finding,) = found.findings
    assert (finding.kind, finding.field, finding.seen) == ("DISK-HIT", "num_stages", "3")
    assert finding.owners == ("layer0",)
    assert with_respelt(found, plan, respelt) == found
    assert switched_off(found, plan).kernels[0].missing == 1


def test_a_constant_that_compares_equal_to_a_warmed_one():
    """Triton finds the warmed binary, and which of the two is served depends on the order."""
    declaration = declare(k.copy)(lambda: [launch(**copy_launch(17, block=1))])
    proof = prove(declaration, None, [copy_launch(17, block=True)])
    (one,) = proof.kernels
    assert (one.needed, one.missing, one.unreached) == (1, 0, 0)
    assert said(proof) == [("KEY-UNSTABLE",)]
    assert said(prove(declaration, None, [copy_launch(17, block=2)]))[0] == ("MISS",)


class Failing(k.ScaleKernel):
    """One of its keys has no inputs; `needed` says whether a launch has that key."""

    def warmup_inputs(self, key):
        return super().warmup_inputs(key) | {1: {}, 64: {}}[key.block]


@pytest.mark.parametrize("needed", [False, True])
def test_a_key_that_cannot_be_planned_is_a_finding(needed):
    kernel = Failing()
    kernel.most = 2
    envelope = scale_envelope(kernel, high=2 if needed else 1)
    plan = plan_of((kernel, {}))
    for given in (None, plan):
        proof = prove(kernel, given, envelope)
        crashes = [one for one in proof.findings if one.kind == "WARM-CRASH"]
        assert {one.kind for one in proof.findings} == {"WARM-CRASH"} | (
            {"MISS"} if needed else set()
        )
        assert {one.message for one in crashes} == {
            "Failing: the declaration of its keys failed: KeyError: 2"
        }
        assert not proof.holds
        assert proof.kernels[0].missing == (6 if needed else 0)


def test_a_declaration_that_fails_says_why_nothing_is_planned():
    proof = prove(k.Copy, plan_of((k.Copy, {"m": 3})), [copy_launch(1)])
    assert said(proof, "seen")[1:] == [("WARM-CRASH", "DeclarationError")]
    undeclared, crash = proof.findings
    assert undeclared.message == "Copy: launches need 1 key, and no key of it is planned"
    assert crash.message.endswith("got an unexpected keyword argument 'm'")


def test_a_missing_key_need_not_have_inputs():
    class Strict(k.ScaleKernel):
        most = 1

        def warmup_inputs(self, key):
            return super().warmup_inputs(key) | {1: {}}[key.block]

    kernel = Strict()
    proof = prove(kernel, None, scale_envelope(kernel, high=2))
    assert {one.kind for one in proof.findings} == {"MISS"}
    assert {one.seen for one in proof.findings if one.field == "BLOCK"} == {"constexpr=2"}


# A contract class.


@pytest.mark.parametrize("forms", [None, SCALE_FORMS])
def test_a_complete_class_is_proved(forms):
    kernel = k.ScaleKernel()
    proof = prove(kernel, None, scale_envelope(kernel, forms=forms))
    (one,) = proof.kernels
    assert (one.kernel, one.backend, one.verdict, one.of) == (
        "Scale",
        "triton",
        "PROVED",
        64 * 8 * 3,
    )
    assert (one.needed, one.planned, one.missing, one.unreached) == (42, 42, 0, 0)
    assert proof.findings == ()
    assert proof.holds
    assert (one.points == one.of) is (forms is None)


@pytest.mark.parametrize("forms", [None, SCALE_FORMS])
def test_a_missing_key_comes_with_its_smallest_input(forms):
    kernel = k.ScaleKernel()
    proof = prove(kernel, None, scale_envelope(kernel, high=65, forms=forms, owners=("layer",)))
    (one,) = proof.kernels
    assert (one.needed, one.planned, one.missing, one.unreached) == (48, 42, 6, 0)
    assert said(proof, "field", "seen", "smallest", "site", "owners")[0] == (
        "MISS",
        "BLOCK",
        "constexpr=128",
        "n=65, offset=0, stride=1",
        "a step",
        ("layer",),
    )
    assert [f.smallest for f in proof.findings] == [
        f"n=65, offset={offset}, stride={stride}" for offset in (0, 1) for stride in (1, 2, 16)
    ]
    assert not proof.holds


def test_an_empty_view_is_a_class_of_its_own():
    kernel = k.ScaleKernel()
    forms = SCALE_FORMS | {"OUT": pointer(offset=affine(), length=affine(n=1))}
    parameters = {"n": Ints(0, 300), "offset": Ints(0, 7)}

    def launch(n, offset):
        return {
            "x": TensorSpec("float32", aligned=offset % 4 == 0, shape=(n,)),
            "out": TensorSpec("float32", shape=(max(n, 1),)),
            "n": max(n, 1),
        }

    forms["BLOCK"] = next_power_of_two(affine(n=1))
    found = prove(kernel, (), Envelope(kernel, "", parameters, launch, forms=forms))
    smallest = found.findings[0].smallest
    assert (found.kernels[0].verdict, smallest) == ("PROVED", "n=0, offset=0")
    # Ten blocks of either alignment, and block 1 with an empty view is aligned at any offset.
    assert found.kernels[0].needed == 20


def test_a_call_without_a_grid_launches_nothing():
    kernel = k.ScaleKernel()
    whole = prove(kernel, None, scale_envelope(kernel, low=0))
    assert whole.findings == ()
    assert whole.kernels[0].of == 65 * 8 * 3
    never = prove(kernel, None, scale_envelope(kernel, low=0, high=0))
    assert said(never) == [("UNREACHED",)]
    assert never.kernels[0].unreached == 42


# Declarations and plain kernels.


def test_a_declaration_is_proved():
    space = {"n": Ints(1, 200), "aligned": Values(True, False)}
    envelope = Envelope(k.Copy, "", space, copy_launch)
    proof = prove(k.Copy, None, envelope)
    assert proof.findings == ()
    assert [(one.verdict, one.needed) for one in proof.kernels] == [("PROVED", 6)]


def test_the_options_of_a_native_launch_count():
    envelope = Envelope(
        k.Copy, "", {"n": Ints(1, 20)}, lambda n: copy_launch(n) | {"num_warps": 4, "grid": (n,)}
    )
    proof = prove(k.Copy, None, envelope)
    assert {f.field for f in proof.findings if f.kind == "MISS"} == {"num_warps"}
    skipped = Envelope(k.Copy, "", {"n": Ints(1, 2)}, lambda n: copy_launch(n) | {"grid": None})
    assert prove(k.Copy, (), skipped).kernels[0].needed == 0


def test_a_plain_kernel_is_judged_by_what_was_planned_of_it():
    plan = plan_of((k.Copy, {}))
    proof = prove(k.copy, plan, Envelope(k.copy, "", {"n": Ints(1, 99)}, copy_launch))
    assert [(one.kernel, one.needed, one.unreached) for one in proof.kernels] == [("Copy", 3, 3)]
    assert said(proof, "field") == [("UNREACHED", "x_ptr")]
    assert "3 of 6 planned keys (50%): no launch needs them; `x_ptr` is never *fp32/" in (
        proof.findings[0].message
    )


def test_nobody_declares_a_plain_kernel():
    proof = prove(k.add, None, [copy_launch(n) for n in (1, 2, 3, 16)])
    (one,) = proof.kernels
    assert (one.kernel, one.verdict, one.points, one.needed) == (
        "proof_kernels.add",
        "SAMPLED",
        4,
        3,
    )
    assert said(proof, "smallest") == [
        ("UNDECLARED", "x_ptr=tensor(float32, aligned), n=1, BLOCK=16, num_warps=8")
    ]


def test_an_autotuned_kernel_has_a_key_for_each_configuration():
    kernel = k.TunedKernel()
    envelope = Envelope(kernel, "", {"n": Ints(4, 6)}, lambda n: {"x": TensorSpec("int32"), "n": n})
    proof = prove(kernel, None, envelope)
    assert [(f.kind, f.smallest) for f in proof.findings] == [("AUTOTUNE", "n=6")]
    # 4 and 6 are one class, even; 5 is odd; two blocks each.
    assert [(one.needed, one.missing, one.unreached) for one in proof.kernels] == [(4, 0, 0)]
    assert prove(kernel, plan_of((kernel, {"numbers": (4, 5, 6)})), envelope).findings == ()


# Other classes, and key functions.


def test_a_class_with_a_compile_of_its_own_goes_by_dispatch():
    kernel = k.BandKernel()
    envelope = Envelope(kernel, "", {"tokens": Ints(1, 64)}, lambda tokens: {"tokens": tokens})
    proof = prove(kernel, None, envelope)
    assert [(one.backend, one.verdict, one.needed) for one in proof.kernels] == [
        ("opaque", "PROVED", 4)
    ]
    assert proof.findings == ()


def test_the_second_object_of_a_class_has_keys_of_its_own():
    first, second = k.BandKernel(), k.BandKernel()
    plan = plan_of((first, {"most": 32}), (second, {"most": 64}))
    launches = [{"tokens": 64}]
    assert prove(second, plan, launches).kernels[0].missing == 0
    assert prove(first, plan, launches).kernels[0].missing == 1


def test_a_cute_dsl_kernel_is_proved_without_a_compile():
    kernel = k.SortKernel()
    envelope = Envelope(kernel, "", {"width": Values(1024, 2048, 4096)}, lambda width: locals())
    proof = prove(kernel, None, envelope)
    assert said(proof, "field", "warmed", "seen", "smallest") == [
        ("MISS", "width", "1024", "4096", "width=4096")
    ]
    assert proof.kernels[0].backend == "cutedsl"


BANDS = KeyFunction("bands", lambda tokens: -(-tokens // 16))


def band_envelope(high, **others):
    return Envelope(BANDS, "gemm", {"m": Ints(1, high)}, lambda m: {"tokens": m}, **others)


def test_a_key_function_is_proved_against_its_keys():
    proof = prove(BANDS, [1, 2, 3, 4], band_envelope(64))
    assert [(one.backend, one.verdict, one.needed) for one in proof.kernels] == [
        ("function", "PROVED", 4)
    ]
    assert proof.findings == ()


def test_the_last_band_of_a_half_open_range_is_missing():
    proof = prove(BANDS, [BANDS.key(m) for m in range(16, 64, 16)], band_envelope(64))
    assert said(proof, "field", "seen", "smallest") == [("MISS", "key", "4", "m=49")]


def test_keys_of_a_function_are_told_by_their_fields():
    pair = KeyFunction("pair", lambda m: (m, "fp8"))
    proof = prove(pair, [(1, "fp8"), (2, "bf16")], [{"m": 1}, {"m": 3}])
    assert said(proof, "field", "warmed", "seen") == [
        ("MISS", "key0", "1", "3"),
        ("UNREACHED", "key0", "pair[key0=2; key1='bf16']", ""),
    ]


# Verdicts.


def test_too_many_points_without_forms_are_searched(monkeypatch):
    kernel = k.ScaleKernel()
    monkeypatch.setattr(sys.modules["jitwarm.proof.search"], "WALKED", 200)
    proof = prove(kernel, None, scale_envelope(kernel, high=4096, strides=(1, 2, 16, 3)))
    (one,) = proof.kernels
    assert (one.verdict, one.of) == ("SEARCHED", 4096 * 8 * 4)
    assert one.needed > 42
    assert 100 < one.points <= 264
    assert one.missing == one.needed - 42 + one.unreached


def test_the_weakest_envelope_decides(monkeypatch):
    monkeypatch.setattr(sys.modules["jitwarm.proof.search"], "WALKED", 200)
    kernel = k.ScaleKernel()
    small, large = scale_envelope(kernel, high=8), scale_envelope(kernel)
    assert prove(kernel, None, small).kernels[0].verdict == "PROVED"
    assert prove(kernel, None, [small, large]).kernels[0].verdict == "SEARCHED"
    assert prove(kernel, None, [small, k.scale_call(3)]).kernels[0].verdict == "SAMPLED"


def test_no_keys_on_purpose_and_agreed():
    plan = plan_of((k.Nothing, {}))
    never = Envelope(k.Nothing, "", {"n": Ints(0, 3)}, lambda n: None)
    proof = prove(k.Nothing, plan, never)
    assert [(one.verdict, one.needed, one.planned) for one in proof.kernels] == [("NO KEYS", 0, 0)]
    assert proof.holds
    launched = prove(k.Nothing, plan, [copy_launch(4)])
    assert said(launched) == [("UNDECLARED",)]
    assert 'it says that it needs none ("no layer adds")' in launched.findings[0].message


# Several kernels.


def test_envelopes_of_one_kernel_are_united():
    kernel = k.ScaleKernel()
    plan = plan_of((kernel, {}), (k.Nothing, {}), (k.Copy, {}))
    low, high = scale_envelope(kernel, high=32), scale_envelope(kernel, low=33)
    both = prove_envelopes([low, high], plan)
    assert [(one.kernel, one.verdict, one.unreached) for one in both.kernels] == [
        ("Scale", "PROVED", 0),
        ("Copy", "SAMPLED", 6),
        ("Nothing", "NO KEYS", 0),
    ]
    assert said(both, "kernel", "owners") == [("UNREACHED", "Copy", ("layer2",))]
    assert prove_envelopes([low], plan).kernels[0].unreached == 6


def test_a_key_that_another_kernel_needs_is_reached():
    plan = [*plan_of((k.Copy, {"n": (1,), "x": (k.X,)})).keys()]
    twice = [*plan, msgspec.structs.replace(plan[0], kernel="Twin")]
    space = {"n": Ints(1, 1)}
    proof = prove_envelopes([Envelope(k.Copy, "", space, copy_launch)], twice)
    assert [(one.kernel, one.unreached) for one in proof.kernels] == [("Copy", 0), ("Twin", 0)]


def test_seconds_of_unreached_keys():
    plan = plan_of((k.Copy, {}))
    seconds = dict.fromkeys(plan.backend_keys, 1.25)
    proof = prove(k.Copy, plan, [copy_launch(n) for n in (1, 16, 17)], seconds=seconds)
    assert "(50%, 3.75 s of warm-up)" in proof.findings[0].message


def test_a_plan_may_come_as_keys_or_items():
    plan = plan_of((k.Copy, {}))
    envelope = Envelope(k.Copy, "", {"n": Ints(1, 99)}, copy_launch)
    one, two, three = (prove(k.Copy, p, envelope) for p in (plan, plan.items, plan.keys()))
    assert one.kernels == two.kernels == three.kernels


# Form and errors.


def test_a_proof_encodes_to_json():
    proof = prove(BANDS, [1, 2, 3], band_envelope(64))
    assert msgspec.json.decode(msgspec.json.encode(proof), type=Proof) == proof


def test_digest_and_fingerprint_tell_key_sets_apart():
    one, same, other = (prove(BANDS, (), band_envelope(high)) for high in (64, 63, 65))
    assert one.kernels[0].digest == same.kernels[0].digest != other.kernels[0].digest
    plan = plan_of((k.Copy, {}))
    assert fingerprint(plan) == fingerprint(reversed(plan.keys()))
    assert fingerprint(plan) != fingerprint(plan.keys()[:-1])


def test_errors():
    with pytest.raises(WrongKindError, match="is no kernel that can be proved"):
        prove(print, (), [{}])
    with pytest.raises(DeclarationError, match="envelope of another kernel"):
        prove(k.Copy, (), band_envelope(3))
    with pytest.raises(DeclarationError, match="got a int"):
        prove(BANDS, (), [3])
    with pytest.raises(WrongKindError, match="a plan holds PlanKey or PlanItem objects, got a str"):
        prove(k.Copy, ["text"], [{}])
    for plan in (3, "text"):
        with pytest.raises(WrongKindError, match="a plan is a Plan, its items or its keys, got a"):
            prove(k.Copy, plan, [{}])
    for launches in (None, 3, copy_launch):
        with pytest.raises(DeclarationError, match="launches are an Envelope, or an iterable of"):
            prove(k.Copy, (), launches)
    for launches in ([{}], scale_envelope(k.ScaleKernel())):
        with pytest.raises(WrongKindError, match="ScaleKernel is a class, and an object of it is"):
            prove(k.ScaleKernel, None, launches)


def test_public_names():
    assert jitwarm.prove is prove
    assert {"prove", "prove_envelopes", "Envelope", "Ints", "Values", "KeyFunction"} <= set(
        jitwarm.__all__
    )
