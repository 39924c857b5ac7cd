"""The scripts and workflows that projects copy: their exit codes, and the history they keep."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
CI = ROOT / "ci"
SCRIPTS = ("pr-check", "nightly")
WORKFLOWS = ("jitwarm-pr", "jitwarm-nightly")
SCENARIO = "examples/own_kernel/scenario.toml"
# Nothing of the job or the person that runs these tests.
PLAIN = {
    "PATH": os.environ["PATH"],
    "HOME": os.environ.get("HOME", "/"),
    "GIT_CONFIG_GLOBAL": os.devnull,
}


def git(folder, *arguments):
    identity = ["-c", "user.name=t", "-c", "user.email=t@t", "-c", "commit.gpgsign=false"]
    command = ["git", *identity, *arguments]
    done = subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True)
    return done.stdout.strip()


@pytest.fixture
def project(tmp_path):
    """A project of one kernel and one scenario, in a repository of its own."""
    folder = tmp_path / "project"
    ignore = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "examples", folder / "examples", ignore=ignore)
    scenario = folder / SCENARIO
    scenario.write_text(scenario.read_text().replace("steps = 200", "steps = 20"))
    (folder / ".gitignore").write_text("__pycache__/\nreports/out/\n")
    git(tmp_path, "init", "--quiet", "--initial-branch=main", str(folder))
    commit(folder)
    return folder


def commit(folder):
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--message", "x")
    return git(folder, "rev-parse", "HEAD")


def run(name, project, *arguments, tools=None, **variables):
    """Run a script in the project; `tools` is a folder of commands that go first."""
    folders = [str(tools)] if tools else []
    path = os.pathsep.join([*folders, str(Path(sys.executable).parent), PLAIN["PATH"]])
    return subprocess.run(
        [str(CI / name), *map(str, arguments)],
        cwd=project,
        env=PLAIN | {"PATH": path} | variables,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture
def tools(tmp_path):
    """A `jitwarm` that does nothing and ends with the code in CODE_<COMMAND>; its calls are noted.

    `run` leaves a result and events, `report` its page.
    """
    folder = tmp_path / "tools"
    folder.mkdir()
    (folder / "jitwarm").write_text(
        f"""#!/usr/bin/env bash
command=$1
echo "$@" >>{tmp_path}/calls
while [ $# -gt 0 ]; do case $1 in --out) out=$2 ;; --summary) summary=$2 ;; esac; shift; done
echo "said by $command"
case $command in
    run)
        mkdir -p "$out/own/case" "$out/own/bad"
        echo oh >"$out/own/bad/failed.json"
        echo '{{}}' >"$out/own/case/result.json"
        echo many >"$out/own/case/events.jsonl"
        ;;
    report) echo page >"$out" ;;
    check) echo "# summary of check" >"$summary" ;;
esac
name=CODE_${{command^^}}
exit "${{!name:-0}}"
"""
    )
    (folder / "jitwarm").chmod(0o755)
    return folder


@pytest.fixture
def real(tmp_path):
    """The real `jitwarm`, without the seconds of its doctor; NO_RUN leaves `run` out too."""
    folder = tmp_path / "real"
    folder.mkdir()
    (folder / "jitwarm").write_text(
        f"""#!/usr/bin/env bash
