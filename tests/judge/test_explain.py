"""Why a launch missed, in words, against the nearest warmed key."""

from __future__ import annotations

import pytest

from jitwarm.findings import Finding
from jitwarm.judge.explain import explain_miss, explain_tuning


def key(options="", kernel="m.k", **arguments):
    inner = "; ".join(f"{name}:{value}" for name, value in arguments.items())
    return f"{kernel}[{inner}]{{cuda:90{options}}}"


CLASS = (
    "declare this class of `n` too (1, multiples of 16 and all other values are three binaries), "
    "or add `n` to do_not_specialize"
)
SINGLE = (
    ", or if the kernel reads single elements through it, add `x` to do_not_specialize_on_alignment"
)
PAIRS = {
    "alignment": (
        key(x="*fp32/D"),
        key(x="*fp32/"),
        (
            "`x`: warmed as *fp32 pointer aligned to 16 bytes, "
            "launched as *fp32 pointer not aligned to 16 bytes"
        ),
        f"declare the unaligned `x` too{SINGLE}",
    ),
    "alignment, the other way": (
        key(x="*fp32/"),
        key(x="*fp32/D"),
        (
            "`x`: warmed as *fp32 pointer not aligned to 16 bytes, "
            "launched as *fp32 pointer aligned to 16 bytes"
        ),
        f"declare the aligned `x` too{SINGLE}",
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
        CLASS,
    ),
    "one": (
        key(n="i32/D"),
        key(n="constexpr=1"),
        "`n`: warmed as i32 divisible by 16, launched as the constant 1",
        CLASS,
    ),
    "no longer one": (
        key(n="constexpr=1"),
        key(n="i32/"),
        "`n`: warmed as the constant 1, launched as i32 not divisible by 16",
        CLASS,
    ),
    "annotated one": (
        key(n="i64/"),
        key(n="i64/1"),
        "`n`: warmed as i64 not divisible by 16, launched as i64 equal to 1",
        CLASS,
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
        (
            "declare `B=1` too, or if traffic decides `B`, make it a run-time argument or round it "
            "to a warmed value (16): a constexpr compiles a kernel for each value"
        ),
    ),
    "pointer left out": (
        key(x="*fp32/D"),
        key(x="constexpr=None"),
        "`x`: warmed as *fp32 pointer aligned to 16 bytes, launched as the constant None",
        (
            "declare this launch too: `x` as the constant None (warmed as *fp32 pointer aligned to "
            "16 bytes)"
        ),
    ),
    "tuple": (
        key(x="(i32/D, fp32)"),
        key(x="(i32/, fp32)"),
        "`x`: warmed as (i32/D, fp32), launched as (i32/, fp32)",
        (
            "declare this launch too: `x[0]` as i32 not divisible by 16 (warmed as i32 divisible "
            "by 16)"
        ),
    ),
    "tuple in a tuple, and a constant": (
        key(x="(i32, (i32/D, *fp32/D), constexpr=2)"),
        key(x="(i32, (i32/D, *bf16/D), constexpr=None)"),
        (
            "`x`: warmed as (i32, (i32/D, *fp32/D), constexpr=2), launched as "
            "(i32, (i32/D, *bf16/D), constexpr=None)"
        ),
        (
            "declare this launch too: `x[1][1]` as *bf16 pointer aligned to 16 bytes (warmed as "
            "*fp32 pointer aligned to 16 bytes), `x[2]` as the constant None (warmed as the "
            "constant 2)"
        ),
    ),
    "tuple of another length": (
        key(x="(i32, i32)"),
        key(x="(i32,)"),
        "`x`: warmed as (i32, i32), launched as (i32,)",
        "declare this launch too: `x` as (i32,) (warmed as (i32, i32))",
    ),
    "constant tuple": (
        key(S="constexpr=('a, \\'(', 3, 4)"),
        key(S="constexpr=('a, \\'(', 3, 5)"),
        "`S`: warmed as the constant ('a, \\'(', 3, 4), launched as the constant ('a, \\'(', 3, 5)",
        "declare this launch too: `S[2]` as the constant 5 (warmed as the constant 4)",
    ),
    "constant tuple of one": (
        key(S="constexpr=(4,)"),
        key(S="constexpr=(5,)"),
        "`S`: warmed as the constant (4,), launched as the constant (5,)",
        "declare this launch too: `S[0]` as the constant 5 (warmed as the constant 4)",
    ),
    "string": (
        key(S="constexpr='a'"),
        key(S="constexpr='b'"),
        "`S`: warmed as the constant 'a', launched as the constant 'b'",
        "declare this launch too: `S` as the constant 'b' (warmed as the constant 'a')",
    ),
    "option": (
        key(n="i32"),
        key("; num_warps=8", n="i32"),
        "`num_warps`: warmed as its default, launched as 8",
        ("declare this launch too, or launch with the `num_warps` that is warmed: its default"),
    ),
    "option left out": (
        key("; num_warps=8", n="i32"),
        key(n="i32"),
        "`num_warps`: warmed as 8, launched as its default",
        "declare this launch too, or launch with the `num_warps` that is warmed: 8",
    ),
    "option named like an argument": (
        key("; num_warps=8", num_warps="constexpr=8"),
        key("; num_warps=4", num_warps="constexpr=8"),
        "`{num_warps}`: warmed as 8, launched as 4",
        "declare this launch too, or launch with the `{num_warps}` that is warmed: 8",
    ),
}


