"""``search.json``: the plan of a search, until it is finished.

With the log it suffices to show a search that was stopped, was killed or is running.
"""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, field_serializer, model_validator
from typing_extensions import Self

from mergekit_map.config.schema import SearchSpec, SelectSpec
from mergekit_map.results.front import Front, LinearMerge
from mergekit_map.results.records import (
    Coefficients,
    Frozen,
    Line,
    Number,
    Record,
    Text,
    read_record,
)
from mergekit_map.results.run_folder import Manifest, RunFolder
from mergekit_map.types import Metric


class TaskInfo(Frozen):
    """A task of an unfinished search."""

    higher_is_better: bool
    """Which values are better."""
    range: tuple[Number | None, Number | None]
    """Smallest and largest possible value, null where there is none."""
    unit: Line
    """Unit of its values."""
    differentiable: bool
    """Whether it has derivatives."""
    documents: int | Literal["all"]
    """Number of its documents that are measured."""

    @property
    def metric(self) -> Metric:
        """Return what is known of the task as a metric."""
        return Metric(
            self.higher_is_better, *self.range, self.unit, self.differentiable
        )


class SearchPlan(Record):
    """The plan of an unfinished search; the file is removed at the end."""

    manifest: Manifest
    """The manifest to be written at the end."""
    source: Line
    """Path of the configuration, as the user named it."""
    most: int = Field(ge=0)
    """Largest number of merges that it measures."""
    bounds: dict[Line, tuple[float, float]]
    """Bounds of each coefficient."""
    anchors: dict[Line, Coefficients]
    """Base, parents and soup, as far as they are merges of the search."""
    corners: dict[Line, Coefficients] = Field(default_factory=dict)
    """Merges of one model, or of all with equal weights, that are none of these."""
    linear: dict[Line, LinearMerge] = Field(default_factory=dict)
    """The other reference points, as linear merges of the models."""
    tasks: dict[Line, TaskInfo]
    """The measured tasks."""
    search: SearchSpec
    """Settings of the search."""
    select: SelectSpec
    """Settings by which the point is chosen."""
    recipe: Text | None
    """The mergekit YAML of one merge; null where pairs are merged one by one."""

    def going_on(self, run: Path) -> str:
        """Return the command that resumes the search into a folder."""
        return shlex.join(["mergekit-map", "search", self.source, str(run)])

    @model_validator(mode="after")
    def _anchors_of_bounds(self) -> Self:
        for label, anchor in {**self.anchors, **self.corners}.items():
            if anchor.keys() != self.bounds.keys():
                raise ValueError(f"anchors.{label}: the names are {[*self.bounds]}")
        for name, (lower, upper) in self.bounds.items():
            if not lower < upper:
                raise ValueError(f"bounds.{name}: the ends do not rise")
        if self.tasks.keys() != self.manifest.definitions.keys():
            raise ValueError("manifest.definitions: they are of other tasks")
        return self

    @field_serializer("search", "select")
    def _as_given(self, spec: SearchSpec | SelectSpec) -> dict[str, Any]:
        return spec.model_dump(mode="json", exclude_unset=True)


def read_search_plan(folder: RunFolder) -> SearchPlan:
    """Read the plan of an unfinished search.

    Raises:
        ArtifactError: there is no such search, or the file is damaged.
    """
    return read_record(folder.plan, SearchPlan, "search under way")


def unfinished_in_words(folder: RunFolder, front: Front) -> list[str]:
    """Describe the progress of an unfinished search and how to resume it."""
    if front.unfinished is None:
        return []
    search = RunFolder(folder.named)
    words = f"{front.unfinished.measured} of at most {front.unfinished.most} merges"
    if not search.plan.exists():  # the search has been finished since
        return [f"{words} were measured when this was found; the search has gone on."]
    command = read_search_plan(search).going_on(search.path)
    return [f"{words} measured; the search goes on with: {command}"]
