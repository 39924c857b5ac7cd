"""Results beside reviewed expectations: what agrees, and each thing that does not."""

from __future__ import annotations

import json

import msgspec
import pytest

from jitwarm.gate.counts import CasePlan, Counts, KernelPlan, RankCounts
from jitwarm.gate.expectation import Expectation, rows_of, write
from jitwarm.history.cases import case_histories
from jitwarm.history.expected import Expected, compare_all
from jitwarm.history.records import read_records
from jitwarm.record import encode
from made_history import base

NAME = "deepseek-v3.2-dcp"


def plan_of(result):
    """The plan that the result came from, its declared keys made up."""
    counts = {
        kernel.kernel: Counts(
            kernel.registrations,
            kernel.distinct_registrations,
            kernel.points,
            kernel.keys,
            kernel.backend_keys,
        )
        for kernel in result.kernels
    }
    ranks = {
        own.rank: RankCounts(61, own.keys, own.backend_keys, own.digest)
        for own in result.rank_plans
    }
    kernels = {
        name: KernelPlan(
            dict.fromkeys(ranks, own),
            {rank: frozenset(f"{name}[{n}]" for n in range(own.keys)) for rank in ranks},
            "digest",
            ("path",),
        )
        for name, own in counts.items()
    }
    return CasePlan("sm90", ranks, kernels)


@pytest.fixture
def compare(tmp_path):
    def run(change=lambda data: None, result=None):
        made = base() if result is None else result
        (tmp_path / "result.json").write_bytes(encode(made))
        case = "dcp=2 arch=sm90"
        path = tmp_path / f"{NAME}.json"
        write(path, Expectation(1, NAME, {case: rows_of(plan_of(base()))}))
        data = json.loads(path.read_text())
        change(data["cases"][case])
        path.write_text(json.dumps(data))
        histories, _ = case_histories(read_records([tmp_path / "result.json"]))
        (found,), problems = compare_all(histories, tmp_path)
        return found, [str(one) for one in problems]

    return run


def test_as_expected(compare, tmp_path):
    found, problems = compare()
    assert found == Expected(str(tmp_path / f"{NAME}.json"), 9, 2)
    assert problems == []


def test_a_kernel_with_other_counts_one_more_and_one_less(compare):
    made = base()
    first, second, third, *others = made.kernels
    kernels = (
        msgspec.structs.replace(first, points=7, keys=6),
        msgspec.structs.replace(second, kernel="Another"),
        third,
        *others,
    )
    found, _ = compare(result=msgspec.structs.replace(made, kernels=kernels))
    assert found.differences == (
        "PackSeq: 7 points (expected 1), 6 keys (expected 1)",
        "Another: not expected",
        "UnpackSeq: expected, and not there",
    )


def test_a_rank_with_other_keys(compare):
    made = base()
    first, second = made.rank_plans
    plans = (
        msgspec.structs.replace(first, digest="another"),
        msgspec.structs.replace(second, keys=80, backend_keys=79),
        msgspec.structs.replace(second, rank=5),
    )
    found, _ = compare(result=msgspec.structs.replace(made, rank_plans=plans))
    assert found.differences == (
        "rank 0: as many binaries as expected, and not the same",
        "rank 1: 80 keys, 79 binaries; expected 83 and 83",
        "rank 5: not expected",
    )


def test_ranks_that_were_not_planned(compare):
    made = base()
    only_first = msgspec.structs.replace(made, rank_plans=made.rank_plans[:1])
    found, _ = compare(result=only_first)
    assert found.differences == ("rank 1: expected, and not there",)

    def wider(rows):
        row = next(iter(rows["ranks"].values()))
        rows["ranks"] = {"ranks 0-3": row}

    found, _ = compare(change=wider, result=only_first)
    assert found.differences == ("ranks 1-3: expected, and not there",)


def test_another_number_of_layers(compare):
    made = base()
    other = msgspec.structs.replace(made.funnel, layers=60)
    found, _ = compare(result=msgspec.structs.replace(made, funnel=other))
    assert found.differences == ("rank 0: 60 layers (expected 61)",)


def test_a_case_that_nobody_reviewed(compare, tmp_path):
    histories, _ = case_histories(read_records([tmp_path]))
    assert histories == []
    compare()
    (tmp_path / f"{NAME}.json").write_bytes(encode(Expectation(1, NAME, {})))
    histories, _ = case_histories(read_records([tmp_path / "result.json"]))
    assert compare_all(histories, tmp_path) == ([Expected()], [])


def test_a_file_that_cannot_be_read_is_told_once(compare):
    found, (problem,) = compare(change=lambda rows: rows.pop("arch"))
    assert found == Expected()
    assert "is no file of expectations of jitwarm: Object missing required field `arch`" in problem
