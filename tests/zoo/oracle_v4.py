"""What the steps of small DeepSeek-V4 engines need, by brute force: as `oracle`, with images,
drafts, and contexts of thousands of tokens, so that states of 128 fill more than one width.

Run as a script it replays the engines of `ENGINES` with more rows and tokens, compares with the
proof and the plan, and prints the counts: `python tests/zoo/oracle_v4.py`.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from oracle_common import SmallEngine, compare

from jitwarm import device
from jitwarm.config import (
    CacheConfig,
    EngineConfig,
    ModelConfig,
    SchedulerConfig,
    SpeculativeConfig,
)
from jitwarm.traffic import Batch
from jitwarm.zoo.models.deepseek_v4 import DeepSeekV4Flash, DeepSeekV4Pro


@dataclass(frozen=True)
class Engine(SmallEngine):
    """A small engine: one layer of each compress ratio, `drafts` tokens behind each decode.

    `rows`, `tokens` and `longest` are the scheduler's limits, `scores` the bound that slices a
    prefill chunk.
    """

    builder: Any = DeepSeekV4Flash
    rows: int = 6
    tokens: int = 20
    longest: int = 16_700
    scores: int = 16_700
    drafts: int = 0
    vision: bool = False
    backend: str = "FLASHMLA_SPARSE"

    def config(self) -> EngineConfig:
        """Its configuration; the list of ratios goes on with a drafting head, as the models' do."""
        hf = self.builder.hf_config
        kinds = tuple(dict.fromkeys(hf.compress_ratios[: hf.num_hidden_layers]))
        hf = dataclasses.replace(hf, num_hidden_layers=len(kinds), compress_ratios=(*kinds, 0))
        return EngineConfig(
            ModelConfig(max_model_len=self.longest, hf_config=hf),
            cache_config=CacheConfig(256, 64, "fp8_ds_mla"),
            scheduler_config=SchedulerConfig(self.rows, self.tokens),
            attention_backend=self.backend,
            speculative_config=SpeculativeConfig("dspark", self.drafts) if self.drafts else None,
            options=(("max_scores", self.scores), ("vision", self.vision)),
        )

    def batches(self) -> Iterator[Batch]:
        """Every batch, as far as the lengths of its requests could matter."""
        length = 1 + self.drafts
        most = min(self.rows, self.tokens // length)
        for decodes in range(most + 1):
            for padded in {0, most - decodes}:
                if decodes:
                    yield Batch((self.longest,) * decodes, (), (), padded, length)
            room = self.tokens - decodes * length
            for prefills in range(1, min(self.rows - decodes, room) + 1):
                for new in range(prefills, room + 1):
                    for chunks, contexts in self._spreads(prefills, new):
                        yield Batch((self.longest,) * decodes, chunks, contexts, 0, length)

    def _spreads(self, prefills: int, new: int) -> Iterator[tuple[tuple[int, ...], ...]]:
        """Chunks and contexts of so many prefills with so many new tokens."""
        if prefills == 1:
            for context in self._contexts(new):
                yield (new,), (context,)
            return
        most, none = new - prefills + 1, (0,) * prefills
        for chunks in {(most, *(1,) * (prefills - 1)), (*(1,) * (prefills - 1), most)}:
            room = tuple(max(self.longest - chunk, 0) for chunk in chunks)
            if max(chunks) <= self.longest:
                yield chunks, none
                yield chunks, room
                yield chunks, (room[0], *none[1:])
                yield chunks, (*none[1:], room[-1])

    def _contexts(self, new: int) -> Iterator[int]:
        """None and short ones, around each width of states, and the longest."""
        room = self.longest - new
        near = {*range(6), *range(room - 6, room + 1), room // 2, room // 3}
        for states in (128, 129):
            near |= {states * 128 - new + more for more in (-1, 0, 1)}
        return iter(sorted(context for context in near if 0 <= context <= room))


ENGINES = {
    "flash": Engine(),
    "pro": Engine(DeepSeekV4Pro),
    "pro, one width": Engine(DeepSeekV4Pro, longest=16_511),
    "pro, drafts": Engine(DeepSeekV4Pro, drafts=1),
    "pro, another backend": Engine(DeepSeekV4Pro, backend="FLASHINFER_MLA_SPARSE"),
    "pro, one request": Engine(DeepSeekV4Pro, rows=1, drafts=3),
    "flash, vision": Engine(vision=True),
    "flash, no room for an image": Engine(tokens=12),
    "flash, no room for both": Engine(tokens=4, drafts=3),
}


def main() -> int:
    """Compare all engines at a larger size; returns 1 if any differs."""
    active = device.activate("stub", "sm90")
    worst = 0
    for name, small in ENGINES.items():
        engine = dataclasses.replace(
            small, rows=2 * small.rows if small.rows > 1 else 1, tokens=2 * small.tokens
        )
        worst |= compare(name, engine, active)[-1]
    return int(worst)


if __name__ == "__main__":
    sys.exit(main())
