"""Count in-process hits: Triton reports none of them, and coverage needs every one.

A hit is a look-up in the kernel cache that Triton keeps per function and device, so the cache is
replaced by a dict that counts. Cost a launch: see docs/measurements.md (at most 0.5 us is the
budget).
"""

from __future__ import annotations

import threading
from collections import Counter, _count_elements  # type: ignore[attr-defined] # what Counter is made of
from typing import Any

from jitwarm.backends.triton.naming import import_path, known_functions
from jitwarm.observe.phases import current_phase

# A function, by the id it keeps while its recorder lives; a device; Triton's in-process string.
LookUp = tuple[int, int, str]

_lock = threading.Lock()
_users = 0
_recorders: dict[tuple[int, int], HitRecorder] = {}
_texts: dict[tuple[int, int, str], str] = {}


class HitRecorder(dict[str, Any]):
    """Triton's kernel cache of one function on one device, with a count of look-ups a key."""

    __slots__ = ("counts", "device", "fn")

    def __init__(self, fn: Any, device: int, cache: dict[str, Any]) -> None:
        """Take over the entries of `cache`."""
        super().__init__(cache)
        self.fn, self.device = fn, device
        self.counts: dict[str, int] = {}

    def get(self, key: str, default: Any = None) -> Any:
        """Triton's look-up of a launch, or of a warm-up, which is none."""
        if current_phase() != "warm":
            # `counts[key] += 1` loses counts when threads launch together; this is one C call.
            _count_elements(self.counts, (key,))
        return dict.get(self, key, default)

    @classmethod
    def install(cls, fn: Any, device: int) -> HitRecorder:
        """Start counting the look-ups of `fn` on `device`; a second call changes nothing."""
        with _lock:
            caches = fn.device_caches[device]
            if isinstance(caches[0], cls):
                return caches[0]
            recorder = cls(fn, device, caches[0])
            earlier = _recorders.get((id(fn), device))
            if earlier is not None:  # somebody cleared `device_caches`
                recorder.counts = earlier.counts
            fn.device_caches[device] = (recorder, *caches[1:])
            _recorders[id(fn), device] = recorder
        return recorder

    def uninstall(self) -> None:
        """Give Triton a plain dict back, with everything compiled so far in it."""
        caches = self.fn.device_caches.get(self.device)
        if caches is not None and caches[0] is self:
            self.fn.device_caches[self.device] = (dict(self), *caches[1:])
        _recorders.pop((id(self.fn), self.device), None)


def remember(fn: Any, device: int, in_process: str, text: str) -> None:
    """Note that Triton's in-process string of `fn` on `device` means the canonical key `text`."""
    _texts[id(fn), device, in_process] = text


def look_ups() -> Counter[LookUp]:
    """All look-ups since counting began, but for those of warm-ups."""
    return Counter(
        {
            (fn, device, in_process): count
            for (fn, device), recorder in list(_recorders.items())
            for in_process, count in list(recorder.counts.items())
        }
    )


def by_key(counts: Counter[LookUp]) -> dict[str, int]:
    """Look-ups by canonical key, sorted.

    A key that was compiled before anyone watched has its kernel's path and Triton's raw string.
    """
    found: dict[str, int] = {}
    for (fn, device, in_process), count in counts.items():
        text = _texts.get((fn, device, in_process))
        if text is None:
            text = f"{import_path(_recorders[fn, device].fn)} {in_process}"
        found[text] = found.get(text, 0) + count
    return dict(sorted(found.items()))


def start_counting() -> None:
    """Count look-ups of every function that jitwarm has met, and of each one that misses from now
    on.
    """
    global _users
    _users += 1
    for fn in known_functions():
        for device in list(getattr(fn, "device_caches", {})):
            HitRecorder.install(fn, device)


def stop_counting() -> None:
    """End one `start_counting`; after the last, Triton has its plain dicts back."""
    global _users
    _users -= 1
    if _users == 0:
        for recorder in list(_recorders.values()):
            recorder.uninstall()


def count_miss(fn: Any, device: int, in_process: str) -> None:
    """Called on each miss: make sure that `fn` is counted, and count this launch if its look-up
    came before that.
    """
    if _users and not isinstance(fn.device_caches[device][0], HitRecorder):
        recorder = HitRecorder.install(fn, device)
        if current_phase() != "warm":
            _count_elements(recorder.counts, (in_process,))
