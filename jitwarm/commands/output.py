"""What commands print: data on stdout, notes and complaints on stderr."""

from __future__ import annotations

import argparse
import json
import os
import sys
from typing import Any

import msgspec

from jitwarm.report.printable import printable


def show(options: argparse.Namespace, record: Any, text: str) -> None:
    """The record as one line of JSON if `--json` is given, else the text."""
    say(_json(record) if options.json else text + "\n")


def say(text: str) -> None:
    """Print to stdout, whatever its encoding: a verdict must not be lost to a name in it."""
    encoding = sys.stdout.encoding or "utf-8"
    try:
        print(text.encode(encoding, "backslashreplace").decode(encoding), flush=True)
    except BrokenPipeError:
        # A reader such as `head` has seen enough; the exit code still says what was found.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def complain(text: str) -> None:
    """Say what went wrong, in one line."""
    print(f"jitwarm: {printable(text)}", file=sys.stderr, flush=True)


def note(text: str) -> None:
    """Say what is going on, in one line."""
    print(printable(text), file=sys.stderr, flush=True)


def _json(record: Any) -> str:
    """One line. What UTF-8 or stdout cannot hold, such as half a character of a file's name, is
    escaped as JSON does.
    """
    try:
        text = msgspec.json.encode(record).decode()
        text.encode(sys.stdout.encoding or "utf-8")
    except UnicodeEncodeError:
        return json.dumps(msgspec.to_builtins(record), separators=(",", ":"))
    return text
