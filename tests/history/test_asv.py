"""asv's result files: order, parameters, failures, versions, and files that are none."""

from __future__ import annotations

import json
import math

import pytest

from jitwarm.history.asv import read_asv
from jitwarm.history.marks import judge
from made_history import ASV_COMMITS, asv_file, commit, write_asv


@pytest.fixture
def tree(tmp_path):
    write_asv(tmp_path / "results")
    return tmp_path / "results"


def only(tree, machine):
    histories, problems = read_asv(tree)
    assert problems == []
    return next(one for one in histories if one.machine == machine)


def series(history, name):
    return next(one for one in history.series if one.metric.name == name)


def write(tmp_path, **changes):
    folder = tmp_path / "results" / "machine"
    folder.mkdir(parents=True)
    (folder / "a.json").write_text(json.dumps(asv_file(0, "machine", 1.0) | changes))
    return tmp_path / "results"


def test_machines_are_kept_apart_and_commits_are_in_order_of_dates(tree):
    histories, _ = read_asv(tree)
    assert [(one.machine, one.environment) for one in histories] == [
        ("h200-ci", "virtualenv-py3.11"),
        ("laptop", "virtualenv-py3.11"),
    ]
    expected = [commit(number) for number in range(ASV_COMMITS)]
    assert [[run.commit for run in one.runs] for one in histories] == [expected, expected]


def test_each_combination_of_parameters_is_a_series(tree):
    history = only(tree, "laptop")
    names = [one.metric.name for one in history.series if "keys" in one.metric.name]
    assert names == [
        "suite.Dcp8.track_compile_keys(arm='decode')",
        "suite.Dcp8.track_compile_keys(arm='prefill')",
    ]
    assert series(history, names[0]).values == [85.0] * 5 + [61.0] * 9
    assert series(history, names[1]).values[9] == 62.0


def test_counts_are_exact_and_times_are_not(tree):
    exact = {one.metric.name: one.metric.exact for one in only(tree, "laptop").series}
    assert exact == {
        "suite.Dcp8.track_compile_keys(arm='decode')": True,
        "suite.Dcp8.track_compile_keys(arm='prefill')": True,
        "suite.Dcp8.track_start_up": False,
        "suite.timeraw_import": False,
        "suite.track_failing": True,
    }


def test_null_failed_nan_was_skipped_and_a_missing_column_was_not_run(tree):
    history = only(tree, "h200-ci")
    found = series(history, "suite.track_failing")
    assert [point.state for point in found.points] == (
        ["measured"] * 6 + ["failed"] * 2 + ["measured"] * 5 + ["skipped"]
    )
    assert [m.kind for m in judge(found, history.runs).marks] == ["failed", "mended", "skipped"]
    ran = series(history, "suite.Dcp8.track_start_up")
    assert [point.run for point in ran.points] == [0, 1, *range(3, ASV_COMMITS)]


def test_another_version_starts_anew(tree):
    history = only(tree, "h200-ci")
    found = series(history, "suite.timeraw_import")
    assert [point.stretch for point in found.points] == [0] * 7 + [1] * 7
    assert [(m.run, m.kind) for m in judge(found, history.runs).marks] == [(7, "anew")]
    first = found.points[0]
    assert first.low < first.value < first.high


def test_a_failure_in_all_combinations_is_one_null(tmp_path):
    row = [None, [["1", "2"]], "1"]
    (history,), _ = read_asv(write(tmp_path, results={"suite.track_keys": row}))
    assert [one.metric.name for one in history.series] == [
        "suite.track_keys(1)",
        "suite.track_keys(2)",
    ]
    assert {one.latest.state for one in history.series} == {"failed"}


@pytest.mark.parametrize("value", ["text", [1], {"a": 1}, math.inf, 10**400])
def test_what_is_no_number_counts_as_failed(tmp_path, value):
    (history,), _ = read_asv(write(tmp_path, results={"suite.track_keys": [[value], [], "1"]}))
    assert history.series[0].latest.state == "failed"


