"""What was found of one envelope while its launches were evaluated."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from jitwarm.backends.triton.residents import Respelt
from jitwarm.findings import Finding
from jitwarm.proof.envelope import Envelope
from jitwarm.proof.reach import Reach
from jitwarm.proof.result import Verdict
from jitwarm.proof.space import Point


@dataclass(slots=True)
class Found:
    """What the launches of one envelope need.

    `backends` has the backend of each key that is needed. First points are kept of each backend
    key (`smallest`), of each choice of an autotuner, of each declared key that dispatch gave (with
    the key itself), of the different backend keys behind the keys of a dispatch, and of the
    different programs under a key, and of each spelling of a warmed launch that Triton does not
    find in memory (`respelt`). `tried` are all points with what they need, in order; `walked`
    says that there are no others. `reasons` are why the verdict is no better, in words.
    """

    envelope: Envelope
    reach: Reach
    verdict: Verdict = "PROVED"
    of: int = 0
    points: int = 0
    backends: dict[str, str] = field(default_factory=dict)
    smallest: dict[str, Point] = field(default_factory=dict)
    choices: dict[str, Point] = field(default_factory=dict)
    dispatched: dict[str, dict[tuple[str, ...], Point]] = field(default_factory=dict)
    declared: dict[str, tuple[Any, Point]] = field(default_factory=dict)
    programs: dict[str, dict[str, Point]] = field(default_factory=dict)
    respelt: dict[Respelt, Point] = field(default_factory=dict)
    cut_off: dict[str, tuple[str, int, Point]] = field(default_factory=dict)
    tried: list[tuple[Point, tuple[str, ...]]] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    reasons: dict[str, None] = field(default_factory=dict)
    walked: bool = False

    def weaken(self, why: Finding | str) -> None:
        """Say that other points may need other keys, and why."""
        if self.verdict == "PROVED":
            self.verdict = "SEARCHED"
        if isinstance(why, Finding):
            self.findings.append(why)
        else:
            self.reasons[why] = None
