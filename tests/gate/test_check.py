"""`jitwarm check`: what it concludes of the answers of its processes, which are made up here."""

from __future__ import annotations

import errno
import json
import shlex
import subprocess

import msgspec
import pytest

from jitwarm import atomic, cli
from jitwarm.commands import check as command
from jitwarm.errors import ArmFailed, WorkerError
from jitwarm.judge.planned import Planned
from made_plans import answer, key, miss, replayed

SCENARIO = """
schema = 1
name = "own"
model = "json:loads"
quick = ["dcp=1"]
matrix = { dcp = [1, 2] }
parallel = { tp = 2, dcp = "{dcp}" }
traffic = { steps = 60 }
"""


def scale(*numbers):
    return {"Scale": [key("Scale", n=n) for n in numbers]}


def shift(*numbers):
    return {"Shift": [key("Shift", by=n) for n in numbers]}


BASE = scale(1, 2) | shift(7)


class Project:
    """A scenario with two cases, dcp=1 and dcp=2, whose processes answer what `plans` says."""

    def __init__(self, folder, monkeypatch, capsys):
        self.folder, self.capsys = folder, capsys
        self.scenario = folder / "scenarios" / "own.toml"
        self.scenario.parent.mkdir()
        self.scenario.write_text(SCENARIO)
        self.file = folder / "reports" / "expected" / "own.json"
        self.asked = []
        self.reset()
        monkeypatch.chdir(folder)
        monkeypatch.setattr(command, "check_cases", self.check_cases)

    def reset(self):
        """Both cases as in `BASE` again."""
        self.outcomes = {}
        for world in (1, 2):
            self.plan(world, *[BASE] * world)

    def plan(self, world, *ranks, other=None, second=None, **more):
        """What the case dcp=world plans at its ranks, and its second process at the same."""
        replays = more.pop("replays", [replayed()])
        first = answer(dict(enumerate(ranks)), replays=replays, **more)
        if second is None:
            kernels = dict(enumerate(other or ranks))
            second = answer(dict(reversed(kernels.items())), **more)
        self.outcomes[world] = (first, second)

    def check_cases(self, cases, settings, steps, at_once, note):
        self.asked.append(([case.label for case in cases], steps, settings.device))
        return [self.outcomes[case.parallel.dcp] for case in cases]

    def check(self, *arguments):
        """Exit code and verdict."""
        code = cli.main(["check", "scenarios/own.toml", *arguments, "--json"])
        out, self.err = self.capsys.readouterr()
        verdict = json.loads(out)
        assert verdict["code"] == code
        return code, verdict

    def said(self, *arguments):
        """Exit code and the statements that are not SAME, as (kind, code, line)."""
        code, verdict = self.check(*arguments)
        return code, [
            (one["kind"], one["code"], f"{one.get('case', '')} {one.get('kernel', '')}".strip()
             + f": {one['text']}")
            for one in verdict["statements"] if one["kind"] != "SAME"
        ]  # fmt: skip

    def expect(self):
        """Make what is planned the expectation."""
        code, verdict = self.check("--update")
        assert code == 0
        return verdict

    def edit(self, change):
        document = json.loads(self.file.read_text())
        change(document)
        self.file.write_text(json.dumps(document))


@pytest.fixture
def project(tmp_path, monkeypatch, capsys):
    return Project(tmp_path, monkeypatch, capsys)


@pytest.fixture
def expected(project):
    project.expect()
    return project


def test_without_a_file_there_is_nothing_to_compare_with(project):
    code, verdict = project.check()
    (statement,) = verdict["statements"]
    assert code == 4
    assert verdict["headline"] == (
        "not comparable: own: reports/expected/own.json: there is no such file of expectations"
    )
    assert statement["advice"] == "to accept: jitwarm check scenarios/own.toml --update"
    assert not project.file.exists()


def test_an_update_says_what_is_new_and_then_everything_is_as_expected(project):
    verdict = project.expect()
    assert verdict["headline"] == (
        "updated 1 file: own dcp=1: is new in the expectation: 2 kernels, 3 keys (and 1 more)"
    )
    assert project.err == "wrote reports/expected/own.json\n"
    code, verdict = project.check()
    assert (code, verdict["headline"]) == (0, "ok: 4 kernels as expected")
    assert [one["text"] for one in verdict["statements"]] == [
        "2 keys, as expected",
        "1 key, as expected",
    ] * 2
    before = project.file.stat().st_mtime_ns
    assert project.expect()["headline"] == "ok: 4 kernels as expected"
    assert project.file.stat().st_mtime_ns == before


