"""The command line.

Data on stdout, notes and progress on stderr; exit codes 0 ok, 1 gate failed, 2 usage, 3 the run
failed.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import sys
import tempfile
import threading
import tomllib
import traceback
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NoReturn

import msgspec

from jitwarm import __version__, atomic
from jitwarm.assemble import assemble
from jitwarm.device import check_request, gpu_arch
from jitwarm.errors import JitwarmError, ScenarioError, UsageError, WorkerError
from jitwarm.harness import ARMS, Measured, Settings, measure, plan_case, warm_case
from jitwarm.jobs import Answer
from jitwarm.model import check_model
from jitwarm.monitor import MODES
from jitwarm.record import Result, encode
from jitwarm.report.plan import plan_record, plan_text
from jitwarm.report.terminal import result_text
from jitwarm.scenario import Case, Scenario
from jitwarm.scenario_file import find, load
from jitwarm.tally import GATE, OK, RUN, USAGE, each

EXAMPLES = """\
examples:
  jitwarm run scenarios/ --quick                              the quick cases, on the GPU or a stub
  jitwarm run scenarios/ --case dcp=8,arch=sm90 --json        one case, one JSON object a line
  jitwarm plan examples/own_kernel/scenario.toml              keys of every rank, nothing compiled
  jitwarm run SCENARIO --set scheduler.max_num_seqs=512       any field of the file, overridden
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Parse, run, and turn every error into one line and an exit code."""
    try:
        options = _parser().parse_args(arguments)
        with _termination_interrupts():
            code: int = options.run(options)
    except JitwarmError as error:
        _complain(str(error))
        code = error.exit_code
    except KeyboardInterrupt:
        _complain("interrupted")
        code = RUN
    except Exception as error:  # Python's own exit code would be 1, which means a miss
        frame = traceback.extract_tb(error.__traceback__)[-1]
        text = " ".join(f"{type(error).__name__}: {error}".split())
        place = f"{frame.filename}:{frame.lineno}"
        _complain(f"internal error: {text} ({place})")
        code = RUN
    return code


@contextlib.contextmanager
def _termination_interrupts() -> Iterator[None]:
    """SIGTERM ends the run like Ctrl-C, so that it too leaves no process and no scratch folder."""
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread may set handlers
        return
    before = signal.signal(signal.SIGTERM, _interrupt)
    try:
        yield
    finally:
        # None: set by something that is not Python, and out of reach.
        signal.signal(signal.SIGTERM, signal.SIG_DFL if before is None else before)


def _interrupt(*_: object) -> NoReturn:
    raise KeyboardInterrupt


def _run(options: argparse.Namespace) -> int:
    chosen = _cases(options)
    for scenario, case in chosen:
        _check_writable(Path(options.out) / scenario.name / case.folder)

    def one(scenario: Scenario, case: Case) -> int:
        folder = Path(options.out) / scenario.name / case.folder
        started = datetime.now(UTC).isoformat(timespec="seconds")
        try:
            measured = measure(case, _settings(options), _note)
        except WorkerError as error:
            if error.exit_code == USAGE:
                raise  # nothing was measured, so nothing is written
            return _failed(folder, error)
        result = assemble(scenario, case, measured, started)
        _write(folder, result, measured)
        _print(options, result, result_text(result, str(folder)))
        return _verdict(result, measured)

    return _each(options, chosen, one)


def _each(
    options: argparse.Namespace,
    chosen: Sequence[tuple[Scenario, Case]],
    one: Callable[[Scenario, Case], int],
) -> int:
    tally = each(chosen, one, _complain)
    if len({scenario.path for scenario, _ in chosen}) > 1 and not options.json:
        print(tally.text(), flush=True)
    return tally.code


def _check_writable(folder: Path) -> None:
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


def _failed(folder: Path, error: WorkerError) -> int:
    """Report a case without a result; the other cases go on."""
    report = {"error": str(error), "trace": getattr(error, "trace", "")}
    _remove(folder, "result.json", "events*.jsonl")  # of an earlier run that did not fail
    atomic.write_bytes(folder / "failed.json", encode(report))
    _complain(f"{error} (more in {folder / 'failed.json'})")
    return error.exit_code


def _verdict(result: Result, measured: Measured) -> int:
    if measured.failures or result.warm.failed or result.idle_ranks:
        return RUN
    return GATE if result.missed else OK


def _write(folder: Path, result: Result, measured: Measured) -> None:
    _remove(folder, "failed.json", "events*.jsonl")
    encoder = msgspec.json.Encoder()
    several = bool(measured.ranks)
    for answer in (measured.arms["loaded"][0], *measured.ranks):
        if answer.observed is not None:
            name = f"events.rank{answer.observed.rank}.jsonl" if several else "events.jsonl"
            atomic.write_bytes(folder / name, encoder.encode_lines(answer.observed.events))
    atomic.write_bytes(folder / "result.json", encode(result))


def _remove(folder: Path, *patterns: str) -> None:
    for pattern in patterns:
        for stale in folder.glob(pattern):
            stale.unlink(missing_ok=True)


def _plan(options: argparse.Namespace) -> int:
    return _without_traffic(options, plan_case)


def _warm(options: argparse.Namespace) -> int:
    return _without_traffic(options, warm_case)


def _without_traffic(
    options: argparse.Namespace, process: Callable[[Case, Settings], Answer]
) -> int:
    def one(_: Scenario, case: Case) -> int:
        answer = process(case, _settings(options))
        warmed = answer.warmed
        assert warmed is not None  # both jobs carry it
        _print(options, plan_record(case, answer, warmed), plan_text(case, answer, warmed))
        return RUN if warmed.failed else OK

    return _each(options, _cases(options), one)


def _scenarios(options: argparse.Namespace) -> int:
    for path in find(Path(options.scenario)):
        scenario = load(path, _overrides(options))
        for case in scenario.cases:
            check_model(case)
        quick = [case.label for case in scenario.select(scenario.quick)] if scenario.quick else []
        labels = [case.label for case in scenario.cases]
        record = {"path": str(path), "name": scenario.name, "cases": labels, "quick": quick}
        lines = [f"{path}: {scenario.name}, model {scenario.cases[0].model}"]
        lines += [f"  {label or 'one case'}{'  quick' * (label in quick)}" for label in labels]
        _print(options, record, "\n".join(lines))
    return OK


def _cases(options: argparse.Namespace) -> list[tuple[Scenario, Case]]:
    """The chosen cases of all scenarios, every one loaded and checked before the first is run."""
    kind = _device_kind(options)
    arch = gpu_arch() if kind == "cuda" else None
    chosen: list[tuple[Scenario, Case]] = []
    for scenario in _scenario_files(options, arch):
        for case in _selected(options, scenario):
            if arch is None or options.case or case.arch == arch:
                chosen.append((scenario, case))
            else:
                _note(f"{case.title}: left out, the GPU here is {arch}")
    if not chosen:
        wanted = " or ".join(options.case) if options.case else f"the GPU here ({arch})"
        raise UsageError(f"{options.scenario}: no case is for {wanted}")
    for _, case in chosen:
        check_model(case)
        check_request(kind, case.arch)
    return chosen


def _scenario_files(options: argparse.Namespace, arch: str | None) -> list[Scenario]:
    """The scenarios of a file or folder; a name may stand for one only, it names the results."""
    overrides, seen = _overrides(options), dict[str, Scenario]()
    for path in find(Path(options.scenario)):
        scenario = load(path, overrides, arch or "sm90")
        other = seen.setdefault(scenario.name, scenario)
        if other is not scenario:
            problem = f"{scenario.name!r} is the name of {other.path} too"
            raise ScenarioError(scenario.path, "$.name", problem)
    return list(seen.values())


def _selected(options: argparse.Namespace, scenario: Scenario) -> Sequence[Case]:
    """The cases that options name; in a folder a scenario may have none of them."""
    selectors = tuple(options.case or ()) or (scenario.quick if options.quick else ())
    if not Path(options.scenario).is_dir():
        return scenario.select(selectors)
    matching = tuple(one for one in selectors if scenario.matches(one))
    return scenario.select(matching) if matching or not selectors else ()


def _settings(options: argparse.Namespace) -> Settings:
    return Settings(
        samples=getattr(options, "samples", 1),
        device=_device_kind(options),
        threads=options.jobs,
        monitor=getattr(options, "monitor", "record"),
        arms=getattr(options, "arms", ARMS),
    )


def _device_kind(options: argparse.Namespace) -> str:
    if options.device == "auto":
        options.device = "cuda" if gpu_arch() else "stub"
    return str(options.device)


def _overrides(options: argparse.Namespace) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for assignment in options.set or ():
        field, equals, text = assignment.partition("=")
        if not equals or not field:
            raise UsageError(
                f"--set {assignment}: expected FIELD=VALUE, as in scheduler.max_num_seqs=512"
            )
        try:
            values[field] = tomllib.loads(f"value = {text}")["value"]
        except RecursionError:
            raise UsageError(f"--set {field}: is nested too deeply") from None
        except ValueError:
            values[field] = text  # a bare word is a string
    for field in ("seed", "steps"):
        if getattr(options, field, None) is not None:
            values[f"traffic.{field}"] = getattr(options, field)
    return values


def _print(options: argparse.Namespace, record: Any, text: str) -> None:
    print(msgspec.json.encode(record).decode() if options.json else text + "\n", flush=True)


def _complain(text: str) -> None:
    print(f"jitwarm: {text}", file=sys.stderr, flush=True)


def _note(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _arms(text: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in text.split(",") if name.strip())
    unknown = [name for name in names if name not in ARMS]
    if unknown:
        raise argparse.ArgumentTypeError(f"unknown arm {unknown[0]!r}: use {', '.join(ARMS)}")
    return names


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"expected a whole number of at least 1, got {text}")
    return value


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="jitwarm",
        description="Warms kernels that compile on first use; shows that nothing compiles later.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"jitwarm {__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    main_job = "warm, replay, measure every arm, and judge: the main job"
    run = _case_options(_command(commands, "run", _run, main_job))
    add = run.add_argument
    add("--samples", type=_positive, default=1, help="fresh processes an arm (3 give a spread)")
    add("--arms", type=_arms, default=ARMS, help="arms beside loaded, as in cold,compiled (all)")
    add("--monitor", choices=MODES[1:], default="record", help="what a late compile does")
    add("--out", default="reports/out", help="where results are written (default reports/out)")
    _case_options(_command(commands, "plan", _plan, "the keys of every rank; compiles nothing"))
    _case_options(_command(commands, "warm", _warm, "plan and warm, from empty caches"))
    _command(commands, "scenarios", _scenarios, "list scenario files and check them")
    return parser


def _command(commands: Any, name: str, run: Any, help_text: str) -> argparse.ArgumentParser:
    command: argparse.ArgumentParser = commands.add_parser(
        name, help=help_text, description=help_text
    )
    add = command.add_argument
    command.set_defaults(run=run)
    add("scenario", metavar="SCENARIO", help="a scenario file, or a folder of them")
    add("--set", action="append", metavar="FIELD=VALUE", help="override a field of the scenario")
    add("--json", action="store_true", help="one JSON object a line on stdout")
    return command


def _case_options(command: argparse.ArgumentParser) -> argparse.ArgumentParser:
    """What every command that starts measuring processes takes."""
    add = command.add_argument
    add("--case", action="append", help="only cases that match, as in dcp=8,arch=sm90; repeatable")
    add("--quick", action="store_true", help="only the cases that the scenario calls quick")
    add("--seed", type=int, help="seed of the traffic")
    add("--steps", type=_positive, help="steps of the traffic")
    add("--device", choices=("auto", "stub", "cuda"), default="auto", help="auto: a GPU if any")
    add("--jobs", type=_positive, help="compile threads (default: one a core)")
    return command


if __name__ == "__main__":
    sys.exit(main())
