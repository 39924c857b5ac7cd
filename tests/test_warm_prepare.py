"""Before anything compiles, each backend sees its recipes once, in the calling thread."""

from __future__ import annotations

import threading
from dataclasses import dataclass

import pytest

from jitwarm import warm as warming
from jitwarm.plan import Funnel, Plan, PlanItem


@dataclass(frozen=True)
class Recipe:
    backend: str
    number: int


class Backend:
    """Keeps what it is asked, in order."""

    parallel = "threads"

    def __init__(self, name):
        self.name, self.log = name, []

    def prepare(self, recipes):
        self.log.append(("prepare", list(recipes), threading.current_thread()))

    def enter_worker(self):
        pass

    def compile(self, recipe):
        self.log.append(("compile", recipe, threading.current_thread()))

    def load(self, artefact):
        pass


@pytest.mark.parametrize("jobs", [1, 2])
def test_prepare_comes_once_first_and_in_this_thread_with_every_recipe(monkeypatch, jobs):
    backends = {name: Backend(name) for name in ("one", "other")}
    monkeypatch.setattr(warming, "backend_of", lambda recipe: backends[recipe.backend])
    recipes = [Recipe(name, number) for number in range(3) for name in backends]
    items = tuple(PlanItem("k", r.backend, None, repr(r), r, ()) for r in recipes)
    plan = Plan(items, (), Funnel(6, 6, 1.0, 6, 6, 6), (), (), 0.0)
    assert warming.warm(plan, jobs=jobs).warmed == 6
    for name, backend in backends.items():
        own = [recipe for recipe in recipes if recipe.backend == name]
        assert backend.log[0] == ("prepare", own, threading.current_thread())
        assert [what for what, *_ in backend.log] == ["prepare"] + ["compile"] * 3
