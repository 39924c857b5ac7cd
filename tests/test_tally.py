"""The exit code and the line of several cases."""

from __future__ import annotations

import pytest

from jitwarm.errors import ArmFailed
from jitwarm.scenario import Case, Scenario
from jitwarm.tally import GATE, OK, RUN, USAGE, each


def chosen(*names):
    cases = {name: Case(schema=1, name=name, model="m:x") for name in names}
    scenarios = {
        name: Scenario(f"{name}.toml", name, (case,), (), "") for name, case in cases.items()
    }
    return [(scenarios[name], cases[name]) for name in names]


def ended(*codes):
    """A job whose n-th call ends with the n-th code; a refusal is an error of its process."""
    remaining = iter(codes)

    def one(scenario, case):
        code = next(remaining)
        if code == USAGE:
            raise ArmFailed(f"{case.title}: scenario {case.name} needs x", "", USAGE)
        return code

    return one


@pytest.mark.parametrize(
    ("codes", "code"),
    [
        ((OK, OK, OK), OK),
        ((OK, USAGE, OK), USAGE),
        ((GATE, USAGE, OK), GATE),  # a scenario that was not tried hides no miss
        ((GATE, USAGE, RUN), RUN),
    ],
)
def test_the_code_of_several_cases(codes, code):
    said = []
    tally = each(chosen("a", "b", "c"), ended(*codes), said.append)
    assert tally.code == code
    assert said == (["scenario b needs x"] if USAGE in codes else [])


def test_a_refused_scenario_ends_and_counts_once():
    tally = each(chosen("a", "b", "b", "c", "c"), ended(OK, USAGE, GATE, RUN), lambda text: None)
    assert tally.text() == "3 cases: 1 ok, 1 with misses, 1 failed; not run: b"
    assert tally.codes == {OK: 1, USAGE: 1, GATE: 1, RUN: 1}


def test_what_a_failed_gate_found_is_said():
    words = ("with findings", OK, GATE, "with findings", "not proved")
    tally = each(chosen("a", "b", "c", "d", "e"), ended(*words), lambda text: None)
    assert (tally.code, tally.codes) == (GATE, {OK: 1, GATE: 4})
    assert tally.text() == ("5 cases: 1 ok, 2 with findings, 1 with misses, 1 not proved")


def test_nothing_was_run():
    tally = each(chosen("a"), ended(USAGE), lambda text: None)
    assert (tally.code, tally.text()) == (USAGE, "0 cases: none was run; not run: a")
    assert each([], ended(), lambda text: None).code == OK
