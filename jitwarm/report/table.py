"""Plain tables: the first column flush left, figures flush right; and what is left out of lists."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from tabulate import tabulate

from jitwarm.backends.triton.naming import is_made_anew, natural_order, without_number

T = TypeVar("T")

# Of the objects of a kernel that is made anew in each step: the same is said of every one.
SHOWN = 5


def table(head: Sequence[str], rows: Sequence[Sequence[object]], *, left: int = 1) -> str:
    """The rows below their head; the first `left` columns hold words."""
    align = ("left",) * left + ("right",) * (len(head) - left)
    return str(
        tabulate(rows, headers=head, tablefmt="plain", colalign=align, disable_numparse=True)
    )


def kernel_table(
    head: Sequence[str],
    rows: Sequence[Sequence[object]],
    backends: Sequence[str],
    total: Sequence[object] = (),
) -> str:
    """A row a kernel, with its backend in the second column where the kernels have several.

    `backends` is one for each row; `-` is a kernel without keys, whose backend nobody knows.
    `total` is a last row without a backend.
    """
    if len(set(backends) - {"-"}) < 2:
        return table(head, [*rows, total] if total else rows)
    name, *figures = head
    body = [[row[0], backend, *row[1:]] for row, backend in zip(rows, backends, strict=True)]
    if total:
        body.append([total[0], "", *total[1:]])
    return table([name, "backend", *figures], body, left=2)


def of_a_kind(items: Iterable[T], kernel_of: Callable[[T], str]) -> tuple[list[T], list[str]]:
    """The items, of a kernel that was made anew the first `SHOWN` objects, and a line for each such
    kernel that says how many more there are.
    """
    kinds: dict[tuple[str, int], list[T]] = {}
    for place, item in enumerate(items):
        kernel = kernel_of(item)
        kind = (without_number(kernel), -1) if is_made_anew(kernel) else (kernel, place)
        kinds.setdefault(kind, []).append(item)
    for alike in kinds.values():
        alike.sort(key=lambda item: natural_order(kernel_of(item)))
    more = [
        f"and {len(alike) - SHOWN} more of this kind: {kernel} was made anew again and again"
        for (kernel, _), alike in kinds.items()
        if len(alike) > SHOWN
    ]
    return [item for alike in kinds.values() for item in alike[:SHOWN]], more
