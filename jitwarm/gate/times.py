"""What is concluded about the times of one case, in statements."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence

from jitwarm.gate.key_changes import key_changes, key_count, key_text, unsteady_keys
from jitwarm.gate.pairs import Pairs, Sample
from jitwarm.gate.rule import LEAST_PAIRS, LEVEL, MOST_PAIRS, POWER, Judgement, judge, log_ratios
from jitwarm.gate.verdict import Statement
from jitwarm.tally import BASELINE, GATE, OK

# A part that moved by this share of the whole is named as the place.
MOST = 0.75
# Name, seconds of a sample, and whether it is what the rule judges.
PARTS: tuple[tuple[str, Callable[[Sample], float]], ...] = (
    ("processor time, judged", lambda s: s.cpu_s),
    ("  of it warm-up", lambda s: s.warm_cpu_s),
    ("  of it the rest", lambda s: s.other_cpu_s),
    ("wall clock", lambda s: s.wall_s),
    ("  of it enumeration", lambda s: s.enumeration_s),
    ("  of it warm-up", lambda s: s.warm_s),
)


def conclude_times(
    scenario: str, case: str, pairs: Pairs, effect: float, file: str, remarks: Sequence[str] = ()
) -> Statement:
    """The one statement about the times of a case. `remarks` become its last details."""
    unsteady = unsteady_keys(pairs)
    if unsteady:
        return Statement(
            "NONDETERMINISTIC",
            GATE,
            scenario,
            f"two runs of one side warm different keys, so times compare different work: "
            f"{unsteady[0]}",
            case=case,
            details=tuple(unsteady),
            advice=f"jitwarm check {file} tells which keys differ from run to run",
            file=file,
        )
    found = judge([s.cpu_s for s in pairs.base], [s.cpu_s for s in pairs.head], effect)
    keys = key_text(key_changes(pairs.first_base, pairs.first_head))
    text = _WORDS[found.decision](found, pairs)
    return Statement(
        found.decision,
        _CODES[found.decision],
        scenario,
        f"{text}; {keys}" if keys else text,
        case=case,
        details=(*table(pairs, found), *remarks),
        advice=_advice(found, file, bool(keys)),
        file=file,
    )


def table(pairs: Pairs, found: Judgement) -> list[str]:
    """Where the time goes: medians of each side, the median change of a pair."""
    rows = [(name, *_row(pairs, seconds)) for name, seconds in PARTS]
    width = max(len(name) for name, *_ in rows)
    lines = [f"{'seconds':{width}}  {'base':>8}  {'head':>8}  change"]
    for name, base, head, change in rows:
        lines.append(f"{name:{width}}  {base:8.3f}  {head:8.3f}  {change}")
    was, now = key_count(pairs.first_base), key_count(pairs.first_head)
    lines.append(f"{'keys':{width}}  {was:8}  {now:8}  {now - was:+d}")
    lines.append(
        f"{found.pairs} pairs, one spreads by {found.spread:.1%}; {LEVEL:.0%} interval of the "
        f"change {_signed(found.low)} to {_signed(found.high)}"
    )
    return lines


def _row(pairs: Pairs, seconds: Callable[[Sample], float]) -> tuple[float, float, str]:
    base, head = ([seconds(s) for s in side] for side in (pairs.base, pairs.head))
    middle = statistics.median(base), statistics.median(head)
    if min(*base, *head) <= 0:  # a part that is not there, or below the clock's resolution
        return (*middle, f"{middle[1] - middle[0]:+.3f} s")
    change = math.expm1(statistics.median(log_ratios(base, head).tolist()))
    return (*middle, _signed(change))


def _signed(share: float) -> str:
    """`+1.5%`; a change that rounds to nothing has no sign of its own."""
    return f"{round(share, 3) + 0.0:+.1%}"


def _slower(found: Judgement, pairs: Pairs) -> str:
    return (
        f"start-up takes {found.change:.1%} more processor time, "
        f"{found.base_s:.2f} s to {found.head_s:.2f} s{_where(pairs)}"
    )


def _faster(found: Judgement, pairs: Pairs) -> str:
    return (
        f"start-up takes {-found.change:.1%} less processor time, "
        f"{found.base_s:.2f} s to {found.head_s:.2f} s{_where(pairs)}"
    )


def _same(found: Judgement, _: Pairs) -> str:
    return (
        f"as fast as base: {_signed(found.change)} processor time "
        f"({_signed(found.low)} to {_signed(found.high)}, {found.pairs} pairs)"
    )


def _not_enough(found: Judgement, _: Pairs) -> str:
    if found.pairs < LEAST_PAIRS:
        return f"{found.pairs} pairs tell nothing: at least {LEAST_PAIRS} are needed"
    return (
        f"{found.pairs} pairs leave {_signed(found.low)} to {_signed(found.high)} open, so "
        f"+{found.effect:.0%} is neither found nor excluded; about {_enough(found)} pairs would "
        f"find it with {POWER:.0%} power, a pair spreads by {found.spread:.1%}"
    )


def _enough(found: Judgement) -> int:
    """More pairs than there were: a quarter more where chance alone was against it."""
    return max(found.needed, 2 * math.ceil(found.pairs * 1.25 / 2))


def _where(pairs: Pairs) -> str:
    """Which part of the processor time moved, where one of them did most of it."""
    both = list(zip(pairs.base, pairs.head, strict=True))
    moved = {
        "warm-up": statistics.median(h.warm_cpu_s - b.warm_cpu_s for b, h in both),
        "imports, the model and enumeration": statistics.median(
            h.other_cpu_s - b.other_cpu_s for b, h in both
        ),
    }
    total = sum(moved.values())
    for name, seconds in moved.items():
        if total and seconds / total >= MOST:
            return f", {seconds:+.2f} s of it in {name}"
    return ""


def _advice(found: Judgement, file: str, keys_differ: bool) -> str:
    if found.decision == "NOT-ENOUGH-SAMPLES":
        more = f", or with --pairs {_enough(found)}" if _enough(found) <= MOST_PAIRS else ""
        return f"again on a quieter machine{more}"
    if keys_differ:  # a warm-up that was lost makes start-up faster
        return f"other keys take other time: jitwarm check {file} says whether they are expected"
    return ""


_CODES = {"SLOWER": GATE, "FASTER": OK, "SAME": OK, "NOT-ENOUGH-SAMPLES": BASELINE}
_WORDS: dict[str, Callable[[Judgement, Pairs], str]] = {
    "SLOWER": _slower,
    "FASTER": _faster,
    "SAME": _same,
    "NOT-ENOUGH-SAMPLES": _not_enough,
}