def test_what_the_processes_are_asked(expected):
    expected.check()
    expected.check("--quick")
    expected.check("--case", "dcp=2", "--steps", "7")
    expected.check("--no-replay")
    assert expected.asked[1:] == [
        (["dcp=1", "dcp=2"], 100, "stub"),
        (["dcp=1"], 100, "stub"),
        (["dcp=2"], 7, "stub"),
        (["dcp=1", "dcp=2"], 0, "stub"),
    ]


def test_keys_gained_and_lost(expected):
    expected.plan(1, scale(1, 2, 3) | shift(8))
    code, verdict = expected.check()
    assert code == 1
    assert verdict["headline"] == "failed: own dcp=1 Scale: +1 key: n=3 (and 2 more)"
    scaled, counted, shifted = [one for one in verdict["statements"] if one["code"]]
    assert scaled == {
        "kind": "KEYS",
        "code": 1,
        "scenario": "own",
        "text": "+1 key: n=3",
        "case": "dcp=1",
        "kernel": "Scale",
        "details": ["+ Scale(n=3)"],
        "advice": "to accept: jitwarm check scenarios/own.toml --update",
        "file": "scenarios/own.toml",
    }
    assert counted["kind"] == "COUNT"
    assert counted["text"] == "points 2 -> 3, binaries 2 -> 3"
    assert (shifted["kind"], shifted["text"]) == ("KEYS", "+1 key: by=8; -1 key: by=7")
    assert shifted["details"] == ["+ Shift(by=8)", "- Shift(by=7)"]


def test_counts_alone(expected):
    expected.plan(1, BASE, registrations=6, layers=3)
    assert expected.said("--quick") == (
        1,
        [
            ("COUNT", 1, "dcp=1: layers 2 -> 3"),
            ("COUNT", 1, "dcp=1 Scale: registrations 4 -> 6"),
            ("COUNT", 1, "dcp=1 Shift: registrations 4 -> 6"),
        ],
    )
    expected.plan(1, BASE, points=9)
    _, said = expected.said("--quick")
    assert [text for *_, text in said] == [
        "dcp=1 Scale: points 2 -> 9",
        "dcp=1 Shift: points 1 -> 9",
    ]


def test_other_binaries_for_the_same_declared_keys(expected):
    expected.plan(1, BASE, salt="{num_warps=8}")
    code, verdict = expected.check("--case", "dcp=1")
    scaled = next(one for one in verdict["statements"] if one.get("kernel") == "Scale")
    assert code == 1
    assert scaled["text"] == (
        "other binaries for the same 2 declared keys: arguments, options or target differ"
    )
    assert scaled["details"] == [
        "now kernels.scale[n=1]{sm90}{num_warps=8}",
        "now kernels.scale[n=2]{sm90}{num_warps=8}",
    ]


def test_a_key_set_of_one_rank_changes(expected):
    expected.plan(2, BASE, scale(1, 5) | shift(7))
    assert expected.said() == (
        1,
        [("KEYS", 1, "dcp=2 Scale: rank 1: +1 key: n=5; -1 key: n=2")],
    )
    _code, verdict = expected.check()
    assert verdict["statements"][0]["details"] == ["+ Scale(n=5) (rank 1)", "- Scale(n=2) (rank 1)"]


def test_a_rank_more(expected):
    expected.plan(2, BASE, BASE, BASE)
    assert expected.said("--case", "dcp=2") == (
        1,
        [("COUNT", 1, "dcp=2: ranks 0-1 expected, ranks 0-2 planned")],
    )


def test_a_kernel_at_fewer_ranks(expected):
    expected.plan(2, BASE, scale(1, 2))
    assert expected.said() == (
        1,
        [
            ("KEYS", 1, "dcp=2 Shift: rank 1: -1 key"),
            ("COUNT", 1, "dcp=2 Shift: rank 1: no longer registered"),
        ],
    )


