"""What no monitor sees is said, for this process."""

from __future__ import annotations

import importlib.machinery
import json
import sys
from types import ModuleType

import pytest

from jitwarm.observe import blind_spots
from jitwarm.observe.blind_spots import BlindSpot
from jitwarm.observe.monitor import Monitor


@pytest.fixture
def nothing_imported(monkeypatch):
    for one in blind_spots._KNOWN:
        monkeypatch.delitem(sys.modules, one.module, raising=False)
    monkeypatch.setattr(blind_spots, "_is_installed", lambda module: False)


def test_a_process_without_any(nothing_imported):
    assert blind_spots.blind_spots() == ()


def test_imported_ones_come_first_and_say_what_is_not_seen(nothing_imported, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch._inductor.compile_fx", ModuleType("compile_fx"))
    monkeypatch.setitem(sys.modules, "warp", ModuleType("warp"))
    monkeypatch.setattr(blind_spots, "_is_installed", lambda module: module == "numba")
    inductor, warp, numba = Monitor("off").blind_spots
    assert (inductor.library, inductor.state) == ("torch Inductor", "imported")
    assert "direct calls of triton.compile are not seen and cannot be refused" in inductor.message
    assert warp == BlindSpot(
        "Warp", "imported", "it compiles by itself on a first use, and nothing of that is seen"
    )
    assert (numba.library, numba.state) == ("Numba", "installed")
    assert str(numba).startswith("Numba is installed: it compiles by itself")


def test_the_version_of_the_package_is_told(nothing_imported, monkeypatch):
    monkeypatch.setitem(sys.modules, "jax", ModuleType("jax"))
    monkeypatch.setattr(blind_spots, "installed", {"jax": "1.2"}.__getitem__)
    [jax] = blind_spots.blind_spots()
    assert str(jax).startswith("JAX 1.2 is imported: ")


def test_a_folder_of_that_name_is_no_package(tmp_path, monkeypatch):
    (tmp_path / "jw_folder").mkdir()
    (tmp_path / "jw_package.py").touch()
    monkeypatch.syspath_prepend(str(tmp_path))
    assert blind_spots._is_installed("jw_package")
    assert not blind_spots._is_installed("jw_folder")
    assert not blind_spots._is_installed("jw_nothing")
    bare = ModuleType("jw_bare")
    assert bare.__spec__ is None
    monkeypatch.setitem(sys.modules, "jw_bare", bare)
    assert not blind_spots._is_installed("jw_bare")
    namespace = importlib.machinery.ModuleSpec("jw_spec", None)
    assert namespace.origin is None


def test_asking_imports_nothing(fresh_process):
    text = (
        "import sys, json\n"
        "from jitwarm import Monitor\n"
        "before = set(sys.modules)\n"
        "spots = Monitor('off').blind_spots\n"
        "print(json.dumps(sorted(set(sys.modules) - before)))\n"
    )
    assert not {"torch", "triton", "numba", "jax"} & set(json.loads(fresh_process(text)))


DIRECT = """
import torch, triton, warnings
warnings.simplefilter("ignore")
from triton.compiler import ASTSource
from jitwarm import Monitor, device
from subject import copy
device.activate("stub", "sm90")
with Monitor("error") as monitor:
    source = ASTSource(copy, {"x_ptr": "*fp32", "n": "i32", "BLOCK": "constexpr"}, {"BLOCK": 16})
    kernel = triton.compile(source, target=triton.runtime.driver.active.get_current_target())
    kernel._init_handles()
print([(event.kind, event.key) for event in monitor.events])
"""


@pytest.mark.triton
def test_what_is_said_of_direct_compiles_is_true(fresh_process, tmp_path):
    """Neither seen nor refused; the load is told under the bare name."""
    (tmp_path / "subject.py").write_text(
        "import triton, triton.language as tl\n"
        "@triton.jit\n"
        "def copy(x_ptr, n, BLOCK: tl.constexpr):\n"
        "    tl.store(x_ptr + tl.arange(0, BLOCK), n)\n"
    )
    assert fresh_process(DIRECT, path=[tmp_path]) == "[('load', 'copy')]\n"
