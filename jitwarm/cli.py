"""The command line.

Data on stdout, notes and progress on stderr; exit codes 0 ok, 1 gate failed, 2 usage, 3 the run
failed.
"""

from __future__ import annotations

import argparse
import sys
import tomllib
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from jitwarm import __version__, atomic
from jitwarm.assemble import assemble
from jitwarm.device import check_request, gpu_arch
from jitwarm.errors import ArmFailed, JitwarmError, UsageError
from jitwarm.harness import Measured, Settings, measure, plan_case, warm_case
from jitwarm.jobs import Answer, Warmed
from jitwarm.model import check_model
from jitwarm.monitor import MODES
from jitwarm.record import Result, encode
from jitwarm.report.terminal import plan_text, result_text
from jitwarm.scenario import Case, Scenario, find, load

OK, GATE, USAGE, RUN = 0, 1, 2, 3

EXAMPLES = """\
examples:
  jitwarm run scenarios/ --quick                              the quick cases, on the GPU or a stub
  jitwarm run scenarios/ --case dcp=8,arch=sm90 --json        one case, one JSON object a line
  jitwarm plan examples/own_kernel/scenario.toml              keys of every rank, nothing compiled
  jitwarm run SCENARIO --set scheduler.max_num_seqs=512       any field of the file, overridden
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Parse, run, and turn every error a user can mend into one line and an exit code."""
    options = _parser().parse_args(arguments)
    try:
        code: int = options.run(options)
    except JitwarmError as error:
        print(f"jitwarm: {error}", file=sys.stderr)
        code = error.exit_code
    except KeyboardInterrupt:
        print("jitwarm: interrupted", file=sys.stderr)
        code = RUN
    return code


def _run(options: argparse.Namespace) -> int:
    worst = OK
    for scenario, case in _cases(options):
        settings = _settings(options)
        folder = Path(options.out) / scenario.name / case.folder
        started = datetime.now(UTC).isoformat(timespec="seconds")
        try:
            measured = measure(case, settings, _note)
        except ArmFailed as error:
            if error.exit_code == USAGE:
                raise  # nothing was measured, so nothing is written
            atomic.write_bytes(
                folder / "failed.json", encode({"error": str(error), "trace": error.trace})
            )
            print(f"jitwarm: {error} (traceback in {folder / 'failed.json'})", file=sys.stderr)
            worst = max(worst, error.exit_code)
            continue
        result = assemble(scenario, case, measured, started)
        _write(folder, result, measured)
        _print(options, result, result_text(result, str(folder)))
        worst = max(worst, _verdict(result, measured))
    return worst


def _verdict(result: Result, measured: Measured) -> int:
    if measured.failures or result.warm.failed:
        return RUN
    return GATE if result.missed else OK


def _write(folder: Path, result: Result, measured: Measured) -> None:
    (folder / "failed.json").unlink(missing_ok=True)
    encoder = msgspec.json.Encoder()
    for answer in (measured.arms["loaded"][0], *measured.ranks):
        if answer.observed is None:
            continue
        several = bool(measured.ranks)
        name = f"events.rank{answer.observed.rank}.jsonl" if several else "events.jsonl"
        atomic.write_bytes(folder / name, encoder.encode_lines(answer.observed.events))
    atomic.write_bytes(folder / "result.json", encode(result))


def _plan(options: argparse.Namespace) -> int:
    for _, case in _cases(options):
        answer = plan_case(case, _settings(options))
        _print(options, _known(case, answer), _plan_report(case, answer))
    return OK


def _warm(options: argparse.Namespace) -> int:
    worst = OK
    for _, case in _cases(options):
        answer = warm_case(case, _settings(options))
        _print(options, _known(case, answer), _plan_report(case, answer))
        warmed = answer.warmed
        if warmed is not None and warmed.failed:
            for failed in warmed.failed:
                print(f"FAILED {failed.kernel} {failed.key}: {failed.error}", file=sys.stderr)
            worst = RUN
    return worst


def _scenarios(options: argparse.Namespace) -> int:
    for path in find(Path(options.scenario)):
        scenario = load(path, _overrides(options))
        quick = set(scenario.select(scenario.quick)) if scenario.quick else set()
        if options.json:
            row = {
                "path": str(path),
                "name": scenario.name,
                "cases": [c.label for c in scenario.cases],
            }
            print(
                msgspec.json.encode(
                    row | {"quick": [c.label for c in scenario.cases if c in quick]}
                ).decode()
            )
            continue
        print(
            f"{path}: {scenario.name}, model {scenario.cases[0].model}, {len(scenario.cases)} cases"
        )
        for case in scenario.cases:
            check_model(case)
            print(f"  {case.label or '(one case)'}{'  quick' if case in quick else ''}")
    return OK


def _known(case: Case, answer: Answer) -> dict[str, Any]:
    """The parts of the result schema that planning or warming knows."""
    warmed = _warmed(answer)
    known: dict[str, Any] = {
        "schema": 1,
        "scenario": case.name,
        "case": msgspec.to_builtins(case),
        "device": answer.device,
        "versions": answer.versions,
        "funnel": {"layers": warmed.layers} | msgspec.structs.asdict(warmed.funnel),
        "kernels": warmed.rows,
        "keys": warmed.keys,
        "rank_plans": answer.plans,
        "enumeration_s": warmed.enumeration_s,
        "findings": warmed.findings,
    }
    if answer.arm != "plan":
        known["warm"] = {
            "seconds": warmed.seconds,
            "cpu_seconds": warmed.cpu_seconds,
            "jobs": warmed.threads,
            "depth": warmed.depth,
            "warmed": len(warmed.ready),
            "failed": warmed.failed,
        }
    return known


