"""Traffic: the batches that a scenario replays, the same for a seed in every process, version and
rank.

A batch lists decodes first, then prefills, as engines order them. Lengths are drawn log-uniformly
with a bias to the places where compilers change their mind: 1, and the neighbours of multiples of
16.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

from jitwarm.scenario import Case, Scheduler, Step

# How often the two headline batches are repeated behind their first run, for the median that
# "first" is compared with.
REPEATS = 8
# How far beyond its end a short replay looks for its headline batches.
LOOK_AHEAD = 64
_GRAPH_SIZES = (
    1,
    2,
    4,
    8,
    16,
    24,
    32,
    48,
    64,
    96,
    128,
    160,
    192,
    224,
    256,
    320,
    384,
    448,
    512,
    1024,
)


@dataclass(frozen=True, slots=True)
class Batch:
    """One step of traffic.

    `decode_lens`: context length in tokens of each decode request, its new token included.
    `prefill_chunks` and `prefill_contexts`: new tokens and earlier tokens of each prefill request.
    `padded`: rows of length 0 that a decode batch is padded with to a captured size.
    `decode_query_len`: query tokens of each decode row, 1 and the draft tokens.
    """

    decode_lens: tuple[int, ...]
    prefill_chunks: tuple[int, ...]
    prefill_contexts: tuple[int, ...]
    padded: int = 0
    decode_query_len: int = 1

    @property
    def kind(self) -> str:
        """`decode`, `prefill`, `mixed` or `padded`."""
        if self.decode_lens and self.prefill_chunks:
            return "mixed"
        if self.prefill_chunks:
            return "prefill"
        return "padded" if self.padded else "decode"

    @property
    def num_decodes(self) -> int:
        """Decode rows, padding included."""
        return len(self.decode_lens) + self.padded

    @property
    def num_prefills(self) -> int:
        """Prefill rows."""
        return len(self.prefill_chunks)

    @property
    def query_lens(self) -> tuple[int, ...]:
        """New tokens of each row: `decode_query_len` for a decode, and for padding, whose tokens
        are computed and thrown away.
        """
        return (self.decode_query_len,) * self.num_decodes + self.prefill_chunks

    @property
    def seq_lens(self) -> tuple[int, ...]:
        """Context length of each row with its new tokens: 0 for padding."""
        prefills = (c + n for c, n in zip(self.prefill_contexts, self.prefill_chunks, strict=True))
        return (*self.decode_lens, *(0,) * self.padded, *prefills)

    @property
    def num_decode_tokens(self) -> int:
        """New tokens of the decode rows, padding included."""
        return self.num_decodes * self.decode_query_len

    @property
    def num_tokens(self) -> int:
        """All new tokens."""
        return self.num_decode_tokens + sum(self.prefill_chunks)


@dataclass(frozen=True, slots=True)
class Replay:
    """The batches of one run in order.

    The first two are the headline's; `later` are the indices of their repeats.
    """

    batches: tuple[Batch, ...]
    first_prefill: int | None
    first_decode: int | None
    later_prefill: tuple[int, ...]
    later_decode: tuple[int, ...]

    @property
    def headline(self) -> tuple[Batch, ...]:
        """The batches whose first step is timed."""
        places = (self.first_prefill, self.first_decode)
        return tuple(self.batches[place] for place in places if place is not None)


def replay(case: Case, steps: int) -> Replay:
    """The replay of `steps` steps: the headline batches, their repeats, then the traffic.

    The headline batches are the first pure prefill and the first pure decode of the traffic (a
    mixed batch stands in where there is no pure prefill); they lead, so that every arm's first
    steps have the same two shapes.
    """
    stream = [batch for batch, _ in zip(batches(case), range(steps + LOOK_AHEAD), strict=False)]
    prefills = [batch for batch in stream if batch.kind == "prefill"]
    prefills = prefills or [batch for batch in stream if batch.prefill_chunks]
    decodes = [batch for batch in stream if batch.kind == "decode"]
    head = {"prefill": prefills[:1], "decode": decodes[:1]}
    roles = [role for role, found in head.items() if found]
    lead = [(role, head[role][0]) for _ in range(1 + REPEATS) for role in roles][:steps]
    places = {role: [i for i, (led, _) in enumerate(lead) if led == role] for role in head}
    return Replay(
        tuple([batch for _, batch in lead] + stream)[:steps],
        first_prefill=next(iter(places["prefill"]), None),
        first_decode=next(iter(places["decode"]), None),
        later_prefill=tuple(places["prefill"][1:]),
        later_decode=tuple(places["decode"][1:]),
    )


def batches(case: Case) -> Iterator[Batch]:
    """The traffic of a case without end: explicit steps, then generated ones."""
    query_len = case.decode_query_len
    for step in case.traffic.step:
        yield _explicit(step, query_len)
    # Only random() is used: it is the one method whose sequence Python promises to keep between
    # versions.
    rng = random.Random(case.traffic.seed)
    mix = case.traffic.mix
    kinds = (
        ("decode", mix.decode),
        ("prefill", mix.prefill),
        ("mixed", mix.mixed),
        ("padded", mix.padded),
    )
    while True:
        yield _generated(rng, _choose(rng, kinds), case.scheduler, query_len)


def _explicit(step: Step, query_len: int) -> Batch:
    contexts = step.prefill_contexts or (0,) * len(step.prefill_chunks)
    return Batch(step.decode_lens, step.prefill_chunks, contexts, step.padded, query_len)


def _generated(rng: random.Random, kind: str, limits: Scheduler, query_len: int) -> Batch:
    rows, tokens = limits.max_num_seqs, limits.max_num_batched_tokens
    decodes: tuple[int, ...] = ()
    if kind != "prefill":
        room = min(rows, tokens // query_len) - (1 if kind == "mixed" else 0)
        count = _length(rng, room) if room > 0 else 0
        decodes = tuple(max(_length(rng, limits.max_model_len), query_len) for _ in range(count))
    if kind == "padded":
        size = next((s for s in _GRAPH_SIZES if s >= len(decodes)), len(decodes))
        padded = min(size, rows, tokens // query_len) - len(decodes)
        return Batch(decodes, (), (), padded, query_len)
    if kind == "decode":
        return Batch(decodes, (), (), decode_query_len=query_len)
    chunks, contexts = [], []
    left = tokens - len(decodes) * query_len
    # Few prefills are the rule; the second draw lets a batch of nothing but prefills happen too.
    count = min(_length(rng, _length(rng, rows - len(decodes))), left)
    for others in reversed(range(count)):
        chunk = _length(rng, min(left - others, 4 * left // (others + 1), limits.max_model_len))
        room = limits.max_model_len - chunk
        contexts.append(_length(rng, room) if room and rng.random() < 0.5 else 0)
        chunks.append(chunk)
        left -= chunk
    return Batch(decodes, tuple(chunks), tuple(contexts), decode_query_len=query_len)


def _length(rng: random.Random, most: int) -> int:
    """A whole number from 1 to `most`, log-uniform; a third of them moved to a multiple of 16, or
    one beside it.
    """
    value = int(most ** rng.random())
    if rng.random() < 1 / 3:
        value = (value + 15) // 16 * 16 + int(rng.random() * 3) - 1
    return max(1, min(value, most))


def _choose(rng: random.Random, weighted: tuple[tuple[str, float], ...]) -> str:
    point = rng.random() * sum(weight for _, weight in weighted)
    for name, weight in weighted:
        point -= weight
        if point < 0:
            return name
    return next(name for name, weight in reversed(weighted) if weight > 0)
