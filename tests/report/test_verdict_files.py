"""A verdict on the terminal, as Markdown, annotations and JUnit, against golden files.

To write them anew: `python tests/report/test_verdict_files.py`.
"""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jitwarm.gate.verdict import Statement, conclude
from jitwarm.report.annotations import MOST, github_annotations
from jitwarm.report.junit import verdict_junit
from jitwarm.report.printable import printable, without_commands
from jitwarm.report.verdict import verdict_text
from jitwarm.report.verdict_markdown import MOST_BYTES, escaped, verdict_markdown

GOLDEN = Path(__file__).parent / "golden"
ACCEPT = "to accept: jitwarm check scenarios/pro.toml --quick --update"


def failed():
    """Everything that a verdict can hold, and what no terminal or parser should act on."""
    case, file = "seqs=256 arch=sm90", "scenarios/pro.toml"
    keys = tuple(f"+ Combine(top_k=1024, n={n}, name='a|b')" for n in range(14))
    return conclude(
        "check",
        "kernels",
        5,
        [
            Statement("SAME", 0, "pro", "10 keys, as expected", case, "PackSeq", file=file),
            Statement("KEYS", 1, "pro", "+14 keys: k=1024", case, "Combine", keys, ACCEPT, file),
            Statement("COUNT", 1, "pro", "points 6 -> 20", case, "Combine", (), ACCEPT, file),
            Statement(
                "MISS",
                1,
                "pro",
                "traffic needs 1 key that nobody planned: `x_ptr`: 100% \x1b[31mred\x1b[0m <b>",
                case,
                "Scale",
                ("! scale[x_ptr:*fp32/]{cuda:90} (ranks 1, 7)", "```\n::error::no command"),
                "Scale: declare an unaligned x_ptr",
                "scenarios/a,b:c.toml",
            ),
            Statement("SOAKING", 0, "pro", "-1 key (soaking: new)", case, "Young", ("- Young()",)),
            Statement("RUN-FAILED", 3, "mla", "the process of arm check ended with status -9"),
            Statement("NEW", 4, "flash", "has no expectation: 9 kernels", "seqs=1", "", (), ACCEPT),
        ],
    )  # fmt: skip


def passed():
    same = [Statement("SAME", 0, "pro", "as expected", "seqs=256", f"K{n}") for n in range(3)]
    return conclude("check", "kernels", 3, same)


def rendered(verdict):
    """By suffix of its golden file."""
    return {
        "txt": verdict_text(verdict) + "\n",
        "md": verdict_markdown(verdict),
        "annotations": "".join(f"{line}\n" for line in github_annotations(verdict)),
        "xml": verdict_junit(verdict).decode(),
    }


VERDICTS = {"failed": failed, "passed": passed}


@pytest.mark.parametrize("name", VERDICTS)
@pytest.mark.parametrize("suffix", ["txt", "md", "annotations", "xml"])
def test_golden(name, suffix):
    golden = GOLDEN / f"verdict-{name}.{suffix}"
    assert rendered(VERDICTS[name]())[suffix] == golden.read_text()


def test_first_lines_say_what_broke_and_by_how_much():
    one = Statement("KEYS", 1, "pro", "+6 keys: top_k=1024", "seqs=256", "Combine")
    verdict = conclude("check", "kernels", 9, [one, one])
    line = "failed: pro seqs=256 Combine: +6 keys: top_k=1024 (and 1 more)"
    assert verdict_text(verdict).splitlines()[0] == line
    assert verdict_markdown(verdict).splitlines()[0] == f"**{escaped(line)}**"


def test_nothing_compared_fails_in_every_form():
    found = rendered(conclude("check", "kernels", 0, []))
    assert found["txt"] == "broken: no kernels were compared\n"
    assert found["annotations"] == "::error title=jitwarm check::broken: no kernels were compared\n"
    root = ET.fromstring(found["xml"])
    assert root.attrib == {"name": "jitwarm check", "tests": "1", "failures": "0", "errors": "1"}


def many_of(count, code=1):
    kind = "KEYS" if code else "SOAKING"
    return [Statement(kind, code, "s", f"+{n} keys", "", f"K{n}") for n in range(count)]


@pytest.mark.parametrize(("count", "lines"), [(0, 0), (9, 9), (10, 10), (11, 10), (300, 10)])
def test_at_most_ten_annotations(count, lines):
    said = [*many_of(count), Statement("SAME", 0, "s", "as expected", "", "Same")]
    found = github_annotations(conclude("check", "kernels", count + 1, said))
    assert len(found) == lines <= MOST
    if count > MOST:
        assert found[-1] == (
            f"::error title=jitwarm check::and {count - 9} more: see the summary or the log of "
            "this step"
        )


