"""Declare: which launches of a kernel must be ready."""

from jitwarm.declare.declaration import Declaration, declare
from jitwarm.declare.domains import WarmupChoices, WarmupIntRange
from jitwarm.declare.enumeration import Declared, Enumeration
from jitwarm.declare.launch import LaunchCase, launch
from jitwarm.declare.nokeys import NoKeys
from jitwarm.declare.tensor import TensorSpec

__all__ = [
    "Declaration",
    "Declared",
    "Enumeration",
    "LaunchCase",
    "NoKeys",
    "TensorSpec",
    "WarmupChoices",
    "WarmupIntRange",
    "declare",
    "launch",
]
