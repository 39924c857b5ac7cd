"""A compiler that is modelled: it says what it would take, and takes no time.

For faults of compilers that are not here, or not without a GPU: what they keep in memory and on
disk, and what they leave to the first launch. What it does arrives at the monitor as the events of
any other backend do.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

from jitwarm import keys
from jitwarm.backends import launches, sinks
from jitwarm.backends.miss import Miss
from jitwarm.backends.opaque import OpaqueBackend
from jitwarm.contract.kernel import JitKernel, KeyT, OpaqueRecipe

# Where processes of one fault keep what they compiled; set before a fault runs.
_store: Path | None = None
_backend = OpaqueBackend()


def keep_in(folder: Path) -> None:
    """Keep compiled keys in `folder` from now on."""
    global _store
    folder.mkdir(parents=True, exist_ok=True)
    _store = folder


class StubKernel(JitKernel[KeyT]):
    """A contract class whose compiler is modelled; a subclass has `CompileKey`, `dispatch` and
    `get_warmup_keys`, and serving code calls the object with the inputs of `dispatch`.

    `persists` says whether a later process finds on disk what this one compiled; `loads_lazily`,
    whether a compile leaves the module to the first launch; `compile_ms`, `load_ms` and `disk_ms`
    are what each is said to take.
    """

    persists: ClassVar[bool] = True
    loads_lazily: ClassVar[bool] = False
    compile_ms: ClassVar[float] = 250.0
    load_ms: ClassVar[float] = 20.0
    disk_ms: ClassVar[float] = 5.0
    _loaded: set[Any]

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        """Nothing is loaded yet."""
        self = super().__new__(cls, *args, **kwargs)
        self._loaded = set()
        return self

    def __call__(self, **inputs: Any) -> None:
        """One launch."""
        key = self.dispatch(**inputs)
        self.compile(key)
        self._load(key)
        launches.count(self.backend_key(key))

    def backend_key(self, key: KeyT) -> str:
        """The text of a key in plans and events."""
        return _backend.key(OpaqueRecipe(self, key))

    def compile(self, key: KeyT) -> None:
        """From memory, from disk if it `persists`, or by the compiler."""
        if key in self._compiled_cache:
            return
        text = self.backend_key(key)
        miss = Miss(text.partition("[")[0], text)
        sinks.ask(miss)
        entry = (_store / keys.key_id(text)) if _store and self.persists else None
        hit = entry is not None and entry.exists()
        miss.kind, miss.ms = ("disk_hit", self.disk_ms) if hit else ("compile", self.compile_ms)
        if entry is not None:
            entry.touch()
        self._compiled_cache[key] = text
        sinks.compiled(miss)
        if not self.loads_lazily:
            self._load(key)

    def _load(self, key: KeyT) -> None:
        if key not in self._loaded:
            self._loaded.add(key)
            text = self.backend_key(key)
            sinks.loaded(text.partition("[")[0], text, self.load_ms)
