"""Compare findings with what was expected."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from jitwarm.faults.form import Expected
from jitwarm.findings import Finding


@dataclass(frozen=True, slots=True)
class Difference:
    """What did not come, and what came unasked."""

    missing: tuple[str, ...]
    unexpected: tuple[Finding, ...]

    def __bool__(self) -> bool:
        """Whether there is any."""
        return bool(self.missing or self.unexpected)


def compare(expected: Sequence[Expected], found: Sequence[Finding]) -> Difference:
    """Each expectation needs a finding that it matches, each finding an expectation."""
    missing = []
    for one in expected:
        count = sum(matches(one, finding) for finding in found)
        if not count:
            missing.append(one.text())
        elif one.count is not None and count != one.count:
            missing.append(f"{one.text()}: {count} came")
    unexpected = [
        finding
        for finding in found
        if not any(matches(one, finding) for one in expected) and not _is_echo(finding, found)
    ]
    return Difference(tuple(missing), tuple(unexpected))


def _is_echo(finding: Finding, found: Sequence[Finding]) -> bool:
    """Whether a finding only follows from another one of the same kernel, which is told as well:
    such a finding may be expected or not.

    A miss in a field whose value is unstable; launches of what could not be planned or was not made
    ready; keys beyond a budget that no launch needs.
    """
    others = [one for one in found if one.kernel == finding.kernel and one is not finding]
    kinds = {one.kind for one in others}
    if finding.kind == "UNREACHED":
        return "BUDGET" in kinds
    if finding.kind == "UNDECLARED":
        return bool(kinds & {"KEY-INCOMPLETE", "KEY-UNSTABLE", "WARM-CRASH"})
    if finding.kind != "MISS":
        return False
    unstable = {
        name for one in others if one.kind == "KEY-UNSTABLE" for name in one.field.split(", ")
    }
    if finding.field:
        return set(finding.field.split(", ")) <= unstable
    absent = any(one.kind == "MISS" and not one.field and one.warmed for one in others)
    return not finding.warmed and ("WARM-CRASH" in kinds or absent)


def matches(expected: Expected, finding: Finding) -> bool:
    """Whether a finding is the expected one, by everything that is named."""
    return (
        expected.kind == finding.kind
        and expected.field in (None, finding.field)
        and _same_kernel(expected.kernel, finding.kernel)
        and _same_value(expected.warmed, finding.warmed)
        and _same_value(expected.seen, finding.seen)
        and all(
            part is None or part in text
            for part, text in (
                (expected.smallest, finding.smallest),
                (expected.message, finding.message),
                (expected.advice, finding.advice),
                (expected.site, finding.site),
            )
        )
    )


def _same_kernel(expected: str | None, name: str) -> bool:
    return expected is None or expected in (name, name.rpartition(".")[2])


def _same_value(expected: str | None, value: str) -> bool:
    """As a whole, or one half of Triton's `type/class`. A tuple has several halves."""
    if expected is None or expected == value:
        return True
    kind, slash, cls = value.partition("/")
    return bool(slash) and "," not in value and expected in (kind, cls)
