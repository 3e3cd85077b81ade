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


class Confirmed(Frozen):
    """A merge that was measured on these documents."""

    label: Line | None = None
    """Of an anchor."""
    coefficients: Coefficients
    """Its own."""
    measured: dict[Line, Amount]
    """By task, those alone that were measured."""


class Gain(Frozen):
    """The chosen merge minus another one, on one task."""

    task: Line
    """In its units."""
    other: Line
    """Label of an anchor: the base, the soup, the best single model of the task."""
    held_out: Amount
    """On the documents that the search never saw, item by item."""
    measured: Amount | None = None
    """What was promised: as the search measured both, on its own documents."""
    predicted: Amount | None = None
    """As it was predicted, of the chosen one before it was measured."""
    verdict: Literal["better", "worse", "noise"]
    """What the chosen one is on these documents, or whether noise explains it."""
    kept: bool | None = None
    """Whether the promise was kept but for chance; null where none can be checked."""


class Confirmation(Frozen):
    """Merges measured on documents that a search never saw."""

    share: float = Field(gt=0, lt=1)
    """Of all documents."""
    documents: dict[Line, int]
    """How many, by task."""
    choices: int = Field(ge=0)
    """How many merges were confirmed on them because they were chosen."""
    merges: tuple[Confirmed, ...]
    """All that were measured."""
    differences: dict[Line, Differences] = Field(default_factory=dict)
    """How well differences between these are known, by task."""
    gains: tuple[Gain, ...] = ()
    """Of the merge that is chosen now."""

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

    def place(self, coefficients: Coefficients) -> int | None:
        """Return the place of a merge; None where it was not measured."""
        known = [merge.coefficients for merge in self.merges]
        return known.index(coefficients) if coefficients in known else None
