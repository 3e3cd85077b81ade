"""A task that is ready to measure one model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from mergekit_map.measurement import Measurement


@dataclass(frozen=True, eq=False)
class PreparedTask:
    """Measures the model, on all documents or some, and knows how many there are."""

    measure: Callable[[Sequence[int] | None], Measurement]
    size: int | None

    def __call__(self, documents: Sequence[int] | None = None) -> Measurement:
        """Evaluate the model with the weights it has now."""
        return self.measure(documents)
