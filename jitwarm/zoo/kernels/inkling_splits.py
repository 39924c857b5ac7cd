"""How Inkling's attention cuts up one batch: the query bucket and the number of KV splits.

Warm-up and serving call these same functions, with the same numbers, so that a launch asks for no
more than what was declared.
"""

from __future__ import annotations

# Above this batch the library looks requests up in a table instead of a loop, in another binary
# (`BIN_BATCH_SEARCH_THRESH` of flash-attn-4; a test compares them).
LARGE_BATCH = 256

QUERY_TILE = 256  # rows of queries that one work item covers, heads of a group packed
KEY_TILE = 128  # least keys that are worth a split
REQUESTS_PER_WARP = 31  # of the kernel that prepares the split schedule
MAX_WARPS = 32
MAX_SPLITS = 128


def query_bucket(max_query_len: int) -> int:
    """The longest query that a batch is taken for: the next power of two."""
    return 1 << (max(max_query_len, 1) - 1).bit_length()


def next_query_len(query_len: int) -> int:
    """The shortest query of the next bucket: 1, 2, 3, 5, 9, ..."""
    return query_bucket(query_len) + 1


def num_splits(
    *,
    max_query_len: int,
    num_reqs: int,
    max_kv_len: int,
    num_heads: int,
    num_kv_heads: int,
    is_local: bool,
    can_split: bool,
) -> int:
    """Into how many parts the keys of one request are split over the device.

    `max_query_len` is the bucket, `max_kv_len` the most keys that a request of this layer can have
    (the model's limit, not the batch's: a launch may not depend on it), heads are those of this
    rank. Local layers never split, nor does a device whose kernel cannot (`can_split`).
    """
    if is_local or not can_split:
        return 1
    group = num_heads // num_kv_heads
    query_tiles = _cdiv(max_query_len * group, QUERY_TILE)
    items = num_reqs * num_kv_heads * query_tiles
    cap = MAX_SPLITS
    target = 64
    if query_tiles == 1:
        target = 128
        if num_reqs == 1:
            target = 256
            if num_kv_heads == 8:
                cap = 16
            elif num_kv_heads == 4 or max_kv_len <= 8192:
                cap = 32
            elif max_kv_len <= 65536:
                cap = 64
    return max(1, min(target // items, cap, _cdiv(max_kv_len, KEY_TILE)))


def warps_bucket(num_reqs: int) -> int:
    """Warps of the kernel that prepares the split schedule of `num_reqs` requests."""
    warps = min(_cdiv(num_reqs, REQUESTS_PER_WARP), MAX_WARPS)
    return 1 << (warps - 1).bit_length()


def requests_of_bucket(num_warps: int) -> int:
    """The fewest requests of a warps bucket."""
    fewest_warps = 1 if num_warps == 1 else num_warps // 2 + 1
    return (fewest_warps - 1) * REQUESTS_PER_WARP + 1


def _cdiv(value: int, by: int) -> int:
    return -(-value // by)
