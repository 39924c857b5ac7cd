"""Progress: a bar on a terminal, plain lines elsewhere; both name the total."""

from __future__ import annotations

import io

from jitwarm.plan import Funnel, Plan, PlanItem
from jitwarm.report.progress import show_progress
from jitwarm.scenario import Case

CASE = Case(schema=1, name="demo", model="m:b", axes={"dcp": 2})


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def items() -> list[PlanItem]:
    return [PlanItem(kernel, "triton", key, key, None, ()) for kernel, key in
            (("First", "a"), ("Second", "b"), ("First", "c"))]  # fmt: skip


def drive(stream: io.StringIO) -> list[str]:
    plan = Plan(tuple(items()), (), Funnel(3, 3, 1.0, 3, 3, 3), (), (), 0.0)
    progress = show_progress(CASE, plan, stream)
    for done, item in enumerate(items(), start=1):
        progress(done, 3, item, done / 2)
    return stream.getvalue().split("\r")


def test_plain_lines_are_one_a_finished_kernel():
    assert drive(io.StringIO()) == [
        (
            "demo dcp=2: warmed 2/3 keys, Second ready after 1.0 s\n"
            "demo dcp=2: warmed 3/3 keys, First ready after 1.5 s\n"
        )
    ]


def test_the_bar_redraws_one_line():
    start, *frames = drive(Terminal())
    assert start == ""
    assert [frame.rstrip() for frame in frames] == [
        "demo dcp=2: warming 3 keys [########................] 1/3 0.5 s First",
        "demo dcp=2: warming 3 keys [################........] 2/3 1.0 s Second",
        "demo dcp=2: warming 3 keys [########################] 3/3 1.5 s First",
    ]
    assert [frame.endswith("\n") for frame in frames] == [False, False, True]


def test_a_name_is_no_command_of_a_log(monkeypatch):
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    stream = io.StringIO()
    item = PlanItem("K\n##[group]", "triton", "a", "a", None, ())
    plan = Plan((item,), (), Funnel(1, 1, 1.0, 1, 1, 1), (), (), 0.0)
    show_progress(CASE, plan, stream)(1, 1, item, 0.5)
    assert stream.getvalue() == "demo dcp=2: warmed 1/1 keys, K\\n#\\#[group] ready after 0.5 s\n"
