"""Statements become one exit code and one first line."""

from __future__ import annotations

from jitwarm.gate.verdict import Statement, conclude


def said(kind, code, text="x", **more):
    return Statement(kind, code, "s", text, **more)


def test_the_worst_comes_first_and_names_the_code():
    verdict = conclude(
        "check",
        "kernels",
        4,
        [
            said("SAME", 0),
            said("NOT-COMPARABLE", 4),
            said("KEYS", 1, "+6 keys", case="dcp=8", kernel="K"),
            said("MISS", 1, "1 missed"),
        ],
    )
    assert verdict.code == 1
    assert verdict.headline == "failed: s dcp=8 K: +6 keys (and 2 more)"
    assert [one.kind for one in verdict.statements] == ["KEYS", "MISS", "NOT-COMPARABLE", "SAME"]
    assert len(verdict.failing) == 3


def test_a_failed_run_is_worse_than_a_failed_gate_and_a_missing_baseline_is_no_pass():
    assert conclude("check", "kernels", 1, [said("KEYS", 1), said("RUN-FAILED", 3)]).code == 3
    verdict = conclude("check", "kernels", 0, [said("NOT-COMPARABLE", 4, "no expectation")])
    assert (verdict.code, verdict.headline) == (4, "not comparable: s: no expectation")


def test_nothing_compared_is_no_pass():
    verdict = conclude("check", "kernels", 0, [])
    assert (verdict.code, verdict.headline) == (3, "broken: no kernels were compared")


def test_a_pass_counts_and_mentions_remarks():
    assert conclude("check", "kernels", 7, []).headline == "ok: 7 kernels as expected"
    verdict = conclude("check", "kernels", 7, [said("SAME", 0), said("SOAKING", 0)])
    assert (verdict.code, verdict.headline) == (0, "ok: 7 kernels as expected, 1 remark")


def test_kernels_that_soak_are_not_counted_as_expected():
    soaking = [said("SOAKING", 0, kernel="K"), said("SOAKING", 0, kernel="K")]
    assert conclude("check", "kernels", 1, soaking).headline == "ok: 1 kernel soaking, 2 remarks"
    same = said("SAME", 0, kernel="L")
    assert conclude("check", "kernels", 2, [same, *soaking]).headline == (
        "ok: 1 kernel as expected, 1 kernel soaking, 2 remarks"
    )
