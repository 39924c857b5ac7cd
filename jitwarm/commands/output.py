"""What commands print: data on stdout, notes and complaints on stderr."""

from __future__ import annotations

import argparse
import sys
from typing import Any

import msgspec


def show(options: argparse.Namespace, record: Any, text: str) -> None:
    """The record as one line of JSON if `--json` is given, else the text."""
    print(msgspec.json.encode(record).decode() if options.json else text + "\n", flush=True)


def complain(text: str) -> None:
    """Say what went wrong."""
    print(f"jitwarm: {text}", file=sys.stderr, flush=True)


def note(text: str) -> None:
    """Say what is going on."""
    print(text, file=sys.stderr, flush=True)
