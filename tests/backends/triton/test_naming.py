"""Import paths: one for each JITFunction object, the same in every process."""

from __future__ import annotations

import sys
import types
from unittest import mock

import launch_catalogue as catalogue
import launch_subjects as subjects
import pytest
import triton
import triton.language as tl

from jitwarm.backends.triton import naming
from jitwarm.backends.triton.naming import function_at, import_path, known_functions
from jitwarm.errors import DeclarationError


def test_a_kernel_is_named_by_the_attribute_that_holds_it():
    assert import_path(subjects.scale) == "launch_subjects.scale"
    assert function_at("launch_subjects.scale") is subjects.scale
    assert subjects.scale in known_functions()


def test_a_twin_over_the_same_function_has_its_own_name():
    assert catalogue._no_n.fn is catalogue._copy.fn
    assert import_path(catalogue._copy) == "launch_catalogue._copy"
    assert import_path(catalogue._no_n) == "launch_catalogue._no_n"
    assert function_at("launch_catalogue._no_n") is catalogue._no_n


def test_the_kernel_inside_an_autotuner_has_the_autotuner_s_name():
    assert import_path(subjects.tuned.fn) == "launch_subjects.tuned"
    assert function_at("launch_subjects.tuned") is subjects.tuned.fn


def make(width, callee=None):
    @triton.jit
    def inner(x_ptr, n):
        tl.store(x_ptr, n + width)

    return inner


def test_closure_kernels_are_told_apart_by_what_they_capture():
    sixteen, wide = make(tl.constexpr(16)), make(tl.constexpr(32))
    assert import_path(sixteen) != import_path(wide)
    assert function_at(import_path(sixteen)) is sixteen
    assert function_at(import_path(wide)) is wide
    assert import_path(sixteen).startswith(f"{__name__}.make.<locals>.inner#")


def test_equal_closure_kernels_are_numbered_because_triton_keeps_their_binaries_apart():
    one, two, three = (make(tl.constexpr(48)) for _ in range(3))
    path = import_path(one)
    assert [import_path(two), import_path(three)] == [f"{path}~2", f"{path}~3"]
    assert [function_at(import_path(fn)) for fn in (one, two, three)] == [one, two, three]
    assert import_path(two) == f"{path}~2"


def test_of_a_module_that_was_loaded_again_the_new_kernel_counts(tmp_path, monkeypatch):
    (tmp_path / "reloaded.py").write_text(
        "import triton\n@triton.jit\ndef kernel(x_ptr):\n    pass\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    old = function_at("reloaded.kernel")
    del sys.modules["reloaded"]
    import reloaded  # the file above

    assert reloaded.kernel is not old
    assert import_path(reloaded.kernel) == import_path(old) == "reloaded.kernel"
    assert function_at("reloaded.kernel") is reloaded.kernel


def test_a_fresh_process_finds_a_kernel_by_its_path(fresh_process, here):
    text = (
        "from jitwarm.backends.triton.naming import function_at, import_path\n"
        "for path in ('launch_catalogue._no_n', 'launch_subjects.tuned'):\n"
        "    fn = function_at(path)\n"
        "    print(type(fn).__name__, import_path(fn), fn.do_not_specialize)\n"
    )
    assert fresh_process(text, path=[here]).splitlines() == [
        "JITFunction launch_catalogue._no_n ['n', 'x_ptr']",
        "JITFunction launch_subjects.tuned []",
    ]


@pytest.mark.parametrize(
    "path", ["no_such_module.kernel", "launch_subjects.nothing", "nothing", "launch_subjects.f#12"]
)
def test_a_path_without_a_kernel_is_an_error(path):
    with pytest.raises(DeclarationError, match="no such kernel") as error:
        function_at(path)
    assert str(error.value).startswith(f"{path}: ")


def test_a_module_that_is_gone_is_no_obstacle():
    kernel = make(tl.constexpr(64))
    kernel.module = "a_module_that_is_gone"
    assert import_path(kernel).startswith("a_module_that_is_gone.make.<locals>.inner#")


def test_modules_with_odd_attributes_are_searched_all_the_same(monkeypatch):
    module = types.ModuleType("odd_attributes")
    kernel = make(tl.constexpr(65))
    kernel.module = "odd_attributes"
    module.first, module.alias = object(), kernel
    monkeypatch.setitem(sys.modules, "odd_attributes", module)
    assert import_path(kernel) == "odd_attributes.alias"


class Raising:
    """As `torch.classes`: asked for what it lacks, it raises something that `hasattr` lets out."""

    def __getattr__(self, name):
        raise RuntimeError(name)


def test_objects_that_claim_every_attribute_or_raise_end_the_search(monkeypatch):
    module = types.ModuleType("odd_objects")
    kernel = make(tl.constexpr(66))
    kernel.module = "odd_objects"
    module.call, module.mock, module.raising = mock.call, mock.MagicMock(), Raising()
    module.like_a_kernel = mock.MagicMock(spec=triton.JITFunction)
    module.later = triton.heuristics({})(triton.autotune([], key=[])(kernel))
    monkeypatch.setitem(sys.modules, "odd_objects", module)
    assert import_path(kernel) == "odd_objects.later"
    del module.later
    unheld = make(tl.constexpr(67))
    unheld.module = "odd_objects"
    assert import_path(unheld).startswith("odd_objects.make.<locals>.inner#")
    for name in ("call", "mock", "raising", "like_a_kernel"):
        with pytest.raises(DeclarationError, match=f"^odd_objects.{name}: no such kernel"):
            function_at(f"odd_objects.{name}")


def test_autotuners_in_a_ring_end_the_search(monkeypatch):
    module = types.ModuleType("a_ring")
    kernel = make(tl.constexpr(68))
    kernel.module = "a_ring"
    module.tuned = triton.autotune([], key=[])(kernel)
    module.tuned.fn = module.tuned
    monkeypatch.setitem(sys.modules, "a_ring", module)
    assert import_path(kernel).startswith("a_ring.make.<locals>.inner#")


@pytest.mark.parametrize("odd", [mock.call, Raising()], ids=["call", "raising"])
def test_a_kernel_may_capture_an_odd_object(odd):
    kernel = make(odd)
    assert import_path(kernel).startswith(f"{__name__}.make.<locals>.inner#")


def test_of_objects_made_anew_the_tenth_comes_behind_the_ninth():
    names = [f"m.k#0a1b2c3d{number}" for number in ("~10", "~9", "", "~100")]
    in_order = [names[2], names[1], names[0], names[3]]
    assert sorted(names, key=naming.natural_order) == in_order
    assert [naming.is_made_anew(name) for name in in_order] == [False, True, True, True]
    assert {naming.without_number(name) for name in names} == {"m.k#0a1b2c3d"}
    assert naming.without_number("m.k[n=~7]") == "m.k[n=~7]"
