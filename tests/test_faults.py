"""Every fault of tests/faults is found, with its field, and every twin is silent; the runner tells
what differs, what is broken and what is missing.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from jitwarm.errors import FaultError
from jitwarm.faults import Expected, Fault, event
from jitwarm.faults.files import find, load
from jitwarm.faults.match import compare, matches
from jitwarm.faults.run import details, examined, faults_table, run_faults
from jitwarm.findings import Finding
from jitwarm.judge.stores import FolderStore

HERE = Path(__file__).parent
ROOT = HERE.parent
FAULTS = HERE / "faults"
# The public faults: family and number, as the files are called.
ROWS = (
    *("a1", "a3", "a4", "a6", "a7", "a9", "a10", "a11", "a12", "a14"),
    *("b1", "b2", "b4", "b5", "b7", "b9", "b12"),
    *("c1", "c3", "c5", "c7", "c8"),
    *("d1", "d4", "d10", "d12", "d13"),
    *("e1", "e4", "f1", "f4", "f10"),
)
pytestmark = pytest.mark.triton


@pytest.fixture(scope="module")
def files():
    """Every fault file, run once."""
    return {Path(one.path).stem: one for one in examined(find([FAULTS]))}


def test_every_fault_is_found_and_every_twin_is_silent(files):
    assert not list(details(files.values())), faults_table(files.values())
    assert {one.verdict for file in files.values() for one in file.faults} == {"ok"}


def test_every_row_has_a_file_and_a_file_has_both(files):
    own = [path.stem for path in FAULTS.glob("*.py")]
    assert sorted(stem.partition("_")[0] for stem in own) == sorted(ROWS)
    for file in files.values():
        assert not file.lacks
        assert sum(not one.expected for one in file.faults) >= 1
        assert sum(bool(one.expected) for one in file.faults) >= 1


@pytest.mark.parametrize("stem", [path.stem for path in sorted(FAULTS.rglob("*.py"))])
def test_an_expected_finding_names_what_it_is_about(files, stem):
    """A kind alone would accept the right finding of the wrong thing."""
    for fault in files[stem].faults:
        named = {
            one.kind
            for one in fault.expected
            if {one.field, one.kernel, one.smallest, one.message} != {None}
        }
        assert named == {one.kind for one in fault.expected}


def test_there_are_variations_of_at_least_ten_kinds():
    rows = {path.stem.partition("_")[0] for path in (FAULTS / "variations").glob("*.py")}
    assert len(rows) >= 10
    assert rows <= set(ROWS)


WRONG = """
from jitwarm.faults import Expected, Fault, event

KEY = "attention[heads=64]"
EVENTS = [event("compile", KEY, phase="warm"), event("compile", "attention[heads=128]")]
FIELD = Fault("another field", events=EVENTS, expected=[Expected("MISS", field="rows")])
KIND = Fault("another kind", events=EVENTS, expected=[Expected("DUP")])
COUNT = Fault("two of them", events=EVENTS, expected=[Expected("MISS", field="heads", count=2)])
TOO_MUCH = Fault("two findings, one expected", events=[*EVENTS, event("tune", "tuned[n=1]{tune}")],
                 expected=[Expected("MISS", field="heads", warmed="64", seen="128")])
SILENT = Fault("a twin that is no twin", events=EVENTS)
RIGHT = Fault("one of them is right", events=EVENTS, expected=[Expected("MISS", field="heads")])
"""
BROKEN = {
    "syntax.py": ("FAULT = Fault(", r"syntax\.py:1: SyntaxError: "),
    "raises.py": ("import os\n\nos.nothing()\n", r"raises\.py:3: AttributeError: .*nothing"),
    "empty.py": ("TITLE = 'none'\n", r"empty\.py: no Fault at the top level"),
    "kind.py": (
        "from jitwarm.faults import Expected\n\nExpected('MISSED')\n",
        r"kind\.py: Expected\('MISSED'\): no such kind; use MISS, UNREACHED",
    ),
    "title.py": (
        "from jitwarm.faults import Fault\n\nFAULT = Fault(3, kernel=7, launches=5)\n",
        r"title\.py: Fault\(3\): its title is a int; give a text",
    ),
    "field.py": (
        "from jitwarm.faults import Expected\n\nExpected('MISS', field=3)\n",
        r"field\.py: Expected\('MISS'\): field is 3; findings have texts there",
    ),
    "nothing.py": (
        "from jitwarm.faults import Fault\n\nFAULT = Fault('air')\n",
        r"nothing\.py: Fault\('air'\): there is nothing to judge",
    ),
}
LONELY = """
from jitwarm.faults import Expected, Fault, event

TWICE = [event("compile", "a[b=1]", phase="warm")] * 2
FAULT = Fault("alone", events=TWICE, expected=[Expected("DUP", kernel="a")])
"""
DIES = """
import os

