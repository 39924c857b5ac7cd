"""`jitwarm report`: what it reads, what it refuses, and its exit codes."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import tomllib
from pathlib import Path

import msgspec
import pytest

from jitwarm.cli import main
from jitwarm.record import encode
from made_history import base, write_asv, write_records

pytest.importorskip("altair")
pytest.importorskip("vl_convert")

ROOT = Path(__file__).parents[1]


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "reports" / "out" / "deepseek-v3.2-dcp" / "dcp-2_arch-sm90"
    folder.mkdir(parents=True)
    (folder / "result.json").write_bytes(encode(base()))
    return folder


def said(capsys):
    captured = capsys.readouterr()
    assert captured.out == ""
    return captured.err.splitlines()


def test_the_default_is_what_run_writes(place, capsys):
    assert main(["report"]) == 0
    page = Path("reports/out/report.html")
    assert page.read_text().startswith("<!DOCTYPE html>")
    assert re.fullmatch(
        r"reports/out/report.html: 1 case of 1 result, 0 commits of asv, \d\.\d MB",
        said(capsys)[0],
    )


def test_paths_and_trees(tmp_path, capsys):
    write_records(tmp_path / "history")
    write_asv(tmp_path / "asv")
    paths = [str(tmp_path / "history"), "--asv", str(tmp_path / "asv")]
    assert main(["report", *paths, "--out", str(tmp_path / "new" / "page.html")]) == 0
    line = f"{tmp_path / 'new' / 'page.html'}: 1 case of 12 results, 28 commits of asv, "
    assert said(capsys)[0].startswith(line)


def test_an_asv_tree_alone(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    write_asv(tmp_path / "asv")
    assert main(["report", "--asv", "asv", "--out", "page.html"]) == 0
    assert said(capsys)[0].startswith("page.html: 0 cases of 0 results, 28 commits of asv")


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"{", "is damaged or no JSON (Input data was truncated)"),
        (b"", "is empty, and no result of jitwarm"),
        (b'{"schema": 7}', "is a result of schema 7, this jitwarm reads up to 1"),
        (b'{"version": 2}', "is no result of jitwarm: it has no schema number"),
    ],
)
def test_an_unreadable_file_is_4_and_the_page_stays_as_it_was(place, capsys, data, problem):
    other = place.parent / "other"
    other.mkdir()
    (other / "result.json").write_bytes(data)
    Path("reports/out/report.html").write_text("the old page")
    assert main(["report"]) == 4
    first, second = said(capsys)
    path = "reports/out/deepseek-v3.2-dcp/other/result.json"
    assert first.startswith(f"jitwarm: {path}: {problem}")
    assert second == (
        "jitwarm: nothing was written: 1 file cannot be read (mend it, remove it, or "
        "--skip-unreadable)"
    )
    assert Path("reports/out/report.html").read_text() == "the old page"


def test_skip_unreadable_writes_the_page_names_the_file_and_still_is_4(place, capsys):
    (place / "events.jsonl").write_bytes(b"{")
    assert main(["report", "--skip-unreadable", str(place / "none.json"), "reports/out"]) == 4
    lines = said(capsys)
    assert [line.partition(": ")[2].partition(":")[0] for line in lines[:2]] == [
        str(place / "none.json"),
        "reports/out/deepseek-v3.2-dcp/dcp-2_arch-sm90/events.jsonl",
    ]
    html = Path("reports/out/report.html").read_text()
    assert "there is no such result" in html and "events.jsonl: is damaged" in html


def test_nothing_found_is_4(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    assert main(["report", "empty"]) == 4
    assert said(capsys) == ["jitwarm: no results in empty: `jitwarm run` writes them"]
    assert main(["report"]) == 4
    assert said(capsys)[0] == "jitwarm: reports/out: there is no such result"
    assert main(["report", "--asv", "empty"]) == 4
    assert said(capsys)[0] == "jitwarm: empty: holds no asv results"
    assert [path.name for path in tmp_path.iterdir()] == ["empty"]


def test_a_failed_case_is_shown(place, capsys):
    (place / "result.json").unlink()
    (place / "failed.json").write_bytes(encode({"error": "no memory <left>", "trace": "Trace\n x"}))
    assert main(["report"]) == 0
    html = Path("reports/out/report.html").read_text()
    assert "1 case failed" in html
    assert "no memory &lt;left&gt;" in html


def test_an_out_that_is_a_folder_or_cannot_be_written_is_2(place, capsys):
    assert main(["report", "--out", "reports"]) == 2
    assert said(capsys) == ["jitwarm: --out: reports is a folder, the page is a file"]
    result = str(place / "result.json")
    assert main(["report", "--out", f"{result}/page.html"]) == 2
    assert said(capsys)[0].startswith(f"jitwarm: --out: {result}/page.html cannot be written: ")


def test_an_out_that_is_read_or_holds_numbers_is_2_and_stays(place, capsys):
    """Results are found under any name: a page over one of them is a loss, and so is one over a
    file of numbers beside them.
    """
    before = (place / "result.json").read_bytes()
    Path("kept").write_bytes(before)
    Path("link").symlink_to("kept")
    Path("asv.json").write_text("{}")
    for paths, out in (
        (["reports/out"], str(place / "result.json")),
        (["kept"], "kept"),
        (["kept"], "./link"),
        ([], "asv.json"),
    ):
        assert main(["report", *paths, "--out", out]) == 2
        named = Path(out)
        assert said(capsys) == [
            f"jitwarm: --out: {named} is there and is no page: give another name"
        ]
    assert ((place / "result.json").read_bytes(), Path("kept").read_bytes()) == (before, before)
    assert main(["report", "kept", "--out", "new.json"]) == 0


def test_names_that_are_too_long_are_no_internal_error(place, capsys):
    name = "x" * 300
    assert main(["report", "--out", name]) == 2
    assert said(capsys) == [f"jitwarm: --out: {name} cannot be written: File name too long"]
    assert main(["report", "--expected", name]) == 4
    assert said(capsys)[0] == f"jitwarm: {name}: cannot be read: File name too long"
    long = msgspec.structs.replace(base(), scenario=name)
    (place / "result.json").write_bytes(encode(long))
    Path("expected").mkdir()
    assert main(["report", "--expected", "expected"]) == 0  # nobody can have reviewed it
    assert "no expectation" in Path("reports/out/report.html").read_text()


@pytest.mark.parametrize(
    ("module", "package"), [("altair", "altair"), ("vl_convert", "vl-convert-python")]
)
def test_without_the_extra_it_is_one_line(place, capsys, monkeypatch, module, package):
    real = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *rest: None if name == module else real(name)
    )
    assert main(["report"]) == 2
    assert said(capsys) == [
        f"jitwarm: jitwarm report needs {package}: pip install 'jitwarm[report]'"
    ]
    assert not Path("reports/out/report.html").exists()


def test_expectations_stand_beside_the_results(place, capsys):
    assert main(["report", "--expected", "none"]) == 4
    assert said(capsys)[0] == "jitwarm: none: there is no such folder of expectations"
    Path("expected").mkdir()
    assert main(["report", "--expected", "expected"]) == 0
    assert "no expectation" in Path("reports/out/report.html").read_text()
    Path("expected/deepseek-v3.2-dcp.json").write_text('{"schema": 99}')
    said(capsys)
    assert main(["report", "--expected", "expected"]) == 4
    assert said(capsys)[0].startswith("jitwarm: expected/deepseek-v3.2-dcp.json: is a file of exp")


def test_neither_torch_nor_triton_nor_numpy_is_needed(place, fresh_process):
    text = (
        "import sys\n"
        "from jitwarm.history.asv import read_asv\n"
        "from jitwarm.history.cases import case_histories\n"
        "from jitwarm.history.expected import compare_all\n"
        "from jitwarm.history.records import read_records\n"
        "from jitwarm.report.html.page import Contents, html_of, page_of\n"
        "from pathlib import Path\n"
        f"records = read_records([Path({str(place)!r})])\n"
        "cases, _ = case_histories(records)\n"
        "print(sorted({'torch', 'triton', 'altair'} & set(sys.modules)))\n"
        "html_of(page_of(Contents(cases)))\n"
        "print(sorted({'torch', 'triton'} & set(sys.modules)))\n"
    )
    assert fresh_process(text).splitlines() == ["[]", "[]"]


def test_a_wheel_has_what_the_page_is_made_of():
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
    named = settings["package-data"]["jitwarm.report.html"]
    there = (ROOT / "jitwarm" / "report" / "html").iterdir()
    assert sorted(named) == sorted(path.name for path in there if path.suffix in (".css", ".js"))


def test_what_it_writes_can_be_read_by_a_script(place):
    assert main(["report"]) == 0
    html = Path("reports/out/report.html").read_text()
    data = html.partition('id="data">')[2].partition("</script>")[0]
    assert json.loads(data)["schema"] == 1


MODEL = """
import jitwarm
import torch
import triton
import triton.language as tl
from jitwarm.declare import TensorSpec, WarmupChoices, declare, launch

