"""The expander against brute force: every combination of every axis, pruned or not."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from jitwarm import keys
from jitwarm.contract import zip_inputs
from jitwarm.contract.expander import expand

NAMES = ("a", "b", "c", "d")
VALUES = st.one_of(
    st.integers(0, 3),
    st.booleans(),
    st.sampled_from([0.0, -0.0, 1.0, 2.0]),
    st.none(),
    st.text("xy", max_size=1),
)


@dataclass(frozen=True)
class Key:
    fields: tuple[object, ...]


def dispatch_reading(read):
    """A dispatch that declares all four inputs and reads those in `read`."""
    source = (
        f"def dispatch(*, a, b, c, d):\n    return Key(({''.join(f'{name},' for name in read)}))\n"
    )
    namespace = {"Key": Key}
    exec(source, namespace)
    return namespace["dispatch"]


def brute_force(dispatch, rows, axes, when):
    """Full expansion by nested product; distinct by type-exact key, first seen first."""
    found = {}
    for row, *values in itertools.product(rows, *axes.values()):
        point = {**row, **dict(zip(axes, values, strict=True))}
        if when is None or when(point["a"]):
            key = dispatch(**point)
            found.setdefault(keys.exact(key), key)
    return list(found.values())


@given(
    axes=st.fixed_dictionaries({name: st.lists(VALUES, min_size=1, max_size=3) for name in NAMES}),
    order=st.permutations(NAMES),
    read=st.lists(st.sampled_from(NAMES), unique=True),
    in_rows=st.lists(st.sampled_from(NAMES), unique=True),
    predicate=st.booleans(),
)
def test_equals_full_expansion(axes, order, read, in_rows, predicate):
    height = min((len(axes[name]) for name in in_rows), default=0)
    rows = [{name: axes[name][i] for name in in_rows} for i in range(height)]
    keyword = {name: axes[name] for name in order if name not in in_rows}
    when = (lambda a: a is not None) if predicate else None
    dispatch = dispatch_reading(read)
    expected = brute_force(dispatch, rows or [{}], keyword, when)
    groups = (zip_inputs(*rows),) if rows else ()
    if not expected:
        return  # a predicate that rejects all is another test's matter
    found = expand("Demo", Key, dispatch, groups=groups, when=when, axes=keyword)
    assert [keys.canonical(key) for key in found] == [keys.canonical(key) for key in expected]


@given(st.lists(VALUES, min_size=1))
def test_distinct_keys_are_the_distinct_texts(values):
    found = expand("Demo", Key, lambda a: Key((a,)), axes={"a": values})
    texts = [keys.canonical(Key((value,))) for value in values]
    assert [keys.canonical(key) for key in found] == list(dict.fromkeys(texts))
