"""Keys that say too little, with the field that they lack: two programs under one key, keys whose
inputs lead to another key, and two values of which one is cut off.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from jitwarm.contract.keytype import key_fields
from jitwarm.contract.triton import TritonJitKernel
from jitwarm.declare.nokeys import NoKeys
from jitwarm.faults.orders import shown
from jitwarm.findings import Finding
from jitwarm.plan import PlanKey
from jitwarm.proof.keyfunction import KeyFunction
from jitwarm.proof.planned import Planned
from jitwarm.proof.reach import reach_of


def program_findings(
    function: KeyFunction, points: Iterable[Mapping[str, Any]]
) -> Iterable[Finding]:
    """A KEY-INCOMPLETE for each set of inputs that changes the program of a key and not the key.

    `field` are these inputs, `warmed` and `seen` their values in the first two launches of one key
    whose programs differ.
    """
    if function.program is None:
        return
    first: dict[str, tuple[str, Mapping[str, Any]]] = {}
    told = set()
    for point in points:
        key = function.text(function.key(**point))
        program = str(function.program(**point))
        other, before = first.setdefault(key, (program, point))
        names = [n for n in point if shown(point[n]) != shown(before.get(n))]
        if other == program or tuple(names) in told:
            continue
        told.add(tuple(names))
        yield Finding(
            "KEY-INCOMPLETE",
            function.name,
            f"{function.name}: two programs are built under the key {key}, and whichever is first "
            "is served to both",
            field=", ".join(names),
            warmed=", ".join(shown(before.get(name)) for name in names),
            seen=", ".join(shown(point[name]) for name in names),
            smallest=", ".join(f"{name}={shown(value)}" for name, value in point.items()),
            advice="put everything that the program depends on into the key",
        )


def round_trips(kernel: Any, register: Mapping[str, Any]) -> tuple[list[Finding], list[PlanKey]]:
    """A KEY-INCOMPLETE for each set of fields in which a declared key of a Triton class differs
    from the one that its `warmup_inputs` lead to; and what would be built under its name.

    `warmed` are the values that the inputs lead to, `seen` those of the key.
    """
    if not isinstance(kernel, TritonJitKernel):
        return [], []
    found: dict[tuple[str, ...], Finding] = {}
    built = []
    given = kernel.get_warmup_keys(**register)
    for key in [] if isinstance(given, NoKeys) else given:
        reached = _reached(kernel, key)
        others = list(reached.dispatched.values()) if reached is not None else []
        names = min((_differing(key, other) for other in others), key=len, default=())
        if reached is None or not names:
            continue
        other = next(one for one in others if _differing(key, one) == names)
        text = kernel.key_text(key)
        built += [PlanKey(kernel.kernel_name, name, text, need) for name, need in reached.needs]
        found.setdefault(
            names,
            Finding(
                "KEY-INCOMPLETE",
                kernel.kernel_name,
                f"{kernel.kernel_name}: the inputs of {text} lead to {kernel.key_text(other)}: "
                "warm-up builds that one under the name of the first",
                field=", ".join(names),
                warmed=", ".join(_value(other, name) for name in names),
                seen=", ".join(_value(key, name) for name in names),
                smallest=text,
                advice="warmup_inputs(key) has to return inputs that dispatch to the same key",
            ),
        )
    return list(found.values()), built


def overflow_findings(kernel: Any, points: Iterable[Mapping[str, Any]]) -> Iterable[Finding]:
    """A KEY-INCOMPLETE for each annotated integer of a native kernel that a launch gives a value
    which the annotated type does not hold: Triton does not widen it, so two values are one key,
    and the second is cut off.
    """
    reach = reach_of(kernel, Planned(()))
    widths = {
        parameter.name: parameter.annotation_type
        for parameter in getattr(reach.function, "params", ())
        if re.fullmatch(r"[iu](8|16|32|64)", getattr(parameter, "annotation_type", None) or "")
    }
    told: set[str] = set()
    for point in points if widths else ():
        arguments = _arguments(reach, point)
        for name, width in widths.items():
            value = arguments.get(name)
            if type(value) is int and name not in told and not _holds(width, value):
                told.add(name)
                yield Finding(
                    "KEY-INCOMPLETE",
                    reach.name,
                    f"{reach.name}: `{name}` is annotated as {width}, which does not hold {value}: "
                    "the kernel gets another number, under the same key",
                    field=name,
                    warmed=width,
                    seen=str(value),
                    smallest=f"{name}={value}",
                    advice=f"annotate `{name}: tl.int64`",
                )


def _arguments(reach: Any, point: Mapping[str, Any]) -> Mapping[str, Any]:
    try:
        return reach.at(point).arguments  # type: ignore[no-any-return]
    except Exception:  # a launch that cannot be bound is told where it is proved
        return {}


def _holds(width: str, value: int) -> bool:
    bits = int(width[1:])
    least = 0 if width.startswith("u") else -(1 << (bits - 1))
    return least <= value < least + (1 << bits)


def _reached(kernel: Any, key: Any) -> Any:
    try:
        return reach_of(kernel, Planned(())).at(kernel.warmup_inputs(key))
    except Exception:  # a key that cannot be bound is told where it is planned
        return None


def _differing(one: Any, other: Any) -> tuple[str, ...]:
    names = key_fields(one) or ("key",)
    # A launch takes the option `launch_pdl` from the key, whatever the inputs say.
    names = tuple(name for name in names if name != "launch_pdl")
    return tuple(name for name in names if _value(one, name) != _value(other, name))


def _value(key: Any, name: str) -> str:
    return shown(getattr(key, name) if name in key_fields(key) else key)