@triton.jit
def add(x_ptr, n):
    tl.store(x_ptr, n)

@declare(add)
def Add(config):
    yield launch(x_ptr=TensorSpec("float32"), n=WarmupChoices(1, 2, 16))

class Dies:
    layers = 1

    def __init__(self, config, device):
        self.rank = config.parallel_config.dcp_rank
        self.x = torch.ones(64, device=device.torch_device)
        with jitwarm.owner("layers.0"):
            Add.register_warmup()

    def step(self, batch):
        if self.rank == 1:
            raise ValueError("no rank 1")
        add[(1,)](self.x, batch.num_tokens)
"""
SCENARIO = """
schema = 1
name = "dies"
model = "one_rank_dies:Dies"
scheduler = { max_num_seqs = 8, max_num_batched_tokens = 64 }
parallel = { tp = 4, dcp = 4 }
traffic = { steps = 20 }
"""


def test_a_rank_whose_process_died_is_on_the_page_and_not_fine(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(ROOT), prepend=os.pathsep)
    Path("one_rank_dies.py").write_text(MODEL)
    Path("dies.toml").write_text(SCENARIO)
    assert main(["run", "dies.toml", "--arms", "loaded", "--device", "stub"]) == 3
    failure = f"rank 1 failed: dies: ValueError: no rank 1 ({tmp_path / 'one_rank_dies.py'}:27)"
    assert f"RUN-FAILED {failure}\n" in capsys.readouterr().out
    stored = json.loads(Path("reports/out/dies/case/result.json").read_text())
    assert stored["failures"] == [failure]
    assert failure not in stored["checks"]
    assert main(["report"]) == 0
    page = Path("reports/out/report.html").read_text()
    assert '<p class="headline"><span class="badge bad">1 case measured in part</span></p>' in page
    assert '<span class="badge bad">1 process failed</span>' in page
    assert f'<span class="badge bad">failed</span> {failure}' in page
    assert "no key missed" not in page and "nothing missed" not in page
