"""The names of the library's key fields, held against its source; texts of keys."""

from __future__ import annotations

import ast
import inspect
from pathlib import Path

import pytest
from fa4_subjects import PLAIN_TEXT, varlen

from jitwarm.backends.fa4 import keytext
from jitwarm.backends.fa4.keytext import FIELDS, MAIN, key_text
from jitwarm.backends.keyfields import fields_of

pytestmark = pytest.mark.cutedsl

# What the library calls a field where its expression does not hold our name.
OTHER_NAMES = {
    "mla_1cta_s_ahead": "mla_1cta_s_ahead if mla_1cta",
    "heads_per_kv_head": "nheads_per_kv",
    "num_kv_heads": ("num_head_kv", "nheads_kv"),
    "num_heads": ("num_head", "nheads"),
    "block_sparse": "use_block_sparsity",
    "block_sparse_broadcast": "block_sparse_broadcast_pattern",
    "broadcast": "tensor_broadcast_patterns",
    "aux_tensors": "aux_tensor_metadata",
    "aux_scalars": "aux_scalar_metadata",
    "window_left": "window_size_left",
    "window_right": "window_size_right",
    "sparse_cu_total_m_blocks": "block_sparse_tensors.cu_total_m_blocks",
    "sparse_cu_block_idx_offsets": "block_sparse_tensors.cu_block_idx_offsets",
    "split_kv": "is_split_kv",
    "two_cta": "use_2cta_instrs",
    "q_subtile": "q_subtile_factor",
    "kv_subtile": "kv_subtile_factor",
    "clc_scheduler": "use_clc_scheduler",
    "s_ping_pong": "use_s_ping_pong",
    "rescale_threshold": "mla_fwd_rescale_threshold",
    "static_persistent": "is_static_persistent",
    "no_sparse_kv_bitmask": "disable_sparse_kv_bitmask",
    "log_level": "get_fa_log_level",
    "k_block": "k_block_size",
    "head_dim": ("head_dim", "headdim"),
    "head_dim_v": ("head_dim_v", "headdim_v"),
    "pdl": "enable_pdl",
    "blocks_per_split": "n_blocks_per_split",
    "arch": "arch",
}


@pytest.fixture(scope="module")
def functions():
    """The functions of the library's interface as source trees, and the compiled-in keys."""
    pytest.importorskip("flash_attn.cute")
    import flash_attn.cute

    source = Path(flash_attn.cute.__path__[0], "interface.py").read_text()
    return {n.name: n for n in ast.parse(source).body if isinstance(n, ast.FunctionDef)}


def key_expressions(function):
    """The elements of the tuple that the function looks up in its cache, as source."""
    found = [
        [ast.unparse(element) for element in node.value.elts]
        for node in ast.walk(function)
        if isinstance(node, ast.Assign)
        and isinstance(node.value, ast.Tuple)
        and ast.unparse(node.targets[0]) in {"compile_key", "cache_key"}
    ]
    assert len(found) == 1
    return found[0]


@pytest.mark.parametrize("name", FIELDS)
def test_fields_are_named_as_in_the_source(functions, name):
    expressions = key_expressions(functions[name])
    assert len(expressions) == len(FIELDS[name])
    for (field, _), expression in zip(FIELDS[name], expressions, strict=True):
        plain = field.removeprefix("!")
        wanted = OTHER_NAMES.get(plain, plain)
        names = (wanted,) if isinstance(wanted, str) else wanted
        assert any(each in expression for each in names), (field, expression)
        if name == MAIN:
            assert field.startswith("!") == expression.endswith("is None") or "block_" in expression


def test_these_caches_are_all_of_the_forward_path(functions):
    """Functions that the forward entry can reach, and that have a cache of compiled kernels."""
    reached, waiting = set(), {MAIN}
    while waiting:
        name = waiting.pop()
        reached.add(name)
        called = {n.id for n in ast.walk(functions[name]) if isinstance(n, ast.Name)}
        waiting |= (called & functions.keys()) - reached
    with_cache = {name for name in reached if ".compile_cache" in ast.unparse(functions[name])}
    assert with_cache == set(FIELDS)


def test_the_batch_above_which_a_table_is_used(interface):
    from jitwarm.zoo.kernels.inkling_splits import LARGE_BATCH

    assert interface.BIN_BATCH_SEARCH_THRESH == LARGE_BATCH


def main_key(interface):
    from jitwarm.backends.fa4.probes import asked_by

    return dict(asked_by(varlen()))[MAIN]


def test_the_text_of_a_plain_call(interface):
    text = key_text(MAIN, main_key(interface))
    assert text == PLAIN_TEXT
    taken = fields_of(text)
    assert taken.path == "flash_attn.cute.interface._flash_attn_fwd"
    assert taken.fields["head_dim"] == "64"
    assert taken.settings == {"target": "sm_90a"}


def test_each_field_changes_the_text(interface):
    key = main_key(interface)
    other = {
        bool: lambda v: not v,
        int: lambda v: v + 1,
        float: lambda v: v + 1,
        type: lambda _: str,
    }
    texts = {key_text(MAIN, key)}
    for index, value in enumerate(key):
        changed = other.get(type(value) if not isinstance(value, type) else type, lambda _: "x")
        if isinstance(value, tuple):
            changed = lambda v: (*v[:-1], (True, False))
        texts.add(key_text(MAIN, (*key[:index], changed(value), *key[index + 1 :])))
    # `arch` and persistence also decide whether the number of SMs is told.
    assert len(texts) == len(key) + 1


def test_types_are_told_apart(interface):
    key = main_key(interface)
    causal = [name for name, _ in FIELDS[MAIN]].index("causal")
    assert key[causal] is True
    assert key_text(MAIN, (*key[:causal], 1, *key[causal + 1 :])) != key_text(MAIN, key)


def test_a_key_of_another_version_is_numbered(interface):
    text = key_text(MAIN, (1, "a"))
    assert text.startswith("flash_attn.cute.interface._flash_attn_fwd[field0=1; field1='a']{sm_90a")


def test_broadcast_dimensions(interface):
    assert keytext._pattern((False, True, False)) == "3@1"
    assert keytext._pattern(None) == "-"


def test_the_source_of_the_hash_of_a_modifier_is_read(interface):
    """A score modifier is known by a hash of its source, which is the same in every process."""
    from jitwarm.zoo.kernels.inkling_relative_bias import relative_bias

    base = inspect.unwrap(relative_bias)
    assert base.__closure__ is None  # what is captured is hashed by its repr, addresses included
    assert base.__defaults__ is None


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"arch": 100}, True),  # persistent, as the plain call is
        ({"arch": 100, "static_persistent": False}, False),
        ({"arch": 103, "static_persistent": False, "tile_count_semaphore": True}, True),
        ({"arch": 90}, False),
    ],
)
def test_the_number_of_sms_is_told_where_it_is_built_in(interface, changed, told):
    names = [name for name, _ in FIELDS[MAIN]]
    key = list(main_key(interface))
    for name, value in changed.items():
        key[names.index(name)] = value
    assert key_text(MAIN, tuple(key)).endswith("{sm_90a; num_sms=132}") == told


def test_the_schedule_of_splits_has_it_built_in(interface):
    schedule = "_get_scheduler_metadata"
    assert "; num_sms=132}" in key_text(schedule, (1,) * len(FIELDS[schedule]))
    combine = "_flash_attn_fwd_combine"
    assert "num_sms" not in key_text(combine, (1,) * len(FIELDS[combine]))
