"""Where each cache folder of `caches.ROOTS` really is, also where its variable is unset, and what
lies there.

The defaults are those of the libraries: Triton 3.6 to 3.9, torch 2.11 and 2.13, CuTe DSL 4.8,
flash-attn-4 4.0.0b36 and quack 0.6.5 were read; those of FlashInfer, TileLang and DeepGEMM are what
their documents say.
"""

from __future__ import annotations

import getpass
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec

from jitwarm.caches import ROOTS

# A folder with more files is not counted to its end: on a network home that takes minutes.
MOST_FILES = 200_000
# Types of file systems (of /proc/self/mountinfo) that several machines share.
SHARED = frozenset(
    (
        *("nfs", "nfs4", "cifs", "smb3", "smbfs", "lustre", "gpfs", "beegfs", "ceph", "glusterfs"),
        *("9p", "afs", "wekafs", "pvfs2", "orangefs", "fuse.sshfs", "fuse.glusterfs", "fuse.ceph"),
        *("fuse.weka", "fuse.s3fs", "fuse.gcsfuse"),
    )
)


class CacheFolder(msgspec.Struct, frozen=True):
    """One cache root: the variable that moves it, what it holds, the folder that is used.

    `is_set`: the variable says so. `bytes` and `files` are what lies there; `complete` is false if
    only `MOST_FILES` were counted. `free_bytes` is what its disk has left, None if unknown.
    `filesystem` is the type, empty if unknown; `shared`, whether machines share it.
    """

    variable: str
    holds: str
    path: str
    is_set: bool
    exists: bool
    writable: bool
    files: int
    bytes: int
    complete: bool
    free_bytes: int | None
    filesystem: str
    shared: bool


def cache_folders(environment: Mapping[str, str]) -> tuple[CacheFolder, ...]:
    """All cache roots as a process with this environment has them. Creates and changes nothing."""
    mounts = _mounts()
    return tuple(_look_at(name, environment, mounts) for name in ROOTS)


def displayable(text: str) -> str:
    r"""A path or a variable as text that can be stored: bytes that are no UTF-8 become `\xff`."""
    return os.fsencode(text).decode(errors="backslashreplace")


def place(variable: str, environment: Mapping[str, str]) -> Path:
    """The folder that a cache root's library uses in this environment.

    TRITON_HOME and FLASHINFER_WORKSPACE_BASE name the parent of a folder that is made there: the
    answer is that folder.
    """
    return _PLACES[variable](environment)


def _home(environment: Mapping[str, str]) -> Path:
    # A container's user often has no HOME and no entry among the users. Where `Path.home` raises,
    # `expanduser` leaves "~" as it is, and so do the libraries: a folder of that name is made.
    return Path(environment.get("HOME") or os.path.expanduser("~"))  # noqa: PTH111


def _user(environment: Mapping[str, str]) -> str:
    """As `getpass.getuser`, which asks this process's environment only."""
    for name in ("LOGNAME", "USER", "LNAME", "USERNAME"):
        if environment.get(name):
            return environment[name]
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return f"uid_{os.getuid()}"


def _temporary(environment: Mapping[str, str]) -> Path:
    chosen = environment.get("TMPDIR")
    if chosen and os.path.isdir(chosen) and os.access(chosen, os.W_OK | os.X_OK):  # noqa: PTH112
        return Path(chosen)
    try:
        return Path(tempfile.gettempdir())  # so do the libraries if that one is none
    except FileNotFoundError:  # nothing can be written anywhere: the folder is told as such
        return Path("/tmp")  # noqa: S108


def _triton_home(environment: Mapping[str, str]) -> Path:
    return Path(environment.get("TRITON_HOME") or _home(environment)) / ".triton"


def _inductor(environment: Mapping[str, str]) -> Path:
    user = re.sub(r'[\\/:*?"<>|]', "_", _user(environment))
    return _temporary(environment) / f"torchinductor_{user}"


def _extensions(environment: Mapping[str, str]) -> Path:
    caches = environment.get("XDG_CACHE_HOME") or _home(environment) / ".cache"
    return Path(caches) / "torch_extensions"


def _flashinfer(environment: Mapping[str, str]) -> Path:
    base = environment.get("FLASHINFER_WORKSPACE_BASE") or _home(environment)
    return Path(base) / ".cache" / "flashinfer"


def _named(variable: str, default: Callable[[Mapping[str, str]], Path]) -> tuple[str, _Place]:
    """A variable whose value is the folder itself."""

    def found(environment: Mapping[str, str]) -> Path:
        value = environment.get(variable)
        return Path(value) if value else default(environment)

    return variable, found


