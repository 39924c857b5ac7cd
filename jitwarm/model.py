"""The subject of a scenario: a model that registers its kernels while it is built and launches them
step by step.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import sys
from collections.abc import Callable
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, Protocol

from jitwarm.config import EngineConfig, HFConfig
from jitwarm.device import Device
from jitwarm.errors import ScenarioError
from jitwarm.registry import JitWarmupRegistry
from jitwarm.scenario import Case
from jitwarm.traffic import Batch

GROUP = "jitwarm.models"


class Model(Protocol):
    """What a builder returns. `layers` is reported; the two optional methods may be left out."""

    layers: int

    def step(self, batch: Batch) -> None:
        """Launch the kernels of one step, in order, on real tensors."""

    def bind_kv_cache(self) -> None:
        """Optional: called once the cache is allocated, in a scope whose registrations supersede
        earlier ones of the same owner.
        """

    def set_up(self) -> None:
        """Optional: run every torch operator of a step once on scratch memory, and none of the
        kernels.
        """


Builder = Callable[[EngineConfig, Device], Model]


def check_model(case: Case) -> None:
    """Raise `ScenarioError` if the scenario's model cannot exist.

    Imports no model code: the measuring processes do.
    """
    module, _ = _target(case)
    try:
        found = importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        found = False
    if not found:
        raise ScenarioError(
            _where(case), "$.model", f"no module {module!r} (looked in {Path.cwd()} too)"
        )


def find_builder(case: Case) -> Builder:
    """The builder that a scenario names: a shipped model, or `package.module:name` found from the
    current folder.

    It is called with (config, device). An attribute `hf_config` of it holds the architecture
    numbers for the configuration. Raises `ScenarioError`.
    """
    module, name = _target(case)
    try:
        builder: Builder = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise ScenarioError(
            _where(case), "$.model", f"cannot load {module}:{name}: {error}"
        ) from error
    return builder


def _target(case: Case) -> tuple[str, str]:
    """Module and name of the builder; makes the current folder importable, as `python -m` does."""
    shipped = {entry.name: entry.value for entry in entry_points(group=GROUP)}
    module, colon, name = shipped.get(case.model, case.model).partition(":")
    if not colon or not name:
        names = ", ".join(sorted(shipped))
        raise ScenarioError(
            _where(case),
            "$.model",
            f"unknown model {case.model!r}: expected one of {names}, or package.module:builder",
        )
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    return module, name


def _where(case: Case) -> str:
    return f"scenario {case.name}"


def build(case: Case, rank: int, device: Device) -> tuple[Model, JitWarmupRegistry]:
    """Build the model of a case for one rank; returns it with everything its layers registered.

    Raises `ScenarioError` for a builder that does not take (config, device) and for a model that
    lacks `layers` or `step`.
    """
    builder = find_builder(case)
    config = case.engine_config(rank, getattr(builder, "hf_config", HFConfig()))
    registry = JitWarmupRegistry(config)
    try:
        inspect.signature(builder).bind(config, device)
    except TypeError as error:
        problem = f"{case.model} is called with (config, device): {error}"
        raise ScenarioError(_where(case), "$.model", problem) from None
    with registry.activate():
        model = builder(config, device)
    missing = [name for name in ("layers", "step") if not hasattr(model, name)]
    if missing:
        problem = f"{case.model} returned a {type(model).__name__} without {' and '.join(missing)}"
        raise ScenarioError(_where(case), "$.model", problem)
    bind: Any = getattr(model, "bind_kv_cache", None)
    if bind is not None:
        with registry.activate():
            bind()
    return model, registry