def test_machine_facts_that_change_stand_beside_a_mark(tmp_path):
    tree = write(tmp_path, params={"driver": "580"})
    later = asv_file(6, "machine", 1.0) | {"params": {"driver": "590"}}
    (tree / "machine" / "b.json").write_text(json.dumps(later))
    (history,), _ = read_asv(tree)
    keys = series(history, "suite.Dcp8.track_compile_keys('decode')")
    (mark,) = judge(keys, history.runs).marks
    assert (mark.kind, mark.note) == ("better", "driver 580 -> 590")


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        ("", "is damaged or no JSON ("),
        ('{"version": 2, ', "is damaged or no JSON ("),
        ("[" * 100_000, "is damaged or no JSON ("),
        ("\xff", "is damaged or no JSON ("),
        ("[]", "is no asv result: it has no version number"),
        ('{"schema": 1}', "is no asv result: it has no version number"),
        ('{"version": 3}', "is of asv's version 3, jitwarm reads 2: install a later jitwarm"),
        ('{"version": 1}', "is of asv's version 1, jitwarm reads 2: run `asv update`"),
        ('{"version": 2}', "is no asv result: Object missing required field `commit_hash`"),
    ],
)
def test_what_is_no_result_is_one_line_and_the_others_are_read(tree, data, problem):
    path = tree / "laptop" / "00000000-x.json"
    path.write_bytes(data.encode("latin-1"))
    histories, (found,) = read_asv(tree)
    assert str(found).startswith(f"{path}: {problem}")
    assert "\n" not in str(found)
    assert len(histories) == 2


@pytest.mark.parametrize(
    "changes",
    [
        {"date": -1},
        {"date": 1e300},
        {"results": {"a.b": [5, [], "1"]}},
        {"results": {"a.b": [[5], "x", "1"]}},
        {"results": {"a.b": [[5], ["x"], "1"]}},
        {"results": {"a.b": [[5], [["1"] * 400] * 3, "1"]}},
        {"results": {"a.b": 5}},
        {"result_columns": None},
    ],
)
def test_a_result_that_makes_no_sense_is_a_problem(tmp_path, changes):
    histories, (found,) = read_asv(write(tmp_path, **changes))
    assert "is no asv result" in str(found)
    assert histories == []


def test_a_row_shorter_than_its_parameters_is_read_as_failed(tmp_path):
    row = [[5], [["1", "2"]], "1"]
    (history,), _ = read_asv(write(tmp_path, results={"suite.track_keys": row}))
    assert [one.latest.state for one in history.series] == ["measured", "failed"]


def test_a_folder_that_is_not_there(tmp_path):
    _, (found,) = read_asv(tmp_path / "none")
    assert str(found) == f"{tmp_path / 'none'}: there is no such folder of asv results"


def test_without_names_of_benchmarks_the_prefix_tells_the_kind(tree):
    (tree / "benchmarks.json").unlink()
    metrics = {one.metric.name: one.metric for one in only(tree, "laptop").series}
    assert not metrics["suite.timeraw_import"].exact
    assert metrics["suite.track_failing"].exact
    assert "suite.Dcp8.track_compile_keys('decode')" in metrics


def test_a_number_that_no_sum_can_hold_is_none(tmp_path):
    columns = ["result", "params", "version"]
    row = [[1.7e308, -1e300, 10**400, 1e18], [list("abcd")], "1"]
    folder = write(tmp_path, result_columns=columns, results={"suite.time_a": row})
    values = [one.latest.value for one in only(folder, "machine").series]
    assert values == [None, None, None, 1e18]


def test_what_is_nested_too_deeply_is_no_result(tmp_path):
    deep = json.loads("[" * 60 + "]" * 60)
    (found,) = read_asv(write(tmp_path, requirements={"a": deep}))[1]
    assert found.problem == "is no asv result: it is nested too deeply"


def test_a_part_that_cannot_be_listed_is_no_small_history(tree, monkeypatch):
    """As a folder of another user's: `Path.glob` passes over it."""
    real = type(tree).iterdir

    def iterdir(path):
        if path.name == "laptop":
            raise PermissionError(13, "Permission denied", str(path))
        return real(path)

    monkeypatch.setattr(type(tree), "iterdir", iterdir)
    found, (problem,) = read_asv(tree)
    assert (found, str(problem)) == ([], f"{tree}/laptop: cannot be read: Permission denied")


def test_a_link_to_nothing_is_not_the_lack_of_a_file(tree):
    (tree / "benchmarks.json").unlink()
    (tree / "benchmarks.json").symlink_to("benchmarks.json")
    (problem,) = read_asv(tree)[1]
    assert problem.problem == "cannot be read: Too many levels of symbolic links"


def test_a_folder_that_nobody_can_look_at(tmp_path):
    assert [one.problem for one in read_asv(tmp_path / ("x" * 300))[1]] == [
        "cannot be read: File name too long"
    ]
