"""A scenario: the schema of its file, and one resolved case for each combination of its matrix."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

import msgspec

from jitwarm.config import (
    CacheConfig,
    EngineConfig,
    KernelConfig,
    ModelConfig,
    ParallelConfig,
    SchedulerConfig,
    SpeculativeConfig,
)
from jitwarm.errors import ScenarioError

AtLeastOne = Annotated[int, msgspec.Meta(ge=1)]
AtLeastZero = Annotated[int, msgspec.Meta(ge=0)]
Weight = Annotated[float, msgspec.Meta(ge=0)]


class Parallel(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How the model is spread.

    `dcp_rank = "each"` plans every rank, times arms at rank 0 and replays ranks 1 and W-1 too.
    """

    tp: AtLeastOne = 1
    dcp: AtLeastOne = 1
    pcp: AtLeastOne = 1
    dcp_rank: AtLeastZero | Literal["each"] = "each"
    cp_kv_cache_interleave_size: AtLeastOne = 1


class Cache(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The paged KV cache: tokens a block, blocks, dtype."""

    block_size: AtLeastOne = 64
    num_blocks: AtLeastOne = 4096
    kv_cache_dtype: str = "bf16"


class Scheduler(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Limits of one step, and the longest context in tokens."""

    max_num_seqs: AtLeastOne = 256
    max_num_batched_tokens: AtLeastOne = 8192
    max_model_len: AtLeastOne = 8192


class Mix(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Relative weights of the kinds of generated steps."""

    decode: Weight = 0.5
    prefill: Weight = 0.2
    mixed: Weight = 0.25
    padded: Weight = 0.05


class Step(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An explicit step: sequence lengths of its decodes, query lengths of its prefills with their
    earlier context, padding rows.
    """

    decode_lens: tuple[AtLeastOne, ...] = ()
    prefill_chunks: tuple[AtLeastOne, ...] = ()
    prefill_contexts: tuple[AtLeastZero, ...] = ()
    padded: AtLeastZero = 0


class Traffic(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is replayed: explicit steps first, then generated ones, `steps` in all (arm `loaded`;
    the other arms take 50).
    """

    seed: AtLeastZero = 0
    steps: AtLeastOne = 2000
    mix: Mix = msgspec.field(default_factory=Mix)
    step: tuple[Step, ...] = ()


class Warmup(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Start-up warming: `enable_jit_warmup = false` compiles nothing, registrations are still
    counted.
    """

    enable_jit_warmup: bool = True


class Speculative(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Draft tokens: each decode row has 1 + `num_speculative_tokens` query tokens."""

    method: Literal["dspark"]
    num_speculative_tokens: AtLeastOne


class Case(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One resolved case: everything a run needs to know."""

    schema: Literal[1]
    name: Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*\Z")]
    model: Annotated[str, msgspec.Meta(min_length=1)]
    attention_backend: str = ""
    parallel: Parallel = msgspec.field(default_factory=Parallel)
    cache: Cache = msgspec.field(default_factory=Cache)
    scheduler: Scheduler = msgspec.field(default_factory=Scheduler)
    traffic: Traffic = msgspec.field(default_factory=Traffic)
    warmup: Warmup = msgspec.field(default_factory=Warmup)
    speculative: Speculative | None = None
    options: dict[str, str | int | float | bool] = {}
    axes: dict[str, str | int | float | bool] = {}
    arch: str = "sm90"

    @property
    def label(self) -> str:
        """The matrix values as in `dcp=8 arch=sm90`; empty for a scenario without a matrix."""
        return " ".join(f"{name}={value}" for name, value in self.axes.items())

    @property
    def title(self) -> str:
        """Name and matrix values, for people."""
        return f"{self.name} {self.label}".strip()

    @property
    def folder(self) -> str:
        """The label as a folder name that any file system and artifact store takes."""
        parts = [f"{name}-{value}" for name, value in self.axes.items()]
        return re.sub(r"[^A-Za-z0-9._-]", "_", "_".join(parts)) or "case"

    @property
    def decode_query_len(self) -> int:
        """Query tokens of each decode row: 1 and the draft tokens."""
        return 1 + (self.speculative.num_speculative_tokens if self.speculative else 0)

    @property
    def replayed_ranks(self) -> tuple[int, ...]:
        """Ranks whose traffic is replayed: rank 1 is a value of its own to a compiler, the last is
        the general case.
        """
        if self.parallel.dcp_rank != "each":
            return (self.parallel.dcp_rank,)
        world = self.parallel.dcp
        return tuple(sorted({0, min(1, world - 1), world - 1}))

    @property
    def planned_ranks(self) -> tuple[int, ...]:
        """Ranks that are planned."""
        return (
            tuple(range(self.parallel.dcp))
            if self.parallel.dcp_rank == "each"
            else (self.parallel.dcp_rank,)
        )

    def engine_config(self, rank: int, hf_config: Any, dtype: str = "bfloat16") -> EngineConfig:
        """The configuration of one rank, for a model with these architecture numbers."""
        return EngineConfig(
            ModelConfig(dtype, self.scheduler.max_model_len, hf_config),
            ParallelConfig(
                self.parallel.tp,
                self.parallel.dcp,
                self.parallel.pcp,
                self.parallel.cp_kv_cache_interleave_size,
                rank,
            ),
            CacheConfig(self.cache.block_size, self.cache.num_blocks, self.cache.kv_cache_dtype),
            SchedulerConfig(self.scheduler.max_num_seqs, self.scheduler.max_num_batched_tokens),
            KernelConfig(self.warmup.enable_jit_warmup),
            self.attention_backend,
            None
            if self.speculative is None
            else SpeculativeConfig(
                self.speculative.method, self.speculative.num_speculative_tokens
            ),
            tuple(sorted(self.options.items())),
        )


class Scenario(msgspec.Struct, frozen=True):
    """A loaded file: its cases in matrix order, the selectors of the quick ones, and the hash of
    its text.
    """

    path: str
    name: str
    cases: tuple[Case, ...]
    quick: tuple[str, ...]
    sha256: str

    def matches(self, selector: str) -> bool:
        """Whether any case matches a selector such as `dcp=8,arch=sm90`."""
        return any(_matches(case, selector) for case in self.cases)

    def select(self, selectors: tuple[str, ...]) -> tuple[Case, ...]:
        """The cases that match any selector; all of them without one.

        Raises `ScenarioError` if a selector matches none.
        """
        for selector in selectors:
            if not self.matches(selector):
                known = "; ".join(case.label for case in self.cases if case.label)
                problem = (
                    f"no case matches {selector!r}; there are: {known or 'one case, no matrix'}"
                )
                raise ScenarioError(self.path, "$.matrix", problem)
        if not selectors:
            return self.cases
        return tuple(c for c in self.cases if any(_matches(c, one) for one in selectors))


def _matches(case: Case, selector: str) -> bool:
    wanted = dict(part.partition("=")[::2] for part in selector.split(",") if part)
    have = {"arch": case.arch, **{name: str(value) for name, value in case.axes.items()}}
    return bool(wanted) and all(
        have.get(name.strip()) == value.strip() for name, value in wanted.items()
    )
