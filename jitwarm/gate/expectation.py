"""Expectation files: what a reviewer has agreed to, one number and one key a line.

    reports/expected/<scenario>.json, schema 1
    cases.<case>.ranks.<ranks>          layers, keys, backend_keys, digest
    cases.<case>.kernels.<name>         counts.<ranks>, keys.<ranks>, digest, paths
    cases.<case>[.kernels.<name>].soaking   a reason why a difference does not fail yet

Keys and counts stand under the ranks that have them ("every rank", "ranks 1-7").
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Annotated, TypeVar

import msgspec

from jitwarm import atomic, stored
from jitwarm.amounts import counted
from jitwarm.errors import StoredFileError
from jitwarm.gate.counts import CasePlan, Counts, KernelPlan, RankCounts
from jitwarm.gate.ranks import by_ranks, ranks_of, ranks_text
from jitwarm.record import encode

T = TypeVar("T")

SCHEMA = 1
# `--update` leaves a broken file alone: what a reviewer had agreed to is not known.
_MEND = "take the file whole from git (or remove it), then --update"
Reason = Annotated[str, msgspec.Meta(min_length=1)]


class KernelRows(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, kw_only=True
):
    """What is expected of one kernel. `digest` is over the backend keys of all ranks, `paths` are
    the functions that its launches run.
    """

    soaking: Reason | None = None
    counts: dict[str, Counts]
    digest: str
    paths: tuple[str, ...]
    keys: dict[str, tuple[str, ...]]


class CaseRows(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, kw_only=True
):
    """What is expected of one case."""

    soaking: Reason | None = None
    arch: str
    ranks: dict[str, RankCounts]
    kernels: dict[str, KernelRows]


class Expectation(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A whole file. A case is named by its label as in `dcp=8 arch=sm90`, see `case_name`."""

    schema: int
    scenario: str
    cases: dict[str, CaseRows]


def case_name(label: str) -> str:
    """The name of a case in the file; the one case of a scenario without a matrix is `case`."""
    return label or "case"


def read(path: Path, scenario: str) -> Expectation:
    """The expectation of a scenario.

    Raises `StoredFileError` for a file that cannot be read, is another scenario's, or contradicts
    itself, as after a merge by hand.
    """
    found = stored.read(path, Expectation, SCHEMA, "file of expectations")
    if found.scenario != scenario:
        raise StoredFileError(path, f"is the expectation of {found.scenario!r}, not {scenario!r}")
    try:
        # A decoder takes the last of two without a word, a reviewer may have read the first.
        json.loads(path.read_bytes(), object_pairs_hook=_once)
    except ValueError as error:
        raise StoredFileError(path, f"contradicts itself: {error}; {_MEND}") from None
    for name, rows in found.cases.items():
        try:
            _consistent(plan_of(rows))
        except ValueError as error:
            problem = f"contradicts itself at {name!r}: {error}; {_MEND}"
            raise StoredFileError(path, problem) from None
    return found


def write(path: Path, expectation: Expectation) -> None:
    """Write the file, whole or not at all."""
    atomic.write_bytes(path, encode(expectation))


def rows_of(plan: CasePlan, before: CaseRows | None = None) -> CaseRows:
    """A case as it is stored; what soaks in `before` goes on to do so."""
    planned = plan.ranks.keys()
    soaking = {name: rows.soaking for name, rows in before.kernels.items()} if before else {}
    return CaseRows(
        soaking=before.soaking if before else None,
        arch=plan.arch,
        ranks=by_ranks(plan.ranks),
        kernels={
            name: KernelRows(
                soaking=soaking.get(name),
                counts=by_ranks(kernel.counts, planned),
                digest=kernel.digest,
                paths=kernel.paths,
                keys=_rows_of_keys(kernel, planned),
            )
            for name, kernel in sorted(plan.kernels.items())
        },
    )


def plan_of(rows: CaseRows) -> CasePlan:
    """A stored case as it was planned. Raises `ValueError` for ranks that are none."""
    ranks = _expanded(rows.ranks)
    kernels = {}
    for name, kernel in rows.kernels.items():
        counts = _expanded(kernel.counts, ranks)
        declared: dict[int, list[str]] = {rank: [] for rank in counts}
        for text, listed in kernel.keys.items():
            for rank in ranks_of(text, ranks):
                declared.setdefault(rank, []).extend(listed)
        for rank, listed_there in declared.items():
            there = f"{name} at rank {rank}"
            if rank not in counts:
                raise ValueError(f"{there} has keys and no counts")
            if len(set(listed_there)) < len(listed_there):
                raise ValueError(f"{there} lists a key twice")
        kernels[name] = KernelPlan(
            counts,
            {rank: frozenset(listed_there) for rank, listed_there in declared.items()},
            kernel.digest,
            kernel.paths,
        )
    return CasePlan(rows.arch, ranks, kernels)


def _expanded(rows: Mapping[str, T], planned: Collection[int] = ()) -> dict[int, T]:
    """By rank what stands under texts of ranks. Raises `ValueError` for a rank that has two."""
    found: dict[int, T] = {}
    for text, row in rows.items():
        for rank in ranks_of(text, planned):
            if rank in found:
                raise ValueError(f"rank {rank} is named twice")
            found[rank] = row
    return dict(sorted(found.items()))


def _rows_of_keys(kernel: KernelPlan, planned: Collection[int]) -> dict[str, tuple[str, ...]]:
    where: dict[str, list[int]] = {}
    for rank, keys in kernel.keys.items():
        for key in keys:
            where.setdefault(key, []).append(rank)
    found: dict[tuple[int, ...], list[str]] = {}
    for key, ranks in where.items():
        found.setdefault(tuple(sorted(ranks)), []).append(key)
    return {
        ranks_text(ranks, planned): tuple(sorted(listed))
        for ranks, listed in sorted(found.items(), key=lambda one: (-len(one[0]), one[0]))
    }


def _once(pairs: Sequence[tuple[str, object]]) -> dict[str, object]:
    """An object of JSON. Raises `ValueError` for a name that it has twice."""
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"{twice!r} stands twice in one place")
    return found


def _consistent(plan: CasePlan) -> None:
    """Raise `ValueError` if a count is not the number of what is listed."""
    for name, kernel in plan.kernels.items():
        for rank, counts in kernel.counts.items():
            listed = len(kernel.keys[rank])
            if counts.keys != listed:
                keys = counted(counts.keys, "key")
                raise ValueError(f"{name} at rank {rank} has {keys} and lists {listed}")
    for rank, row in plan.ranks.items():
        total = sum(
            kernel.counts[rank].keys for kernel in plan.kernels.values() if rank in kernel.counts
        )
        if row.keys != total:
            keys = counted(row.keys, "key")
            raise ValueError(f"rank {rank} has {keys}, its kernels have {total}")
