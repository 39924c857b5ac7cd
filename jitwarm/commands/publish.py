"""Publish a verdict: on the terminal, as JSON, in files for CI, and beside the changed lines."""

from __future__ import annotations

import argparse
import os
import tempfile
from collections.abc import Iterable
from pathlib import Path

from jitwarm import atomic, env
from jitwarm.commands.output import annotation, complain, show
from jitwarm.errors import NotWrittenError, UsageError
from jitwarm.gate.verdict import Verdict
from jitwarm.report.annotations import github_annotations
from jitwarm.report.junit import verdict_junit
from jitwarm.report.verdict import verdict_text
from jitwarm.report.verdict_markdown import verdict_markdown
from jitwarm.tally import RUN, worst


def check_publishable(options: argparse.Namespace, others: Iterable[Path] = ()) -> None:
    """Refuse files of `--junit` and `--summary` that cannot be written, that are one and the same,
    or one of the `others` that the command reads or writes, before anything is measured.

    Raises `UsageError`.
    """
    taken = {os.path.realpath(path): "has a use of its own" for path in others}
    for option in ("junit", "summary"):
        name = getattr(options, option)
        if name is None:
            continue
        check_writable_file(option, Path(name))
        place = os.path.realpath(name)
        if Path(place).exists() and not Path(place).is_file():
            continue  # /dev/null takes everything
        if place in taken:
            raise UsageError(f"--{option}: {name} {taken[place]}: give another name")
        taken[place] = f"is the file of --{option}"


def check_writable_file(option: str, path: Path) -> None:
    """Refuse a file that cannot be written because of its folder. Raises `UsageError`."""
    problem = f"--{option}: {path} cannot be written"
    if path.is_dir():
        raise UsageError(f"{problem}: it is a folder")
    place = path.absolute().parent
    while not place.exists() and place != place.parent:
        place = place.parent
    try:
        with tempfile.TemporaryFile(dir=place):  # tells more than permissions do
            pass
    except OSError as error:
        raise UsageError(f"{problem}: {place}: {error.strerror}") from error


def publish(options: argparse.Namespace, verdict: Verdict) -> int:
    """Say it everywhere that `options` (`json`, `junit`, `summary`) and the environment ask for.

    Returns the exit code: the verdict's, or that of a failed run where a file could not be
    written. stdout has the text or, with `--json`, the verdict as one line.
    """
    code = verdict.code
    for name, form in (("junit", _write_junit), ("summary", _write_summary)):
        try:
            if getattr(options, name) is not None:
                form(Path(getattr(options, name)), verdict)
        except NotWrittenError as error:  # the other file is written all the same
            complain(f"the verdict could not be written: {error}")
            code = worst((code, RUN))
    show(options, verdict, verdict_text(verdict))
    if env.github_actions():
        for line in github_annotations(verdict):
            annotation(options, line)
    return code


def _write_junit(path: Path, verdict: Verdict) -> None:
    atomic.write_bytes(path, verdict_junit(verdict))


def _write_summary(path: Path, verdict: Verdict) -> None:
    """A whole file; but the one that GitHub gives a step is shared by all commands of the step."""
    text = verdict_markdown(verdict).encode()
    if path == Path(env.github_step_summary()):
        try:
            with path.open("ab") as file:
                file.write(text)
        except OSError as error:  # which names no file if it met a full disk
            raise NotWrittenError(path, error) from error
    else:
        atomic.write_bytes(path, text)
