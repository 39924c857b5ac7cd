"""The command line: its options, and what becomes of errors.

Data on stdout, notes and progress on stderr; exit codes 0 ok, 1 gate failed, 2 usage, 3 the run
failed, 4 nothing to compare with.
"""

from __future__ import annotations

import argparse
import contextlib
import signal
import sys
import threading
import traceback
from collections.abc import Iterator, Sequence
from typing import Any, NoReturn

from jitwarm import __version__
from jitwarm.commands.check import STEPS, check
from jitwarm.commands.compare import compare
from jitwarm.commands.doctor import doctor
from jitwarm.commands.faults import faults
from jitwarm.commands.output import complain
from jitwarm.commands.plan import plan, warm
from jitwarm.commands.prove import prove
from jitwarm.commands.report import OUT, report
from jitwarm.commands.run import run
from jitwarm.commands.scenarios import scenarios
from jitwarm.errors import JitwarmError
from jitwarm.gate.rule import EFFECT, LEAST_PAIRS, PAIRS
from jitwarm.harness import ARMS
from jitwarm.monitor import MODES
from jitwarm.tally import RUN

EXAMPLES = """\
examples:
  jitwarm run scenarios/ --quick                              the quick cases, on the GPU or a stub
  jitwarm run scenarios/ --case dcp=8,arch=sm90 --json        one case, one JSON object a line
  jitwarm plan examples/own_kernel/scenario.toml              keys of every rank, nothing compiled
  jitwarm prove scenarios/                                    what is missing, what is never used
  jitwarm faults tests/faults/a1_block_count.py                a known fault, found or not
  jitwarm check scenarios/ --quick                            keys against reports/expected
  jitwarm compare SCENARIO --base main                        is start-up slower than main's
  jitwarm report history/ --asv reports/asv/results           many results, one page
  jitwarm run SCENARIO --set scheduler.max_num_seqs=512       any field of the file, overridden
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Parse, run, and turn every error into one line and an exit code."""
    try:
        options = _parser().parse_args(arguments)
        with _termination_interrupts():
            code: int = options.run(options)
    except JitwarmError as error:
        complain(str(error))
        code = error.exit_code
    except KeyboardInterrupt:
        complain("interrupted")
        code = RUN
    except Exception as error:  # Python's own exit code would be 1, which means a miss
        frame = traceback.extract_tb(error.__traceback__)[-1]
        text = " ".join(f"{type(error).__name__}: {error}".split())
        place = f"{frame.filename}:{frame.lineno}"
        complain(f"internal error: {text} ({place})")
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


def _pairs(text: str) -> int:
    value = int(text)
    if value < LEAST_PAIRS or value % 2:
        problem = f"expected an even number of at least {LEAST_PAIRS}, got {text}"
        raise argparse.ArgumentTypeError(problem)
    return value


def _effect(text: str) -> float:
    value = float(text)
    if not 0.01 <= value <= 1:
        raise argparse.ArgumentTypeError(f"expected a share from 0.01 to 1, as 0.10, got {text}")
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
    command = _case_options(_command(commands, "run", run, main_job))
    add = command.add_argument
    add("--samples", type=_positive, default=1, help="fresh processes an arm (3 give a spread)")
    add("--arms", type=_arms, default=ARMS, help="arms beside loaded, as in cold,compiled (all)")
    add("--monitor", choices=MODES[1:], default="record", help="what a late compile does")
    add("--out", default="reports/out", help="where results are written (default reports/out)")
    _case_options(_command(commands, "plan", plan, "the keys of every rank; compiles nothing"))
    _case_options(_command(commands, "warm", warm, "plan and warm, from empty caches"))
    needed = "the keys that every admitted launch needs, against the plan; compiles nothing"
    command = _case_options(_command(commands, "prove", prove, needed))
    command.add_argument(
        "--out", default="reports/out", help="where run wrote its results: seconds"
    )
    command.add_argument(
        "--require", choices=("proved",), help="exit with 1 if a kernel is only searched or sampled"
    )
    text = "run fault files: what is found against what they expect"
    command = commands.add_parser("faults", help=text, description=text)
    command.set_defaults(run=faults)
    add = command.add_argument
    add("files", nargs="+", metavar="FILE", help="a fault file, or a folder of them")
    add("--jobs", type=_positive, help="processes at once")
    add("--json", action="store_true", help="one JSON object a line on stdout")
    _check_options(_command(commands, "check", check, "plans against reviewed expectations"))
    _compare_options(_command(commands, "compare", compare, "start-up time of two revisions"))
    _report_options(commands)
    _command(commands, "scenarios", scenarios, "list scenario files and check them")
    text = "device, versions, hook points and caches here, and what is wrong with them"
    command = commands.add_parser("doctor", help=text, description=text)
    command.set_defaults(run=doctor)
    command.add_argument("--json", action="store_true", help="one JSON object on stdout")
    return parser


