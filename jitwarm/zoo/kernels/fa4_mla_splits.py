"""How flash-attention 4 cuts up one launch of dense MLA prefill, as far as its binaries depend on
it.

The library decides in the call, from the longest query, the longest key and the number of requests.
This is that decision, said again over whole ranges of key lengths, so that a plan can look at all
launches of an engine. Tests hold it against the library.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

# The library's own limits: most splits; key tiles up to which nothing is split; key tiles from
# which queries and values of different dims are; requests that a warp of the schedule takes;
# requests from which on they are looked up in a table.
MOST_SPLITS, UNSPLIT_TILES, SPLIT_TILES_OF_TWO_DIMS, PER_WARP, LARGE_BATCH = 128, 4, 64, 31, 256
# Key tiles of a split from which two of them are worked on in turns, by head dim.
TURNS = {64: 16, 128: 64}
KEY_TILE = 128


@dataclass(frozen=True, slots=True)
class Attention:
    """What is the same in all launches: heads of this rank, head dims of queries and of values, the
    device, and whether keys may be split.
    """

    heads: int
    qk: int
    v: int
    arch: str
    sms: int
    may_split: bool

    @property
    def is_blackwell(self) -> bool:
        """SM100 and its family: two query tiles, splits, pairs of SMs."""
        return self.arch.startswith(("sm10", "sm11"))

    @property
    def query_tile(self) -> int:
        """Queries of a tile."""
        return 192 if self.arch.startswith("sm9") and self.qk <= 96 else 128


class Cut(NamedTuple):
    """What of a launch its binaries show: those of the main kernel, then those of its helpers.

    `stages` query tiles of an item, `one_item` a head (then the kernel stays on its SM, unless it
    splits), a `large` batch, a `pair` of SMs for an item, `split` keys in tiles of `key_tile` (0
    unless split), two of them in `turns`; warps of the schedule kernel and log2 of the splits for
    the combine kernel, both 0 unless split.
    """

    stages: int
    one_item: bool
    large: bool
    pair: bool
    split: bool
    key_tile: int
    turns: bool
    warps: int
    log_splits: int


def cuts(
    attention: Attention, batch: int, max_q: int, max_k: NDArray[np.int64]
) -> Iterator[tuple[int, Cut, int]]:
    """(longest key, cut, splits) for each different cut or number of splits of `batch` requests
    with at most `max_q` queries, over longest keys `max_k` that ascend; the first key that shows
    it.
    """
    tile, blackwell = attention.query_tile, attention.is_blackwell
    same_dims = attention.qk == attention.v
    stages = 2 if blackwell and max_q > tile and attention.v != 256 else 1
    items_of_head = -(-max_q // (stages * tile))
    items = batch * attention.heads * items_of_head
    splits, key_tiles = _splits(attention, items, max_k)
    halves_pay = 2 * batch * attention.heads <= attention.sms
    pair = blackwell and same_dims and attention.qk == 256 and (items_of_head > 1 or halves_pay)
    in_turns = blackwell and stages == 1 and same_dims and attention.qk in {64, 128, 256}
    tiles = -(-max_k // KEY_TILE)
    each = -(-tiles // splits)
    turns = in_turns & ((splits == 1) | (each >= TURNS.get(attention.qk, 1 << 62)))
    # Of each different (splits, tile, turns) the first key.
    _, first = np.unique((splits * 512 + key_tiles) * 2 + turns, return_index=True)
    for place in sorted(first.tolist()):
        count = int(splits[place])
        is_split = count > 1
        cut = Cut(
            stages,
            items_of_head == 1 and not is_split,
            batch > LARGE_BATCH,
            pair and not is_split,
            is_split,
            int(key_tiles[place]) if is_split else 0,
            bool(turns[place]),
            _warps(batch) if is_split else 0,
            max((count - 1).bit_length(), 5 if attention.v > 64 else 4) if is_split else 0,
        )
        yield int(max_k[place]), cut, count


def can_split(attention: Attention, batch: int, max_q: int) -> bool:
    """Whether some key length makes the library split."""
    if not (attention.may_split and attention.is_blackwell):
        return False
    stages = 2 if max_q > attention.query_tile and attention.v != 256 else 1
    items = batch * attention.heads * -(-max_q // (stages * attention.query_tile))
    return attention.sms // items > 1


def _splits(
    attention: Attention, items: int, max_k: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Splits, and keys of a tile."""
    ones, wide = np.ones_like(max_k), np.full_like(max_k, KEY_TILE)
    if not (attention.may_split and attention.is_blackwell):
        return ones, wide
    room = min(attention.sms // items, MOST_SPLITS)
    tiles = -(-max_k // KEY_TILE)
    splits = np.where(tiles > UNSPLIT_TILES, np.clip(np.minimum(room, tiles), 1, None), 1)
    if attention.qk == attention.v:
        return splits, wide
    # Two dims leave less room for partial results: only many tiles, half as large, are split.
    narrow = (splits > 1) & (tiles >= SPLIT_TILES_OF_TWO_DIMS)
    half = np.maximum(np.minimum(room, -(-max_k // (KEY_TILE // 2))), 1)
    return np.where(narrow, half, ones), np.where(narrow, KEY_TILE // 2, wide)


def _warps(batch: int) -> int:
    warps = min(-(-batch // PER_WARP), 32)
    return 1 << (warps - 1).bit_length()
