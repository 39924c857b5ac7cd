"""A scenario's `[options]` as one model understands them: known names, allowed values, defaults.

    OPTIONS = {"vision": (False, True), "heads": OfType(int, 64)}
    options = model_options(config, OPTIONS, model="my-model")
    options["vision"]       # False unless the scenario says `vision = true`

Kernels see none of them: a model turns its options into layers, registrations and launches.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from jitwarm.config import EngineConfig
from jitwarm.errors import ScenarioError

Value = str | int | float | bool


@dataclass(frozen=True, slots=True)
class OfType:
    """An option that takes any value of exactly this type (a bool is no int)."""

    kind: type[str | int | float | bool]
    default: Value


def model_options(
    config: EngineConfig, allowed: Mapping[str, tuple[Value, ...] | OfType], *, model: str
) -> dict[str, Any]:
    """Every option of `allowed` with the scenario's value, else its default.

    `allowed` maps a name to its values, the default first, or to `OfType`. `model` is the name that
    errors give. Raises `ScenarioError` for an unknown name or value.
    """
    chosen: dict[str, Any] = {
        name: rule.default if isinstance(rule, OfType) else rule[0]
        for name, rule in allowed.items()
    }
    for name, value in config.options:
        path = f"$.options.{name}"
        if name not in allowed:
            known = ", ".join(allowed) or "none"
            raise ScenarioError(f"model {model}", path, f"unknown option: expected one of {known}")
        rule = allowed[name]
        if isinstance(rule, OfType):
            fits, expected = type(value) is rule.kind, f"a value of type {rule.kind.__name__}"
        else:
            # By type too: 1 equals True.
            fits = any(type(value) is type(one) and value == one for one in rule)
            expected = f"one of {', '.join(map(_text, rule))}"
        if not fits:
            raise ScenarioError(f"model {model}", path, f"expected {expected}, got {_text(value)}")
        chosen[name] = value
    return chosen


# Words for a cache of bf16, and of 8-bit floats.
BF16 = ("bf16", "bfloat16", "auto")
FP8 = ("fp8", "fp8_e4m3", "fp8_ds_mla")


def refuse_unsupported(
    config: EngineConfig,
    model: str,
    *,
    cache_dtypes: tuple[str, ...],
    drafts: bool = False,
    dcp: bool = False,
    pcp: bool = False,
) -> None:
    """Raise `ScenarioError` for settings that a model would silently ignore.

    `drafts`, `dcp` and `pcp` say that it knows draft tokens, decode and prefill context
    parallelism; `cache_dtypes` are the words that it knows.
    """
    parallel, dtype = config.parallel_config, config.cache_config.cache_dtype
    refused = (
        (not drafts and config.speculative_config is not None, "$.speculative", "draft tokens"),
        (
            not dcp and parallel.decode_context_parallel_size > 1,
            "$.parallel.dcp",
            "decode context parallelism",
        ),
        (
            not pcp and parallel.prefill_context_parallel_size > 1,
            "$.parallel.pcp",
            "prefill context parallelism",
        ),
    )
    for wanted, path, what in refused:
        if wanted:
            raise ScenarioError(f"model {model}", path, f"this model has no {what}: leave it out")
    if dtype not in cache_dtypes:
        raise ScenarioError(
            f"model {model}",
            "$.cache.kv_cache_dtype",
            f"unknown {_text(dtype)}: expected one of {', '.join(map(_text, cache_dtypes))}",
        )


def check_max_scores(config: EngineConfig, max_scores: int, model: str) -> None:
    """Raise `ScenarioError` for a bound on scores that the keys of one query exceed."""
    longest = config.model_config.max_model_len
    if max_scores < longest:
        raise ScenarioError(
            f"model {model}",
            "$.options.max_scores",
            f"{max_scores} scores do not hold one query's with a context of {longest} tokens",
        )


def _text(value: Value) -> str:
    """A value as TOML writes it."""
    return str(value).lower() if isinstance(value, bool) else repr(value).replace("'", '"')
