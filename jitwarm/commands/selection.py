"""Which cases of which scenarios a command works on, and how: from its options."""

from __future__ import annotations

import argparse
import tomllib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from jitwarm.commands.output import complain, note, say
from jitwarm.device import check_request, gpu_arch
from jitwarm.errors import ScenarioError, UsageError
from jitwarm.harness import ARMS, Settings
from jitwarm.model import check_model
from jitwarm.scenario import Case, Scenario
from jitwarm.scenario_file import find, load
from jitwarm.tally import each


def for_each(
    options: argparse.Namespace,
    chosen: Sequence[tuple[Scenario, Case]],
    one: Callable[[Scenario, Case], int | str],
) -> int:
    """Do `one`, as in `each`, for all chosen cases; returns the exit code, sums several scenarios
    up in a line.
    """
    tally = each(chosen, one, complain)
    if len({scenario.path for scenario, _ in chosen}) > 1 and not options.json:
        say(tally.text())
    return tally.code


def chosen_cases(options: argparse.Namespace) -> list[tuple[Scenario, Case]]:
    """The chosen cases of all scenarios, every one loaded and checked before the first is run."""
    kind = _device_kind(options)
    arch = gpu_arch() if kind == "cuda" else None
    chosen: list[tuple[Scenario, Case]] = []
    for scenario in scenario_files(options, arch):
        for case in _selected(options, scenario):
            if arch is None or options.case or case.arch == arch:
                chosen.append((scenario, case))
            else:
                note(f"{case.title}: left out, the GPU here is {arch}")
    if not chosen:
        wanted = " or ".join(options.case) if options.case else f"the GPU here ({arch})"
        raise UsageError(f"{options.scenario}: no case is for {wanted}")
    for _, case in chosen:
        check_model(case)
        check_request(kind, case.arch)
    return chosen


def scenario_files(options: argparse.Namespace, arch: str | None = None) -> Iterator[Scenario]:
    """The scenarios of a file or folder. Raises `ScenarioError` for one that is wrong, or has the
    name of another, for a name stands for its results.
    """
    overrides, seen = overrides_of(options), dict[str, str]()
    for path in find(Path(options.scenario)):
        scenario = load(path, overrides, arch or "sm90")
        other = seen.setdefault(scenario.name, scenario.path)
        if other != scenario.path:
            problem = f"{scenario.name!r} is the name of {other} too"
            raise ScenarioError(scenario.path, "$.name", problem)
        yield scenario


def _selected(options: argparse.Namespace, scenario: Scenario) -> Sequence[Case]:
    """The cases that options name; in a folder a scenario may have none of them."""
    selectors = tuple(options.case or ()) or (scenario.quick if options.quick else ())
    if not Path(options.scenario).is_dir():
        return scenario.select(selectors)
    matching = tuple(one for one in selectors if scenario.matches(one))
    return scenario.select(matching) if matching or not selectors else ()


def settings_of(options: argparse.Namespace) -> Settings:
    """How measuring processes are run."""
    return Settings(
        samples=getattr(options, "samples", 1),
        device=_device_kind(options),
        threads=options.jobs,
        monitor=getattr(options, "monitor", "record"),
        arms=getattr(options, "arms", ARMS),
    )


def _device_kind(options: argparse.Namespace) -> str:
    if options.device == "auto":
        options.device = "cuda" if gpu_arch() else "stub"
    return str(options.device)


def overrides_of(options: argparse.Namespace) -> dict[str, Any]:
    """The fields of the scenario that options set. Raises `UsageError`."""
    values: dict[str, Any] = {}
    for assignment in options.set or ():
        field, equals, text = assignment.partition("=")
        if not equals or not field:
            raise UsageError(
                f"--set {assignment}: expected FIELD=VALUE, as in scheduler.max_num_seqs=512"
            )
        try:
            values[field] = tomllib.loads(f"value = {text}")["value"]
        except RecursionError:
            raise UsageError(f"--set {field}: is nested too deeply") from None
        except ValueError:
            values[field] = text  # a bare word is a string
    for field in ("seed", "steps"):
        if getattr(options, field, None) is not None:
            values[f"traffic.{field}"] = getattr(options, field)
    return values
