"""The spoken zero: a kernel that needs no key in this configuration, and why."""

from __future__ import annotations

from dataclasses import dataclass

from jitwarm.errors import DeclarationError


@dataclass(frozen=True, slots=True)
class NoKeys:
    """Returned instead of keys where a kernel needs none; `reason` is shown in every report."""

    reason: str

    def __post_init__(self) -> None:
        """Refuse an empty reason: silence is what this type exists to prevent."""
        if not self.reason.strip():
            raise DeclarationError("NoKeys needs a reason: say why this configuration needs no key")
