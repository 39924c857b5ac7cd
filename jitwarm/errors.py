"""Every error a user can meet, each with what happened, where, and what to do.

    JitwarmError
     |- UsageError                 exit 2: the request or the scenario is wrong
     |   |- ScenarioError          a scenario file: carries file and JSON path
     |   |- DeclarationError       a declaration or contract class: carries the kernel's name
     |   |   |- EmptySpaceError    an axis or a predicate left nothing to warm
     |   |   |- UnknownInputError  an axis that neither dispatch nor a predicate declares
     |   |   |- MissingInputError  a required input of dispatch that no axis supplies
     |   |   |- WrongKindError     one kind of object where the contract expects another
     |   |   `- BindingError       a launch that does not fit the kernel's arguments
     |   |- FaultError             a fault file that cannot be run
     |   |- KeyValueError          a key that holds something which is not a value
     |   |- ScalarRangeError       an integer that no Triton integer type holds
     |   |- OutsideCasesError      `_when` where no cases are being expanded
     |   |- RegistrationError      a registration where none is possible
     |   |- MissingExtraError      an optional library is not installed
     |   `- InterpretedError       Triton interprets kernels here and compiles none
     |- RunError                   exit 3: the run itself failed
     |   |- DeviceError            no such device, or a second one in this process
     |   |- WorkerError            a measuring process died
     |   |   `- ArmFailed          a measuring process answered with an error
     |   |- SideFailed             base or head of a comparison does not run
     |   |- NotWrittenError        a file or a folder cannot be written: the disk is full
     |   |- StdoutError            what was found cannot be told
     |   |- NothingStoredError     compile(key) returned and stored no executor
     |   |- CompilerCrashed        a compiler killed the process that it ran in
     |   |- CompileRefused         a compile after start-up, refused in monitor mode `error`
     |   |- HookPointMissing       a compiler's version has no place to watch it from
     |   `- UnexpectedCompiles     compiles in a block that expects none
     `- BaselineError              exit 4: nothing to compare with
         `- StoredFileError        a stored file is damaged, foreign or of a later version

Some of them also are the builtin a caller of the field's contract expects (ValueError, TypeError,
OverflowError, RuntimeError), so that existing `except` clauses keep working.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from jitwarm.report.printable import printable


class JitwarmError(Exception):
    """Base of all errors raised on purpose. `exit_code` is what the command line returns for it."""

    exit_code = 3


class UsageError(JitwarmError):
    """The request is wrong; nothing was started and nothing was written."""

    exit_code = 2


class ScenarioError(UsageError):
    """A scenario file cannot be used.

    `source` is the file (or the option) and `path` the place in it, as in `$.parallel.dcp`.
    """

    def __init__(self, source: str, path: str, problem: str) -> None:
        """Where it is, and what is wrong with it."""
        self.source, self.path, self.problem = source, path, problem
        super().__init__(f"{source}: {path}: {problem}")


class DeclarationError(UsageError, ValueError):
    """A declaration or contract class is wrong; the message starts with the kernel's name."""


class EmptySpaceError(DeclarationError):
    """An axis is empty or a predicate rejects every point, so the kernel would never be warmed."""


class UnknownInputError(DeclarationError, TypeError):
    """An axis names an input that neither dispatch nor a predicate declares."""


class MissingInputError(DeclarationError, TypeError):
    """dispatch (or a predicate) requires an input that no axis supplies."""


class WrongKindError(DeclarationError, TypeError):
    """One kind of object where the contract expects another: a mapping that is no row group."""


class BindingError(DeclarationError, TypeError):
    """A launch cannot be bound to the kernel's arguments."""


class FaultError(UsageError):
    """A fault file cannot be run: it is not there, does not load, or holds no fault."""


class KeyValueError(UsageError, TypeError):
    """A key holds an object that has no value of its own, so two processes would disagree on it."""


class ScalarRangeError(UsageError, OverflowError):
    """An integer below -2**63 or above 2**64 - 1: no launch can pass it."""


class OutsideCasesError(UsageError, RuntimeError):
    """`_when(...)` was called outside a function whose cases are being expanded."""


class RegistrationError(UsageError):
    """A registration happened where no registry can take it (strict mode)."""


class MissingExtraError(UsageError):
    """An optional library is needed and not installed.

    `who` needs `what`, which the extra `extra` installs.
    """

    def __init__(self, who: str, what: str, extra: str) -> None:
        """One line, with the command that helps."""
        self.who, self.what, self.extra = who, what, extra
        super().__init__(f"{who} needs {what}: pip install 'jitwarm[{extra}]'")


