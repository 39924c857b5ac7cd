"""Why a launch missed, in words, against the nearest warmed key."""

from __future__ import annotations

import pytest

from jitwarm.explain import explain_miss, explain_tuning
from jitwarm.findings import Finding


def key(options="", kernel="m.k", **arguments):
    inner = "; ".join(f"{name}:{value}" for name, value in arguments.items())
    return f"{kernel}[{inner}]{{cuda:90{options}}}"


PAIRS = {
    "alignment": (
        key(x="*fp32/D"),
        key(x="*fp32/"),
        (
            "`x`: warmed as *fp32 pointer aligned to 16 bytes, "
            "launched as *fp32 pointer not aligned to 16 bytes"
        ),
        "declare the unaligned `x` too, or add it to do_not_specialize_on_alignment",
    ),
    "alignment, the other way": (
        key(x="*fp32/"),
        key(x="*fp32/D"),
        (
            "`x`: warmed as *fp32 pointer not aligned to 16 bytes, "
            "launched as *fp32 pointer aligned to 16 bytes"
        ),
        "declare the aligned `x` too, or add it to do_not_specialize_on_alignment",
    ),
    "dtype": (
        key(x="*fp32/D"),
        key(x="*bf16/D"),
        (
            "`x`: warmed as *fp32 pointer aligned to 16 bytes, "
            "launched as *bf16 pointer aligned to 16 bytes"
        ),
        "declare `x` with this dtype too",
    ),
    "divisibility": (
        key(n="i32/D"),
        key(n="i32/"),
        "`n`: warmed as i32 divisible by 16, launched as i32 not divisible by 16",
        "declare this class of `n` too, or add it to do_not_specialize",
    ),
    "one": (
        key(n="i32/D"),
        key(n="constexpr=1"),
        "`n`: warmed as i32 divisible by 16, launched as the constant 1",
        "declare this class of `n` too, or add it to do_not_specialize",
    ),
    "no longer one": (
        key(n="constexpr=1"),
        key(n="i32/"),
        "`n`: warmed as the constant 1, launched as i32 not divisible by 16",
        "declare this class of `n` too, or add it to do_not_specialize",
    ),
    "annotated one": (
        key(n="i64/"),
        key(n="i64/1"),
        "`n`: warmed as i64 not divisible by 16, launched as i64 equal to 1",
        "declare this class of `n` too, or add it to do_not_specialize",
    ),
    "width": (
        key(n="i32"),
        key(n="i64"),
        "`n`: warmed as i32 (not specialised), launched as i64 (not specialised)",
        "annotate `n: tl.int64`, so that its width does not depend on its value",
    ),
    "constant": (
        key(B="constexpr=16"),
        key(B="constexpr=1"),
        "`B`: warmed as the constant 16, launched as the constant 1",
        "declare this launch too",
    ),
    "pointer left out": (
        key(x="*fp32/D"),
        key(x="constexpr=None"),
        "`x`: warmed as *fp32 pointer aligned to 16 bytes, launched as the constant None",
        "declare this launch too",
    ),
    "tuple": (
        key(x="(i32/D, fp32)"),
        key(x="(i32/, fp32)"),
        "`x`: warmed as (i32/D, fp32), launched as (i32/, fp32)",
        "declare this launch too",
    ),
    "option": (
        key(n="i32"),
        key("; num_warps=8", n="i32"),
        "`num_warps`: warmed as its default, launched as 8",
        "declare this launch too",
    ),
    "option left out": (
        key("; num_warps=8", n="i32"),
        key(n="i32"),
        "`num_warps`: warmed as 8, launched as its default",
        "declare this launch too",
    ),
    "option named like an argument": (
        key("; num_warps=8", num_warps="constexpr=8"),
        key("; num_warps=4", num_warps="constexpr=8"),
        "`{num_warps}`: warmed as 8, launched as 4",
        "declare this launch too",
    ),
}


