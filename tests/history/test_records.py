"""Reading results: everything below a folder, once, or a line that says why not."""

from __future__ import annotations

import json
import os

import pytest

from jitwarm.history.cases import MOST_RUNS, case_histories
from jitwarm.history.records import read_records
from jitwarm.record import SourceRecord, encode
from made_history import COMMITS, FAILED, base, commit, events, replace, result, write_records


@pytest.fixture
def folder(tmp_path):
    place = tmp_path / "out" / "deepseek-v3.2-dcp" / "dcp-2_arch-sm90"
    place.mkdir(parents=True)
    return place


def test_a_tree_of_commits_is_one_case_in_order_of_commits(tmp_path):
    write_records(tmp_path / "history")
    records = read_records([tmp_path / "history"])
    (history,), orphans = case_histories(records)
    assert [run.commit for run in history.runs] == [commit(n) for n in range(COMMITS)]
    assert [run.label for run in history.runs][-1] == f"{commit(11)[:8]}+"
    assert history.title == "deepseek-v3.2-dcp dcp=2 arch=sm90"
    assert history.latest.result.source.commit == commit(11)
    assert history.failed_last is None
    assert [n for n, one in enumerate(history.measured) if one.path.name == "failed.json"] == [
        FAILED
    ]
    assert (orphans, records.problems, records.copies) == ([], [], 0)


def test_the_order_is_of_commit_dates_and_then_of_starts(folder):
    for name, number, started in (("a", 3, "07"), ("b", 3, "06"), ("c", 1, "09")):
        made = replace(result(number), started_at=f"2026-12-{started}T00:00:00Z")
        (folder / f"{name}.json").write_bytes(encode(made))
    records = read_records([folder / f"{name}.json" for name in "abc"])
    ((history,), _) = case_histories(records)
    assert [one.path.stem for one in history.measured] == ["c", "b", "a"]


def test_zones_do_not_mix_up_the_order(folder):
    early = SourceRecord("a" * 40, "2026-11-10T01:00:00+02:00")
    late = SourceRecord("b" * 40, "2026-11-10T00:00:00+00:00")
    for name, source in (("late", late), ("early", early)):
        (folder / f"{name}.json").write_bytes(encode(replace(base(), source=source)))
    records = read_records([folder / "late.json", folder / "early.json"])
    ((history,), _) = case_histories(records)
    assert [run.commit[0] for run in history.runs] == ["a", "b"]


def test_a_record_of_before_there_was_a_source_is_read_and_dated_by_its_start(folder):
    data = json.loads(encode(base()))
    del data["source"], data["failures"]
    (folder / "result.json").write_text(json.dumps(data))
    ((history,), _) = case_histories(read_records([folder]))
    assert history.latest.result.source == SourceRecord()
    assert [run.label for run in history.runs] == ["no commit"]


def test_a_copy_is_read_once(tmp_path):
    write_records(tmp_path / "a")
    write_records(tmp_path / "b")
    records = read_records([tmp_path / "a", tmp_path / "b"])
    assert len(records.results) == COMMITS - 1
    assert (len(records.failed), records.copies) == (1, COMMITS)


def test_worker_time_of_the_warm_up_comes_from_the_events_of_the_timed_rank(folder):
    (folder / "result.json").write_bytes(encode(base()))
    assert read_records([folder]).results[0].warm_ms is None
    (folder / "events.rank1.jsonl").write_bytes(events())
    assert read_records([folder]).results[0].warm_ms is None
    (folder / "events.rank0.jsonl").write_bytes(events())
    found = read_records([folder]).results[0].warm_ms
    assert found == {"compile": 369.0, "disk_hit": 0, "load": 55.5}
    late = b'{"kind":"load","phase":"warm","ms":7.0,"serving":true}\n'
    (folder / "events.rank0.jsonl").write_bytes(events() + late)
    assert read_records([folder]).results[0].warm_ms == found


@pytest.mark.parametrize(
    ("name", "data", "problem"),
    [
        ("result.json", b"", "is empty, and no result of jitwarm"),
        ("result.json", b'{"schema": 1, "scen', "is damaged or no JSON ("),
        ("result.json", b'{"schema": 2}', "is a result of schema 2, this jitwarm reads up to 1"),
        ("result.json", b'{"version": 2}', "is no result of jitwarm: it has no schema number"),
        ("failed.json", b"[1]", "is no failed case of jitwarm: Expected `object`"),
        ("failed.json", b"{", "is no failed case of jitwarm: Input data was truncated"),
        ("failed.json", b'{"error": "x", "started_at": "soon"}', "is no result of jitwarm: start"),
    ],
)
def test_what_cannot_be_read_is_a_problem_with_its_path(folder, name, data, problem):
    (folder / name).write_bytes(data)
    records = read_records([folder])
    (found,) = records.problems
    assert str(found).startswith(f"{folder / name}: {problem}")
    assert "\n" not in str(found)
    assert (records.results, records.failed) == ([], [])


