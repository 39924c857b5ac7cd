"""The command line in this process: what it refuses, what it lists, and how it exits."""

from __future__ import annotations

import errno
import json
import os
import signal
import threading
from pathlib import Path

import pytest

from jitwarm.cli import main
from jitwarm.commands import run as command
from jitwarm.errors import WorkerError

ROOT = Path(__file__).parents[1]
SCENARIO = str(ROOT / "scenarios" / "deepseek-v3.2-dcp.toml")
MINIMAL = """
schema = 1
name = "{name}"
model = "{model}"
"""


@pytest.fixture(autouse=True)
def _no_gpu(monkeypatch):
    monkeypatch.setattr("jitwarm.device._nvidia_smi", lambda field: None)


def write(folder, name, text=MINIMAL, model="deepseek-v3.2", file=None):
    path = folder / f"{file or name}.toml"
    path.write_text(text.format(name=name, model=model))
    return path


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (
            ["--set", "scheduler.max_num_seq=5"],
            2,
            "$.scheduler.max_num_seq: unknown field; did you",
        ),
        (["--set", "cache.block_size=x"], 2, '$.cache.block_size: expected int >= 1, got "x"'),
        (["--set", "parallel.tp=12"], 2, "$.parallel.dcp: dcp 8 does not divide tp 12"),
        (
            ["--set", 'matrix.arch=["sm77"]'],
            2,
            "$.arch: unknown arch 'sm77': expected one of sm80, sm90",
        ),
        (["--set", "model=foo"], 2, "$.model: unknown model 'foo': expected one of deepseek-v3.2"),
        (["--set", "model=no.such:thing"], 2, "$.model: no module 'no.such'"),
        (["--set", "model=.foo:x"], 2, "$.model: no module '.foo'"),
        (["--set", "model=os.path.x:y"], 2, "$.model: no module 'os.path.x'"),
        (["--set", "name=" + "[" * 3000], 2, "--set name: is nested too deeply"),
        (["--set", "traffic.steps"], 2, "--set traffic.steps: expected FIELD=VALUE"),
        (["--case", "dcp=5"], 2, "$.matrix: no case matches 'dcp=5'; there are: dcp=1 arch=sm90;"),
        (["--device", "cuda"], 3, "this machine has no usable NVIDIA GPU; use --device stub"),
    ],
)
def test_a_bad_request_is_one_line_and_writes_nothing(tmp_path, capsys, arguments, code, text):
    out = tmp_path / "out"
    assert main(["run", SCENARIO, *arguments, "--out", str(out)]) == code
    captured = capsys.readouterr()
    assert captured.out == ""
    (line,) = captured.err.splitlines()
    assert line.startswith("jitwarm: ")
    assert text in line
    assert not out.exists()


def test_a_request_that_only_the_model_can_refuse_writes_nothing_either(tmp_path, capfd):
    out = tmp_path / "out"
    arguments = ["--case", "dcp=1,arch=sm90", "--set", "attention_backend=FLASH", "--out", str(out)]
    assert main(["run", SCENARIO, *arguments]) == 2
    assert "$.attention_backend: unknown backend 'FLASH': expected one of" in capfd.readouterr().err
    assert not out.exists()


@pytest.mark.parametrize(
    "arguments",
    [
        ["run"],
        ["fly", SCENARIO],
        ["run", SCENARIO, "--steps", "0"],
        ["run", SCENARIO, "--arms", "warm"],
    ],
)
def test_argparse_exits_with_2(arguments):
    with pytest.raises(SystemExit) as stopped:
        main(arguments)
    assert stopped.value.code == 2