_Place = Callable[[Mapping[str, str]], Path]
_PLACES: dict[str, _Place] = {
    "TRITON_HOME": _triton_home,
    "FLASHINFER_WORKSPACE_BASE": _flashinfer,
    **dict(
        (
            _named("TRITON_CACHE_DIR", lambda e: _triton_home(e) / "cache"),
            _named("TORCHINDUCTOR_CACHE_DIR", _inductor),
            _named("TORCH_EXTENSIONS_DIR", _extensions),
            _named("CUDA_CACHE_PATH", lambda e: _home(e) / ".nv" / "ComputeCache"),
            _named(
                "CUTE_DSL_CACHE_DIR", lambda e: _temporary(e) / _user(e) / "cutlass_python_cache"
            ),
            _named(
                "FLASH_ATTENTION_CUTE_DSL_CACHE_DIR",
                lambda e: _temporary(e) / _user(e) / "flash_attention_cute_dsl_cache",
            ),
            _named("QUACK_CACHE_DIR", lambda e: _temporary(e) / _user(e) / "quack_cache"),
            _named("TILELANG_CACHE_DIR", lambda e: _home(e) / ".tilelang" / "cache"),
            _named("DG_JIT_CACHE_DIR", lambda e: _home(e) / ".deep_gemm"),
        )
    ),
}


def _look_at(
    variable: str, environment: Mapping[str, str], mounts: list[tuple[str, str]]
) -> CacheFolder:
    # Not Path.is_dir and Path.resolve: for a name too long, a loop of links, or a folder of another
    # user's they raise.
    path = place(variable, environment)
    ancestor = _nearest(path)
    files, size, complete = _size(path)
    filesystem = _filesystem(ancestor, mounts)
    return CacheFolder(
        variable=variable,
        holds=ROOTS[variable],
        path=displayable(str(path)),
        is_set=bool(environment.get(variable)),
        exists=os.path.isdir(path),  # noqa: PTH112
        writable=_can_be_written(path, ancestor),
        files=files,
        bytes=size,
        complete=complete,
        free_bytes=_free(ancestor),
        filesystem=filesystem,
        shared=filesystem in SHARED,
    )


def _nearest(path: Path) -> Path:
    """The folder itself, or the nearest parent that is there: that is where it would be made."""
    for candidate in (path, *path.absolute().parents):
        if os.path.lexists(candidate):
            return candidate
    return Path(path.anchor or ".")


def _can_be_written(path: Path, ancestor: Path) -> bool:
    try:
        path.lstat()
    except FileNotFoundError:  # it can be made
        pass
    except OSError:  # a name too long, a folder on the way that is closed or none
        return False
    return os.path.isdir(ancestor) and os.access(ancestor, os.W_OK | os.X_OK)  # noqa: PTH112


def _size(folder: Path) -> tuple[int, int, bool]:
    """Files, bytes, and whether all were counted. Links are not followed; what cannot be read, or
    is gone meanwhile, is left out.
    """
    files = size = 0
    for root, _, names in os.walk(folder):
        for name in names:
            if files == MOST_FILES:
                return files, size, False
            try:
                size += os.lstat(os.path.join(root, name)).st_size  # noqa: PTH118 - 100,000s
            except OSError:
                continue
            files += 1
    return files, size, True


def _free(folder: Path) -> int | None:
    try:
        return shutil.disk_usage(folder).free
    except OSError:
        return None


def _mounts() -> list[tuple[str, str]]:
    """Mount points and types of file systems, the longest path first."""
    try:
        text = Path("/proc/self/mountinfo").read_text()
    except OSError:
        return []
    return parse_mounts(text)


def parse_mounts(text: str) -> list[tuple[str, str]]:
    """Mount points and types from `/proc/self/mountinfo`, the longest path first; of two on one
    place the later one, which hides the earlier.
    """
    found: dict[str, str] = {}
    for line in text.splitlines():
        before, dash, after = line.partition(" - ")
        fields = before.split()
        if dash and len(fields) > 4 and after.split():
            point = re.sub(r"\\([0-7]{3})", lambda m: chr(int(m[1], 8)), fields[4])
            found[point] = after.split()[0]
    return sorted(found.items(), key=lambda mount: -len(mount[0]))


def _filesystem(path: Path, mounts: list[tuple[str, str]]) -> str:
    real = Path(os.path.realpath(path))
    for point, kind in mounts:
        if real.is_relative_to(point):
            return kind
    return ""
