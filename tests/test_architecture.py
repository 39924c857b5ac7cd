"""Rules about the source itself: who may import whom, sizes, where errors live."""

from __future__ import annotations

import ast
import builtins
import re
import tomllib
from pathlib import Path

import pytest

import jitwarm
from jitwarm import errors

ROOT = Path(jitwarm.__file__).parents[1]
PACKAGE = ROOT / "jitwarm"
MODULES = sorted(PACKAGE.rglob("*.py"))
IDS = [str(path.relative_to(PACKAGE)) for path in MODULES]
OPTIONAL = ("cutlass", "tvm_ffi", "flash_attn", "quack", "tilelang", "altair", "asv", "asv_runner")
OPTIONAL_HOMES = ("backends", "zoo", "report")


def imports(tree):
    """Every imported module of a file, those inside functions too."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "relative imports hide who depends on whom"
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def home(path):
    """The first folder of a module below the package, or its own name."""
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


@pytest.mark.parametrize("path", MODULES, ids=IDS)
def test_a_module(path):
    text = path.read_text()
    tree = ast.parse(text)
    names = set(imports(tree))
    assert len(text.splitlines()) <= 400, "split it"
    if home(path) != "zoo":
        assert not {name for name in names if name.startswith("jitwarm.zoo")}
    if home(path) not in OPTIONAL_HOMES:
        assert not {name for name in names if name.partition(".")[0] in OPTIONAL}
    assert ast.get_docstring(tree), "a module says what it is for"


@pytest.mark.parametrize("path", MODULES, ids=IDS)
def test_errors_are_defined_in_one_place(path):
    known = {name for name in vars(errors) if isinstance(getattr(errors, name), type)}
    bases = known | {name for name in dir(builtins) if name.endswith(("Error", "Exception"))}
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ClassDef) and path.name != "errors.py":
            inherited = {base.id for base in node.bases if isinstance(base, ast.Name)} & bases
            private = node.name.startswith("_")
            assert not inherited or private, f"{node.name} belongs into errors.py"


def test_the_tree_of_errors_is_complete_and_true():
    tree = errors.__doc__.partition("\n\n")[2]
    drawn = dict.fromkeys(re.findall(r"(?:^ +|[|`]- )(\w+)", tree, re.MULTILINE))
    classes = [
        value
        for value in vars(errors).values()
        if isinstance(value, type) and issubclass(value, errors.JitwarmError)
    ]
    assert [name for name in drawn if hasattr(errors, name)] == [kind.__name__ for kind in classes]
    depth = {m[2]: len(m[1]) for m in re.finditer(r"(?m)^([ |`-]*)(\w+)", tree) if m[1].strip(" ")}
    for kind in classes[1:]:
        parent = kind.__mro__[1].__name__
        assert depth.get(parent, 4) < depth[kind.__name__]


@pytest.mark.parametrize("name", [n for n in vars(errors) if n.endswith(("Error", "Refused"))])
def test_exit_codes(name):
    kind = getattr(errors, name)
    if issubclass(kind, errors.JitwarmError):
        code = 2 if issubclass(kind, errors.UsageError) else 3
        assert kind.exit_code == (4 if issubclass(kind, errors.BaselineError) else code)


def test_docstrings_are_checked_by_the_linter():
    """Every public module, class and function has one: ruff's D rules say so, for the package."""
    lint = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["ruff"]["lint"]
    assert "ALL" in lint["select"]
    assert not {rule for rule in lint["ignore"] if re.fullmatch(r"D1?0?[0-46-9]?", rule)}
    assert not any("D1" in rules for glob, rules in lint["per-file-ignores"].items()
                   if glob.startswith("jitwarm"))  # fmt: skip


def test_few_modules_read_the_environment():
    """`env.py` has jitwarm's own variables, `caches.py` and `versions.py` those of others."""
    readers = {
        str(path.relative_to(PACKAGE))
        for path in MODULES
        if re.search(r"os\.(environ\.get|environ\[|getenv)", path.read_text())
    }
    assert readers <= {"env.py", "caches.py", "versions.py"}


DESIGN = (ROOT / "docs" / "design.md").read_text()
NAMED = sorted(set(re.findall(r"`([\w/]+(?:\.py|/))`", DESIGN)))
ROOMS = sorted(path for path in PACKAGE.iterdir() if re.fullmatch(r"[a-z]\w*(\.py)?", path.name))


@pytest.mark.parametrize("name", NAMED)
def test_what_the_design_names_is_there(name):
    assert any(True for _ in ROOT.glob(f"jitwarm/**/{name}")) or (ROOT / name).exists()


@pytest.mark.parametrize("room", ROOMS, ids=lambda room: room.name)
def test_the_design_names_every_room(room):
    name = room.name + "/" * room.is_dir()
    assert re.search(rf"[`/]{re.escape(name)}", DESIGN), "docs/design.md: what is it for?"