def _report_options(commands: Any) -> None:
    text = "stored results and asv histories as one HTML page"
    command: argparse.ArgumentParser = commands.add_parser("report", help=text, description=text)
    command.set_defaults(run=report)
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


def _command(commands: Any, name: str, action: Any, help_text: str) -> argparse.ArgumentParser:
    command: argparse.ArgumentParser = commands.add_parser(
        name, help=help_text, description=help_text
    )
    add = command.add_argument
    command.set_defaults(run=action)
    add("scenario", metavar="SCENARIO", help="a scenario file, or a folder of them")
    add("--set", action="append", metavar="FIELD=VALUE", help="override a field of the scenario")
    add("--json", action="store_true", help="one JSON object a line on stdout")
    return command


def _check_options(command: argparse.ArgumentParser) -> argparse.ArgumentParser:
    add = command.add_argument
    add("--case", action="append", help="only cases that match, as in dcp=8,arch=sm90; repeatable")
    add("--quick", action="store_true", help="only the cases that the scenario calls quick")
    add("--expected", metavar="DIR", help="default: reports/expected of the scenario's project")
    add("--update", action="store_true", help="make what is planned now the expectation")
    add("--no-replay", action="store_true", help="plans only: do not look for keys that miss")
    add("--steps", type=_positive, help=f"steps of the replay (default: at most {STEPS})")
    # Keys are the same with and without a GPU; so every machine checks every architecture.
    add("--device", choices=("stub", "cuda", "auto"), default="stub", help="default stub: no GPU")
    add("--jobs", type=_positive, help="processes at once (default: one a core, at most 8)")
    return _gate_options(command)


def _compare_options(command: argparse.ArgumentParser) -> argparse.ArgumentParser:
    add = command.add_argument
    add("--base", required=True, metavar="REV", help="the commit, branch or tag to compare with")
    add("--head", metavar="REV", help="what is compared (default: the working tree as it is)")
    add("--pairs", type=_pairs, default=PAIRS, help=f"runs of each side, even (default {PAIRS})")
    effect = f"the slowdown that must be found (default {EFFECT:.2f}: 10 %%)"
    add("--effect", type=_effect, default=EFFECT, metavar="SHARE", help=effect)
    add("--calibration", metavar="FILE", help="what make power wrote on this machine: its power")
    add("--case", action="append", help="only cases that match, as in dcp=8,arch=sm90; repeatable")
    add("--quick", action="store_true", help="only the cases that the scenario calls quick")
    add("--device", choices=("auto", "stub", "cuda"), default="auto", help="auto: a GPU if any")
    add("--jobs", type=_positive, help="compile threads (default: one a core)")
    return _gate_options(command)


def _gate_options(command: argparse.ArgumentParser) -> argparse.ArgumentParser:
    """Where a verdict goes beside stdout: what `commands/publish.py` reads."""
    add = command.add_argument
    add("--junit", metavar="FILE", help="write the verdict as JUnit XML")
    add("--summary", metavar="FILE", help="write the verdict as Markdown, for a CI step's summary")
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
