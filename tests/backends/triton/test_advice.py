"""The advice is right: a kernel that was changed as advised has one key for both launches."""

from __future__ import annotations

import pytest
import triton
import triton.language as tl

from jitwarm.backends.triton.binder import bind
from jitwarm.backends.triton.in_memory import keys_in_memory
from jitwarm.backends.triton.keytext import parse_key
from jitwarm.declare import TensorSpec
from jitwarm.judge.explain import explain_miss
from jitwarm.observe.monitor import Monitor

pytestmark = pytest.mark.triton
X, ODD = TensorSpec("float32"), TensorSpec("float32", aligned=False)


def plain(x_ptr, n):
    tl.store(x_ptr, n)


def signed(x_ptr, n: tl.int64):
    tl.store(x_ptr, n)


def unsigned(x_ptr, n: tl.uint64):
    tl.store(x_ptr, n)


KERNEL = triton.jit(plain)
FREE = triton.jit(plain, do_not_specialize=["n"])
CASES = {
    "class": ((X, 16), (X, 17), "add `n` to do_not_specialize", FREE),
    "one": ((X, 16), (X, 1), "add `n` to do_not_specialize", FREE),
    "width": ((X, 16), (X, 2**31), "annotate `n: tl.int64`", triton.jit(signed)),
    "width and class": (
        (X, 16),
        (X, 2**31 + 1),
        (
            "annotate `n: tl.int64`, so that its width does not depend on its value, and add it to "
            "do_not_specialize"
        ),
        triton.jit(signed, do_not_specialize=["n"]),
    ),
    "width from one": (
        (X, 1),
        (X, 2**31 + 1),
        (
            "annotate `n: tl.int64`, so that its width does not depend on its value, and add it to "
            "do_not_specialize"
        ),
        triton.jit(signed, do_not_specialize=["n"]),
    ),
    "unsigned": ((X, 16), (X, 2**63), "annotate `n: tl.uint64`", triton.jit(unsigned)),
    "alignment": (
        (X, 16),
        (ODD, 16),
        "add `x_ptr` to do_not_specialize_on_alignment",
        triton.jit(plain, do_not_specialize_on_alignment=["x_ptr"]),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_as_advised_there_is_one_key(stub, name):
    warmed, launched, advice, changed = CASES[name]
    before = [bind(KERNEL, arguments, {}).text for arguments in (warmed, launched)]
    assert before[0] != before[1]
    assert advice in explain_miss("K", before[1], before[:1]).advice
    after = {bind(changed, arguments, {}).text for arguments in (warmed, launched)}
    assert len(after) == 1


def test_without_specialisation_the_width_still_splits_a_key(stub):
    """So the advice for a width is never do_not_specialize alone."""
    narrow, wide = (bind(FREE, (X, n), {}).text for n in (16, 2**31))
    assert narrow != wide
    assert explain_miss("K", wide, [narrow]).advice == (
        "annotate `n: tl.int64`, so that its width does not depend on its value"
    )


@triton.jit
def pairs(x_ptr, y_ptr, s, MODE: tl.constexpr):
    tl.store(x_ptr, s[0])


@pytest.mark.parametrize(
    ("launched", "advice"),
    [
        (
            (X, None, (16, 3), "a"),
            "`y_ptr` as the constant None (warmed as *fp32 pointer aligned to 16 bytes)",
        ),
        (
            (X, X, (17, 3), "a"),
            "`s[0]` as i32 not divisible by 16 (warmed as i32 divisible by 16)",
        ),
        ((X, X, (16, 3), "b"), "`MODE` as the constant 'b' (warmed as the constant 'a')"),
    ],
)
def test_what_can_only_be_declared_is_named_with_both_values(stub, launched, advice):
    warmed, seen = (bind(pairs, a, {}).text for a in ((X, X, (16, 3), "a"), launched))
    assert explain_miss("K", seen, [warmed]).advice == f"declare this launch too: {advice}"


@triton.jit
def held(x_ptr, n, stride: tl.int64, BLOCK: tl.constexpr):
    tl.store(x_ptr + tl.arange(0, BLOCK), n + stride)


@pytest.mark.parametrize("watched", [True, False])
def test_the_keys_that_triton_has_in_memory(stub, watched):
    held.device_caches.clear()
    launches = [((X, 17, 1), 16), ((ODD, 1, 16), 16), ((X, 2**31, 3), 32)]
    expected = [bind(held, a, {"BLOCK": b, "num_warps": 8}).text for a, b in launches]
    with Monitor("record" if watched else "off"):
        for arguments, block in launches:
            held.warmup(*arguments, BLOCK=block, num_warps=8, grid=(1,))
    path, _ = parse_key(expected[0])
    assert keys_in_memory(path) == expected
    held.device_caches[0][0]["other"] = object()  # something that stands for a kernel
    assert keys_in_memory(path) == expected
    held.device_caches.clear()
    assert keys_in_memory(path) == []
    assert keys_in_memory("no.such.kernel") == []
