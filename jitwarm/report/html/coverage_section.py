"""Coverage of one result: a row a kernel, and the keys that are missing or never used."""

from __future__ import annotations

from collections.abc import Iterable

from jitwarm.amounts import counted
from jitwarm.history.expected import Expected
from jitwarm.record import KernelRecord, MissRecord, Result
from jitwarm.report.html import figures
from jitwarm.report.html.markup import (
    Cell,
    badge,
    count,
    figure,
    fold,
    listed,
    measured,
    number,
    row,
    table,
    text,
    words,
)
from jitwarm.report.html.payload import Payload

HEAD = ("kernel", "backend", "#registered", "#distinct", "#keys", "#binaries", "#seconds",
        "#needed", "#missed", "#never used")  # fmt: skip


def coverage_section(result: Result, expected: Expected | None, payload: Payload) -> str:
    """The table and the chart of coverage, and the keys behind them. `expected` is None where
    nobody asked.
    """
    own = result.coverage
    line = (
        f"Rank {own.rank}, {number(own.steps)} steps, {number(own.launches)} launches: "
        f"{own.needed} keys needed, {own.warmed} warmed, {own.hit} used, {own.missed} missed, "
        f"{own.unreached} never used ({own.unreached_declared} declared keys)"
    )
    others = [
        f"rank {one.rank}: {one.missed} missed of {one.needed} needed in {number(one.steps)} steps"
        for one in result.rank_coverage
    ]
    plot = payload.figure(
        "coverage", "Coverage by kernel", "backend keys", figures.coverage_rows(result)
    )
    parts = [
        f'<h4>Coverage</h4><p class="note">{text("; ".join([line, *others]))}.</p>',
        "" if expected is None else _expected(expected),
        plot if result.kernels else "",
        table(f"Coverage by kernel of {result.scenario}", HEAD, _rows(result)),
        *_reasons(result),
        _missing(result),
        _unreached(result, payload),
    ]
    return "".join(parts)


def _expected(expected: Expected) -> str:
    if not expected.file:
        return (
            f"<p>{badge('plain', 'no expectation')} nobody has reviewed the counts of this case</p>"
        )
    if not expected.differences:
        kernels, ranks = counted(expected.kernels, "kernel"), counted(expected.ranks, "rank")
        line = f"{kernels} and {ranks} against {expected.file}"
        return f"<p>{badge('good', 'as expected')} {text(line)}</p>"
    summary = (
        f"{badge('bad', 'not as expected')} "
        f"{text(counted(len(expected.differences), 'difference'))} to {text(expected.file)}"
    )
    return fold(summary, listed(map(text, expected.differences)), "open")


def _rows(result: Result) -> Iterable[str]:
    for kernel in result.kernels:
        yield row(
            [
                words(kernel.kernel),
                words(kernel.backend),
                count(kernel.registrations),
                count(kernel.distinct_registrations),
                count(kernel.keys),
                count(kernel.backend_keys),
                measured(kernel.seconds),
                *_counts(kernel),
            ]
        )


def _counts(kernel: KernelRecord) -> Iterable[Cell]:
    if not kernel.is_counted:
        return [count(None)] * 3
    bad = "bad" if kernel.missed else ""
    return count(kernel.needed), count(kernel.missed, bad), count(kernel.unreached)


def _reasons(result: Result) -> Iterable[str]:
    for kernel in result.kernels:
        if kernel.no_keys_reason:
            reason = f"{kernel.kernel}: no keys: {kernel.no_keys_reason}"
            yield f'<p class="note">{text(reason)}</p>'


def _missing(result: Result) -> str:
    misses: dict[tuple[str, str], list[MissRecord]] = {}
    for coverage in (result.coverage, *result.rank_coverage):
        for miss in coverage.misses:
            misses.setdefault((miss.key, miss.finding.message), []).append(miss)
    if not misses:
        return ""
    summary = badge("bad", counted(len(misses), "missing key")) + " by finding"
    return fold(summary, listed(map(_miss, misses.values()), "misses"), "open")


def _miss(misses: list[MissRecord]) -> str:
    """One key, at all ranks that missed it."""
    finding = misses[0].finding
    facts = "; ".join(map(_facts, misses))
    details = [
        (name, value)
        for name, value in (
            ("field", finding.field),
            ("warmed", finding.warmed),
            ("seen", finding.seen),
            ("smallest input", finding.smallest),
            ("launched at", finding.site),
            ("registered by", ", ".join(finding.owners)),
            ("do", finding.advice),
        )
        if value
    ]
    listing = "".join(f"<dt>{text(name)}</dt><dd>{text(value)}</dd>" for name, value in details)
    return (
        f"{badge('bad', finding.kind)} {text(finding.message)} <small>{text(facts)}</small>"
        f"<dl>{listing}</dl>{fold('key', f'<code>{text(misses[0].key)}</code>')}"
    )


def _facts(miss: MissRecord) -> str:
    when = f"first in step {miss.first_step}, " if miss.first_step >= 0 else ""
    launches = counted(miss.count, "launch", "launches")
    process = f", {miss.process}" if miss.process else ""
    return f"rank {miss.rank}{process}: {when}{launches}, {figure(miss.ms)} ms"


def _unreached(result: Result, payload: Payload) -> str:
    keys = result.coverage.unreached_keys
    if not keys:
        return ""
    groups: dict[str, list[str]] = {}
    for key in keys:
        groups.setdefault(key.partition("[")[0], []).append(key)
    seconds = {k.kernel: k.seconds / k.backend_keys for k in result.kernels if k.backend_keys}
    wasted = sum(k.unreached * seconds.get(k.kernel, 0.0) for k in result.kernels)
    parts = [
        fold(f"<code>{text(name)}</code> {len(own)}", payload.keys(own))
        for name, own in sorted(groups.items(), key=lambda one: (-len(one[1]), one[0]))
    ]
    summary = (
        f"{badge('plain', f'{len(keys)} never used')} warmed, and not asked for by this traffic: "
        f"about {figure(wasted)} worker seconds"
    )
    return fold(summary, listed(parts))
