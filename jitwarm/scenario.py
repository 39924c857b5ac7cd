"""A scenario file: its schema, and one resolved case for each combination of its matrix.

    file (TOML) -> overrides (--set) -> matrix product -> placeholders `{name}` replaced -> `Case`,
    complete and checked

Every error names the file and the place in it (`$.parallel.dcp: expected int >= 1, got "x"`);
unknown fields are errors.
"""

from __future__ import annotations

import copy
import hashlib
import itertools
import math
import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

from jitwarm.backends.triton.stub import ARCHES
from jitwarm.config import (
    CacheConfig,
    EngineConfig,
    KernelConfig,
    ModelConfig,
    ParallelConfig,
    SchedulerConfig,
)
from jitwarm.errors import ScenarioError
from jitwarm.schema_errors import convert

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


class Case(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One resolved case: everything a run needs to know."""

    schema: Literal[1]
    name: Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")]
    model: Annotated[str, msgspec.Meta(min_length=1)]
    attention_backend: str = ""
    parallel: Parallel = msgspec.field(default_factory=Parallel)
    cache: Cache = msgspec.field(default_factory=Cache)
    scheduler: Scheduler = msgspec.field(default_factory=Scheduler)
    traffic: Traffic = msgspec.field(default_factory=Traffic)
    warmup: Warmup = msgspec.field(default_factory=Warmup)
    axes: dict[str, str | int | float | bool] = {}
    arch: str = "sm90"

    @property
    def label(self) -> str:
        """The matrix values as in `dcp=8 arch=sm90`; empty for a scenario without a matrix."""
        return " ".join(f"{name}={value}" for name, value in self.axes.items())

    @property
    def folder(self) -> str:
        """The label as a folder name that any file system and artifact store takes."""
        parts = [f"{name}-{value}" for name, value in self.axes.items()]
        return re.sub(r"[^A-Za-z0-9._-]", "_", "_".join(parts)) or "case"

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

    def select(self, selectors: tuple[str, ...]) -> tuple[Case, ...]:
        """The cases that match any selector (`dcp=8,arch=sm90`); all of them without one.

        Raises if a selector matches none.
        """
        if not selectors:
            return self.cases
        chosen: set[int] = set()
        for selector in selectors:
            matching = {index for index, case in enumerate(self.cases) if _matches(case, selector)}
            if not matching:
                known = "; ".join(case.label for case in self.cases) or "(one case without a name)"
                raise ScenarioError(
                    self.path, "$.matrix", f"no case matches {selector!r}; there are: {known}"
                )
            chosen |= matching
        return tuple(case for index, case in enumerate(self.cases) if index in chosen)


def load(path: Path, overrides: Mapping[str, Any] | None = None) -> Scenario:
    """Load and check a scenario file. `overrides` maps field paths such as `scheduler.max_num_seqs`
    to values.

    Raises `ScenarioError` for anything wrong, before anything is run or written.
    """
    source = str(path)
    try:
        text = path.read_bytes()
        raw = tomllib.loads(text.decode())
    except (OSError, UnicodeDecodeError) as error:
        raise ScenarioError(source, "$", f"cannot be read: {error}") from error
    except tomllib.TOMLDecodeError as error:
        raise ScenarioError(source, "$", f"is not TOML: {error}") from error
    for field, value in (overrides or {}).items():
        _override(source, raw, field, value)
    matrix = _matrix(source, raw.pop("matrix", {}))
    quick = convert(source, "$.quick", raw.pop("quick", []), tuple[str, ...])
    cases = tuple(_case(source, raw, axes) for axes in _combinations(matrix))
    scenario = Scenario(source, cases[0].name, cases, quick, hashlib.sha256(text).hexdigest())
    scenario.select(quick)
    return scenario


def find(path: Path) -> list[Path]:
    """The scenario files that a path names: itself, or every `*.toml` below a folder, sorted.
    Raises `ScenarioError` for none.
    """
    if path.is_dir():
        found = sorted(path.rglob("*.toml"))
        if not found:
            raise ScenarioError(str(path), "$", "holds no scenario (*.toml)")
        return found
    if not path.exists():
        raise ScenarioError(str(path), "$", "no such file or folder")
    return [path]


def _matrix(source: str, raw: Any) -> dict[str, list[Any]]:
    axes: dict[str, list[Any]] = {}
    for name, given in convert(source, "$.matrix", raw, dict[str, Any]).items():
        values = convert(source, f"$.matrix.{name}", given, list[str | int | float | bool])
        axes[name] = values
        if not values:
            raise ScenarioError(source, f"$.matrix.{name}", "is empty, so there would be no case")
        if len({(type(value), value) for value in values}) < len(values):
            raise ScenarioError(source, f"$.matrix.{name}", "names a value twice")
    return axes


def _combinations(matrix: dict[str, list[Any]]) -> Iterator[dict[str, Any]]:
    for values in itertools.product(*matrix.values()):
        yield dict(zip(matrix, values, strict=True))


def _case(source: str, raw: dict[str, Any], axes: dict[str, Any]) -> Case:
    # An axis called arch is the architecture, unless the file names one itself.
    used: set[str] = set() if "arch" in raw else {"arch"}
    resolved = _substitute(source, "$", copy.deepcopy(raw), axes, used)
    if "axes" in resolved:
        raise ScenarioError(source, "$.axes", "unknown field; the matrix is written as [matrix]")
    resolved["axes"] = axes
    resolved.setdefault("arch", axes.get("arch", "sm90"))
    case = convert(source, "$", resolved, Case)
    for name in axes:
        if name in used:
            continue
        raise ScenarioError(
            source,
            f"$.matrix.{name}",
            f"nothing in the scenario uses {{{name}}}, so its cases would all be the same",
        )
    _check(source, case)
    return case


def _substitute(source: str, path: str, value: Any, axes: dict[str, Any], used: set[str]) -> Any:
    """Replace `{name}`: a string that is nothing but a placeholder takes the matrix value with its
    type.
    """
    if isinstance(value, dict):
        return {
            name: _substitute(source, f"{path}.{name}", item, axes, used)
            for name, item in value.items()
        }
    if isinstance(value, list):
        return [
            _substitute(source, f"{path}[{index}]", item, axes, used)
            for index, item in enumerate(value)
        ]
    if not isinstance(value, str) or "{" not in value:
        return value
    for name, replacement in axes.items():
        if value == f"{{{name}}}":
            used.add(name)
            return replacement
        if f"{{{name}}}" in value:
            used.add(name)
            value = value.replace(f"{{{name}}}", str(replacement))
    if "{" in value:
        known = ", ".join(axes) or "none"
        raise ScenarioError(
            source, path, f"unknown placeholder in {value!r}: the matrix has {known}"
        )
    return value


def _check(source: str, case: Case) -> None:
    """What no single field can say."""

    def require(holds: bool, path: str, problem: str) -> None:
        if not holds:
            raise ScenarioError(source, path, problem)

    parallel, scheduler = case.parallel, case.scheduler
    require(
        case.arch in ARCHES,
        "$.arch",
        f"unknown arch {case.arch!r}: expected one of {', '.join(ARCHES)}",
    )
    require(
        parallel.tp % parallel.dcp == 0,
        "$.parallel.dcp",
        f"dcp {parallel.dcp} does not divide tp {parallel.tp}: each rank of a DCP group is a rank "
        "of the TP group",
    )
    interleave = parallel.cp_kv_cache_interleave_size
    require(
        case.cache.block_size % interleave == 0,
        "$.parallel.cp_kv_cache_interleave_size",
        f"interleave {interleave} does not divide the block size {case.cache.block_size}",
    )
    if parallel.dcp_rank != "each":
        require(
            parallel.dcp_rank < parallel.dcp,
            "$.parallel.dcp_rank",
            f"rank {parallel.dcp_rank} of a group of {parallel.dcp}",
        )
    mix = case.traffic.mix
    weights = sum((mix.decode, mix.prefill, mix.mixed, mix.padded))
    require(math.isfinite(weights), "$.traffic.mix", "a weight is not a finite number")
    require(weights > 0, "$.traffic.mix", "all weights are 0")
    for index, step in enumerate(case.traffic.step):
        path = f"$.traffic.step[{index}]"
        requests = len(step.decode_lens) + len(step.prefill_chunks)
        tokens = len(step.decode_lens) + sum(step.prefill_chunks)
        contexts = step.prefill_contexts or (0,) * len(step.prefill_chunks)
        require(requests > 0, path, "has no request")
        require(
            len(contexts) == len(step.prefill_chunks),
            f"{path}.prefill_contexts",
            "must name one context for each prefill chunk",
        )
        longest = max(
            (*step.decode_lens, *map(sum, zip(step.prefill_chunks, contexts, strict=True)))
        )
        require(
            requests + step.padded <= scheduler.max_num_seqs,
            path,
            f"has more than max_num_seqs={scheduler.max_num_seqs} rows",
        )
        require(
            tokens + step.padded <= scheduler.max_num_batched_tokens,
            path,
            f"has more than max_num_batched_tokens={scheduler.max_num_batched_tokens} tokens",
        )
        require(
            longest <= scheduler.max_model_len,
            path,
            f"has a context longer than max_model_len={scheduler.max_model_len}",
        )
        require(
            not (step.padded and step.prefill_chunks),
            f"{path}.padded",
            "only a batch of decodes is padded",
        )


def _override(source: str, raw: dict[str, Any], field: str, value: Any) -> None:
    *parents, last = field.split(".")
    place: Any = raw
    for name in parents:
        place = place.setdefault(name, {})
        if not isinstance(place, dict):
            raise ScenarioError(source, f"$.{field}", f"--set: {name} is not a table")
    place[last] = value


def _matches(case: Case, selector: str) -> bool:
    wanted = dict(part.partition("=")[::2] for part in selector.split(",") if part)
    have = {"arch": case.arch, **{name: str(value) for name, value in case.axes.items()}}
    return bool(wanted) and all(
        have.get(name.strip()) == value.strip() for name, value in wanted.items()
    )
