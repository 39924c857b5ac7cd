"""Say why a launch missed: the nearest warmed key and the fields that differ, in words."""

from __future__ import annotations

from collections.abc import Iterable

from jitwarm.backends.keyfields import KeyFields, fields_of
from jitwarm.backends.triton.keytext import split_key
from jitwarm.findings import Finding

ABSENT = "absent"
# An integer argument of value 1 is a constant to Triton, any other value a number.
_ONE_AND_ANOTHER = [{"constexpr=1", kind} for kind in ("i32", "u64")]


def explain_miss(kernel: str, seen: str, warmed: Iterable[str]) -> Finding:
    """A MISS finding for the backend key `seen`, against the nearest of the `warmed` keys of the
    same kernel.

    `field`, `warmed` and `seen` name every differing field, separated by `, `. A Triton key that
    was ready and yet had to be fetched is a DISK-HIT: the launch spells its options in another way
    than warm-up did. The keys of other backends are explained by their fields as written.
    """
    taken = fields_of(seen)
    fields = taken.together()
    candidates = []
    for text in warmed:
        other = fields_of(text)
        if other.path == taken.path:
            differing = _differences(other.together(), fields)
            candidates.append((len(differing), differing, text))
    if not candidates:
        return Finding(
            "UNDECLARED",
            kernel,
            f"{kernel} was launched, and no key of it was warmed",
            seen=seen,
            advice="declare and register this kernel, or see why its declaration failed",
        )
    count, differing, nearest = min(candidates)
    if not differing and not taken.is_triton:
        return Finding(
            "MISS",
            kernel,
            f"{kernel} was warmed with this key, and yet it was compiled again",
            seen=seen,
            advice="launch it through the object that was registered: that one keeps what it made",
        )
    if not differing:
        return Finding(
            "DISK-HIT",
            kernel,
            f"{kernel} was warmed with this key, but the launch spells its options in another way "
            "and fetched it again",
            seen=seen,
            advice="write the options in the declaration as the launch does, in the same order",
        )
    near_fields = fields_of(nearest).together()
    settings = {name for name in differing if name not in taken.fields}
    equally_near = [
        fields_of(t).together() for n, d, t in sorted(candidates) if (n, d) == (count, differing)
    ]
    if not taken.is_triton:
        return _other_backend(kernel, taken, near_fields, equally_near, differing)
    launched = {name: _words(fields.get(name), is_setting=name in settings) for name in differing}
    words = [
        f"`{name}`: warmed as {_alternatives(name, equally_near, is_setting=name in settings)}, "
        f"launched as {launched[name]}"
        for name in differing
    ]
    return Finding(
        "MISS",
        kernel,
        f"{kernel}: {'; '.join(words)}",
        field=", ".join(differing),
        warmed=", ".join(near_fields.get(name, ABSENT) for name in differing),
        seen=", ".join(fields.get(name, ABSENT) for name in differing),
        advice=_advice(near_fields, fields, launched, settings),
    )


def explain_tuning(kernel: str, seen: str, chosen: Iterable[str]) -> Finding:
    """A MISS finding for a choice `seen` that an autotuner made while serving, against the nearest
    of those that were `chosen` at start-up for the same kernel (`tuning_text`s).

    `field`, `warmed` and `seen` name the differing values of the autotuner's key, and the dtypes.
    """
    path, fields, _ = split_key(seen)
    others = [fields for other, fields, _ in map(split_key, chosen) if other == path]
    nearest = min(((len(d), d) for one in others if (d := _differences(one, fields))), default=None)
    message = f"{kernel} timed its configurations against each other while serving"
    if nearest is None or fields in others:
        advice = "tune it at start-up, or keep the choice of an earlier run"
        return Finding("MISS", kernel, message, seen=seen, advice=advice)
    _, differing = nearest
    near = [one for one in others if _differences(one, fields) == differing]
    was = {name: _either(one.get(name, ABSENT) for one in near) for name in differing}
    now = {name: fields.get(name, ABSENT) for name in differing}
    words = [f"`{name}`: warmed as {was[name]}, launched as {now[name]}" for name in differing]
    return Finding(
        "MISS",
        kernel,
        f"{message}: {'; '.join(words)}",
        field=", ".join(differing),
        warmed="; ".join(was.values()),
        seen="; ".join(now.values()),
        advice=f"declare a case with {', '.join(_setting(*one) for one in now.items())}",
    )


def _either(values: Iterable[str]) -> str:
    return ", ".join(sorted(dict.fromkeys(values), key=_by_number))