@pytest.mark.parametrize("name", PAIRS)
def test_one_difference(name):
    warmed, seen, words, advice = PAIRS[name]
    finding = explain_miss("K", seen, [warmed])
    assert (finding.kind, finding.kernel) == ("MISS", "K")
    assert finding.message == f"K: {words}"
    assert finding.advice == advice


def test_several_differences_against_the_nearest_key():
    seen = key("; num_warps=8", x="*fp32/", n="i32/D", B="constexpr=64")
    warmed = [
        key(x="*bf16/D", n="i32/", B="constexpr=32"),
        key(x="*fp32/D", n="i32/D", B="constexpr=64"),
        key("; num_warps=8", kernel="m.other", x="*fp32/", n="i32/D", B="constexpr=64"),
    ]
    assert explain_miss("K", seen, warmed) == Finding(
        "MISS",
        "K",
        "K: `x`: warmed as *fp32 pointer aligned to 16 bytes, launched as *fp32 pointer not "
        "aligned to 16 bytes; `num_warps`: warmed as its default, launched as 8",
        field="x, num_warps",
        warmed="*fp32/D, absent",
        seen="*fp32/, 8",
        advice="declare this launch too: `x` as *fp32 pointer not aligned to 16 bytes, "
        "`num_warps` as 8",
    )


SEVERAL = {
    "a constant that goes with a pointer": (
        key(bias="constexpr=None", HAS_BIAS="constexpr=False"),
        key(bias="*bf16/D", HAS_BIAS="constexpr=True"),
        (
            "declare this launch too: `bias` as *bf16 pointer aligned to 16 bytes, "
            "`HAS_BIAS` as the constant True"
        ),
    ),
    "constants": (
        key(A="constexpr=1", B="constexpr=2"),
        key(A="constexpr=3", B="constexpr='x'"),
        "declare this launch too: `A` as the constant 3, `B` as the constant 'x'",
    ),
    "each with an advice of its own": (
        key(x="*fp32/D", n="i32/D"),
        key(x="*bf16/D", n="i32/"),
        (
            "declare `x` with this dtype too; "
            "declare this class of `n` too, or add it to do_not_specialize"
        ),
    ),
    "an option left out": (
        key("; num_warps=8", A="constexpr=1"),
        key(A="constexpr=2"),
        "declare this launch too: `A` as the constant 2, `num_warps` as its default",
    ),
}


@pytest.mark.parametrize("name", SEVERAL)
def test_the_advice_covers_every_field_that_differs(name):
    warmed, seen, advice = SEVERAL[name]
    assert explain_miss("K", seen, [warmed]).advice == advice


def tuning(kernel="m.k", **values):
    return f"{kernel}[{'; '.join(f'{name}:{value}' for name, value in values.items())}]{{tune}}"


def test_a_late_tuning_names_the_values_that_were_warmed_and_the_one_that_was_launched():
    chosen = [tuning(M=m, N=8, x="float32") for m in (16, 8, 1)]
    chosen += [tuning(M=64, N=4, x="bfloat16"), tuning(kernel="m.other", M=64, N=8, x="float32")]
    assert explain_tuning("K", tuning(M=64, N=8, x="float32"), chosen) == Finding(
        "MISS",
        "K",
        "K timed its configurations against each other while serving: `M`: warmed as 1, 8, 16, "
        "launched as 64",
        field="M",
        warmed="1, 8, 16",
        seen="64",
        advice="declare a case with `M=64`",
    )


def test_a_late_tuning_of_several_values():
    seen = tuning(M="None", mode="'a; b'", x="float16")
    finding = explain_tuning("K", seen, [tuning(M=1, mode="'c'", x="float32", n=2)])
    assert finding.advice == (
        "declare a case with `M=None`, `mode='a; b'`, `x` of dtype float16, no `n`"
    )
    assert finding.warmed == "1; 'c'; float32; 2"
    assert finding.seen == "None; 'a; b'; float16; absent"


