"""Answers of measuring processes that were never run: made of kernels, ranks and declared keys."""

from __future__ import annotations

from jitwarm.findings import Finding
from jitwarm.jobs import Answer, RankReplay, Warmed
from jitwarm.judge.coverage import digest
from jitwarm.plan import Funnel, KernelRow, PlanKey
from jitwarm.record import DeviceRecord, FailedKey, MissRecord, RankPlan


def key(kernel, **fields):
    """The declared text of a key."""
    inner = ", ".join(f"{name}={value!r}" for name, value in fields.items())
    return f"{kernel}({inner})"


def backend_key(declared, arch="sm90"):
    name, _, fields = declared.partition("(")
    return f"kernels.{name.lower()}[{fields.removesuffix(')')}]{{{arch}}}"


def miss(kernel, declared, rank=0):
    message = f"{kernel}: `n`: warmed as 1, launched as 2"
    text = backend_key(declared)
    finding = Finding("MISS", kernel, message, seen=text, advice="declare n=2 too")
    return MissRecord(kernel, text, -1, 7, 0.0, finding, rank)


def replayed(rank=0, launches=40, misses=(), untold=(), kinds=None, running=()):
    kinds = kinds or {"decode": 12, "prefill": 8}
    return RankReplay(rank, 20, launches, 3, tuple(misses), tuple(untold), kinds, running)


def answer(ranks, *, replays=(), layers=2, arch="sm90", registrations=4, points=None,
           salt="", failed=()):  # fmt: skip
    """`ranks` maps a rank to its kernels, and each of them to its declared keys."""
    plans, warmed = [], []
    for rank, kernels in ranks.items():
        keys = [
            PlanKey(name, "triton", text, backend_key(text) + salt)
            for name, texts in kernels.items()
            for text in texts
        ]
        backend = {one.backend_key for one in keys}
        plans.append(RankPlan(rank, len(keys), len(backend), digest(backend)))
        rows = tuple(
            KernelRow(
                name,
                "triton",
                registrations,
                1,
                len(texts) if points is None else points,
                len(texts),
                len({backend_key(text) for text in texts}),
            )
            for name, texts in kernels.items()
        )
        funnel = Funnel(registrations, 1, 1.0, 0, len(keys), len(backend))
        broken = tuple(FailedKey(name, "", error, rank) for name, error in failed)
        warmed.append(
            Warmed(layers, funnel, rows, tuple(keys), 0.0, 0.0, 0.0, 1, "loaded", (), broken, ())
        )
    device = DeviceRecord("stub", arch, "stub device (no GPU)", "none")
    return Answer("check", device, {}, {}, 0.0, 0, emits_token=False, checks=(),
                  plans=tuple(plans), ranks=tuple(warmed), replays=tuple(replays))  # fmt: skip