def _plan_report(case: Case, answer: Answer) -> str:
    warmed = _warmed(answer)
    funnel = warmed.funnel
    head = ["kernel", "registered", "distinct", "points", "keys", "binaries"]
    rows: list[list[object]] = [
        [r.kernel, r.registrations, r.distinct_registrations, r.points, r.keys, r.backend_keys]
        for r in warmed.rows
    ]
    summary = (
        f"{warmed.layers} layers: {funnel.registrations} registrations -> "
        f"{funnel.distinct_registrations} distinct "
        f"({funnel.dedup_ratio:.1f}x) -> {funnel.points} points -> {funnel.keys} keys -> "
        f"{funnel.backend_keys} binaries"
    )
    if answer.arm != "plan":
        summary += (
            f"; {len(warmed.ready)} ready in {answer.ready_s:.1f} s with {warmed.threads} jobs"
        )
    text = plan_text(f"{case.name}  {case.label}", summary, head, rows)
    for row in warmed.rows:
        if row.no_keys_reason:
            text += f"\n  {row.kernel}: no keys: {row.no_keys_reason}"
    for plan in answer.plans:
        counts = f"{plan.keys} keys, {plan.backend_keys} binaries"
        text += f"\n  rank {plan.rank}: {counts}, set {plan.digest}"
    return text + "".join(f"\n{finding.kind} {finding.message}" for finding in warmed.findings)


def _warmed(answer: Answer) -> Warmed:
    assert answer.warmed is not None  # plan and loaded jobs always carry it
    return answer.warmed


def _cases(options: argparse.Namespace) -> list[tuple[Scenario, Case]]:
    """The chosen cases of all scenarios, every one loaded and checked before the first is run."""
    chosen = []
    for path in find(Path(options.scenario)):
        scenario = load(path, _overrides(options))
        selectors = tuple(options.case or ()) or (scenario.quick if options.quick else ())
        chosen += [
            (scenario, case) for case in _on_this_device(options, scenario.select(selectors))
        ]
    for _, case in chosen:
        check_model(case)
        check_request(_device_kind(options), case.arch)
    if not chosen:
        raise UsageError(
            f"no case of {options.scenario} is for the GPU here ({gpu_arch()}); --device stub "
            "runs them all"
        )
    return chosen


def _on_this_device(options: argparse.Namespace, cases: Sequence[Case]) -> Iterator[Case]:
    """On a GPU only the cases of its architecture, unless cases were named."""
    arch = gpu_arch() if _device_kind(options) == "cuda" else None
    for case in cases:
        if arch is None or options.case or case.arch == arch:
            yield case
        else:
            _note(f"{case.name} {case.label}: left out, the GPU here is {arch}")


def _settings(options: argparse.Namespace) -> Settings:
    return Settings(
        getattr(options, "samples", 1),
        options.steps,
        _device_kind(options),
        options.jobs,
        getattr(options, "monitor", "record"),
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
        except tomllib.TOMLDecodeError:
            values[field] = text  # a bare word is a string
    if options.seed is not None:
        values["traffic.seed"] = options.seed
    return values


def _print(options: argparse.Namespace, record: Any, text: str) -> None:
    print(msgspec.json.encode(record).decode() if options.json else text + "\n", flush=True)


def _note(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


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
    run = _command(
        commands, "run", _run, "warm, replay, measure every arm, and judge: the main job"
    )
    run.add_argument(
        "--samples",
        type=_positive,
        default=1,
        help="fresh processes an arm (default 1; 3 or more give a spread)",
    )
    run.add_argument(
        "--monitor",
        choices=MODES[1:],
        default="record",
        help="what a compile while serving does (default record)",
    )
    run.add_argument(
        "--out", default="reports/out", help="where results are written (default reports/out)"
    )
    _command(commands, "plan", _plan, "the keys of every rank; nothing is compiled")
    _command(commands, "warm", _warm, "plan and warm, from empty caches")
    _command(commands, "scenarios", _scenarios, "list scenario files and check them")
    return parser


def _command(commands: Any, name: str, run: Any, help_text: str) -> argparse.ArgumentParser:
    command: argparse.ArgumentParser = commands.add_parser(
        name, help=help_text, description=help_text
    )
    command.set_defaults(run=run)
    command.add_argument(
        "scenario", metavar="SCENARIO", help="a scenario file, or a folder of them"
    )
    command.add_argument(
        "--case",
        action="append",
        help="only cases that match, as in dcp=8,arch=sm90; may be repeated",
    )
    command.add_argument(
        "--quick", action="store_true", help="only the cases that the scenario calls quick"
    )
    command.add_argument(
        "--set", action="append", metavar="FIELD=VALUE", help="override a field of the scenario"
    )
    command.add_argument("--seed", type=int, help="seed of the traffic")
    command.add_argument("--steps", type=_positive, help="steps of the coverage replays")
    command.add_argument(
        "--device",
        choices=("auto", "stub", "cuda"),
        default="auto",
        help="auto: the GPU if there is one",
    )
    command.add_argument("--jobs", type=_positive, help="compile threads (default: one a core)")
    command.add_argument("--json", action="store_true", help="one JSON object a line on stdout")
    return command


if __name__ == "__main__":
    sys.exit(main())
