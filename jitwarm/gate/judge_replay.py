"""What a replay by keys shows: traffic that needs keys which nobody planned."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from jitwarm.amounts import counted
from jitwarm.backends.triton.naming import natural_order, without_number
from jitwarm.backends.triton.unwrap import is_tuning
from jitwarm.gate.judge_counts import Place
from jitwarm.gate.ranks import ranks_text
from jitwarm.gate.verdict import Statement
from jitwarm.gate.words import SHOWN
from jitwarm.jobs import RankReplay
from jitwarm.judge.planned import path_of
from jitwarm.record import MissRecord
from jitwarm.tally import GATE, OK, RUN
from jitwarm.threads import UNSEEN, still_run

# Of batches, as `Batch.kind` has them.
KINDS = ("decode", "padded", "prefill", "mixed")


def judge_replays(
    place: Place, replays: Iterable[RankReplay], names: Mapping[str, str]
) -> Iterator[Statement]:
    """A statement for each kernel that misses keys (for all objects of one together), one for each
    that does not find planned keys in memory, and one for each rank that launched nothing.

    `names` are kernels by the path of their function: one that is no longer registered is in no
    plan.
    """
    misses: dict[tuple[str, bool], list[MissRecord]] = {}
    untold: dict[str, None] = {}
    for one in sorted(replays, key=lambda replay: replay.rank):
        if not one.launches:
            what = f"rank {one.rank} launched nothing in {counted(one.steps, 'step')}"
            yield place.say("RUN-FAILED", RUN, f"{what}: no miss there shows nothing")
        for miss in one.misses:
            kernel = without_number(names.get(path_of(miss.key), miss.kernel))
            misses.setdefault((kernel, miss.finding.kind == "DISK-HIT"), []).append(miss)
        untold |= dict.fromkeys(one.untold)
        if one.running:
            text = f"rank {one.rank}: {still_run(one.running)}; {UNSEEN}"
            yield place.say("MISS", OK, text)
    for (kernel, planned), found in sorted(misses.items()):
        yield _missed(place, kernel, found, is_planned=planned)
    if untold:
        text = (
            f"traffic needs {counted(len(untold), 'key')} inside of a kernel that owns its "
            "compile: jitwarm run judges them"
        )
        yield place.say("MISS", OK, text, details=sorted(untold))


def replayed_text(cases: Mapping[str, Sequence[RankReplay]]) -> str:
    """How much was replayed, over the cases by name, and which of them have no prefill, or no
    decode: such traffic shows nothing of launches of that kind.
    """
    replays = [one for own in cases.values() for one in own]
    if not replays:
        return "replayed nothing: no launch was held against the plans"
    counts = {kind: sum(one.kinds.get(kind, 0) for one in replays) for kind in KINDS}
    kinds = ", ".join(f"{count:,} {kind}" for kind, count in counts.items() if count)
    where = ranks_text(one.rank for one in replays)
    text = f"replayed {counted(sum(one.steps for one in replays), 'step')} at {where}: {kinds}"
    for what, of_it in (("prefill", {"prefill", "mixed"}), ("decode", {*KINDS} - {"prefill"})):
        without = [
            name
            for name, own in cases.items()
            if own and not any(of_it & one.kinds.keys() for one in own)
        ]
        if without:
            more = f" and {len(without) - SHOWN} more" if len(without) > SHOWN else ""
            text += f"; no {what} in {', '.join(without[:SHOWN])}{more}"
    return text


def _order(item: tuple[str, list[int]]) -> str:
    return natural_order(item[0])


def _missed(place: Place, kernel: str, found: list[MissRecord], *, is_planned: bool) -> Statement:
    where: dict[str, list[int]] = {}
    first: dict[str, MissRecord] = {}
    for miss in found:
        where.setdefault(miss.key, []).append(miss.rank)
        first.setdefault(miss.key, miss)
    why = list(
        dict.fromkeys(one.finding.message.removeprefix(f"{one.kernel}: ") for one in first.values())
    )
    more = f" (and {counted(len(why) - 1, 'more reason')})" if len(why) > 1 else ""
    advice = next((one.finding.advice for one in found if one.finding.advice), "")
    choices = sum(map(is_tuning, where))
    parts = [counted(len(where) - choices, "key")] * (len(where) > choices)
    parts += [f"{counted(choices, 'choice')} of an autotuner"] * (choices > 0)
    said = f"traffic needs {' and '.join(parts)} that nobody planned"
    if is_planned:
        said = f"traffic misses {counted(len(where), 'planned key')}"
    statement = place.say(
        "MISS",
        GATE,
        f"{said}: {why[0]}{more}",
        kernel,
        [f"! {key} ({ranks_text(ranks)})" for key, ranks in sorted(where.items(), key=_order)],
    )
    return msgspec.structs.replace(statement, advice=f"{kernel}: {advice}" if advice else "")
