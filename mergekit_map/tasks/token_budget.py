"""How many tokens a model reads at once: ``batch_size``."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias, TypeVar

import torch

logger = logging.getLogger(__name__)

BatchSize: TypeAlias = int | Literal["auto"]

Row = TypeVar("Row")

# Processors are not faster with more, only the caches are missed.
_TOKENS_CPU = 1024
# Accelerators are as busy as they get with so many, if the memory is there.
_TOKENS = 32768


@dataclass(frozen=True)
class Budget:
    """The most of one pass."""

    tokens: int  # padding counts
    rows: int | None = None  # in the place of tokens, if the user said so

    def rows_of(self, length: int) -> int:
        """Count the rows of so many tokens that make one pass, at least one."""
        return self.rows or max(1, self.tokens // length)


def budget_of(batch_size: BatchSize, device: torch.device) -> Budget:
    """Read what the configuration says."""
    tokens = _TOKENS_CPU if device.type == "cpu" else _TOKENS
    return Budget(tokens, None if batch_size == "auto" else batch_size)


def in_halves(
    measure: Callable[[Sequence[Row]], torch.Tensor], rows: Sequence[Row]
) -> torch.Tensor:
    """Measure rows at once; in halves, and these in halves, where memory is full.

    Raises:
        torch.OutOfMemoryError: it is too full for one row.
    """
    try:
        return measure(rows)
    except torch.OutOfMemoryError:
        if len(rows) == 1:
            raise
    # Not in the handler: what it holds of the failed pass must be let go of.
    torch.cuda.empty_cache()
    logger.warning("out of memory: %d rows are measured in halves", len(rows))
    middle = len(rows) // 2
    halves = [in_halves(measure, half) for half in (rows[:middle], rows[middle:])]
    return torch.cat(halves)


def found_by_trying(budget: Budget, attempt: Callable[[Budget], None]) -> Budget:
    """Halve the tokens until an attempt does not fill the memory.

    Raises:
        torch.OutOfMemoryError: one token fills it.
    """
    while True:
        try:
            attempt(budget)
        except torch.OutOfMemoryError:
            if budget.tokens == 1:
                raise
        else:
            return budget
        torch.cuda.empty_cache()
        budget = Budget(budget.tokens // 2)
        logger.info("out of memory: at most %d tokens are read at once", budget.tokens)
