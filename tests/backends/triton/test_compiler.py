"""The Triton backend: keys, compiles without a launch, loads."""

from __future__ import annotations

import pytest
import torch
import triton
from launch_subjects import broken, scale

from jitwarm.backends import backend_of
from jitwarm.backends.triton.compiler import TritonBackend, compile_recipe
from jitwarm.backends.triton.naming import import_path
from jitwarm.backends.triton.recipe import TritonRecipe
from jitwarm.backends.triton.stub import StubLauncher
from jitwarm.declare.tensor import TensorSpec
from jitwarm.errors import BindingError, DeclarationError, RunError
from jitwarm.observe.monitor import Monitor

pytestmark = pytest.mark.triton
X = TensorSpec("float32")


def recipe(n=17, block=16, **options):
    arguments = (("x_ptr", X), ("out_ptr", X), ("n", n), ("BLOCK", block))
    return TritonRecipe(import_path(scale), arguments, tuple(options.items()))


def test_a_compiled_recipe_is_where_the_launch_looks(stub):
    kernel = compile_recipe(recipe())
    assert kernel.asm["cubin"][:4] == b"\x7fELF"
    assert kernel.metadata.target.arch == 90
    x = torch.zeros(16)
    with Monitor("record") as monitor:
        assert scale[(1,)](x, x, 33, BLOCK=16) is kernel
    assert [event.kind for event in monitor.events] == ["load"]


def test_compiling_launches_nothing(stub, monkeypatch):
    launched = []
    monkeypatch.setattr(StubLauncher, "__call__", lambda self, *args: launched.append(args))
    backend = TritonBackend()
    backend.load(backend.compile(recipe()))
    assert launched == []


def test_load_leaves_nothing_to_the_launch(stub):
    backend = backend_of(recipe())
    assert backend is backend_of(recipe(n=1))
    assert backend.name == "triton"
    backend.load(backend.compile(recipe()))
    x = torch.zeros(16)
    with Monitor("record") as monitor:
        scale[(1,)](x, x, 17, BLOCK=16)
    assert monitor.events == []


def test_a_kernel_too_large_for_the_device_fails_in_load(stub, monkeypatch):
    backend = TritonBackend()
    kernel = backend.compile(recipe())
    monkeypatch.setattr(triton.compiler.compiler, "max_shared_mem", lambda device: -1)
    with pytest.raises(triton.runtime.errors.OutOfResources):
        backend.load(kernel)


def test_prepare_makes_the_cache_entries_before_any_thread(stub):
    TritonBackend().prepare([recipe(), recipe(n=1)])
    assert list(scale.device_caches) == [0]


def test_a_skipping_hook_is_an_error(stub, monkeypatch):
    monkeypatch.setattr(triton.knobs.runtime, "jit_cache_hook", lambda **kwargs: True)
    with pytest.raises(RunError, match="launch_subjects.scale: a jit_cache_hook skipped"):
        compile_recipe(recipe())


def test_what_the_compiler_raises_arrives(stub):
    arguments = (("x_ptr", X), ("n", 2))
    with pytest.raises(triton.compiler.errors.CompilationError):
        compile_recipe(TritonRecipe(import_path(broken), arguments))


def test_keys_of_recipes(stub):
    assert TritonBackend().key(recipe(num_warps=8)) == (
        "launch_subjects.scale[x_ptr:*fp32/D; out_ptr:*fp32/D; n:i32/; BLOCK:constexpr=16]"
        "{cuda:90; num_warps=8}"
    )
    with pytest.raises(BindingError, match="^scale: .*num_warp "):
        TritonBackend().key(recipe(num_warp=8))
    with pytest.raises(DeclarationError, match=r"nowhere\.kernel: no such kernel"):
        TritonBackend().key(TritonRecipe("nowhere.kernel", ()))


def test_a_recipe_is_shown_as_it_was_written():
    assert recipe(num_stages=2, num_warps=8).canonical() == (
        "launch_subjects.scale(x_ptr=tensor(float32, aligned), out_ptr=tensor(float32, aligned), "
        "n=17, BLOCK=16, num_stages=2, num_warps=8)"
    )
