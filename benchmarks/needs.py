"""What a case needs of the machine, and whether a machine without it may pass.

A case that cannot run here is "n/a", which is no failure: asv compares a number with "n/a" without
a word. So a machine that is meant to have a GPU says JITWARM_BENCH_REQUIRE=gpu, and a broken driver
is a failure there.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Sequence

from benchmarks.tracks import BrokenMeasurementError

VARIABLE = "JITWARM_BENCH_REQUIRE"
GPU, FA4 = "gpu", "fa4"
WORDS = (GPU, FA4)


def required() -> frozenset[str]:
    """What this machine must have, from the variable: words with commas between them."""
    words = [word.strip() for word in os.environ.get(VARIABLE, "").split(",") if word.strip()]
    for word in words:
        if word not in WORDS:
            raise BrokenMeasurementError(f"{VARIABLE}: {word!r} is none of {', '.join(WORDS)}")
    return frozenset(words)


def lacking(needs: Sequence[str], arch: str | None, arches: Sequence[str]) -> str:
    """Why a case with these needs cannot run, empty if it can.

    `arch` is that of the GPU here, None without one; `arches` are those that the case exists for.
    Raises `BrokenMeasurementError` for what the machine must have and has not, needed by this case
    or not: without a GPU it would go on with the numbers of a stub device.
    """
    no_gpu = f"the GPU here is {arch}, the case is for {', '.join(arches)}" if arch else "no GPU"
    missing = {}
    if arch not in arches:
        missing[GPU] = no_gpu
    if FA4 in (*needs, *required()) and not _has_fa4():
        missing[FA4] = "flash-attn-4 is not installed: pip install 'jitwarm[fa4]'"
    for word, reason in missing.items():
        if word in required():
            raise BrokenMeasurementError(f"{VARIABLE} has {word!r}: {reason}")
    return "; ".join(reason for word, reason in missing.items() if word in needs)


def _has_fa4() -> bool:
    """Found, not imported: that takes seconds, and a measured process does it."""
    try:
        return importlib.util.find_spec("flash_attn.cute") is not None
    except ImportError:  # no flash_attn at all
        return False