@pytest.mark.parametrize("text", ["", "yesterday", "2026-99-01", "9999-12-31T23:59:59-23:59"])
def test_a_start_that_is_no_time(folder, text):
    (folder / "result.json").write_bytes(encode(replace(base(), started_at=text)))
    (found,) = read_records([folder]).problems
    assert "started_at" in str(found)


def test_damaged_events_are_a_problem_of_their_own(folder):
    (folder / "result.json").write_bytes(encode(base()))
    (folder / "events.jsonl").write_bytes(b'{"kind": "compile"\n')
    records = read_records([folder])
    assert [one.warm_ms for one in records.results] == [None]
    (found,) = records.problems
    assert str(found).startswith(f"{folder / 'events.jsonl'}: is damaged, or no events")


def test_a_path_that_is_not_there(tmp_path):
    (found,) = read_records([tmp_path / "none"]).problems
    assert str(found) == f"{tmp_path / 'none'}: there is no such result"


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_a_folder_that_cannot_be_read_is_a_problem(tmp_path):
    (tmp_path / "closed").mkdir(mode=0)
    assert len(read_records([tmp_path]).problems) == 1


def test_other_files_are_nobodys_business(folder):
    (folder / "notes.json").write_text("{")
    (folder / "events.jsonl").write_text("{")
    records = read_records([folder.parent.parent])
    assert (records.results, records.failed, records.problems) == ([], [], [])


def test_failures_without_any_result_are_told(folder):
    (folder / "failed.json").write_bytes(encode({"error": "out of memory", "trace": "t"}))
    histories, (orphan,) = case_histories(read_records([folder]))
    assert histories == []
    assert (orphan.scenario, orphan.folder) == ("deepseek-v3.2-dcp", "dcp-2_arch-sm90")


def test_a_failure_of_no_known_time_is_the_newest(tmp_path):
    write_records(tmp_path)
    place = tmp_path / "now" / "deepseek-v3.2-dcp" / "dcp-2_arch-sm90"
    place.mkdir(parents=True)
    (place / "failed.json").write_bytes(encode({"error": "out of memory", "trace": ""}))
    ((history,), _) = case_histories(read_records([tmp_path]))
    assert history.failed_last is not None
    assert history.failed_last.record.error == "out of memory"
    assert history.latest.result.source.commit == commit(11)


@pytest.fixture
def nights(tmp_path):
    """Writes results, (night, name, commit's number, changes) each; gives `not_at` by name."""

    def written(*runs):
        for night, name, number, changes in runs:
            place = tmp_path / str(night) / name / "case"
            place.mkdir(parents=True)
            made = replace(result(number), **({"scenario": name} | changes))
            (place / "result.json").write_bytes(encode(made))
        histories, _ = case_histories(read_records([tmp_path]))
        return {one.scenario: one.not_at for one in histories}

    return written


def test_a_case_that_has_no_run_of_the_newest_commit_says_so(nights):
    assert nights((0, "kept", 1, {}), (0, "gone", 1, {})) == {"kept": "", "gone": ""}
    assert nights((1, "kept", 2, {})) == {"kept": "", "gone": commit(2)}
    # Another commit of the same date is newer if it was measured later.
    twin = SourceRecord("f" * 40, result(2).source.date)
    later = {"source": twin, "started_at": "2026-12-01T00:00:00Z"}
    assert nights((2, "kept", 2, later)) == {"kept": "", "gone": "f" * 40}
    # An older one measured again is not.
    assert nights((3, "kept", 0, {})) == {"kept": "", "gone": "f" * 40}


def test_a_failure_is_a_run_of_its_commit_too(nights, tmp_path):
    assert nights((0, "kept", 1, {}), (0, "gone", 1, {})) == {"kept": "", "gone": ""}
    place = tmp_path / "1" / "kept" / "case"
    place.mkdir(parents=True)
    failed = {"error": "x", "started_at": "2026-11-12T20:00:00Z", "source": result(2).source}
    (place / "failed.json").write_bytes(encode(failed))
    assert nights() == {"kept": "", "gone": commit(2)}


def test_other_devices_and_runs_of_no_commit_are_behind_nothing(nights):
    no_commit = {"source": SourceRecord()}
    on_a_stub, sm100 = {"device": base().device}, replace(base().device, arch="sm100")
    assert nights((0, "new", 3, {}), (0, "unknown", 1, no_commit), (0, "stub", 1, on_a_stub)) == {
        "new": "",
        "unknown": "",
        "stub": "",
    }
    assert nights((1, "other", 2, {"device": sm100})) == {
        "new": "", "unknown": "", "stub": commit(2), "other": ""
    }  # fmt: skip


def test_devices_are_kept_apart(folder):
    (folder / "a.json").write_bytes(encode(base()))
    (folder / "b.json").write_bytes(encode(result(1)))
    histories, _ = case_histories(read_records([folder / "a.json", folder / "b.json"]))
    assert sorted(one.device.kind for one in histories) == ["cuda", "stub"]