def test_a_kernel_lost_its_warm_up(expected):
    # No plan has its name any more: a replay knows the function alone.
    lost = [miss("kernels.scale", key("Scale", n=n)) for n in (1, 2)]
    expected.plan(1, shift(7), replays=[replayed(misses=lost)])
    code, said = expected.said()
    assert code == 1
    assert said == [
        (
            "MISS",
            1,
            (
                "dcp=1 Scale: traffic needs 2 keys that nobody planned: `n`: warmed as 1, "
                "launched as 2"
            ),
        ),
        ("MISSING-ROW", 1, "dcp=1 Scale: is no longer registered: -2 keys"),
    ]
    _, verdict = expected.check()
    assert verdict["statements"][0]["details"] == [
        "! kernels.scale[n=1]{sm90} (rank 0)",
        "! kernels.scale[n=2]{sm90} (rank 0)",
    ]
    assert verdict["statements"][0]["advice"] == "Scale: declare n=2 too"
    assert verdict["statements"][1]["details"] == ["- Scale(n=1)", "- Scale(n=2)"]


def test_a_kernel_that_needs_no_key_is_counted_too(project):
    project.plan(1, BASE | {"Silent": []})
    project.expect()
    assert project.check("--quick")[1]["compared"] == 3
    project.plan(1, BASE)
    assert project.said("--quick")[1] == [
        ("MISSING-ROW", 1, "dcp=1 Silent: is no longer registered (it needed no key)")
    ]
    project.plan(1, BASE | {"Silent": [key("Silent", n=1)]})
    assert project.said("--quick")[1][0] == ("KEYS", 1, "dcp=1 Silent: +1 key")


def test_a_new_kernel(expected):
    expected.plan(1, BASE | {"Extra": [key("Extra", n=n) for n in range(4)]})
    assert expected.said() == (1, [("NEW", 1, "dcp=1 Extra: is new: +4 keys")])
    expected.expect()
    assert expected.said()[0] == 0


@pytest.mark.parametrize("update", [False, True])
def test_two_processes_disagree(expected, update):
    before = expected.file.read_bytes()
    expected.plan(1, BASE, other=[scale(1, 3) | shift(7)])
    code, said = expected.said(*["--update"] * update)
    assert code == 1
    assert said == [
        (
            "NONDETERMINISTIC",
            1,
            ("dcp=1 Scale: two processes of this very code disagree: +1 key: n=3; -1 key: n=2"),
        )
    ]
    assert expected.file.read_bytes() == before
    assert ("nothing was written" in expected.err) == update


def test_a_disagreement_is_told_instead_of_a_difference(expected):
    expected.plan(1, scale(1, 4) | shift(8), other=[scale(1, 5) | shift(8)])
    kinds = [(kind, text.partition(":")[0]) for kind, _, text in expected.said()[1]]
    assert kinds == [("NONDETERMINISTIC", "dcp=1 Scale"), ("KEYS", "dcp=1 Shift")]


def test_counts_and_binaries_that_disagree(expected):
    first = answer({0: BASE}, replays=[replayed()])
    for changes, text in (
        ({"registrations": 5}, "registrations 4 -> 5"),
        ({"salt": "x"}, "other binaries for the same 2 declared keys"),
    ):
        expected.outcomes[1] = (first, answer({0: BASE}, **changes))
        code, said = expected.said()
        assert code == 1
        assert {kind for kind, *_ in said} == {"NONDETERMINISTIC"}
        assert any(text in line for *_, line in said)


def test_a_miss_fails_whatever_is_expected_and_is_no_obstacle_to_an_update(expected):
    expected.plan(2, BASE, BASE, replays=[
        replayed(0, misses=[miss("Scale", key("Scale", n=9), 0)]),
        replayed(1, misses=[miss("Scale", key("Scale", n=9), 1)]),
    ])  # fmt: skip
    code, verdict = expected.check()
    assert (code, verdict["headline"]) == (
        1,
        (
            "failed: own dcp=2 Scale: traffic needs 1 key that nobody planned: `n`: warmed as 1, "
            "launched as 2"
        ),
    )
    assert verdict["statements"][0]["details"] == ["! kernels.scale[n=9]{sm90} (ranks 0-1)"]
    expected.plan(1, scale(1))
    assert expected.check("--update")[0] == 1
    assert expected.err == "wrote reports/expected/own.json\n"
    assert expected.said("--quick") == (0, [])


