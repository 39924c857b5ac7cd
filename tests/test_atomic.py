"""Files are written whole or not at all."""

from __future__ import annotations

import os
import signal
import stat

import pytest

from jitwarm import atomic


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_a_file_and_its_folder_are_made(tmp_path):
    path = tmp_path / "new" / "folder" / "result.json"
    atomic.write_bytes(path, b"one")
    assert path.read_bytes() == b"one"
    assert stat.S_IMODE(path.stat().st_mode) == 0o644
    atomic.write_bytes(path, b"two")
    assert path.read_bytes() == b"two"
    assert names(path.parent) == ["result.json"]


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path):
    path = tmp_path / "result.json"
    atomic.write_bytes(path, b"old")
    with pytest.raises(TypeError):
        atomic.write_bytes(path, "text is no bytes")
    assert path.read_bytes() == b"old"
    assert names(tmp_path) == ["result.json"]


def test_a_target_that_is_a_folder_leaves_nothing_behind(tmp_path):
    (tmp_path / "folder" / "inside").mkdir(parents=True)
    with pytest.raises(OSError, match="directory"):
        atomic.write_bytes(tmp_path / "folder", b"data")
    assert names(tmp_path) == ["folder"]


def test_a_process_killed_between_write_and_rename_leaves_the_old_file(tmp_path, fresh_process):
    path = tmp_path / "result.json"
    path.write_bytes(b"old")
    text = (
        "import os, pathlib, signal, sys\n"
        "from jitwarm import atomic\n"
        "def die(self, target):\n"
        "    assert self.read_bytes() == b'new' * 100_000\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
        "pathlib.Path.replace = die\n"
        f"atomic.write_bytes(pathlib.Path({str(path)!r}), b'new' * 100_000)\n"
    )
    done = fresh_process(text, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert path.read_bytes() == b"old"
    assert len(names(path.parent)) == 2  # the temporary one stays; no reader takes it for a report
    assert all(
        name == "result.json" or name.startswith(".result.json.") for name in names(tmp_path)
    )


def test_a_pipe_stays_a_pipe(tmp_path):
    """And so does a device, which a rename would replace just like it."""
    pipe, link = tmp_path / "pipe", tmp_path / "link"
    os.mkfifo(pipe)
    link.symlink_to(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        for path in (pipe, link):
            atomic.write_bytes(path, b"whole")
            assert os.read(reader, 100) == b"whole"
    finally:
        os.close(reader)
    assert pipe.is_fifo()
    assert link.is_symlink()
    assert names(tmp_path) == ["link", "pipe"]
