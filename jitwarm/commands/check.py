"""`jitwarm check`: plans against reviewed expectations; compiles nothing."""

from __future__ import annotations

import argparse
import os
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import msgspec

from jitwarm.amounts import counted
from jitwarm.commands.options import choice_options, gate_options, positive, scenario_options
from jitwarm.commands.output import note
from jitwarm.commands.publish import check_publishable, check_writable_file, publish
from jitwarm.commands.selection import chosen_cases, settings_of
from jitwarm.errors import RunError, StoredFileError, UsageError
from jitwarm.gate import expectation
from jitwarm.gate.check_case import CheckedCase, Outcome, check_case
from jitwarm.gate.expectation import Expectation, case_name
from jitwarm.gate.judge_counts import Place
from jitwarm.gate.judge_replay import replayed_text
from jitwarm.gate.lost import lost_scenarios
from jitwarm.gate.project import expected_folder, in_project, project_of, shown, text_of
from jitwarm.gate.verdict import Statement, Verdict, conclude
from jitwarm.harness import check_cases
from jitwarm.scenario import Case, Scenario
from jitwarm.tally import BASELINE, GATE, OK

STEPS = 100
# A process takes some 500 MB, so more of them at once are asked for with --jobs.
MOST_AT_ONCE = 8
# What `--update` takes for the new expectation.
ACCEPTED = ("KEYS", "COUNT", "MISSING-ROW", "NEW", "NOT-COMPARABLE", "SOAKING")


@dataclass(slots=True)
class _File:
    """One scenario's expectation: where it is, what it holds, or why that is unknown."""

    scenario: Scenario
    path: Path
    cases: list[Case] = field(default_factory=list)
    stored: Expectation | None = None
    problem: str = ""

    def read(self) -> None:
        """Read it. A file that is not there is no problem for `--update`."""
        try:
            self.stored = expectation.read(self.path, self.scenario.name)
        except StoredFileError as error:
            self.problem = f"{shown(self.path)}: {error.problem}"

    @property
    def is_broken(self) -> bool:
        """Whether there is a file, and it must not be overwritten."""
        return bool(self.problem) and os.path.lexists(self.path)

    @property
    def gone(self) -> list[str]:
        """The cases of the file that the scenario no longer has."""
        known = {case_name(case.label) for case in self.scenario.cases}
        return [name for name in (self.stored.cases if self.stored else ()) if name not in known]


def add_options(command: argparse.ArgumentParser) -> None:
    """Which cases, what is expected, what is looked at, and where the verdict goes."""
    scenario_options(command)
    choice_options(command)
    add = command.add_argument
    add("--expected", metavar="DIR", help="default: reports/expected of the scenario's project")
    add("--update", action="store_true", help="make what is planned now the expectation")
    add("--no-replay", action="store_true", help="plans only: do not look for keys that miss")
    add("--steps", type=positive, help=f"steps of the replay (default: at most {STEPS})")
    # Keys are the same with and without a GPU; so every machine checks every architecture.
    add("--device", choices=("stub", "cuda", "auto"), default="stub", help="default stub: no GPU")
    add("--jobs", type=positive, help="processes at once (default: one a core, at most 8)")
    gate_options(command)


def check(options: argparse.Namespace) -> int:
    """Check the chosen cases, or make their plans the expectation."""
    if options.update and options.set:
        raise UsageError(
            "--update with --set: an expectation is that of the scenario file as it is; change "
            "the file"
        )
    files = _files(options)
    used = [path for file in files for path in (file.path, Path(file.scenario.path))]
    check_publishable(options, used)
    cases = [case for file in files for case in file.cases]
    steps = 0 if options.no_replay else options.steps or STEPS
    at_once = options.jobs or min(os.cpu_count() or 1, MOST_AT_ONCE)
    outcomes = iter(check_cases(cases, settings_of(options), steps, at_once, note))
    checked = [(file, [_checked(options, file, case, next(outcomes)) for case in file.cases])
               for file in files]  # fmt: skip
    statements = [one for file, cases in checked for one in _said(options, file, cases)]
    compared = sum(one.compared for _, ones in checked for one in ones)
    if options.update:
        verdict = _updated(checked, statements)
    else:
        statements += _lost(options, files)
        verdict = conclude("check", "kernels", compared, statements)
    replays = {
        f"{file.scenario.name} {case.label}".strip(): one.replays
        for file, ones in checked
        for case, one in zip(file.cases, ones, strict=True)
    }
    return publish(options, msgspec.structs.replace(verdict, replayed=replayed_text(replays)))


def _files(options: argparse.Namespace) -> list[_File]:
    """The scenarios of the chosen cases, with their expectations read."""
    files: dict[str, _File] = {}
    for scenario, case in chosen_cases(options):
        if scenario.path not in files:
            folder = options.expected or expected_folder(Path(scenario.path))
            file = _File(scenario, Path(folder) / f"{scenario.name}.json")
            file.read()
            if options.update:
                check_writable_file("expected", file.path)
            files[scenario.path] = file
        files[scenario.path].cases.append(case)
    return list(files.values())


def _checked(
    options: argparse.Namespace, file: _File, case: Case, outcome: tuple[Outcome, Outcome]
) -> CheckedCase:
    rows = file.stored.cases.get(case_name(case.label)) if file.stored else None
    enabled = case.warmup.enable_jit_warmup
    return check_case(_place(options, file, case.label), rows, *outcome, enabled=enabled)


