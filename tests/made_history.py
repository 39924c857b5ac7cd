"""A history that somebody might have: twelve commits of one case, with noise, and an asv tree.

Everything is made from one stored result by editing it, with a fixed seed, so pages are the same in
every run. `python tests/made_history.py FOLDER` writes both trees, to look at.
"""

from __future__ import annotations

import json
import math
import random
import sys
from pathlib import Path

import msgspec

from jitwarm.record import SCHEMA, DeviceRecord, Result, SourceRecord, encode
from jitwarm.stored import read

BASE = Path(__file__).parent / "report" / "golden" / "result.json"
COMMITS = 12
NEW_TRITON, FEWER_KEYS, SLOWER, MISSES, MENDED, FAILED = 3, 4, 6, 7, 9, 10
GPU = DeviceRecord("cuda", "sm90", "NVIDIA H200", "580.159.04")
replace = msgspec.structs.replace


def base() -> Result:
    """The stored result, with names for the keys that were never used: the file has none."""
    stored = read(BASE, Result, SCHEMA, "result")
    own, *others = (
        replace(one, unreached_keys=never_used(one.unreached))
        for one in (stored.coverage, *stored.rank_coverage)
    )
    return replace(stored, coverage=own, rank_coverage=tuple(others))


def never_used(count):
    return tuple(
        f"jitwarm.zoo.kernels.made_up._kernel[n:constexpr={n}]{{cuda:90}}" for n in range(count)
    )


def commit(number):
    """A hash that looks like one, and is the same every time."""
    return f"{random.Random(number).getrandbits(160):040x}"


def source(number, *, dirty=False):
    return SourceRecord(commit(number), f"2026-11-{number + 10:02}T08:00:00+00:00", dirty)


def result(number):
    """The result at commit `number` of the story: see the constants."""
    noise = random.Random(1000 + number)
    made = base()
    missing = MISSES <= number < MENDED
    slow = 1.4 if number >= SLOWER else 1.0
    keys = 31 if number >= FEWER_KEYS else 83
    kernels = tuple(
        replace(
            kernel,
            seconds=kernel.seconds
            * noise.gauss(1, 0.03)
            * (slow * 1.5 if kernel.kernel == "BuildPrefillChunkMetadata" else 1),
            missed=kernel.missed if missing else 0,
        )
        for kernel in made.kernels
    )
    arms = {name: arm_of(name, arm, noise, slow) for name, arm in made.arms.items()}
    coverage = replace(
        made.coverage,
        hit=made.coverage.needed - missing,
        missed=1 if missing else 0,
        misses=made.coverage.misses if missing else (),
        unreached=keys - 19,
        unreached_keys=(*(kernel.slowest_key for kernel in kernels[:3]), *never_used(keys - 22)),
    )
    ranks = tuple(
        replace(
            one,
            hit=one.needed - missing,
            missed=int(missing),
            misses=one.misses if missing else (),
        )
        for one in made.rank_coverage
    )
    ready = arms["loaded"].raw["ready_s"][0]
    return replace(
        made,
        started_at=f"2026-11-{number + 10:02}T20:00:00+00:00",
        device=GPU,
        versions=made.versions | {"triton": "3.9.0" if number >= NEW_TRITON else "3.8.0"},
        funnel=replace(made.funnel, keys=keys, backend_keys=keys, compiled=keys),
        kernels=kernels,
        warm=replace(made.warm, seconds=ready * 0.97, warmed=keys),
        coverage=coverage,
        rank_coverage=ranks,
        arms=arms,
        import_s=made.import_s * noise.gauss(1, 0.03),
        checks=("arm cold: load average 2.4 on 2 cores at its end",),
        source=source(number, dirty=number == COMMITS - 1),
    )


def arm_of(name, arm, noise, slow):
    """Three processes of an arm, with 3 % of noise."""

    def three(value):
        return [value * noise.gauss(1, 0.03) for _ in range(3)]

    ready = three(arm.ready_s * (slow if name == "loaded" else 1))
    prefill, decode = three(arm.first_prefill_ms), three(arm.first_decode_ms)
    return replace(
        arm,
        samples=3,
        ready_s=sorted(ready)[1],
        first_prefill_ms=sorted(prefill)[1],
        first_decode_ms=sorted(decode)[1],
        spread=(max(prefill) - min(prefill)) / sorted(prefill)[1],
        raw=arm.raw | {"ready_s": ready, "first_prefill_ms": prefill, "first_decode_ms": decode},
    )


