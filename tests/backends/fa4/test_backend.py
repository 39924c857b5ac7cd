"""Keys, compiles and stub launches with the real library, for sm_90a without a GPU."""

from __future__ import annotations

import json
import pickle
from dataclasses import dataclass

import pytest
import torch
from fa4_subjects import PLAIN_TEXT, caches, varlen

from jitwarm import JitWarmupRegistry, keys
from jitwarm.backends import backend_of
from jitwarm.backends.fa4 import calls, launch, library
from jitwarm.backends.fa4.backend import FA4Backend
from jitwarm.backends.fa4.kernel import FA4JitKernel, starts_of_requests
from jitwarm.backends.fa4.keytext import MAIN
from jitwarm.backends.fa4.probes import texts_of
from jitwarm.backends.fa4.recipe import Callback, FA4Recipe
from jitwarm.declare import TensorSpec
from jitwarm.errors import (
    BindingError,
    CompileRefused,
    DeclarationError,
    MissingExtraError,
    UsageError,
)
from jitwarm.observe import phases
from jitwarm.observe.monitor import Monitor
from jitwarm.plan import make_plan
from jitwarm.warm import warm

pytestmark = pytest.mark.cutedsl

BIAS = Callback("jitwarm.zoo.kernels.inkling_relative_bias:relative_bias")


def in_memory(interface):
    return {name: len(cache.cache) for name, cache in caches(interface).items() if cache.cache}


def runtime_call(*, dtype=torch.float16, heads=2, tokens=5, **more):
    """The arguments of a launch, on the CPU as everything on the stub device."""
    q = torch.zeros(tokens, heads, 64, dtype=dtype)
    starts = torch.tensor([0, tokens], dtype=torch.int32)
    plain = {
        "q": q, "k": q, "v": q, "cu_seqlens_q": starts, "cu_seqlens_k": starts,
        "max_seqlen_q": tokens, "max_seqlen_k": tokens, "softmax_scale": 0.125, "causal": True,
    }  # fmt: skip
    return plain | more


# Recipes.


def test_a_recipe_is_picklable_data():
    recipe = varlen(score_mod=BIAS, aux_tensors=(TensorSpec("bfloat16"),))
    again = pickle.loads(pickle.dumps(recipe))
    assert again == recipe
    assert again.canonical() == recipe.canonical()
    assert "score_mod=jitwarm.zoo.kernels.inkling_relative_bias:relative_bias" in again.canonical()
    assert isinstance(backend_of(recipe), FA4Backend)


def test_a_callback_that_is_not_there():
    with pytest.raises(UsageError, match=r"no function to trace at jitwarm.keys:nothing"):
        Callback("jitwarm.keys:nothing").resolve()


def test_a_class_without_recipe_says_so():
    class Kernel(FA4JitKernel):
        CompileKey = tuple

        def get_warmup_keys(self):
            return [(1,)]

    with pytest.raises(DeclarationError, match=r"has no recipe\(key\)"):
        Kernel().compile((1,))


# Keys.


def test_a_key_costs_no_compile(interface):
    assert FA4Backend().key(varlen()) == PLAIN_TEXT
    assert in_memory(interface) == {}


def test_keys_follow_what_the_library_looks_at(interface):
    key = FA4Backend().key
    assert key(varlen(max_q=192)) == key(varlen())
    assert key(varlen(max_q=193)) != key(varlen())
    assert key(varlen(dtype="bfloat16")) != key(varlen())
    assert key(varlen(tokens=100, heads=4)) == key(varlen())


def test_a_call_that_the_library_refuses(interface):
    with pytest.raises(BindingError, match=r"refuses this call: .*\(264, 264\) is not supported"):
        FA4Backend().key(varlen(dim=264))
    assert in_memory(interface) == {}


def test_a_call_without_tokens_launches_nothing(interface):
    with pytest.raises(BindingError, match="launches nothing"):
        FA4Backend().key(varlen(tokens=0))


def test_unaligned_tensors_are_copied_by_the_library(interface):
    arguments = dict(varlen().arguments)
    odd = arguments | {"v": TensorSpec("float16", shape=(2, 2, 64), strides=(129, 65, 1))}
    slid = arguments | {"q": TensorSpec("float16", aligned=False, shape=(2, 2, 64))}
    for changed in (odd, slid):
        assert FA4Backend().key(FA4Recipe(tuple(changed.items()))) == PLAIN_TEXT