from jitwarm.faults import Expected, Fault

DIES = Fault("ends its process", launches=lambda: os._exit(7))
RAISES = Fault("raises", launches=lambda: 1 / 0)
LEFT = Fault("has no warm-up", kernel=None, launches=lambda: None)
WRITTEN = Fault("launches of nothing", launches=[{"n": 1}])
"""


@pytest.fixture(scope="module")
def odd(tmp_path_factory):
    """Files with mistakes of their own, run once; one that is right among them."""
    folder = tmp_path_factory.mktemp("odd")
    texts = {name: text for name, (text, _) in BROKEN.items()}
    texts |= {"wrong.py": WRONG, "lonely.py": LONELY, "dies.py": DIES}
    for name, text in texts.items():
        (folder / name).write_text(text)
    paths = [folder / name for name in texts] + [folder / "not_there.py"]
    return {Path(one.path).name: one for one in examined(paths)}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_file_gives_one_line_and_the_others_go_on(odd, name):
    (line,) = details([odd[name]])
    assert re.search(BROKEN[name][1], line), line
    assert "\n" not in line
    assert "broken" in faults_table([odd[name]])
    assert odd["wrong.py"].faults


def test_the_line_of_a_mistake_is_told_of_a_relative_path_too(tmp_path, monkeypatch):
    (tmp_path / "raises_here.py").write_text(BROKEN["raises.py"][0])
    monkeypatch.chdir(tmp_path)
    with pytest.raises(FaultError, match=r"^raises_here\.py:3: AttributeError: "):
        load(Path("raises_here.py"))


def test_a_file_that_is_not_there(odd):
    assert odd["not_there.py"].problem.endswith("not_there.py: there is no such file")


def test_a_wrong_expectation_differs(odd):
    verdicts = {one.name: one.verdict for one in odd["wrong.py"].faults}
    right = verdicts.pop("RIGHT")
    assert right == "ok"
    assert set(verdicts.values()) == {"differs"}
    lines = "\n".join(details([odd["wrong.py"]]))
    assert "FIELD: expected, and not found: MISS(field='rows')" in lines
    assert "KIND: expected, and not found: DUP" in lines
    assert "COUNT: expected, and not found: MISS(field='heads', count=2): 1 came" in lines
    assert "TOO_MUCH: found, and not expected: AUTOTUNE" in lines
    assert "SILENT: found, and not expected: MISS(field='heads', warmed='64', seen='128')" in lines


def test_a_missing_twin_is_told(odd):
    lonely = odd["lonely.py"]
    assert lonely.faults[0].verdict == "ok"
    (line,) = details([lonely])
    assert line.endswith("no twin: add the same scenario without its mistake, which expects no "
                         "finding")  # fmt: skip
    assert "ok, no twin" in faults_table([lonely])


def test_a_fault_that_cannot_be_run_costs_only_itself(odd):
    problems = {one.name: one.problem for one in odd["dies.py"].faults}
    assert problems["DIES"] == "its process ended with status 7 and no answer"
    assert problems["RAISES"] == "ZeroDivisionError: division by zero"
    assert problems["LEFT"] == ""
    assert "FaultError" in problems["WRITTEN"] and "need a kernel" in problems["WRITTEN"]


HANGS = """
import time

from jitwarm.faults import Fault