def test_a_rank_that_launches_nothing_shows_nothing(expected):
    expected.plan(1, BASE, replays=[replayed(launches=0)])
    assert expected.said() == (
        3,
        [
            (
                "RUN-FAILED",
                3,
                "dcp=1: rank 0 launched nothing in 20 steps: no miss there shows nothing",
            )
        ],
    )


def test_keys_that_a_replay_cannot_judge_are_a_remark(expected):
    expected.plan(1, BASE, replays=[replayed(untold=["a[n=1]{sm90}"])])
    assert expected.said() == (
        0,
        [
            (
                "MISS",
                0,
                (
                    "dcp=1: traffic needs 1 key inside of a kernel that owns its compile: "
                    "jitwarm run judges them"
                ),
            )
        ],
    )


def test_threads_that_outlive_a_replay_are_a_remark(expected):
    expected.plan(1, BASE, replays=[replayed(running=("a", "b"))])
    text = (
        "dcp=1: rank 0: 2 threads still run: a, b; what a thread launches after the replay is not "
        "seen: a step has to return when its launches are made"
    )
    assert expected.said() == (0, [("MISS", 0, text)])


@pytest.mark.parametrize("update", [False, True])
def test_a_process_that_died_and_one_that_was_refused(expected, update):
    before = expected.file.read_bytes()
    expected.outcomes[1] = (WorkerError("own dcp=1: no reply"),) * 2
    expected.outcomes[2] = (ArmFailed("own dcp=2: no fa4", "", 2), expected.outcomes[2][1])
    code, said = expected.said(*["--update"] * update)
    assert code == 3
    assert said == [
        ("RUN-FAILED", 3, "dcp=1: no reply"),
        ("RUN-FAILED", 2, "dcp=2: no fa4"),
    ]
    assert expected.file.read_bytes() == before
    expected.plan(1, BASE)
    code, verdict = expected.check()
    assert (code, verdict["headline"]) == (2, "refused: own dcp=2: no fa4")


def test_a_kernel_that_cannot_be_planned(expected):
    before = expected.file.read_bytes()
    less = scale(1) | shift(7)
    expected.plan(2, less, less, failed=[("Scale", "LookupError: no such model")])
    code, said = expected.said("--update")
    assert code == 3
    assert said[0] == (
        "RUN-FAILED",
        3,
        "dcp=2 Scale: cannot be planned (ranks 0-1): LookupError: no such model",
    )
    assert expected.file.read_bytes() == before


def test_a_case_that_plans_nothing_is_no_pass(project):
    project.plan(1, {})
    code, said = project.said("--update")
    assert code == 3
    assert said[0] == (
        "RUN-FAILED",
        3,
        "dcp=1: no kernel is registered, so there is nothing to compare",
    )
    assert not project.file.exists()


def test_a_case_that_lost_every_kernel_fails_and_is_not_written(expected):
    before = expected.file.read_bytes()
    expected.plan(1, {})
    for arguments in ([], ["--update"]):
        assert expected.said(*arguments) == (
            1,
            [
                ("MISSING-ROW", 1, "dcp=1 Scale: is no longer registered: -2 keys"),
                ("MISSING-ROW", 1, "dcp=1 Shift: is no longer registered: -1 key"),
            ],
        )
    assert "nothing was written" in expected.err
    assert expected.file.read_bytes() == before


def test_an_empty_expectation_does_not_pass(expected):
    def empty(document):
        rows = document["cases"]["dcp=1"]
        rows["kernels"] = {}
        rows["ranks"]["rank 0"]["keys"] = 0

    expected.edit(empty)
    assert [text for *_, text in expected.said("--quick")[1]] == [
        "dcp=1 Scale: is new: +2 keys",
        "dcp=1 Shift: is new: +1 key",
    ]


def test_a_case_without_a_row(expected):
    expected.edit(lambda document: document["cases"].pop("dcp=2"))
    code, verdict = expected.check()
    assert (code, verdict["headline"]) == (
        4,
        "not comparable: own dcp=2: has no expectation: 2 kernels, 3 keys",
    )
    assert verdict["statements"][0]["kind"] == "NEW"
    assert expected.check("--quick")[0] == 0
    expected.expect()
    assert expected.check()[0] == 0


