"""Start-ups whose times are written down, instead of real ones."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import numpy as np

from engine_repository import git
from jitwarm.gate.pairs import Sample
from jitwarm.record import DeviceRecord

STUB = DeviceRecord("stub", "sm90", "stub device (no GPU)", "none")
VERSIONS = {"python": "3.11.7", "torch": "2.13.0", "triton": "3.9.0", "jitwarm": "0.1.0"}


def sample(cpu_s=2.0, **changes):
    """One start-up of `cpu_s` processor seconds."""
    fields = {
        "cpu_s": cpu_s,
        "wall_s": cpu_s * 1.1,
        "enumeration_s": 0.05,
        "warm_s": 0.5,
        "warm_cpu_s": 0.8,
        "device": STUB,
        "versions": VERSIONS,
        "keys": {"K": ("a", "b")},
        "case": {"name": "s", "axes": {}},
    }
    return Sample(**(fields | changes))


def noise(seed, spread):
    """A factor near 1: its logarithm is normal with standard deviation `spread`."""
    return float(np.exp(np.random.default_rng(seed).normal(0.0, spread)))


class Scripted:
    """A sampler whose `duration.txt` of a side says how long its start-ups take.

    `spread` is that of one run, `seed` makes it another day. Keys, device and versions are those of
    a real `jitwarm plan`. `asked` lists (side, index) in order.
    """

    def __init__(self, request, spread=0.01, seed=0):
        self.request, self.spread, self.seed, self.asked = request, spread, seed, []

    def sample(self, side, index):
        self.asked.append((side, index))
        root = self.request.roots[side]
        seconds, warm_s = map(float, (root / "duration.txt").read_text().split())
        factor = noise([self.seed, index + 10, side == "head"], self.spread)
        record = json.loads(planned(root, self.request.scenario))
        keys = {}
        for key in record["keys"]:
            keys.setdefault(key["kernel"], []).append(key["backend_key"])
        return sample(
            seconds * factor,
            warm_cpu_s=warm_s * factor,
            device=DeviceRecord(**record["device"]),
            versions=record["versions"],
            keys={kernel: tuple(sorted(own)) for kernel, own in keys.items()},
            case=record["case"],
            modules=(str(root / "model.py"),),
        )


_planned = {}


def planned(root, scenario):
    """The record of `jitwarm plan`, run in a folder; the same code is planned once."""
    place = (git(root, "rev-parse", "HEAD^{tree}"), scenario)
    if place not in _planned:
        done = subprocess.run(
            [sys.executable, "-m", "jitwarm", "plan", scenario, "--json"],
            cwd=root, env=os.environ, capture_output=True, text=True, check=True,
        )  # fmt: skip
        _planned[place] = done.stdout
    return _planned[place]
