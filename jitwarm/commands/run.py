"""`jitwarm run`: warm, replay, measure every arm, and judge."""

from __future__ import annotations

import argparse
import os
import tempfile
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from jitwarm import atomic
from jitwarm.assemble import assemble
from jitwarm.commands.options import case_options, positive
from jitwarm.commands.output import complain, note, show
from jitwarm.commands.selection import chosen_cases, for_each, settings_of
from jitwarm.errors import NotWrittenError, RunError, UsageError, WorkerError
from jitwarm.harness import ARMS, Measured, measure
from jitwarm.observe.monitor import MODES
from jitwarm.record import Result, SourceRecord, encode
from jitwarm.report.terminal import result_text
from jitwarm.scenario import Case, Scenario
from jitwarm.source import source_of
from jitwarm.tally import GATE, OK, RUN, USAGE

# What a case leaves in its folder, in the order in which it is removed.
WRITTEN = ("result.json", "failed.json", "events*.jsonl")


def add_options(command: argparse.ArgumentParser) -> None:
    """Those of a case, samples and arms, the monitor's mode, and where results go."""
    case_options(command)
    add = command.add_argument
    add("--samples", type=positive, default=1, help="fresh processes an arm (3 give a spread)")
    add("--arms", type=_arms, default=ARMS, help="arms beside loaded, as in cold,compiled (all)")
    add("--monitor", choices=MODES[1:], default="record", help="what a late compile does")
    add("--out", default="reports/out", help="where results are written (default reports/out)")


def _arms(text: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in text.split(",") if name.strip())
    unknown = [name for name in names if name not in ARMS]
    if unknown:
        raise argparse.ArgumentTypeError(f"unknown arm {unknown[0]!r}: use {', '.join(ARMS)}")
    return names


def run(options: argparse.Namespace) -> int:
    """Run the chosen cases and write their results."""
    chosen = chosen_cases(options)
    for scenario, case in chosen:
        check_writable(Path(options.out) / scenario.name / case.folder)

    def one(scenario: Scenario, case: Case) -> int:
        folder = Path(options.out) / scenario.name / case.folder
        started = datetime.now(UTC).isoformat(timespec="seconds")
        source = source_of(Path(scenario.path))  # now: nobody promises to leave the files alone
        try:
            measured = measure(case, settings_of(options), note)
            result = assemble(scenario, case, measured, started, source)
            _write(folder, result, measured)
        except (WorkerError, NotWrittenError) as error:
            if error.exit_code == USAGE:
                raise  # nothing was measured, so nothing is written
            return _failed(folder, error, started, source)
        show(options, result, result_text(result, str(folder)))
        return _verdict(result)

    return for_each(options, chosen, one)


def check_writable(folder: Path) -> None:
    """Refuse a folder that results cannot be written to, before anything is measured."""
    problem = f"--out: nothing can be written to {folder}"
    for place in (folder.absolute(), *folder.absolute().parents):
        try:
            place.lstat()
            with tempfile.TemporaryFile(dir=place):  # tells more than permissions do
                return
        except FileNotFoundError:
            # A folder that will be created; but a link that leads nowhere, or /proc, is there.
            if os.path.lexists(place):
                raise UsageError(f"{problem}: {place} takes no file") from None
        except OSError as error:
            raise UsageError(f"{problem}: {place}: {error.strerror}") from error


def _failed(folder: Path, error: RunError, started: str, source: SourceRecord) -> int:
    """Report a case without a result, on a full disk too; the other cases go on."""
    trace = getattr(error, "trace", "")
    report = {"error": str(error), "trace": trace, "started_at": started, "source": source}
    try:
        with atomic.alone(folder):
            atomic.remove(folder, *WRITTEN)  # by an earlier run that did not fail
            atomic.write_bytes(folder / "failed.json", encode(report))
        complain(f"{error} (more in {folder / 'failed.json'})")
    except NotWrittenError as another:
        complain(f"{error} ({another})")
    return error.exit_code


def _verdict(result: Result) -> int:
    if result.is_partial:
        return RUN
    return GATE if result.missed else OK


def _write(folder: Path, result: Result, measured: Measured) -> None:
    """The result comes last and goes first, so that it never stands beside events of another run:
    not of one that failed half way, not of one that runs at the same time.
    """
    encoder = msgspec.json.Encoder()
    several = bool(measured.ranks)
    with atomic.alone(folder):
        atomic.remove(folder, *WRITTEN)
        for answer in (measured.arms["loaded"][0], *measured.ranks):
            if answer.observed is not None:
                name = f"events.rank{answer.observed.rank}.jsonl" if several else "events.jsonl"
                atomic.write_bytes(folder / name, encoder.encode_lines(answer.observed.events))
        atomic.write_bytes(folder / "result.json", encode(result))