HANGS = Fault("never ends", launches=lambda: time.sleep(600))
SHORT = Fault("ends", launches=lambda: None)
"""


def test_a_fault_that_never_ends_is_ended(tmp_path):
    (tmp_path / "hangs.py").write_text(HANGS)
    (file,) = examined([tmp_path / "hangs.py"], limit_s=5)
    assert [one.problem for one in file.faults] == ["it did not end within 5 s", ""]


def test_the_command_prints_one_table_and_its_exit_code(tmp_path, capsys):
    for name, text in (("lonely.py", LONELY), ("empty.py", "")):
        (tmp_path / name).write_text(text)
    assert run_faults([tmp_path / "lonely.py"]) == 0
    printed = capsys.readouterr().out.splitlines()
    assert printed[0].split() == ["file", "fault", "expected", "found", "verdict"]
    assert printed[1].split()[:4] == ["lonely.py", "FAULT", "DUP", "DUP"]
    assert printed[-1] == "1 fault: 1 ok, 0 differs, 0 broken"
    assert run_faults([tmp_path], as_json=True) == 2
    empty, lonely = map(json.loads, capsys.readouterr().out.splitlines())
    assert "no Fault at the top level" in empty["problem"]
    assert lonely["faults"][0]["found"][0]["kind"] == "DUP"


def test_a_folder_stands_for_its_files(tmp_path):
    (tmp_path / "deeper").mkdir()
    (tmp_path / "nothing").mkdir()
    for name in ("b.py", "a.py", "deeper/c.py", "note.txt", "__init__.py"):
        (tmp_path / name).write_text("")
    names = [path.name for path in find([tmp_path, tmp_path / "a.py"])]
    assert names == ["a.py", "b.py", "c.py"]
    with pytest.raises(FaultError, match="no fault file was named"):
        find([])
    with pytest.raises(FaultError, match="no fault file"):
        find([tmp_path / "nothing"])


def test_faults_in_a_list_are_found(tmp_path):
    path = tmp_path / "several.py"
    path.write_text(
        "from jitwarm.faults import Fault, event\n\n"
        "ALL = [Fault(str(n), events=[event('load', 'a[b=1]', phase='warm')]) for n in range(2)]\n"
    )
    assert [name for name, _ in load(path)] == ["ALL[0]", "ALL[1]"]


FOUND = Finding("MISS", "pkg.module._kernel", "text", "n, m", "i32/D, i32/", "i64/D, i32/D")


@pytest.mark.parametrize(
    ("expected", "fits"),
    [
        (Expected("MISS"), True),
        (Expected("DUP"), False),
        (Expected("MISS", field="n, m"), True),
        (Expected("MISS", field="n"), False),
        (Expected("MISS", warmed="i32/D, i32/"), True),
        (Expected("MISS", warmed="i32"), False),
        (Expected("MISS", kernel="_kernel"), True),
        (Expected("MISS", kernel="kernel"), False),
        (Expected("MISS", message="ex"), True),
        (Expected("MISS", smallest="n=1"), False),
    ],
)
def test_what_an_expectation_compares(expected, fits):
    assert matches(expected, FOUND) is fits


@pytest.mark.parametrize(
    ("value", "given", "same"),
    [
        ("i32/D", "D", True),
        ("i32/D", "i32", True),
        ("i32/", "", True),
        ("i32/D", "", False),
        ("i32", "i32", True),
        ("i32", "", False),
        ("i64/1", "1", True),
        ("constexpr=1", "1", False),
        ("(i32/D, i32/)", "(i32", False),
    ],
)
def test_half_of_a_class_will_do(value, given, same):
    finding = Finding("MISS", "k", "text", "n", warmed=value)
    assert matches(Expected("MISS", warmed=given), finding) is same


def test_an_expectation_may_match_several_findings_unless_it_counts():
    two = [Finding("MISS", "k", "text", "n", seen=text) for text in ("a", "b")]
    assert not compare([Expected("MISS", field="n")], two)
    assert compare([Expected("MISS", field="n", count=1)], two).missing == (
        "MISS(field='n', count=1): 2 came",
    )
    assert compare([Expected("MISS", seen="a")], two).unexpected == (two[1],)


@pytest.mark.parametrize(
    "arguments",
    [
        {"declared": []},
        {"events": [event("load", "a[b=1]")], "expected": ["MISS"]},
        {"launches": print, "depth": "launched"},
        {"launches": print, "processes": 0},
        {"expected": [Expected("MISS")]},
    ],
)
def test_a_fault_that_makes_no_sense_is_refused(arguments):
    with pytest.raises(FaultError):
        Fault("title", **arguments)


class Vanishing(FolderStore):
    """Shows nothing that was moved."""

    def move(self, source, target):
        (self.folder / source).unlink()


class Dying(FolderStore):
    """Ends the process that writes."""

    def write(self, name, data):
        import os

        os._exit(3)


def test_a_store_that_loses_entries_and_one_that_kills(fresh_process):
    text = (
        "import tempfile\nfrom pathlib import Path\n"
        "from jitwarm.judge.stores import check_store\n"
        "from test_faults import Dying, Vanishing\n"
        "for kind in (Vanishing, Dying):\n"
        "    with tempfile.TemporaryDirectory() as folder:\n"
        "        for one in check_store(kind, Path(folder)):\n"
        "            print(one.kind, one.kernel, one.field, one.seen, sep='|')\n"
    )
    lines = fresh_process(text, path=[HERE]).splitlines()
    assert "STORE-UNSAFE|Vanishing|read|FileNotFoundError" in lines
    assert "STORE-UNSAFE|Dying|store|its process ended with status 3 and no answer" in lines


def test_the_document_shows_a_fault_that_runs(tmp_path):
    blocks = re.findall(
        r"```python\n(.*?)```", (ROOT / "docs" / "faults.md").read_text(), re.DOTALL
    )
    whole = [text for text in blocks if "TWIN" in text]
    assert whole
    for number, text in enumerate(whole):
        (tmp_path / f"example_{number}.py").write_text(text)
    results = examined(find([tmp_path]))
    assert [file.problem or file.lacks for file in results] == [""] * len(whole)
    assert not list(details(results))
