"""The text of `jitwarm doctor`: formatting returns it, printing is the command line's."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from jitwarm.amounts import counted
from jitwarm.doctor.cache_places import CacheFolder
from jitwarm.doctor.diagnosis import WRITES, Diagnosis
from jitwarm.report.printable import printable
from jitwarm.report.table import table


def doctor_text(found: Diagnosis) -> str:
    """Everything, in blocks; the last lines are what is wrong, or that nothing is."""
    found = _printable(found)
    blocks = (
        _head(found),
        _devices(found),
        _packages(found),
        _hooks(found),
        _unseen(found),
        _caches(found),
        _variables(found),
        _verdict(found),
    )
    return "\n\n".join("\n".join(block) for block in map(list, blocks) if block)


def _printable(found: Diagnosis) -> Diagnosis:
    """The same with every text in one line that no terminal acts upon: a variable may hold all."""
    return msgspec.convert(_texts(msgspec.to_builtins(found)), Diagnosis)


def _texts(value: Any) -> Any:
    if isinstance(value, str):
        return printable(value)
    if isinstance(value, dict):
        return {_texts(name): _texts(inner) for name, inner in value.items()}
    return [_texts(one) for one in value] if isinstance(value, list | tuple) else value


def _head(found: Diagnosis) -> Iterator[str]:
    own = found.jitwarm
    commit = f", commit {own.commit[:12]}" if own.commit else ""
    yield f"jitwarm {own.version} in {own.path}{commit}{', changed' * own.changed}"
    yield f"Python {found.python} ({found.executable}), {found.platform}, {found.cores} cores"
    yield f"models: {', '.join(found.models) or 'none is installed'}"


def _devices(found: Diagnosis) -> Iterator[str]:
    for index, gpu in enumerate(found.gpus):
        yield f"GPU {index}: {gpu.name}, {gpu.arch}, {gpu.memory}, driver {gpu.driver}"
    if not found.gpus:
        yield "no GPU: runs take the stub device, whose keys and binaries are real"
    torch = found.torch
    if not torch.problem:
        use = "uses the GPU" if torch.usable else "cannot use a GPU here"
        yield f"torch: built {f'for CUDA {torch.cuda}' if torch.cuda else 'without CUDA'}, {use}"
    stub = found.stub
    kinds = f"compiles for {', '.join(stub.compiled)}" if stub.compiled else "compiles nothing"
    yield f"stub device: {kinds}"
    yield f"C compiler: {found.c_compiler or 'none'}"


def _packages(found: Diagnosis) -> Iterator[str]:
    rows = [(name, version or "not installed") for name, version in found.packages.items()]
    yield table(["package", "version"], [row for row in rows if row[0] != "jitwarm"], left=2)


def _hooks(found: Diagnosis) -> Iterator[str]:
    words = {"ok": "watched", "missing": "HOOK POINT MISSING", "broken": "BROKEN"}
    for one in found.hooks:
        yield f"{one.backend}: {words.get(one.state, one.state)}"
        if one.state == "ok":
            yield f"  seen: {one.sees}"
            yield f"  not seen: {one.does_not_see}"


def _unseen(found: Diagnosis) -> Iterator[str]:
    if found.unseen:
        yield "compilers here that nothing is seen of, where a process uses them:"
        yield from (f"  {spot}" for spot in found.unseen)


def _caches(found: Diagnosis) -> Iterator[str]:
    """Folders that are there, are asked for, or will be: their library is installed."""
    rows = [
        (one.variable, one.path, f"{one.files:,}{'+' * (not one.complete)}", _size(one), _word(one))
        for one in found.caches
        if one.exists or one.is_set or found.packages.get(WRITES.get(one.variable, ""))
    ]
    if rows:
        yield table(["cache", "folder", "files", "size", ""], rows, left=2)


def _size(folder: CacheFolder) -> str:
    return f"{folder.bytes / 1e6:,.1f} MB{'+' * (not folder.complete)}"


def _word(folder: CacheFolder) -> str:
    words = ["set" if folder.is_set else "default"]
    if not folder.exists:
        words.append("not there yet")
    if not folder.writable:
        words.append("NOT WRITABLE")
    if folder.shared:
        words.append(f"shared ({folder.filesystem})")
    return ", ".join(words)


def _variables(found: Diagnosis) -> Iterator[str]:
    effects = {"jitwarm": "  (read by jitwarm)", "compiles": "  (changes what is compiled)"}
    for one in found.variables:
        yield f"{one.name}={one.value}{effects.get(one.effect, '')}"


def _verdict(found: Diagnosis) -> Iterator[str]:
    yield from (f"note: {note}" for note in found.notes)
    yield from (f"WRONG: {problem}" for problem in found.problems)
    if found.problems:
        many = len(found.problems)
        yield f"{counted(many, 'thing')} to mend before jitwarm can be trusted here"
    else:
        yield "ok: jitwarm works here"
