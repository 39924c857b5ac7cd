"""The device code of StableTopKFromGatheredCandidates: a radix select, one row a block.

Needs CuTe DSL (`cutlass`): only `stable_topk_cutedsl` imports it, when it compiles.

An entry (score, id) becomes one unsigned 64-bit key that orders as the result does: the score in
the high half, its bits changed so that they compare as the float does; the complement of the id in
the low half, so that of equal scores the lower id wins; 0 for an entry without an id, which is
never counted. The K-th largest key is then found from its top bits down, 11 bits a pass:

1. count each digit among the keys whose higher bits are those found so far (2048 bins);
2. walk the bins from the top until K keys are passed: that bin is the next digit;
3. stop when the whole bin is wanted, or when there are no more bits.

Everything above the bits found is in the result, and of what equals them as much as there is room
for: either that is all of it, or the keys are identical and it does not matter which are taken.
With fewer than K valid entries the search ends in the first pass, in bin 0, and all are taken.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators
# (device values have no Python types)

from __future__ import annotations

import math
from typing import Any

import cutlass
from cutlass import Boolean, Float32, Int32, Uint32, Uint64, cute
from cutlass.cute.runtime import make_fake_tensor

THREADS = 512
KEY_BITS = 64
DIGIT_BITS = 11
BINS = 1 << DIGIT_BITS

_WARP = 32
_WARPS = THREADS // _WARP
_BINS_PER_THREAD = BINS // THREADS
_LOADS_IN_FLIGHT = 8

# What the threads tell each other after a pass: places in an array of shared memory.
_DIGIT, _ABOVE, _EQUAL = range(3)


def stand_ins(topk: int, num_candidates: int) -> tuple[Any, Any]:
    """What the two tensors of a launch have in common, whatever the number of rows."""
    rows = cute.sym_int32()
    gathered = make_fake_tensor(
        Float32,
        (rows, num_candidates, 2),
        (cute.sym_int64(divisibility=2), 2, 1),
        assumed_align=8,
    )
    output = make_fake_tensor(Int32, (rows, topk), (cute.sym_int64(), 1), assumed_align=4)
    return gathered, output


@cute.jit
def radix_topk(gathered: cute.Tensor, output: cute.Tensor, stream):
    """Launch one block a row: gathered float32 [R, N, 2], output int32 [R, K].

    N and K are constants of the compiled kernel; N is a multiple of 512.
    """
    _select(gathered, output).launch(
        grid=(gathered.shape[0], 1, 1), block=(THREADS, 1, 1), stream=stream
    )


@cute.kernel
def _select(gathered: cute.Tensor, output: cute.Tensor):
    """Write the ids of the best entries of this block's row in any order, then -1."""
    candidates, topk = gathered.shape[1], output.shape[1]
    thread, _, _ = cute.arch.thread_idx()
    row, _, _ = cute.arch.block_idx()
    # (score, id) is read as one 8-byte word: the row stride is even and the pointer aligned.
    pairs = cute.make_tensor(
        cute.recast_ptr(gathered[row, None, None].iterator, dtype=Uint64),
        cute.make_layout(candidates),
    )
    selected = output[row, None]
    bins = _shared(BINS, 16)
    warp_sums = _shared(_WARPS)
    found = _shared(3)
    appended = _shared(2)  # how many above the threshold, how many equal to it

    for i in cutlass.range(thread, topk, THREADS):
        selected[i] = Int32(-1)
    for i in cutlass.range_constexpr(_BINS_PER_THREAD):
        bins[thread * _BINS_PER_THREAD + i] = Int32(0)
    if thread < 2:
        appended[thread] = Int32(0)
    cute.arch.sync_threads()

    known = Uint64(0)  # mask of the bits of the threshold that are known
    threshold = Uint64(0)
    kept = Int32(0)  # keys above the threshold
    shift = Int32(KEY_BITS - DIGIT_BITS)
    searching = Boolean(True)
    while searching:
        _count(pairs, bins, known, threshold, shift)
        cute.arch.sync_threads()
        _find(bins, warp_sums, found, topk - kept)
        cute.arch.sync_threads()
        threshold |= Uint64(found[_DIGIT]) << Uint64(shift)
        known |= Uint64(BINS - 1) << Uint64(shift)
        kept += found[_ABOVE]
        searching = found[_EQUAL] > topk - kept and shift > 0
        # The last digit overlaps the one before it: those bits agree in all keys that are counted.
        shift = cutlass.max(shift - DIGIT_BITS, 0)

    for first in cutlass.range(0, candidates, _entries_at_once(candidates)):
        keys = _keys(pairs, first)
        for i in cutlass.range_constexpr(cute.size(keys)):
            if keys[i] != 0 and (keys[i] & known) >= threshold:
                is_equal = Int32((keys[i] & known) == threshold)
                counter = appended.iterator + is_equal
                slot = is_equal * kept + cute.arch.atomic_add(counter, Int32(1))
                if slot < topk:
                    selected[slot] = ~Int32(keys[i])


