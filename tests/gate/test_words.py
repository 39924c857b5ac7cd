"""Changed keys in words: the fields that tell them apart, and no key lost on the way."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from jitwarm.gate.declared import declared_fields
from jitwarm.gate.words import SHOWN, change_text, grouped


def key(**fields):
    return "K(" + ", ".join(f"{name}={value}" for name, value in fields.items()) + ")"


def said(before, after):
    """The words for one rank."""
    return change_text({0: before - after}, {0: after - before}, {0: before}, {0: after})


SMALL = {key(top_k=top_k, n=n) for top_k in (512, 2048) for n in (1, 2, 16)}


def test_six_keys_of_one_new_value():
    six = {
        key(top_k=top_k, n=n, width=w) for top_k in (512, 2048) for n in (1, 2, 16) for w in (0,)
    }
    more = six | {key(top_k=1024, n=n, width=w) for n in (1, 2, 16) for w in (0, 8)}
    assert said(six, more) == "+6 keys: top_k=1024 (3), top_k=1024 width=8 (3)"
    more = six | {key(top_k=k, n=n, width=0) for k in (1024, 4096) for n in (1, 2, 16)}
    assert said(six, more) == "+6 keys: top_k=1024, 4096"
    assert said(more, six) == "-6 keys: top_k=1024, 4096"


def test_a_swap_of_the_same_count():
    assert said({key(n=1), key(n=2)}, {key(n=1), key(n=3)}) == "+1 key: n=3; -1 key: n=2"


def test_a_new_combination_of_known_values_is_told_by_the_nearest_key():
    known = {key(a=1, b=1, c=1), key(a=2, b=2, c=2)}
    assert said(known, known | {key(a=1, b=1, c=2)}) == "+1 key: c=2"


def test_a_new_value_is_enough_even_where_the_nearest_key_differs_in_more():
    known = {key(a=1, b=1, c=1), key(a=2, b=2, c=2)}
    assert said(known, known | {key(a=3, b=1, c=2)}) == "+1 key: a=3"


def test_a_field_that_only_the_new_keys_have_or_lack():
    assert said({key(a=1)}, {key(a=1), key(a=1, b=3)}) == "+1 key: b=3"
    assert said({key(a=1, b=3)}, {key(a=1, b=3), key(a=1)}) == "+1 key: b absent"


def test_a_kernel_that_had_no_keys():
    assert said(set(), {key(n=1)}) == "+1 key"
    assert said(set(), {key(n=n, b=2) for n in (1, 2)}) == "+2 keys: n=1, 2"


def test_alignment_reads_as_words():
    def variant(seq_lens):
        inner = f"(('seq_lens', {seq_lens}), ('out', True))"
        return f"K(n=1, input_variant=TritonPointerInputVariant(alignments={inner}))"

    assert said({variant(True)}, {variant(True), variant(False)}) == "+1 key: seq_lens unaligned"


def test_many_values_and_long_ones_are_shortened():
    more = SMALL | {key(top_k=512, n=n) for n in (100, 101, 102, 103, 104)}
    assert said(SMALL, more) == "+5 keys: n=100, 101, 102, and 2 more"
    long = SMALL | {key(top_k=512, n="x" * 80)}
    assert said(SMALL, long) == f"+1 key: n={'x' * 45}..."


def test_what_is_the_same_at_several_ranks_is_said_once():
    def keys_of(rank, *blocks):
        return frozenset(key(rank=rank, block=block) for block in blocks)

    before = {rank: keys_of(rank, 256) for rank in range(8)}
    after = {rank: keys_of(rank, 256, 512) for rank in range(8)}
    changes = {rank: after[rank] - before[rank] for rank in range(8)}
    nothing = dict.fromkeys(range(8), frozenset())
    assert change_text(nothing, changes, before, after) == "+1 key: block=512"
    only = nothing | {3: changes[3], 4: changes[4]}
    after = {rank: before[rank] | only[rank] for rank in range(8)}
    assert change_text(nothing, only, before, after) == "ranks 3-4: +1 key: block=512"


def test_a_search_that_would_take_too_long_is_left_out():
    known = {key(a=a, b=b) for a in range(700) for b in (a, a + 1)}
    new = {key(a=a, b=a + 2) for a in range(600)}
    assert said(known, known | new) == "+600 keys"


NAMES, VALUES = (
    st.sampled_from("abc"),
    st.sampled_from(["1", "2", "'x, (y'", "(1, 2)", "t(f, g=1)"]),
)
KEYS = st.dictionaries(NAMES, VALUES, max_size=3).map(lambda fields: key(**fields))


@given(st.frozensets(KEYS | st.text(max_size=5), max_size=12), st.frozensets(KEYS, max_size=12))
def test_every_key_is_in_exactly_one_group(changed, others):
    groups = grouped(changed, others)
    assert sorted(one for group in groups for one in group.keys) == sorted(changed)
    for group in groups:
        assert len(group.keys) == len(group.values) > 0
        for one, values in zip(group.keys, group.values, strict=True):
            fields = declared_fields(one)
            assert values == tuple(fields.get(name, "absent") for name in group.names)
    assert len({group.names for group in groups}) == len(groups)


@given(st.frozensets(KEYS, max_size=12), st.frozensets(KEYS, max_size=12))
def test_the_numbers_in_the_line_are_those_of_the_sets(before, after):
    text = said(before, after)
    gained, lost = len(after - before), len(before - after)
    head = [part for part in text.split("; ") if part.startswith(("+", "-"))]
    expected = [f"+{gained} key"] * bool(gained) + [f"-{lost} key"] * bool(lost)
    assert [
        part.partition("s:")[0].partition(":")[0].removesuffix("s") for part in head
    ] == expected
    assert "\n" not in text
    assert text.count("and ") <= 2 * (SHOWN + 2)


@given(st.dictionaries(NAMES, VALUES, max_size=3), st.sampled_from(["", "K", "a.b._k"]))
def test_fields_are_what_the_key_was_made_of(fields, path):
    text = f"{path}({', '.join(f'{name}={value}' for name, value in fields.items())})"
    assert declared_fields(text) == {"": path} | fields


@given(st.text(max_size=40))
def test_any_text_can_be_taken_apart(text):
    assert all(isinstance(value, str) for value in declared_fields(text).values())
