"""What a proof says, as values that encode to JSON."""

from __future__ import annotations

from typing import Literal

import msgspec

from jitwarm.findings import Finding

Verdict = Literal["PROVED", "SEARCHED", "SAMPLED", "NO KEYS"]
# From the strongest to the weakest: a kernel has the weakest verdict of its envelopes.
STRENGTH: tuple[Verdict, ...] = ("NO KEYS", "PROVED", "SEARCHED", "SAMPLED")


class KernelProof(msgspec.Struct, frozen=True):
    """What was found of one kernel.

    `verdict`: PROVED, each point was walked, or the points were split by forms that hold;
    SEARCHED, `points` of `of` points were tried and others may need more; SAMPLED, only the
    launches that were given; NO KEYS, the plan says that none is needed, and none is.
    `points` counts launches that were evaluated, `of` the points that there are (an upper bound
    where a `where` makes counting dear). `needed` and `planned` count backend keys, `missing` is
    needed and not planned, `unreached` planned and not needed. `reasons` say why a verdict is not
    PROVED, where no finding does. `digest` is the id of the needed
    keys: it is equal in two processes, or the keys depend on the process.
    """

    kernel: str
    backend: str
    verdict: Verdict
    points: int
    of: int
    needed: int
    planned: int
    missing: int
    unreached: int
    digest: str
    reasons: tuple[str, ...] = ()
    missing_keys: tuple[str, ...] = ()
    unreached_keys: tuple[str, ...] = ()


class Proof(msgspec.Struct, frozen=True):
    """What was found of all kernels, in the order of their first envelope, and what is wrong."""

    kernels: tuple[KernelProof, ...]
    findings: tuple[Finding, ...]

    @property
    def holds(self) -> bool:
        """Whether every kernel is proved (or agreed to need no key) and nothing is wrong."""
        proved = all(kernel.verdict in ("PROVED", "NO KEYS") for kernel in self.kernels)
        return proved and not self.findings
