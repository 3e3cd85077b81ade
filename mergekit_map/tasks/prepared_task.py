"""A task that is ready to measure one model, as a whole or piece by piece."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

from mergekit_map.errors import EvaluationError
from mergekit_map.measurement import Measurement
from mergekit_map.pulse import step

Documents: TypeAlias = Sequence[int] | None  # rising; None: all of them


class Pieces(Protocol):
    """Work that can be shared out: independent batches, and what they make together."""

    def pieces(self, documents: Documents) -> int:
        """Count the batches; at least one."""
        ...

    def piece(self, documents: Documents, index: int) -> Any:
        """Measure one of them on the model as it is; what is found can be pickled."""
        ...

    def whole(self, documents: Documents, found: Sequence[Any]) -> Measurement:
        """Join what all pieces found, in their order; the model is not asked."""
        ...


@dataclass(frozen=True, eq=False)
class PreparedTask:
    """Measures the model, on all documents or some, and knows how many there are."""

    parts: Pieces
    size: int | None

    def __call__(self, documents: Documents = None) -> Measurement:
        """Evaluate the model with the weights it has now."""
        count = self.pieces(documents)
        found = []
        for index in range(count):
            found.append(self.piece(documents, index))
            step(index + 1, count)
        return self.whole(documents, found)

    def pieces(self, documents: Documents = None) -> int:
        """Count the independent batches of these documents."""
        return self.parts.pieces(documents)

    def piece(self, documents: Documents, index: int) -> Any:
        """Measure one of them."""
        return self.parts.piece(documents, index)

    def whole(self, documents: Documents, found: Sequence[Any]) -> Measurement:
        """Join what all of them found."""
        return self.parts.whole(documents, found)


@dataclass(frozen=True, eq=False)
class Undivided:
    """What can only be measured at once: its one piece is the measurement."""

    measure: Callable[[Documents], Measurement]

    def pieces(self, _: Documents) -> int:
        """Count one."""
        return 1

    def piece(self, documents: Documents, _: int) -> Measurement:
        """Measure."""
        return self.measure(documents)

    def whole(self, _: Documents, found: Sequence[Measurement]) -> Measurement:
        """Give what was measured."""
        (measurement,) = found
        return measurement


def with_derivatives(measure: Callable[[], Measurement], size: int) -> PreparedTask:
    """Let the task, which gives derivatives, be measured on all documents alone."""

    def run(documents: Documents) -> Measurement:
        if documents is not None:
            raise EvaluationError(
                "derivatives are of all documents, so that a part of them cannot be "
                "measured; do without gradients, or measure all"
            )
        return measure()

    return PreparedTask(Undivided(run), size)
