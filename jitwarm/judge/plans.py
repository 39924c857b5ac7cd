"""What a plan itself gives away: kernels registered and not warmed, keys that Triton merges."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from jitwarm.amounts import counted
from jitwarm.backends.triton.keytext import split_key
from jitwarm.findings import Finding


def outside_findings(outside: Mapping[str, int]) -> Iterable[Finding]:
    """Registrations that no registry took: kernel name -> how many."""
    for name, count in outside.items():
        yield Finding(
            "UNDECLARED",
            name,
            f"{name} was registered {counted(count, 'time')} outside any warm-up scope and is not "
            "warmed",
            advice="register while a JitWarmupRegistry is active",
        )


def silent_findings(silent: Iterable[tuple[str, str]]) -> Iterable[Finding]:
    """Kernels with a request that gave neither keys nor a reason: (name, what it did instead)."""
    for name, what in dict.fromkeys(silent):
        yield Finding(
            "UNDECLARED",
            name,
            f"{name} is registered but {what}",
            advice="return NoKeys('why') where no key is needed",
        )


def collision_findings(keys: Iterable[tuple[str, str]]) -> Iterable[Finding]:
    """Spaces that hold two constants which Triton's in-process memo takes for one: 1, True and 1.0,
    or 0.0 and -0.0. `keys` are pairs of a kernel's name and a Triton backend key.
    """
    seen: dict[str, dict[str, None]] = {}
    for name, key in keys:
        texts = seen.setdefault(_as_the_memo_sees(key), {})
        if texts and key not in texts:
            yield Finding(
                "KEY-UNSTABLE",
                name,
                f"{name} declares {key} and {next(iter(texts))}: Triton serves whichever "
                "was compiled first to both",
                advice="use one type for this compile-time value",
            )
        texts[key] = None


def _as_the_memo_sees(key: str) -> str:
    """The key with equal constants written alike; the memo compares options as text."""
    kernel, arguments, settings = split_key(key)
    merged = {name: _TOKEN.sub(_merge, value) for name, value in arguments.items()}
    return f"{kernel}{merged}{settings}"


# Strings and names first, so that nothing inside them is taken for a number. A numpy number is
# compared by its value too, so the name around it goes: np.float64(1.0) is 1.
_TOKEN = re.compile(
    r"""'(?:\\.|[^'\\])*'|"(?:\\.|[^"\\])*"|np\.\w+\((?P<numpy>[^()]*)\)|\b(?:True|False)\b"""
    r"""|[A-Za-z_][\w.]*|-?\d+(?:\.\d+)?(?:e[+-]?\d+)?"""
)


def _merge(token: re.Match[str]) -> str:
    text = token["numpy"] or token[0]
    if text in ("True", "False"):
        return str(int(text == "True"))
    try:
        number = float(text)
    except ValueError:
        return text
    # An integer stays as written: beyond 2**53 floats would merge what Python keeps apart.
    is_float = any(mark in text for mark in ".en")
    return str(int(number)) if is_float and number.is_integer() else text
