"""The page by its structure: whole, self-contained, escaped, and with the data it should have.

To write the golden data anew: `PYTHONPATH=tests python tests/report/html/test_page.py`.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import tempfile
from html.parser import HTMLParser
from pathlib import Path

import msgspec
import pytest

from jitwarm.history.asv import read_asv
from jitwarm.history.cases import case_histories
from jitwarm.history.expected import Expected
from jitwarm.history.records import FailedCase, FailedRecord, read_records
from jitwarm.record import FailedKey, Result, encode
from jitwarm.report.html.page import Contents, html_of, page_of
from made_history import base, commit, replace, result, write_asv, write_records

pytest.importorskip("altair")
pytest.importorskip("vl_convert")

GOLDEN = Path(__file__).parent / "golden" / "data.json"
VOID = {"meta", "input", "br"}
EVIL = "</script><script>alert(1)</script><img src=x onerror=alert(2)>\"'&\x00\x1b[31m"


class Reader(HTMLParser):
    """Tags in order, ids, attributes, and the text of scripts; raises for what is not balanced."""

    def __init__(self):
        super().__init__(convert_charrefs=True)
        self.open, self.tags, self.ids, self.scripts, self.text = [], [], [], [], []
        self.classes = set()

    def handle_starttag(self, tag, attrs):
        given = dict(attrs)
        assert len(given) == len(attrs), f"an attribute twice: {attrs}"
        self.tags.append((tag, given))
        self.ids += [given["id"]] if "id" in given else []
        if tag not in VOID:
            self.open.append(tag)
        if tag == "script":
            self.scripts.append("")

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] == "script":
            self.scripts[-1] += data
        elif self.open and self.open[-1] != "style":
            self.text.append(data)


def read(html):
    reader = Reader()
    reader.feed(html)
    reader.close()
    assert reader.open == []
    return reader


@pytest.fixture(scope="module")
def contents(tmp_path_factory):
    folder = tmp_path_factory.mktemp("history")
    return made_contents(folder)


def made_contents(folder):
    write_records(folder / "records")
    write_asv(folder / "asv")
    records = read_records([folder / "records"])
    cases, orphans = case_histories(records)
    trees, problems = read_asv(folder / "asv")
    assert (records.problems, problems) == ([], [])
    return Contents(cases, orphans, trees, expected=[Expected("expected.json", 9, 2)])


@pytest.fixture(scope="module")
def html(contents):
    return html_of(page_of(contents)).decode()


def data_of(html):
    return json.loads(read(html).scripts[0])


def test_it_is_balanced_and_ids_are_unique(html):
    reader = read(html)
    assert len(set(reader.ids)) == len(reader.ids)
    assert {"data", "cases-overview", "changes", "cases", "asv", "environment", "rules"} <= {
        *reader.ids
    }


def test_nothing_in_it_is_fetched(html):
    reader = read(html)
    assert "link" not in {tag for tag, _ in reader.tags}
    for tag, given in reader.tags:
        assert not {"src", "srcset", "action", "data", "poster", "style"} & set(given), tag
        assert given.get("href", "#").startswith("#")
        assert not [name for name in given if name.startswith("on")]
    style = html.partition("<style>")[2].partition("</style>")[0]
    assert "url(" not in style and "@import" not in style
    assert (
        re.findall(r"https?://", style + html.partition("<body>")[2].partition("<script")[0]) == []
    )


def test_only_its_two_scripts_may_run(html):
    reader = read(html)
    policy = next(
        given["content"] for _, given in reader.tags
        if given.get("http-equiv") == "Content-Security-Policy"
    )  # fmt: skip
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    _, *scripts = reader.scripts
    hashes = [base64.b64encode(hashlib.sha256(s.encode()).digest()).decode() for s in scripts]
    assert re.findall(r"'sha256-([^']+)'", policy) == hashes
    assert len(scripts) == 2
    assert "connect-src" not in policy and "'unsafe-inline'" not in policy.partition("style-src")[0]


def test_one_library_for_all_charts_and_less_than_two_megabytes(html):
    assert len(html.encode()) < 1_300_000
    assert html.count("window.vegaEmbed=") == 1
    figures = data_of(html)["figures"]
    assert len(figures) == html.count('class="chart"') == 25


def test_it_is_the_same_page_each_time(contents, html):
    assert html_of(page_of(contents)).decode() == html


def test_tables_have_names_and_headers(html):
    reader = read(html)
    tags = [tag for tag, _ in reader.tags]
    assert tags.count("table") == tags.count("caption") == tags.count("thead")
    for place, (tag, given) in enumerate(reader.tags):
        if tag == "tr" and reader.tags[place + 1][0] == "th":
            assert reader.tags[place + 1][1]["scope"] in ("row", "col")
        if tag == "div" and given.get("class") == "scroll":
            assert given["tabindex"] == "0" and given["role"] == "region" and given["aria-label"]
    assert ("html", {"lang": "en"}) in reader.tags
    assert tags.count("h1") == tags.count("main") == 1


def test_a_form_field_has_a_label(html):
    reader = read(html)
    inputs = [place for place, (tag, _) in enumerate(reader.tags) if tag == "input"]
    assert inputs and all(reader.tags[place - 1][0] == "label" for place in inputs)


def test_every_chart_that_a_figure_names_is_there_and_every_column_it_draws(html):
    data = data_of(html)
    for figure in data["figures"].values():
        specification = data["charts"][figure["chart"]]
        assert len({len(row) for row in figure["rows"]} | {len(figure["columns"])}) == 1
        drawn = set(re.findall(r'"field": "(\w+)"', json.dumps(specification)))
        optional = {"low", "high", "level", "segment", "mark", "place", "what", "before"}
        assert drawn - set(figure["columns"]) <= optional
        assert "http" not in json.dumps(specification)


def test_the_data_is_that_of_the_golden_file(html):
    data = data_of(html)
    del data["charts"]  # Altair's own words, which another release may put otherwise
    assert data == json.loads(GOLDEN.read_text())


def test_what_the_story_was_stands_on_the_page(html):
    text = " ".join(" ".join(read(html).text).split())
    for part in (
        "no key missed in 1 case",
        "7 numbers worse than before",
        "deepseek-v3.2-dcp dcp=2 arch=sm90",
        "NVIDIA H200, driver 580.159.04",
        "out of memory",
        "they differ in triton",
        "as expected 9 kernels and 2 ranks against expected.json",
        "arm cold: load average 2.4 on 2 cores at its end",
        "A step has at least 3 runs on each side",
        "changes the median by at least 5%",
    ):
        assert part in text


def headline_of(results, folder):
    """What stands first on the page of results, one a case."""
    for number, made in enumerate(results):
        one = replace(made, scenario=f"scenario-{number}")
        (folder / f"{number}.json").write_bytes(encode(one))
    cases, _ = case_histories(read_records(sorted(folder.glob("*.json"))))
    body = page_of(Contents(cases)).body
    return re.findall(r'badge (\w+)">(.*?)<', body.partition("</p>")[0])


def test_what_was_measured_in_part_is_not_among_what_missed_nothing(tmp_path):
    whole = result(0)
    idle = replace(whole.coverage, rank=1, launches=0)
    failed = FailedKey("k", "key", "error")
    partial = [
        replace(whole, failures=("rank 1 failed: ValueError",)),
        replace(whole, rank_coverage=(idle,)),
        replace(whole, warm=replace(whole.warm, failed=(failed,))),
    ]
    assert headline_of(partial, tmp_path) == [("bad", "3 cases measured in part")]
    assert headline_of([*partial, whole, whole], tmp_path) == [
        ("good", "no key missed in 2 cases"),
        ("bad", "3 cases measured in part"),
    ]


def test_a_case_that_is_no_longer_measured_is_not_among_what_missed_nothing(tmp_path):
    assert headline_of([result(0), result(0), result(1)], tmp_path) == [
        ("good", "no key missed in 1 case"),
        ("doubt", "2 cases not measured at the newest commit"),
    ]
    cases, _ = case_histories(read_records(sorted(tmp_path.glob("*.json"))))
    body = page_of(Contents(cases)).body
    assert body.count('<span class="badge good">nothing missed</span>') == 2  # row and section
    assert body.count('<span class="badge doubt">not measured at the newest commit</span>') == 4
    told = (
        f"not measured at {commit(1)[:8]}, the newest commit that was measured on this device: the "
        f"newest run is of {commit(0)[:8]}"
    )
    assert body.count(told) == 2


def test_a_missing_key_is_told_once_with_all_its_ranks(tmp_path):
    (tmp_path / "result.json").write_bytes(encode(base()))
    cases, _ = case_histories(read_records([tmp_path]))
    text = " ".join(" ".join(read(html_of(page_of(Contents(cases))).decode()).text).split())
    assert text.count("1 missing key by finding") == 1
    assert (
        "ComputePrefillMetadata: `BLOCK_SIZE`: warmed as the constant 128, launched as the "
        "constant 4 rank 0: first in step 19, 4 launches, 38.9 ms; rank 1: first in step 19, 4 "
        "launches, 0.683 ms field BLOCK_SIZE warmed constexpr=128 seen constexpr=4 do declare this "
        "launch too key jitwarm.zoo.kernels.compute_prefill_metadata."
    ) in text


def test_a_key_that_a_later_process_missed_says_so(tmp_path):
    own = base()
    replace = msgspec.structs.replace
    misses = tuple(replace(miss, process="process 2 of arm loaded") for miss in own.coverage.misses)
    own = replace(own, coverage=replace(own.coverage, misses=misses))
    (tmp_path / "result.json").write_bytes(encode(own))
    cases, _ = case_histories(read_records([tmp_path]))
    assert (
        "rank 0, process 2 of arm loaded: first in step 19, 4 launches"
        in page_of(Contents(cases)).body
    )


def poisoned(value):
    """Every text in a record with one in front of it that would do harm."""
    if isinstance(value, str):
        return f"{EVIL}{value}"
    if isinstance(value, dict):
        return {
            key if key in KEPT or key in FIELDS else f"{EVIL}{key}": poison(key, inner)
            for key, inner in value.items()
        }
    return [poisoned(one) for one in value] if isinstance(value, list) else value


KEPT = {"loaded", "cold", "disk"}
FIELDS = set()


def poison(key, value):
    kept = {"started_at", "date", "kind", "depth"}
    return value if key in kept and isinstance(value, str) else poisoned(value)


def collect_fields(value):
    if isinstance(value, dict):
        FIELDS.update(value)
    for inner in value.values() if isinstance(value, dict) else value:
        if isinstance(inner, dict | list):
            collect_fields(inner)


def test_texts_from_files_do_nothing(tmp_path):
    made = with_everything(base())
    plain = json.loads(encode(made))
    collect_fields(plain)
    FIELDS.difference_update(made.versions)
    evil = msgspec.convert(poisoned(plain), Result)
    folder = tmp_path / "x" / "y"
    folder.mkdir(parents=True)
    for number in range(2):
        one = replace(evil, started_at=f"2026-11-2{number}T00:00:00Z", peak_rss_bytes=number)
        (folder / f"{number}.json").write_bytes(encode(one))
    write_asv(tmp_path / "asv")
    evil_asv(tmp_path / "asv")
    records = read_records([folder / "0.json", folder / "1.json"])
    assert (len(records.results), records.problems) == (2, [])
    cases, _ = case_histories(records)
    trees, _ = read_asv(tmp_path / "asv")
    failed = FailedCase(tmp_path / EVIL.replace("/", "_").replace("\0", "") / "failed.json",
                        FailedRecord(EVIL, EVIL))  # fmt: skip
    page = Contents(
        cases, [failed], trees, [EVIL], 1, [Expected(EVIL, 1, 1, (EVIL,)) for _ in cases]
    )
    html = html_of(page_of(page)).decode()
    reader = read(html)
    assert len(reader.scripts) == 3
    assert "img" not in {tag for tag, _ in reader.tags}
    assert "alert(1)" not in "".join(reader.scripts[1:])
    assert not re.search("[\x00\x1b]", html)
    assert "alert(1)" in "".join(reader.text)
    json.loads(reader.scripts[0])


def with_everything(result):
    """Findings, failed keys and reasons too."""
    return replace(
        result,
        findings=tuple(miss.finding for miss in result.coverage.misses),
        kernels=tuple(replace(one, no_keys_reason="none") for one in result.kernels),
        warm=replace(result.warm, failed=(FailedKey("k", "key", "error"),)),
        coverage=replace(result.coverage, unreached=1, unreached_keys=("a[b; c]{d}",)),
    )


def evil_asv(folder):
    for path in folder.glob("*/*-*.json"):
        data = json.loads(path.read_text())
        data |= {"commit_hash": EVIL, "env_name": EVIL, "params": {EVIL: EVIL}}
        data["results"] = {f"{EVIL}{name}": row for name, row in data["results"].items()}
        path.write_text(json.dumps(data))


def test_without_anything_it_still_is_a_page():
    reader = read(html_of(page_of(Contents())).decode())
    assert "How to read the marks" in "".join(reader.text)


def test_a_case_without_arms_kernels_or_keys(tmp_path):
    bare = replace(base(), arms={}, kernels=(), findings=(), checks=(), versions={}, rank_plans=())
    (tmp_path / "result.json").write_bytes(encode(bare))
    cases, _ = case_histories(read_records([tmp_path]))
    read(html_of(page_of(Contents(cases))).decode())


def test_half_characters_are_no_error(contents):
    page = page_of(Contents(contents.cases, problems=["half \ud800 a character"]))
    assert b"half \\ud800 a character" in html_of(page)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        whole = data_of(html_of(page_of(made_contents(Path(scratch)))).decode())
    del whole["charts"]
    GOLDEN.parent.mkdir(exist_ok=True)
    GOLDEN.write_text(json.dumps(whole, indent=1) + "\n")


def test_a_number_that_the_newest_runs_do_not_have_says_of_which_commit_it_is(tmp_path):
    """An arm that is not measured any more: its last number is not the newest run's."""
    for number in range(3):
        made = result(number)
        arms = made.arms if number < 2 else {"cold": made.arms["cold"]}
        (tmp_path / f"{number}.json").write_bytes(encode(replace(made, arms=arms)))
    cases, _ = case_histories(read_records([tmp_path / f"{number}.json" for number in range(3)]))
    html = html_of(page_of(Contents(cases))).decode()
    rows = re.findall(r"<tr>(.*?)</tr>", html.partition("over commits</caption>")[2])
    gone = f"<small>at {commit(1)[:8]}</small></td>"
    heads = [re.match(r"<th[^>]*>([^<]*?) <small>", one) for one in rows]
    named = {head[1]: gone in one for head, one in zip(heads, rows, strict=True) if head}
    assert named["start-up until ready"] is True
    assert named["compiled while serving, loaded"] is True
    assert named["imports"] is named["compiled while serving, cold"] is False


def test_nothing_in_charts_and_lists_of_keys_acts(tmp_path):
    made = base()
    key = "\u202eevil\x1b[a; \u2066b]"
    kernels = (replace(made.kernels[0], kernel="k\u202e\n"), *made.kernels[1:])
    coverage = replace(made.coverage, unreached=1, unreached_keys=(key,))
    (tmp_path / "result.json").write_bytes(
        encode(replace(made, kernels=kernels, coverage=coverage))
    )
    cases, _ = case_histories(read_records([tmp_path]))
    page = page_of(Contents(cases))
    data = json.loads(page.data)
    assert data["words"] == [r"\u202eevil\x1b[a", r"\u2066b]"]
    assert not re.search("[\x00-\x09\x0b-\x1f\u202a-\u202e\u2066-\u2069]", page.body)
    assert not re.search(r"\\u20(2[a-e]|6[6-9])|\\u00[01]", page.data.replace(r"\\u", ""))
    rows = [row for one in data["figures"].values() for row in one["rows"]]
    assert r"k\u202e\n" in {value for row in rows for value in row}
