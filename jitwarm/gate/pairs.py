"""Pairs of runs: base and head in turn, so that a machine that gets slower hits both alike."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, Protocol

import msgspec

from jitwarm.record import DeviceRecord

Side = Literal["base", "head"]
SIDES: tuple[Side, Side] = ("base", "head")


class Sample(msgspec.Struct, frozen=True):
    """One start-up of one side in a fresh process, from empty caches. Seconds.

    `cpu_s` is the processor time of the whole process tree, its imports included: what is judged.
    `wall_s` is from its start to its end. `enumeration_s` (wall), `warm_s` (wall) and `warm_cpu_s`
    are parts of it, as the process itself told. `keys` are backend keys by kernel, `case` is the
    resolved case, `modules` the files that were imported (only where they were watched).
    """

    cpu_s: float
    wall_s: float
    enumeration_s: float
    warm_s: float
    warm_cpu_s: float
    device: DeviceRecord
    versions: dict[str, str]
    keys: dict[str, tuple[str, ...]]
    case: dict[str, object]
    modules: tuple[str, ...] = ()

    @property
    def other_cpu_s(self) -> float:
        """Processor time outside of warm-up: start, imports, the model, enumeration."""
        return self.cpu_s - self.warm_cpu_s


class Sampler(Protocol):
    """Where samples come from: real processes, or a test's script."""

    def sample(self, side: Side, index: int) -> Sample:
        """Run `side` once. `index` counts the runs of both sides; the first of each, with a
        negative index, is not timed: it fills what later runs find full, and is watched.

        Raises `SideFailed`.
        """


class Pairs(msgspec.Struct, frozen=True):
    """Timed samples, `base[i]` beside `head[i]`, and the untimed first run of each side."""

    first_base: Sample
    first_head: Sample
    base: tuple[Sample, ...]
    head: tuple[Sample, ...]

    def all(self, side: Side) -> tuple[Sample, ...]:
        """Every sample of a side, the untimed one first."""
        first = self.first_base if side == "base" else self.first_head
        return (first, *(self.base if side == "base" else self.head))


def order(pairs: int) -> list[Side]:
    """ABBA: base head, head base, base head, ... A steady drift favours neither side."""
    return [
        side for i in range(pairs) for side in (("head", "base") if i % 2 else ("base", "head"))
    ]


def first_runs(sampler: Sampler) -> tuple[Sample, Sample]:
    """The untimed run of base and of head."""
    return sampler.sample("base", -2), sampler.sample("head", -1)


def collect(
    sampler: Sampler,
    first: tuple[Sample, Sample],
    pairs: int,
    told: Callable[[int, Sample, Sample], None],
) -> Pairs:
    """Measure `pairs` pairs in ABBA order; `told` hears of each (its number from 1, base, head).

    Raises what the sampler raises: a pair that lacks a side is no pair.
    """
    taken: dict[Side, list[Sample]] = {"base": [], "head": []}
    for index, side in enumerate(order(pairs)):
        taken[side].append(sampler.sample(side, index))
        if index % 2:
            told(index // 2 + 1, taken["base"][-1], taken["head"][-1])
    return Pairs(*first, tuple(taken["base"]), tuple(taken["head"]))
