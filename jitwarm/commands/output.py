"""What commands print: data on stdout, notes and complaints on stderr.

Much of it are words of other people's code: no character of them acts on a terminal, and in GitHub
Actions no line is a command of the log, except for an `annotation`.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from typing import Any, TextIO

import msgspec

from jitwarm import env
from jitwarm.errors import StdoutError
from jitwarm.report.printable import printable, without_commands


def show(options: argparse.Namespace, record: Any, text: str) -> None:
    """The record as one line of JSON if `--json` is given, else the text."""
    if options.json:
        say_json(record)
    else:
        say(text + "\n")


def say(text: str) -> None:
    """Print lines to stdout, whatever its encoding: a verdict must not be lost to a name in it.

    Raises `StdoutError`.
    """
    _out(_inert("\n".join(map(printable, text.split("\n")))))


def say_json(record: Any) -> None:
    """Print the record as one line of JSON to stdout. Raises `StdoutError`."""
    text = _json(record)
    # Escaped as JSON does, so that it means the same.
    _out(text.replace("##[", "#\\u0023[") if env.github_actions() else text)


def annotation(options: argparse.Namespace, command: str) -> None:
    """Print a command to the log of GitHub Actions: where stdout is for JSON, on stderr."""
    (_err if options.json else _out)(printable(command))


def complain(text: str) -> None:
    """Say what went wrong, in one line."""
    note(f"jitwarm: {text}")


def note(text: str) -> None:
    """Say what is going on, in one line; where stderr takes nothing, the exit code has to do."""
    _err(_inert(printable(text)))


def _inert(text: str) -> str:
    return without_commands(text) if env.github_actions() else text


def _out(text: str) -> None:
    encoding = _encoding()
    try:
        print(text.encode(encoding, "backslashreplace").decode(encoding), flush=True)
    except BrokenPipeError:
        # A reader such as `head` has seen enough; the exit code still says what was found.
        _discard(sys.stdout)
    except OSError as error:
        _discard(sys.stdout)
        raise StdoutError(error.strerror or str(error)) from error


def _err(text: str) -> None:
    if sys.stderr is None:  # closed: print would take stdout, which is for data
        return
    try:
        print(text, file=sys.stderr, flush=True)
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
