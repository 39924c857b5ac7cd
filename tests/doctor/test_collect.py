"""`jitwarm doctor`: what is asked, what follows from the answers, what is printed.

To write the golden text anew: `python tests/doctor/test_collect.py`.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest

from jitwarm import cli, env
from jitwarm.caches import ROOTS
from jitwarm.doctor import collect, diagnosis, probe
from jitwarm.doctor.cache_places import CacheFolder
from jitwarm.doctor.diagnosis import Diagnosis, Gpu, Hooks, Installation, Stub, Torch, Variable
from jitwarm.doctor.probe import BACKENDS, ProbeReply
from jitwarm.observe.blind_spots import BlindSpot
from jitwarm.report.doctor import doctor_text

GOLDEN = Path(__file__).parents[1] / "report" / "golden"
ARCHES = ("sm80", "sm90")


def folder(variable, **values):
    return CacheFolder(
        **{
            "variable": variable,
            "holds": ROOTS[variable],
            "path": f"/home/u/{variable.lower()}",
            "is_set": False,
            "exists": True,
            "writable": True,
            "files": 1200,
            "bytes": 34_500_000,
            "complete": True,
            "free_bytes": 1 << 40,
            "filesystem": "ext4",
            "shared": False,
        }
        | values
    )


def hooks(backend, state="ok", problem=""):
    return Hooks(backend, BACKENDS[backend], "9.9", state, problem, "what is seen", "what is not")


HEALTHY = Diagnosis(
    schema=1,
    jitwarm=Installation("0.1.0", "/src/jitwarm", "0123456789abcdef", "2026-11-30T10:00:00+00:00"),
    python="3.12.3",
    executable="/venv/bin/python",
    platform="Linux-6",
    cores=16,
    c_compiler="/usr/bin/gcc",
    gpus=(Gpu("NVIDIA H200", "sm90", "580.1", "143771 MiB"),),
    gpu_problem="",
    torch=Torch("13.0", usable=True, problem=""),
    packages={
        "jitwarm": "0.1.0",
        "torch": "2.11.0",
        "triton": "3.6.0",
        "numpy": "2.5",
        "msgspec": "0.23",
        "tabulate": "0.10",
        "nvidia-cutlass-dsl": "4.8.1",
        "flash-attn-4": "",
    },
    models=("deepseek-v3.2", "inkling"),
    hooks=(hooks("triton"), hooks("cutedsl"), hooks("fa4", "not installed")),
    stub=Stub(ARCHES, ARCHES, ()),
    caches=(folder("TRITON_CACHE_DIR"), folder("TILELANG_CACHE_DIR", exists=False)),
    variables=(Variable("JITWARM_JOBS", "4", "jitwarm"),),
    unseen=(BlindSpot("Numba", "installed", "nothing of it is seen", "0.60"),),
)
SICK = msgspec.structs.replace(
    HEALTHY,
    jitwarm=Installation("0.1.0", "/site/jitwarm"),
    c_compiler="",
    torch=Torch("", usable=False, problem=""),
    hooks=(
        hooks("triton", "missing", "triton 9.9: triton.X is not there"),
        hooks("cutedsl", "broken", "ImportError: libcuda.so.1"),
        hooks("fa4", "not installed"),
    ),
    stub=Stub(ARCHES, ("sm80",), ("sm90: OSError: no ptxas",)),
    caches=(
        folder("TRITON_CACHE_DIR", exists=False, writable=False, files=0, bytes=0, is_set=True),
        folder("TRITON_HOME", shared=True, filesystem="nfs4", complete=False, free_bytes=5 << 20),
        folder("DG_JIT_CACHE_DIR", exists=False, writable=False),  # its library is not installed
    ),
    variables=(
        Variable("JITWARM_JOB", "4", ""),
        Variable("JITWARM_BENCH_REQUIRE", "gpu", ""),
        Variable("TRITON_DEBUG", "1", "compiles"),
    ),
)
PROBLEMS = [
    "triton 9.9: triton.X is not there",
    "nvidia-cutlass-dsl 9.9 cannot be imported: ImportError: libcuda.so.1",
    "stub device: sm90: OSError: no ptxas",
    (
        "torch is built without CUDA and cannot use the GPU here: install a torch for CUDA, or run "
        "with --device stub"
    ),
    (
        "no C compiler, and Triton builds its launchers with the one that CC names, else gcc or "
        "clang: install gcc, or mend CC"
    ),
    "TRITON_CACHE_DIR: nothing can be written to /home/u/triton_cache_dir",
]
NOTES = [
    (
        "TRITON_HOME: /home/u/triton_home is on nfs4, which machines share: starts are slower, and "
        "one machine's files serve the others"
    ),
    "TRITON_HOME: 5 MiB are left for /home/u/triton_home",
    "JITWARM_JOB is set, and jitwarm reads no such variable: it reads JITWARM_JOBS, JITWARM_STRICT",
]


@pytest.fixture(autouse=True)
def no_variables(monkeypatch):
    for name in env.NAMES:
        monkeypatch.delenv(name, raising=False)


def changed(**values):
    return msgspec.structs.replace(HEALTHY, **values)


def test_a_healthy_machine():
    assert list(diagnosis.problems(HEALTHY)) == []
    assert list(diagnosis.notes(HEALTHY)) == []


def test_a_sick_one():
    assert list(diagnosis.problems(SICK)) == PROBLEMS
    assert list(diagnosis.notes(SICK)) == NOTES


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        (
            {"packages": HEALTHY.packages | {"triton": ""}, "stub": Stub((), (), ("no triton",))},
            "triton is not installed: pip install jitwarm",
        ),
        (
            {"torch": Torch("", usable=False, problem="OSError: libtorch")},
            "torch: OSError: libtorch",
        ),
        (
            {"torch": Torch("13.0", usable=False, problem="")},
            (
                "torch for CUDA 13.0 cannot use the GPU here (driver 580.1, CUDA_VISIBLE_DEVICES): "
                "run with --device stub, or mend that"
            ),
        ),
        (
            {"gpus": (), "gpu_problem": "nvidia-smi fails: NVML: mismatch"},
            "nvidia-smi fails: NVML: mismatch: runs would fail, or take the stub device",
        ),
        ({"gpu_problem": "one is no GPU"}, "one is no GPU"),
    ],
)
def test_one_thing_that_is_wrong(values, problem):
    assert list(diagnosis.problems(changed(**values))) == [problem]


@pytest.mark.parametrize(
    "values",
    [
        {"gpus": (), "torch": Torch("", usable=False, problem=""), "c_compiler": ""},
        {"gpus": (), "torch": Torch("13.0", usable=False, problem="")},  # no GPU: nothing to use
        {"caches": (folder("TILELANG_CACHE_DIR", writable=False),)},  # not installed
        {"caches": (folder("CUDA_CACHE_PATH", writable=False),)},
    ],
)
def test_what_is_no_problem(values):
    assert list(diagnosis.problems(changed(**values))) == []


def test_a_variable_with_a_wrong_value(monkeypatch):
    monkeypatch.setenv("JITWARM_JOBS", "many")
    (problem,) = diagnosis.problems(HEALTHY)
    assert problem == "JITWARM_JOBS='many': expected a whole number of at least 1"


def test_gpus_of_two_kinds_are_noted():
    other = Gpu("NVIDIA B200", "sm100", "580.1", "1 MiB")
    (note,) = diagnosis.notes(changed(gpus=(*HEALTHY.gpus, other)))
    assert note == "GPUs of several architectures: the first is taken"


def test_every_variable_of_ours_is_known():
    text = Path(env.__file__).read_text()
    assert set(re.findall(r"JITWARM_[A-Z]\w*", text)) == set(env.NAMES)


def said(found):
    return msgspec.structs.replace(
        found, problems=tuple(diagnosis.problems(found)), notes=tuple(diagnosis.notes(found))
    )


@pytest.mark.parametrize(("name", "found"), [("healthy", HEALTHY), ("sick", SICK)])
def test_text(name, found):
    assert doctor_text(said(found)) + "\n" == (GOLDEN / f"doctor-{name}.txt").read_text()


def test_text_without_a_gpu_and_without_anything_optional():
    text = doctor_text(
        changed(
            gpus=(), models=(), unseen=(), caches=(), variables=(), stub=Stub(ARCHES, (), ("x",))
        )
    )
    assert "no GPU: runs take the stub device" in text
    assert "models: none is installed" in text
    assert "stub device: compiles nothing" in text
    assert "\n\n\n" not in text


# --- what is asked


ANSWERS = {
    "torch": ProbeReply(facts={"version": "2.13", "cuda": "", "usable": False}),
    "stub": ProbeReply(facts={"arches": ["sm90"], "compiled": ["sm90"], "problems": []}),
}


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """No GPU, caches of its own, and every library says it is well."""
    for name in ROOTS:
        monkeypatch.setenv(name, str(tmp_path / name))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CC", raising=False)
    (tmp_path / "TRITON_CACHE_DIR").mkdir()
    (tmp_path / "TRITON_CACHE_DIR" / "a").write_bytes(b"12345")
    asked = []

    def probe(what):
        asked.append(what)
        return ANSWERS.get(what, ProbeReply())

    return SimpleNamespace(folder=tmp_path, asked=asked, probe=probe)


def installed(monkeypatch, *names):
    monkeypatch.setattr(collect, "installed", lambda name: "1.0" if name in names else "")


CORE = ("torch", "triton", "numpy", "msgspec", "tabulate")


def test_what_a_machine_has(machine, monkeypatch):
    installed(monkeypatch, *CORE, "flash-attn-4")
    monkeypatch.setenv("JITWARM_STRICT", "1")
    monkeypatch.setenv("TRITON_DEBUG", "0")
    monkeypatch.setenv("HOME_OF_SOMEBODY", "x")
    found = collect.collect(machine.probe)
    assert sorted(machine.asked) == ["fa4", "stub", "torch", "triton"]
    assert [(one.backend, one.state, one.version) for one in found.hooks] == [
        ("triton", "ok", "1.0"),
        ("cutedsl", "not installed", ""),
        ("fa4", "ok", "1.0"),
    ]
    assert (found.gpus, found.gpu_problem, found.c_compiler) == ((), "", "")
    assert (found.torch, found.stub) == (Torch("", False, ""), Stub(("sm90",), ("sm90",), ()))
    sizes = {one.variable: (one.path, one.files, one.bytes) for one in found.caches}
    assert sizes["TRITON_CACHE_DIR"] == (str(machine.folder / "TRITON_CACHE_DIR"), 1, 5)
    assert set(sizes) == set(ROOTS)
    named = {one.name: one.effect for one in found.variables}
    assert named["JITWARM_STRICT"] == "jitwarm"
    assert named["TRITON_DEBUG"] == "compiles"
    assert not {"HOME_OF_SOMEBODY", "TRITON_CACHE_DIR"} & set(named)
    assert "inkling" in found.models
    assert "torch Inductor" in [spot.library for spot in found.unseen]
    assert found.problems == ()
    assert msgspec.json.decode(msgspec.json.encode(found), type=Diagnosis) == found


def test_a_hook_point_that_is_missing_is_a_problem(machine, monkeypatch):
    installed(monkeypatch, *CORE)
    replies = {"triton": ProbeReply("missing", "triton 9.9: JITFunction.run is not there")}
    found = collect.collect(lambda what: replies.get(what) or machine.probe(what))
    assert found.problems == ("triton 9.9: JITFunction.run is not there",)


def test_without_any_library(machine, monkeypatch):
    installed(monkeypatch)
    found = collect.collect(lambda _: ProbeReply("broken", "ModuleNotFoundError: torch"))
    assert [one.state for one in found.hooks] == ["not installed"] * 3
    missing = [f"{name} is not installed: pip install jitwarm" for name in CORE]
    assert list(found.problems) == missing


def test_nothing_heavy_is_imported_here(fresh_process):
    said = fresh_process(
        "import sys; from jitwarm.doctor.collect import collect; from jitwarm.doctor.probe import "
        "ProbeReply; collect(lambda _: ProbeReply()); "
        "print([m for m in ('torch', 'triton', 'cutlass', 'flash_attn') if m in sys.modules])"
    )
    assert said == "[]\n"


def nvidia_smi(folder, text, status=0, stream=1):
    script = folder / "nvidia-smi"
    script.write_text(f"#!/bin/sh\necho '{text}' >&{stream}\nexit {status}\n")
    script.chmod(0o755)


def test_the_gpus(machine):
    assert collect._gpus() == ((), "")
    line = "NVIDIA B200, 10.0, 580.159.04, 183359 MiB"
    nvidia_smi(machine.folder, f"{line}\nNVIDIA H200, 9.0, 580.1, 1 MiB")
    assert collect._gpus() == (
        (
            Gpu("NVIDIA B200", "sm100", "580.159.04", "183359 MiB"),
            Gpu("NVIDIA H200", "sm90", "580.1", "1 MiB"),
        ),
        "",
    )


@pytest.mark.parametrize(
    ("text", "status", "stream", "problem"),
    [
        ("No devices were found", 6, 1, ""),
        ("Failed to initialize NVML: mismatch", 18, 1, "nvidia-smi fails: Failed to initialize "),
        ("NVIDIA-SMI has failed", 9, 2, "nvidia-smi fails: NVIDIA-SMI has failed"),
        ("", 1, 1, "nvidia-smi fails: no word"),
    ],
)
def test_a_driver_that_does_not_work(machine, text, status, stream, problem):
    nvidia_smi(machine.folder, text, status, stream)
    gpus, found = collect._gpus()
    assert gpus == ()
    assert found.startswith(problem)
    assert bool(found) == bool(problem)


@pytest.mark.parametrize(
    ("said", "gpus", "problem"),
    [
        (b"A, Inc. \xff, 9.0, 5, 1 MiB", (Gpu("A, Inc. \ufffd", "sm90", "5", "1 MiB"),), ""),
        (b"A, [N/A], 5, 1 MiB", (), "nvidia-smi says 'A, [N/A], 5, 1 MiB', which is no GPU"),
        (b"warning: x", (), "nvidia-smi says 'warning: x', which is no GPU"),
        (
            b"A, 9.0, 5, 1 MiB\nB, 5, 1 MiB",
            (Gpu("A", "sm90", "5", "1 MiB"),),
            "nvidia-smi says 'B, 5, 1 MiB', which is no GPU",
        ),
    ],
)
def test_a_driver_that_says_something_else(machine, said, gpus, problem):
    (machine.folder / "said").write_bytes(said)
    script = machine.folder / "nvidia-smi"
    script.write_text(
        f"#!/bin/sh\nexec {shutil.which('cat', path=os.defpath)} {machine.folder}/said"
    )
    script.chmod(0o755)
    assert collect._gpus() == (gpus, problem)


def test_what_is_no_text_is_told_and_acts_on_no_terminal(machine, monkeypatch):
    installed(monkeypatch, *CORE)
    monkeypatch.setenv("TRITON_A", "a\nok: jitwarm works here\x1b[31m")
    monkeypatch.setenv("TRITON_B", os.fsdecode(b"\xff"))
    monkeypatch.setenv("TRITON_CACHE_DIR", os.fsdecode(b"/tmp/\xff"))
    found = collect.collect(machine.probe)
    assert msgspec.json.decode(msgspec.json.encode(found), type=Diagnosis) == found
    lines = doctor_text(found).splitlines()
    assert [line for line in lines if line.startswith("TRITON_")] == [
        *(line for line in lines if line.startswith(("TRITON_HOME", "TRITON_CACHE_DIR"))),
        r"TRITON_A=a\nok: jitwarm works here\x1b[31m",
        r"TRITON_B=\xff",
    ]
    assert r"/tmp/\xff" in doctor_text(found)


@pytest.mark.triton
def test_with_the_interpreter_nothing_is_compiled(monkeypatch):
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    assert collect.run_probe("stub").facts["problems"] == [
        "TRITON_INTERPRET is set, so Triton compiles nothing: unset it"
    ]


def test_a_probe_that_cannot_be_started(monkeypatch):
    monkeypatch.setattr(collect.sys, "executable", "/nowhere/python")
    assert collect.run_probe("torch") == ProbeReply(
        "broken",
        "its process cannot be started: [Errno 2] No such file or directory: '/nowhere/python'",
    )


def test_a_driver_that_hangs(machine, monkeypatch):
    def run(*args, **kwargs):
        raise subprocess.TimeoutExpired("nvidia-smi", 30)

    monkeypatch.setattr(collect.subprocess, "run", run)
    assert collect._gpus()[1].startswith("nvidia-smi does not answer: ")


@pytest.mark.parametrize(
    ("there", "cc", "found"),
    [
        ((), None, ""),
        (("clang",), None, "clang"),
        (("gcc", "clang"), None, "gcc"),
        (("mycc", "gcc"), "mycc", "mycc"),
        # Triton takes what CC says for the name of a program, and tries no other.
        (("gcc",), "mycc", ""),
        (("gcc",), "gcc -O2", ""),
        (("gcc",), "", ""),
    ],
)
def test_the_c_compiler(machine, there, cc, found):
    for name in there:
        (machine.folder / name).write_text("#!/bin/sh\n")
        (machine.folder / name).chmod(0o755)
    expected = str(machine.folder / found) if found else ""
    assert collect._c_compiler({} if cc is None else {"CC": cc}) == expected


def test_a_copy_inside_of_a_checkout_has_no_commit(tmp_path, monkeypatch):
    package = tmp_path / "repo" / ".venv" / "jitwarm"
    package.mkdir(parents=True)
    (tmp_path / "repo" / ".git").mkdir()
    monkeypatch.setattr(collect, "source_of", None)  # calling it fails
    place = SimpleNamespace(__file__=str(package / "__init__.py"), __version__="7")
    monkeypatch.setattr(collect, "jitwarm", place)
    assert collect._installation() == Installation("7", str(package))


# --- the probes


@pytest.mark.triton
def test_triton_has_its_hook_points_and_one_that_has_not(monkeypatch):
    from triton.runtime.jit import JITFunction

    assert probe.answer("triton") == ProbeReply()
    monkeypatch.delattr(JITFunction, "_pack_args")
    reply = probe.answer("triton")
    assert reply.state == "missing"
    assert "triton.runtime.jit.JITFunction._pack_args is not there" in reply.problem


def test_a_library_that_cannot_be_imported(monkeypatch):
    def missing(name):
        raise ImportError("libcuda.so.1:\n cannot open")

    monkeypatch.setattr(probe.importlib, "import_module", missing)
    reply = probe.answer("cutedsl")
    assert reply == ProbeReply("broken", "ImportError: libcuda.so.1: cannot open")


@pytest.mark.triton
def test_the_stub_device_compiles_here():
    """In a process of its own: it takes the stub device, and needs empty caches."""
    from jitwarm.backends.triton.stub import ARCHES as ALL

    reply = collect.run_probe("stub")
    assert reply.state == "ok", reply.problem
    assert reply.facts == {"arches": list(ALL), "compiled": list(ALL), "problems": []}


def test_torch_here():
    import torch

    reply = collect.run_probe("torch")
    assert reply.facts["version"] == str(torch.__version__)
    assert reply.facts["cuda"] == (torch.version.cuda or "")


def command(tmp_path, text):
    script = tmp_path / "python"
    script.write_text(f"#!/bin/sh\n{text}\n")
    script.chmod(0o755)
    return SimpleNamespace(executable=str(script))


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("echo one >&2; echo two >&2; exit 7", "its process ended with status 7: two"),
        ("kill -SEGV $$", "its process ended with status -11"),
        ('echo nonsense >"$4"', "its process ended with status 0"),
    ],
)
def test_a_probe_that_dies_is_an_answer(tmp_path, monkeypatch, text, problem):
    monkeypatch.setattr(collect, "sys", command(tmp_path, text))
    assert collect.run_probe("torch") == ProbeReply("broken", problem)


def test_a_probe_that_hangs_is_an_answer(tmp_path, monkeypatch):
    monkeypatch.setattr(collect, "sys", command(tmp_path, "exec sleep 60"))
    monkeypatch.setattr(collect, "PROBE_S", 0.2)
    assert collect.run_probe("torch") == ProbeReply("broken", "no answer in 0.2 s")


def test_a_probe_has_caches_of_its_own(tmp_path, monkeypatch):
    script = 'echo "{\\"problem\\": \\"$TRITON_CACHE_DIR\\"}" >"$4"'
    monkeypatch.setattr(collect, "sys", command(tmp_path, script))
    reply = collect.run_probe("torch")
    assert reply.problem.endswith("/caches/triton_cache_dir")
    assert not Path(reply.problem).exists()


# --- the command


@pytest.mark.parametrize(("found", "code"), [(HEALTHY, 0), (SICK, 3)])
def test_the_command(monkeypatch, capsys, found, code):
    monkeypatch.setattr("jitwarm.commands.doctor.collect", lambda: said(found))
    assert cli.main(["doctor"]) == code
    assert capsys.readouterr().out == doctor_text(said(found)) + "\n\n"
    assert cli.main(["doctor", "--json"]) == code
    record = json.loads(capsys.readouterr().out)
    assert record["schema"] == 1
    assert record["problems"] == ([] if code == 0 else PROBLEMS)
    assert list(record) == list(Diagnosis.__struct_fields__)


if __name__ == "__main__":
    for name, found in (("healthy", HEALTHY), ("sick", SICK)):
        (GOLDEN / f"doctor-{name}.txt").write_text(doctor_text(said(found)) + "\n")
