"""A process and what it has started end together, in real processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading

import pytest

from jitwarm import process_group
from processes import ended

# Ignores what can be ignored, as do its children: one that does nothing, and one whose first thread
# has ended while another runs, which the kernel lists as a zombie.
TREE = """
import ctypes, os, signal, sys, threading, time
for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
    signal.signal(number, signal.SIG_IGN)
idle, hollow = (os.pipe() for _ in range(2))
if not os.fork():
    os.write(idle[1], b".")
    time.sleep(600)
    os._exit(0)
if not os.fork():
    threading.Thread(target=time.sleep, args=(600,)).start()
    os.write(hollow[1], b".")
    ctypes.CDLL(None).pthread_exit(None)
os.read(idle[0], 1), os.read(hollow[0], 1)
print("started", flush=True)
if sys.argv[1] == "wait":
    time.sleep(600)
"""


@pytest.fixture
def tree():
    started, kill = [], os.killpg

    def of(then):
        leader = subprocess.Popen(
            [sys.executable, "-c", TREE, then], stdout=subprocess.PIPE, start_new_session=True
        )
        started.append(leader)
        assert leader.stdout.readline() == b"started\n"
        return leader

    yield of
    for leader in started:
        if leader.returncode is None:
            kill(leader.pid, signal.SIGKILL)
        leader.communicate()


@pytest.mark.parametrize(("then", "status"), [("wait", -signal.SIGKILL), ("go", 0)])
def test_all_of_a_group_has_ended_before_it_is_reaped(tree, then, status):
    leader = tree(then)
    if then == "go":
        process_group.wait_for(leader)
    children = set(process_group.members(leader.pid)) - {leader.pid}
    assert len(children) == 2
    assert process_group.end(leader) == ()
    assert all(map(ended, children))
    # Its status is still there to be asked for.
    assert os.waitid(os.P_PID, leader.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG) is not None
    assert leader.wait() == status
    assert process_group.members(leader.pid) == ()


def test_the_end_is_waited_for(tree, monkeypatch):
    """A kill that takes its time: that of a large process does."""
    leader, kill, calls = tree("wait"), os.killpg, []

    def slowly(*what):
        calls.append(what)
        threading.Timer(0.2, kill, what).start()

    monkeypatch.setattr(os, "killpg", slowly)
    assert process_group.end(leader) == ()
    assert calls == [(leader.pid, signal.SIGKILL)]
    assert ended(leader.pid)


def test_what_still_runs_at_the_limit_is_named(tree, monkeypatch):
    leader = tree("wait")
    monkeypatch.setattr(os, "killpg", lambda *_: None)
    monkeypatch.setattr(process_group, "LIMIT_S", 0.05)
    assert process_group.end(leader) == process_group.members(leader.pid)
    assert len(process_group.members(leader.pid)) == 3


def test_other_groups_are_left_alone(tree):
    one, other = tree("wait"), tree("wait")
    before = process_group.members(other.pid)
    assert process_group.end(one) == ()
    assert process_group.members(other.pid) == before
    assert len(before) == 3


SLEEPS = [sys.executable, "-c", "import time; time.sleep(600)"]


@pytest.fixture(params=[signal.SIGINT, signal.SIGTERM])
def interrupts(request):
    """A signal that interrupts this process, as Ctrl-C does, and what does that."""

    def interrupt(*_):
        raise KeyboardInterrupt

    before = signal.signal(request.param, interrupt)
    yield request.param, interrupt
    signal.signal(request.param, before)


def test_an_interrupt_while_a_process_starts_ends_it(interrupts, monkeypatch):
    number, handler = interrupts
    started, popen = [], subprocess.Popen

    def interrupted(*command, **options):
        started.append(popen(*command, **options))
        signal.raise_signal(number)
        return started[0]

    monkeypatch.setattr(subprocess, "Popen", interrupted)
    entered = False
    with pytest.raises(KeyboardInterrupt), process_group.running(SLEEPS):
        entered = True
    assert not entered
    assert started[0].returncode == -signal.SIGKILL
    assert signal.getsignal(number) is handler


def test_what_does_not_start_leaves_the_handlers_as_they_were(interrupts):
    number, handler = interrupts
    with pytest.raises(FileNotFoundError), process_group.running(["/no/such/command"]):
        pass
    assert signal.getsignal(number) is handler


def waited_for(leader):
    """Its number names nothing any more."""
    process_group.end(leader)
    leader.wait()


@pytest.mark.parametrize("before", [lambda leader: None, waited_for])
def test_what_ends_the_block_early_ends_the_group(before):
    with pytest.raises(ZeroDivisionError), process_group.running(SLEEPS) as leader:
        1 / (before(leader) or 0)
    assert leader.returncode == -signal.SIGKILL


def test_an_ignored_signal_stays_ignored():
    code = "import signal; print(signal.getsignal(signal.SIGINT) is signal.SIG_IGN)"
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with (
            process_group.running([sys.executable, "-c", code], stdout=subprocess.PIPE) as leader,
            leader.stdout,
        ):
            assert leader.stdout.read() == b"True\n"
            leader.wait()
    finally:
        signal.signal(signal.SIGINT, before)
