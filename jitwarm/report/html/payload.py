"""What the page's script needs: rows of the charts, and keys, each text once."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from jitwarm.report.html.markup import text
from jitwarm.report.printable import printable

Row = Mapping[str, object]


class Payload:
    """Collects the data of a page while its sections are written."""

    def __init__(self) -> None:
        """Empty."""
        self._figures: dict[str, dict[str, object]] = {}
        self._words: dict[str, int] = {}
        self._keys: dict[str, int] = {}
        self._spelt: list[list[int]] = []
        self._lists: dict[str, list[int]] = {}

    def figure(self, chart: str, title: str, caption: str, rows: Sequence[Row]) -> str:
        """The HTML of a chart. `title` names it, for those who cannot see it too; `caption` says
        how to read it.
        """
        identity = f"figure-{len(self._figures) + 1}"
        columns = list(dict.fromkeys(name for row in rows for name in row))
        self._figures[identity] = {
            "chart": chart,
            "title": printable(title),
            "columns": columns,
            "rows": [[_short(row.get(name)) for name in columns] for row in rows],
        }
        note = f" <small>{text(caption)}</small>" if caption else ""
        return (
            f'<figure id="{identity}" class="chart"><figcaption><b>{text(title)}</b>{note}'
            f'</figcaption><div class="plot"></div></figure>'
        )

    def keys(self, keys: Iterable[str]) -> str:
        """A place for keys, which the script writes when it is opened."""
        identity = f"keys-{len(self._lists) + 1}"
        self._lists[identity] = [self._key(key) for key in keys]
        return f'<ol class="keys" id="{identity}"></ol>'

    def _key(self, key: str) -> int:
        """The number of a key. Keys differ in a few of their arguments, so each argument is
        written once: 968 keys of all shipped scenarios are 448 kB in full and 60 kB like this.
        """
        if key not in self._keys:
            self._keys[key] = len(self._spelt)
            parts = printable(key).split("; ")
            self._spelt.append([self._words.setdefault(p, len(self._words)) for p in parts])
        return self._keys[key]

    def data(self, charts: Mapping[str, Any]) -> dict[str, Any]:
        """Everything, as JSON takes it. `charts` are the specifications that figures name."""
        used = {figure["chart"] for figure in self._figures.values()}
        return {
            "schema": 1,
            "charts": {name: charts[name] for name in sorted(charts) if name in used},
            "figures": self._figures,
            "words": list(self._words),
            "keys": self._spelt,
            "lists": self._lists,
        }


def _short(value: object) -> object:
    """A number with as many digits as a chart can show; a text in which nothing acts."""
    if isinstance(value, str):
        return printable(value)
    return float(f"{value:.6g}") if isinstance(value, float) else value


def script_json(data: object) -> str:
    """JSON that may stand inside of a script element: no text in it can end the element."""
    dumped = json.dumps(data, separators=(",", ":"), allow_nan=False)
    return dumped.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
