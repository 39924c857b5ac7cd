"""The command line: its commands, and what becomes of errors.

A command's options are beside it, in `commands/`. Only the module of the command that is asked for
is imported: `jitwarm warm` starts the processes that are measured and must not cost what `report`
and `compare` need (156 against 221 modules, 0.2 s).

Data on stdout, notes and progress on stderr; exit codes 0 ok, 1 gate failed, 2 usage, 3 the run
failed, 4 nothing to compare with.
"""

from __future__ import annotations

import argparse
import contextlib
import errno
import importlib
import signal
import sys
import threading
import traceback
from collections.abc import Iterator, Sequence
from typing import NoReturn

from jitwarm import __version__
from jitwarm.commands.output import complain
from jitwarm.errors import JitwarmError, NotWrittenError
from jitwarm.tally import RUN

COMMANDS = {
    "run": "warm, replay, measure every arm, and judge: the main job",
    "plan": "the keys of every rank; compiles nothing",
    "warm": "plan and warm, from empty caches",
    "prove": "the keys that every admitted launch needs, against the plan; compiles nothing",
    "faults": "run fault files: what is found against what they expect",
    "check": "plans against reviewed expectations",
    "compare": "start-up time of two revisions",
    "report": "stored results and asv histories as one HTML page",
    "scenarios": "list scenario files and check them",
    "doctor": "device, versions, hook points and caches here, and what is wrong with them",
}
_MODULES = {"warm": "plan"}  # of commands that share one

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
    given = sys.argv[1:] if arguments is None else arguments
    try:
        options = _parser(given).parse_args(given)
        with _termination_interrupts():
            code: int = options.run(options)
    except JitwarmError as error:
        complain(str(error))
        code = error.exit_code
    except KeyboardInterrupt:
        complain("interrupted")
        code = RUN
    except Exception as error:  # Python's own exit code would be 1, which means a miss
        complain(_unforeseen(error))
        code = RUN
    return code


def _unforeseen(error: Exception) -> str:
    """A full disk, wherever it was met, or a fault of our own and its place."""
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        return str(NotWrittenError(error.filename or "a file (TMPDIR, a cache)", error))
    frame = traceback.extract_tb(error.__traceback__)[-1]
    text = " ".join(f"{type(error).__name__}: {error}".split())
    return f"internal error: {text} ({frame.filename}:{frame.lineno})"


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


def _parser(arguments: Sequence[str]) -> argparse.ArgumentParser:
    """Every command by name; the one that is asked for with its options."""
    parser = argparse.ArgumentParser(
        prog="jitwarm",
        description="Warms kernels that compile on first use; shows that nothing compiles later.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"jitwarm {__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    asked = next((word for word in arguments if not word.startswith("-")), None)
    for name, text in COMMANDS.items():
        command = commands.add_parser(name, help=text, description=text)
        if name == asked:
            module = importlib.import_module(f"jitwarm.commands.{_MODULES.get(name, name)}")
            module.add_options(command)
            command.set_defaults(run=getattr(module, name))
    return parser


if __name__ == "__main__":
    sys.exit(main())
