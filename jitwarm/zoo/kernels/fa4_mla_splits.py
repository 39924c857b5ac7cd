"""Which probes of FA4MLAPrefill split their keys on SM100, by flash-attn-4's own heuristic, and
which helpers that takes.
"""

from __future__ import annotations

LONGEST = 131072  # tokens of a context that few splits share
# The library's own limits: most splits, key tiles up to which it does not split (and below which it
# does not where queries and values differ in dims), requests that a warp of the schedule takes.
MOST_SPLITS, UNSPLIT_TILES, UNSPLIT_TILES_OF_TWO_DIMS, PER_WARP = 128, 4, 63, 31


def row(max_q: int, max_k: int, batch: int = 1) -> dict[str, int]:
    """A probe: `batch` requests with `max_q` queries and `max_k` keys each."""
    return {"max_q": max_q, "max_k": max_k, "batch": batch}


def split_rows(
    rows: list[dict[str, int]], heads: int, qk: int, v: int, sms: int
) -> list[dict[str, int]]:
    """Probes that split their keys: two splits of a long context, and one for each helper that
    neither this nor `rows` reaches.
    """
    few = max(1, sms // (2 * heads))  # the largest batch that is split
    found = [row(1, LONGEST, few)]
    reached = set().union(*(_helpers(one, heads, qk, v, sms) for one in rows + found))
    # Splits are limited by the batch, and where one head dim serves all by short contexts too.
    short = [row(1, 128 << bits) for bits in range(4, 8)]
    for one in (*short, *(row(1, LONGEST, batch) for batch in range(1, few + 1))):
        helpers = _helpers(one, heads, qk, v, sms)
        if not helpers <= reached:
            found.append(one)
            reached |= helpers
    return found


def _helpers(probe: dict[str, int], heads: int, qk: int, v: int, sms: int) -> set[tuple[str, int]]:
    """What the helpers of a probe are keyed on, by the library's heuristic for splits; none where
    it does not split.
    """
    tiles = -(-probe["max_k"] // 128)
    if tiles <= (UNSPLIT_TILES if qk == v else UNSPLIT_TILES_OF_TWO_DIMS):
        return set()
    if qk != v:
        tiles = -(-probe["max_k"] // 64)
    items = probe["batch"] * heads * _query_tiles(probe["max_q"], v)
    splits = min(sms // items, MOST_SPLITS, tiles)
    if splits <= 1:
        return set()
    warps = -(-probe["batch"] // PER_WARP)
    log_splits = max((splits - 1).bit_length(), 5 if v > 64 else 4)
    return {("schedule", (warps - 1).bit_length()), ("combine", log_splits)}


def _query_tiles(max_q: int, v: int) -> int:
    """Work items of a head: one or two tiles of 128 queries each, one where values fill 256."""
    return -(-max_q // (256 if max_q > 128 and v != 256 else 128))
