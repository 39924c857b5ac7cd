"""Before anything compiles, each backend sees its recipes once, in the calling thread; a backend
that cannot be prepared costs the others nothing.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass

import pytest

from jitwarm import warm as warming
from jitwarm.errors import RunError
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


def planned(*recipes):
    items = tuple(PlanItem("k", r.backend, None, repr(r), r, ()) for r in recipes)
    return Plan(items, (), Funnel(6, 6, 1.0, 6, 6, 6), (), (), 0.0)


@pytest.mark.parametrize("jobs", [1, 2])
def test_prepare_comes_once_first_and_in_this_thread_with_every_recipe(monkeypatch, jobs):
    backends = {name: Backend(name) for name in ("one", "other")}
    monkeypatch.setattr(warming, "backend_of", lambda recipe: backends[recipe.backend])
    recipes = [Recipe(name, number) for number in range(3) for name in backends]
    assert warming.warm(planned(*recipes), jobs=jobs).warmed == 6
    for name, backend in backends.items():
        own = [recipe for recipe in recipes if recipe.backend == name]
        assert backend.log[0] == ("prepare", own, threading.current_thread())
        assert [what for what, *_ in backend.log] == ["prepare"] + ["compile"] * 3


@pytest.mark.parametrize("jobs", [1, 2])
@pytest.mark.parametrize("broken", [ImportError("libfoo.so: cannot open"), AttributeError("point")])
def test_a_broken_compiler_fails_its_own_keys_only(monkeypatch, jobs, broken):
    class Broken(Backend):
        def prepare(self, recipes):
            raise broken

    backends = {"broken": Broken("broken"), "good": Backend("good")}
    monkeypatch.setattr(warming, "backend_of", lambda recipe: backends[recipe.backend])
    recipes = [Recipe(name, number) for number in range(2) for name in backends]
    told = []
    report = warming.warm(planned(*recipes), jobs=jobs, progress=lambda *given: told.append(given))
    assert [outcome.status for outcome in report.outcomes] == ["failed", "warmed"] * 2
    assert backends["broken"].log == [] and [done for done, *_ in told] == [1, 2, 3, 4]
    errors = [outcome.error for outcome in report.failed]
    assert errors[0] is not errors[1]
    for error, recipe in zip(errors, recipes[::2], strict=True):
        assert type(error) is RunError and error.__cause__ is broken
        assert str(error).endswith(
            f"the backend broken cannot compile here: {type(broken).__name__}: {broken}; mend its "
            "compiler's installation, or remove it"
        )
        assert repr(recipe) in str(error)
    with pytest.raises(ExceptionGroup, match="2 kernels or keys could not be warmed"):
        report.raise_failures()


def test_a_key_of_which_nobody_knows_whether_it_is_worth_a_child_compiles_here(monkeypatch):
    class Unsure(Backend):
        parallel = "processes"

        def worth_a_child(self, recipe):
            raise LookupError(recipe)

    backend = Unsure("unsure")
    monkeypatch.setattr(warming, "backend_of", lambda recipe: backend)
    recipes = [Recipe("unsure", number) for number in range(2)]
    assert warming.warm(planned(*recipes), jobs=2).warmed == 2
    assert backend.log[1:] == [("compile", r, threading.current_thread()) for r in recipes]
