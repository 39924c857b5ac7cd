"""A verdict is said everywhere it was asked for, and a file that cannot be written is no pass."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from xml.etree import ElementTree as ET

import pytest

from jitwarm.commands.publish import check_publishable, publish
from jitwarm.errors import UsageError
from jitwarm.gate.verdict import Statement, conclude

FAILED = conclude(
    "check", "kernels", 2, [Statement("KEYS", 1, "s", "+6 keys", "", "K", file="s.toml")]
)
PASSED = conclude("check", "kernels", 2, [Statement("SAME", 0, "s", "as expected", "", "K")])


@pytest.fixture(autouse=True)
def _no_github(monkeypatch):
    for name in ("GITHUB_ACTIONS", "GITHUB_STEP_SUMMARY"):
        monkeypatch.delenv(name, raising=False)


def options(*, json=False, junit=None, summary=None):
    return argparse.Namespace(json=json, junit=junit, summary=summary)


def test_text_and_nothing_else(capsys):
    assert publish(options(), FAILED) == 1
    assert capsys.readouterr() == ("failed: s K: +6 keys\n\nKEYS s K: +6 keys\n\n", "")
    assert publish(options(), PASSED) == 0


def test_json_is_the_verdict_in_one_line(capsys):
    assert publish(options(json=True), FAILED) == 1
    out, err = capsys.readouterr()
    assert (out.count("\n"), err) == (1, "")
    assert json.loads(out) == {
        "schema": 1,
        "command": "check",
        "code": 1,
        "headline": "failed: s K: +6 keys",
        "compared": 2,
        "statements": [
            {"kind": "KEYS", "code": 1, "scenario": "s", "text": "+6 keys", "kernel": "K",
             "file": "s.toml"}
        ],
        "replayed": "",
    }  # fmt: skip


def test_annotations_only_in_github_actions(capsys, monkeypatch):
    line = "::error file=s.toml,title=jitwarm check%3A KEYS s K::s K: +6 keys\n"
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    publish(options(), FAILED)
    out, err = capsys.readouterr()
    assert (out.endswith(line), err) == (True, "")
    publish(options(json=True), FAILED)
    out, err = capsys.readouterr()
    assert ("::" in out, err) == (False, line)
    publish(options(), PASSED)
    assert "::" not in capsys.readouterr().out
    monkeypatch.setenv("GITHUB_ACTIONS", "false")
    publish(options(), FAILED)
    assert "::" not in capsys.readouterr().out


def test_annotations_that_nobody_can_read_change_no_exit_code():
    code = (
        "import argparse, os, sys; os.environ['GITHUB_ACTIONS'] = 'true'\n"
        "from jitwarm.commands.publish import publish\n"
        "from jitwarm.gate.verdict import Statement, conclude\n"
        "options = argparse.Namespace(json=True, junit=None, summary=None)\n"
        "statements = [Statement('KEYS', 1, 's', '+6 keys')]\n"
        "sys.exit(publish(options, conclude('check', 'kernels', 2, statements)))"
    )
    command = ["sh", "-c", 'exec "$@" 2>/dev/full', "sh", sys.executable, "-c", code]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=False)
    assert done.returncode == 1
    assert json.loads(done.stdout)["code"] == 1


def test_files(tmp_path, capsys):
    junit, summary = tmp_path / "new" / "j.xml", tmp_path / "s.md"
    summary.write_text("old")
    assert publish(options(junit=str(junit), summary=str(summary)), FAILED) == 1
    assert ET.parse(junit).getroot().get("failures") == "1"
    assert summary.read_text().startswith("**failed: s K: +6 keys**\n")


def test_the_summary_of_a_step_is_shared(tmp_path, capsys, monkeypatch):
    summary = tmp_path / "s.md"
    summary.write_text("earlier\n")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(summary))
    publish(options(summary=str(summary)), FAILED)
    publish(options(summary=str(summary)), PASSED)
    lines = summary.read_text().splitlines()
    assert lines[0] == "earlier"
    assert lines[1] == "**failed: s K: +6 keys**"
    assert lines[-1] == "**ok: 2 kernels as expected**"


@pytest.mark.parametrize(("verdict", "code"), [(PASSED, 3), (FAILED, 3)])
def test_a_file_that_cannot_be_written_is_a_failed_run(tmp_path, capsys, verdict, code):
    (tmp_path / "file").write_text("")
    wanted = options(summary=str(tmp_path / "file" / "s.md"))
    assert publish(wanted, verdict) == code
    out, err = capsys.readouterr()
    assert out.startswith(verdict.headline)
    assert err.startswith("jitwarm: the verdict could not be written: ")


def test_files_are_looked_at_before_anything_is_measured(tmp_path):
    (tmp_path / "file").write_text("")
    check_publishable(options())
    check_publishable(options(junit=str(tmp_path / "a" / "b" / "j.xml")))
    assert not (tmp_path / "a").exists()
    for wanted, text in (
        (
            options(junit=str(tmp_path / "file" / "j.xml")),
            "--junit: .*file/j.xml cannot be written",
        ),
        (options(summary=str(tmp_path)), "--summary: .* cannot be written: it is a folder"),
    ):
        with pytest.raises(UsageError, match=text):
            check_publishable(wanted)


def test_a_summary_of_a_step_that_takes_nothing_is_named(capsys, monkeypatch):
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", "/dev/full")
    assert publish(options(summary="/dev/full"), PASSED) == 3
    assert capsys.readouterr().err == (
        "jitwarm: the verdict could not be written: /dev/full cannot be written: "
        "No space left on device\n"
    )


def test_one_file_that_cannot_be_written_does_not_cost_the_other(tmp_path, capsys):
    (tmp_path / "file").write_text("")
    wanted = options(junit=str(tmp_path / "file" / "j.xml"), summary=str(tmp_path / "s.md"))
    assert publish(wanted, FAILED) == 3
    assert (tmp_path / "s.md").read_text().startswith("**failed: s K: +6 keys**\n")


def test_what_to_do_is_no_command_of_the_log(capsys, monkeypatch):
    said = Statement("MISS", 1, "s", "x", "", "::error::K", advice="::error::K: declare n=2")
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    publish(options(), conclude("check", "kernels", 1, [said]))
    lines = capsys.readouterr().out.splitlines()
    assert "\\::error::K: declare n=2" in lines
    assert [line[:24] for line in lines if line.startswith("::")] == ["::error title=jitwarm ch"]


def test_two_outputs_are_two_files_and_none_that_is_read(tmp_path):
    file, link, read = tmp_path / "v", tmp_path / "link", tmp_path / "own.json"
    link.symlink_to(file)
    read.write_text("")
    check_publishable(options(junit=str(file), summary=str(read)))
    check_publishable(options(junit="/dev/null", summary="/dev/null"))
    for name in (file, link, tmp_path / "." / "v"):
        with pytest.raises(UsageError, match="--summary: .* is the file of --junit: give another"):
            check_publishable(options(junit=str(file), summary=str(name)))
    with pytest.raises(UsageError, match="--junit: .*own.json has a use of its own: give another"):
        check_publishable(options(junit=str(read)), [read])
