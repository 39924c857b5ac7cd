"""Executors by key: type-exact, and made once even if two threads ask at the same time."""

from __future__ import annotations

import threading
from collections.abc import Hashable, Iterator, MutableMapping
from contextlib import contextmanager
from typing import Any, Generic, TypeVar

from jitwarm import keys

KeyT = TypeVar("KeyT")


class ExecutorCache(MutableMapping[KeyT, Any], Generic[KeyT]):
    """A mapping from keys to whatever `compile` made; 1, True and 1.0 in a field are three keys.

    `once(key)` is a lock of that key, so that of several threads that miss one key only the first
    compiles it.
    """

    def __init__(self) -> None:
        """Empty."""
        self._entries: dict[Hashable, tuple[KeyT, Any]] = {}
        self._guard = threading.Lock()
        self._locks: dict[Hashable, tuple[threading.RLock, int]] = {}

    def __getitem__(self, key: KeyT) -> Any:
        """The executor stored for exactly this key."""
        return self._entries[keys.exact(key)][1]

    def at(self, token: Hashable) -> Any:
        """The executor stored under `token`, the `keys.exact` of a key; None if there is none.

        For launches, which have the token at hand.
        """
        entry = self._entries.get(token)
        return None if entry is None else entry[1]

    def __setitem__(self, key: KeyT, executor: Any) -> None:
        """Store an executor."""
        self._entries[keys.exact(key)] = (key, executor)

    def __delitem__(self, key: KeyT) -> None:
        """Forget an executor."""
        del self._entries[keys.exact(key)]

    def __iter__(self) -> Iterator[KeyT]:
        """The keys, in the order in which they were first stored."""
        return iter([key for key, _ in list(self._entries.values())])

    def __len__(self) -> int:
        """Number of keys."""
        return len(self._entries)

    def __repr__(self) -> str:
        """The stored keys and executors."""
        return f"ExecutorCache({list(self._entries.values())!r})"

    @contextmanager
    def once(self, key: KeyT) -> Iterator[None]:
        """Hold the lock of one key; other keys are not held up.

        The lock goes away with its last user.
        """
        token = keys.exact(key)
        with self._guard:
            # Re-entrant: a compile that asks for its own key must fail with Python's recursion
            # error, not hang.
            lock, users = self._locks.get(token) or (threading.RLock(), 0)
            self._locks[token] = (lock, users + 1)
        try:
            with lock:
                yield
        finally:
            with self._guard:
                lock, users = self._locks.pop(token)
                if users > 1:
                    self._locks[token] = (lock, users - 1)
