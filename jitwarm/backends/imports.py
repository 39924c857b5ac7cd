"""Tell when chosen modules were imported, whoever imports them, in whichever thread.

While it is in place a finder stands first in `sys.meta_path`. It finds nothing itself: it has the
loader of a chosen module call back once the module's code has run. All other modules are found and
loaded as ever. What is not noticed: a module whose loader takes no attributes, or that a finder
put before ours finds.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Collection, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

# Modules whose code has run while Python still counts their import as under way.
_executed: list[ModuleType] = []


def complete(name: str) -> Any:
    """The module of this name if this process has imported it to its end, else None."""
    module = sys.modules.get(name)
    under_way = getattr(getattr(module, "__spec__", None), "_initializing", False)
    return None if under_way and not any(one is module for one in _executed) else module


class ImportWatch:
    """Calls `imported()` after each import of one of `names`, in the importing thread, which holds
    Python's lock on the module: it must neither wait for other imports nor raise.
    """

    def __init__(self, names: Collection[str], imported: Callable[[], None]) -> None:
        """Nothing is watched before `start`."""
        self.names, self.imported = frozenset(names), imported

    def start(self) -> None:
        """Be asked first."""
        if self not in sys.meta_path:
            sys.meta_path.insert(0, self)

    def stop(self) -> None:
        """Be asked no more."""
        # A new list: another thread's import may be half through the old one, and would leave out
        # the finder after ours if that moved up.
        sys.meta_path = [finder for finder in sys.meta_path if finder is not self]

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """What the next finders find, with a loader that calls back; None for other modules."""
        if name not in self.names:
            return None
        for finder in sys.meta_path:
            find = None if finder is self else getattr(finder, "find_spec", None)
            spec: ModuleSpec | None = find(name, path, target) if find is not None else None
            if spec is not None:
                self._over_exec_module(spec.loader)
                return spec
        return None

    def _over_exec_module(self, loader: Any) -> None:
        """Have this loader's next `exec_module` call back."""
        original = getattr(loader, "exec_module", None)
        if original is None or isinstance(loader, type):  # a class loads other modules too
            return
        before = vars(loader).get("exec_module") if hasattr(loader, "__dict__") else None

        def exec_module(module: ModuleType) -> None:
            if before is None:
                vars(loader).pop("exec_module", None)
            else:
                vars(loader)["exec_module"] = before
            original(module)
            if module.__name__ in self.names:
                self._call_back(module)

        with contextlib.suppress(AttributeError, TypeError):
            loader.exec_module = exec_module

    def _call_back(self, module: ModuleType) -> None:
        _executed.append(module)
        try:
            self.imported()
        finally:
            _executed.remove(module)