def test_helpers_of_a_large_batch(interface):
    many = varlen(tokens=300)
    arguments = dict(many.arguments)
    starts = TensorSpec("int32", shape=(301,))
    arguments |= {"cu_seqlens_q": starts, "cu_seqlens_k": starts}
    recipe = FA4Recipe(tuple(arguments.items()))
    main, *helpers = texts_of(recipe)
    assert "blocks_to_batch_idx=True" in main
    assert [text.partition("[")[0].rpartition(".")[2] for text in helpers] == [
        "_compute_blocks_to_batch",
        "_compute_tile_cumsum",
    ]
    assert recipe.options == tuple(helpers)
    assert many.options == ()


def test_without_the_library(stub, monkeypatch):
    library._opened.cache_clear()
    monkeypatch.setitem(__import__("sys").modules, library.INTERFACE, None)
    try:
        with pytest.raises(MissingExtraError, match=r"needs flash-attn-4: pip install .*\[fa4\]"):
            FA4Backend().key(varlen(tokens=77))
        FA4Backend().prepare([varlen()])
    finally:
        library._opened.cache_clear()


# Launches on the stub device.


def test_a_stub_launch_compiles_what_is_missing_and_counts(interface, monkeypatch):
    fake_calls = []
    run = calls.run_on_fakes
    monkeypatch.setattr(
        calls, "run_on_fakes", lambda *args: fake_calls.append(1) or run(*args)
    )  # as the launch path calls it
    arguments = runtime_call()
    with Monitor("record", count_hits=True) as monitor:
        out, lse = launch.forward(**arguments)
        assert (out.shape, lse) == (arguments["q"].shape, None)
        assert [event.kind for event in monitor.events] == ["compile"]
        assert in_memory(interface) == {MAIN: 1}
        assert len(fake_calls) == 2  # once for the keys, once to compile
        given = torch.full_like(arguments["q"], 3.0)
        returned, lse = launch.forward(**arguments, out=given)
        assert returned is given and (given == 3.0).all()
        launch.forward(**arguments)
        launch.forward(**runtime_call())
        assert len(fake_calls) == 3  # `out` makes another signature
        assert monitor.launches() == {PLAIN_TEXT: 4}
        assert len(monitor.events) == 1
    event = monitor.events[0]
    assert (event.key, event.kernel) == (PLAIN_TEXT, PLAIN_TEXT.partition("[")[0])
    assert event.ms > event.stages["passes"] > 0
    # What warm-up would do finds it there.
    with Monitor("record") as monitor, phases.phase("warm"):
        artefact = backend_of(varlen()).compile(varlen())
        assert backend_of(varlen()).load(artefact) == ""
    assert monitor.events == []
    assert not backend_of(varlen()).worth_a_child(varlen())


def test_a_refused_launch_is_refused_again_and_compiles_nothing(interface):
    with Monitor("error") as monitor:
        for _ in range(2):
            with pytest.raises(CompileRefused, match="dtype=BFloat16"):
                launch.forward(**runtime_call(dtype=torch.bfloat16))
    assert [event.kind for event in monitor.events] == ["refused", "refused"]
    assert in_memory(interface) == {}


def test_a_key_replay_compiles_nothing(interface):
    with Monitor("record", null_kernels=True, count_hits=True) as monitor:
        for _ in range(3):
            launch.forward(**runtime_call())
        assert monitor.launches() == {PLAIN_TEXT: 3}
    assert monitor.events == []
    assert in_memory(interface) == {}
    with Monitor("error"), pytest.raises(CompileRefused):
        launch.forward(**runtime_call())


def test_the_log_sum_exp_is_returned_if_asked_for(interface):
    with Monitor("record", null_kernels=True):
        out, lse = launch.forward(**runtime_call(tokens=7), return_lse=True)
    assert out.shape == (7, 2, 64)
    assert (lse.shape, lse.dtype) == ((2, 7), torch.float32)


def test_only_so_many_signatures_are_remembered(interface, monkeypatch):
    monkeypatch.setattr(launch, "SIGNATURES", 2)
    with Monitor("record", null_kernels=True):
        for tokens in (1, 2, 3, 1):
            launch.forward(**runtime_call(tokens=tokens))
    assert len(launch._known) == 2


def test_a_launch_of_somebody_else_is_watched_too(interface):
    """Whoever calls the library: here in its own fake mode, where it launches nothing."""
    with Monitor("error") as monitor:
        with pytest.raises(CompileRefused):
            calls.run_on_fakes(interface._flash_attn_fwd, runtime_call())
        assert [event.kind for event in monitor.events] == ["refused"]


