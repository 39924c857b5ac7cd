"""Functions in forked children: what becomes of each, and that none is left running."""

from __future__ import annotations

import itertools
import os
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from jitwarm import forks
from jitwarm.forks import run_each
from processes import ends


@pytest.fixture
def late(monkeypatch):
    """A clock that stands still until so many children have started and a condition holds, and then
    shows 1000 s.
    """

    def when(children, condition):
        readings = itertools.count()  # the first ones are those of the starts
        is_late = lambda: next(readings) >= children and condition()
        clock = SimpleNamespace(monotonic=lambda: 1000.0 * is_late(), sleep=time.sleep)
        monkeypatch.setattr(forks, "time", clock)

    return when


def sleeping():
    time.sleep(600)
    return b""


def test_answers_are_in_order_and_a_problem_is_one_line(pids):
    def raises():
        raise LookupError("no\nsuch thing")

    functions = [lambda: b"one", raises, lambda: os._exit(7), lambda: os.kill(os.getpid(), 9)]
    one, raised, left, killed = run_each(functions, at_once=2, limit_s=600)
    assert (one.answer, one.problem) == (b"one", "")
    assert raised.problem == "LookupError: no such thing"
    assert "in raises" in raised.trace
    assert left.problem == "its process ended with status 7 and no answer"
    assert killed.problem == "its process ended with signal SIGKILL and no answer"
    assert len(pids) == 4


def test_one_that_does_not_end_is_ended_and_the_others_go_on(pids, late):
    late(2, lambda: not Path("/proc", str(pids[1])).exists())  # its answer was taken
    hung, other = run_each([sleeping, lambda: b"done"], at_once=2, limit_s=600)
    assert hung.problem == "it did not end within 600 s"
    assert other.answer == b"done"


def test_what_a_child_runs_itself_ends_with_it(late, tmp_path):
    note = tmp_path / "pid"

    def noted():
        (tmp_path / "part").write_text(str(os.getpid()))
        (tmp_path / "part").rename(note)
        return sleeping()

    late(1, note.exists)
    [hung] = run_each(
        [lambda: run_each([noted], at_once=1, limit_s=1e9)[0].answer], at_once=1, limit_s=600
    )
    assert hung.problem == "it did not end within 600 s"
    assert ends(int(note.read_text()))


def test_a_child_whose_parent_is_gone_does_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "getppid", lambda: 1)
    [found] = run_each([lambda: (tmp_path / "done").touch() or b""], at_once=1, limit_s=600)
    assert found.problem == "its process ended with status 0 and no answer"
    assert not (tmp_path / "done").exists()


def test_an_interrupt_just_when_one_was_waited_for_ends_the_others(pids, monkeypatch):
    waitpid = os.waitpid

    def interrupted(*what):
        found = waitpid(*what)
        if found[0] and what[1]:
            raise KeyboardInterrupt
        return found

    monkeypatch.setattr(os, "waitpid", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run_each([lambda: b"", sleeping], at_once=2, limit_s=600)
    assert len(pids) == 2
    for pid in pids:  # as zombies neither
        with pytest.raises(ChildProcessError):
            waitpid(pid, os.WNOHANG)
