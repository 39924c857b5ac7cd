"""One envelope searched: every key that its launches need, with the smallest input of each."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from jitwarm.backends.triton.unwrap import is_wrapped
from jitwarm.errors import KeyValueError, MissingExtraError, RunError
from jitwarm.findings import Finding
from jitwarm.proof.classes import Coder
from jitwarm.proof.compare import difference
from jitwarm.proof.constancy import Constancy
from jitwarm.proof.envelope import Envelope, Ints
from jitwarm.proof.forms import NextPowerOfTwo
from jitwarm.proof.found import Found
from jitwarm.proof.lines import lines
from jitwarm.proof.narrow import holds, widths_of
from jitwarm.proof.reach import NOTHING, Reach, Reached
from jitwarm.proof.signatures import Signatures
from jitwarm.proof.space import CELLS, Point, Space, Table, _Disagreement, point_text
from jitwarm.proof.split import candidates, frontier

# A launch of a Triton kernel takes 30 to 60 us to evaluate, so an envelope takes half a second.
WALKED = 10_000
# With forms, fewer are walked: that many launches are evaluated to check the forms anyway.
WALKED_WITH_FORMS = 256
CHECKED = 512  # whole points at which the real launch is compared with its forms
WHOLE = 300_000  # points whose classes are all computed, some 0.1 us each
GRID = 4_000_000  # points of a split envelope, as many
DRAWN = 100_000  # whole points whose classes must be among those of the grid
SEED = 20_240_229
_FIELD = re.compile(r"(?:field|argument) '(?P<name>\w+)'")


def search(envelope: Envelope, reach: Reach, *, most: int = WALKED) -> Found:
    """Every backend key that launches of `envelope` need; see `jitwarm.proof.result` for what the
    verdict promises. `most` points are tried where they are too many to walk and have no forms.

    A launch that cannot be evaluated is an ENVELOPE finding; a key that is no value KEY-UNSTABLE.
    """
    try:
        return _Search(envelope, reach, most=most).run()
    except _Disagreement as error:
        return _Search(envelope, reach, disagrees=str(error), most=most).run()


def evaluate(kernel: Any, launches: Iterable[Mapping[str, Any]], reach: Reach) -> Found:
    """The keys of launches that are given one by one."""
    one_by_one = _Search(Envelope(kernel, "", {}, lambda **arguments: arguments), reach)
    one_by_one.found.verdict = "SAMPLED"
    for launch in launches:
        one_by_one.attempt(launch)
    one_by_one.tell_failures()
    one_by_one.found.reasons["only the launches that were given are known"] = None
    one_by_one.found.of = one_by_one.found.points
    return one_by_one.found


class _Search:
    def __init__(
        self, envelope: Envelope, reach: Reach, *, disagrees: str = "", most: int = WALKED
    ) -> None:
        self.most = min(most, WALKED)
        self.envelope, self.reach = envelope, reach
        self.space = Space(envelope, by_point=bool(disagrees))
        self.disagrees = disagrees  # a point of which `where` says two things
        self.found = Found(envelope, reach)
        self.widths = widths_of(reach.function)
        self.random = np.random.default_rng(SEED)
        self.failed: dict[tuple[object, str], tuple[Point, Exception, int]] = {}
        self.told: set[tuple[str, str]] = set()

    def run(self) -> Found:
        found, count = self.found, self.space.count()
        found.of = self.space.product if count is None else count
        forms = self.envelope.forms
        wrapped = _is_wrapped(self.reach)
        dear = forms is None or wrapped or self.disagrees
        walked = WALKED if dear else WALKED_WITH_FORMS
        if count == 0:
            found.weaken(
                self._finding("ENVELOPE", "`where` rejects every point, so nothing was proved")
            )
        elif count is not None and count <= walked:
            self._walk()
        elif forms is None:
            self._sample()
        else:
            self._split(forms)
            if wrapped:
                found.weaken(
                    "heuristics or an autotuner decide arguments that no form says, and there are "
                    "too many points to walk"
                )
        if self.disagrees and not found.walked and count != 0:
            found.weaken(
                f"`where` says something else of arrays than of single points (at "
                f"{self.disagrees}), and there are too many points to walk"
            )
        self.tell_failures()
        return found

    # The three ways.

    def _walk(self) -> None:
        self.found.walked = True
        for table in self.space.tables(self.space.every()):
            for row in table:
                self.attempt(self.space.point(row))

    def _sample(self) -> None:
        """Many points and nothing known of them: corners, a part of a grid, and random ones."""
        self.found.weaken("too many points to walk, and no forms")
        rows = [self.space.corners()]
        grid = self._some(candidates(self.space, None), self.most // 2)
        rows += [grid, self.space.drawn(self.most - len(grid), self.random)]
        for row in sorted({tuple(row) for row in np.concatenate(rows).tolist()}):
            self.attempt(self.space.point(row))

    def _some(self, values: list[Table], most: int) -> Table:
        """At most `most` allowed points of a product, evenly."""
        if math.prod(map(len, values)) <= min(GRID, 128 * most):
            table = np.concatenate(list(self.space.tables(values)))
        else:
            rows = min(32 * most, max(most, CELLS // len(values)))
            table = np.empty((rows, len(values)), self.space.dtype)
            for place, one in enumerate(values):
                table[:, place] = one[self.random.integers(0, len(one), len(table))]
            table = self.space.allowed(table)
        return table[:: max(1, len(table) // most)][:most]

    def _split(self, forms: Mapping[str, Any]) -> None:
        self.constancy = Constancy(forms)
        self.seen: set[str] = set(getattr(self.reach.function, "arg_names", ()))
        found, signatures = self.found, Signatures(self.space, self._coders(forms))
        whole = self.space.product <= WHOLE
        values = self.space.every() if whole else candidates(self.space, forms, most=GRID)
        if whole or math.prod(map(len, values)) <= GRID:
            for table in self.space.tables(values):
                signatures.add(table)
            for table in () if whole else frontier(self.space, values, forms):
                signatures.add(table)
        else:
            found.weaken("even the points that stand for all are too many")
            signatures.add(self._some(values, GRID // 4))
        if not whole:
            if _mixed_powers(forms):
                found.weaken("block sizes of different sums, whose crossings the split may miss")
            self._look_between(forms, signatures)
        if len(signatures.first) > WALKED:
            found.weaken(f"its arguments have more than {WALKED:,} combinations of classes")
        keys_of: dict[int, tuple[Point, tuple[str, ...] | None]] = {}
        for code, row in list(signatures.first.items())[:WALKED]:
            point = self.space.point(row)
            keys_of[code] = (point, self._checked(point, row, signatures))
        for table in (self.space.corners(), self.space.stratified(CHECKED, self.random)):
            for row, code in zip(table, signatures.codes(table), strict=True):
                point = self.space.point(row)
                needs = self._checked(point, row, signatures)
                if int(code) not in keys_of:
                    keys_of[int(code)] = (point, needs)
                    continue
                alike, expected = keys_of[int(code)]
                if needs is not None and expected is not None and needs != expected:
                    self._disagree(point, needs, alike, expected)
        self._unnamed(forms)

    def _look_between(self, forms: Mapping[str, Any], signatures: Signatures) -> None:
        """Points that are not of the grid, whose classes must be: else it stands for less."""
        if signatures.add(self.space.drawn(DRAWN, self.random)):
            self.found.weaken("a random point has classes that the split values lack")
        used = {name for form in forms.values() for name in form.names}
        if not used:  # one class for each combination of the other values
            return
        for name, table, is_broken in lines(self.space, self.random):
            if is_broken:
                self.found.weaken(
                    f"the values of {name} that `where` allows have gaps, so a few of them do not "
                    "stand for all"
                )
            if len(table) and signatures.add(table):
                self.found.weaken(
                    f"along {name} there are points with classes that the split values lack"
                )

    def _unnamed(self, forms: Mapping[str, Any]) -> None:
        """Forms of nothing, and what changes without a form."""
        for name in (name for name in forms if name not in self.seen):
            if self.seen:
                self.found.weaken(
                    self._finding(
                        "ENVELOPE",
                        f"there is a form of `{name}`, which is no argument of the kernel",
                        field=name,
                        advice="name the arguments of the @triton.jit function, or launch options",
                    )
                )
        told = {one.field for one in self.found.findings}
        for one in self.constancy.varies():
            if one.field not in told:
                self.found.weaken(
                    self._finding(
                        "ENVELOPE",
                        f"`{one.field}` has no form and changes: {one.warmed} at "
                        f"{point_text(one.at)}, {one.seen} at {point_text(one.other)}",
                        field=one.field,
                        warmed=one.warmed,
                        seen=one.seen,
                        smallest=point_text(one.other),
                        advice=f"give `{one.field}` a form, or leave forms out",
                    )
                )

    # One point.

    def attempt(self, point: Point) -> Reached | None:
        """Evaluate one launch and note what it needs; None where that fails."""
        found = self.found
        found.points += 1
        try:
            arguments = self.envelope.launch(**point)
            reached = NOTHING if arguments is None else self.reach.at(arguments)
        except KeyValueError as error:
            self._fail(point, "KEY-UNSTABLE", error)
            return None
        except (RunError, MissingExtraError):  # no device, no library: no point has a key
            raise
        except Exception as error:  # the other points are evaluated all the same
            self._fail(point, "ENVELOPE", error)
            return None
        found.tried.append((point, reached.keys))
        for backend, key in reached.needs:
            found.backends.setdefault(key, backend)
            found.smallest.setdefault(key, point)
        for key in reached.own:
            found.backends.setdefault(key, "triton")
        for launch in reached.respelt:
            found.respelt.setdefault(launch, point)
        for choice in reached.choices:
            found.choices.setdefault(choice, point)
        for text, key in reached.dispatched.items():
            found.declared.setdefault(text, (key, point))
        if reached.dispatched:
            together = " and ".join(reached.dispatched)
            found.dispatched.setdefault(together, {}).setdefault(reached.keys, point)
        for name, width in self.widths.items():
            value: Any = reached.arguments.get(name)
            if not holds(width, value):
                found.cut_off.setdefault(name, (width, int(value), point))
        if reached.program is not None:
            built = found.programs.setdefault(reached.keys[0], {})
            built.setdefault(reached.program, point)
        return reached

    def _checked(self, point: Point, row: Any, signatures: Signatures) -> tuple[str, ...] | None:
        """The keys of a point, after its real launch was compared with its forms."""
        reached = self.attempt(point)
        if reached is None:
            return None
        self.seen |= reached.arguments.keys()
        self.constancy.note(self._group(row), reached.keys, point)
        columns = self.space.integers(np.array([row], self.space.dtype))
        for name, coder in signatures.coders.items():
            if name in reached.arguments and not coder.agrees(columns, reached.arguments[name]):
                self._mislead(name, point, coder.form.at(columns)[0], reached.arguments[name])
        return reached.keys

    def _group(self, row: Any) -> tuple[object, ...]:
        """The places of a row's parameters that are no whole numbers."""
        domains = self.envelope.parameters.values()
        return tuple(
            int(value)
            for domain, value in zip(domains, row, strict=True)
            if not isinstance(domain, Ints)
        )

    # What is wrong.

    def _finding(self, kind: Any, message: str, **fields: Any) -> Finding:
        name, site = self.reach.name, self.envelope.site
        return Finding(
            kind, name, f"{name}: {message}", site=site, owners=self.envelope.owners, **fields
        )

    def _fail(self, point: Point, kind: str, error: Exception) -> None:
        """A point whose launch cannot be evaluated; the first of each type of error is told."""
        first, told, count = self.failed.get((type(error), kind), (point, error, 0))
        self.failed[type(error), kind] = first, told, count + 1

    def tell_failures(self) -> None:
        for (_, kind), (point, error, count) in self.failed.items():
            self._tell_failure(point, kind, error, count)

    def _tell_failure(self, point: Point, kind: str, error: Exception, count: int) -> None:
        unstable = kind == "KEY-UNSTABLE"
        named = _FIELD.search(str(error)) if unstable else None
        said = str(error).removeprefix(f"{self.reach.name}: ")
        failing = f"{count} of {self.found.points} points fail: {type(error).__name__}: {said}"
        self.found.weaken(
            self._finding(
                kind,
                (said or type(error).__name__) if unstable else failing.removesuffix(": "),
                advice="make every part of the key a value"
                if unstable
                else "leave this point out with `where`, or return None where nothing is launched",
                field=named["name"] if named else "",
                smallest=point_text(point),
            )
        )

    def _mislead(self, name: str, point: Point, predicted: Any, actual: Any) -> None:
        if ("form", name) in self.told:
            return
        self.told.add(("form", name))
        self.found.weaken(
            self._finding(
                "ENVELOPE",
                f"the form of `{name}` says {predicted}, the launch passes {_shown(actual)}",
                field=name,
                seen=_shown(actual),
                smallest=point_text(point),
                advice=f"correct the form of `{name}`, or leave forms out",
            )
        )

    def _disagree(
        self, point: Point, needs: tuple[str, ...], alike: Point, expected: tuple[str, ...]
    ) -> None:
        """Two points that are one to the forms and two to the compiler."""
        names = difference(needs, expected).field
        if ("key", names) in self.told:
            return
        self.told.add(("key", names))
        self.found.weaken(
            self._finding(
                "ENVELOPE",
                f"to its forms {point_text(point)} is the same launch as {point_text(alike)}, and "
                f"`{names}` differs",
                field=names,
                warmed=" ".join(expected),
                seen=" ".join(needs),
                smallest=point_text(point),
                advice=f"give `{names}` a form, or leave forms out",
            )
        )

    def _coders(self, forms: Mapping[str, Any]) -> dict[str, Coder]:
        function = self.reach.function
        # What is no run-time argument is known at compile time: constexprs, launch options.
        runtime = {p.name for p in getattr(function, "params", ()) if not p.is_constexpr}
        return {
            name: Coder.of(
                form,
                self.envelope.parameters,
                is_constant=name not in runtime,
            )
            for name, form in forms.items()
        }


def _is_wrapped(reach: Reach) -> bool:
    """Whether heuristics or an autotuner stand before the kernel."""
    inner = getattr(reach.kernel, "kernel", None)
    return is_wrapped(reach.kernel) or (inner is not None and is_wrapped(inner))


def _shown(value: Any) -> str:
    if hasattr(value, "data_ptr"):
        return "an aligned pointer" if value.data_ptr() % 16 == 0 else "an unaligned pointer"
    return repr(value)


def _mixed_powers(forms: Mapping[str, Any]) -> bool:
    """Whether there are several block sizes, and one of them is of a sum of parameters."""
    powers = {str(form.of): form for form in forms.values() if isinstance(form, NextPowerOfTwo)}
    return len(powers) > 1 and any(len(form.names) > 1 for form in powers.values())