def write_records(folder):
    """`<folder>/<commit>/<scenario>/<case>/`, as a job that keeps every commit's results has it."""
    for number in range(COMMITS):
        place = folder / commit(number)[:8] / "deepseek-v3.2-dcp" / "dcp-2_arch-sm90"
        place.mkdir(parents=True)
        if number == FAILED:
            record = {
                "error": "deepseek-v3.2-dcp dcp=2 arch=sm90: out of memory",
                "trace": "Traceback (most recent call last):\n  MemoryError",
                "started_at": f"2026-11-{number + 10:02}T20:00:00+00:00",
                "source": source(number),
            }
            (place / "failed.json").write_bytes(encode(record))
            continue
        (place / "result.json").write_bytes(encode(result(number)))
        (place / "events.rank0.jsonl").write_bytes(events())


def events():
    """What a warm-up of the case leaves: compiles, loads, and something of serving."""
    rows = [("compile", "warm", 61.5)] * 6 + [("load", "warm", 9.25)] * 6
    rows += [("load", "serve", 5000.0)]
    return b"".join(
        msgspec.json.encode({"kind": kind, "phase": phase, "ms": ms, "key": "a[b]"}) + b"\n"
        for kind, phase, ms in rows
    )


ASV_COLUMNS = ["result", "params", "version", "started_at", "duration", "stats_ci_99_a",
               "stats_ci_99_b", "stats_q_25", "stats_q_75"]  # fmt: skip
ASV_COMMITS = 14


def write_asv(folder):
    """Two machines, fourteen commits: a count with params, a time that steps up, a failure, a skip
    and a benchmark of a new version.
    """
    about = {
        "suite.Dcp8.track_compile_keys": {"type": "track", "unit": "keys", "param_names": ["arm"]},
        "suite.Dcp8.track_start_up": {"type": "track", "unit": "seconds"},
        "suite.timeraw_import": {"type": "timeraw", "unit": "seconds", "pretty_name": "import"},
        "suite.track_failing": {"type": "track", "unit": "keys"},
        "version": 2,
    }
    folder.mkdir(parents=True)
    (folder / "benchmarks.json").write_text(json.dumps(about))
    for machine, speed in (("h200-ci", 1.0), ("laptop", 2.5)):
        (folder / machine).mkdir()
        (folder / machine / "machine.json").write_text(json.dumps({"version": 1}))
        for number in range(ASV_COMMITS):
            made = json.dumps(asv_file(number, machine, speed))
            name = f"{commit(number)[:8]}-virtualenv-py3.11.json"
            (folder / machine / name).write_text(made)


def asv_file(number, machine, speed):
    noise = random.Random(number * 7 + len(machine))
    keys = 85 if number < 5 else 61
    start_up = 4.0 * speed * noise.gauss(1, 0.02) * (1.35 if number >= 8 else 1)
    imported = 0.6 * speed * noise.gauss(1, 0.02)
    results = {
        "suite.Dcp8.track_compile_keys": [
            [keys, keys + (number == 9)], [["'decode'", "'prefill'"]], "1"
        ],
        "suite.Dcp8.track_start_up": [[start_up], [], "1"],
        "suite.timeraw_import": [
            [imported], [], "1" if number < 7 else "2", 0, 0, [0], [0],
            [imported * 0.98], [imported * 1.03],
        ],
        "suite.track_failing": [[None if number in (6, 7) else math.nan if number == 13 else 3],
                                [], "1"],
    }  # fmt: skip
    if number == 2:
        del results["suite.Dcp8.track_start_up"]
    return {
        "commit_hash": commit(number),
        "env_name": "virtualenv-py3.11",
        "date": 1_762_761_600_000 + number * 86_400_000,
        "params": {"machine": machine, "python": "3.11"},
        "python": "3.11",
        "requirements": {},
        "env_vars": {},
        "result_columns": ASV_COLUMNS,
        "results": results,
        "durations": {},
        "version": 2,
    }


if __name__ == "__main__":
    write_records(Path(sys.argv[1]) / "records")
    write_asv(Path(sys.argv[1]) / "asv")
