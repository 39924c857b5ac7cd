"""Six changes of a small engine: what `jitwarm check` and `jitwarm compare` make of each.

Plans are real, times are written down: `python -m measurements.power` compares the same commits
with real ones.
"""

from __future__ import annotations

import json

import pytest

from engine_repository import git, worktrees
from jitwarm import cli
from jitwarm.commands.compare import compare_with
from measurements.six_commits import COMMITS, build
from scripted_times import Scripted

SCALE = "kernels.scale_rows(x_ptr=tensor(float32, {}), out_ptr=tensor(float32, aligned), {}"
SIX = [
    "+ " + SCALE.format(aligned, f"n_columns={columns}, factor=0.5, BLOCK=512)")
    for aligned in ("aligned", "unaligned")
    for columns in (1, 16, 2)
]
COUNTS = {
    "six-more-keys": "points 6 -> 12, binaries 6 -> 12",
    "one-key-less": "points 2 -> 1, binaries 2 -> 1",
}
NO_KEY = "kernels.add_rows was launched, and no key of it was warmed"
# Commit -> exit code, and kind, kernel, text of each statement that is not as expected.
CHECKED = {
    "six-more-keys": (
        1,
        ("KEYS", "ScaleRows", "+6 keys: BLOCK=512"),
        ("COUNT", "ScaleRows", COUNTS["six-more-keys"]),
    ),
    "one-key-for-another": (1, ("KEYS", "AddRows", "+1 key: BLOCK=32; -1 key: BLOCK=128")),
    "one-key-less": (
        1,
        ("KEYS", "AddRows", "-1 key: BLOCK=64"),
        ("COUNT", "AddRows", COUNTS["one-key-less"]),
    ),
    "a-warm-up-lost": (
        1,
        ("MISS", "AddRows", f"traffic needs 1 key that nobody planned: {NO_KEY}"),
        ("MISSING-ROW", "AddRows", "is no longer registered: -2 keys"),
    ),
    "slow": (0,),
    "nothing": (0,),
}
# Commit -> exit code, kind, and how its text begins and ends.
COMPARED = {
    "six-more-keys": (
        1,
        "SLOWER",
        "start-up takes 2",
        " s of it in warm-up; 6 more keys: ScaleRows 6 + 6",
    ),
    "one-key-for-another": (0, "SAME", "as fast as base: ", "; 1 key exchanged: AddRows 2 + 1 - 1"),
    "one-key-less": (0, "FASTER", "start-up takes ", "; 1 fewer key: AddRows 2 - 1"),
    "a-warm-up-lost": (0, "FASTER", "start-up takes ", "; 2 fewer keys: AddRows 2 - 2"),
    "slow": (1, "SLOWER", "start-up takes 1", " of it in imports, the model and enumeration"),
    "nothing": (0, "SAME", "as fast as base: ", " 16 pairs)"),
}
NAMES = [commit.name for commit in COMMITS]


@pytest.fixture(scope="module")
def engine(tmp_path_factory):
    """The repository, and the reviewed expectation of its base, which git does not know."""
    repository = tmp_path_factory.mktemp("six") / "engine"
    hashes = build(repository)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(repository)
        assert cli.main(["check", "scenario.toml", "--update", "--json"]) == 0
    return repository, hashes


@pytest.fixture
def here(engine, monkeypatch, capsys):
    monkeypatch.delenv("GITHUB_ACTIONS", raising=False)
    monkeypatch.chdir(engine[0])
    capsys.readouterr()
    return engine


def test_there_are_six():
    assert len(NAMES) == 6
    assert set(NAMES) == set(CHECKED) == set(COMPARED)


@pytest.mark.parametrize("name", NAMES)
def test_check(here, capsys, name):
    repository, hashes = here
    git(repository, "checkout", "--quiet", hashes[name])
    code = cli.main(["check", "scenario.toml", "--json"])
    verdict = json.loads(capsys.readouterr().out)
    wanted, *statements = CHECKED[name]
    assert code == verdict["code"] == wanted
    said = [one for one in verdict["statements"] if one["kind"] != "SAME"]
    assert [(one["kind"], one["kernel"], one["text"]) for one in said] == statements
    if name == "six-more-keys":
        assert said[0]["details"] == SIX
        assert verdict["headline"].startswith("failed: engine ScaleRows: +6 keys")
        assert said[0]["advice"] == "to accept: jitwarm check scenario.toml --update"
    if not wanted:
        assert verdict["headline"] == "ok: 2 kernels as expected"


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("name", NAMES)
def test_compare(here, capsys, name, seed):
    repository, hashes = here
    command = ["compare", "scenario.toml", "--json", "--device=stub", f"--base={hashes['base']}"]
    command.append(f"--head={hashes[name]}")
    options = cli._parser(command).parse_args(command)
    samplers = []

    def sampler_of(request):
        samplers.append(Scripted(request, spread=0.01, seed=seed))
        return samplers[-1]

    code = compare_with(options, sampler_of)
    verdict = json.loads(capsys.readouterr().out)
    wanted, kind, begins, ends = COMPARED[name]
    (said,) = verdict["statements"]
    assert (code, said["kind"]) == (wanted, kind), said
    assert said["text"].startswith(begins) and said["text"].endswith(ends), said["text"]
    assert code == next(c.times for c in COMMITS if c.name == name)[kind]
    assert verdict["compared"] == 16
    (sampler,) = samplers
    assert [side for side, _ in sampler.asked][:6] == ["base", "head"] * 2 + ["head", "base"]
    assert worktrees(repository) == 1


@pytest.mark.parametrize(("name", "spread", "pairs"), [("slow", 0.25, 16), ("nothing", 0.25, 16)])
def test_compare_through_too_much_noise_is_no_pass(here, capsys, name, spread, pairs):
    hashes = here[1]
    command = ["compare", "scenario.toml", "--json", "--device=stub", f"--pairs={pairs}"]
    command += [f"--base={hashes['base']}", f"--head={hashes[name]}"]
    options = cli._parser(command).parse_args(command)
    code = compare_with(options, lambda request: Scripted(request, spread=spread, seed=3))
    (said,) = json.loads(capsys.readouterr().out)["statements"]
    assert (code, said["kind"]) == (4, "NOT-ENOUGH-SAMPLES")
    assert "is neither found nor excluded; about " in said["text"]
