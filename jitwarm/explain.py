"""Say why a launch missed: the nearest warmed key and the fields that differ, in words."""

from __future__ import annotations

from collections.abc import Iterable

from jitwarm.backends.triton.keytext import parse_key
from jitwarm.findings import Finding

ABSENT = "absent"


def explain_miss(kernel: str, seen: str, warmed: Iterable[str]) -> Finding:
    """A MISS finding for the backend key `seen`, against the nearest of the `warmed` keys of the
    same kernel.

    `field`, `warmed` and `seen` name every differing field, separated by `, `. A key that was ready
    and yet had to be fetched is a DISK-HIT: the launch spells its options in another way than
    warm-up did.
    """
    path, fields = parse_key(seen)
    candidates = []
    for text in warmed:
        other, other_fields = parse_key(text)
        if other == path:
            differing = _differences(other_fields, fields)
            candidates.append((len(differing), differing, text))
    if not candidates:
        return Finding(
            "UNDECLARED",
            kernel,
            f"{kernel} was launched, and no key of it was warmed",
            seen=seen,
            advice="declare and register this kernel",
        )
    _, differing, nearest = min(candidates)
    if not differing:
        return Finding(
            "DISK-HIT",
            kernel,
            f"{kernel} was warmed with this key, but the launch spells its options in another way "
            "and fetched it again",
            seen=seen,
            advice="write the options in the declaration as the launch does, in the same order",
        )
    _, near_fields = parse_key(nearest)
    words = [
        f"`{name}`: warmed as {_words(near_fields.get(name))}, launched as "
        f"{_words(fields.get(name))}"
        for name in differing
    ]
    return Finding(
        "MISS",
        kernel,
        f"{kernel}: {'; '.join(words)}",
        field=", ".join(differing),
        warmed=", ".join(near_fields.get(name, ABSENT) for name in differing),
        seen=", ".join(fields.get(name, ABSENT) for name in differing),
        advice=_advice(near_fields, fields, differing),
    )


def _differences(one: dict[str, str], other: dict[str, str]) -> tuple[str, ...]:
    return tuple(name for name in {**one, **other} if one.get(name) != other.get(name))


def _words(value: str | None) -> str:
    if value is None:
        return ABSENT
    kind, slash, cls = value.partition("/")
    if value.startswith("constexpr="):
        return f"the constant {value.removeprefix('constexpr=')}"
    noun = f"{kind} pointer" if kind.startswith("*") else kind
    if not slash:
        return f"{noun} (not specialised)"
    if cls == "D":
        return f"{noun} aligned to 16 bytes" if kind.startswith("*") else f"{noun} divisible by 16"
    return (
        f"{noun} not aligned to 16 bytes" if kind.startswith("*") else f"{noun} not divisible by 16"
    )


def _advice(warmed: dict[str, str], seen: dict[str, str], differing: tuple[str, ...]) -> str:
    for name in differing:
        was, now = warmed.get(name, ""), seen.get(name, "")
        if was.partition("/")[0] != now.partition("/")[0] and "i64" in (was[:3], now[:3]):
            return f"annotate `{name}: tl.int64`, so that its width does not depend on its value"
        if now.startswith("*") and was.partition("/")[0] == now.partition("/")[0]:
            return (
                f"declare the unaligned `{name}` too, or add it to do_not_specialize_on_alignment"
            )
        if "=" not in now.partition("/")[0] or now == "constexpr=1":
            return f"declare this class of `{name}` too, or add it to do_not_specialize"
    return "declare this launch too"
