"""Expectation files: what is written reads back, and what is wrong is refused in one line."""

from __future__ import annotations

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jitwarm.errors import StoredFileError
from jitwarm.gate.counts import case_plan
from jitwarm.gate.expectation import CaseRows, Expectation, plan_of, read, rows_of, write
from jitwarm.keys import key_id
from made_plans import answer, backend_key, key

KERNELS = st.dictionaries(
    st.sampled_from(["Scale", "Shift", "Ünï"]),
    st.lists(st.sampled_from("abcd").map(lambda n: key("S", n=n)), max_size=4),
)
RANKS = st.dictionaries(st.integers(0, 9), KERNELS, min_size=1, max_size=4)


def scale(*numbers):
    return {"Scale": [key("Scale", n=n) for n in numbers]}


def stored(path, **changes):
    """A file of one case at two ranks, with parts of it replaced by JSON path."""
    rows = rows_of(case_plan(answer({0: scale(1, 2), 1: scale(1, 3)})))
    write(path, Expectation(1, "own", {"case": rows}))
    document = json.loads(path.read_text())
    for place, value in changes.items():
        *parents, last = place.split("__")
        at = document
        for name in parents:
            at = at[name.replace("_", " ")]
        at[last.replace("_", " ")] = value
    path.write_text(json.dumps(document))
    return path


@given(RANKS)
def test_what_is_written_reads_back(ranks):
    plan = case_plan(answer(ranks))
    rows = rows_of(plan)
    again = plan_of(msgspec.json.decode(msgspec.json.encode(rows), type=CaseRows))
    assert (again.arch, dict(again.ranks)) == (plan.arch, dict(plan.ranks))
    assert again.kernels.keys() == plan.kernels.keys()
    for name, kernel in plan.kernels.items():
        found = again.kernels[name]
        assert (found.counts, found.keys) == (kernel.counts, kernel.keys)
        assert (found.digest, found.paths) == (kernel.digest, kernel.paths)


def test_the_form_of_the_file(tmp_path):
    path = stored(tmp_path / "own.json")
    assert read(path, "own").cases["case"].kernels["Scale"].keys == {
        "every rank": ("Scale(n=1)",),
        "rank 0": ("Scale(n=2)",),
        "rank 1": ("Scale(n=3)",),
    }
    write(path, read(path, "own"))
    one, two, three = (backend_key(key("Scale", n=n)) for n in (1, 2, 3))
    first, second = key_id(f"{one}\n{two}"), key_id(f"{one}\n{three}")
    kernel = key_id(f"0 {one}\n0 {two}\n1 {one}\n1 {three}")
    text = path.read_text()
    for name, digest in (("FIRST", first), ("SECOND", second), ("KERNEL", kernel)):
        assert text.count(digest) == 1
        text = text.replace(digest, name)
    expected = """\
{
 "schema": 1,
 "scenario": "own",
 "cases": {
  "case": {
   "arch": "sm90",
   "ranks": {
    "rank 0": {
     "layers": 2,
     "keys": 2,
     "backend_keys": 2,
     "digest": "FIRST"
    },
    "rank 1": {
     "layers": 2,
     "keys": 2,
     "backend_keys": 2,
     "digest": "SECOND"
    }
   },
   "kernels": {
    "Scale": {
     "counts": {
      "every rank": {
       "registrations": 4,
       "distinct_registrations": 1,
       "points": 2,
       "keys": 2,
       "backend_keys": 2
      }
     },
     "digest": "KERNEL",
     "paths": [
      "kernels.scale"
     ],
     "keys": {
      "every rank": [
       "Scale(n=1)"
      ],
      "rank 0": [
       "Scale(n=2)"
      ],
      "rank 1": [
       "Scale(n=3)"
      ]
     }
    }
   }
  }
 }
}
"""
    assert text == expected


def test_two_objects_of_one_name_may_declare_the_same_key():
    twice = case_plan(answer({0: scale(1, 1, 2)}))
    assert twice.kernels["Scale"].keys[0] == {"Scale(n=1)", "Scale(n=1) #2", "Scale(n=2)"}
    assert plan_of(rows_of(twice)).kernels["Scale"].keys == twice.kernels["Scale"].keys