def test_a_case_that_the_scenario_no_longer_has(expected):
    expected.scenario.write_text(SCENARIO.replace("[1, 2]", "[1]"))
    gone = "dcp=2: is a case of the expectation, and no longer one of the scenario"
    for arguments in ([], ["--quick"]):
        assert expected.said(*arguments) == (1, [("MISSING-ROW", 1, gone)])
    assert expected.said("--update") == (0, [("MISSING-ROW", 0, gone)])
    assert list(json.loads(expected.file.read_text())["cases"]) == ["dcp=1"]
    assert expected.said() == (0, [])


def test_an_update_leaves_the_other_cases_as_they_are(expected):
    expected.edit(lambda document: document["cases"]["dcp=2"].update(soaking="since Monday"))
    other = json.loads(expected.file.read_text())["cases"]["dcp=2"]
    for world in (1, 2):
        expected.plan(world, *[scale(1)] * world)
    verdict = expected.check("--update", "--case", "dcp=1")[1]
    assert verdict["headline"].startswith("updated 1 file: own dcp=1 Scale: -1 key")
    cases = json.loads(expected.file.read_text())["cases"]
    assert cases["dcp=2"] == other
    assert list(cases) == ["dcp=1", "dcp=2"]
    assert list(cases["dcp=1"]["kernels"]) == ["Scale"]


def test_soaking_differences_are_remarks_and_misses_are_not(expected):
    def soak(document):
        document["cases"]["dcp=1"]["kernels"]["Scale"]["soaking"] = "settles by March"

    expected.edit(soak)
    expected.plan(1, scale(1, 2, 3) | shift(7))
    assert expected.said() == (
        0,
        [
            ("SOAKING", 0, "dcp=1 Scale: +1 key: n=3 (soaking: settles by March)"),
            (
                "SOAKING",
                0,
                "dcp=1 Scale: points 2 -> 3, binaries 2 -> 3 (soaking: settles by March)",
            ),
        ],
    )
    expected.plan(1, scale(1, 2, 3) | shift(8))
    assert expected.said()[0] == 1  # Shift does not soak
    expected.plan(1, shift(7), replays=[replayed(misses=[miss("Scale", key("Scale", n=1))])])
    assert [one[:2] for one in expected.said()[1]] == [("MISS", 1), ("MISSING-ROW", 1)]
    expected.plan(1, scale(1) | shift(7), other=[BASE])
    assert [kind for kind, *_ in expected.said()[1]] == ["NONDETERMINISTIC", "NONDETERMINISTIC"]
    expected.plan(1, scale(1, 2, 3) | shift(7))
    assert expected.check("--update")[0] == 0
    assert json.loads(expected.file.read_text())["cases"]["dcp=1"]["kernels"]["Scale"]["soaking"]


@pytest.mark.parametrize("whole_case", [False, True])
def test_what_soaks_may_change_and_not_get_lost(expected, whole_case):
    def soak(document):
        case = document["cases"]["dcp=1"]
        (case if whole_case else case["kernels"]["Scale"])["soaking"] = "new"

    expected.edit(soak)
    gone = [("MISSING-ROW", 1, "dcp=1 Scale: is no longer registered: -2 keys")]
    expected.plan(1, shift(7))
    assert expected.said("--quick", "--no-replay") == (1, gone)
    gone.append(("MISSING-ROW", 1, "dcp=1 Shift: is no longer registered: -1 key"))
    expected.plan(1, {})
    assert expected.said("--quick", "--no-replay") == (1, gone)
    if whole_case:
        expected.scenario.write_text(SCENARIO.replace("[1, 2]", "[2]").replace("dcp=1", "dcp=2"))
        assert [one[:2] for one in expected.said()[1]] == [("MISSING-ROW", 1)]


