"""One start-up of one side, in real processes."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from engine_repository import BURN, make, write
from jitwarm.errors import RunError, SideFailed
from jitwarm.gate.places import layout
from jitwarm.gate.sampling import ProcessSampler, Request
from processes import ended


@pytest.fixture
def sampler(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", [p for p in sys.path if not p.startswith(str(tmp_path))])
    root = make(tmp_path / "an engine", **{"-s.toml": "x"})
    monkeypatch.chdir(root)
    scratch = tmp_path / "scratch"
    scratch.mkdir()

    def of(scenario="scenario.toml", *arguments, python_path=""):
        place = layout(root, Path(scenario), python_path)
        roots = {"base": root, "head": root}
        made = ProcessSampler(Request(roots, place, place.scenario, arguments, scratch))
        made.root, made.scratch = root, scratch
        return made

    return of


def left(made):
    """What runs have left, but for the compiled modules that the next ones find."""
    return [path.name for path in made.scratch.iterdir() if path.name != "bytecode"]


def test_each_run_starts_from_empty_caches_and_leaves_nothing(sampler):
    made = sampler()
    for index in (0, 1):
        found = made.sample("base", index)
        assert found.versions["files in caches"] == "0"
        assert found.keys == {"K": ("a", "b")}
        assert found.modules == ()
    assert left(made) == []


def test_the_first_run_of_a_side_is_watched(sampler):
    made = sampler()
    modules = {Path(m) for m in made.sample("head", -1).modules}
    assert {made.root / "model.py", made.root / "jitwarm/__main__.py"} <= modules
    assert made.root / "jitwarm/__init__.py" in modules
    assert left(made) == []


def test_a_watched_process_still_has_the_users_sitecustomize(sampler, tmp_path):
    write(tmp_path, {"own/sitecustomize.py": "import json\n"})
    made = sampler(python_path=str(tmp_path / "own"))
    assert str(tmp_path / "own/sitecustomize.py") in made.sample("head", -1).modules


def test_what_only_poses_as_a_module_has_no_file_here(sampler):
    made = sampler()
    act = "posing = type(sys)('_ops')\nposing.__file__ = '_ops.py'\nsys.modules['_ops'] = posing\n"
    write(made.root, {"act.py": act})
    own = [m for m in made.sample("head", -1).modules if m.startswith(str(made.root))]
    assert [Path(m).name for m in own] == ["__init__.py", "__main__.py", "model.py"]


def test_processor_time_is_that_of_every_process_below(sampler):
    made = sampler()
    write(
        made.root,
        {"act.py": f"import subprocess\nsubprocess.run([sys.executable, '-c', {BURN!r}])"},
    )
    found = made.sample("base", 0)
    assert found.cpu_s > 0.3
    assert found.other_cpu_s == found.cpu_s - found.warm_cpu_s


def test_what_a_side_is_asked(sampler):
    made = sampler("-s.toml", "--device=stub", "--set=a=b")
    write(made.root, {"act.py": "record['case'] = {'argv': sys.argv[1:], 'cwd': str(here)}"})
    found = made.sample("base", 0)
    assert found.case == {
        "argv": ["warm", "./-s.toml", "--json", "--device=stub", "--set=a=b"],
        "cwd": str(made.root),
    }


@pytest.mark.parametrize(
    ("act", "problem"),
    [
        ("print('jitwarm: no such model', file=sys.stderr); sys.exit(2)",
         "ended with status 2: no such model"),
        ("raise ValueError('x')", "ended with status 1: .*ValueError: x"),
        ("os.kill(os.getpid(), 9)", "ended by signal 9: no word why"),
        ("print('{\"failed\": [{\"kernel\": \"K\", \"error\": \"too\\\\nlarge\"}]}'); sys.exit(3)",
         "ended with status 3: K: too large"),
        ("sys.exit(0)", "printed 0 lines, not one record"),
        ("print('loading')", "printed 2 lines, not one record"),
        ("record.clear()", "printed another record: Object missing required field `case`"),
        ("os.write(1, b'{\"a\": ' + b'[' * 60_000); os._exit(0)", "another record: .*recursion"),
        ("record['keys'] = 3", r"another record: Expected `array`, got `int` - at `\$.keys`"),
    ],
)  # fmt: skip
def test_a_side_that_does_not_run_says_why(sampler, act, problem):
    made = sampler()
    write(made.root, {"act.py": act})
    with pytest.raises(SideFailed, match=f"head: jitwarm warm.* {problem}"):
        made.sample("head", 3)
    assert left(made) == []


@pytest.mark.parametrize("setting", ["", "1"])
def test_neither_side_has_compiled_modules_from_before(sampler, monkeypatch, setting):
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", setting)
    made = sampler()
    act = "from importlib import util\nfile = util.cache_from_source(model.__file__)\n"
    act += "record['case'] = {'pyc': file}\n"
    write(made.root, {"act.py": act})
    for side in ("base", "head"):
        place = made.sample(side, 0).case["pyc"]
        assert Path(place).is_relative_to(made.scratch / "bytecode")
        assert Path(place).exists()
    assert list(made.root.rglob("__pycache__")) == []


def test_what_a_run_leaves_running_is_ended_before_the_next(sampler, tmp_path):
    made = sampler()
    act = (
        "import subprocess\n"
        "left = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        f"Path({str(tmp_path / 'pid')!r}).write_text(str(left.pid))\n"
    )
    write(made.root, {"act.py": act})
    assert made.sample("base", 0).keys == {"K": ("a", "b")}
    assert ended((tmp_path / "pid").read_text())


def test_what_cannot_be_killed_is_an_error(sampler, monkeypatch):
    monkeypatch.setattr("jitwarm.process_group.members", lambda group: (7, 11))
    monkeypatch.setattr("jitwarm.process_group.LIMIT_S", 0.0)
    made = sampler()
    write(made.root, {"act.py": ""})
    problem = r"jitwarm warm .*: killed, and it still runs \(processes 7, 11\)"
    with pytest.raises(RunError, match=problem):
        made.sample("base", 0)
    assert left(made) == []
