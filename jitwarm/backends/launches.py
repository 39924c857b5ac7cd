"""Launch counts of backends whose launches pass through our own code (CuTe DSL, flash-attention 4).

Triton's launches do not: `jitwarm.backends.triton.hits` counts those.
"""

from __future__ import annotations

import threading
from collections import _count_elements  # type: ignore[attr-defined] # what Counter is made of

from jitwarm.observe.phases import current_phase

_lock = threading.Lock()
_users = 0
_counts: dict[str, int] = {}


def count(text: str) -> None:
    """Count a launch of the canonical key `text`, if anybody counts; none in a warm-up."""
    if _users and current_phase() != "warm":
        # `_counts[text] += 1` loses counts when threads launch together; this is one C call.
        _count_elements(_counts, (text,))


def counting() -> bool:
    """Whether anybody counts: a launch path may skip making a key's text otherwise."""
    return _users > 0


def start_counting() -> None:
    """Count from now on."""
    global _users
    with _lock:
        _users += 1


def stop_counting() -> None:
    """End one `start_counting`; after the last the counts are gone."""
    global _users
    with _lock:
        _users -= 1
        if _users == 0:
            _counts.clear()


def counts() -> dict[str, int]:
    """Launches by canonical key since counting began."""
    return dict(_counts)