case $1${{NO_RUN:+-no}} in doctor* | run-no) exit 0 ;; esac
exec {Path(sys.executable).parent}/jitwarm "$@"
"""
    )
    (folder / "jitwarm").chmod(0o755)
    return folder


def calls(tmp_path):
    return (tmp_path / "calls").read_text().splitlines()


# --- both


@pytest.mark.parametrize("name", SCRIPTS)
def test_usage(name, project):
    done = run(name, project, "--help")
    assert done.returncode == 0
    assert done.stdout.startswith(f"usage: ci/{name} ")
    done = run(name, project)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"usage: ci/{name} ")


RESULTS = ("--machine", "m", "--results", "r")


@pytest.mark.parametrize(
    ("name", "arguments", "problem"),
    [
        ("pr-check", ("a", "b"), "one SCENARIO, not also b: give a folder"),
        ("pr-check", ("a", "--sumary"), "unknown option --sumary (--help tells)"),
        ("pr-check", ("a", "--base"), "--base needs a value"),
        ("pr-check", ("a", "--base", ""), "--base needs a value"),  # $BASE, and nobody set it
        ("pr-check", ("--out", "--prove", "a"), "--out needs a value"),
        ("nightly", (*RESULTS, "a", "--asv", ""), "--asv needs a value"),
        (
            "nightly",
            ("--machine", "../m", "--results", "r", "a"),
            "--machine ../m: it is the name of",
        ),
        (
            "nightly",
            ("--machine", "a/b", "--results", "r", "a"),
            "--machine a/b: it is the name of",
        ),
        ("nightly", ("--machine", "..", "--results", "r", "a"), "--machine ..: it is the name of"),
        ("nightly", (*RESULTS, "a", "b"), "one SCENARIO, not also b: give a folder"),
        ("nightly", (*RESULTS, "a", "--what"), "unknown option --what (--help tells)"),
        ("nightly", (*RESULTS, "a", "--samples"), "--samples needs a value"),
        ("nightly", ("--results", "r", "a"), "--machine NAME is missing"),
        ("nightly", ("--machine", "m", "a"), "--results DIR or --branch NAME is missing"),
        ("nightly", (*RESULTS, "--branch", "b", "a"), "either --results or --branch"),
        ("nightly", (*RESULTS, "--push", "a"), "--push needs --branch"),
        ("nightly", (*RESULTS, "--device", "gpu", "a"), "--device gpu: cuda, stub or auto"),
        ("nightly", (*RESULTS, "--asv", "no.json", "a"), "--asv no.json: no such file"),
    ],
)
def test_what_is_refused(name, arguments, problem, project):
    done = run(name, project, *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"{name}: {problem}")
    assert not (project / "reports").exists()


@pytest.mark.parametrize("name", SCRIPTS)
def test_without_jitwarm(name, project, tmp_path):
    (tmp_path / "bin").mkdir()
    for tool in ("bash", "env", "cat"):
        (tmp_path / "bin" / tool).symlink_to(shutil.which(tool))
    script = [str(CI / name), *RESULTS[: 4 * (name == "nightly")], "a"]
    done = subprocess.run(
        script, env={"PATH": str(tmp_path / "bin")}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert done.stderr == f"{name}: jitwarm is not on PATH: install it first\n"


@pytest.mark.parametrize("name", SCRIPTS)
def test_shellcheck(name):
    shellcheck = shutil.which("shellcheck")
    if shellcheck is None:
        pytest.skip("shellcheck is not installed")
    done = subprocess.run([shellcheck, str(CI / name)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_is_strict_and_can_be_run(name):
    text = (CI / name).read_text()
    assert text.startswith("#!/usr/bin/env bash\n")
    assert "\nset -euo pipefail\n" in text
    assert os.access(CI / name, os.X_OK)
    code = text.partition("TEXT\n}\n")[2]
    choices = ("--", "0 | 1 | 2", "cuda | stub", "settings |", "'' | -*", "*.md |")  # no pipes
    pipes = [line for line in code.splitlines() if re.search(r"[^|]\|[^|]", line)]
    assert [one for one in pipes if not any(word in one for word in choices)] == []


# --- pr-check


def test_a_pull_request_that_is_red_and_how_it_gets_green(project, real):
    """Really: no expectation, one that is made, a key that is lost, a model that does not load."""
    out = project / "reports" / "out" / "ci"
    done = run("pr-check", project, SCENARIO, tools=real)
    assert done.returncode == 4, done.stderr
    assert "--update" in done.stdout  # what to do

    update = [str(Path(sys.executable).parent / "jitwarm"), "check", SCENARIO, "--update"]
    subprocess.run(update, cwd=project, check=True, capture_output=True)
    assert (project / "reports" / "expected" / "own-kernel.json").is_file()
    summary = project / "step-summary"
    done = run(
        "pr-check", project, SCENARIO, "--prove", tools=real, GITHUB_STEP_SUMMARY=str(summary)
    )
    assert done.returncode == 0, done.stdout + done.stderr
    names = {path.name for path in out.iterdir()}
    assert {"check.txt", "prove.txt", "junit-check.xml", "summary.md"} <= names
    assert "doctor.txt" not in names
    assert summary.read_text() == (out / "summary.md").read_text()
    assert "jitwarm prove: exit code 0" in summary.read_text()

    kernel = project / "examples" / "own_kernel" / "kernel.py"
    text = kernel.read_text()
    kernel.write_text(text.replace("WarmupChoices(1, 2, 16)", "WarmupChoices(1, 2)"))
    done = run("pr-check", project, SCENARIO, tools=real, GITHUB_ACTIONS="true")
    assert done.returncode == 1, done.stdout + done.stderr
    assert "scale_rows" in done.stdout or "ScaleRows" in done.stdout
    assert "::error " in done.stdout  # reaches the log that GitHub reads
    assert "failure" in (out / "junit-check.xml").read_text()
    assert not (out / "prove.txt").exists()  # of the earlier run

    (project / "examples" / "own_kernel" / "model.py").write_text("1 / 0\n")
    assert run("pr-check", project, SCENARIO, tools=real).returncode in (2, 3)


def published(name, out="reports/out/ci"):
    return f"--junit {out}/junit-{name}.xml --summary {out}/summary-{name}.md"


@pytest.mark.parametrize(
    ("codes", "code"),
    [
        ((0, 0, 0), 0),
        ((1, 0, 0), 1),
        ((0, 1, 0), 1),
        ((0, 0, 4), 4),
        ((2, 4, 0), 4),
        ((4, 1, 2), 1),
        ((1, 3, 4), 3),
        ((0, 137, 1), 3),  # killed: no code of jitwarm
    ],
)
def test_the_worst_step_counts_and_every_step_is_run(project, tools, tmp_path, codes, code):
    variables = {
        f"CODE_{k}": str(v) for k, v in zip(("CHECK", "PROVE", "COMPARE"), codes, strict=True)
    }
    arguments = ("--prove", "--base", "main", "--expected", "there", "scenarios/")
    done = run("pr-check", project, *arguments, tools=tools, **variables)
    assert done.returncode == code
    out = "reports/out/ci"
    asked = calls(tmp_path)
    assert asked[:3] == [
        f"check scenarios/ --quick --expected there {published('check')}",
        "prove scenarios/ --quick",
        f"compare scenarios/ --quick --base main {published('compare')}",
    ]
    assert asked[3:] == ["doctor"] * (code == 3)  # the machine may be why
    assert done.stdout == "said by check\nsaid by prove\nsaid by compare\n"
    assert (project / out / "summary.md").read_text() == (
        f"# summary of check\n### jitwarm prove: exit code {codes[1]}\n\n"
        f"### jitwarm compare: exit code {codes[2]}\n\n"
    )


def test_all_cases_and_a_folder_of_its_own(project, tools, tmp_path):
    done = run("pr-check", project, "--all", "--out", "here", "a.toml", tools=tools)
    assert done.returncode == 0
    assert calls(tmp_path) == [f"check a.toml {published('check', 'here')}"]


def test_what_fails_in_a_script_itself_is_no_gate_that_failed(project, tools, tmp_path):
    (project / "file").write_text("")
    done = run("pr-check", project, "--out", "file", "a.toml", tools=tools)
    assert done.returncode == 3
    assert re.search(r"^pr-check: line \d+ failed$", done.stderr, re.MULTILINE)
    assert not (tmp_path / "calls").exists()
    summary = {"GITHUB_STEP_SUMMARY": str(project)}
    assert run("pr-check", project, "a.toml", tools=tools, **summary).returncode == 3
    (project / "reports/out/nightly/doctor.txt").mkdir(parents=True)
    done = nightly(project, "--results", tmp_path / "store", tools=tools)
    assert done.returncode == 3
    assert not (tmp_path / "store" / "records" / "m1").exists()


def test_names_with_spaces_and_a_call_from_elsewhere(project, tools, tmp_path):
    """The scripts work where they are called, wherever they lie themselves."""
    out, scenario = tmp_path / "the out", project / "a scenario.toml"
    done = run("pr-check", tmp_path, "--out", out, "--base", "a b", scenario, tools=tools)
    assert done.returncode == 0, done.stderr
    assert (out / "summary.md").is_file()
    assert calls(tmp_path)[1].startswith(f"compare {scenario} --quick --base a b --junit {out}/")


# --- nightly


def nightly(project, *arguments, tools=None, **variables):
    words = ("--machine", "m1", "--device", "stub", *arguments, SCENARIO)
    return run("nightly", project, *words, tools=tools, **variables)


def test_a_night_adds_to_the_history(project, tools, tmp_path):
    store = tmp_path / "store"
    done = nightly(project, "--results", store, tools=tools)
    assert done.returncode == 0, done.stderr
    head = git(project, "rev-parse", "HEAD")
    (night,) = (store / "records" / "m1").iterdir()
    assert night.name.endswith(f"Z-{head[:8]}")
    files = {str(path.relative_to(night)) for path in night.rglob("*") if path.is_file()}
    # A failed case is history, too: without it the page would show the night before for the newest.
    # Events stay in the job's own folder.
    assert files == {"own/case/result.json", "own/bad/failed.json"}
    assert (project / "reports/out/nightly/report.html").read_text() == "page\n"
    assert calls(tmp_path) == [
        "doctor",
        f"run {SCENARIO} --quick --device stub --samples 3 --out reports/out/nightly/run",
        f"report {store}/records --out reports/out/nightly/report.html",
    ]


@pytest.mark.parametrize(
    ("codes", "code", "saved"),
    [
        ({"CODE_RUN": "1"}, 1, True),
        ({"CODE_RUN": "3", "CODE_REPORT": "4"}, 3, True),
        ({"CODE_REPORT": "4"}, 4, True),
        ({"CODE_RUN": "139"}, 3, True),
        ({"CODE_DOCTOR": "3"}, 3, False),
    ],
)
def test_a_bad_night_is_red_and_kept(project, tools, tmp_path, codes, code, saved):
    store = tmp_path / "store"
    done = nightly(project, "--results", store, tools=tools, **codes)
    assert done.returncode == code
    assert (store / "records" / "m1").exists() is saved
    assert any(call.startswith("run ") for call in calls(tmp_path)) is saved


def test_changes_are_not_measured_as_a_commit(project, tools, tmp_path):
    (project / SCENARIO).write_text("x")
    done = nightly(project, "--results", tmp_path / "store", tools=tools)
    assert done.returncode == 3
    assert " M examples/own_kernel/scenario.toml\n" in done.stderr
    assert "it has changes" in done.stderr
    assert not (tmp_path / "calls").exists()


def test_outside_of_a_checkout(tmp_path, tools):
    done = nightly(tmp_path, "--results", "store", tools=tools, GIT_CEILING_DIRECTORIES="/")
    assert done.returncode == 2
    assert "not in a git checkout" in done.stderr


def stored(project, branch):
    names = git(project, "ls-tree", "-r", "--name-only", branch).splitlines()
    return [name for name in names if name.endswith("result.json")]


def test_the_history_on_a_branch(project, tools, tmp_path):
    for nights in (1, 2):
        done = nightly(project, "--branch", "history", tools=tools)
        assert done.returncode == 0, done.stderr
        assert int(git(project, "rev-list", "--count", "history")) == nights
        commit_another(project)
    assert len(stored(project, "history")) == 2
    assert set(git(project, "ls-tree", "--name-only", "history").splitlines()) == {"records"}
    assert git(project, "log", "-1", "--format=%an %s", "history").startswith("nightly m1: ")
    assert len(git(project, "worktree", "list").splitlines()) == 1
    assert git(project, "status", "--porcelain") == ""
    assert git(project, "branch", "--show-current") == "main"


def commit_another(project):
    (project / "note.txt").write_text(os.urandom(4).hex())
    return commit(project)


def test_the_history_on_a_branch_of_origin(project, tools, tmp_path):
    """Two clones, as two jobs have them: the second goes on where the first has pushed."""
    origin = tmp_path / "origin.git"
    git(tmp_path, "clone", "--quiet", "--bare", str(project), str(origin))
    for name in ("one", "two"):
        git(tmp_path, "clone", "--quiet", str(origin), name)
        commit_another(tmp_path / name)
        done = nightly(tmp_path / name, "--branch", "history", "--push", tools=tools)
        assert done.returncode == 0, done.stderr
    assert len(stored(origin, "history")) == 2


def test_a_push_that_comes_too_late_is_red(project, tools, tmp_path):
    origin = tmp_path / "origin.git"
    git(tmp_path, "clone", "--quiet", "--bare", str(project), str(origin))
    git(tmp_path, "clone", "--quiet", str(origin), "one")
    hook = origin / "hooks" / "pre-receive"
    hook.write_text("#!/bin/sh\nexit 1\n")
    hook.chmod(0o755)
    done = nightly(tmp_path / "one", "--branch", "history", "--push", tools=tools)
    assert done.returncode == 3
    assert "branch history was not pushed" in done.stderr


def test_an_origin_that_does_not_answer_is_no_empty_history(project, tools, tmp_path):
    git(project, "remote", "add", "origin", str(tmp_path / "gone.git"))
    done = nightly(project, "--branch", "history", tools=tools)
    assert done.returncode == 3
    assert "origin does not answer" in done.stderr
    assert not (tmp_path / "calls").exists()


def test_nights_that_are_not_pushed_are_gone_on_from(project, tools, tmp_path):
    """Origin has the first night only: the second and third are here, and stay."""
    origin, one = tmp_path / "origin.git", tmp_path / "one"
    git(tmp_path, "clone", "--quiet", "--bare", str(project), str(origin))
    git(tmp_path, "clone", "--quiet", str(origin), "one")
    for number, push in enumerate((["--push"], [], [], ["--push"]), 1):
        commit_another(one)
        done = nightly(one, "--branch", "history", *push, tools=tools)
        assert done.returncode == 0, done.stderr
        assert len(stored(one, "history")) == number
    assert len(stored(origin, "history")) == 4


def test_a_refused_night_does_not_stand_in_the_way_of_the_next(project, tools, tmp_path):
    origin, one = tmp_path / "origin.git", tmp_path / "one"
    git(tmp_path, "clone", "--quiet", "--bare", str(project), str(origin))
    git(tmp_path, "clone", "--quiet", str(origin), "one")
    hook = origin / "hooks" / "pre-receive"
    for number in (1, 2):  # the night that makes the branch, and one that goes on
        hook.write_text("#!/bin/sh\nexit 1\n")
        hook.chmod(0o755)
        commit_another(one)
        assert nightly(one, "--branch", "history", "--push", tools=tools).returncode == 3
        hook.unlink()
        commit_another(one)
        done = nightly(one, "--branch", "history", "--push", tools=tools)
        assert done.returncode == 0, done.stderr
        assert len(stored(origin, "history")) == len(stored(one, "history")) == number


def test_nights_of_both_sides_are_not_thrown_away(project, tools, tmp_path):
    origin = tmp_path / "origin.git"
    git(tmp_path, "clone", "--quiet", "--bare", str(project), str(origin))
    for name, push in (("one", []), ("two", ["--push"])):
        git(tmp_path, "clone", "--quiet", str(origin), name)
        commit_another(tmp_path / name)
        done = nightly(tmp_path / name, "--branch", "history", *push, tools=tools)
        assert done.returncode == 0, done.stderr
    (tmp_path / "calls").unlink()
    done = nightly(tmp_path / "one", "--branch", "history", tools=tools)
    assert done.returncode == 3
    assert "git branch -D history\n" in done.stderr
    assert len(stored(tmp_path / "one", "history")) == 1
    assert not (tmp_path / "calls").exists()


def test_a_branch_of_code_is_no_history(project, tools, tmp_path):
    head = git(project, "rev-parse", "main")
    done = nightly(project, "--branch", "main", tools=tools)
    assert done.returncode == 2
    assert done.stderr == "nightly: --branch main: it holds examples, and is no history\n"
    assert git(project, "rev-parse", "main") == head
    assert not (tmp_path / "calls").exists()


def test_hooks_and_ignored_names_of_the_project_are_for_its_code(project, tools):
    (project / ".git" / "info" / "exclude").write_text("*.json\n")
    for name in ("pre-commit", "commit-msg", "post-checkout"):
        hook = project / ".git" / "hooks" / name
        hook.write_text("#!/bin/sh\nexit 1\n")
        hook.chmod(0o755)
    done = nightly(project, "--branch", "history", tools=tools)
    assert done.returncode == 0, done.stderr
    assert len(stored(project, "history")) == 1


def test_a_shallow_clone_keeps_its_history(project, tools, tmp_path):
    origin = tmp_path / "origin.git"
    git(tmp_path, "clone", "--quiet", "--bare", str(project), str(origin))
    for name in ("one", "two"):
        git(tmp_path, "clone", "--quiet", "--depth", "1", origin.as_uri(), name)
        commit_another(tmp_path / name)
        done = nightly(tmp_path / name, "--branch", "history", "--push", tools=tools)
        assert done.returncode == 0, done.stderr
    assert int(git(origin, "rev-list", "--count", "history")) == 2


@pytest.mark.parametrize("broken", ["asv.conf.json", "machine"])
def test_an_asv_that_cannot_begin_is_red_and_the_run_is_kept(project, tools, tmp_path, broken):
    pytest.importorskip("asv")
    text = "{" if broken == "asv.conf.json" else '{"version": 1, "project": "p", "repo": "."}'
    (project / "asv.conf.json").write_text(text)
    (tools / "asv").write_text("#!/bin/sh\nexit 1\n")
    (tools / "asv").chmod(0o755)
    commit(project)
    done = nightly(project, "--results", tmp_path / "store", tools=tools)
    assert done.returncode == 3, done.stderr
    assert "asv was not run: exit code 1" in done.stderr
    assert len(list((tmp_path / "store" / "records").rglob("result.json"))) == 1
    assert git(project, "status", "--porcelain") == ""
    assert calls(tmp_path)[-1].startswith("report ")


SUITE = """
import os

