"""Results of asv, read without asv: version 2 of its JSON, one file a machine, environment and
commit.

`null` is a failed benchmark, NaN a skipped one, a column that is not there one that was not run.
"""

from __future__ import annotations

import itertools
import json
import math
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from jitwarm.errors import StoredFileError
from jitwarm.history.content import check_depth, content, is_folder
from jitwarm.history.points import Metric, Point, Run, Series
from jitwarm.record import LARGEST

T = TypeVar("T")

VERSION = 2
MACHINE, BENCHMARKS = "machine.json", "benchmarks.json"
# asv has no exact numbers; a tracked one of such a unit is measured, any other is counted.
_TIMES = ("s", "sec", "seconds", "ms", "milliseconds", "us", "microseconds", "ns", "nanoseconds")
_SIZES = ("bytes", "byte", "B", "kB", "KB", "MB", "GB", "kiB", "KiB", "MiB", "GiB")
NOISY_UNITS = frozenset((*_TIMES, "minutes", *_SIZES))
# The year 10000, in the milliseconds of asv's dates.
LAST_MS = 253_402_300_800_000
MOST_COMBINATIONS = 100_000


@dataclass(frozen=True, slots=True)
class AsvHistory:
    """All series of one machine and environment, and the runs that their points count."""

    machine: str
    environment: str
    runs: tuple[Run, ...]
    series: tuple[Series, ...]


class _Benchmark(msgspec.Struct, frozen=True):
    type: str = "track"
    unit: str = "unit"
    pretty_name: str | None = None
    param_names: tuple[str, ...] = ()


class _File(msgspec.Struct, frozen=True):
    commit_hash: str
    date: float
    env_name: str
    result_columns: tuple[str, ...]
    results: dict[str, list[Any]]
    params: dict[str, Any] = {}
    requirements: dict[str, Any] = {}


@dataclass(frozen=True, slots=True)
class _Value:
    value: float | None
    version: str
    low: float | None
    high: float | None


def read_asv(folder: Path) -> tuple[list[AsvHistory], list[StoredFileError]]:
    """The histories of a results folder, and the files in it that cannot be read. Never raises for
    one of them.
    """
    problems: list[StoredFileError] = []
    about: dict[str, _Benchmark] = {}
    groups: dict[tuple[str, str], list[_File]] = {}
    try:
        if not is_folder(folder):
            return [], [StoredFileError(folder, "there is no such folder of asv results")]
        files = _result_files(folder)
    except StoredFileError as error:
        return [], [error]
    try:
        if os.path.lexists(folder / BENCHMARKS):
            about = _benchmarks(folder / BENCHMARKS)
    except StoredFileError as error:
        problems.append(error)
    for path in files:
        try:
            one = _file(path)
        except StoredFileError as error:
            problems.append(error)
        else:
            groups.setdefault((path.parent.name, one.env_name), []).append(one)
    histories = [_history(*key, about, groups[key]) for key in sorted(groups)]
    return histories, problems


def _result_files(folder: Path) -> list[Path]:
    """`*/*.json` without what asv knows of the machine. Not Path.glob: it passes over folders that
    cannot be read, and would show a part for all.
    """
    found = []
    try:
        for machine in sorted(folder.iterdir()):
            if machine.is_dir():
                found += [one for one in sorted(machine.iterdir()) if one.suffix == ".json"]
    except OSError as error:
        raise StoredFileError(error.filename, f"cannot be read: {error.strerror}") from error
    return [path for path in found if path.name != MACHINE]


def _history(
    machine: str, environment: str, about: dict[str, _Benchmark], files: list[_File]
) -> AsvHistory:
    files = sorted(files, key=lambda one: (one.date, one.commit_hash))
    runs = tuple(
        Run(one.commit_hash, one.date / 1e3, one.date / 1e3, environment=_environment(one))
        for one in files
    )
    rows: dict[tuple[str, tuple[str, ...]], dict[int, _Value]] = {}
    for run, one in enumerate(files):
        for benchmark, row in one.results.items():
            for params, value in _values(one.result_columns, row):
                rows.setdefault((benchmark, params), {})[run] = value
    series = [
        Series(_metric(about.get(name, _Benchmark(_type(name))), name, params), _points(values))
        for (name, params), values in rows.items()
    ]
    return AsvHistory(
        machine, environment, runs, tuple(sorted(series, key=lambda one: one.metric.name))
    )


