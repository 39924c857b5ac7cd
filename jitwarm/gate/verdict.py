"""A verdict: statements about kernels and times, one exit code, one first line that says it all."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

import msgspec

from jitwarm.amounts import counted
from jitwarm.tally import BASELINE, GATE, RUN, SEVERITY, USAGE, worst

SCHEMA = 1

Kind = Literal[
    "SAME",  # as expected
    "KEYS",  # declared keys lost or gained
    "COUNT",  # a count of a kernel or of the funnel differs
    "MISS",  # traffic needs keys that are not planned
    "NONDETERMINISTIC",  # two runs of the same code differ
    "MISSING-ROW",  # expected, and not there
    "NEW",  # there, and in no expectation
    "SOAKING",  # marked new: differs, and does not fail yet
    "SLOWER",  # beyond the floors, and beyond chance
    "FASTER",
    "NOT-ENOUGH-SAMPLES",  # too noisy for the effect that was asked about
    "NOT-COMPARABLE",  # no baseline, or another device, driver or version
    "RUN-FAILED",  # nothing was measured
]


class Statement(msgspec.Struct, frozen=True, omit_defaults=True):
    """One thing that was concluded.

    `text` says what, and by how much, in one line that stands alone beside `scenario`, `case` and
    `kernel` (empty where it is about none); `details` are further lines, `advice` a command or what
    else to do, `file` what an annotation points at. `code` is its part in the exit code: 0 for a
    remark.
    """

    kind: Kind
    code: int
    scenario: str
    text: str
    case: str = ""
    kernel: str = ""
    details: tuple[str, ...] = ()
    advice: str = ""
    file: str = ""

    @property
    def subject(self) -> str:
        """What it is about: `deepseek-v3.2-dcp dcp=8 arch=sm90 CombineTopkSwa`."""
        return " ".join(part for part in (self.scenario, self.case, self.kernel) if part)

    @property
    def line(self) -> str:
        """Subject and text in one line."""
        return f"{self.subject}: {self.text}"


class Verdict(msgspec.Struct, frozen=True):
    """What a gate concluded: the statements in order, worst first, and what follows from them.

    `compared` counts what was held against something: kernels, cases or pairs. `replayed` says how
    much traffic `check` has replayed.
    """

    schema: int
    command: str
    code: int
    headline: str
    compared: int
    statements: tuple[Statement, ...]
    replayed: str = ""

    @property
    def failing(self) -> tuple[Statement, ...]:
        """The statements for which it is not a pass."""
        return tuple(one for one in self.statements if one.code)


def conclude(command: str, what: str, compared: int, statements: Iterable[Statement]) -> Verdict:
    """The verdict of `command` over `compared` things called `what` ("kernels").

    Nothing compared, and nothing said about it, is no pass: it is a run that failed.
    """
    ordered = sorted(statements, key=lambda one: -SEVERITY.index(one.code))
    failing = [one for one in ordered if one.code]
    code = worst(one.code for one in ordered)
    if failing:
        more = f" (and {len(failing) - 1} more)" if len(failing) > 1 else ""
        headline = f"{_WORD[code]}: {failing[0].line}{more}"
    elif not compared:
        code, headline = RUN, f"broken: no {what} were compared"
    else:
        soaking = len({one.subject for one in ordered if one.kind == "SOAKING" and one.kernel})
        remarks = sum(one.kind != "SAME" for one in ordered)
        thing = what.removesuffix("s")
        parts = [f"{counted(compared - soaking, thing)} as expected"] * (compared > soaking)
        parts += [f"{counted(soaking, thing)} soaking"] * (soaking > 0)
        parts += [counted(remarks, "remark")] * (remarks > 0)
        headline = f"ok: {', '.join(parts)}"
    return Verdict(SCHEMA, command, code, headline, compared, tuple(ordered))


_WORD = {USAGE: "refused", GATE: "failed", BASELINE: "not comparable", RUN: "broken"}
