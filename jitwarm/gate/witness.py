"""Which files a process imported. Copied as `sitecustomize.py` to a folder on PYTHONPATH, it lets
every Python process that starts there write `PID.json` into that folder when it ends.

It uses the standard library alone, because it runs before everything else, also in other versions
of jitwarm. A `sitecustomize` of the user's own is run behind it.
"""

from __future__ import annotations

import atexit
import contextlib
import importlib
import json
import os
import sys
from pathlib import Path

import_name = "sitecustomize"


def _write(folder: Path) -> None:
    files = [getattr(module, "__file__", None) for module in list(sys.modules.values())]
    # Objects that pose as modules may have no real file: torch has a "_ops.py" of that kind, which
    # must not count as one of the current folder.
    named = [file for file in files if isinstance(file, str) and Path(file).is_absolute()]
    names = sorted({os.path.realpath(file) for file in named})
    with contextlib.suppress(OSError):
        part = folder / f"{os.getpid()}.part"
        part.write_text(json.dumps(names))
        part.replace(folder / f"{os.getpid()}.json")  # whole or not at all: it may be killed


def _watch() -> None:
    folder = Path(__file__).parent
    atexit.register(_write, folder)
    sys.path[:] = [entry for entry in sys.path if Path(entry) != folder]
    del sys.modules[import_name]
    with contextlib.suppress(ImportError):
        importlib.import_module(import_name)


if __name__ == import_name:
    _watch()
