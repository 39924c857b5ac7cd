"""Environment variables: typed, and a word that is none of the known ones is an error."""

from __future__ import annotations

import pytest

from jitwarm import env
from jitwarm.errors import UsageError

NAMES = ("JITWARM_STRICT", "JITWARM_JOBS")


@pytest.fixture(autouse=True)
def _unset(monkeypatch):
    for name in NAMES:
        monkeypatch.delenv(name, raising=False)


def test_defaults():
    assert (env.strict(), env.jobs()) == (False, None)


@pytest.mark.parametrize(
    ("text", "value"),
    [("1", True), (" TRUE ", True), ("on", True), ("yes", True), ("0", False), ("Off", False)],
)
def test_flags(monkeypatch, text, value):
    monkeypatch.setenv("JITWARM_STRICT", text)
    assert env.strict() is value


def test_a_flag_that_is_neither(monkeypatch):
    monkeypatch.setenv("JITWARM_STRICT", "2")
    with pytest.raises(UsageError) as error:
        env.strict()
    assert str(error.value) == (
        "JITWARM_STRICT='2': expected one of 1, true, yes, on, 0, false, no, off"
    )


@pytest.mark.parametrize(("text", "value"), [("4", 4), (" 1 ", 1), ("", None)])
def test_counts(monkeypatch, text, value):
    monkeypatch.setenv("JITWARM_JOBS", text)
    assert env.jobs() == value


@pytest.mark.parametrize("text", ["0", "-1", "two", "1.5", "²"])
def test_a_count_that_is_none(monkeypatch, text):
    monkeypatch.setenv("JITWARM_JOBS", text)
    with pytest.raises(UsageError, match="JITWARM_JOBS=.*: expected a whole number of at least 1"):
        env.jobs()
