"""What bounds a step: rows, new tokens and the longest context."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Limits:
    """Rows and new tokens of a step, tokens of the longest context, new tokens of a decode row.

    Decodes come first in a batch, then prefills of one token or more; padding counts as decodes.
    """

    rows: int
    tokens: int
    longest: int
    query_len: int = 1

    @classmethod
    def of(cls, config: Any) -> Limits:
        """The limits of an engine."""
        scheduler, drafts = config.scheduler_config, getattr(config, "speculative_config", None)
        return cls(
            scheduler.max_num_seqs,
            scheduler.max_num_batched_tokens,
            config.model_config.max_model_len,
            1 + (drafts.num_speculative_tokens if drafts else 0),
        )

    @property
    def decodes(self) -> int:
        """Most decode rows of a step."""
        return min(self.rows, self.tokens // self.query_len)

    @property
    def prefills(self) -> int:
        """Most prefills of a step."""
        return min(self.rows, self.tokens)
