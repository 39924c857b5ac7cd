"""Load a scenario file.

    file (TOML) -> overrides (--set) -> matrix product -> placeholders `{name}` replaced -> `Case`

Every error names the file and the place in it (`$.parallel.dcp: expected int >= 1, got "x"`);
unknown fields are errors.
"""

from __future__ import annotations

import copy
import hashlib
import itertools
import math
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from jitwarm.backends.triton.stub import ARCHES
from jitwarm.errors import ScenarioError
from jitwarm.scenario import Case, Scenario
from jitwarm.schema_errors import convert


def load(
    path: Path, overrides: Mapping[str, Any] | None = None, default_arch: str = "sm90"
) -> Scenario:
    """Load and check a scenario file. `overrides` maps field paths such as `scheduler.max_num_seqs`
    to values.

    `default_arch` is that of a scenario which names none. Raises `ScenarioError` for anything
    wrong, before anything is run or written.
    """
    try:
        return _load(path, overrides or {}, default_arch)
    except RecursionError:
        raise ScenarioError(str(path), "$", "is nested too deeply") from None


def _load(path: Path, overrides: Mapping[str, Any], default_arch: str) -> Scenario:
    source = str(path)
    try:
        text = path.read_bytes()
        raw = tomllib.loads(text.decode())
    except (OSError, UnicodeDecodeError) as error:
        raise ScenarioError(source, "$", f"cannot be read: {error}") from error
    except ValueError as error:  # a number with too many digits is no TOMLDecodeError
        raise ScenarioError(source, "$", f"is not TOML: {error}") from error
    for field, value in overrides.items():
        _override(source, raw, field, value)
    matrix = _matrix(source, raw.pop("matrix", {}))
    quick = convert(source, "$.quick", raw.pop("quick", []), tuple[str, ...])
    cases = tuple(_case(source, raw, axes, default_arch) for axes in _combinations(matrix))
    _check_folders(source, cases)
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
        for value in values:
            if isinstance(value, float) and not math.isfinite(value):
                raise ScenarioError(source, f"$.matrix.{name}", f"{value} is not a finite number")
        if len({(type(value), value) for value in values}) < len(values):
            raise ScenarioError(source, f"$.matrix.{name}", "names a value twice")
    return axes


def _check_folders(source: str, cases: Iterable[Case]) -> None:
    """Two cases with one folder would overwrite each other's results."""
    seen: dict[str, Case] = {}
    for case in cases:
        other = seen.setdefault(case.folder, case)
        if other is not case:
            problem = (
                f"{other.label!r} and {case.label!r} would both write their results to the folder "
                f"{case.folder!r}"
            )
            raise ScenarioError(source, "$.matrix", problem)


def _combinations(matrix: dict[str, list[Any]]) -> Iterator[dict[str, Any]]:
    for values in itertools.product(*matrix.values()):
        yield dict(zip(matrix, values, strict=True))


def _case(source: str, raw: dict[str, Any], axes: dict[str, Any], default_arch: str) -> Case:
    # An axis called arch is the architecture, unless the file names one itself.
    used: set[str] = set() if "arch" in raw else {"arch"}
    resolved = _substitute(source, "$", copy.deepcopy(raw), axes, used)
    if "axes" in resolved:
        raise ScenarioError(source, "$.axes", "unknown field; the matrix is written as [matrix]")
    resolved["axes"] = axes
    resolved.setdefault("arch", axes.get("arch", default_arch))
    case = convert(source, "$", resolved, Case)
    for name in axes:
        if name in used:
            continue
        raise ScenarioError(
            source,
            f"$.matrix.{name}",
            f"nothing in the scenario uses {{{name}}}, so its cases would all be the same",
        )
    try:
        msgspec.json.encode(case)
    except UnicodeEncodeError as error:  # from --set: a byte of the command line that is no text
        raise ScenarioError(source, "$", f"holds what is not text: {error}") from None
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
    require(
        case.decode_query_len <= min(scheduler.max_num_batched_tokens, scheduler.max_model_len),
        "$.speculative.num_speculative_tokens",
        f"a decode row of {case.decode_query_len} tokens fits no step",
    )
    mix = case.traffic.mix
    weights = sum((mix.decode, mix.prefill, mix.mixed, mix.padded))
    require(math.isfinite(weights), "$.traffic.mix", "a weight is not a finite number")
    require(weights > 0, "$.traffic.mix", "all weights are 0")
    for index, step in enumerate(case.traffic.step):
        path = f"$.traffic.step[{index}]"
        requests = len(step.decode_lens) + len(step.prefill_chunks)
        query_len = case.decode_query_len
        tokens = len(step.decode_lens) * query_len + sum(step.prefill_chunks)
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
            tokens + step.padded * query_len <= scheduler.max_num_batched_tokens,
            path,
            f"has more than max_num_batched_tokens={scheduler.max_num_batched_tokens} tokens",
        )
        require(
            min(step.decode_lens, default=query_len) >= query_len,
            f"{path}.decode_lens",
            f"a decode row has {query_len} query tokens, so its context is at least as long",
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
