"""A count that is not the number of what is listed is damage, and never a better result."""

from __future__ import annotations

import json

import pytest

from jitwarm.cli import main
from jitwarm.history.records import read_records
from jitwarm.record import encode
from made_history import base, result


def edited(folder, *path, value):
    """The stored result with one value changed by hand; gives what is said of it."""
    data = json.loads(encode(base()))
    *way, name = path
    place = data
    for step in way:
        place = place[step]
    assert place[name] != value
    place[name] = value
    (folder / "result.json").write_text(json.dumps(data))
    records = read_records([folder])
    assert len(records.results) + len(records.problems) == 1
    return [one.problem for one in records.problems]


@pytest.mark.parametrize(
    ("path", "value", "problem"),
    [
        (("coverage", "missed"), 0, "rank 0 has 0 missed keys and lists 1"),
        (("coverage", "misses"), [], "rank 0 has 1 missed keys and lists 0"),
        (("rank_coverage", 0, "missed"), 0, "rank 1 has 0 missed keys and lists 1"),
        (("coverage", "hit"), 19, "rank 0 has 19 needed keys, 19 of them ready and 1 missed"),
        (
            ("rank_coverage", 0, "unreached"),
            64,
            "rank 1 has 64 keys never used and lists 65",
        ),
        (("kernels", 0, "missed"), 1, "PackSeq has 1 missed keys, rank 0 lists 0"),
    ],
)
def test_a_count_and_its_list(tmp_path, path, value, problem):
    assert edited(tmp_path, *path, value=value) == [f"contradicts itself: {problem}"]


def test_what_is_no_count_of_a_list_may_be_anything(tmp_path):
    assert edited(tmp_path, "coverage", "unreached_declared", value=1) == []
    (tmp_path / "result.json").write_bytes(encode(result(0)))
    assert read_records([tmp_path]).problems == []


def test_the_page_is_not_written(tmp_path, monkeypatch, capsys):
    pytest.importorskip("altair")
    pytest.importorskip("vl_convert")
    monkeypatch.chdir(tmp_path)
    edited(tmp_path, "coverage", "missed", value=0)
    assert main(["report", "result.json"]) == 4
    line, _ = capsys.readouterr().err.splitlines()
    assert line == (
        "jitwarm: result.json: contradicts itself: rank 0 has 0 missed keys and lists 1"
    )
    assert not (tmp_path / "reports").exists()
