"""What to do about a launch that missed: a sentence for each way in which two Triton keys differ.

Every differing argument has to be dealt with, so an advice either declares the launch as it is, or
gives for each of them a way to need fewer keys.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

ABSENT = "absent"
_WIDE = frozenset({"i64", "u64"})
_INTEGERS = frozenset({"i32", "i64", "u64", "constexpr=1"})
_SCALARS = _INTEGERS | {"fp32", "u1"}
_NO_WAY = ("", "")  # an argument's value is declared as it is, and nothing does without


@dataclass(frozen=True, slots=True)
class Difference:
    """One argument (or setting, such as `num_warps`) in which a launch differs from the nearest
    warmed keys.

    `was` are its texts in those keys, `now` the launch's: None where it is absent, for a setting
    its default. `numbers` and `number` are the whole numbers behind them, as far as known.
    """

    name: str
    was: tuple[str | None, ...]
    now: str | None
    is_setting: bool = False
    numbers: tuple[int, ...] = ()
    number: int | None = None

    def sentence(self, had: str = "warmed") -> str:
        """How it was warmed (or what else was done with it) and how it was launched, in words."""
        return f"`{self.name}`: {had} as {self.warmed()}, launched as {self.launched()}"

    def launched(self) -> str:
        """The launch's value in words, with the number where the class does not say it."""
        return self._words(self.now) + self._of((self.number,))

    def warmed(self) -> str:
        """The warmed values in words."""
        constants = [value for value in self.was if value and value.startswith("constexpr=")]
        if len(self.was) > 1 and constants == list(self.was):
            return f"the constants {', '.join(self.warmed_constants())}"
        return " or ".join(dict.fromkeys(map(self._words, self.was))) + self._of(self.numbers)

    def warmed_constants(self) -> list[str]:
        """The values of a compile-time argument that are warmed, numbers by size."""
        values = (value for value in self.was if value and value.startswith("constexpr="))
        return sorted((value.removeprefix("constexpr=") for value in values), key=by_number)

    def _of(self, numbers: Iterable[int | None]) -> str:
        """Numbers in brackets; 1 is a class of its own and said already."""
        known = [str(number) for number in numbers if number not in (None, 1)]
        return f" ({', '.join(known)})" if known else ""

    def _words(self, value: str | None) -> str:
        if value is None:
            return "its default" if self.is_setting else ABSENT
        return value if self.is_setting else in_words(value)


def in_words(value: str) -> str:
    """An argument's type and class as people say them."""
    if value.startswith("constexpr="):
        return f"the constant {value.removeprefix('constexpr=')}"
    kind, slash, cls = value.partition("/")
    if value.startswith("(") or not slash:
        return value if value.startswith("(") else f"{_noun(kind)} (not specialised)"
    if cls not in ("", "D"):
        return f"{kind} equal to {cls}"
    what = "aligned to 16 bytes" if kind.startswith("*") else "divisible by 16"
    return f"{_noun(kind)} {what}" if cls else f"{_noun(kind)} not {what}"


def advise(differences: Sequence[Difference]) -> str:
    """What to do about a launch with these differences."""
    ways = [_ways(one) for one in differences]
    instead = [way for _, way in ways if way]
    if len(differences) == 1 and ways[0] != _NO_WAY:
        return ", or ".join([ways[0][0] or "declare this launch too", *instead])
    every = (
        _both(one) if way == _NO_WAY else f"`{one.name}` as {one.launched()}"
        for one, way in zip(differences, ways, strict=True)
    )
    declare = f"declare this launch too: {', '.join(every)}"
    if not instead:
        return declare
    # With a way around each of them no further key is needed; otherwise only fewer of them.
    joint = "; or " if len(instead) == len(differences) else "; to need fewer keys, "
    return f"{declare}{joint}{', and '.join(dict.fromkeys(instead))}"


def by_number(constant: str) -> tuple[int, float, str]:
    """Sorts numbers by size, then everything else by its text."""
    try:
        return (0, float(constant), constant)
    except ValueError:
        return (1, 0.0, constant)


def _ways(one: Difference) -> tuple[str, str]:
    """How to declare this argument's value (empty: as any other), and how to do without (empty: not
    at all).
    """
    name, now = one.name, one.now or ""
    if one.is_setting:
        return _setting(one)
    was = _likest(one)
    old, kind = was.partition("/")[0], now.partition("/")[0]
    if now.startswith("(") or was.startswith("("):  # a tuple: any of its items may differ
        return _NO_WAY
    if kind.startswith("*") and old.startswith("*"):
        return _pointer(name, old, kind, is_aligned=now.endswith("/D"))
    if kind in _INTEGERS and old in _INTEGERS:
        return _integer(one, was)
    if kind in _SCALARS and old in _SCALARS:
        same = f"pass `{name}` as one type always: a whole number, a bool and a float differ"
        return "", same
    if _is_number(now) and all(_is_number(value or "") for value in one.was):
        return _constant(one)
    return _NO_WAY


