"""Stored files: whole and of a known schema, or one clear line."""

from __future__ import annotations

import msgspec
import pytest

from jitwarm.errors import StoredFileError
from jitwarm.stored import read


class Thing(msgspec.Struct):
    schema: int
    count: int
    name: str = ""


WHOLE = b'{"schema": 1, "count": 3}'


def test_a_whole_file_is_read(tmp_path):
    (tmp_path / "a.json").write_bytes(WHOLE)
    assert read(tmp_path / "a.json", Thing, 1, "result").count == 3


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"", "is empty, and no result of jitwarm"),
        (WHOLE[:-4], "is damaged or no JSON (Input data was truncated)"),
        (b"\xff\xfe\x00", "is damaged or no JSON ("),
        (b'{"x":' + b"[" * 100_000, "is damaged or no JSON ("),
        (b"[1]", "is JSON, and no result of jitwarm"),
        (b'{"version": 2}', "is no result of jitwarm: it has no schema number"),
        (b'{"schema": true, "count": 1}', "is no result of jitwarm: it has no schema number"),
        (b'{"schema": 2}', "is a result of schema 2, this jitwarm reads up to 1: install a later"),
        (b'{"schema": 0}', "is a result of schema 0, this jitwarm reads 1: write it anew"),
        (b'{"schema": 1, "count": "x"}', "is no result of jitwarm: Expected `int`, got `str`"),
        (
            b'{"schema": 1, "count": 1, "name": "\xff"}',
            "is damaged or no JSON (Invalid UTF-8 encoded string)",
        ),
        (b'{"schema": 1}', "is no result of jitwarm: Object missing required field `count`"),
    ],
)
def test_any_other_is_one_line_with_its_path_and_stays_as_it_is(tmp_path, data, problem):
    path = tmp_path / "a.json"
    path.write_bytes(data)
    with pytest.raises(StoredFileError) as caught:
        read(path, Thing, 1, "result")
    assert str(caught.value).startswith(f"{path}: {problem}")
    assert "\n" not in str(caught.value)
    assert caught.value.exit_code == 4
    assert path.read_bytes() == data


def test_no_file_and_a_folder(tmp_path):
    with pytest.raises(StoredFileError, match="there is no such result"):
        read(tmp_path / "none.json", Thing, 1, "result")
    with pytest.raises(StoredFileError, match="cannot be read: Is a directory"):
        read(tmp_path, Thing, 1, "result")


def test_a_line_is_one_line_whatever_the_file_holds():
    error = StoredFileError("a\nb/\x1b[31m.json", "is no result: '" + "x\u202e" * 1000)
    assert str(error) == r"a\nb/\x1b[31m.json: is no result: '" + r"x\u202e" * 192 + "x..."


class Named(msgspec.Struct):
    schema: int
    name: str


def test_text_that_is_no_utf_8(tmp_path):
    path = tmp_path / "a.json"
    path.write_bytes(b'{"schema": 1, "name": "\xff"}')
    with pytest.raises(StoredFileError) as caught:
        read(path, Named, 1, "result")
    assert str(caught.value) == f"{path}: is damaged or no JSON (Invalid UTF-8 encoded string)"
