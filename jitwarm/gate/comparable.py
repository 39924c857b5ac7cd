"""Whether two sides may be compared: the same machine, and each side's own code."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from jitwarm.gate.pairs import SIDES, Pairs, Sample, Side
from jitwarm.gate.places import is_installed, is_standard


def machine_differences(pairs: Pairs, *, own_jitwarm: bool) -> list[str]:
    """What of device, driver, versions and settings is not the same in every run, a line each.

    With `own_jitwarm` each side has a jitwarm of its own, whose version, and list of packages that
    it tells of, may differ.
    """
    reference = pairs.first_base
    found: dict[str, None] = {}
    for side in SIDES:
        for sample in pairs.all(side):
            for name, (was, now) in _different(reference, sample, own_jitwarm).items():
                found[f"{name}: {was} on base, {now} on {side}"] = None
    return list(found)


def own_modules(side: Side, roots: Mapping[Side, Path], modules: Iterable[str]) -> list[Path]:
    """The imported files that lie in a side's folder, relative to it."""
    root = roots[side]
    return [Path(m).relative_to(root) for m in modules if _owner(Path(m), roots.values()) == root]


def foreign_modules(
    side: Side, roots: Mapping[Side, Path], repository: Path, modules: Iterable[str]
) -> list[str]:
    """The imported files that are the other side's, or the working tree's, and not this side's."""
    places = {*roots.values(), repository}
    owners = {module: _owner(Path(module), places) for module in modules}
    return [module for module, owner in owners.items() if owner not in (None, roots[side])]


def outside_copies(root: Path, modules: Iterable[str]) -> list[str]:
    """The imported packages that a side has itself, in its root or a folder of it such as `src`,
    and that came from elsewhere all the same: installed, or another clone's.

    Only where most of what was imported of one is in the side's too: a folder of tests may be
    called like the package that it tests.
    """
    own: dict[str, list[Path]] = {}
    for folder in (root, *(path for path in root.iterdir() if path.is_dir())):
        if folder == root or not (folder / "__init__.py").exists():
            for file in folder.glob("*/__init__.py"):
                own.setdefault(file.parent.name, []).append(file.parent)
    files = [Path(module) for module in modules]
    found = []
    for package in (file.parent for file in files if file.name == "__init__.py"):
        inner = (package.parent / "__init__.py").is_file()
        if package.name not in own or inner or is_standard(package) or _owner(package, [root]):
            continue
        parts = [file.relative_to(package) for file in files if file.is_relative_to(package)]
        for place in own[package.name]:
            if 2 * sum((place / part).is_file() for part in parts) > len(parts):
                found.append(str(package))
                break
    return found


def holds_jitwarm(modules: Iterable[Path]) -> bool:
    """Whether a side's own modules are those of jitwarm too, which then is what is compared."""
    return any(module.parts[-2:] == ("jitwarm", "__init__.py") for module in modules)


def _different(
    reference: Sample, sample: Sample, own_jitwarm: bool
) -> dict[str, tuple[object, object]]:
    values: dict[str, tuple[object, object]] = {
        f"device {name}": (getattr(reference.device, name), getattr(sample.device, name))
        for name in reference.device.__struct_fields__
    }
    for name in sorted({*reference.versions, *sample.versions}):
        both = (reference.versions, sample.versions)
        if own_jitwarm and (name == "jitwarm" or any(name not in versions for versions in both)):
            continue
        was, now = (versions.get(name, "not set") for versions in both)
        values[name] = (was, now)
    return {name: pair for name, pair in values.items() if pair[0] != pair[1]}


def _owner(file: Path, roots: Iterable[Path]) -> Path | None:
    """The innermost of `roots` that holds a file, None for what is installed or elsewhere."""
    holding = [root for root in roots if file.is_relative_to(root)]
    if not holding or is_installed(file):
        return None
    return max(holding, key=lambda root: len(root.parts))
