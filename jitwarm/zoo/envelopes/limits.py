"""What bounds a step, as the steps themselves know it."""

from __future__ import annotations

from jitwarm.zoo.steps.limits import Limits

__all__ = ["Limits"]