def test_a_whole_case_soaks(expected):
    expected.edit(lambda document: document["cases"]["dcp=1"].update(soaking="new"))
    expected.plan(1, scale(1) | shift(7) | {"Extra": []}, layers=5)
    code, said = expected.said()
    assert code == 0
    assert {kind for kind, *_ in said} == {"SOAKING"}
    assert len(said) == 4
    assert expected.check()[1]["headline"] == (
        "ok: 3 kernels as expected, 2 kernels soaking, 4 remarks"
    )
    expected.reset()
    assert expected.said() == (0, [])
    expected.plan(1, BASE, arch="sm100")
    assert expected.check()[0] == 4


def test_an_expectation_for_another_architecture(expected):
    expected.plan(1, BASE, arch="sm100")
    assert expected.said("--quick") == (
        4,
        [("NOT-COMPARABLE", 4, "dcp=1: the expectation is for sm90, this is sm100")],
    )


@pytest.mark.parametrize("update", [False, True])
@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("", "is empty, and no file of expectations of jitwarm"),
        ('{"schema": 1, "scen', "is damaged or no JSON"),
        ('{"schema": 99}', "is a file of expectations of schema 99, this jitwarm reads up to 1"),
        ("[]", "is JSON, and no file of expectations of jitwarm"),
        ('{"schema": 1, "scenario": "x", "cases": {}}', "is the expectation of 'x', not 'own'"),
    ],
)
def test_a_file_that_is_not_one(expected, content, problem, update):
    expected.file.write_text(content)
    code, said = expected.said(*["--update"] * update)
    assert code == 4
    ((kind, _, text),) = said
    assert kind == "NOT-COMPARABLE"
    assert text.startswith(f": reports/expected/own.json: {problem}")
    assert expected.file.read_text() == content


def test_one_broken_file_stops_the_update_of_the_others(expected):
    text = SCENARIO.replace('"own"', '"two"')
    (expected.folder / "scenarios" / "two.toml").write_text(text)
    expected.plan(1, scale(1))
    expected.file.write_text("{")
    code = cli.main(["check", "scenarios", "--update"])
    out, err = expected.capsys.readouterr()
    assert code == 4
    assert "nothing was written" in err
    assert out.startswith("not comparable: own: reports/expected/own.json: is damaged or no JSON")
    assert not (expected.file.parent / "two.json").exists()


def test_the_command_that_updates_is_exact(expected, monkeypatch):
    (expected.folder / "scenarios" / "a b.toml").write_text(SCENARIO.replace('"own"', '"two"'))
    other = expected.folder / "other exp"
    arguments = ["check", "scenarios", "--quick", "--expected", str(other)]
    assert cli.main(arguments) == 4
    out = expected.capsys.readouterr().out
    advices = [line for line in out.splitlines() if line.startswith("to accept: ")]
    assert len(advices) == 2
    for line in advices:
        words = shlex.split(line.removeprefix("to accept: "))
        assert words[:2] == ["jitwarm", "check"]
        assert cli.main(words[1:]) == 0
    assert sorted(path.name for path in other.iterdir()) == ["own.json", "two.json"]
    assert list(json.loads((other / "two.json").read_text())["cases"]) == ["dcp=1"]
    assert cli.main(arguments) == 0


def test_an_update_of_overridden_fields_is_refused(project):
    assert cli.main(["check", "scenarios/own.toml", "--set", "traffic.seed=1", "--update"]) == 2
    assert "--update with --set" in project.capsys.readouterr().err
    project.expect()
    project.plan(1, scale(1))
    _, verdict = project.check("--set", "traffic.seed=1")
    assert not [one for one in verdict["statements"] if "advice" in one]


def test_nothing_is_planned_if_a_file_could_not_be_written(project):
    (project.folder / "file").write_text("")
    for option in (["--junit", "file/x.xml"], ["--summary", "."],
                   ["--expected", "file", "--update"]):  # fmt: skip
        assert cli.main(["check", "scenarios/own.toml", *option]) == 2
        err = project.capsys.readouterr().err
        assert err.startswith(f"jitwarm: {option[0]}: ")
        assert "cannot be written" in err
    assert project.asked == []


def test_an_expectation_that_cannot_be_written_after_all(expected, monkeypatch):
    def full(path, data):
        raise OSError(errno.ENOSPC, "No space left on device")

    before = expected.file.read_bytes()
    expected.plan(1, scale(1))
    monkeypatch.setattr(atomic, "write_bytes", full)
    assert cli.main(["check", "scenarios/own.toml", "--update"]) == 3
    assert expected.capsys.readouterr().err == (
        "jitwarm: reports/expected/own.json cannot be written: No space left on device\n"
    )
    assert expected.file.read_bytes() == before


