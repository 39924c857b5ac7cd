"""Keys beside times: what base and head warm, because more keys explain more seconds."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from jitwarm.gate.pairs import Pairs, Sample


class KeyChange(msgspec.Struct, frozen=True):
    """Backend keys of one kernel: how many base has, how many head lost and gained."""

    kernel: str
    base: int
    lost: int
    gained: int

    @property
    def text(self) -> str:
        """`ScaleRows 6 + 6 - 1`."""
        parts = [f"+ {self.gained}"] * bool(self.gained) + [f"- {self.lost}"] * bool(self.lost)
        return f"{self.kernel} {self.base} {' '.join(parts)}"


def key_changes(base: Sample, head: Sample) -> list[KeyChange]:
    """The kernels whose keys differ, by name."""
    changes = []
    for kernel in sorted({*base.keys, *head.keys}):
        was, now = (set(one.keys.get(kernel, ())) for one in (base, head))
        if was != now:
            changes.append(KeyChange(kernel, len(was), len(was - now), len(now - was)))
    return changes


def key_count(sample: Sample) -> int:
    """Backend keys of all kernels."""
    return sum(map(len, sample.keys.values()))


def key_text(changes: Sequence[KeyChange]) -> str:
    """`6 more keys: ScaleRows 6 + 6`; empty where the keys are the same."""
    if not changes:
        return ""
    gained, lost = sum(one.gained for one in changes), sum(one.lost for one in changes)
    net = gained - lost
    kernels = ", ".join(one.text for one in changes)
    plural = "s" * (abs(net or gained) != 1)
    if not net:
        return f"{gained} key{plural} exchanged: {kernels}"
    return f"{abs(net)} {'more' if net > 0 else 'fewer'} key{plural}: {kernels}"


def unsteady_keys(pairs: Pairs) -> list[str]:
    """What two runs of the same side did not agree on: such times compare different work."""
    found: dict[str, None] = {}
    for side, first in (("base", pairs.first_base), ("head", pairs.first_head)):
        for sample in pairs.base if side == "base" else pairs.head:
            for one in key_changes(first, sample):
                found[f"{side}: {one.text} in another run"] = None
    return list(found)
