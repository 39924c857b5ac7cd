"""The table of `jitwarm plan`: names of compilers only where there are several."""

from __future__ import annotations

from jitwarm.jobs import Answer, Warmed
from jitwarm.plan import Funnel, KernelRow
from jitwarm.record import DeviceRecord
from jitwarm.report.plan import plan_text
from jitwarm.scenario import Case

CASE = Case(1, "two", "some.where:Model", axes={"tp": 8})
FIELDS = ("registrations", "distinct_registrations", "points", "keys", "backend_keys")


def row(kernel, backend, *numbers, reason=None):
    return KernelRow(kernel, backend, **dict(zip(FIELDS, numbers, strict=True)),
                     no_keys_reason=reason)  # fmt: skip


def text(*rows):
    warmed = Warmed(
        layers=66,
        funnel=Funnel(67, 2, 33.5, 7169, 29, 9),
        rows=rows,
        keys=(),
        enumeration_s=0.1,
        seconds=0.0,
        cpu_seconds=0.0,
        threads=1,
        depth="planned",
        outcomes=(),
        failed=(),
        findings=(),
    )
    device = DeviceRecord("stub", "sm90", "stub device (no GPU)", "none")
    answer = Answer("plan", device, {}, {}, 1.0, 1, emits_token=False, checks=(), warmed=warmed)
    return plan_text(CASE, answer, warmed)


def test_one_backend_is_not_named():
    lines = text(
        row("Attention", "triton", 66, 1, 7168, 28, 8),
        row("Nothing", "-", 1, 1, 0, 0, 0, reason="not here"),
    ).splitlines()
    assert lines[3].split() == ["kernel", "registered", "distinct", "points", "keys", "binaries"]
    assert lines[4].split() == ["Attention", "66", "1", "7168", "28", "8"]


def test_two_backends_are_named_in_a_column():
    assert (
        text(
            row("InklingFA4RelAttention", "fa4", 66, 1, 7168, 28, 8),
            row("ComputeSlotMapping", "triton", 2, 1, 1, 1, 1),
            row("Nothing", "-", 1, 1, 0, 0, 0, reason="not here"),
        )
        == """\
two tp=8
66 layers: 67 registrations -> 2 distinct (33.5x) -> 7,169 points -> 29 keys -> 9 binaries

kernel                  backend      registered    distinct    points    keys    binaries
InklingFA4RelAttention  fa4                  66           1      7168      28           8
ComputeSlotMapping      triton                2           1         1       1           1
Nothing                 -                     1           1         0       0           0
  Nothing: no keys: not here"""
    )