def test_failures_come_before_remarks():
    verdict = conclude("check", "kernels", 12, [*many_of(12, code=0), *many_of(1)])
    found = github_annotations(verdict)
    assert found[0].startswith("::error ")
    assert all(line.startswith("::notice ") for line in found[1:])


def test_a_summary_fits_into_what_github_takes():
    details = tuple("k" * 200 for _ in range(200))
    said = [Statement("KEYS", 1, "s", "+200 keys", "", f"K{n}", details) for n in range(40)]
    text = verdict_markdown(conclude("check", "kernels", 40, said))
    assert MOST_BYTES - 50_000 < len(text.encode()) < MOST_BYTES + 200
    assert text.count("<details>") == text.count("</details>") == 12
    assert text.endswith("Details of 28 statements are left out here; --json has them.\n")


def test_a_text_of_many_pages_is_cut_in_a_summary():
    error = "|" * 900_000
    said = [Statement("RUN-FAILED", 3, "s", error, "", f"K{n}", ("d",), error) for n in range(99)]
    text = verdict_markdown(conclude("check", "kernels", 99, said))
    assert len(text.encode()) < MOST_BYTES + 200
    assert text.count("... (and 899000 more characters) |\n") == 99
    assert text.splitlines()[0].endswith("... (and 899028 more characters)**")


def test_no_line_of_a_log_is_a_command():
    lines = ["::error::x", "    ::add-mask::y", "a ::b", "##[group]z", "    + k(##[error])", "a::"]
    inert = [r"\::error::x", r"    \::add-mask::y", "a ::b", r"#\#[group]z", r"    + k(#\#[error])"]
    assert without_commands("\n".join(lines)).splitlines() == [*inert, "a::"]


def test_long_tables_and_details_are_cut():
    text = verdict_markdown(conclude("check", "kernels", 300, many_of(300)))
    assert text.count("| KEYS |") == 100
    assert "| | | | | and 200 more |" in text
    lines = verdict_text(failed()).splitlines()
    assert "    and 3 more" in lines
    assert sum(line.startswith("    + Combine") for line in lines) == 11


TEXTS = st.text(st.characters(codec=None), max_size=30)
STATEMENTS = st.builds(
    Statement,
    st.sampled_from(["KEYS", "SAME", "SOAKING"]),
    st.sampled_from([0, 1, 3, 4]),
    *[TEXTS] * 4,
    st.lists(TEXTS, max_size=3).map(tuple),
    TEXTS,
    TEXTS,
)


@given(st.lists(STATEMENTS, max_size=13))
def test_any_text_is_valid_xml_and_no_test_is_lost(said):
    verdict = conclude("check", "kernels", len(said), said)
    root = ET.fromstring(verdict_junit(verdict))
    tests = root.findall(".//testcase")
    subjects = {(one.scenario, one.case, one.kernel) for one in said}
    assert len(tests) == int(root.get("tests")) == (len(subjects) or 1)
    failing = {(one.scenario, one.case, one.kernel) for one in verdict.failing}
    wrong = int(root.get("failures")) + int(root.get("errors"))
    assert wrong == (len(failing) or (verdict.code != 0))
    assert sum(int(suite.get("tests")) for suite in root) == len(tests)


@given(st.lists(STATEMENTS, max_size=13))
def test_any_text_is_one_workflow_command_a_line(said):
    found = github_annotations(conclude("check", "kernels", 20, said))
    assert len(found) <= MOST
    for line in found:
        assert not re.search("[\x00-\x1f]", line)
        head = re.fullmatch(r"::(error|notice) (file=[^:,]*,)?title=[^:,]*::.*", line)
        assert head, line
        line.encode()


@given(st.lists(STATEMENTS, max_size=6))
def test_any_text_stays_in_its_line_and_cell(said):
    verdict = conclude("check", "kernels", 20, said)
    verdict_text(verdict).encode()
    text = verdict_markdown(verdict)
    text.encode()
    shown = sum(one.kind != "SAME" for one in said)
    rows = [line for line in text.splitlines() if line.startswith("| ") and "**" not in line]
    assert len(rows) >= shown
    for row in rows[:shown]:
        assert len(re.findall(r"(?<!\\)(?:\\\\)*\|", row)) == 6


@given(TEXTS)
def test_printable_text_is_itself_and_the_rest_is_escaped(text):
    found = printable(text)
    assert printable(found) == found
    assert found == text or not text.isprintable() or re.search("[\u2066\ufffe\ud800]", text)
    assert not re.search("[\x00-\x1f\x7f-\x9f\u202e\ud800-\udfff]", found)


if __name__ == "__main__":
    for name, make in VERDICTS.items():
        for suffix, text in rendered(make()).items():
            (GOLDEN / f"verdict-{name}.{suffix}").write_text(text)
