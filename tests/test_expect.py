"""Blocks in which nothing may compile."""

from __future__ import annotations

import contextlib
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
import triton
import triton.language as tl

from jitwarm.backends import sinks
from jitwarm.backends.miss import Miss
from jitwarm.backends.triton.binder import bind
from jitwarm.declare import TensorSpec
from jitwarm.errors import CompileRefused, UnexpectedCompiles, UsageError
from jitwarm.expect import counted, expect_no_compiles
from jitwarm.observe import phases
from jitwarm.observe.monitor import Monitor

pytestmark = pytest.mark.triton
X = TensorSpec("float32")


@triton.jit
def fill(x_ptr, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(x_ptr + at, at, mask=at < n)


@pytest.fixture(autouse=True)
def _cold():
    """What was compiled while nobody watched is not known to `stub`."""
    fill.device_caches.clear()


def launch(n=17):
    return fill[(1,)](torch.zeros(16), n, BLOCK=16)


def key(n=17):
    return bind(fill, (X, n), {"BLOCK": 16}).text


def counts(watch):
    return watch.compiles, watch.disk_hits, watch.loads, watch.tunes


def test_a_warm_block_passes_and_its_counters_stay_readable(stub):
    launch()
    with expect_no_compiles() as watch:
        launch(33)
        assert counts(watch) == (0, 0, 0, 0)
    assert (counts(watch), watch.events, watch.findings()) == ((0, 0, 0, 0), [], ())


def test_a_compile_is_an_assertion_error_that_says_why_and_where(stub):
    launch(32)
    inside = []
    with pytest.raises(AssertionError) as raised, expect_no_compiles() as watch:
        inside.append((launch(33), counts(watch)))
    assert inside[0][1] == (1, 0, 1, 0)
    error = raised.value
    assert isinstance(error, UnexpectedCompiles) and error.exit_code == 3
    assert counts(watch) == (1, 0, 1, 0)
    assert [event.key for event in error.events] == [key(33)]
    [finding] = error.findings
    assert (finding.kind, finding.field, finding.warmed, finding.seen) == (
        "MISS",
        "n",
        "i32/D",
        "i32/",
    )
    head, what, advice = str(error).splitlines()
    assert head == "1 compile where none was expected"
    # Compared with what Triton has in memory, though nobody watched when that was compiled.
    words = "`n`: warmed as i32 divisible by 16, launched as i32 not divisible by 16 (33)"
    assert what.startswith(f"  MISS {__name__}.fill: {words} (")
    assert what.endswith(f" at {launch.__code__.co_filename}:{launch.__code__.co_firstlineno + 1}")
    assert advice == (
        "    do: declare this class of `n` too (1, multiples of 16 and all other values are three "
        "binaries), or add `n` to do_not_specialize"
    )


def test_the_plan_explains_and_names_the_numbers(stub):
    from jitwarm.plan import PlanKey

    planned = PlanKey("Fill", "triton", "Fill(32)", key(32), "layers.0", 61, {"n": 32})
    with (
        pytest.raises(UnexpectedCompiles, match=r"\[layers\.0, 60 more\]") as raised,
        expect_no_compiles(plan=[planned]),
    ):
        launch(33)
    [finding] = raised.value.findings
    assert finding.kernel == "Fill"
    assert "divisible by 16 (32), launched as i32 not divisible by 16 (33)" in finding.message
    assert finding.owners == ("layers.0", "60 more")


def test_a_binary_on_disk_is_told_as_such(stub):
    launch()
    fill.device_caches.clear()
    with (
        pytest.raises(UnexpectedCompiles, match="^1 disk hit where") as raised,
        expect_no_compiles() as watch,
    ):
        launch()
    assert counts(watch) == (0, 1, 1, 0)
    [finding] = raised.value.findings
    assert finding.kind == "DISK-HIT"
    assert "was read from disk while serving" in finding.message


def test_loads_are_expected_unless_said_otherwise(stub):
    fill.warmup(X, 17, BLOCK=16, grid=(1,))
    with expect_no_compiles() as watch:
        launch()
    assert counts(watch) == (0, 0, 1, 0)
    fill.device_caches.clear()
    fill.warmup(X, 17, BLOCK=16, grid=(1,))
    with (
        pytest.raises(UnexpectedCompiles, match="^1 load where") as raised,
        expect_no_compiles(loads=True),
    ):
        launch()
    assert [finding.kind for finding in raised.value.findings] == ["NOT-EXECUTED"]


def test_a_warm_up_inside_of_the_block_counts(stub):
    with (
        pytest.raises(UnexpectedCompiles, match="1 compile, 1 load where") as raised,
        expect_no_compiles(loads=True) as watch,
        phases.phase("warm"),
    ):
        launch()
    assert counts(watch) == (1, 0, 1, 0)
    (finding,) = raised.value.findings
    assert "a warm-up came to this key after start-up was over" in finding.message


@pytest.mark.parametrize(
    "allow",
    [
        "fill",
        "*.fill",
        ("nothing", f"{__name__}.fill"),
        lambda event: event.kernel.endswith("fill"),
        f"{__name__}.fill[*]{{cuda:90}}",
        f"{__name__}.fill[x_ptr:?fp32/D; n:i32/; *",
        ["nothing", "*BLOCK:constexpr=16]*"],
    ],
)
def test_what_is_allowed_does_not_count(stub, allow):
    with expect_no_compiles(allow=allow, loads=True) as watch:
        launch()
    assert counts(watch) == (0, 0, 0, 0)


def test_a_key_may_be_allowed_although_its_brackets_are_a_pattern(stub):
    with (
        pytest.raises(UnexpectedCompiles, match="^1 compile where"),
        expect_no_compiles(allow=[key(17)]),
    ):
        [launch(n) for n in (17, 32)]


@pytest.mark.parametrize("allow", ["[f]ill", "fil[!x]", "FILL", "fill?", "", (), "fill|x", ".*"])
def test_only_two_characters_are_special_and_case_counts(stub, allow):
    with (
        pytest.raises(UnexpectedCompiles, match="^1 compile where"),
        expect_no_compiles(allow=allow),
    ):
        launch()


@pytest.mark.parametrize("allow", [None, 3, b"fill", ["fill", None]])
def test_another_kind_of_allowance_is_a_usage_error(allow):
    with (
        pytest.raises(UsageError, match=r"^allow=.*: give a kernel's name or a key"),
        expect_no_compiles(allow=allow),
    ):
        pytest.fail("the block was entered")
    assert not sinks.active()


def test_an_exception_of_the_block_is_not_masked(stub):
    with pytest.raises(ZeroDivisionError), expect_no_compiles() as watch:
        1 / (launch() is None)
    assert watch.compiles == 1


def test_compiles_of_other_threads_count(stub):
    with pytest.raises(UnexpectedCompiles), expect_no_compiles(), ThreadPoolExecutor(1) as pool:
        pool.submit(launch)


def test_a_refusal_that_was_swallowed_counts(stub):
    with (
        pytest.raises(UnexpectedCompiles, match="^1 refused compile where"),
        Monitor("error"),
        expect_no_compiles(),
        contextlib.suppress(CompileRefused),
    ):
        launch()


def test_a_tuning_is_told_with_its_configurations():
    with (
        pytest.raises(UnexpectedCompiles, match="^1 tuning where") as raised,
        expect_no_compiles() as watch,
    ):
        sinks.tuned("m.k", "m.k[n:3]{tune}", 7.0, 4)
    assert counts(watch) == (0, 0, 0, 1)
    [finding] = raised.value.findings
    assert finding.kind == "AUTOTUNE"
    assert finding.message == (
        "m.k timed 4 configurations against each other while serving, for 7.0 ms"
    )


def test_the_end_leaves_nothing_attached(stub):
    with expect_no_compiles():
        assert sinks.active()
    assert not sinks.active()
    sinks.compiled(Miss("m.k", "m.k[]", kind="compile"))


def test_counts_in_words():
    with Monitor("record") as monitor:
        for kind in ("compile", "compile", "trace", "failed"):
            sinks.compiled(Miss("m.k", "m.k[]", kind=kind))
        sinks.loaded("m.k", "m.k[]", 1.0)
    assert counted(monitor.events) == "2 compiles, 1 load, 1 repeated trace, 1 failed compile"
    assert counted([]) == ""
