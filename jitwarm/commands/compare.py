"""`jitwarm compare`: is start-up of head slower than that of base, beyond chance?"""

from __future__ import annotations

import argparse
import contextlib
import os
from collections.abc import Callable, Generator, Iterator, Sequence
from pathlib import Path

import msgspec

from jitwarm.commands.options import (
    choice_options,
    device_options,
    gate_options,
    scenario_options,
)
from jitwarm.commands.output import note, say
from jitwarm.commands.publish import check_publishable, publish
from jitwarm.commands.selection import chosen_cases, overrides_of
from jitwarm.errors import BaselineError, ScenarioError, UsageError
from jitwarm.gate.calibration import Calibration, read_calibration, why_not
from jitwarm.gate.compare_case import Compared, Comparison, compare_case
from jitwarm.gate.key_changes import key_changes, key_text
from jitwarm.gate.pairs import Pairs, Sampler
from jitwarm.gate.places import Layout, layout
from jitwarm.gate.rule import EFFECT, LEAST_PAIRS, MOST_PAIRS, PAIRS, POWER
from jitwarm.gate.sampling import ProcessSampler, Request
from jitwarm.gate.verdict import Statement, conclude
from jitwarm.gate.worktrees import (
    Tree,
    checked_out,
    environment,
    repository_of,
    scratch_folder,
    working_tree,
)
from jitwarm.scenario import Case, Scenario
from jitwarm.scenario_file import load
from jitwarm.tally import BASELINE, OK


def add_options(command: argparse.ArgumentParser) -> None:
    """The two revisions, how many pairs for which effect, which cases, where the verdict goes."""
    scenario_options(command)
    add = command.add_argument
    add("--base", required=True, metavar="REV", help="the commit, branch or tag to compare with")
    add("--head", metavar="REV", help="what is compared (default: the working tree as it is)")
    add("--pairs", type=_pairs, default=PAIRS, help=f"runs of each side, even (default {PAIRS})")
    effect = f"the slowdown that must be found (default {EFFECT:.2f}: 10 %%)"
    add("--effect", type=_effect, default=EFFECT, metavar="SHARE", help=effect)
    add("--calibration", metavar="FILE", help="what make power wrote on this machine: its power")
    choice_options(command)
    device_options(command)
    gate_options(command)


def _pairs(text: str) -> int:
    value = int(text)
    if not LEAST_PAIRS <= value <= MOST_PAIRS or value % 2:
        problem = f"expected an even number from {LEAST_PAIRS} to {MOST_PAIRS}, got {text}"
        raise argparse.ArgumentTypeError(problem)
    return value


def _effect(text: str) -> float:
    value = float(text)
    if not 0.01 <= value <= 1:
        raise argparse.ArgumentTypeError(f"expected a share from 0.01 to 1, as 0.10, got {text}")
    return value


def compare(options: argparse.Namespace) -> int:
    """Compare the chosen cases and publish one verdict."""
    return compare_with(options, ProcessSampler)


def compare_with(options: argparse.Namespace, sampler_of: Callable[[Request], Sampler]) -> int:
    """`compare`, with samples from where `sampler_of` says."""
    read = [options.scenario, *([options.calibration] if options.calibration else [])]
    check_publishable(options, map(Path, read))
    calibration = read_calibration(Path(options.calibration)) if options.calibration else None
    statements: list[Statement] = []
    compared, other_keys = 0, list[str]()
    try:
        # Closed here, so that worktrees are gone also if what is said cannot be written.
        with contextlib.closing(_compared(options, sampler_of)) as every:
            for found in every:
                said = [found.statement]
                if found.pairs is not None:
                    compared += len(found.pairs.base)
                    keys = key_text(key_changes(found.pairs.first_base, found.pairs.first_head))
                    other_keys += [f"{found.statement.subject}: {keys}"] * bool(keys)
                    if calibration is not None:
                        said = list(
                            _with_power(calibration, found.statement, found.pairs, options.effect)
                        )
                statements += said
                if not options.json and said[0].kind == "SAME":
                    # The verdict shows what is not as expected; here is what is.
                    lines = [said[0].line, *(f"    {line}" for line in said[0].details)]
                    say("\n".join(lines) + "\n")
    except BaselineError as error:
        statements.append(Statement("NOT-COMPARABLE", BASELINE, options.scenario, str(error)))
    verdict = conclude("compare", "pairs", compared, statements)
    if other_keys and not verdict.code:  # times may pass, but nobody expected other keys
        more = f" (and {len(other_keys) - 1} more)" if len(other_keys) > 1 else ""
        headline = f"ok: {compared} pairs no slower, with other keys: {other_keys[0]}{more}"
        verdict = msgspec.structs.replace(verdict, headline=headline)
    return publish(options, verdict)