@cute.jit
def _count(pairs, bins, known, threshold, shift):
    """Count the digit at `shift` of every key that has the bits found so far."""
    candidates = cute.size(pairs)
    for first in cutlass.range(0, candidates, _entries_at_once(candidates)):
        keys = _keys(pairs, first)
        for i in cutlass.range_constexpr(cute.size(keys)):
            if keys[i] != 0 and (keys[i] & known) == threshold:
                digit = Int32(keys[i] >> Uint64(shift)) & (BINS - 1)
                cute.arch.atomic_add(bins.iterator + digit, Int32(1))


@cute.jit
def _find(bins, warp_sums, found, wanted):
    """Find the bin of the `wanted`-th key from the top; bin 0 if there are fewer keys.

    One thread puts the bin, the number of keys above it and the number in it into `found`. The
    bins are empty afterwards. The caller synchronises before and after.
    """
    thread, _, _ = cute.arch.thread_idx()
    lane, warp = cute.arch.lane_idx(), cute.arch.warp_idx()
    lowest = BINS - _BINS_PER_THREAD * (thread + 1)  # thread 0 has the highest bins
    counts = cute.make_rmem_tensor(_BINS_PER_THREAD, Int32)
    mine = Int32(0)
    for i in cutlass.range_constexpr(_BINS_PER_THREAD):
        counts[i] = bins[lowest + i]
        bins[lowest + i] = Int32(0)
        mine += counts[i]

    through = mine  # the keys in this warp's bins, down to this thread's
    for step in cutlass.range_constexpr(_WARP.bit_length() - 1):
        before = cute.arch.shuffle_sync_up(through, 1 << step)
        if lane >= 1 << step:
            through += before
    if lane == _WARP - 1:
        warp_sums[warp] = through
    cute.arch.sync_threads()

    above = through - mine
    for i in cutlass.range_constexpr(_WARPS):
        if i < warp:
            above += warp_sums[i]
    for i in cutlass.range_constexpr(_BINS_PER_THREAD - 1, -1, -1):
        if above < wanted and (above + counts[i] >= wanted or lowest + i == 0):
            found[_DIGIT] = lowest + i
            found[_ABOVE] = above
            found[_EQUAL] = counts[i]
        above += counts[i]


@cute.jit
def _keys(pairs, first):
    """The keys of one step for this thread; all loads start before the first result is used."""
    thread, _, _ = cute.arch.thread_idx()
    keys = cute.make_rmem_tensor(_entries_at_once(cute.size(pairs)) // THREADS, Uint64)
    for i in cutlass.range_constexpr(cute.size(keys)):
        keys[i] = Uint64(pairs[first + i * THREADS + thread])
    for i in cutlass.range_constexpr(cute.size(keys)):
        score = Uint32(keys[i])
        identity = Int32(Uint32(keys[i] >> Uint64(32)).bitcast(Float32))
        is_negative = Uint32(Int32(score) >> 31)  # all bits or none
        ordered = score ^ (is_negative | Uint32(1 << 31))
        key = (Uint64(ordered) << Uint64(32)) | Uint64(~Uint32(identity))
        keys[i] = Uint64(cutlass.select_(identity < 0, Uint64(0), key))
    return keys


def _entries_at_once(candidates: int) -> int:
    return math.gcd(candidates, _LOADS_IN_FLIGHT * THREADS)


def _shared(size: int, alignment: int | None = None) -> Any:
    return cute.make_tensor(cute.arch.alloc_smem(Int32, size, alignment), cute.make_layout(size))