def _setting(name: str, value: str) -> str:
    """What a case has to give for one value of a tuning: a dtype is the only word without quotes,
    but for three.
    """
    if value == ABSENT:
        return f"no `{name}`"
    if value.isidentifier() and value not in ("None", "True", "False"):
        return f"`{name}` of dtype {value}"
    return f"`{name}={value}`"


def _other_backend(
    kernel: str,
    taken: KeyFields,
    near: dict[str, str],
    equally_near: list[dict[str, str]],
    differing: tuple[str, ...],
) -> Finding:
    """A miss of a backend whose keys are what the author declared: values as written."""
    fields = taken.together()
    words = []
    for name in differing:
        was = dict.fromkeys(other.get(name, ABSENT) for other in equally_near)
        shown = sorted(was, key=_by_number)
        words.append(
            f"`{name}`: warmed as {' or '.join(shown)}, launched as {fields.get(name, ABSENT)}"
        )
    return Finding(
        "MISS",
        kernel,
        f"{kernel}: {'; '.join(words)}",
        field=", ".join(differing),
        warmed=", ".join(near.get(name, ABSENT) for name in differing),
        seen=", ".join(fields.get(name, ABSENT) for name in differing),
        advice="declare this key too: get_warmup_keys has to yield it",
    )


def _differences(one: dict[str, str], other: dict[str, str]) -> tuple[str, ...]:
    return tuple(name for name in {**one, **other} if one.get(name) != other.get(name))


def _alternatives(name: str, warmed: list[dict[str, str]], *, is_setting: bool) -> str:
    """The warmed values of one field in words."""
    values = list(dict.fromkeys(fields.get(name) for fields in warmed))
    constants = [value for value in values if value and value.startswith("constexpr=")]
    if len(values) > 1 and constants == values:
        shown = sorted((value.removeprefix("constexpr=") for value in constants), key=_by_number)
        return f"the constants {', '.join(shown)}"
    words = dict.fromkeys(_words(value, is_setting=is_setting) for value in values)
    return " or ".join(words)


def _by_number(constant: str) -> tuple[int, float, str]:
    """Numbers by size, then everything else by its text."""
    try:
        return (0, float(constant), constant)
    except ValueError:
        return (1, 0.0, constant)


def _words(value: str | None, *, is_setting: bool) -> str:
    if value is None:
        return "its default" if is_setting else ABSENT
    if is_setting:
        return value
    if value.startswith("constexpr="):
        return f"the constant {value.removeprefix('constexpr=')}"
    kind, slash, cls = value.partition("/")
    if value.startswith("(") or not slash:
        return value if value.startswith("(") else f"{_noun(kind)} (not specialised)"
    if cls not in ("", "D"):
        return f"{kind} equal to {cls}"
    what = "aligned to 16 bytes" if kind.startswith("*") else "divisible by 16"
    return f"{_noun(kind)} {what}" if cls else f"{_noun(kind)} not {what}"


def _noun(kind: str) -> str:
    return f"{kind} pointer" if kind.startswith("*") else kind


def _advice(
    warmed: dict[str, str], seen: dict[str, str], launched: dict[str, str], settings: set[str]
) -> str:
    """What to do about every differing field; `launched` holds them in words.

    For one that nothing special helps with, the launch itself has to be declared: with all of them.
    """
    special = [
        _advice_for(name, warmed.get(name, ""), seen.get(name, ""))
        for name in launched
        if name not in settings
    ]
    helpful = [text for text in special if text]
    if len(helpful) == len(launched):
        return "; ".join(dict.fromkeys(helpful))
    if len(launched) == 1:
        return "declare this launch too"
    every = ", ".join(f"`{name}` as {words}" for name, words in launched.items())
    return f"declare this launch too: {every}"


def _advice_for(name: str, was: str, now: str) -> str | None:
    old, kind = was.partition("/")[0], now.partition("/")[0]
    if now.startswith("("):
        return None
    if kind.startswith("*"):
        if kind != old:
            return f"declare `{name}` with this dtype too"
        state = "aligned" if now.endswith("/D") else "unaligned"
        return f"declare the {state} `{name}` too, or add it to do_not_specialize_on_alignment"
    if kind != old and "i64" in (old, kind):
        return f"annotate `{name}: tl.int64`, so that its width does not depend on its value"
    if kind == old or {kind, old} in _ONE_AND_ANOTHER:
        return f"declare this class of `{name}` too, or add it to do_not_specialize"
    return None
