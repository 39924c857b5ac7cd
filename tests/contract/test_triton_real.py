"""The contract class on Triton itself: plan, warm-up and launches agree on the keys."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.triton


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    # A process of its own: a process has one device, and other tests may want another.
    script = Path(__file__).with_name("triton_subject.py")
    root = str(script.parents[2])
    path = os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH"), root]))
    env = os.environ | {
        "TRITON_CACHE_DIR": str(tmp_path_factory.mktemp("triton")),
        "PYTHONPATH": path,
    }
    done = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, env=env, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_recipes_warm_exactly_the_planned_keys(report):
    assert report["planned_is_warmed"]
    # 3 blocks x 3 stride classes x 2 alignments
    assert (report["declared"], report["warmed"], report["executors"]) == (18, 18, 18)


def test_no_launch_compiles_after_warm_up(report):
    assert report["compiled_by_launches"] == []


def test_autotuned_kernels_compile_every_configuration(report):
    assert report["tuned_recipes"] == ["OpaqueRecipe", "TunedRecipe"]  # the former is the choice
    assert report["tuned"] == 4  # two configurations, n even and odd


def test_representatives_have_the_key_of_what_they_stand_for(report):
    assert report["misclassified"] == []


def test_keys_that_the_inputs_lose_are_refused_and_compile_nothing(report):
    [failure, *_], compiled = report["lost"]
    assert failure.startswith(
        "Losing: warmup_inputs(key) leads __call__ to another key: block 16 instead of 1; "
    )
    assert compiled == []


def test_the_monitor_sees_past_generated_code_to_the_line_that_launched(report):
    assert report["unwarmed"] == "__main__.unwarmed"
