"""What the tests share: a Triton cache of their own, the stub device, fresh processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import settings

HERE = Path(__file__).parent
ROOT = HERE.parent

if str(HERE) not in sys.path:  # helper modules beside the tests are imported by their names
    sys.path.insert(0, str(HERE))

from processes import ended  # noqa: E402 - importable from here on

# An example of a busy machine takes as long as it takes.
settings.register_profile("jitwarm", deadline=None)
settings.load_profile("jitwarm")


@pytest.fixture(autouse=True)
def triton_cache(tmp_path, monkeypatch):
    """The folder of Triton's disk cache, empty and of this test alone."""
    folder = tmp_path / "triton-cache"
    monkeypatch.setenv("TRITON_CACHE_DIR", str(folder))
    return folder


@pytest.fixture
def stub(triton_cache):
    """The device of the test process, sm90 without a GPU; no kernel is in Triton's memory."""
    from jitwarm import device
    from jitwarm.backends.triton import naming

    for fn in naming.known_functions():
        fn.device_caches.clear()
    return device.activate("stub", "sm90")


@pytest.fixture
def outside(monkeypatch):
    """Registrations outside any scope, counted from nothing."""
    from jitwarm import registry

    counter = Counter()
    monkeypatch.setattr(registry, "_outside", counter)
    return counter


@pytest.fixture
def pids(monkeypatch):
    """The children that this process forks; none is left behind, as a zombie neither."""
    started, fork = [], os.fork

    def forked():
        pid = fork()
        if pid:
            started.append(pid)
        return pid

    monkeypatch.setattr(os, "fork", forked)
    yield started
    for pid in started:
        if not ended(pid):
            os.kill(pid, signal.SIGKILL)
            pytest.fail(f"process {pid} was left running")
        with pytest.raises(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)


@pytest.fixture
def fresh_process(triton_cache):
    """Run Python text in a process of its own and return its output; `path` is importable there."""

    def run(text, *, path=(), check=True, **variables):
        folders = [os.environ.get("PYTHONPATH"), str(ROOT), *map(str, path)]
        env = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, folders))} | variables
        done = subprocess.run(
            [sys.executable, "-c", text], capture_output=True, text=True, env=env, check=False
        )
        if check:
            assert done.returncode == 0, done.stderr
            return done.stdout
        return done

    return run