def test_scenarios_are_listed(capsys):
    assert main(["scenarios", str(ROOT / "scenarios")]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].endswith("deepseek-v3.2-dcp.toml: deepseek-v3.2-dcp, model deepseek-v3.2")
    assert lines[1:3] == ["  dcp=1 arch=sm90  quick", "  dcp=1 arch=sm100  quick"]
    assert lines[3] == "  dcp=2 arch=sm90"
    assert main(["scenarios", SCENARIO, "--json"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert len(record["cases"]) == 8
    assert record["quick"] == ["dcp=1 arch=sm90", "dcp=1 arch=sm100", "dcp=8 arch=sm90",
                               "dcp=8 arch=sm100"]  # fmt: skip


def test_a_broken_file_in_a_folder_is_found_before_anything_runs(tmp_path, capsys):
    write(tmp_path, "good")
    (tmp_path / "worse.toml").write_text("schema = ")
    assert main(["run", str(tmp_path), "--out", str(tmp_path / "out")]) == 2
    assert "worse.toml: $: is not TOML" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_two_files_with_one_name_would_overwrite_each_other(tmp_path, capsys):
    write(tmp_path, "twin", file="a")
    write(tmp_path, "twin", file="b")
    for asked in ("plan", "scenarios"):
        assert main([asked, str(tmp_path)]) == 2
        assert "$.name: 'twin' is the name of" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["run", "plan", "warm", "prove", "check", "faults"])
def test_with_the_interpreter_there_are_no_keys(tmp_path, monkeypatch, capsys, command):
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    where = [str(tmp_path / "nothing.py")] if command == "faults" else [SCENARIO, "--device=stub"]
    assert main([command, *where]) == 2
    assert capsys.readouterr() == (
        "",
        "jitwarm: TRITON_INTERPRET is set, so Triton compiles nothing: unset it\n",
    )
    assert main(["scenarios", SCENARIO]) == 0


def test_in_a_folder_a_selector_may_concern_one_scenario_only(tmp_path, capsys):
    write(tmp_path, "plain")
    assert main(["plan", str(tmp_path), "--case", "dcp=8"]) == 2
    assert "no case is for dcp=8" in capsys.readouterr().err


MODELS = r"""
class WithoutStep:
    layers = 1
    def __init__(self, config, device): pass

class Listed:
    layers = [1, 2]
    def __init__(self, config, device): pass
    def step(self, batch): pass

class Negative(Listed):
    layers = -3

class Endless(Listed):
    layers = 10**5000

class Wrong:
    def __init__(self, config): pass

class Eager:
    layers = 1
    def __init__(self, config, device):
        from examples.own_kernel.kernel import scale_rows
        import torch
        scale_rows[(1,)](torch.ones(256), torch.ones(256), 16, 0.5, BLOCK=256, num_warps=4)
    def step(self, batch): pass

class Exiting:
    layers = 1
    def __init__(self, config, device):
        import os
        os._exit(7)

class Leaving:
    layers = 1
    def __init__(self, config, device):
        import sys
        sys.exit()
    def step(self, batch): pass

class Interrupting:
    layers = 1
    def __init__(self, config, device): pass
    def step(self, batch):
        raise KeyboardInterrupt("mine")

class HalfACharacter:
    layers = 1
    def __init__(self, config, device):
        raise ValueError("half \udcff")
    def step(self, batch): pass

class Talking:
    layers = 1
    def __init__(self, config, device):
        print("I talk")
    def step(self, batch):
        print("and talk")
"""


@pytest.mark.parametrize(
    ("model", "code", "text"),
    [
        ("WithoutStep", 2, "returned a WithoutStep without step"),
        ("Listed", 2, "a Listed whose layers is a list; give the number of layers"),
        ("Negative", 2, "a Negative whose layers is below 0; give the number of layers"),
        ("Endless", 2, "a Endless whose layers is no number that a model has; give the number"),
        ("Wrong", 2, "is called with (config, device): too many positional arguments"),
        ("Missing", 2, "cannot load bad_models:Missing"),
        (
            "Eager",
            3,
            "the construction of the model launched examples.own_kernel.kernel.scale_rows",
        ),
        ("Exiting", 3, "ended with status 7 and no reply"),
        ("Leaving", 3, "bad: the model raised SystemExit() (/"),
        ("Interrupting", 3, "bad: the model raised KeyboardInterrupt('mine') (/"),
        ("HalfACharacter", 3, "bad: ValueError: half \\udcff (/"),
    ],
)
def test_models_that_cannot_be_measured(tmp_path, monkeypatch, capfd, model, code, text):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    (tmp_path / "bad_models.py").write_text(MODELS)
    path = write(tmp_path, "bad", model=f"bad_models:{model}")
    assert main(["run", str(path), "--steps", "2", "--device", "stub"]) == code
    captured = capfd.readouterr()
    assert text in captured.err
    assert captured.out == ""
    assert (tmp_path / "reports" / "out" / "bad" / "case" / "failed.json").exists() == (code == 3)


def test_a_model_that_prints_does_not_spoil_the_data(tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bad_models.py").write_text(MODELS)
    path = write(tmp_path, "talking", model="bad_models:Talking")
    # It launches nothing, so no miss shows nothing: that is no success.
    assert main(["run", str(path), "--steps", "2", "--device", "stub", "--json"]) == 3
    captured = capfd.readouterr()
    (line,) = captured.out.splitlines()
    assert json.loads(line)["scenario"] == "talking"
    assert "and talk" in captured.err


@pytest.mark.parametrize("text", ["a\nb", ""])
def test_a_bug_of_our_own_is_no_miss(monkeypatch, capsys, text):
    def broken(options):
        raise ZeroDivisionError(text)

    monkeypatch.setattr(command, "chosen_cases", broken)
    assert main(["run", SCENARIO]) == 3
    line = broken.__code__.co_firstlineno + 1
    said = f"ZeroDivisionError: {text}".replace("\n", " ").strip()
    assert capsys.readouterr().err == f"jitwarm: internal error: {said} ({__file__}:{line})\n"


@pytest.mark.parametrize(
    ("number", "file", "place"),
    [
        (errno.ENOSPC, "/x/y", "/x/y"),
        (errno.ENOSPC, None, "a file (TMPDIR, a cache)"),
        (errno.EDQUOT, "/x/y", "/x/y"),
    ],
)
def test_a_full_disk_is_no_fault_of_our_own(monkeypatch, capsys, number, file, place):
    def full(options):
        raise OSError(number, os.strerror(number), file)

    monkeypatch.setattr(command, "chosen_cases", full)
    assert main(["run", SCENARIO]) == 3
    said = f"jitwarm: {place} cannot be written: {os.strerror(number)}\n"
    assert capsys.readouterr().err == said


def test_an_interrupt_exits_with_3(monkeypatch, capsys):
    def interrupt(options):
        raise KeyboardInterrupt

    monkeypatch.setattr(command, "chosen_cases", interrupt)
    assert main(["run", SCENARIO]) == 3
    assert capsys.readouterr().err == "jitwarm: interrupted\n"


def test_a_termination_is_an_interrupt_and_the_handler_is_restored(monkeypatch, capsys):
    monkeypatch.setattr(
        command, "chosen_cases", lambda options: signal.raise_signal(signal.SIGTERM)
    )
    before = signal.getsignal(signal.SIGTERM)
    assert main(["run", SCENARIO]) == 3
    assert capsys.readouterr().err == "jitwarm: interrupted\n"
    assert signal.getsignal(signal.SIGTERM) is before


def test_another_thread_sets_no_handler(capsys):
    codes = []
    arguments = ["scenarios", SCENARIO]
    thread = threading.Thread(target=lambda: codes.append(main(arguments)))
    thread.start()
    thread.join()
    assert codes == [0]
    assert capsys.readouterr().err == ""


def unwritable(folder):
    """Places that take no result, each with what is said about it."""
    (folder / "file").write_text("")
    (folder / "nowhere").symlink_to(folder / "missing")
    (folder / "closed").mkdir(mode=0o500)
    closed = "" if os.geteuid() == 0 else "Permission denied"
    return {
        "/dev/null/x": "Not a directory",
        "/proc/x": "/proc takes no file",
        str(folder / "file"): "Not a directory",
        str(folder / "file" / "below"): "Not a directory",
        str(folder / "nowhere"): f"{folder / 'nowhere'} takes no file",
        str(folder / ("x" * 300)): "File name too long",
        **({str(folder / "closed"): closed} if closed else {}),
    }


def test_a_folder_that_takes_no_results_is_refused_before_measuring(tmp_path, monkeypatch, capsys):
    def measured(*arguments):
        pytest.fail("something was measured")

    monkeypatch.setattr(command, "measure", measured)
    places = unwritable(tmp_path)
    before = sorted(tmp_path.rglob("*"))
    for place, said in places.items():
        assert main(["run", SCENARIO, "--device", "stub", "--out", place]) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert line.startswith("jitwarm: --out: nothing can be written to ")
        assert line.endswith(said)
    assert sorted(tmp_path.rglob("*")) == before


def test_the_check_of_a_folder_creates_nothing(tmp_path):
    command.check_writable(tmp_path / "a" / "b" / "c")
    assert list(tmp_path.iterdir()) == []


def test_a_failed_run_removes_the_results_of_an_earlier_one(tmp_path, monkeypatch, capsys):
    def fails(*arguments):
        raise WorkerError("boom")

    monkeypatch.setattr(command, "measure", fails)
    folder = tmp_path / "out" / "plain" / "case"
    folder.mkdir(parents=True)
    for name in ("result.json", "events.jsonl", "events.rank7.jsonl", "notes.txt"):
        (folder / name).write_text("{}")
    path = write(tmp_path, "plain")
    assert main(["run", str(path), "--device", "stub", "--out", str(tmp_path / "out")]) == 3
    assert sorted(file.name for file in folder.iterdir()) == ["failed.json", "notes.txt"]


@pytest.fixture
def packages(tmp_path, monkeypatch):
    """Modules below the current folder, each of which tells when it is run."""
    monkeypatch.chdir(tmp_path)
    for name, text in {
        "loud/__init__.py": "print('loud')",
        "loud/inner.py": "print('inner')",
        "raising/__init__.py": "raise ValueError('no\\nway')",
        "raising/inner.py": "",
        "leaving.py": "import sys; sys.exit(5)",
        "space/below/deep.py": "print('deep')",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


@pytest.mark.parametrize(
    ("module", "found"),
    [
        ("loud", True),
        ("loud.inner", True),
        ("loud.outer", False),
        ("loud.inner.more", False),
        ("raising.inner", True),
        ("leaving", True),
        ("space.below.deep", True),
        ("space.below", True),
        ("space.above", False),
        ("sys", True),  # builtin
        ("sys.x", False),
        ("os", True),  # frozen
        ("os.path", False),  # only importing os brings it in
        ("zipimport", True),
        ("json.decoder", True),
        ("jitwarm.zoo.models.deepseek_v32", True),
        ("", False),
        (".", False),
        (".loud", False),
        ("loud.", False),
        ("loud..inner", False),
        ("lo\\u0000ud", False),
    ],
)
def test_a_model_is_looked_up_without_running_it(packages, capsys, module, found):
    path = write(packages, "s", model=f"{module}:x")
    assert main(["scenarios", str(path)]) == (0 if found else 2)
    captured = capsys.readouterr()
    assert ("$.model: no module " in captured.err) != found
    assert not {"loud\n", "inner\n", "deep\n"} & set(captured.out.splitlines(keepends=True))


@pytest.mark.parametrize(
    ("module", "text"),
    [
        ("raising.inner", r"cannot load raising.inner:x: ValueError('no\nway') (/"),
        ("leaving", "cannot load leaving:x: SystemExit(5) (/"),
    ],
)
def test_a_module_that_cannot_be_imported(packages, monkeypatch, capfd, module, text):
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    path = write(packages, "s", model=f"{module}:x")
    assert main(["run", str(path), "--device", "stub"]) == 2
    assert f"$.model: {text}" in capfd.readouterr().err
    assert not (packages / "reports").exists()


def test_a_plan_of_a_model_that_launches_while_it_is_built_is_refused(tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    (tmp_path / "bad_models.py").write_text(MODELS)
    path = write(tmp_path, "bad", model="bad_models:Eager")
    assert main(["plan", str(path), "--device", "stub"]) == 3
    assert "the construction of the model launched examples.own_kernel" in capfd.readouterr().err
