"""Shares of work, and object files from a child into the library's caches."""

from __future__ import annotations

import json

import pytest
from fa4_subjects import PLAIN_TEXT, varlen

from jitwarm import keys
from jitwarm.backends.fa4 import children
from jitwarm.backends.fa4.keytext import MAIN
from jitwarm.backends.fa4.recipe import FA4Recipe
from jitwarm.declare import TensorSpec

pytestmark = pytest.mark.cutedsl


def many(dtype):
    """A batch of 300: it needs two helpers, the same for any dtype."""
    starts = TensorSpec("int32", shape=(301,))
    plain = dict(varlen(tokens=300, dtype=dtype).arguments)
    return FA4Recipe(tuple((plain | {"cu_seqlens_q": starts, "cu_seqlens_k": starts}).items()))


def functions(work):
    return [function for function, _ in work.share]


def test_a_kernel_that_two_calls_need_is_compiled_once(interface):
    first, second = many("float16"), many("bfloat16")
    work = children.share_out([first, second, first])
    assert functions(work[second.canonical()]) == [MAIN]
    assert len(work) == 2
    assert not interface._flash_attn_fwd.compile_cache.cache
    work = children.share_out([first, second])
    assert len(functions(work[first.canonical()])) == 3


def test_a_refused_call_gets_no_work(interface):
    recipe = varlen(dim=264)
    assert children.share_out([recipe])[recipe.canonical()].share == {}


def test_a_handed_file_becomes_the_kernel(interface, tmp_path, monkeypatch):
    from cutlass import cute

    work = children.share_out([varlen()])[varlen().canonical()]
    ((function, key),) = work.share
    name = f"{keys.key_id(PLAIN_TEXT)}.o"
    monkeypatch.setattr(
        cute.runtime, "load_module", lambda path, enable_tvm_ffi: type("M", (), {"func": path})
    )
    listed = tmp_path / "done.json"
    listed.write_text(json.dumps([]))
    with pytest.raises(KeyError, match=name):
        children.take_over(work, listed)
    listed.write_text(json.dumps([name]))
    children.take_over(work, listed)
    assert interface._flash_attn_fwd.compile_cache.cache[key] == str(tmp_path / name)
    children.take_over(work, listed)  # it is there: nothing happens
    assert function == MAIN