@pytest.mark.parametrize("chosen", [[], [tuning(n=1), tuning(n=2)], [tuning("m.other", n=2)]])
def test_a_late_tuning_that_no_value_explains(chosen):
    assert explain_tuning("K", tuning(n=1 if chosen[1:] else 3), chosen) == Finding(
        "MISS",
        "K",
        "K timed its configurations against each other while serving",
        seen=tuning(n=1 if chosen[1:] else 3),
        advice="tune it at start-up, or keep the choice of an earlier run",
    )


def test_of_two_equally_near_keys_the_choice_does_not_depend_on_the_order():
    seen, warmed = key(n="i32/"), [key(n="i32/D"), key(n="constexpr=1")]
    assert explain_miss("K", seen, warmed) == explain_miss("K", seen, warmed[::-1])


def test_a_kernel_that_was_not_warmed_at_all():
    seen = key(n="i32")
    assert explain_miss("K", seen, [key(kernel="m.other", n="i32")]) == Finding(
        "UNDECLARED",
        "K",
        "K was launched, and no key of it was warmed",
        seen=seen,
        advice="declare and register this kernel, or see why its declaration failed",
    )


def test_a_key_that_was_ready_and_yet_was_fetched():
    seen = key(n="i32")
    finding = explain_miss("K", seen, [seen])
    assert (finding.kind, finding.seen) == ("DISK-HIT", seen)
    assert finding.advice == (
        "write the options in the declaration as the launch does, in the same order"
    )


def test_strings_that_look_like_fields_are_no_fields():
    warmed = key(S="constexpr='a; n:i32'", n="i32")
    finding = explain_miss("K", key(S="constexpr='b; n:i64'", n="i32"), [warmed])
    assert (finding.field, finding.warmed) == ("S", "constexpr='a; n:i32'")


def test_all_equally_near_constants_are_named():
    def key(block):
        return f"m._k[n:i32; BLOCK:constexpr={block}]{{cuda:90}}"

    finding = explain_miss("K", key(4), [key(block) for block in (16, 1, 8, 2)])
    assert finding.message == (
        "K: `BLOCK`: warmed as the constants 1, 2, 8, 16, launched as the constant 4"
    )
    assert (finding.field, finding.seen) == ("BLOCK", "constexpr=4")


def other(fields, options="--enable-tvm-ffi"):
    return f"m.K[{fields}]{{sm_90a; {options}}}"


def test_a_key_of_another_backend_is_explained_by_its_fields():
    warmed = [other(f"d={d}; causal={causal}") for d in (128, 64) for causal in (False, True)]
    finding = explain_miss("K", other("d=96; causal=True"), warmed)
    assert finding == Finding(
        "MISS",
        "K",
        "K: `d`: warmed as 64 or 128, launched as 96",
        field="d",
        warmed="128",
        seen="96",
        advice="declare this key too: get_warmup_keys has to yield it",
    )


def test_the_target_and_the_options_of_another_backend_are_fields_too():
    finding = explain_miss("K", other("d=1", "--opt-level 3"), [other("d=1; s='a; b=2'")])
    assert finding.field == "s, options"
    assert finding.seen == "absent, --opt-level 3"
    assert "`s`: warmed as 'a; b=2', launched as absent" in finding.message


def test_a_key_of_another_backend_that_was_ready_and_yet_was_compiled():
    seen = other("d=1")
    finding = explain_miss("K", seen, [seen, other("d=2")])
    assert (finding.kind, finding.field) == ("MISS", "")
    assert finding.message == "K was warmed with this key, and yet it was compiled again"


def test_a_key_of_another_backend_that_nobody_warmed():
    assert explain_miss("K", other("d=1"), [key(n="i32")]).kind == "UNDECLARED"
    assert explain_miss("K", "m.K[0123456789abcdef]{sm_90a}", []).kind == "UNDECLARED"
