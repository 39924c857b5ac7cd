"""A git repository whose `jitwarm` is a few lines: it warms nothing and prints what it is told to.

`jitwarm compare` runs each side's own jitwarm, so this one shows what a side was started with, in a
fraction of a second. A file `say.json` of a revision changes the record, `act.py` is run before.
"""

from __future__ import annotations

import json
import os
import subprocess

JITWARM = """\
import json, os, sys
from pathlib import Path

import model

here = Path.cwd()
keys = [{"kernel": "K", "backend_key": "a"}, {"kernel": "K", "backend_key": "b"}]
roots = {name: value for name, value in os.environ.items() if name.endswith("_CACHE_DIR")}
files = sum(len(list(Path(folder).iterdir())) for folder in roots.values())
Path(os.environ["TRITON_CACHE_DIR"], "binary").write_text("left behind")
Path(os.environ["TMPDIR"], "scratch").write_text("left behind")
record = {
    "case": {"name": "engine", "axes": {}},
    "device": {"kind": "stub", "arch": "sm90", "name": "stub", "driver": "none"},
    "versions": {"python": "3", "torch": "2", "triton": "3", "files in caches": str(files)},
    "keys": keys,
    "enumeration_s": 0.001,
    "warm": {"seconds": 0.0, "cpu_seconds": 0.0},
}
if (here / "act.py").exists():
    exec((here / "act.py").read_text())
if (here / "say.json").exists():
    record |= json.loads((here / "say.json").read_text())
print(json.dumps(record))
"""
SCENARIO = 'schema = 1\nname = "engine"\nmodel = "model:Engine"\n'
# Seconds of processor time that no machine takes for one that does nothing.
BURN = """
import time
while time.process_time() < 0.3:
    pass
"""


def make(folder, **files):
    """A repository with one commit on branch `main`; `files` as of `commit`."""
    folder.mkdir(parents=True)
    (folder / "jitwarm").mkdir()
    git(folder, "init", "--quiet", "--initial-branch=main")
    own = {
        "jitwarm/__init__.py": "",
        "jitwarm/__main__.py": JITWARM,
        "model.py": "class Engine: pass\n",
        "scenario.toml": SCENARIO,
    }
    commit(folder, own | files)
    return folder


def commit(folder, files):
    """A commit with these files; text None removes one."""
    write(folder, files)
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--message", "change")


def write(folder, files):
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if text is None:
            path.unlink()
        else:
            path.write_text(text if isinstance(text, str) else json.dumps(text))


def git(folder, *arguments):
    """Git without any configuration of the user's; returns what it printed."""
    variables = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    variables |= {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
    for who in ("AUTHOR", "COMMITTER"):
        variables |= {f"GIT_{who}_NAME": "t", f"GIT_{who}_EMAIL": "t@example.invalid"}
    command = ["git", "-c", "protocol.file.allow=always", *arguments]
    done = subprocess.run(command, cwd=folder, env=variables, capture_output=True, check=True)
    return done.stdout.decode()


def worktrees(folder):
    return git(folder, "worktree", "list", "--porcelain").count("worktree ")