class Suite:
    version = "1"

    def track_commit(self):
        return len(os.environ["JITWARM_BENCH_COMMIT"])

    def track_broken(self):
        if os.environ.get("BREAK"):
            raise RuntimeError
        return 1
"""


def test_a_night_with_asv(project, real, tmp_path):
    """Really: a run on the stub device, asv in this environment, the page; then another commit."""
    pytest.importorskip("asv")
    pytest.importorskip("altair")
    (project / "benchmarks").mkdir()
    (project / "benchmarks" / "__init__.py").write_text("")
    (project / "benchmarks" / "suite.py").write_text(SUITE)
    (project / "asv.conf.json").write_text(
        '{"version": 1, "project": "p", "repo": ".", "branches": ["main"], // a comment\n'
        '"benchmark_dir": "benchmarks", "results_dir": "elsewhere", "environment_type": "existing"}'
    )
    (tmp_path / "cur").symlink_to(Path(sys.executable).parents[1])  # the link stays in the name
    python = tmp_path / "cur" / "bin" / "python"
    store = tmp_path / "store"
    words = ("--results", store, "--samples", "1", "--python", python)
    home = {"HOME": str(tmp_path)}  # asv keeps the machine there
    first = commit(project)
    done = nightly(project, *words, tools=real, **home)
    assert done.returncode == 0, done.stdout + done.stderr
    git(project, "checkout", "--quiet", "--detach")  # as the jobs of many a CI have it
    second = commit_another(project)
    git(project, "branch", "--quiet", "-m", "main", "elsewhere")
    done = nightly(project, *words, tools=real, **home, BREAK="1", NO_RUN="1")
    assert done.returncode == 3, done.stdout + done.stderr
    found = {}
    for path in (store / "asv" / "m1").glob("????????-*.json"):
        record = json.loads(path.read_text())
        assert record["env_name"] == "existing-py" + str(python).replace("/", "_")
        found[record["commit_hash"]] = {k: v[0] for k, v in record["results"].items()}
    assert found == {
        first: {"suite.Suite.track_broken": [1], "suite.Suite.track_commit": [40]},
        second: {"suite.Suite.track_broken": None, "suite.Suite.track_commit": [40]},
    }
    assert len(list((store / "records" / "m1").rglob("result.json"))) == 1  # not made up
    page = (project / "reports/out/nightly/report.html").read_text()
    assert "own-kernel" in page
    assert "suite.Suite.track_commit" in page
    assert git(project, "status", "--porcelain") == ""  # its configuration is gone again


# --- workflows


def workflow(name):
    yaml = pytest.importorskip("yaml")
    return yaml.safe_load((CI / "github" / f"{name}.yml").read_text())


@pytest.mark.parametrize("name", WORKFLOWS)
def test_a_workflow(name):
    parsed = workflow(name)
    assert parsed["permissions"] == {"contents": "read"}
    (job,) = parsed["jobs"].values()
    assert job["timeout-minutes"]
    for step in job["steps"]:
        action, _, version = step.get("uses", "x@v1").partition("@")
        assert version[:1] == "v", action
        assert version[1:].isdigit(), action
        assert "${{" not in step.get("run", "")  # what a pull request says is no shell text
    uses = {step["uses"].partition("@")[0]: step for step in job["steps"] if "uses" in step}
    assert uses["actions/checkout"]["with"]["fetch-depth"] == 0
    artifact = uses["actions/upload-artifact"]
    assert artifact["if"] == "always()"
    (called,) = (step["run"] for step in job["steps"] if "ci/" in step.get("run", ""))
    assert f"--out {artifact['with']['path']} " in called


def test_who_may_write():
    (check,) = workflow("jitwarm-pr")["jobs"].values()
    assert "permissions" not in check
    assert check["steps"][0]["with"]["persist-credentials"] is False
    (measure,) = workflow("jitwarm-nightly")["jobs"].values()
    assert measure["permissions"] == {"contents": "write"}  # the branch of the history


@pytest.mark.parametrize("name", WORKFLOWS)
def test_the_call_in_a_workflow_is_understood(name, project, tools, tmp_path):
    """Its script, run as it stands, with our own tools: no option of it is unknown."""
    (job,) = workflow(name)["jobs"].values()
    (text,) = (step["run"] for step in job["steps"] if "ci/" in step.get("run", ""))
    text = text.replace("/opt/jitwarm/env/bin", str(Path(sys.executable).parent))
    text = text.replace('export PATH="', f'export PATH="{tools}:').replace("--push", "")
    (project / "ci").symlink_to(CI)
    git(project, "add", "--all")
    git(project, "commit", "--quiet", "--message", "ci")
    path = os.pathsep.join([str(tools), str(Path(sys.executable).parent), PLAIN["PATH"]])
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", text],
        cwd=project,
        env=PLAIN | {"PATH": path, "BASE": "main"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    expected = {
        "jitwarm-pr": ["check", "prove", "compare"],
        "jitwarm-nightly": ["doctor", "run", "report"],
    }
    assert [call.split()[0] for call in calls(tmp_path)] == expected[name]
