"""Schema of the ``map:`` block: strict values, each checked by itself.

The text under a key is its description in the JSON Schema and in
docs/configuration.md.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    SkipValidation,
    model_validator,
)

from mergekit_map.config.tasks import (
    MOST_TASKS,
    Engine,
    EngineSpec,
    Float,
    Int,
    Named,
    Strict,
    TaskSpec,
    WrittenTask,
)
from mergekit_map.types import SurrogateKind

_NARROWEST = 1e-6  # bounds: points nearer to each other are one merge


def _refuse_narrow(bounds: tuple[float, float]) -> tuple[float, float]:
    lower, upper = bounds
    if upper - lower < _NARROWEST:
        raise ValueError(
            f"bounds must rise, by {_NARROWEST:.0e} at least, or all merges are one; "
            f"to fix a weight, write it at its model, got {list(bounds)}"
        )
    return bounds


# At larger weights, task vectors are noise.
_Bound = Annotated[Float, Field(ge=-1000, le=1000)]
Bounds = Annotated[tuple[_Bound, _Bound], AfterValidator(_refuse_narrow)]


def share_of(limit: float | str) -> float | None:
    """Return ``95%``, a share of a gain, as 0.95; None for a number."""
    return float(limit.rstrip("%")) / 100 if isinstance(limit, str) else None


_LARGEST_SHARE = 1000.0  # 100000%
_SHARE = r"^\d*[1-9]\d*(\.\d+)? ?%$|^\d*\.\d*[1-9]\d* ?%$"  # above 0%


def _require_limit(limit: Any) -> Any:
    is_number = type(limit) in {int, float} and abs(limit) <= sys.float_info.max
    is_share = isinstance(limit, str) and re.fullmatch(_SHARE, limit) is not None
    if is_number or (is_share and (share_of(limit) or 0.0) <= _LARGEST_SHARE):
        return limit
    raise ValueError(
        "a limit is a finite number in the task's own units, or a share above 0% of "
        f"the best parent's gain over the base, such as 95%; got {limit!r:.60}"
    )


_Share = Annotated[str, Field(pattern=_SHARE)]
Limit = Annotated[float | _Share, BeforeValidator(_require_limit)]


class SearchSpec(Strict):
    """The search for coefficients."""

    strategy: Literal["map", "bayesian", "nested"] = "map"
    """`map`: one search in all coefficients. `bayesian`: the sampling of algorithm 2 of
    the paper. `nested`: two models at a time."""
    order: list[Any] | None = None
    """The pairs that `nested` merges: lists of two coefficients or lists."""
    design: Literal["sobol", "uniform"] = "sobol"
    """Distribution of the first merges."""
    evaluations: Annotated[Int, Field(ge=1, le=100_000)] | None = None
    """Most merges to measure before those of the front; by default (N+1)(N+2) for N
    weights (ten times that with `hours`), 12 and the references for `bayesian`, 20 per
    pair for `nested`. Base, parents and soup come on top if no weights give them."""
    hours: Annotated[Float, Field(gt=0, le=10**6)] | None = None
    """Limit on hours of measuring, summed over workers, without `holdout`. After the
    first merges, one is measured only if time remains for it and the front. Not with
    `bayesian`, `nested` or `refine: false`."""
    bounds: Bounds | dict[str, Bounds] = (0.0, 1.0)
    """Bounds of all coefficients, or a pair for each; 0 and 1 where none is given."""
    seed: Annotated[Int, Field(ge=0, le=2**32 - 1)] = 0
    """Random seed of the search. mergekit's random methods use it, too, unless
    `--random-seed` is given."""
    remeasure: Annotated[Int, Field(ge=0, le=10_000)] = 5
    """Number of predicted points of the front that are measured at the end; with
    limits, up to two of them are kept for the choice."""
    surrogate: SurrogateKind = "auto"
    """`quadratic`: least squares. `regularized`: with normal priors of its terms.
    `residual_gp`: that and a Gaussian process for the residuals, both of effects that
    may saturate. `auto`: for each task `residual_gp`, unless `regularized` predicts
    clearly better."""
    refine: Annotated[bool, Field(strict=True)] | None = None
    """`true`: choose merges one by one from earlier measurements. `false`: measure one
    design. `true` by default for the strategy `map`."""
    holdout: Annotated[Float, Field(ge=0.001, le=0.99)] | None = None
    """Share of each task's documents that the search never measures. In the end, the
    chosen merge, base, parents and soup are measured on them. None by default."""

    @property
    def refines(self) -> bool:
        """Whether merges are chosen one after the other, from earlier measurements."""
        return self.strategy == "map" if self.refine is None else self.refine

    @model_validator(mode="after")
    def _keys_of_the_strategy(self) -> Self:
        if self.order is not None and self.strategy != "nested":
            raise ValueError(
                "'order' is what nested merges with what; add 'strategy: nested', or "
                "remove it"
            )
        if self.refine and self.strategy != "map":
            raise ValueError(
                f"'refine' is for 'strategy: map', but {self.strategy!r} chooses its "
                "merges itself; remove one of them"
            )
        if self.strategy == "bayesian" and "design" in self.model_fields_set:
            raise ValueError(
                "bayesian draws its own merges; remove 'design', or use 'strategy: map'"
            )
        return self


_LIMITS = ("require", "not_worse_than")
# Only ratios of preferences count, and sums of larger ones are not finite.
_Preference = Annotated[Float, Field(ge=0, le=1e9)]


class SelectSpec(Strict):
    """The choice of the point of the front that becomes the recipe."""

    prefer: dict[str, _Preference] | None = None
    """Weight of each task, such as `{math: 2, code: 1}`; a task that is left out counts
    0. By default all tasks without a limit count, those with noisy gains less."""
    scalarization: Literal["sum", "achievement"] = "sum"
    """`sum`: the largest weighted sum of gains. `achievement`: the smallest weighted
    distance to the best value of each task."""
    knee: Annotated[bool, Field(strict=True)] = False
    """Choose the knee point: moving from it to any other point loses more than it
    gains, each divided by the range of its task on the front."""
    require: Annotated[dict[str, Limit], Field(min_length=1)] | None = None
    """A limit for a task: the smallest allowed value (the largest where lower is
    better), or a share of the best parent's gain over the base, such as `95%`."""
    not_worse_than: Named | Annotated[list[Named], Field(min_length=1)] | None = None
    """On no task may the merge be significantly worse than this model: `base`, `soup`,
    a parent by its name, or each of several."""
    index: Annotated[Int, Field(ge=0, le=10_000)] | None = None
    """Number of the point in front.csv."""

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        off = {name for name, value in self if value is None or value is False}
        given = self.model_fields_set
        given.difference_update(off)  # a key without a value counts as left out
        weighing = ("prefer", "scalarization")
        excluded = {"index": (*weighing, "knee", *_LIMITS), "knee": weighing}
        for way, others in excluded.items():
            for other in others:
                if {way, other} <= given:
                    raise ValueError(f"give {other!r} or {way!r}, not both")
        if self.prefer and not any(self.prefer.values()):
            raise ValueError(f"preferences must not all be 0, got {self.prefer}")
        return self

    @property
    def rivals(self) -> tuple[str, ...]:
        """Return the references that a choice must not be worse than."""
        names = self.not_worse_than or ()
        return (names,) if isinstance(names, str) else tuple(dict.fromkeys(names))

    @property
    def limited(self) -> bool:
        """Whether there are limits that a choice must keep."""
        return self.require is not None or self.not_worse_than is not None

    def limits_in(self, other: SelectSpec) -> SelectSpec:
        """Return another selection with these limits, if it has none and may have."""
        if not other.model_fields_set or other.limited or other.index is not None:
            return other
        known = self.model_dump(include={*_LIMITS}, exclude_none=True)
        return other.model_copy(update=known)

    def without_limits(self) -> SelectSpec:
        """Return this selection without its limits."""
        kept = self.model_dump(exclude_unset=True, exclude={*_LIMITS})
        return SelectSpec(**(kept or {"scalarization": "sum"}))

    def preference(self, tasks: Iterable[str]) -> Mapping[str, float]:
        """Weigh the tasks; by default alike those without a limit, or else all."""
        names = list(tasks)
        free = [task for task in names if task not in (self.require or {})]
        return self.prefer or dict.fromkeys(free or names, 1.0)