def _both(one: Difference) -> str:
    """An argument that can only be declared as it is: its value and the warmed ones; of a tuple,
    those of its items that differ.
    """
    now = one.now or ""
    several = [_items(one.name, value or "", now) for value in one.was]
    found = min((items for items in several if items), key=len, default=[])
    if found:
        return ", ".join(f"`{name}` as {seen} (warmed as {was})" for name, was, seen in found)
    return f"`{one.name}` as {one.launched()} (warmed as {one.warmed()})"


def _items(name: str, was: str, now: str) -> list[tuple[str, str, str]]:
    """The differing items of two tuples of one length, each with both values in words; otherwise
    nothing.
    """
    constant = "constexpr=" if was.startswith("constexpr=(") else ""
    old, new = (_split(value.removeprefix(constant)) for value in (was, now))
    if not old or len(old) != len(new) or not now.startswith(f"{constant}("):
        return []
    found = []
    for index, (before, after) in enumerate(zip(old, new, strict=True)):
        if before != after:
            texts = f"{name}[{index}]", constant + before, constant + after
            found += _items(*texts) or [(texts[0], in_words(texts[1]), in_words(texts[2]))]
    return found


def _split(text: str) -> list[str]:
    """The items of a tuple's text, outside of quotes and inner brackets; none of another text."""
    if not (text.startswith("(") and text.endswith(")")):
        return []
    items, depth, quote, skip = [""], 0, "", False
    for char in text[1:-1]:
        if skip:
            skip = False
        elif quote:
            skip = char == "\\"
            quote = "" if char == quote else quote
        elif char in "'\"":
            quote = char
        else:
            depth += (char in "([{") - (char in ")]}")
        if char == "," and not depth and not quote:
            items.append("")
        else:
            items[-1] += char
    return [item.strip() for item in items if item.strip()]


def _setting(one: Difference) -> tuple[str, str]:
    if one.name == "target":
        return "warm up on the device that launches: a binary is for one architecture", ""
    was = "its default" if one.was[0] is None else one.was[0]
    return "", f"launch with the `{one.name}` that is warmed: {was}"


def _pointer(name: str, old: str, kind: str, *, is_aligned: bool) -> tuple[str, str]:
    if old != kind:
        return f"declare `{name}` with this dtype too", ""
    state = "aligned" if is_aligned else "unaligned"
    without = (
        f"if the kernel reads single elements through it, add `{name}` to "
        "do_not_specialize_on_alignment"
    )
    return f"declare the {state} `{name}` too", without


def _likest(one: Difference) -> str:
    """Of the equally near warmed values the one of the launch's type, else of its class."""
    values, now = [value or "" for value in one.was], one.now or ""
    same_type = (value for value in values if value.partition("/")[0] == now.partition("/")[0])
    same_class = (value for value in values if _class(value) == _class(now))
    return next(same_type, next(same_class, values[0]))


def _integer(one: Difference, was: str) -> tuple[str, str]:
    name, now = one.name, one.now or ""
    old, kind = was.partition("/")[0], now.partition("/")[0]
    if (kind in _WIDE) != (old in _WIDE) or {kind, old} == _WIDE:
        wide = "uint64" if "u64" in (kind, old) else "int64"
        annotate = f"annotate `{name}: tl.{wide}`, so that its width does not depend on its value"
        if _class(was) != _class(now):  # of an annotated argument they are told apart all the same
            annotate += ", and add it to do_not_specialize"
        return annotate, ""
    without = f"add `{name}` to do_not_specialize"
    if "stride" not in name.lower():
        return f"declare this class of `{name}` too ({_THREE})", without
    if "1" in (_class(now), _class(was)):
        without += ", which costs the vector loads of a stride that is known to be 1"
    elif now.endswith("/"):
        without = f"pad the tensor to a multiple of 16, or {without}"
    return _stride(one), without


_THREE = "1, multiples of 16 and all other values are three binaries"


def _class(value: str) -> str | None:
    """`1`, `D`, or empty; None where the argument is not specialised."""
    _, slash, cls = value.partition("/")
    return "1" if value == "constexpr=1" else cls if slash else None


def _stride(one: Difference) -> str:
    used = ", ".join(map(str, one.numbers))
    both = used and one.number is not None
    numbers = f": warm-up used {used}, this launch has {one.number}" if both else ""
    return (
        f"warm up with the strides of the real tensor, whose width with its padding decides "
        f"`{one.name}`{numbers}"
    )


def _constant(one: Difference) -> tuple[str, str]:
    value = (one.now or "").removeprefix("constexpr=")
    without = (
        f"if traffic decides `{one.name}`, make it a run-time argument or round it to a warmed "
        f"value ({', '.join(one.warmed_constants())}): a constexpr compiles a kernel for each value"
    )
    return f"declare `{one.name}={value}` too", without


def _is_number(value: str) -> bool:
    """A compile-time number; True and False are none."""
    text = value.removeprefix("constexpr=")
    return text != value and by_number(text)[0] == 0 and text not in ("nan", "inf", "-inf")


def _noun(kind: str) -> str:
    return f"{kind} pointer" if kind.startswith("*") else kind