@pytest.mark.parametrize("name", PAIRS)
def test_one_difference(name):
    warmed, seen, words, advice = PAIRS[name]
    finding = explain_miss("K", seen, [warmed])
    assert (finding.kind, finding.kernel) == ("MISS", "K")
    assert finding.message == f"K: {words}"
    assert finding.advice == advice


def test_a_tuple_is_told_against_the_nearest_of_equally_near_keys():
    warmed = [key(x="(i32/D, fp32)"), key(x="(i32/, i32)")]
    assert explain_miss("K", key(x="(i32/D, i32/1)"), warmed).advice == (
        "declare this launch too: `x[1]` as i32 equal to 1 (warmed as fp32 (not specialised))"
    )
    strings = [key(S="constexpr='a'"), key(S="constexpr='c'")]
    assert explain_miss("K", key(S="constexpr='b'"), strings).advice == (
        "declare this launch too: `S` as the constant 'b' (warmed as the constants 'a', 'c')"
    )


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
        "`num_warps` as 8; or if the kernel reads single elements through it, add `x` to "
        "do_not_specialize_on_alignment, and launch with the `num_warps` that is warmed: its "
        "default",
    )


SEVERAL = {
    "a constant that goes with a pointer": (
        key(bias="constexpr=None", HAS_BIAS="constexpr=False"),
        key(bias="*bf16/D", HAS_BIAS="constexpr=True"),
        (
            "declare this launch too: `bias` as *bf16 pointer aligned to 16 bytes (warmed as the "
            "constant None), `HAS_BIAS` as the constant True (warmed as the constant False)"
        ),
    ),
    "constants": (
        key(A="constexpr=1", B="constexpr=2"),
        key(A="constexpr=3", B="constexpr='x'"),
        (
            "declare this launch too: `A` as the constant 3, `B` as the constant 'x' (warmed as "
            "the constant 2); to need fewer keys, if traffic decides `A`, make it a run-time "
            "argument or round it to a warmed value (1): a constexpr compiles a kernel for each "
            "value"
        ),
    ),
    "each with an advice of its own": (
        key(x="*fp32/D", n="i32/D"),
        key(x="*bf16/D", n="i32/"),
        (
            "declare this launch too: `x` as *bf16 pointer aligned to 16 bytes, `n` as i32 not "
            "divisible by 16; to need fewer keys, add `n` to do_not_specialize"
        ),
    ),
    "an option left out": (
        key("; num_warps=8", A="constexpr=1"),
        key(A="constexpr=2"),
        (
            "declare this launch too: `A` as the constant 2, `num_warps` as its default; or if "
            "traffic decides `A`, make it a run-time argument or round it to a warmed value (1): a "
            "constexpr compiles a kernel for each value, and launch with the `num_warps` that is "
            "warmed: 8"
        ),
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
        "AUTOTUNE",
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
        "AUTOTUNE",
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
    # The key does not tell the two causes apart, so neither is told as a fact.
    assert finding.message == (
        "K was warmed with this key, and yet the launch did not find it in memory: it spells its "
        "options in another way, or the kernel's caches were cleared meanwhile"
    )
    assert finding.advice == (
        "write the options in the declaration as the launch does, in the same order; where they "
        "are, look for who clears the kernel's device_caches"
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
        advice="declare this key too: get_warmup_keys has to yield it; if traffic decides `d`, "
        "round in dispatch: each value compiles a kernel",
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


def test_a_tuning_tells_its_configurations_and_its_time():
    finding = explain_tuning("K", tuning(n=3), [tuning(n=1)], configs=4, ms=12.34)
    assert finding.message == (
        "K timed 4 configurations against each other while serving, for 12.3 ms: `n`: warmed as 1, "
        "launched as 3"
    )
    assert (
        "timed 1 configuration against" in explain_tuning("K", tuning(n=3), [], configs=1).message
    )


@pytest.mark.parametrize(
    ("kind", "expected"), [("compile", "MISS"), ("refused", "DISK-HIT"), ("disk_hit", "DISK-HIT")]
)
def test_a_ready_key_that_was_compiled_again_is_no_disk_hit(kind, expected):
    finding = explain_miss("K", key(n="i32"), [key(n="i32")], kind=kind)
    assert finding.kind == expected
    assert "clears the kernel's device_caches" in finding.advice
    cute = explain_miss("K", other("d=1"), [other("d=1")], kind=kind)
    assert cute.kind == ("DISK-HIT" if kind == "disk_hit" else "MISS")


STRIDES = {
    "padding": (
        "i32/D",
        "i32/",
        {"x_stride": 1920},
        {"x_stride": 1921},
        (
            "`x_stride`: warmed as i32 divisible by 16 (1920), launched as i32 not divisible by 16 "
            "(1921)"
        ),
        (
            "warm up with the strides of the real tensor, whose width with its padding decides "
            "`x_stride`: warm-up used 1920, this launch has 1921, or pad the tensor to a multiple "
            "of 16, or add `x_stride` to do_not_specialize"
        ),
    ),
    "one": (
        "i32/",
        "constexpr=1",
        {"x_stride": 3},
        {"x_stride": 1},
        "`x_stride`: warmed as i32 not divisible by 16 (3), launched as the constant 1",
        (
            "warm up with the strides of the real tensor, whose width with its padding decides "
            "`x_stride`: warm-up used 3, this launch has 1, or add `x_stride` to "
            "do_not_specialize, which costs the vector loads of a stride that is known to be 1"
        ),
    ),
    "warmed as one": (
        "constexpr=1",
        "i32/D",
        {},
        {"x_stride": 64},
        "`x_stride`: warmed as the constant 1, launched as i32 divisible by 16 (64)",
        (
            "warm up with the strides of the real tensor, whose width with its padding decides "
            "`x_stride`: warm-up used 1, this launch has 64, or add `x_stride` to "
            "do_not_specialize, which costs the vector loads of a stride that is known to be 1"
        ),
    ),
    "wider": (
        "i32/",
        "i32/D",
        {},
        {},
        "`x_stride`: warmed as i32 not divisible by 16, launched as i32 divisible by 16",
        (
            "warm up with the strides of the real tensor, whose width with its padding decides "
            "`x_stride`, or add `x_stride` to do_not_specialize"
        ),
    ),
}


@pytest.mark.parametrize("name", STRIDES)
def test_a_stride_is_explained_by_its_tensor(name):
    was, now, used, seen, words, advice = STRIDES[name]
    warmed, launched = key(x_stride=was), key(x_stride=now)
    finding = explain_miss("K", launched, [warmed], values=seen, warmed_values={warmed: used})
    assert finding.message == f"K: {words}"
    assert finding.advice == advice


WIDTHS = {
    "specialised": ("i32/D", "i64/D", "int64", False),
    "not specialised": ("i32", "i64", "int64", False),
    "with another class": ("i32/D", "i64/", "int64", True),
    "from 1": ("constexpr=1", "i64/", "int64", True),
    "back": ("i64/", "i32/", "int64", False),
    "unsigned": ("i32/", "u64/", "uint64", False),
    "unsigned and signed": ("i64/", "u64/", "uint64", False),
}


@pytest.mark.parametrize("name", WIDTHS)
def test_a_width_is_annotated(name):
    was, now, wide, classes_too = WIDTHS[name]
    advice = explain_miss("K", key(n=now), [key(n=was)]).advice
    assert advice == (
        f"annotate `n: tl.{wide}`, so that its width does not depend on its value"
        f"{', and add it to do_not_specialize' if classes_too else ''}"
    )


def test_of_equally_near_classes_the_likest_decides_the_advice():
    near = [key(n="constexpr=1"), key(n="i32/D")]
    finding = explain_miss("K", key(n="i64/D"), near, values={"n": 2**31})
    assert finding.advice.endswith("does not depend on its value")
    assert "launched as i64 divisible by 16 (2147483648)" in finding.message


@pytest.mark.parametrize("was", ["i32/D", "u1", "constexpr=1"])
def test_another_type_of_number_is_said_to_be_one(was):
    assert explain_miss("K", key(n="fp32"), [key(n=was)]).advice == (
        "declare this launch too, or pass `n` as one type always: a whole number, a bool and a "
        "float differ"
    )


def test_another_architecture_is_another_device():
    seen = "m.k[n:i32]{cuda:100}"
    assert explain_miss("K", seen, [key(n="i32")]).advice == (
        "warm up on the device that launches: a binary is for one architecture"
    )
    cute = "m.K[d=1]{sm_100a; --enable-tvm-ffi}"
    assert explain_miss("K", cute, [other("d=1")]).advice == (
        "declare this key too: get_warmup_keys has to yield it; warm up on the device that "
        "launches: a binary is for one architecture"
    )


@pytest.mark.parametrize("value", ["True", "'4'", "None", "nan"])
def test_only_numbers_are_sizes(value):
    finding = explain_miss("K", key(B=f"constexpr={value}"), [key(B="constexpr=4")])
    assert finding.advice == (
        f"declare this launch too: `B` as the constant {value} (warmed as the constant 4)"
    )


def test_the_options_of_another_backend_are_to_be_those_of_the_launch():
    finding = explain_miss("K", other("d=1", "--opt-level 3"), [other("d=1")])
    assert finding.advice.endswith("compile with the options of the launch")


FA4 = "flash_attn.cute.interface._flash_attn_fwd[{}]{{sm_90a{}}}"


@pytest.mark.parametrize(
    ("was", "now", "words"),
    [
        (("tile_m=128", ""), ("tile_m=64", ""), "`tile_m`: it follows from the lengths"),
        (("d=1", ""), ("d=1; page_table=True", ""), "`page_table`: it says which optional tensors"),
        (("log_level=0", ""), ("log_level=2", ""), "`log_level`: set FA_LOG_LEVEL alike"),
        (("d=1", "; num_sms=132"), ("d=1", "; num_sms=148"), "`num_sms`: the number of SMs is"),
        (("broadcast='4'", ""), ("broadcast='4@2'", ""), "`broadcast`: an expanded tensor"),
    ],
)
def test_fields_of_flash_attention_say_where_they_come_from(was, now, words):
    finding = explain_miss("K", FA4.format(*now), [FA4.format(*was)])
    assert f"; {words}" in finding.advice
    assert finding.field in words