class BackendSpec(Strict):
    """A model class of lm-eval that runs the lm_eval tasks, such as vllm."""

    name: Named
    """Name of the model class in lm-eval."""
    args: dict[str, Any] = Field({})
    """Arguments of the model class."""


if TYPE_CHECKING:
    _Task = TaskSpec
else:  # users may write presets, which are written out when tasks are validated
    _Task = SkipValidation[WrittenTask]


class MapBlock(Strict):
    """The whole block; tasks are validated one by one, for precise error messages."""

    tasks: Annotated[dict[str, _Task], Field(min_length=1, max_length=MOST_TASKS)]
    """The tasks to measure, by names of your own."""
    search: SearchSpec = SearchSpec()
    """The search for coefficients."""
    select: SelectSpec = SelectSpec()
    """The choice of the point of the front that becomes the recipe."""
    batch_size: Literal["auto"] | Annotated[Int, Field(ge=1, le=10**6)] = "auto"
    """Rows in a batch. `auto`: the fastest number of tokens on a CPU, as many as fit
    into the memory of a GPU; 8 rows for generation."""
    merge: Literal["memory", "disk"] = "memory"
    """`disk`: write and load each merge, for models that cannot be merged in memory."""
    task_vectors: Literal["auto", "device", "memory", "mapped"] = "auto"
    """Place of base and task vectors: the `device` that merges, the `memory` of the
    host, or `mapped` from files in the cache, which processes share. `auto`: mapped on
    a CPU; on a GPU the first of device, memory and mapped where they fit."""
    engine: Engine = EngineSpec(name="auto")
    """The engine that generates answers: `auto`, `hf` or `vllm`, or `{name: vllm, args:
    {...}}`. Other tasks are measured by transformers in this process."""
    backend: BackendSpec | None = None
    """With `merge: disk`, another model class of lm-eval for its tasks:
    `{name: vllm, args: {...}}`."""

    @model_validator(mode="after")
    def _backend_loads_from_disk(self) -> Self:
        if self.backend is not None and self.merge != "disk":
            raise ValueError(
                "a backend loads each merge from disk; add 'merge: disk' to use one"
            )
        if self.backend is not None and "pretrained" in self.backend.args:
            raise ValueError(
                "'pretrained' of a backend is each merge in turn; remove it from 'args'"
            )
        if self.backend is not None and self.engine.name != "auto":
            raise ValueError(
                "a backend measures all tasks of lm-eval, those that generate too; "
                "remove 'engine' or 'backend'"
            )
        return self
