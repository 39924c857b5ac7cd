"""`jitwarm prove`: which keys every admitted launch needs, against the plan; compiles nothing."""

from __future__ import annotations

import argparse
from pathlib import Path

import msgspec

from jitwarm.amounts import counted
from jitwarm.commands.options import case_options
from jitwarm.commands.output import complain, show
from jitwarm.commands.selection import chosen_cases, for_each, settings_of
from jitwarm.harness import prove_case
from jitwarm.report.proof import proof_record, proof_text
from jitwarm.scenario import Case, Scenario
from jitwarm.tally import OK, RUN


def add_options(command: argparse.ArgumentParser) -> None:
    """Those of a case, where seconds are found, and what is asked of the verdicts."""
    case_options(command)
    add = command.add_argument
    add("--out", default="reports/out", help="where `run` wrote results: the seconds of a key")
    add(
        "--require", choices=("proved",), help="exit with 1 if a kernel is only searched or sampled"
    )


def prove(options: argparse.Namespace) -> int:
    """Prove the chosen cases, every rank of them."""

    def one(scenario: Scenario, case: Case) -> int | str:
        earlier = Path(options.out) / scenario.name / case.folder / "result.json"
        proved, planned = prove_case(case, settings_of(options), _key_seconds(earlier))
        record = proof_record(scenario, case, proved, planned)
        show(options, record, proof_text(record))
        if proved.warmed is None or proved.warmed.failed:
            return RUN
        if not record.proof:
            known = len(proved.warmed.rows)
            said = "no kernel is registered, launched or in an envelope"
            if known:
                said = f"no launch and no envelope shows a key of {counted(known, 'kernel')}"
            complain(f"{case.title}: {said}: nothing was proved")
            return RUN
        idle = [one for one in record.ranks if not one.launches]
        for one in idle:
            what = f"rank {one.rank} launched nothing in {counted(one.steps, 'step')}"
            complain(f"{case.title}: {what}: no miss there shows nothing")
        if idle:
            return RUN
        if record.findings:
            missing = any(kernel.missing for kernel in record.proof)
            return "with misses" if missing else "with findings"
        return "not proved" if options.require == "proved" and not record.is_proved else OK

    return for_each(options, chosen_cases(options), one)


class _Row(msgspec.Struct):
    kernel: str
    compiled: int
    seconds: float


class _Earlier(msgspec.Struct):
    kernels: list[_Row]


def _key_seconds(path: Path) -> dict[str, float]:
    """Seconds a key by kernel, from the result of an earlier run of the case; empty without one."""
    try:
        found = msgspec.json.decode(path.read_bytes(), type=_Earlier)
    except (OSError, msgspec.DecodeError):
        return {}
    return {row.kernel: row.seconds / row.compiled for row in found.kernels if row.compiled}
