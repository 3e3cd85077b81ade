"""The forms of a run folder's files, until the package has them as types.

Stands in for ``mergekit_map.results``: ``reference.py`` makes the tables of
docs/run-folder.md from the JSON Schema of ``Front`` and of ``EvaluationLine``, and
``test_reference.py`` holds both against what is really written.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict


class _Form(BaseModel):
    model_config = ConfigDict(
        extra="forbid", frozen=True, use_attribute_docstrings=True
    )


class Reading(_Form):
    value: float | None
    """In the task's own units and direction; null where unknown."""
    stderr: float | None
    """One standard error; null where unknown."""


class Fit(_Form):
    n: int
    """Merges that were fitted."""
    n_terms: int
    """Terms of the quadratic."""
    r2: float | None
    """On the fitted merges, unweighted."""
    loo_r2: float | None
    """Each merge predicted by the fit without it."""
    condition: float | None
    """Of the design: the largest over the smallest singular value."""
    residual_stderr: float | None
    """Of a merge of average weight."""


class Task(_Form):
    direction: Literal["maximize", "minimize"]
    """Whether higher or lower is better."""
    range: tuple[float | None, float | None]
    """Possible values; null where unbounded."""
    unit: str
    """What the values are in; may be empty."""
    fit: Fit
    """How far to trust the surrogate."""


class Merge(_Form):
    coefficients: dict[str, float | None]
    """By name, exact; null of a single model that is no merge of the last pair."""
    measured: dict[str, Reading]
    """By task."""


class Anchor(Merge):
    label: str
    """`base`, the name of a model, or `soup`."""
    predicted: dict[str, Reading]
    """By task; null outside of the sampled box."""


class Point(Merge):
    predicted: dict[str, Reading]
    """By task."""
    recipe: str = ""
    """Its recipe in the run folder; absent in the front of an inner pair."""


class Front(_Form):
    """What ``front.json`` holds."""

    version: Literal[1]
    """Of this form."""
    coefficients: dict[str, tuple[float, float]]
    """Bounds of each coefficient."""
    groups: dict[str, dict[str, float]]
    """What surrogates are functions of, where not of the coefficients: the last pair
    of a nested search."""
    order: list[Any] | str | None
    """What a nested search merged with what."""
    tasks: dict[str, Task]
    """What was measured."""
    surrogate: Literal["quadratic", "regularized", "residual_gp"]
    """Which surrogate was fitted."""
    selected: int
    """The number of the chosen point."""
    points: tuple[Point, ...]
    """The front, best on the first task first."""
    anchors: tuple[Anchor, ...]
    """The base model, every single model and the uniform soup."""
    merges: tuple[Merge, ...]
    """What else was measured."""
    select: dict[str, Any] = {}
    """What was asked for, as in `map.select`."""
    reason: str = ""
    """How the point was chosen, in one line."""
    verdicts: tuple[str, ...] = ()
    """What the numbers mean, in sentences."""


class EvaluationLine(_Form):
    """A line of ``evaluations.jsonl``."""

    version: Literal[1]
    """Of this form."""
    coefficients: dict[str, float]
    """By name, exact."""
    task: str
    """What was measured."""
    role: Literal[
        "anchor", "design", "imported", "refinement", "front", "opponent", "baseline"
    ]
    """Why it was measured; `front`, `opponent` and `baseline` are not fitted."""
    value: float | None
    """In the task's own units and direction; null where the measurement failed."""
    stderr: float | None
    """One standard error; null where unknown."""
    n: int
    """How many documents, rows or items the value is a mean of."""
    seconds: float
    """What it took."""
    details: dict[str, float]
    """Other readings of the task."""
    merge: str
    """Fingerprint of the merge: models, method, dtype, seed."""
    definition: str
    """Fingerprint of the task."""
    error: str | None = None
    """Why it failed; else absent."""
    gradient: dict[str, float | None] | None = None
    """The derivative by each coefficient, where it was measured."""
