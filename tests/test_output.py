"""What commands print reaches any terminal, pipe and parser."""

from __future__ import annotations

import argparse
import io
import json
import subprocess
import sys

import msgspec
import pytest

from jitwarm.commands.output import annotation, complain, note, say, show


class Record(msgspec.Struct):
    name: str


def shown(monkeypatch, encoding, name, *, as_json):
    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, encoding=encoding, newline="\n"))
    show(argparse.Namespace(json=as_json), Record(name), name)
    return raw.getvalue()


@pytest.mark.parametrize(
    ("encoding", "name", "text", "line"),
    [
        ("utf-8", "Ünï", b"\xc3\x9cn\xc3\xaf\n\n", b'{"name":"\xc3\x9cn\xc3\xaf"}\n'),
        ("ascii", "Ünï", b"\\xdcn\\xef\n\n", b'{"name":"\\u00dcn\\u00ef"}\n'),
        ("utf-8", "a\udcff", b"a\\udcff\n\n", b'{"name":"a\\udcff"}\n'),
    ],
)
def test_a_name_that_stdout_cannot_hold_is_escaped(monkeypatch, encoding, name, text, line):
    assert shown(monkeypatch, encoding, name, as_json=False) == text
    assert shown(monkeypatch, encoding, name, as_json=True) == line
    assert json.loads(line) == {"name": name}


def test_a_note_is_one_line_and_does_nothing(capsys):
    note("own a=1\n::error::x\x1b[31m: planned")
    complain("own a=1\r: failed")
    assert capsys.readouterr().err == (
        "own a=1\\n::error::x\\x1b[31m: planned\njitwarm: own a=1\\r: failed\n"
    )


@pytest.mark.parametrize(
    ("github", "shown"),
    [
        ("", "FAILED K: no\n::error::x\\r::add-mask::o\n  ::debug::y\n##[group]z\\x1b[31m\n"),
        (
            "true",
            "FAILED K: no\n\\::error::x\\r::add-mask::o\n  \\::debug::y\n#\\#[group]z\\x1b[31m\n",
        ),
    ],
)
def test_no_word_of_other_people_acts_on_a_terminal_or_a_log(monkeypatch, capsys, github, shown):
    monkeypatch.setenv("GITHUB_ACTIONS", github)
    error = "FAILED K: no\n::error::x\r::add-mask::o\n  ::debug::y\n##[group]z\x1b[31m"
    say(error)
    assert capsys.readouterr() == (shown, "")
    show(argparse.Namespace(json=True), Record(error), "")
    data = capsys.readouterr().out
    assert json.loads(data) == {"name": error}
    assert ("##[" in data) == (not github)
    note("::error::x")
    complain("##[error]x")
    escaped = "\\::error::x\njitwarm: #\\#[error]x\n"
    assert capsys.readouterr().err == (escaped if github else "::error::x\njitwarm: ##[error]x\n")


def test_an_annotation_is_a_command(monkeypatch, capsys):
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    annotation(argparse.Namespace(json=False), "::error::x")
    annotation(argparse.Namespace(json=True), "::error::y")
    assert capsys.readouterr() == ("::error::x\n", "::error::y\n")


def test_a_reader_that_has_seen_enough_is_no_failure():
    code = (
        "import argparse, sys; from jitwarm.commands.output import show\n"
        "for _ in range(9): show(argparse.Namespace(json=False), None, 'x' * 99_999)\n"
        "sys.exit(1)"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    process.stdout.read(9)
    process.stdout.close()
    assert (process.stderr.read(), process.wait()) == (b"", 1)
    process.stderr.close()


SAYS = """
import sys
from jitwarm import cli
from jitwarm.commands import scenarios
from jitwarm.commands.output import show
def told(options):
    show(options, ["x"], "x")
    return 1
scenarios.scenarios = told
sys.exit(cli.main(["scenarios", "x", *sys.argv[1:]]))
"""


@pytest.mark.parametrize("option", [[], ["--json"]])
@pytest.mark.parametrize(
    ("redirection", "said"),
    [
        (">/dev/full", "jitwarm: stdout cannot be written: No space left on device\n"),
        (">&-", "jitwarm: stdout cannot be written: it is closed\n"),
    ],
)
def test_a_stdout_that_takes_nothing_is_a_failed_run(option, redirection, said):
    command = ["sh", "-c", f'exec "$@" {redirection}', "sh", sys.executable, "-c", SAYS, *option]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (3, said)


@pytest.mark.parametrize("redirection", ["2>/dev/full", "2>&-"])
def test_a_stderr_that_takes_nothing_changes_no_exit_code(redirection):
    """Python's own for that is 1 or 120, and 1 means a miss."""
    code = "import sys; from jitwarm import cli; sys.exit(cli.main(['scenarios', '/nowhere']))"
    command = ["sh", "-c", f'exec "$@" {redirection}', "sh", sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
