"""Plain tables: the first column flush left, figures flush right."""

from __future__ import annotations

from collections.abc import Sequence

from tabulate import tabulate


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
