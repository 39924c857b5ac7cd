"""Binaries are real and of the device's architecture, though nothing is launched."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

import cute_subjects as subjects
from cute_subjects import Key
from jitwarm import device
from jitwarm.backends.cutedsl import compiling, exporting, library
from jitwarm.errors import DeviceError, MissingExtraError, RunError

pytestmark = pytest.mark.cutedsl
TESTS = Path(subjects.__file__).parent
EM_CUDA = 190
# The architecture in the header of a cubin, in both forms of it that the compiler writes.
FLAGS = {"sm90": 0x5A0D5A, "sm100": 0x600640A}


def cubin_flags(data):
    """The flags of each CUDA binary inside an object file."""
    found, at = set(), data.find(b"\x7fELF")
    while at >= 0:
        (machine,) = struct.unpack_from("<H", data, at + 18)
        if machine == EM_CUDA:
            found.add(struct.unpack_from("<I", data, at + 48)[0])
        at = data.find(b"\x7fELF", at + 4)
    return found


def test_the_binary_is_for_this_device(stub, tmp_path):
    kernel = subjects.AddKernel()
    executor = kernel.compile(Key(32))
    path = exporting.export(executor, tmp_path, kernel.backend_key(Key(32)))
    assert cubin_flags(path.read_bytes()) == {FLAGS["sm90"]}
    assert [file.name for file in tmp_path.iterdir()] == [path.name]
    again = exporting.read_back(path)
    assert isinstance(again, compiling.NothingLaunched)
    assert again(object()) is None


OTHER = """
from pathlib import Path
from jitwarm import Monitor, device
device.activate("stub", "sm100")
import cute_subjects
from cute_subjects import Key
from jitwarm.backends.cutedsl import exporting
kernel = cute_subjects.add
text = kernel.backend_key(Key(32))
with Monitor("record") as monitor:
    exporting.export(kernel.compile(Key(32)), Path(FOLDER), text)
    kernel.compile(Key(64))
print(text)
print(*(sorted(event.stages) for event in monitor.events))
"""


def test_another_architecture_in_another_process(fresh_process, tmp_path):
    text, stages = fresh_process(f"FOLDER = {str(tmp_path)!r}\n{OTHER}", path=[TESTS]).splitlines()
    assert text == "cute_subjects.AddKernel[n=32; factor=1.0]{sm_100a; --enable-tvm-ffi}"
    # The first compile of a process imports the library.
    assert stages == "['import', 'passes', 'trace'] ['passes', 'trace']"
    [path] = tmp_path.iterdir()
    assert cubin_flags(path.read_bytes()) == {FLAGS["sm100"]}


def test_compiling_sets_what_a_trace_reads_of_the_architecture(stub):
    from cutlass.cutlass_dsl import CuTeDSL

    CuTeDSL._get_dsl().envar.arch = "sm_80"
    with library.compiling("sm_90a"):
        assert CuTeDSL._get_dsl().envar.arch == "sm_90a"


@pytest.mark.parametrize(
    ("arch", "name"),
    [("sm80", "sm_80"), ("sm90", "sm_90a"), ("sm103", "sm_103a"), ("sm120", "sm_120a")],
)
def test_the_names_of_architectures(monkeypatch, arch, name):
    monkeypatch.setattr(device, "_active", device.Device("stub", arch, "stub", "none"))
    assert library.architecture() == name
    assert library.architecture("--opt-level 2 --gpu-arch sm_100f") == "sm_100f"
    assert library.is_stub()


def test_without_a_device_nothing_is_guessed(monkeypatch):
    monkeypatch.setattr(device, "_active", None)
    monkeypatch.setattr(library, "_has_gpu", lambda: False)
    with pytest.raises(DeviceError, match="CuTe DSL has no device here: call jitwarm.device"):
        library.architecture()
    assert "no device here" in library.why_not_here()
    assert not library.is_stub()


def test_an_architecture_that_the_library_does_not_know(monkeypatch):
    monkeypatch.setattr(device, "_active", device.Device("stub", "sm75", "stub", "none"))
    assert library.why_not_here() == "CuTe DSL does not compile for sm_75"


def test_on_a_gpu_the_library_is_asked(monkeypatch):
    from cutlass.cutlass_dsl import CuTeDSL

    monkeypatch.setattr(CuTeDSL._get_dsl().envar, "arch", "sm_100f")
    monkeypatch.setattr(device, "_active", device.Device("cuda", "sm100", "GPU", "1"))
    assert library.architecture() == "sm_100f"


def test_a_function_that_no_object_file_keeps_is_not_exported(stub, tmp_path):
    executor = subjects.ByNameKernel().compile(Key(32))
    with pytest.raises(RunError, match="its arguments have defaults or names"):
        exporting.export(executor, tmp_path, "key")
    with pytest.raises(RunError, match="no tvm-ffi function of this compiler"):
        exporting.export(print, tmp_path, "key")
    assert list(tmp_path.iterdir()) == []


def test_what_is_missing_is_named(monkeypatch):
    import importlib

    def no(name):
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)

    monkeypatch.setattr(importlib, "import_module", no)
    with pytest.raises(MissingExtraError) as missing:
        library.load("kernel X")
    assert str(missing.value) == "kernel X needs nvidia-cutlass-dsl: pip install 'jitwarm[cutedsl]'"

    def only_cutlass(name):
        return name if name.startswith("cutlass") else no(name)

    monkeypatch.setattr(importlib, "import_module", only_cutlass)
    with pytest.raises(MissingExtraError, match="needs apache-tvm-ffi"):
        library.load("kernel X")

    def broken(name):
        raise ModuleNotFoundError("No module named 'cuda'", name="cuda")

    monkeypatch.setattr(importlib, "import_module", broken)
    with pytest.raises(ModuleNotFoundError, match="cuda"):
        library.load("kernel X")
