"""What the rule finds on one machine: many runs of one code, compared with themselves.

A comparison of n pairs is put together from blocks of neighbouring runs, in the order in which
they were measured, so that the machine's real drift is in it. One code has no slowdown: a verdict
SLOWER is a false alarm. A slowdown is injected by scaling head.
"""

from __future__ import annotations

import datetime as dt
import os
import platform
from collections.abc import Sequence
from pathlib import Path

import msgspec
import numpy as np

from jitwarm import atomic, stored
from jitwarm.gate.pairs import Sample
from jitwarm.gate.rule import EFFECT, FLOOR_S, FLOOR_SHARE, LEVEL, POWER, smallest_found
from jitwarm.gate.statistics import Array, spreads
from jitwarm.record import DeviceRecord, encode

SCHEMA = 1
COMPARISONS = 2000
# Neighbouring runs that stay together: two times ABBA.
BLOCK = 8
SEED = 20261130


class Machine(msgspec.Struct, frozen=True):
    """Where it was measured."""

    processor: str
    cores: int
    system: str


class PowerRow(msgspec.Struct, frozen=True):
    """Comparisons of `pairs` pairs: the share that said SLOWER of one code, the smallest slowdown
    that 90 % of them find, and the share that finds the effect that is asked about. Fractions.
    """

    pairs: int
    comparisons: int
    false_alarms: float
    smallest_found: float
    power_at_effect: float


class Calibration(msgspec.Struct, frozen=True):
    """The runs of one code on one machine, and what the rule makes of them.

    `rule` are the constants it was made with: level, effect, share of the floor, floor in seconds.
    `load` is the load average before and after.
    """

    schema: int
    scenario: str
    case: str
    recorded_at: str
    machine: Machine
    device: DeviceRecord
    versions: dict[str, str]
    load: tuple[float, float]
    rule: tuple[float, float, float, float]
    cpu_s: tuple[float, ...]
    wall_s: tuple[float, ...]
    pair_spread: float
    rows: tuple[PowerRow, ...]

    def row(self, pairs: int) -> PowerRow | None:
        """The row of the most pairs that are not more than `pairs`."""
        known = [row for row in self.rows if row.pairs <= pairs]
        return max(known, key=lambda row: row.pairs, default=None)


def rule_constants(effect: float = EFFECT) -> tuple[float, float, float, float]:
    """What a calibration has to have been made with to say anything about this rule."""
    return LEVEL, effect, FLOOR_SHARE, FLOOR_S


def calibrate(
    scenario: str,
    case: str,
    samples: Sequence[Sample],
    load: tuple[float, float],
    pairs: Sequence[int],
) -> Calibration:
    """The calibration of runs of one code, in the order in which they were measured."""
    cpu = np.array([sample.cpu_s for sample in samples])
    return Calibration(
        schema=SCHEMA,
        scenario=scenario,
        case=case,
        recorded_at=dt.datetime.now(dt.UTC).isoformat(timespec="seconds"),
        machine=this_machine(),
        device=samples[0].device,
        versions=samples[0].versions,
        load=load,
        rule=rule_constants(),
        cpu_s=tuple(float(value) for value in cpu),
        wall_s=tuple(sample.wall_s for sample in samples),
        pair_spread=pair_spread(cpu),
        rows=tuple(power(cpu, count) for count in pairs),
    )


def read_calibration(path: Path) -> Calibration:
    """Read a calibration file. Raises `StoredFileError`."""
    return stored.read(path, Calibration, SCHEMA, "calibration")


def write_calibration(path: Path, calibration: Calibration) -> None:
    """Write it, whole or not at all."""
    atomic.write_bytes(path, encode(calibration))


def this_machine() -> Machine:
    """The machine of this process; `cores` are those that it may use."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    named = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return Machine(
        named[0] if named else platform.processor() or "unknown",
        len(os.sched_getaffinity(0)),
        f"{platform.system()} {platform.machine()}",
    )


def why_not(calibration: Calibration, sample: Sample, effect: float = EFFECT) -> list[str]:
    """Why a calibration says nothing about this comparison, which asked about `effect`: what
    differs, a line each.
    """
    here = this_machine()
    pairs: list[tuple[str, object, object]] = [
        ("processor", calibration.machine.processor, here.processor),
        ("cores", calibration.machine.cores, here.cores),
        ("rule", calibration.rule, rule_constants(effect)),
        ("device", calibration.device.name, sample.device.name),
        ("driver", calibration.device.driver, sample.device.driver),
    ]
    pairs += [
        (name, calibration.versions.get(name), sample.versions.get(name))
        for name in ("python", "torch", "triton")
    ]
    return [
        f"{name}: {was} in the calibration, {now} here" for name, was, now in pairs if was != now
    ]


def pair_spread(times: Array) -> float:
    """The spread of a pair of neighbouring runs of one code."""
    logs = np.log(times[: len(times) // 2 * 2])
    return float(spreads(logs[1::2] - logs[::2]))


def scaled_to(times: Array, spread: float) -> Array:
    """The same runs with their noise larger or smaller, so that a pair spreads by `spread`."""
    logs = np.log(times)
    middle = np.median(logs)
    factor = spread / pair_spread(times)
    scaled: Array = np.exp(middle + (logs - middle) * factor)
    return scaled


def power(times: Array, pairs: int, comparisons: int = COMPARISONS) -> PowerRow:
    """Resample comparisons of one code and judge them."""
    base, head = draw(times, pairs, comparisons)
    found = smallest_found(base, head)
    return PowerRow(
        pairs,
        comparisons,
        float(np.mean(found <= 0)),
        float(np.quantile(found, POWER, method="higher")),
        float(np.mean(found <= EFFECT)),
    )


def draw(times: Array, pairs: int, comparisons: int) -> tuple[Array, Array]:
    """Base and head of many comparisons (rows) of `pairs` pairs (columns).

    Each is made of blocks of `BLOCK` neighbouring runs from random places, read as ABBA. Needs more
    runs than a block.
    """
    generator = np.random.default_rng([SEED, pairs, len(times)])
    blocks = -(-2 * pairs // BLOCK)
    starts = generator.integers(0, len(times) - BLOCK + 1, (comparisons, blocks))
    runs = (starts[..., None] + np.arange(BLOCK)).reshape(comparisons, -1)[:, : 2 * pairs]
    first, second = times[runs[:, ::2]], times[runs[:, 1::2]]
    base_first = np.arange(pairs) % 2 == 0
    return np.where(base_first, first, second), np.where(base_first, second, first)


def every_window(times: Array, pairs: int) -> float:
    """The share of false alarms among all stretches of the recorded runs, not resampled."""
    count = len(times) - 2 * pairs + 1
    runs = np.arange(count)[:, None] + np.arange(2 * pairs)
    first, second = times[runs[:, ::2]], times[runs[:, 1::2]]
    base_first = np.arange(pairs) % 2 == 0
    found = smallest_found(np.where(base_first, first, second), np.where(base_first, second, first))
    return float(np.mean(found <= 0))
