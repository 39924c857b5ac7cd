"""Say why a launch missed: the nearest warmed key and the fields that differ, in words."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping

from jitwarm.amounts import counted
from jitwarm.backends.fa4.advice import advise_call
from jitwarm.backends.keyfields import KeyFields, fields_of
from jitwarm.backends.miss import Spelling
from jitwarm.backends.triton.keytext import split_key
from jitwarm.backends.triton.naming import is_made_anew
from jitwarm.findings import Finding
from jitwarm.judge.advice import ABSENT, Difference, advise, by_number

Values = Mapping[str, int]
# Taking a key apart costs some 50 us, and a refusal must be cheap.
taken_apart = functools.lru_cache(maxsize=4096)(fields_of)

_SPELL_ALIKE = "write the options in the declaration as the launch does, in the same order"

# Classes of an integer argument that have one member only.
_ONES = ("constexpr=1", "i32/1", "i64/1", "u64/1")


def explain_miss(
    kernel: str,
    seen: str,
    warmed: Iterable[str],
    *,
    kind: str = "",
    values: Values | None = None,
    warmed_values: Mapping[str, Values] | None = None,
    had: str = "warmed",
) -> Finding:
    """A MISS finding for the backend key `seen`, against the nearest of the `warmed` keys of the
    same kernel.

    `field`, `warmed` and `seen` name every differing field, separated by `, `. A Triton key that
    was ready and yet had to be fetched is a DISK-HIT (the launch spells its options in another way
    than warm-up did, or it was thrown away), or a MISS if `kind`, the event's, says that it was
    compiled. The keys of other backends are explained by their fields as written. `values` are the
    whole numbers of the launch by argument, `warmed_values` those of the warmed launches by key:
    they are named where a key has only their class. `had` is the word for `warmed` keys that are
    something else.
    """
    taken = taken_apart(seen)
    fields = taken.together()
    candidates = []
    for text in warmed:
        if text.partition("[")[0] != taken.path:  # cheaper than taking it apart
            continue
        differing = _differences(taken_apart(text).together(), fields)
        candidates.append((len(differing), differing, text))
    if not candidates and taken.path.endswith(" "):  # a raw key of Triton's
        return Finding(
            "UNDECLARED",
            kernel,
            f"{kernel} was launched with a key that nobody saw Triton compile, so it is held "
            "against no plan",
            seen=seen,
            advice="launch it after the monitor has started, and leave Triton's "
            "JITFunction._do_compile as the monitor sets it",
        )
    if not candidates and is_made_anew(taken.path):
        return Finding(
            "UNDECLARED",
            kernel,
            f"{kernel}: another object of this kernel was launched, and no key of that was warmed",
            seen=seen,
            advice="define the kernel once, at module level: what is compiled belongs to the "
            "object, so one that is made again and again is compiled again and again",
        )
    if not candidates:
        return Finding(
            "UNDECLARED",
            kernel,
            f"{kernel} was launched, and no key of it was warmed",
            seen=seen,
            advice="declare and register this kernel, or see why its declaration failed",
        )
    count, differing, nearest = min(candidates)
    if not differing:
        return _ready_and_yet_fetched(kernel, seen, kind, is_triton=taken.is_triton)
    near_fields = taken_apart(nearest).together()
    settings = {name for name in differing if name not in taken.fields}
    near = [text for n, d, text in sorted(candidates) if (n, d) == (count, differing)]
    found = [
        _difference(name, near, fields, name in settings, values or {}, warmed_values or {})
        for name in differing
    ]
    sentences, advice = _said(taken, found, had)
    return Finding(
        "MISS",
        kernel,
        f"{kernel}: {'; '.join(sentences)}",
        field=", ".join(differing),
        warmed=", ".join(near_fields.get(name, ABSENT) for name in differing),
        seen=", ".join(fields.get(name, ABSENT) for name in differing),
        advice=advice,
    )


def explain_tuning(
    kernel: str,
    seen: str,
    chosen: Iterable[str],
    *,
    configs: int = 0,
    ms: float = 0.0,
    refused: bool = False,
) -> Finding:
    """An AUTOTUNE finding for a choice `seen` that an autotuner made while serving (or would have
    made, had it not been `refused`), against the nearest of those that were `chosen` at start-up
    for the same kernel (`tuning_text`s).

    `field`, `warmed` and `seen` name the differing values of the autotuner's key, and the dtypes.
    `configs` configurations took `ms` milliseconds; without them the message leaves that out.
    """
    path, fields, _ = split_key(seen)
    others = [fields for other, fields, _ in map(split_key, chosen) if other == path]
    nearest = min(((len(d), d) for one in others if (d := _differences(one, fields))), default=None)
    did = "was about to time" if refused else "timed"
    message = f"{kernel} {did} {_how_many(configs)} against each other while serving"
    message += f", for {ms:.1f} ms" if configs else ""
    if nearest is None or fields in others:
        advice = "tune it at start-up, or keep the choice of an earlier run"
        return Finding("AUTOTUNE", kernel, message, seen=seen, advice=advice)
    _, differing = nearest
    near = [one for one in others if _differences(one, fields) == differing]
    was = {name: _either(one.get(name, ABSENT) for one in near) for name in differing}
    now = {name: fields.get(name, ABSENT) for name in differing}
    words = [f"`{name}`: warmed as {was[name]}, launched as {now[name]}" for name in differing]
    return Finding(
        "AUTOTUNE",
        kernel,
        f"{message}: {'; '.join(words)}",
        field=", ".join(differing),
        warmed="; ".join(was.values()),
        seen="; ".join(now.values()),
        advice=f"declare a case with {', '.join(_setting(*one) for one in now.items())}",
    )


def explain_spelling(
    kernel: str, seen: str, warmed: Iterable[Spelling], launched: Spelling
) -> Finding:
    """A DISK-HIT finding for a launch of the warmed key `seen` whose options are spelt as
    `launched`, against the nearest of the spellings that warm-up makes ready.

    `field` names the options that differ, or those that come in another order.
    """
    now = dict(launched)
    ways = []
    for was in map(dict, warmed):
        differ = [name for name in {**was, **now} if was.get(name) != now.get(name)]
        ways.append((differ, was))
    names, was = min(ways, key=lambda way: len(way[0]))
    told = [(f"`{name}`", was.get(name, ABSENT), now.get(name, ABSENT)) for name in names]
    if not names:
        names = [name for name, other in zip(was, now, strict=True) if name != other]
        one, other = (", ".join(name for name in way if name in names) for way in (was, now))
        told = [("the order of options", one, other)] if names else []
    if not told:
        return _ready_and_yet_fetched(kernel, seen, "", is_triton=True)
    said = "; ".join(f"{what}: warmed as {one}, launched as {other}" for what, one, other in told)
    here = [f"{name}={value}" for name, value in now.items() if name in names]
    gone = [f"no {name}" for name in names if name not in now]
    return Finding(
        "DISK-HIT",
        kernel,
        f"{kernel} is warmed with this key, and yet the launch does not find it in memory: it "
        f"spells its options in another way: {said}",
        field=", ".join(names),
        warmed="; ".join(one for _, one, _ in told),
        seen="; ".join(other for _, _, other in told),
        advice=f"{_SPELL_ALIKE}: {', '.join((*here, *gone))}",
    )


def _how_many(configs: int) -> str:
    if not configs:
        return "its configurations"
    return counted(configs, "configuration")


def _ready_and_yet_fetched(kernel: str, seen: str, kind: str, *, is_triton: bool) -> Finding:
    if not is_triton:
        again = "read from disk" if kind == "disk_hit" else "compiled"
        return Finding(
            "DISK-HIT" if kind == "disk_hit" else "MISS",
            kernel,
            f"{kernel} was warmed with this key, and yet it was {again} again",
            seen=seen,
            advice="launch it through the object that was registered: that one keeps what it made",
        )
    if kind in ("", "disk_hit", "refused"):
        return Finding(
            "DISK-HIT",
            kernel,
            f"{kernel} was warmed with this key, and yet the launch did not find it in memory: it "
            "spells its options in another way, or the kernel's caches were cleared meanwhile",
            seen=seen,
            advice=f"{_SPELL_ALIKE}; where they are, look for who clears the kernel's "
            "device_caches",
        )
    return Finding(
        "MISS",
        kernel,
        f"{kernel} was warmed with this key, and yet it was compiled again",
        seen=seen,
        advice="warm up in the process and on the device that launch, with a cache folder that "
        "keeps its files; look for who clears the kernel's device_caches",
    )


def _difference(
    name: str,
    near: list[str],
    fields: Mapping[str, str],
    is_setting: bool,
    values: Values,
    warmed_values: Mapping[str, Values],
) -> Difference:
    """One differing field against the equally near keys."""
    was = dict.fromkeys(taken_apart(text).together().get(name) for text in near)
    known: dict[int, None] = {}
    for text in near:
        number = warmed_values.get(text, {}).get(name)
        if number is None and taken_apart(text).fields.get(name) in _ONES:
            number = 1
        if number is not None:
            known[number] = None
    now = fields.get(name)
    launched = 1 if now in _ONES else values.get(name)
    return Difference(name, tuple(was), now, is_setting, tuple(sorted(known)), launched)


def _said(taken: KeyFields, found: list[Difference], had: str) -> tuple[list[str], str]:
    """A sentence for each difference, and the advice."""
    if taken.is_triton:
        return [one.sentence(had) for one in found], advise(found)
    sentences = []
    for one in found:
        was = sorted((value or ABSENT for value in one.was), key=by_number)
        now = one.now or ABSENT
        sentences.append(f"`{one.name}`: {had} as {' or '.join(was)}, launched as {now}")
    return sentences, _advise_other(taken.path, found)


def _advise_other(path: str, found: list[Difference]) -> str:
    """For a backend whose keys are what the author declared, or the library's own."""
    hints = [hint for one in found if (hint := advise_call(path, one.name))]
    target = next((one for one in found if one.name == "target" and one.is_setting), None)
    if target is not None:
        hints.insert(0, "warm up on the device that launches: a binary is for one architecture")
    elif any(one.is_setting and one.name == "options" for one in found):
        hints.insert(0, "compile with the options of the launch")
    numbers = [
        f"`{one.name}`"
        for one in found
        if not hints and not one.is_setting and all(map(_is_number, (*one.was, one.now)))
    ]
    declare = "declare this key too: get_warmup_keys has to yield it"
    if numbers:
        hints.append(
            f"if traffic decides {' and '.join(numbers)}, round in dispatch: each value compiles a "
            "kernel"
        )
    return "; ".join([declare, *dict.fromkeys(hints)])


def _is_number(value: str | None) -> bool:
    return by_number(value or "")[0] == 0


def _either(values: Iterable[str]) -> str:
    return ", ".join(sorted(dict.fromkeys(values), key=by_number))


def _setting(name: str, value: str) -> str:
    """What a case has to give for one value of a tuning: a dtype is the only word without quotes,
    but for three.
    """
    if value == ABSENT:
        return f"no `{name}`"
    if value.isidentifier() and value not in ("None", "True", "False"):
        return f"`{name}` of dtype {value}"
    return f"`{name}={value}`"


def _differences(one: Mapping[str, str], other: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(name for name in {**one, **other} if one.get(name) != other.get(name))
