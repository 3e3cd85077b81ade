"""What a front knows of a task: the ``tasks`` of ``front.json``."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import SerializerFunctionWrapHandler, model_serializer

from mergekit_map.config.engine_specs import CALLED
from mergekit_map.measurement import Metric
from mergekit_map.results.quality import Fit
from mergekit_map.results.records import Frozen, Line, Number


class Task(Frozen):
    """A task, and how well its surrogate fits."""

    direction: Literal["maximize", "minimize"]
    """Which values are better."""
    range: tuple[Number | None, Number | None]
    """Smallest and largest possible value, null where there is none."""
    unit: Line
    """Of its values."""
    fit: Fit
    """Of its surrogate."""
    engine: Line | None = None
    """What generated its answers, `vllm`; left out where the log
    does not name it."""

    @model_serializer(mode="wrap")
    def _without_what_it_lacks(
        self, handler: SerializerFunctionWrapHandler
    ) -> dict[str, Any]:
        keys = {"engine"} if self.engine is None else set()
        return {key: v for key, v in handler(self).items() if key not in keys}

    @property
    def facts(self) -> tuple[str, ...]:
        """Say its unit, which values are better, and what generated its answers."""
        by = "" if self.engine is None else f"by {CALLED.get(self.engine, self.engine)}"
        found = (self.unit, f"{self.metric.better} is better", by)
        return tuple(filter(None, found))

    @property
    def metric(self) -> Metric:
        """Give what is known of it as a metric."""
        lower, upper = self.range
        return Metric(self.direction == "maximize", lower, upper, self.unit)