def _place(options: argparse.Namespace, file: _File, label: str) -> Place:
    path = Path(file.scenario.path)
    advice = "" if options.update or options.set else f"to accept: {_command(options, file)}"
    return Place(file.scenario.name, label, in_project(path), advice)


def _command(options: argparse.Namespace, file: _File) -> str:
    """The command that makes what is planned now the expectation of this scenario."""
    words = ["jitwarm", "check", shown(Path(file.scenario.path))]
    for selector in options.case or ():
        if file.scenario.matches(selector):
            words += ["--case", selector]
    words += ["--quick"] * (options.quick and not options.case)
    words += ["--expected", options.expected] if options.expected else []
    words += ["--device", options.device] if options.device != "stub" else []
    return shlex.join([*words, "--update"])


def _said(
    options: argparse.Namespace, file: _File, cases: Sequence[CheckedCase]
) -> Iterable[Statement]:
    """What is said of a scenario: of its file first, of its cases, of cases that are gone.

    Nobody is told to accept what an update would not write, or not turn into a pass.
    """
    place = _place(options, file, "")
    said = [one for case in cases for one in case.statements]
    if file.is_broken or (file.problem and not options.update):
        # That no case of it has an expectation goes without saying.
        said = [one for one in said if not (one.kind == "NEW" and one.code == BASELINE)]
        advice = "" if file.is_broken else place.advice
        statement = place.say("NOT-COMPARABLE", BASELINE, file.problem)
        said.append(msgspec.structs.replace(statement, advice=advice))
    for name in file.gone if not options.set else ():
        text = "is a case of the expectation, and no longer one of the scenario"
        said.append(replace(place, case=name).say("MISSING-ROW", GATE, text))
    lasting = any(one.code and one.kind not in ACCEPTED for one in said)
    if lasting or any(case.plan is None for case in cases):
        mended = msgspec.structs.replace
        said = [mended(one, advice="") if one.advice == place.advice else one for one in said]
    return said


def _lost(options: argparse.Namespace, files: Sequence[_File]) -> Iterable[Statement]:
    """Expectations without a scenario; whoever asks for one scenario does not ask for others."""
    if options.expected or not Path(options.scenario).is_dir():
        return
    known = {file.scenario.name for file in files}
    places = {file.path.parent: project_of(Path(file.scenario.path)) for file in files}
    for folder, project in places.items():
        for path in lost_scenarios(folder, known, project):
            text = "has an expectation, and no scenario of the project has this name"
            advice = f"if the scenario is meant to be gone: git rm {shlex.quote(shown(path))}"
            yield Statement("MISSING-ROW", GATE, path.stem, text, advice=advice,
                            file=text_of(path.relative_to(project)))  # fmt: skip


def _updated(
    checked: Sequence[tuple[_File, list[CheckedCase]]], statements: Sequence[Statement]
) -> Verdict:
    """Write the plans, if every one of them may be written; says what changed."""
    plans = [one.plan for _, ones in checked for one in ones]
    if None in plans or any(file.is_broken for file, _ in checked):
        note("nothing was written: it takes sound files, and plans of every chosen case")
        return conclude("check", "kernels", 0, statements)
    written: list[str] = []
    for file, ones in checked:
        stored = _with_plans(file, ones)
        if stored != file.stored:
            _write(file.path, stored, written)
            written.append(shown(file.path))
            note(f"wrote {written[-1]}")
    accepted = [_accepted(one) if one.kind in ACCEPTED else one for one in statements]
    count = sum(len(plan.kernels) for plan in plans if plan is not None)
    verdict = conclude("check", "kernels", count, accepted)
    if verdict.code or not written:
        return verdict
    changes = [one.line for one in verdict.statements if one.kind != "SAME"]
    more = f" (and {len(changes) - 1} more)" if len(changes) > 1 else ""
    headline = (
        f"updated {counted(len(written), 'file')}: {changes[0] if changes else written[0]}{more}"
    )
    return msgspec.structs.replace(verdict, headline=headline)


def _write(path: Path, stored: Expectation, before: Sequence[str]) -> None:
    try:
        expectation.write(path, stored)
    except OSError as error:
        wrote = f" (written before: {', '.join(before)})" if before else ""
        raise RunError(f"{shown(path)} cannot be written: {error.strerror}{wrote}") from error


def _accepted(statement: Statement) -> Statement:
    text = statement.text.replace("has no expectation", "is new in the expectation", 1)
    return msgspec.structs.replace(statement, code=OK, text=text)


def _with_plans(file: _File, checked: Sequence[CheckedCase]) -> Expectation:
    """The expectation with the plans of these cases, in the order of the scenario's cases; rows of
    other cases stay, those of cases that are gone do not.
    """
    cases = dict(file.stored.cases) if file.stored else {}
    for case, one in zip(file.cases, checked, strict=True):
        name = case_name(case.label)
        assert one.plan is not None  # the caller has looked
        cases[name] = expectation.rows_of(one.plan, cases.get(name))
    order = [case_name(case.label) for case in file.scenario.cases]
    rows = {name: cases[name] for name in order if name in cases}
    return Expectation(expectation.SCHEMA, file.scenario.name, rows)
