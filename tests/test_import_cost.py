"""What an import brings in, asked of fresh processes."""

from __future__ import annotations

import json

import pytest

HEAVY = ("torch", "triton", "numpy", "msgspec", "tabulate")


def imported(fresh_process, statement):
    text = (
        f"{statement}\nimport json, sys\n"
        "print(json.dumps(sorted({name.partition('.')[0] for name in sys.modules})))"
    )
    return set(json.loads(fresh_process(text)))


def test_import_jitwarm_brings_in_nothing_heavy(fresh_process):
    assert imported(fresh_process, "import jitwarm").isdisjoint(HEAVY)


@pytest.mark.parametrize(
    "statement",
    [
        "from jitwarm import JitWarmupRegistry, owner",
        "import jitwarm.registry, jitwarm.device, jitwarm.env, jitwarm.keys, jitwarm.declare",
        "import jitwarm.contract",
        "import jitwarm.scenario, jitwarm.plan, jitwarm.warm",
        "import jitwarm.observe.monitor, jitwarm.judge.coverage",
    ],
)
def test_neither_torch_nor_triton_before_they_are_needed(fresh_process, statement):
    assert imported(fresh_process, statement).isdisjoint(("torch", "triton"))


def test_public_names_are_loaded_on_first_use(fresh_process):
    text = (
        "import jitwarm\n"
        "for name in jitwarm.__all__:\n"
        "    print(name, getattr(jitwarm, name).__class__.__name__)\n"
        "try:\n"
        "    jitwarm.Nothing\n"
        "except AttributeError as error:\n"
        "    print(error)\n"
    )
    assert fresh_process(text).splitlines() == [
        "JitWarmupRegistry type",
        "owner function",
        "make_plan function",
        "Plan type",
        "Monitor type",
        "expect_no_compiles function",
        "kernel_warmup function",
        "prove function",
        "prove_envelopes function",
        "Envelope type",
        "Ints type",
        "Values type",
        "KeyFunction type",
        "affine function",
        "next_power_of_two function",
        "pointer function",
        "__version__ str",
        "module 'jitwarm' has no attribute 'Nothing'",
    ]


@pytest.mark.parametrize("command", ["run", "plan", "warm", "check", "scenarios"])
def test_a_command_brings_in_neither_numpy_nor_the_other_commands(fresh_process, command):
    """What `compare` measures is `warm`: it must not get slower with each command that is added."""
    text = (
        f"import sys, jitwarm.cli\njitwarm.cli._parser(['{command}'])\n"
        "print(sorted(n.removeprefix('jitwarm.commands.') for n in sys.modules\n"
        "             if n.startswith('jitwarm.commands.')), 'numpy' in sys.modules)"
    )
    shared = {"options", "output", "publish", "selection"}
    own = {"plan" if command == "warm" else command}
    names, numpy = fresh_process(text).rsplit(" ", 1)
    assert set(json.loads(names.replace("'", '"'))) <= shared | own
    assert numpy == "False\n"
