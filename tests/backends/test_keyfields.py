"""Keys of any backend, taken apart."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jitwarm import keys
from jitwarm.backends.keyfields import fields_of


def test_a_triton_key():
    found = fields_of("m.k[x_ptr:*fp32/D; num_stages:constexpr=2]{cuda:90; num_stages=3}")
    assert found.is_triton and found.path == "m.k"
    assert found.together() == {
        "x_ptr": "*fp32/D",
        "num_stages": "constexpr=2",
        "target": "cuda:90",
        "{num_stages}": "3",
    }


def test_a_key_of_another_backend():
    text = "m.K#2[head_dim=128; causal=True; window=(1, -1)]{sm_90a; --enable-tvm-ffi; env=x}"
    found = fields_of(text)
    assert not found.is_triton and found.path == "m.K#2"
    assert found.fields == {"head_dim": "128", "causal": "True", "window": "(1, -1)"}
    assert found.settings == {"target": "sm_90a", "options": "--enable-tvm-ffi", "env": "x"}


@pytest.mark.parametrize(
    ("text", "path", "fields"),
    [
        ("m.K[7]", "m.K", {"key": "7"}),
        ("m.K[7; a=1; 'b']", "m.K", {"key": "7; 'b'", "a": "1"}),
        ("m.K[]{sm_90a}", "m.K", {}),
        ("no key at all", "no key at all", {}),
        ("", "", {}),
    ],
)
def test_odd_keys(text, path, fields):
    found = fields_of(text)
    assert (found.path, found.fields, found.is_triton) == (path, fields, False)


@given(st.text())
def test_no_text_is_an_error(text):
    fields_of(text)
    fields_of(f"m.k[{text}")
    fields_of(f"m.k[{text}]{{sm_90a}}")


VALUES = st.one_of(
    st.text(), st.integers(), st.booleans(), st.none(), st.tuples(st.text(), st.integers())
)


@given(st.dictionaries(st.sampled_from("abcdef"), VALUES))
def test_every_field_is_found_again_whatever_it_holds(values):
    texts = {name: keys.canonical(value) for name, value in values.items()}
    inner = "; ".join(f"{name}={text}" for name, text in texts.items())
    found = fields_of(f"m.K[{inner}]{{sm_90a; --opt}}")
    assert (found.path, found.fields) == ("m.K", texts)
    assert found.settings == {"target": "sm_90a", "options": "--opt"}
