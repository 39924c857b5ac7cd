"""`jitwarm report`: stored results and asv histories as one HTML page."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from pathlib import Path

from jitwarm import atomic
from jitwarm.amounts import counted
from jitwarm.commands.output import complain, note
from jitwarm.errors import BaselineError, StoredFileError, UsageError
from jitwarm.history.asv import AsvHistory, read_asv
from jitwarm.history.cases import case_histories
from jitwarm.history.expected import compare_all
from jitwarm.history.records import read_records
from jitwarm.report.html.charts import check_extra
from jitwarm.report.html.page import Contents, html_of, page_of
from jitwarm.tally import BASELINE, OK

DEFAULT = Path("reports/out")
OUT = "reports/out/report.html"


def add_options(command: argparse.ArgumentParser) -> None:
    """What is read, and where the page goes."""
    add = command.add_argument
    add(
        "paths",
        nargs="*",
        metavar="PATH",
        help="a result.json, or a folder of them (default reports/out)",
    )
    add("--asv", action="append", metavar="DIR", help="a results folder of asv; repeatable")
    add("--expected", metavar="DIR", help="reviewed expectations, as in reports/expected")
    add("--out", default=OUT, metavar="FILE", help=f"the page (default {OUT})")
    add("--skip-unreadable", action="store_true", help="write the page without unreadable files")


def report(options: argparse.Namespace) -> int:
    """Write the page. With a file that cannot be read nothing is written, unless
    `--skip-unreadable`; the exit code tells of it either way.
    """
    check_extra()
    out = Path(options.out)
    _check_out(out, [Path(path) for path in options.paths])
    records = read_records(_paths(options))
    cases, orphans = case_histories(records)
    trees, problems = _trees(options.asv)
    problems = [*records.problems, *problems]
    expected = None
    if options.expected:
        expected, wrong = compare_all(cases, Path(options.expected))
        problems += wrong
    for problem in problems:
        complain(str(problem))
    if problems and not options.skip_unreadable:
        many = len(problems) > 1
        them = "them" if many else "it"
        complain(
            f"nothing was written: {counted(len(problems), 'file')} cannot be read (mend {them}, "
            f"remove {them}, or --skip-unreadable)"
        )
        return BASELINE
    if not (cases or orphans or trees):
        raise BaselineError(f"no results in {_named(options)}: `jitwarm run` writes them")
    told = tuple(map(str, problems))
    page = page_of(Contents(cases, orphans, trees, told, records.copies, expected))
    html = html_of(page)
    try:
        atomic.write_bytes(out, html)
    except OSError as error:
        raise UsageError(f"--out: {out} cannot be written: {error.strerror}") from error
    results = sum(len(one.measured) for one in cases) + len(orphans)
    commits = sum(len(one.runs) for one in trees)
    note(
        f"{out}: {counted(len(cases) + len(orphans), 'case')} of {counted(results, 'result')}, "
        f"{counted(commits, 'commit')} of asv, {len(html) / 1e6:.1f} MB"
    )
    return BASELINE if problems else OK


def _check_out(out: Path, given: Sequence[Path]) -> None:
    """Refuse an `--out` that would replace what is read, or another file of numbers."""
    try:
        if out.is_dir():
            raise UsageError(f"--out: {out} is a folder, the page is a file")
        place = os.path.realpath(out)  # not Path.resolve, which raises for a loop of links
        stored = out.suffix in (".json", ".jsonl") or place in map(os.path.realpath, given)
        if stored and out.exists():
            raise UsageError(f"--out: {out} is there and is no page: give another name")
    except OSError as error:
        raise UsageError(f"--out: {out} cannot be written: {error.strerror}") from error


def _paths(options: argparse.Namespace) -> Sequence[Path]:
    """What to read; the default only where it is there or nothing else is asked for."""
    if options.paths:
        return [Path(path) for path in options.paths]
    return [DEFAULT] if DEFAULT.is_dir() or not options.asv else []


def _trees(folders: Sequence[str] | None) -> tuple[list[AsvHistory], list[StoredFileError]]:
    trees: list[AsvHistory] = []
    problems: list[StoredFileError] = []
    for folder in folders or ():
        found, wrong = read_asv(Path(folder))
        if not found and not wrong:
            wrong = [StoredFileError(folder, "holds no asv results")]
        trees += found
        problems += wrong
    return trees, problems


def _named(options: argparse.Namespace) -> str:
    return " ".join([*map(str, _paths(options)), *(options.asv or ())])