class InterpretedError(UsageError):
    """TRITON_INTERPRET is set, and what was asked for needs keys of binaries."""

    def __init__(self) -> None:
        """One line, with what helps."""
        super().__init__("TRITON_INTERPRET is set, so Triton compiles nothing: unset it")


class RunError(JitwarmError):
    """The run failed: no device, a worker died, a kernel does not compile."""


class DeviceError(RunError):
    """The asked-for device is not there, or the process already has another one."""


class WorkerError(RunError):
    """A measuring process ended without a result."""


class ArmFailed(WorkerError):  # noqa: N818 - named for what happened
    """A measuring process answered with an error; `exit_code` is that error's."""

    def __init__(self, message: str, trace: str, exit_code: int) -> None:
        """`trace` is the traceback in the measuring process."""
        super().__init__(message)
        self.trace, self.exit_code = trace, exit_code


class SideFailed(RunError):  # noqa: N818 - named for what happened
    """Base or head of a comparison does not run, or says what cannot be used.

    `side` is `base` or `head`, `problem` what it said.
    """

    def __init__(self, side: str, problem: str) -> None:
        """One line: the side and its own words."""
        self.side, self.problem = side, problem
        super().__init__(f"{side}: {problem}")


class NotWrittenError(RunError, OSError):
    """A file or a folder cannot be written. `path` is the place, `strerror` why."""

    def __init__(self, path: object, error: OSError) -> None:
        """One line, from what the system said."""
        problem = error.strerror or str(error)
        super().__init__(printable(f"{path} cannot be written: {problem}"))
        self.path, self.strerror = path, problem


class StdoutError(RunError):
    """stdout is closed, or lies on a full disk."""

    def __init__(self, problem: str) -> None:
        """One line; what a command writes into files is not lost."""
        super().__init__(f"stdout cannot be written: {problem}")


class NothingStoredError(RunError, RuntimeError):
    """A kernel's compile(key) returned without storing an executor under that key."""


class CompilerCrashed(RunError):  # noqa: N818 - named for what happened
    """A compiler ended the child process it ran in: a fault of the compiler, not of one key's code.

    The key was not tried in this process, which must survive.
    """


class CompileRefused(RunError):  # noqa: N818 - a refusal is the name of the event, not an "error" of the code
    """A launch would have compiled after start-up; the monitor's mode `error` refused it.

    `finding` says what differs from the nearest warmed key, where the monitor knows the plan.
    """

    finding: Any = None


class HookPointMissing(RunError, AttributeError):  # noqa: N818 - named for what is wrong
    """A compiler that is imported here has no such place as jitwarm watches it from, so what it
    compiles would go unseen.
    """

    def __init__(self, backend: str, version: str, attribute: str, problem: str = "") -> None:
        """`attribute` is the place, `problem` what is wrong with it: by default it is not there."""
        self.backend, self.version, self.attribute = backend, version, attribute
        super().__init__(
            f"{backend} {version}: {attribute} {problem or 'is not there'}, so its compiles could "
            "not be watched; install a release that jitwarm knows (pyproject.toml, the extras), or "
            "do without the monitor: mode 'off'"
        )


class UnexpectedCompiles(RunError, AssertionError):  # noqa: N818 - named for what happened
    """Something was compiled, read from disk or tuned where nothing should be.

    `events` are what happened, `findings` say why and what to do.
    """

    def __init__(
        self, message: str, events: Sequence[Any] = (), findings: Sequence[Any] = ()
    ) -> None:
        """The message lists them all."""
        super().__init__(message)
        self.events, self.findings = tuple(events), tuple(findings)


class BaselineError(JitwarmError):
    """There is no baseline, or it cannot be compared with what is measured here."""

    exit_code = 4


# Of what is wrong with a stored file: it may quote a value of any length.
MOST_SHOWN = 400


class StoredFileError(BaselineError):
    """A stored file (result, expectation, calibration, history) cannot be read.

    `path` is the file, `problem` what is wrong with it. Nothing was overwritten.
    """

    def __init__(self, path: object, problem: str) -> None:
        """One line: the file and its problem, which may quote what stands in the file."""
        self.path, self.problem = path, problem
        shown = problem if len(problem) <= MOST_SHOWN else f"{problem[:MOST_SHOWN]}..."
        super().__init__(printable(f"{path}: {shown}"))
