"""How good a search was: its fits, the box it searched, and why it ended."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import Field, SerializerFunctionWrapHandler, model_serializer

from mergekit_map.results.records import Frozen, Line
from mergekit_map.search.arrays import finite

# Keys of a fit that runs of every version have.
_ALWAYS = {"n", "n_terms", "r2", "loo_r2", "condition", "residual_stderr"}


class Fit(Frozen):
    """How far to trust a surrogate; null where there are too few merges to tell."""

    n: int
    """Fitted merges."""
    n_terms: int | None = None
    """Parameters of the quadratic."""
    r2: float | None
    """On the fitted merges."""
    loo_r2: float | None
    """Each merge predicted by the fit without it."""
    condition: float | None = None
    """Of the design: largest over smallest singular value."""
    residual_stderr: float | None = None
    """Of a merge of average weight."""
    kind: Line = "quadratic"
    """What was fitted: `quadratic`, `regularized` or `residual_gp`."""
    error: float | None = None
    """Standard error of predictions left out one by one, as a share of the range."""
    front_error: float | None = None
    """That of predictions on the front, as a share of the task's range there."""
    expected_r2: float | None = None
    """What share of the variance over the box predictions explain, as they expect."""
    other_error: float | None = None
    """That of what was not taken, where the search had the choice."""

    @model_serializer(mode="wrap")
    def _as_it_was_read(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        later = set(type(self).model_fields) - self.model_fields_set - _ALWAYS
        return {key: v for key, v in handler(self).items() if key not in later}

    @classmethod
    def of(cls, quality: Mapping[str, float | str]) -> Fit:
        """Take NaN for what is not known."""
        known = {k: v if isinstance(v, str) else finite(v) for k, v in quality.items()}
        return cls.model_validate(known)


def n_safe(d: int) -> int:
    """Give how many merges, measured in d coefficients, a front needs at least."""
    return 2 * (d + 1)


class Border(Frozen):
    """An end of the searched box at which points of the front lie."""

    coefficient: Line
    """Whose end it is."""
    end: float
    """Its largest or smallest value."""
    points: int = Field(ge=1)
    """How many lie there."""
    beyond: float
    """How far the surrogates were asked to look past it."""
    gain: float = Field(ge=0)
    """What that would add to the hypervolume of the front, as they predict: a share."""


class Ending(Frozen):
    """Why a search stopped measuring, and how well it knew its front then."""

    evaluations: int = Field(ge=0)
    """Merges it chose, without those of the front."""
    allowed: int = Field(ge=0)
    """As many as it might have."""
    trusted: bool
    """Whether it stopped before all of these were used."""
    quiet: int = Field(0, ge=0)
    """How many of the last rounds came out as predicted."""
    error: float = Field(ge=0)
    """The largest standard error on the front, as a share of a task's range there."""
    task: Line
    """That task."""
    hope: float = Field(ge=0)
    """What a front one standard error better would add to its hypervolume: a share."""
    spent: bool = False
    """Whether a budget of hours ended it; left out where none did."""

    @model_serializer(mode="wrap")
    def _without_what_did_not(
        self, handler: SerializerFunctionWrapHandler
    ) -> dict[str, Any]:
        return {k: v for k, v in handler(self).items() if v or k != "spent"}


class Unfinished(Frozen):
    """How far a search was that is not finished, when its front was found."""

    measured: int = Field(ge=0)
    """Merges measured on every task."""
    most: int = Field(ge=0)
    """Merges that the search measures at most."""
    fitted: bool
    """Whether surrogates were fitted; without them points are measured merges, and what
    is said to be predicted of them is what was measured."""
    of: Line
    """Digest of what it was found from."""
