"""Find and read what `jitwarm run` wrote: results, failed cases, and the events beside them."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import MAXYEAR, UTC, datetime
from pathlib import Path

import msgspec

from jitwarm import stored
from jitwarm.errors import StoredFileError
from jitwarm.history.consistent import check_consistent
from jitwarm.history.content import check_depth, check_numbers, content, is_folder
from jitwarm.record import LARGEST, SCHEMA, Result, SourceRecord

RESULT, FAILED = "result.json", "failed.json"
# What takes worker time in a warm-up, in the order in which a key goes through it.
WARM_KINDS = ("compile", "disk_hit", "load")


class FailedRecord(msgspec.Struct, frozen=True):
    """What `failed.json` holds: why a case has no result."""

    error: str
    trace: str = ""
    started_at: str = ""
    source: SourceRecord = SourceRecord()


class _WarmEvent(msgspec.Struct, frozen=True):
    kind: str
    phase: str
    ms: float
    serving: bool = False


@dataclass(frozen=True, slots=True)
class Stored:
    """A result and its file; `folder` is the name that `run` gave the case.

    `warm_ms` is the worker time of the warm-up by kind of event (`WARM_KINDS`), None where no
    events lie beside the result.
    """

    path: Path
    result: Result
    warm_ms: dict[str, float] | None = None

    @property
    def folder(self) -> str:
        """The name of the folder that the file lies in."""
        return self.path.parent.name


@dataclass(frozen=True, slots=True)
class FailedCase:
    """A case without a result. `run` names its folders `<scenario>/<case>`."""

    path: Path
    record: FailedRecord

    @property
    def scenario(self) -> str:
        """The scenario's name, from the folder."""
        return self.path.absolute().parent.parent.name

    @property
    def folder(self) -> str:
        """The case's folder."""
        return self.path.absolute().parent.name


@dataclass(slots=True)
class Records:
    """Everything that was found, in order of paths; `problems` are the files that cannot be read,
    `copies` counts files left out because one of the same content was there.
    """

    results: list[Stored] = field(default_factory=list)
    failed: list[FailedCase] = field(default_factory=list)
    problems: list[StoredFileError] = field(default_factory=list)
    copies: int = 0


def read_records(paths: Iterable[Path]) -> Records:
    """The records below `paths`: files of any name, and folders searched for `result.json` and
    `failed.json`.

    A path that is not there is a problem like a file that cannot be read. Never raises for either.
    """
    records, seen = Records(), set[tuple[bytes, str]]()
    for path in paths:
        try:
            files = _files(path)
        except StoredFileError as error:
            records.problems.append(error)
            continue
        for file in files:
            try:
                _read(file, records, seen)
            except StoredFileError as error:
                records.problems.append(error)
    return records


def moment(text: str) -> datetime:
    """A time of a record, in UTC; one without a zone is taken for UTC. Raises `ValueError`."""
    found = datetime.fromisoformat(text)
    found = found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)
    if found.year == MAXYEAR:  # as seconds its end is the year after
        raise ValueError(f"{text} is too late")
    return found


def _files(path: Path) -> Sequence[Path]:
    if not is_folder(path):
        return [path]
    found = []
    # Not Path.rglob: it passes over folders that cannot be read, and would show a part for all.
    for folder, folders, names in os.walk(path, onerror=_unreadable):
        folders.sort()
        found += [Path(folder) / name for name in (RESULT, FAILED) if name in names]
    return found


def _unreadable(error: OSError) -> None:
    raise StoredFileError(error.filename, f"cannot be read: {error.strerror}") from error


def _read(file: Path, records: Records, seen: set[tuple[bytes, str]]) -> None:
    data = content(file, "result")
    # A history folder holds a copy of what still lies in reports/out: one run is one point. The
    # names of a failed case are those of its folders.
    names = "/".join(file.absolute().parts[-3:]) if file.name == FAILED else ""
    identity = (hashlib.sha256(data).digest(), names)
    if identity in seen:
        records.copies += 1
    elif file.name == FAILED:
        records.failed.append(FailedCase(file, _failed(file, data)))
    else:
        result = stored.decode(file, data, Result, SCHEMA, "result")
        numbers = msgspec.structs.asdict(result)
        check_depth(file, "result of jitwarm", numbers.pop("case"))  # which may hold any number
        check_numbers(file, "result of jitwarm", msgspec.to_builtins(numbers))
        for name, text in (("started_at", result.started_at), ("source.date", result.source.date)):
            _check_moment(file, name, text, needed=name == "started_at")
        check_consistent(file, result)
        try:
            warm_ms = _warm_ms(file, result)
        except StoredFileError as error:  # the result is whole all the same
            records.problems.append(error)
            warm_ms = None
        records.results.append(Stored(file, result, warm_ms))
    seen.add(identity)


def _failed(file: Path, data: bytes) -> FailedRecord:
    try:
        record = msgspec.json.decode(data, type=FailedRecord)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise StoredFileError(file, f"is no failed case of jitwarm: {error}") from None
    _check_moment(file, "started_at", record.started_at, needed=False)
    _check_moment(file, "source.date", record.source.date, needed=False)
    return record


def _check_moment(file: Path, name: str, text: str, *, needed: bool) -> None:
    if not text and not needed:
        return
    try:
        moment(text)
    except (ValueError, OverflowError):
        raise StoredFileError(
            file, f"is no result of jitwarm: {name} {text[:40]!r} is no time"
        ) from None


def _warm_ms(file: Path, result: Result) -> dict[str, float] | None:
    """Worker milliseconds of the warm-up by kind, from the events of the timed rank."""
    names = ("events.jsonl", f"events.rank{result.coverage.rank}.jsonl")
    path = next((p for name in names if (p := file.parent / name).is_file()), None)
    if path is None or file.name != RESULT:
        return None
    try:
        events = msgspec.json.Decoder(_WarmEvent).decode_lines(content(path, "event file"))
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise StoredFileError(path, f"is damaged, or no events of jitwarm: {error}") from None
    for event in events:
        if not 0 <= event.ms <= LARGEST:
            raise StoredFileError(path, f"is no event file of jitwarm: ms is {event.ms}")
    return {
        kind: sum(e.ms for e in events if e.phase == "warm" and not e.serving and e.kind == kind)
        for kind in WARM_KINDS
    }
