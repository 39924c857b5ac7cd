"""A verdict as JUnit XML: a scenario is a suite, a kernel of a case is a test."""

from __future__ import annotations

from collections.abc import Sequence
from xml.etree import ElementTree as ET

from jitwarm.gate.verdict import Statement, Verdict
from jitwarm.report.printable import printable
from jitwarm.tally import GATE, worst


def verdict_junit(verdict: Verdict) -> bytes:
    """The whole document. A test has one failure (the gate's) or one error (anything else's), with
    everything that was said of it in its text; remarks are its output.
    """
    suites: dict[str, dict[tuple[str, str], list[Statement]]] = {}
    for one in verdict.statements:
        suites.setdefault(one.scenario, {}).setdefault((one.case, one.kernel), []).append(one)
    root = ET.Element("testsuites", name=f"jitwarm {verdict.command}")
    for scenario, tests in suites.items():
        suite = ET.SubElement(root, "testsuite", name=printable(scenario) or verdict.command)
        for (case, kernel), said in tests.items():
            _test(suite, verdict, scenario, case, kernel, said)
    if verdict.code and not verdict.failing:
        # Nothing was compared, so no statement says why this is no pass.
        suite = ET.SubElement(root, "testsuite", name=verdict.command)
        test = ET.SubElement(suite, "testcase", classname="jitwarm", name=verdict.command)
        ET.SubElement(test, "error", message=printable(verdict.headline), type="RUN-FAILED")
    for place in [*root, root]:
        place.set("tests", str(len(place.findall(".//testcase"))))
        place.set("failures", str(len(place.findall(".//failure"))))
        place.set("errors", str(len(place.findall(".//error"))))
    ET.indent(root, " ")
    return bytes(ET.tostring(root, encoding="utf-8", xml_declaration=True)) + b"\n"


def _test(
    suite: ET.Element,
    verdict: Verdict,
    scenario: str,
    case: str,
    kernel: str,
    said: Sequence[Statement],
) -> None:
    place = printable(" ".join(part for part in (scenario, case) if part))
    name = printable(kernel or case) or verdict.command
    test = ET.SubElement(suite, "testcase", classname=place, name=name)
    failing = [one for one in said if one.code]
    if failing:
        kind = "failure" if worst(one.code for one in failing) == GATE else "error"
        found = ET.SubElement(test, kind, message=printable(failing[0].text), type=failing[0].kind)
        found.text = "\n".join(line for one in failing for line in _lines(one))
    remarks = [one for one in said if not one.code and one.kind != "SAME"]
    if remarks:
        output = ET.SubElement(test, "system-out")
        output.text = "\n".join(line for one in remarks for line in _lines(one))


def _lines(statement: Statement) -> list[str]:
    lines = [f"{statement.kind} {statement.text}", *statement.details]
    return [printable(line) for line in [*lines, *([statement.advice] * bool(statement.advice))]]