def lost(project, *arguments):
    """Exit code and what is said of scenarios that are gone."""
    code = cli.main(["check", "scenarios", "--json", *arguments])
    said = json.loads(project.capsys.readouterr().out)["statements"]
    return code, [
        (one["scenario"], one["file"], one["advice"]) for one in said if "two" in str(one)
    ]


def test_a_scenario_that_is_gone_leaves_its_expectation_behind(expected):
    two = expected.folder / "scenarios" / "two.toml"
    two.write_text(SCENARIO.replace('"own"', '"two"'))
    assert cli.main(["check", "scenarios", "--update"]) == 0
    two.rename(expected.folder / "elsewhere.toml")  # its name counts, wherever it is
    (expected.file.parent / "other.json").write_text("{}")
    expected.capsys.readouterr()
    assert lost(expected) == (0, [])
    (expected.folder / "elsewhere.toml").unlink()
    (expected.folder / "broken.toml").write_text("name = 'two")
    file = "reports/expected/two.json"
    gone = [("two", file, f"if the scenario is meant to be gone: git rm {file}")]
    assert lost(expected) == lost(expected, "--quick") == (1, gone)
    assert lost(expected, "--expected", "reports/expected") == (0, [])
    assert cli.main(["check", "scenarios/own.toml"]) == 0


def test_a_scenario_that_switches_warm_up_off_fails(expected):
    expected.scenario.write_text(SCENARIO + "warmup = { enable_jit_warmup = false }\n")
    code, said = expected.said("--case", "dcp=1")
    text = (
        "dcp=1: warm-up is switched off (enable_jit_warmup = false): none of 3 planned keys is "
        "made ready"
    )
    assert (code, said) == (1, [("MISS", 1, text)])
    _, verdict = expected.check("--case", "dcp=1")
    assert [one["advice"] for one in verdict["statements"] if one["code"]] == [
        "switch it on in the scenario: [warmup] enable_jit_warmup = true"
    ]
    expected.plan(1, {"Silent": []}, replays=[replayed()])
    assert "MISS" not in [kind for kind, _, _ in expected.said("--case", "dcp=1")[1]]


def test_it_says_how_much_was_replayed(expected):
    mixed = replayed(0, kinds={"decode": 15, "mixed": 5})
    decodes = [replayed(rank, kinds={"decode": 18, "padded": 2}) for rank in (0, 1)]
    expected.plan(1, BASE, replays=[mixed])
    expected.plan(2, BASE, BASE, replays=decodes)
    assert expected.check()[1]["replayed"] == (
        "replayed 60 steps at ranks 0-1: 51 decode, 4 padded, 5 mixed; no prefill in own dcp=2"
    )
    expected.plan(1, BASE, replays=[])
    assert cli.main(["check", "scenarios/own.toml", "--case", "dcp=1", "--no-replay"]) == 0
    assert expected.capsys.readouterr().out == (
        "ok: 2 kernels as expected\n\nreplayed nothing: no launch was held against the plans\n\n"
    )


@pytest.fixture
def without_two(expected):
    """A project in which the scenario `two` is gone, and its expectation is not."""
    two = expected.folder / "scenarios" / "two.toml"
    two.write_text(SCENARIO.replace('"own"', '"two"'))
    assert cli.main(["check", "scenarios", "--update"]) == 0
    expected.capsys.readouterr()
    two.rename(expected.folder / "kept.toml")
    assert lost(expected) == (0, [])
    return expected


@pytest.mark.parametrize(
    "text",
    ['name = "two"', 'name = "two"\nschema = 1', 'name = "two"\nschema = "1"\nmodel = "m:M"'],
)
def test_a_file_of_the_name_that_is_no_scenario_is_none(without_two, text):
    (without_two.folder / "kept.toml").write_text(text)
    assert lost(without_two)[0] == 1