def _compared(
    options: argparse.Namespace, sampler_of: Callable[[Request], Sampler]
) -> Generator[Compared]:
    scenario = Path(options.scenario)
    repository = repository_of(scenario if scenario.is_dir() else scenario.parent)
    place = layout(repository, scenario, environment().get("PYTHONPATH", ""))
    with scratch_folder() as scratch, contextlib.ExitStack() as stack:
        if options.head is None:
            head = working_tree(repository)
        else:
            head = stack.enter_context(checked_out(repository, options.head, scratch / "head"))
        chosen = _cases(options, place, head)
        base = stack.enter_context(checked_out(repository, options.base, scratch / "base"))
        for loaded, case in chosen:
            what = Comparison(
                scenario=case.name,
                case=case.label,
                file=os.path.normpath(place.here / loaded.path),
                repository=repository,
                trees={"base": base, "head": head},
                pairs=options.pairs,
                effect=options.effect,
            )
            missing = _missing(options, place, base, loaded, case)
            if missing:
                text = f"base ({base.title}) {missing}"
                yield Compared(what.statement("NOT-COMPARABLE", BASELINE, text))
                continue
            arguments = _arguments(options, loaded, case)
            request = Request(what.roots, place, loaded.path, arguments, scratch)
            yield compare_case(what, sampler_of(request), note)


def _cases(
    options: argparse.Namespace, place: Layout, head: Tree
) -> Sequence[tuple[Scenario, Case]]:
    """The cases as head has them, found from where its processes will stand."""
    folder = place.folder(head.folder)
    if not folder.is_dir():
        raise UsageError(f"head ({head.title}) has no folder {place.here}")
    options.scenario = place.scenario
    with contextlib.chdir(folder):
        return chosen_cases(options)


def _missing(
    options: argparse.Namespace, place: Layout, base: Tree, scenario: Scenario, case: Case
) -> str:
    """What base lacks of a case, empty if it has it."""
    path = place.folder(base.folder) / scenario.path
    if not path.is_file():
        return f"has no {scenario.path}, so there is nothing to compare with"
    try:
        others = load(path, overrides_of(options), case.arch).cases
    except ScenarioError as error:
        return f"has another {scenario.path}: {error.path}: {error.problem}"
    if any(other.axes == case.axes for other in others):
        return ""
    return f"has no case {case.label or 'without a matrix'} in {scenario.path}"


def _arguments(options: argparse.Namespace, scenario: Scenario, case: Case) -> tuple[str, ...]:
    """What `jitwarm warm` is told on both sides, beside the scenario."""
    arguments = [f"--device={options.device}"]
    if options.jobs is not None:
        arguments.append(f"--jobs={options.jobs}")
    arguments += [f"--set={assignment}" for assignment in options.set or ()]
    if len(scenario.cases) > 1:
        selector = ",".join(f"{name}={value}" for name, value in case.axes.items())
        if not scenario.matches(selector) or scenario.select((selector,)) != (case,):
            raise UsageError(f"{case.title}: no --case can name this case alone")
        arguments.append(f"--case={selector}")
    return tuple(arguments)


def _with_power(
    calibration: Calibration, about: Statement, pairs: Pairs, effect: float
) -> Iterator[Statement]:
    """The statement with what the calibration of this machine says about it, or with a remark
    behind it: why that says nothing. Neither changes the exit code.
    """
    count = len(pairs.base)
    row = calibration.row(count)
    differences = why_not(calibration, pairs.first_base, effect)
    if row is None:
        differences.append(f"it has no row for {count} pairs or fewer")
    if differences or row is None:
        yield about
        yield Statement(
            "NOT-COMPARABLE",
            OK,
            about.scenario,
            f"the calibration says nothing here: {differences[0]}",
            case=about.case,
            details=tuple(differences),
            advice="make power records a calibration of this machine",
        )
        return
    power = (
        f"calibrated: {row.pairs} pairs find +{row.smallest_found:.1%} with {POWER:.0%} power, "
        f"{row.false_alarms:.1%} false alarms, a pair spread by {calibration.pair_spread:.1%} "
        f"({calibration.scenario}, {calibration.recorded_at[:10]})"
    )
    yield msgspec.structs.replace(about, details=(*about.details, power))
