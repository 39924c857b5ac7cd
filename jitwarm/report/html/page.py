"""The whole page: sections, data, style and script in one file."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib.resources import files

from jitwarm import __version__
from jitwarm.history.asv import AsvHistory
from jitwarm.history.cases import CaseHistory
from jitwarm.history.expected import Expected
from jitwarm.history.marks import judge
from jitwarm.history.records import FailedCase
from jitwarm.report.html.asv_section import asv_section
from jitwarm.report.html.case_section import case_section
from jitwarm.report.html.charts import bundle, specifications
from jitwarm.report.html.environment_section import environment_section
from jitwarm.report.html.judged import JudgedCase, JudgedTree
from jitwarm.report.html.markup import text
from jitwarm.report.html.payload import Payload, script_json
from jitwarm.report.html.rules import RULES
from jitwarm.report.html.summary_section import changes, headline, overview, page_doubts


@dataclass(frozen=True, slots=True)
class Contents:
    """What a page shows. `orphans` are failed cases of which there is no result, `problems` what
    could not be read, `copies` how many files were the same as another, `expected` the expectation
    of each case, None if nobody asked.
    """

    cases: Sequence[CaseHistory] = ()
    orphans: Sequence[FailedCase] = ()
    trees: Sequence[AsvHistory] = ()
    problems: Sequence[str] = ()
    copies: int = 0
    expected: Sequence[Expected] | None = None


@dataclass(frozen=True, slots=True)
class Page:
    """The body of a page and the data of its script; the same input gives the same page."""

    body: str
    data: str = field(repr=False)


def page_of(contents: Contents) -> Page:
    """The page, without style and scripts. Raises `MissingExtraError`."""
    payload, nobody_asked = Payload(), [None] * len(contents.cases)
    cases = [
        JudgedCase(one, [judge(s, one.runs) for s in one.series], expected)
        for one, expected in zip(contents.cases, contents.expected or nobody_asked, strict=False)
    ]
    trees = [JudgedTree(one, [judge(s, one.runs) for s in one.series]) for one in contents.trees]
    opened = _first_opened(cases)
    sections = [
        page_doubts(contents.problems, contents.copies),
        overview(cases, contents.orphans),
        changes(cases, trees),
        _cases(
            [
                case_section(place, one, payload, opened=place == opened)
                for place, one in enumerate(cases, 1)
            ]
        ),
        asv_section(trees, payload),
        environment_section(contents.cases),
        RULES,
    ]
    body = (
        '<a class="skip" href="#content">Skip to content</a>'
        f"<header><h1>jitwarm report</h1>{headline(cases, contents.orphans, trees)}{_filter()}"
        f'</header><main id="content">{"".join(sections)}</main>'
        f"<footer><p>jitwarm {text(__version__)}. No network is used.</p></footer>"
    )
    return Page(body, script_json(payload.data(specifications())))


def html_of(page: Page) -> bytes:
    """The page as a file. Scripts other than its two do not run in it, and nothing is fetched."""
    own = files("jitwarm.report.html")
    scripts = [bundle().replace("</script", "<\\/script"), (own / "script.js").read_text("utf-8")]
    style = (own / "style.css").read_text("utf-8")
    hashes = " ".join(f"'sha256-{_hash(script)}'" for script in scripts)
    # Vega compiles its expressions, which are those of our charts: 'unsafe-eval'.
    policy = (
        f"default-src 'none'; script-src {hashes} 'unsafe-eval'; style-src 'unsafe-inline'; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )
    parts = [
        '<!DOCTYPE html><html lang="en"><head><meta charset="utf-8">',
        f'<meta http-equiv="Content-Security-Policy" content="{text(policy)}">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        '<meta name="color-scheme" content="light dark"><title>jitwarm report</title>',
        f"<style>{style}</style></head><body>{page.body}",
        f'<script type="application/json" id="data">{page.data}</script>',
        *(f"<script>{script}</script>" for script in scripts),
        "</body></html>\n",
    ]
    return "".join(parts).encode("utf-8", "replace")


def _hash(script: str) -> str:
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()


def _first_opened(cases: Sequence[JudgedCase]) -> int:
    """The case that is open at first: the first of which something is wrong, else the first."""
    return next((place for place, one in enumerate(cases, 1) if one.troubled), 1)


def _cases(sections: Sequence[str]) -> str:
    if not sections:
        return ""
    buttons = (
        '<p class="buttons"><button type="button" id="open-all">open all</button> '
        '<button type="button" id="close-all">close all</button></p>'
    )
    return f'<section id="cases"><h2>Case by case</h2>{buttons}{"".join(sections)}</section>'


def _filter() -> str:
    return (
        '<form id="filter" role="search"><label>Filter <input type="search" id="words" '
        'placeholder="scenario, case" autocomplete="off"></label> <label><input type="checkbox" '
        'id="bad"> only with problems</label> <output id="shown"></output></form>'
    )