def test_a_case_that_was_asked_otherwise_begins_a_stretch(folder):
    changed = replace(
        result(1), case=base().case | {"scheduler": {"max_num_seqs": 512}}, kernels=()
    )
    for name, made in (("a", result(0)), ("b", changed)):
        (folder / f"{name}.json").write_bytes(encode(made))
    ((history,), _) = case_histories(read_records([folder / "a.json", folder / "b.json"]))
    by_name = {series.metric.name: series for series in history.series}
    assert [point.stretch for point in by_name["binaries"].points] == [0, 1]


def test_samples_give_a_range(tmp_path):
    write_records(tmp_path)
    ((history,), _) = case_histories(read_records([tmp_path]))
    by_name = {series.metric.name: series for series in history.series}
    point = by_name["ready_s@loaded"].points[0]
    samples = result(0).arms["loaded"].raw["ready_s"]
    assert (point.low, point.high) == (min(samples), max(samples))


def test_only_the_newest_runs_are_kept(folder):
    for number in range(MOST_RUNS + 5):
        hour = f"{number // 24 + 1:02}T{number % 24:02}"
        made = replace(base(), started_at=f"2026-10-{hour}:00:00+00:00")
        (folder / f"{number}.json").write_bytes(encode(made))
    ((history,), _) = case_histories(read_records(folder / f"{n}.json" for n in range(205)))
    assert (len(history.runs), history.older) == (MOST_RUNS, 5)
    assert history.measured[0].path.stem == "5"


@pytest.mark.parametrize(
    ("name", "value", "problem"),
    [
        ("peak_rss_bytes", f"1{'0' * 400}", f"peak_rss_bytes is 1{'0' * 39}"),
        ("import_s", "1e308", "import_s is 1e+308"),
        ("import_s", "-5.0", "import_s is -5.0"),
        ("layers", "-1", "layers is -1"),
        ("case", f'{{"a":{"[" * 49 + "]" * 49}}}', ""),
        ("case", f'{{"a":{"[" * 50 + "]" * 50}}}', "it is nested too deeply"),
        ("case", f'{{"a":{"[" * 900 + "]" * 900}}}', "it is nested too deeply"),
    ],
)
def test_values_that_nothing_has_are_no_result(folder, name, value, problem):
    data = json.loads(encode(base()))
    (data["funnel"] if name == "layers" else data)[name] = "here"
    text = json.dumps(data).replace(f'"{name}": "here"', f'"{name}": {value}')
    (folder / "result.json").write_text(text)
    found = [one.problem for one in read_records([folder]).problems]
    assert found == ([f"is no result of jitwarm: {problem}"] if problem else [])


@pytest.mark.parametrize("name", ["excess_ms", "excess_decode_ms"])
def test_a_first_step_may_be_faster_than_its_repeats(folder, name):
    arms = base().arms
    arms = arms | {"loaded": replace(arms["loaded"], **{name: -1.5}, raw={name: [-1.5, -2.0]})}
    (folder / "result.json").write_bytes(encode(replace(base(), arms=arms, case={"x": -1e30})))
    records = read_records([folder])
    assert (len(records.results), records.problems) == (1, [])


@pytest.mark.parametrize("text", ["9999-12-31T23:59:59.999999", "9999-12-31T23:59:59-12:00"])
def test_a_time_that_is_no_number_of_seconds_is_none(folder, text):
    (folder / "result.json").write_bytes(encode(replace(base(), started_at=text)))
    (found,) = read_records([folder]).problems
    assert found.problem == f"is no result of jitwarm: started_at {text!r} is no time"


@pytest.mark.parametrize("ms", ["1e308", "-5.0"])
def test_events_that_took_no_time_there_is(folder, ms):
    (folder / "result.json").write_bytes(encode(base()))
    (folder / "events.jsonl").write_text(f'{{"kind":"load","phase":"warm","ms":{ms}}}\n')
    (found,) = read_records([folder]).problems
    assert found.problem == f"is no event file of jitwarm: ms is {float(ms)}"


def test_a_path_that_nobody_can_look_at(tmp_path):
    (found,) = read_records([tmp_path / ("x" * 300)]).problems
    assert found.problem == "cannot be read: File name too long"


def test_a_case_that_has_failed_for_longer_than_is_shown_keeps_its_result(folder):
    (folder / "result.json").write_bytes(encode(base()))
    for number in range(MOST_RUNS + 3):
        place = folder.parents[1] / str(number) / "deepseek-v3.2-dcp" / folder.name
        place.mkdir(parents=True)
        (place / "failed.json").write_bytes(encode({"error": f"{number}"}))
    ((history,), orphans) = case_histories(read_records([folder.parents[1]]))
    assert history.latest.path == folder / "result.json"
    assert (len(history.measured), history.older, orphans) == (MOST_RUNS, 4, [])
    assert history.measured[0] is history.latest
    assert history.failed_last is history.measured[-1]
