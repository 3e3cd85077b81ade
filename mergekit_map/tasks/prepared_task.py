"""A task that is ready to measure one model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from mergekit_map.errors import EvaluationError
from mergekit_map.measurement import Measurement

Documents: TypeAlias = Sequence[int] | None  # rising; None: all of them


@dataclass(frozen=True, eq=False)
class PreparedTask:
    """Measures the model, on all documents or some, and knows how many there are."""

    measure: Callable[[Documents], Measurement]
    size: int | None

    def __call__(self, documents: Documents = None) -> Measurement:
        """Evaluate the model with the weights it has now."""
        return self.measure(documents)


def with_derivatives(measure: Callable[[], Measurement], size: int) -> PreparedTask:
    """Return a task that gives derivatives, and is measured on all documents alone."""

    def run(documents: Documents) -> Measurement:
        if documents is not None:
            raise EvaluationError(
                "derivatives are of all documents, so that a part of them cannot be "
                "measured; do without gradients, or measure all"
            )
        return measure()

    return PreparedTask(run, size)
