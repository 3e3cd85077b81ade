"""Results on held-out documents: the ``holdout`` of ``front.json``."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator
from typing_extensions import Self

from mergekit_map.results.paired import Differences
from mergekit_map.results.records import Coefficients, Finite, Frozen, Line, Stderr


class Amount(Frozen):
    """A value in the task's own units, and its standard error."""

    value: Finite
    stderr: Stderr | None = None
    """Null where it is unknown."""


class HoldoutMerge(Frozen):
    """A merge measured on held-out documents."""

    label: Line | None = None
    """Name of a reference point."""
    coefficients: Coefficients
    """Coefficients of the merge."""
    measured: dict[Line, Amount]
    """Measured values by task; only tasks that were measured."""


class Gain(Frozen):
    """The chosen merge minus another one, on one task."""

    task: Line
    """The task; amounts are in its units."""
    other: Line
    """Name of a reference point: base, soup, or best single model of the task."""
    held_out: Amount
    """The difference on held-out documents, item by item."""
    measured: Amount | None = None
    """The difference as the search measured both, on its own documents."""
    verdict: Literal["better", "worse", "noise"]
    """Whether the chosen merge is better or worse on these documents, or noise."""
    kept: bool | None = None
    """Whether the promised gain was kept but for noise; null where unknown."""


class HoldoutEvaluation(Frozen):
    """Merges measured on held-out documents."""

    share: float = Field(gt=0, lt=1)
    """Held-out share of all documents."""
    documents: dict[Line, int]
    """Number of held-out documents, by task."""
    choices: int = Field(ge=0)
    """Number of merges that were measured on them because they were chosen."""
    merges: tuple[HoldoutMerge, ...]
    """All merges measured on them."""
    differences: dict[Line, Differences] = Field(default_factory=dict)
    """Standard errors of differences between these merges, by task."""
    gains: tuple[Gain, ...] = ()
    """Gains of the present chosen merge."""

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        for task, known in self.differences.items():
            if known.merges[-1] >= len(self.merges):
                raise ValueError(f"differences.{task}: no such merge")
        return self

    @property
    def tasks(self) -> set[str]:
        """Return the names of all tasks with held-out results."""
        named = [*self.documents, *self.differences, *(g.task for g in self.gains)]
        return {*named, *(task for merge in self.merges for task in merge.measured)}

    def place(self, coefficients: Coefficients, label: str | None = None) -> int | None:
        """Return the place of a merge, by its label first; None if not measured."""
        for place, merge in enumerate(self.merges):
            if label is not None and merge.label == label:
                return place
        known = [merge.coefficients for merge in self.merges]
        measured = bool(coefficients) and coefficients in known
        return known.index(coefficients) if measured else None
