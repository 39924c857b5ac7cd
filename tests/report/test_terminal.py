"""The table, against golden files. To write them anew: `python tests/report/test_terminal.py`."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from jitwarm.record import DeviceRecord, FailedKey, Result
from jitwarm.report.terminal import result_text

GOLDEN = Path(__file__).parent / "golden"
FOLDER = "reports/out/deepseek-v3.2-dcp/dcp-2_arch-sm90"


def recorded() -> Result:
    return msgspec.json.decode((GOLDEN / "result.json").read_bytes(), type=Result)


def on_a_gpu() -> Result:
    """The same numbers as if from three processes on a GPU, without misses."""
    result = recorded()
    replace = msgspec.structs.replace
    arms = {
        name: replace(
            arm,
            samples=3,
            loads=19,
            spread=0.25,
            raw=arm.raw | {"first_prefill_ms": [10.0, 12.5, 11.0]},
        )
        for name, arm in (result.arms | {"compiled": result.arms["cold"]}).items()
    }
    return replace(
        result,
        device=DeviceRecord("cuda", "sm90", "NVIDIA H200", "580.1"),
        arms=arms,
        coverage=replace(result.coverage, misses=(), missed=0),
        rank_coverage=(),
        checks=(),
    )


def with_everything_wrong() -> Result:
    """Warm-up off, a kernel without keys, a failed key."""
    result = recorded()
    replace = msgspec.structs.replace
    first, *others = result.kernels
    silent = replace(first, keys=0, backend_keys=0, no_keys_reason="no decode context parallelism")
    failed = FailedKey("UnpackSeq", "key", "OutOfResources: shared memory")
    return replace(
        result,
        kernels=(silent, *others),
        warm=replace(result.warm, warmed=0, skipped=("a key",), failed=(failed,)),
    )


def with_two_backends() -> Result:
    """Kernels of two compilers, twins of one name among them, and one kernel without keys."""
    result = recorded()
    replace = msgspec.structs.replace
    backends = ["triton", "-", "fa4", "triton+cutedsl", *["triton"] * (len(result.kernels) - 4)]
    kernels = tuple(
        replace(kernel, backend=backend)
        for kernel, backend in zip(result.kernels, backends, strict=True)
    )
    options = {"stable_topk": "auto", "tokens": True, "scale": 2}
    result = on_a_gpu()
    return replace(
        result,
        kernels=kernels,
        case=result.case | {"options": options},
        warm=replace(result.warm, skipped=("a configuration that does not fit",)),
    )


VARIANTS = {
    "stub": recorded,
    "gpu": on_a_gpu,
    "wrong": with_everything_wrong,
    "backends": with_two_backends,
}


@pytest.mark.parametrize("name", VARIANTS)
def test_the_table(name):
    expected = (GOLDEN / f"{name}.txt").read_text()
    assert result_text(VARIANTS[name](), FOLDER) + "\n" == expected


def test_a_kernel_whose_launches_nobody_counts_has_no_zeros():
    result = recorded()
    replace = msgspec.structs.replace
    own = replace(
        result.kernels[0], kernel="Own", backend="opaque", needed=0, missed=0, unreached=0
    )
    missed = replace(own, kernel="Missed", needed=1, missed=1)
    text = result_text(replace(result, kernels=(own, missed)), FOLDER)
    rows = {row[0]: row[-3:] for row in map(str.split, text.splitlines()) if row}
    assert (rows["Own"], rows["Missed"]) == (["-", "-", "-"], ["1", "1", "0"])


def test_a_miss_of_another_process_says_of_which():
    result = recorded()
    replace = msgspec.structs.replace
    (miss,) = result.coverage.misses
    elsewhere = replace(miss, process="process 2 of arm disk")
    text = result_text(replace(result, coverage=replace(result.coverage, misses=(elsewhere,))), "")
    assert "MISSED rank 0, process 2 of arm disk, first in step 19, 4 launches: Comp" in text


def test_a_kernel_that_is_made_anew_in_each_step_is_told_in_short():
    result = recorded()
    replace = msgspec.structs.replace
    one = result.coverage.misses[0]
    names = ["K", *(f"m.k#0a1b2c3d~{number}" for number in range(2, 202))]
    coverage = replace(
        result.coverage, misses=tuple(replace(one, kernel=name, key=name) for name in names)
    )
    lines = result_text(replace(result, coverage=coverage, rank_coverage=()), FOLDER).splitlines()
    assert [line for line in lines if line.startswith("  key ")] == [
        f"  key {n}" for n in names[:6]
    ]
    assert (
        "MISSED rank 0 and 195 more of this kind: m.k#0a1b2c3d was made anew again and again"
        in lines
    )


if __name__ == "__main__":
    for variant, make in VARIANTS.items():
        (GOLDEN / f"{variant}.txt").write_text(result_text(make(), FOLDER) + "\n")
