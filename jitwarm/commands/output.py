"""What commands print: data on stdout, notes and complaints on stderr."""

from __future__ import annotations

import argparse
import json
import os
import sys
from typing import Any, TextIO

import msgspec

from jitwarm.errors import StdoutError
from jitwarm.report.printable import printable


def show(options: argparse.Namespace, record: Any, text: str) -> None:
    """The record as one line of JSON if `--json` is given, else the text."""
    say(_json(record) if options.json else text + "\n")


def say(text: str) -> None:
    """Print to stdout, whatever its encoding: a verdict must not be lost to a name in it.

    Raises `StdoutError`.
    """
    encoding = _encoding()
    try:
        print(text.encode(encoding, "backslashreplace").decode(encoding), flush=True)
    except BrokenPipeError:
        # A reader such as `head` has seen enough; the exit code still says what was found.
        _discard(sys.stdout)
    except OSError as error:
        _discard(sys.stdout)
        raise StdoutError(error.strerror or str(error)) from error


def complain(text: str) -> None:
    """Say what went wrong, in one line."""
    note(f"jitwarm: {text}")


def note(text: str) -> None:
    """Say what is going on, in one line; where stderr takes nothing, the exit code has to do."""
    if sys.stderr is None:  # closed: print would take stdout, which is for data
        return
    try:
        print(printable(text), file=sys.stderr, flush=True)
    except OSError:
        _discard(sys.stderr)


def _encoding() -> str:
    if sys.stdout is None:
        raise StdoutError("it is closed")
    return sys.stdout.encoding or "utf-8"


def _discard(stream: TextIO) -> None:
    """Python tries once more at its end, and a failure there would become the exit code."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _json(record: Any) -> str:
    """One line. What UTF-8 or stdout cannot hold, such as half a character of a file's name, is
    escaped as JSON does.
    """
    try:
        text = msgspec.json.encode(record).decode()
        text.encode(_encoding())
    except UnicodeEncodeError:
        return json.dumps(msgspec.to_builtins(record), separators=(",", ":"))
    return text
