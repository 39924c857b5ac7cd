"""The subject of a scenario: a model that registers its kernels while it is built and launches them
step by step.
"""

from __future__ import annotations

import contextlib
import importlib
import inspect
import pkgutil
import sys
import traceback
from collections.abc import Callable, Iterable, Sequence
from importlib.machinery import PathFinder
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, Protocol

from jitwarm.config import EngineConfig, HFConfig
from jitwarm.device import Device
from jitwarm.errors import MissingExtraError, ScenarioError
from jitwarm.record import LARGEST
from jitwarm.registry import JitWarmupRegistry
from jitwarm.scenario import Case
from jitwarm.traffic import Batch

GROUP = "jitwarm.models"


class Model(Protocol):
    """What a builder returns. `layers` is reported; the three optional methods may be left out.

    A model that turns token ids into token ids has an attribute `emits_token` that is true; its
    first step is then called a first token.
    """

    layers: int

    def step(self, batch: Batch) -> None:
        """Launch the kernels of one step, in order, on real tensors."""

    def bind_kv_cache(self) -> None:
        """Optional: called once the cache is allocated, in a scope whose registrations supersede
        earlier ones of the same owner.
        """

    def envelopes(self) -> Iterable[Any]:
        """Optional: a `jitwarm.Envelope` for each launch that a step can make, for `jitwarm prove`.

        Called behind `bind_kv_cache`. Without it a proof only samples real steps.
        """

    def set_up(self, headline: Sequence[Batch]) -> None:
        """Optional: run every torch operator of a step once on scratch memory, and none of the
        kernels.

        `headline` are the batches whose first step is timed; a library of matrix products loads
        another kernel for another shape. A model that does not care leaves the parameter out.
        """


Builder = Callable[[EngineConfig, Device], Model]


def check_model(case: Case) -> None:
    """Raise `ScenarioError` if the scenario's model cannot exist.

    Imports no model code, no package above it either: the measuring processes do.
    """
    module, _ = _target(case)
    if not _is_module(module):
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
    here = str(Path.cwd())
    if here not in sys.path:  # as `python -m` does
        sys.path.insert(0, here)
    try:
        builder: Builder = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        problem = f"cannot load {module}:{name}: {error}"
        raise ScenarioError(_where(case), "$.model", problem) from error
    except (Exception, SystemExit) as error:  # whatever the module does while it is imported
        frame = traceback.extract_tb(error.__traceback__)[-1]
        problem = f"cannot load {module}:{name}: {error!r} ({frame.filename}:{frame.lineno})"
        raise ScenarioError(_where(case), "$.model", problem) from error
    return builder


def _is_module(module: str) -> bool:
    """Whether the module could be imported, from the current folder first.

    `importlib.util.find_spec("package.module")` would import the package, so this looks part by
    part. A package that changes its own `__path__` while it is imported is not followed.
    """
    parts = module.split(".")
    path: Sequence[str] | None = None
    for count in range(1, len(parts) + 1):
        if not parts[count - 1] or (count > 1 and path is None):
            return False
        found, path = _look_up(".".join(parts[:count]), path)
        if not found:
            return False
    return True


def _look_up(module: str, path: Sequence[str] | None) -> tuple[bool, Sequence[str] | None]:
    """Whether a module is there, and for a package where its parts are.

    `path` is the package's, or None for a module at the top.
    """
    for finder in sys.meta_path:
        if finder is PathFinder:
            # Its own search of a nested namespace package needs the imported parent.
            folders = [str(Path.cwd()), *sys.path] if path is None else path
            found, parts = _in_folders(module, folders)
            if found:
                return True, parts
            continue
        spec = None
        with contextlib.suppress(Exception):  # somebody else's finder
            spec = finder.find_spec(module, path)
        if spec is not None:
            return True, spec.submodule_search_locations
    return False, None


def _in_folders(module: str, path: Sequence[str]) -> tuple[bool, Sequence[str] | None]:
    portions: list[str] = []
    for entry in path:
        finder = pkgutil.get_importer(entry)
        spec = finder.find_spec(module, None) if finder is not None else None
        if spec is None:
            continue
        if spec.loader is not None:
            return True, spec.submodule_search_locations
        portions += spec.submodule_search_locations or ()  # a part of a namespace package
    return bool(portions), portions


def _target(case: Case) -> tuple[str, str]:
    """Module and name of the builder."""
    shipped = {entry.name: entry.value for entry in entry_points(group=GROUP)}
    module, colon, name = shipped.get(case.model, case.model).partition(":")
    if not colon or not name:
        names = ", ".join(sorted(shipped))
        raise ScenarioError(
            _where(case),
            "$.model",
            f"unknown model {case.model!r}: expected one of {names}, or package.module:builder",
        )
    return module, name


def _where(case: Case) -> str:
    return f"scenario {case.name}"


def build(case: Case, rank: int, device: Device) -> tuple[Model, JitWarmupRegistry]:
    """Build the model of a case for one rank; returns it with everything its layers registered.

    Raises `ScenarioError` for a builder that does not take (config, device) and for a model that
    lacks `step` or a number of `layers`, and `MissingExtraError` for a library that is not
    installed.
    """
    builder = find_builder(case)
    config = case.engine_config(rank, getattr(builder, "hf_config", HFConfig()))
    registry = JitWarmupRegistry(config)
    try:
        inspect.signature(builder).bind(config, device)
    except TypeError as error:
        problem = f"{case.model} is called with (config, device): {error}"
        raise ScenarioError(_where(case), "$.model", problem) from None
    try:
        with registry.activate():
            model = builder(config, device)
    except MissingExtraError as error:  # the model knows what it lacks, we know for what
        raise MissingExtraError(_where(case), error.what, error.extra) from error
    missing = [name for name in ("layers", "step") if not hasattr(model, name)]
    if missing:
        problem = f"{case.model} returned a {type(model).__name__} without {' and '.join(missing)}"
        raise ScenarioError(_where(case), "$.model", problem)
    if not isinstance(model.layers, int) or isinstance(model.layers, bool):
        problem = (
            f"{case.model} returned a {type(model).__name__} whose layers is a "
            f"{type(model.layers).__name__}; give the number of layers"
        )
        raise ScenarioError(_where(case), "$.model", problem)
    if not 0 <= model.layers <= LARGEST:
        what = "below 0" if model.layers < 0 else "no number that a model has"
        problem = (
            f"{case.model} returned a {type(model).__name__} whose layers is {what}; "
            "give the number of layers"
        )
        raise ScenarioError(_where(case), "$.model", problem)
    bind: Any = getattr(model, "bind_kv_cache", None)
    if bind is not None:
        with registry.activate():
            bind()
    return model, registry
