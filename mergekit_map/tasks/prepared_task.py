"""A task that is ready to measure one model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from mergekit_map.errors import EvaluationError
from mergekit_map.measurement import Measurement


@dataclass(frozen=True, eq=False)
class PreparedTask:
    """Measures the model, on all documents or some, and knows how many there are."""

    measure: Callable[[Sequence[int] | None], Measurement]
    size: int | None

    def __call__(self, documents: Sequence[int] | None = None) -> Measurement:
        """Evaluate the model with the weights it has now."""
        return self.measure(documents)


def with_derivatives(measure: Callable[[], Measurement], size: int) -> PreparedTask:
    """Let the task, which gives derivatives, be measured on all documents alone."""

    def run(documents: Sequence[int] | None) -> Measurement:
        if documents is not None:
            raise EvaluationError(
                "derivatives are of all documents, so that a part of them cannot be "
                "measured; do without gradients, or measure all"
            )
        return measure()

    return PreparedTask(run, size)