# Binaries that come from elsewhere.


def test_children_compile_and_the_librarys_cache_on_disk_serves(interface, tmp_path, monkeypatch):
    """One compile, in a child: handed over once as a file, once through the library's cache."""
    from flash_attn.cute.cache_utils import JITCache, JITPersistentCache

    from jitwarm.backends.cutedsl.children import Handed, compile_in_children

    disk = JITPersistentCache(tmp_path / "disk")
    monkeypatch.setattr(interface._flash_attn_fwd, "compile_cache", disk)
    backend = FA4Backend()
    backend.prepare([varlen()])
    assert backend.worth_a_child(varlen())
    ((task, handed),) = list(compile_in_children(backend, [[varlen()]], 1, tmp_path))
    assert isinstance(handed, Handed), handed
    assert task == 0
    assert [(miss.text, miss.kind) for miss in handed.misses] == [(PLAIN_TEXT, "compile")]
    assert len(list((tmp_path / "disk").glob("*.o"))) == 1
    assert not disk.cache  # the child's memory is not ours
    with Monitor("record") as monitor:
        launch.forward(**runtime_call())
    assert [event.kind for event in monitor.events] == ["disk_hit"]
    backend.adopt(varlen(), handed.paths[0])
    assert len(disk.cache) == 1
    # Without a cache on disk the child leaves such a file in the folder, under the key's id.
    (stored,) = (tmp_path / "disk").glob("*.o")
    stored.rename(tmp_path / f"{keys.key_id(PLAIN_TEXT)}.o")
    listed = tmp_path / "listed.json"
    listed.write_text(json.dumps([f"{keys.key_id(PLAIN_TEXT)}.o"]))
    monkeypatch.setattr(interface._flash_attn_fwd, "compile_cache", JITCache())
    backend.prepare([varlen()])
    backend.adopt(varlen(), listed)
    assert not backend.worth_a_child(varlen())
    with Monitor("error"):
        launch.forward(**runtime_call())


def test_what_is_not_all_there_is_not_adopted(interface, tmp_path, monkeypatch):
    backend = FA4Backend()
    backend.prepare([varlen()])
    monkeypatch.setattr("jitwarm.backends.fa4.children.take_over", lambda work, path: None)
    with pytest.raises(KeyError, match=MAIN):
        backend.adopt(varlen(), tmp_path)


class Splitting(FA4JitKernel["Splitting.CompileKey"]):
    """Calls that the library has a key for, and refuses to compile on sm90: it cannot split."""

    @dataclass(frozen=True, slots=True)
    class CompileKey:
        heads: int

    def get_warmup_keys(self):
        return [self.CompileKey(2), self.CompileKey(4)]

    def recipe(self, key):
        dtype = {2: "float16", 4: "bfloat16"}[key.heads]
        return varlen(heads=key.heads, dtype=dtype, max_k=4096, num_splits=2)


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_call_that_fails_before_its_compile_fails_whatever_the_jobs(interface, jobs):
    registry = JitWarmupRegistry(None)
    with registry.activate():
        Splitting().register_warmup()
    plan = make_plan(registry)
    assert len(plan.backend_keys) == 2
    report = warm(plan, jobs=jobs)
    assert [outcome.status for outcome in report.outcomes] == ["failed", "failed"]
    with pytest.raises(ExceptionGroup) as caught:
        report.raise_failures()
    assert all("SplitKV not supported" in str(error) for error in caught.value.exceptions)
    assert MAIN not in in_memory(interface)
    recipe = plan.items[0].recipe
    assert not backend_of(recipe).worth_a_child(recipe)  # it has nothing to hand over


# Scratch tensors of a load.


def test_scratch_tensors_have_the_layout_of_their_spec(stub):
    spec = TensorSpec("bfloat16", aligned=False, shape=(2, 3), strides=(8, 1), init=2)
    tensor = calls.scratch_tensor(spec, "cpu")
    assert (tensor.shape, tensor.stride(), tensor.dtype) == ((2, 3), (8, 1), torch.bfloat16)
    assert tensor.storage_offset() == 1
    assert (tensor == 2).all()
    starts = calls.scratch_tensor(TensorSpec("int32", shape=(4,), init=starts_of_requests), "cpu")
    assert starts.tolist() == [0, 2, 3, 4]