def _points(values: dict[int, _Value]) -> tuple[Point, ...]:
    """Points in order of runs; another version of the benchmark begins a new stretch."""
    points: list[Point] = []
    stretch, version = 0, next(iter(values.values())).version
    for run, one in sorted(values.items()):
        stretch += one.version != version
        version = one.version
        if one.value is None:
            points.append(Point(run, None, "failed", stretch=stretch))
        elif math.isnan(one.value):
            points.append(Point(run, None, "skipped", stretch=stretch))
        else:
            points.append(Point(run, one.value, "measured", one.low, one.high, stretch))
    return tuple(points)


def _metric(about: _Benchmark, name: str, params: tuple[str, ...]) -> Metric:
    names = itertools.chain(about.param_names, itertools.repeat(""))
    given = ", ".join(f"{n}={v}" if n else v for n, v in zip(names, params, strict=False))
    suffix = f"({given})" if given else ""
    title = about.pretty_name or name
    exact = about.type == "track" and about.unit not in NOISY_UNITS
    return Metric(f"{name}{suffix}", f"{title} {suffix}".strip(), about.unit, exact)


def _type(name: str) -> str:
    """Of a benchmark that `benchmarks.json` does not name any more."""
    return name.rpartition(".")[2].partition("_")[0]


def _environment(one: _File) -> tuple[tuple[str, str], ...]:
    facts = {**one.params, **one.requirements}
    return tuple(sorted((str(name), str(value)) for name, value in facts.items()))


def _values(columns: Sequence[str], row: list[Any]) -> Iterable[tuple[tuple[str, ...], _Value]]:
    """The value of each combination of parameters; trailing columns may be left out."""
    cells = dict(zip(columns, row, strict=False))
    params = [list(map(str, values)) for values in cells.get("params") or []]
    combinations = list(itertools.product(*params))
    results = cells.get("result")
    # One null for all combinations: the whole benchmark failed.
    results = [None] * len(combinations) if results is None else results
    low, high = (_column(cells.get(f"stats_q_{q}"), len(combinations)) for q in (25, 75))
    for index, combination in enumerate(combinations):
        value = results[index] if index < len(results) else None
        version = str(cells.get("version") or "")
        yield combination, _Value(_number(value), version, low[index], high[index])


def _column(values: Any, length: int) -> list[float | None]:
    given = values if isinstance(values, list) else []
    numbers = [None if one is None or math.isnan(one) else one for one in map(_number, given)]
    numbers = numbers[:length]
    return numbers + [None] * (length - len(numbers))


def _number(value: Any) -> float | None:
    """A result as a number: asv stores texts, lists and infinities too, which are none; nor is one
    that no sum can hold.
    """
    if not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return None if abs(number) > LARGEST else number


def _benchmarks(path: Path) -> dict[str, _Benchmark]:
    data = {name: value for name, value in _json(path).items() if isinstance(value, dict)}
    return {name: _convert(path, value, _Benchmark) for name, value in data.items()}


def _file(path: Path) -> _File:
    data = _json(path)
    check_depth(path, "asv result", data)
    found = _convert(path, data, _File)
    if not 0 <= found.date < LAST_MS:
        raise StoredFileError(path, f"is no asv result: its date {found.date} is none")
    for benchmark, row in found.results.items():
        cells = dict(zip(found.result_columns, row, strict=False))
        params, result = cells.get("params") or [], cells.get("result")
        if (
            not isinstance(result, list | None)
            or not isinstance(params, list)
            or not all(isinstance(one, list) for one in params)
            or math.prod(map(len, params)) > MOST_COMBINATIONS
        ):
            raise StoredFileError(path, f"is no asv result: the row of {benchmark[:80]!r}")
    return found


def _convert(path: Path, data: Any, kind: type[T]) -> T:
    try:
        return msgspec.convert(data, kind)
    except msgspec.ValidationError as error:
        raise StoredFileError(path, f"is no asv result: {error}") from None


def _json(path: Path) -> dict[str, Any]:
    """A file of asv. The json of the library, because asv writes NaN and Infinity."""
    try:
        data = json.loads(content(path, "asv result"))
    except (ValueError, RecursionError) as error:
        raise StoredFileError(path, f"is damaged or no JSON ({error})") from None
    version = data.get("version") if isinstance(data, dict) else None
    if type(version) is not int:
        raise StoredFileError(path, "is no asv result: it has no version number")
    if version != VERSION:
        late = "install a later jitwarm" if version > VERSION else "run `asv update`"
        raise StoredFileError(
            path, f"is of asv's version {version}, jitwarm reads {VERSION}: {late}"
        )
    return dict(data)
