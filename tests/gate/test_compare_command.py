"""`jitwarm compare` as a command, on a repository whose start-up is a few lines."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from engine_repository import BURN, SCENARIO, commit, git, make, worktrees, write
from jitwarm import cli
from jitwarm.gate import calibration
from processes import ended
from scripted_times import STUB, sample

SOURCES = str(Path(cli.__file__).parents[1])
MATRIX = SCENARIO + '[cache]\nblock_size = "{block}"\n[matrix]\nblock = [16, 32]\n'


@pytest.fixture
def scratch(tmp_path, monkeypatch):
    folder = tmp_path / "tmp"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setattr(tempfile, "tempdir", None)
    yield folder
    assert list(folder.iterdir()) == [], "something was left behind"


@pytest.fixture
def compare(tmp_path, scratch, monkeypatch, capsys):
    """Run it in this process, from the repository's root: (exit code, verdict, stderr)."""
    monkeypatch.delenv("GITHUB_ACTIONS", raising=False)

    def run(root, *arguments, code, base="main", scenario="scenario.toml"):
        monkeypatch.chdir(root)
        capsys.readouterr()
        fixed = ["--device=stub", "--pairs=8", f"--base={base}", "--json"]
        found = cli.main(["compare", scenario, *fixed, *arguments])
        out, err = capsys.readouterr()
        assert found == code, out + err
        assert worktrees(root) == 1
        return json.loads(out) if out else None, err

    return run


@pytest.fixture
def root(tmp_path):
    return make(tmp_path / "an engine's ünï repo")


def test_the_same_code_passes_and_says_what_it_was(compare, root):
    verdict, err = compare(root, code=0)
    assert (verdict["headline"], verdict["compared"]) == ("ok: 8 pairs as expected", 8)
    (said,) = verdict["statements"]
    commit_hash = git(root, "rev-parse", "HEAD")[:10]
    assert (said["kind"], said["scenario"], said["file"]) == ("SAME", "engine", "scenario.toml")
    assert said["details"][7].split() == ["keys", "2", "2", "+0"]
    assert said["details"][9] == (
        f"base: main ({commit_hash}), 3 modules of its own; "
        f"head: the working tree at {commit_hash}, 3 modules of its own"
    )
    assert said["details"][10].startswith("base and head are the same code")
    assert len(said["details"]) == 11
    notes = err.splitlines()
    assert notes[0] == "engine: first run of base and of head, not timed"
    assert [note.partition(": base")[0] for note in notes[1:]] == [
        f"engine: pair {n} of 8" for n in range(1, 9)
    ]


