"""What is counted of a plan: exact numbers and declared keys, by kernel and rank."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Annotated

import msgspec

from jitwarm import keys
from jitwarm.jobs import Answer, Warmed
from jitwarm.judge.planned import path_of

Count = Annotated[int, msgspec.Meta(ge=0)]


class Counts(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The numbers of a kernel at a rank. `backend_keys` are its binaries."""

    registrations: Count
    distinct_registrations: Count
    points: Count
    keys: Count
    backend_keys: Count


class RankCounts(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The numbers of a rank; `digest` is over its sorted backend keys."""

    layers: Count
    keys: Count
    backend_keys: Count
    digest: str


@dataclass(frozen=True, slots=True)
class KernelPlan:
    """One kernel: by rank its counts and its declared keys, and a digest of all its backend keys.

    Ranks at which it is not registered are left out. `paths` are the functions that its launches
    run, `backend_keys` the texts by rank: empty where only the digest is known.
    """

    counts: Mapping[int, Counts]
    keys: Mapping[int, frozenset[str]]
    digest: str
    paths: tuple[str, ...]
    backend_keys: Mapping[int, frozenset[str]] = field(default_factory=dict)

    @property
    def all_keys(self) -> frozenset[str]:
        """The declared keys of all ranks."""
        return frozenset().union(*self.keys.values())


@dataclass(frozen=True, slots=True)
class CasePlan:
    """Everything that is counted of one case, by rank and by kernel name."""

    arch: str
    ranks: Mapping[int, RankCounts]
    kernels: Mapping[str, KernelPlan]


def case_plan(answer: Answer) -> CasePlan:
    """The counts of a process that has planned every rank (arm `check`)."""
    planned = {plan.rank: warmed for plan, warmed in zip(answer.plans, answer.ranks, strict=True)}
    ranks = {
        plan.rank: RankCounts(planned[plan.rank].layers, plan.keys, plan.backend_keys, plan.digest)
        for plan in answer.plans
    }
    names = sorted({row.kernel for warmed in planned.values() for row in warmed.rows})
    return CasePlan(
        answer.device.arch,
        dict(sorted(ranks.items())),
        {name: _kernel(name, dict(sorted(planned.items()))) for name in names},
    )


def _kernel(name: str, planned: Mapping[int, Warmed]) -> KernelPlan:
    counts, declared, backend = {}, {}, {}
    for rank, warmed in planned.items():
        for row in warmed.rows:
            if row.kernel == name:
                counts[rank] = Counts(
                    row.registrations,
                    row.distinct_registrations,
                    row.points,
                    row.keys,
                    row.backend_keys,
                )
        own = [key for key in warmed.keys if key.kernel == name]
        if rank in counts:
            declared[rank] = frozenset(_numbered(key.declared or key.backend_key for key in own))
            backend[rank] = frozenset(key.backend_key for key in own)
    lines = [f"{rank} {key}" for rank, texts in backend.items() for key in sorted(texts)]
    paths = sorted({path_of(key) for texts in backend.values() for key in texts})
    return KernelPlan(counts, declared, keys.key_id("\n".join(lines)), tuple(paths), backend)


def _numbered(texts: Iterable[str]) -> Iterable[str]:
    """Two kernel objects of one name may declare the same text: each is a key of its own."""
    seen: Counter[str] = Counter()
    for text in texts:
        seen[text] += 1
        yield text if seen[text] == 1 else f"{text} #{seen[text]}"