def test_soaking_survives_an_update():
    plan = case_plan(answer({0: scale(1)}))
    rows = rows_of(plan)
    rows = msgspec.structs.replace(
        rows,
        soaking="new this week",
        kernels={"Scale": msgspec.structs.replace(rows.kernels["Scale"], soaking="#12")},
    )
    again = rows_of(case_plan(answer({0: scale(1, 2) | {"Shift": []}})), rows)
    assert again.soaking == "new this week"
    assert {name: one.soaking for name, one in again.kernels.items()} == {
        "Scale": "#12",
        "Shift": None,
    }
    assert b"soaking" not in msgspec.json.encode(rows_of(plan))


SCALE = "cases__case__kernels__Scale"


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"schema": 2}, "is a file of expectations of schema 2, this jitwarm reads up to 1"),
        ({"schema": 0}, "is a file of expectations of schema 0, this jitwarm reads 1: write"),
        ({"schema": "1"}, "is no file of expectations of jitwarm: it has no schema number"),
        ({"scenario": "other"}, "is the expectation of 'other', not 'own'"),
        ({"note": "x"}, "is no file of expectations of jitwarm: Object contains unknown"),
        ({f"{SCALE}__soakign": "x"}, "Object contains unknown field `soakign`"),
        ({f"{SCALE}__soaking": ""}, "Expected `str` of length >= 1"),
        ({f"{SCALE}__counts__every_rank__keys": 3}, "Scale at rank 0 has 3 keys and lists 2"),
        ({f"{SCALE}__counts__every_rank__points": -1}, "Expected `int` >= 0"),
        ({f"{SCALE}__counts__rank_1": {}}, "missing required field"),
        ({f"{SCALE}__keys__rank_2": []}, "'rank 2' is not how planned ranks are named"),
        ({f"{SCALE}__keys__rank_0": ["Scale(n=1)"]}, "Scale at rank 0 lists a key twice"),
        ({f"{SCALE}__keys__every_one": []}, "'every one' names no ranks"),
        ({"cases__case__ranks__rank_1__keys": 7}, "rank 1 has 7 keys, its kernels have 2"),
        ({"cases__case__ranks__ranks_0-1": {"layers": 1, "keys": 2, "backend_keys": 2,
                                            "digest": ""}}, "rank 0 is named twice"),
        ({"cases__case__kernels": {}}, "rank 0 has 2 keys, its kernels have 0"),
        ({"cases": []}, "Expected `object`, got `array`"),
    ],
)  # fmt: skip
def test_a_file_that_cannot_be_used(tmp_path, changes, problem):
    path = stored(tmp_path / "own.json", **changes)
    with pytest.raises(StoredFileError) as error:
        read(path, "own")
    assert problem in str(error.value)
    assert str(error.value).startswith(f"{path}: ")
    assert "\n" not in str(error.value)
    assert error.value.exit_code == 4


@pytest.mark.parametrize(
    ("once", "twice", "name"),
    [
        ('"layers": 2', '"layers": 3, "layers": 2', "layers"),
        ('"keys": {', '"keys": {}, "keys": {', "keys"),
        ('"schema": 1', '"cases": {}, "schema": 1', "cases"),
    ],
)
def test_what_stands_twice_is_not_read_as_the_last(tmp_path, once, twice, name):
    path = stored(tmp_path / "own.json")
    path.write_text(path.read_text().replace(once, twice, 1))
    with pytest.raises(StoredFileError) as error:
        read(path, "own")
    assert str(error.value) == (
        f"{path}: contradicts itself: {name!r} stands twice in one place; take the file whole from "
        "git (or remove it), then --update"
    )


def test_a_file_that_is_cut_off_anywhere(tmp_path):
    path = stored(tmp_path / "own.json")
    whole = path.read_bytes()
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        with pytest.raises(StoredFileError):
            read(path, "own")


def test_marks_of_a_merge(tmp_path):
    path = stored(tmp_path / "own.json")
    path.write_text("<<<<<<< HEAD\n" + path.read_text())
    with pytest.raises(StoredFileError, match="is damaged or no JSON"):
        read(path, "own")