def test_text_shows_the_numbers_of_a_pass(root, scratch, monkeypatch, capsys):
    monkeypatch.chdir(root)
    assert cli.main(["compare", "scenario.toml", "--base=main", "--pairs=8"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("engine: as fast as base: ")
    assert "\n    processor time, judged " in out
    assert out.endswith("\n\nok: 8 pairs as expected\n\n")


def test_a_dirty_tree_is_head_as_it_is(compare, root):
    write(root, {"model.py": BURN + "class Engine: pass\n", "new.py": ""})
    verdict, _ = compare(root, code=1)
    (said,) = verdict["statements"]
    assert said["kind"] == "SLOWER"
    assert "more processor time" in verdict["headline"]
    assert ", 2 changed files, 3 modules of its own" in said["details"][9]
    assert git(root, "status", "--porcelain").split() == ["M", "model.py", "??", "new.py"]


def test_two_commits_neither_of_which_is_the_working_tree(compare, root):
    commit(root, {"model.py": BURN + "class Engine: pass\n"})
    commit(root, {"model.py": "class Engine: pass\n"})
    (root / "model.py").write_text("raise SystemExit('the working tree must not run')")
    faster, _ = compare(root, "--head=main", base="main~1", code=0)
    assert faster["statements"][0]["kind"] == "FASTER"
    assert faster["headline"] == "ok: 8 pairs as expected, 1 remark"
    slower, _ = compare(root, "--head=main~1", base="main~2", code=1)
    assert slower["statements"][0]["kind"] == "SLOWER"


def test_a_project_in_a_folder_of_its_repository(compare, root):
    commit(root, {"engine/model.py": "class Engine: pass\n"})
    git(root, "mv", "jitwarm", "engine/jitwarm")
    commit(root, {"model.py": "raise SystemExit('not the one of this folder')\n"})
    verdict, _ = compare(root / "engine", scenario="../scenario.toml", code=0)
    (said,) = verdict["statements"]
    assert (said["kind"], said["file"]) == ("SAME", "scenario.toml")
    assert said["details"][9].endswith(", 3 modules of its own")


def test_more_keys_beside_the_time(compare, root):
    more = [{"kernel": "K", "backend_key": key} for key in "abcdefgh"]
    write(root, {"say.json": {"keys": more}, "act.py": BURN})
    verdict, _ = compare(root, code=1)
    assert verdict["headline"].endswith("; 6 more keys: K 2 + 6")


@pytest.mark.parametrize("slow", ["", BURN])
def test_a_pass_with_fewer_keys_is_not_as_expected(compare, root, slow):
    keys = [{"kernel": "K", "backend_key": key} for key in "ab"]
    commit(root, {"say.json": {"keys": keys}, "act.py": slow})
    write(root, {"say.json": {"keys": keys[:1]}, "act.py": ""})
    verdict, _ = compare(root, code=0)
    (said,) = verdict["statements"]
    assert said["kind"] == ("FASTER" if slow else "SAME")
    assert verdict["headline"] == (
        "ok: 8 pairs no slower, with other keys: engine: 1 fewer key: K 2 - 1"
    )
    assert said["advice"] == (
        "other keys take other time: jitwarm check scenario.toml says whether they are expected"
    )


@pytest.mark.parametrize("revision", ["nowhere", "main~3"])
def test_a_base_that_is_no_commit(compare, root, revision):
    verdict, _ = compare(root, base=revision, code=4)
    assert f"has no commit '{revision}'" in verdict["headline"]
    assert verdict["statements"][0]["kind"] == "NOT-COMPARABLE"


def test_a_base_without_the_scenario(compare, root):
    commit(root, {"other.toml": SCENARIO})
    verdict, _ = compare(root, base="main~1", scenario="other.toml", code=4)
    assert "has no other.toml, so there is nothing to compare with" in verdict["headline"]
    assert verdict["compared"] == 0


def test_a_base_without_the_case(compare, root):
    commit(root, {"scenario.toml": MATRIX.replace("[16, 32]", "[16]")})
    commit(root, {"scenario.toml": MATRIX})
    verdict, _ = compare(root, "--case=block=32", base="main~1", code=4)
    assert verdict["headline"].startswith("not comparable: engine block=32: base (main~1 (")
    assert verdict["headline"].endswith(") has no case block=32 in scenario.toml")


def test_a_base_whose_scenario_cannot_be_read(compare, root):
    commit(root, {"scenario.toml": "schema = 1\n"})
    commit(root, {"scenario.toml": SCENARIO})
    verdict, _ = compare(root, base="main~1", code=4)
    assert "has another scenario.toml: $" in verdict["headline"]


def test_each_case_is_a_comparison_of_its_own(compare, root):
    commit(root, {"scenario.toml": MATRIX, "act.py": "record['case'] = {'argv': sys.argv}\n"})
    verdict, err = compare(root, code=0)
    assert [said["case"] for said in verdict["statements"]] == ["block=16", "block=32"]
    assert verdict["compared"] == 16
    assert "engine block=32: pair 8 of 8" in err


@pytest.mark.parametrize("side", ["base", "head"])
def test_a_side_that_does_not_run(compare, root, side):
    failing = {"act.py": "print('jitwarm: boom', file=sys.stderr); sys.exit(3)\n"}
    commit(root, failing)
    commit(root, {"act.py": None})
    if side == "head":
        commit(root, failing)
    verdict, _ = compare(root, base="main~1", code=3)
    told = f"broken: engine: {side} does not run ("
    assert verdict["headline"].startswith(told)
    assert verdict["headline"].endswith("): jitwarm warm ended with status 3: boom")


@pytest.mark.parametrize(
    ("say", "line"),
    [
        ({"device": {"kind": "cuda", "arch": "sm90", "name": "H200", "driver": "580"}},
         "device kind: stub on base, cuda on head"),
        ({"versions": {"python": "3", "torch": "2", "triton": "3.6", "files in caches": "0"}},
         "triton: 3 on base, 3.6 on head"),
    ],
)  # fmt: skip
def test_another_ground_is_no_pass(compare, root, say, line):
    write(root, {"say.json": say})
    verdict, err = compare(root, code=4)
    assert verdict["headline"] == (
        f"not comparable: engine: base and head ran on different ground: {line}"
    )
    assert "pair 1" not in err  # told before anything is measured


def test_base_that_imports_the_working_tree_is_no_base(compare, root):
    text = f"import sys\nsys.path.insert(0, {str(root / 'src')!r})\nimport engine\n"
    commit(root, {"src/engine.py": "", "model.py": text})
    verdict, _ = compare(root, code=4)
    (said,) = verdict["statements"]
    assert said["text"] == (f"base imported 1 foreign file, such as {root}/src/engine.py")
    assert "PYTHONPATH=src" in said["advice"]


def test_a_source_folder_on_the_path_becomes_each_sides_own(compare, root, monkeypatch):
    commit(root, {"src/engine.py": BURN, "model.py": "import engine\n"})
    commit(root, {"src/engine.py": ""})
    monkeypatch.setattr(sys, "path", [*sys.path, str(root / "src")])
    monkeypatch.setenv("PYTHONPATH", str(root / "src"))
    verdict, _ = compare(root, base="main~1", code=0)
    assert verdict["statements"][0]["kind"] == "FASTER"


def test_code_that_is_not_in_the_repository_is_not_compared(compare, tmp_path, monkeypatch):
    installed = make(tmp_path / "installed")
    plain = tmp_path / "plain"
    plain.mkdir()
    git(plain, "init", "--quiet", "--initial-branch=main")
    commit(plain, {"scenario.toml": SCENARIO})
    monkeypatch.setenv("PYTHONPATH", str(installed))
    monkeypatch.syspath_prepend(str(installed))
    verdict, _ = compare(plain, code=4)
    (said,) = verdict["statements"]
    assert said["text"] == (
        "base and head imported no file of the repository, only code from elsewhere"
    )


def test_an_installed_copy_of_the_package_is_not_compared_with_itself(
    compare, root, tmp_path, monkeypatch
):
    away = tmp_path / "site-packages"
    write(away, {"kernels/__init__.py": ""})
    commit(
        root, {"src/kernels/__init__.py": "", "model.py": "import kernels\nclass Engine: pass\n"}
    )
    monkeypatch.setenv("PYTHONPATH", f"{SOURCES}{os.pathsep}{away}")
    verdict, _ = compare(root, code=4)
    assert verdict["headline"] == (
        f"not comparable: engine: base has a package kernels and ran another: {away / 'kernels'}"
    )
    monkeypatch.syspath_prepend(str(root / "src"))
    assert compare(root, code=0)[0]["headline"] == "ok: 8 pairs as expected"


def test_a_tree_that_changes_while_it_is_measured(compare, root):
    edit = f"open({str(root / 'model.py')!r}, 'a').write('# edited\\n')\n"
    write(root, {"act.py": edit})
    verdict, _ = compare(root, code=4)
    assert verdict["headline"] == (
        "not comparable: engine: the working tree changed while it was measured, so head is no one "
        "thing"
    )


def test_keys_that_differ_from_run_to_run(compare, root):
    write(root, {"act.py": "keys[0]['backend_key'] = str(os.getpid())\n"})
    verdict, _ = compare(root, code=1)
    assert verdict["statements"][0]["kind"] == "NONDETERMINISTIC"


def test_a_calibration_of_this_machine_states_the_power(compare, root, tmp_path):
    made = calibrated(root)
    calibration.write_calibration(tmp_path / "c.json", made)
    verdict, _ = compare(root, f"--calibration={tmp_path / 'c.json'}", code=0)
    (said,) = verdict["statements"]
    assert said["details"][-1] == (
        f"calibrated: 8 pairs find +{made.rows[0].smallest_found:.1%} with 90% power, 0.0% false "
        f"alarms, a pair spread by {made.pair_spread:.1%} (own-kernel, {made.recorded_at[:10]})"
    )


def test_a_calibration_of_another_machine_is_told_and_changes_nothing(compare, root, tmp_path):
    calibration.write_calibration(tmp_path / "c.json", calibrated(root, processor="another"))
    verdict, _ = compare(root, f"--calibration={tmp_path / 'c.json'}", code=0)
    remark = verdict["statements"][1]
    assert (remark["kind"], remark["code"]) == ("NOT-COMPARABLE", 0)
    assert remark["text"].startswith("the calibration says nothing here: processor: another in")


def test_a_calibration_that_cannot_be_read(compare, root, tmp_path):
    (tmp_path / "c.json").write_text("{")
    verdict, err = compare(root, f"--calibration={tmp_path / 'c.json'}", code=4)
    assert verdict is None
    assert "c.json: is damaged or no JSON" in err


def calibrated(root, processor=None):
    """A calibration whose versions are those that the repository's jitwarm prints."""
    versions = {"python": "3", "torch": "2", "triton": "3"}
    times = [2.0 + 0.02 * (i % 3) for i in range(120)]
    device = type(STUB)("stub", "sm90", "stub", "none")
    samples = [sample(t, versions=versions, device=device) for t in times]
    made = calibration.calibrate("own-kernel", "", samples, (0.0, 0.0), (8,))
    if processor is None:
        return made
    machine = calibration.Machine(processor, made.machine.cores, made.machine.system)
    return type(made)(**{name: getattr(made, name) for name in made.__struct_fields__}
                      | {"machine": machine})  # fmt: skip


def test_files_for_ci(compare, root, tmp_path):
    write(root, {"act.py": BURN})
    files = [f"--junit={tmp_path / 'j.xml'}", f"--summary={tmp_path / 's.md'}"]
    compare(root, *files, code=1)
    assert 'type="SLOWER"' in (tmp_path / "j.xml").read_text()
    assert "more processor time" in (tmp_path / "s.md").read_text()


@pytest.mark.parametrize(
    "arguments",
    [
        ["--pairs=7"], ["--pairs=9"], ["--pairs=1002"], ["--pairs=x"],
        ["--effect=0"], ["--effect=2"], ["--effect=nan"],
    ],
)  # fmt: skip
def test_requests_that_make_no_sense(root, monkeypatch, capsys, arguments):
    monkeypatch.chdir(root)
    with pytest.raises(SystemExit) as stopped:
        cli.main(["compare", "scenario.toml", "--base=main", *arguments])
    assert stopped.value.code == 2
    capsys.readouterr()


def test_a_scenario_that_is_not_there(compare, root):
    verdict, err = compare(root, scenario="typo.toml", code=2)
    assert verdict is None
    assert "typo.toml: $: no such file or folder" in err


def test_outside_of_a_repository(scratch, tmp_path, monkeypatch, capsys):
    write(tmp_path, {"scenario.toml": SCENARIO})
    monkeypatch.chdir(tmp_path)
    assert cli.main(["compare", "scenario.toml", "--base=main", "--json"]) == 4
    assert "no git repository holds it" in capsys.readouterr().out


# The command line with the default handlers: a shell starts what runs in its background, and so
# the tests there, with SIGINT ignored.
COMMAND = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
from jitwarm import cli
sys.exit(cli.main(sys.argv[1:]))
"""


@pytest.mark.parametrize("which", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_everything_and_leaves_nothing(root, scratch, tmp_path, which):
    pids = tmp_path / "pids"
    pids.mkdir()
    act = (
        "import subprocess\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        f"Path({str(pids)!r}, str(child.pid)).touch()\n"
        f"Path({str(pids)!r}, str(os.getpid())).touch()\n"
        "child.wait()\n"
    )
    commit(root, {"act.py": act})
    process = subprocess.Popen(
        [sys.executable, "-c", COMMAND, "compare", "scenario.toml", "--base=main", "--json",
         "--device=stub"],
        cwd=root, env=os.environ | {"PYTHONPATH": SOURCES, "PYTHONSAFEPATH": "1"},
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        limit = time.monotonic() + 120
        while len(list(pids.iterdir())) < 2 and process.poll() is None:
            assert time.monotonic() < limit, "nothing was started"
            time.sleep(0.02)
        assert worktrees(root) == 2
        process.send_signal(which)
        out, err = process.communicate(timeout=120)
    finally:
        process.kill()
        process.wait()
    assert (process.returncode, out) == (3, "")
    assert err.endswith("jitwarm: interrupted\n")
    assert worktrees(root) == 1
    assert all(ended(name.name) for name in pids.iterdir())