@pytest.mark.parametrize(
    "place", [".hidden", "env", "build", "dist", "a/node_modules", "a/site-packages/b"]
)
def test_a_scenario_that_is_not_the_projects_own_is_none(without_two, place):
    folder = without_two.folder / place
    folder.mkdir(parents=True)
    if place == "env":
        (folder / "pyvenv.cfg").write_text("home = /usr/bin\n")
    (without_two.folder / "kept.toml").rename(folder / "two.toml")
    assert lost(without_two)[0] == 1


def test_a_scenario_that_git_ignores_is_none(without_two):
    folder = without_two.folder
    (folder / "attic").mkdir()
    (folder / "kept.toml").rename(folder / "attic" / "two.toml")
    (folder / ".gitignore").write_text("attic/\n")
    assert lost(without_two)[0] == 0  # no repository, so nobody ignores anything
    subprocess.run(["git", "init", "--quiet", str(folder)], check=True)
    assert lost(without_two)[0] == 1
    subprocess.run(["git", "-C", str(folder), "add", "--force", "attic/two.toml"], check=True)
    assert lost(without_two)[0] == 0


@pytest.mark.parametrize("option", ["--junit", "--summary"])
@pytest.mark.parametrize("name", ["scenarios/own.toml", "reports/expected/own.json"])
def test_the_verdict_replaces_nothing_that_is_read(expected, option, name):
    before = (expected.folder / name).read_bytes()
    assert cli.main(["check", "scenarios/own.toml", option, name]) == 2
    assert (
        f"{option}: {name} has a use of its own: give another name"
        in expected.capsys.readouterr().err
    )
    assert (expected.folder / name).read_bytes() == before


@pytest.mark.parametrize(
    ("plan", "kinds"),
    [
        ({"replays": [replayed(misses=[miss("Scale", key("Scale", n=9))])]}, ["MISS", "COUNT"]),
        ({"replays": [replayed(launches=0)]}, ["RUN-FAILED", "COUNT"]),
        ({"failed": [("Scale", "LookupError: x")]}, ["RUN-FAILED", "COUNT"]),
        ({"other": [scale(1) | shift(7)]}, ["NONDETERMINISTIC", "COUNT"]),
        ({}, ["COUNT"]),
    ],
)
def test_accepting_is_offered_where_it_would_help(expected, plan, kinds):
    expected.plan(2, BASE, BASE, layers=9)
    expected.plan(1, BASE, **plan)
    advices = {one["kind"]: one.get("advice", "") for one in expected.check()[1]["statements"]}
    advices.pop("SAME")
    assert list(advices) == kinds
    assert ("--update" in " ".join(advices.values())) == (not plan)


def test_what_lost_every_kernel_is_not_offered_for_acceptance(expected):
    expected.plan(1, {})
    assert not any("advice" in one for one in expected.check()[1]["statements"])


def test_one_reason_more_is_one(expected):
    lost = [miss("Scale", key("Scale", n=n)) for n in (8, 9)]
    other = msgspec.structs.replace(lost[1].finding, message="Scale: `n`: another reason")
    lost[1] = msgspec.structs.replace(lost[1], finding=other)
    expected.plan(1, BASE, replays=[replayed(misses=lost)])
    assert expected.said("--quick")[1][0][2].endswith("launched as 2 (and 1 more reason)")


def test_objects_of_a_kernel_that_is_made_anew_are_told_together(expected):
    anew = []
    for number in range(2, 102):
        one = miss(f"m.k#0a1b2c3d~{number}", key("k", n=1))
        text = f"m.k#0a1b2c3d~{number}[n:i32]{{cuda:90}}"
        finding = Planned().explain(text)
        anew.append(msgspec.structs.replace(one, key=text, finding=finding))
    expected.plan(1, BASE, replays=[replayed(misses=anew)])
    (statement,) = [one for one in expected.check("--quick")[1]["statements"] if one["code"]]
    assert statement["kernel"] == "m.k#0a1b2c3d"
    assert statement["text"] == (
        "traffic needs 100 keys that nobody planned: another object of this kernel was launched, "
        "and no key of that was warmed"
    )
    assert statement["advice"].startswith("m.k#0a1b2c3d: define the kernel once, at module level: ")
    assert len(statement["details"]) == 100
    numbers = [int(line.partition("~")[2].partition("[")[0]) for line in statement["details"]]
    assert numbers == list(range(2, 102))
