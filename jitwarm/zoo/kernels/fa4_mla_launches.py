"""Which launches of dense MLA prefill an engine can make, and one for each way that flash-attention
4 cuts them up.

A step launches its new tokens among themselves (causal, as many keys as queries), with log-sum-exps
if some request has a context; and the new tokens with pieces of the contexts (no mask, with
log-sum-exps).
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from jitwarm.zoo.kernels.fa4_mla_splits import (
    LARGE_BATCH,
    PER_WARP,
    Attention,
    Cut,
    can_split,
    cuts,
)

QUERY_STEP = KEY_STEP = 64  # every tile of the library holds whole ones of these


@dataclass(frozen=True, slots=True)
class PrefillLimits:
    """Prefill requests and new tokens of a step, tokens of the longest request with its context,
    and the most keys of a context in one launch.
    """

    requests: int
    tokens: int
    longest: int
    contexts: int


@dataclass(frozen=True, slots=True)
class PrefillLaunch:
    """One launch: `batch` requests with at most `max_q` queries and `max_k` keys."""

    max_q: int
    max_k: int
    batch: int
    causal: bool
    return_lse: bool


@functools.lru_cache(maxsize=64)
def launch_of_each_cut(
    attention: Attention, limits: PrefillLimits, *, each_number_of_splits: bool = False
) -> tuple[PrefillLaunch, ...]:
    """The smallest launch for each mode and cut that the limits admit.

    With `each_number_of_splits`, and then also for each number of requests and query tiles at which
    anything of a launch changes, whether or not its binaries show it.
    """
    found: dict[tuple[object, ...], PrefillLaunch] = {}
    for launch, cut, splits in _launches(attention, limits):
        finer: tuple[int, ...] = ()
        if each_number_of_splits:
            finer = (splits, launch.batch, launch.max_q)
        found.setdefault((launch.causal, launch.return_lse, cut, *finer), launch)
    return tuple(found.values())


def admits(limits: PrefillLimits, launch: PrefillLaunch) -> bool:
    """Whether a step can make this launch, told from the limits alone."""
    room = min(limits.tokens - (launch.batch - 1), limits.longest)
    if not (1 <= launch.batch <= limits.requests and 1 <= launch.max_q <= room):
        return False
    context = _longest_context(limits, launch.batch, launch.max_q)
    if launch.causal:
        return launch.max_k == launch.max_q and (not launch.return_lse or context > 0)
    return launch.return_lse and 1 <= launch.max_k <= context


def _launches(
    attention: Attention, limits: PrefillLimits
) -> Iterator[tuple[PrefillLaunch, Cut, int]]:
    """The shortest queries of each tile and the shortest keys of each cut: a longer one of the same
    tile is cut up alike and leaves less room for the rest of the batch.
    """
    for batch in _batches(attention, limits):
        for max_q in _query_lengths(attention, limits, batch):
            context = _longest_context(limits, batch, max_q)
            own = np.array([max_q], np.int64)
            for _, cut, splits in cuts(attention, batch, max_q, own):
                yield PrefillLaunch(max_q, max_q, batch, True, False), cut, splits
                if context > 0:
                    yield PrefillLaunch(max_q, max_q, batch, True, True), cut, splits
            keys = np.arange(1, context + 1, KEY_STEP, dtype=np.int64)
            for max_k, cut, splits in cuts(attention, batch, max_q, keys):
                yield PrefillLaunch(max_q, max_k, batch, False, True), cut, splits


def _batches(attention: Attention, limits: PrefillLimits) -> list[int]:
    """Numbers of requests at which something changes: all that may be split, and the first behind
    each limit of the library.
    """
    heads, most = attention.heads, min(limits.requests, limits.tokens)
    fills = attention.sms // (2 * heads)  # the device, if two SMs share an item
    splitting = range(1, (fills if can_split(attention, 1, 1) else 1) + 1)
    limit = {fills, attention.sms // heads, LARGE_BATCH, *(PER_WARP << bits for bits in range(5))}
    some = {*splitting, *(count + more for count in limit for more in (0, 1)), most}
    return sorted(count for count in some if 1 <= count <= most)


def _query_lengths(attention: Attention, limits: PrefillLimits, batch: int) -> Iterator[int]:
    """The shortest queries of each tile, as long as keys may be split or fewer than three tiles."""
    room = min(limits.tokens - (batch - 1), limits.longest)
    for max_q in range(1, room + 1, QUERY_STEP):
        if max_q > 3 * attention.query_tile and not can_split(attention, batch, max_q):
            return
        yield max_q


def _longest_context(limits: PrefillLimits, batch: int, max_q: int) -> int:
    """Of one request: where there is another, that one has the longest query."""
    own = max_q if batch == 1 else 1
    return min(limits.contexts, limits.longest - own)
