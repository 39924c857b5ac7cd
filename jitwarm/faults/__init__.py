"""Faults: small files that show what a warm-up got wrong, and say which findings must come of it.

    from jitwarm.faults import Expected, Fault, TensorSpec, launch

A file defines `Fault`s at its top level, one with the mistake and its twin without it;
`jitwarm faults FILE...` plans, proves, warms and replays each in a process of its own on the stub
device and compares. docs/faults.md has the form.
"""

from __future__ import annotations

from jitwarm.declare.domains import WarmupChoices, WarmupIntRange
from jitwarm.declare.launch import launch
from jitwarm.declare.nokeys import NoKeys
from jitwarm.declare.tensor import TensorSpec
from jitwarm.faults.compiler import StubKernel
from jitwarm.faults.form import Budget, Expected, Fault, event
from jitwarm.judge.stores import FolderStore
from jitwarm.observe.events import Event
from jitwarm.observe.phases import phase
from jitwarm.proof.envelope import Envelope, Ints, Values
from jitwarm.proof.forms import affine, next_power_of_two, pointer
from jitwarm.proof.keyfunction import KeyFunction

__all__ = [
    "Budget",
    "Envelope",
    "Event",
    "Expected",
    "Fault",
    "FolderStore",
    "Ints",
    "KeyFunction",
    "NoKeys",
    "StubKernel",
    "TensorSpec",
    "Values",
    "WarmupChoices",
    "WarmupIntRange",
    "affine",
    "event",
    "launch",
    "next_power_of_two",
    "phase",
    "pointer",
]
