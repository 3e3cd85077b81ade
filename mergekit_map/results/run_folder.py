"""The folder of a search: its paths and its files.

What a user opens stands at the top; all else is in ``.state``. In folders of earlier
versions all of it stands at the top, and stays there. The plan, ``search.json``, stays
until the search is finished: with the log it suffices to show one that was stopped, was
killed or is running.

A run folder is data, never code and never a path, because folders are published and
mailed. File names are derived here, links in a folder are refused, and files are
written atomically.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Annotated, Self

from pydantic import Field, model_validator

from mergekit_map._version import __version__
from mergekit_map.config.schema import Bounds, SearchSpec, SelectSpec
from mergekit_map.config.tasks import Documents
from mergekit_map.errors import ArtifactError
from mergekit_map.results.front import Front, LinearMerge
from mergekit_map.results.records import (
    AS_GIVEN,
    STATE,
    Coefficients,
    Identity,
    Line,
    Record,
    Text,
    lines_of_text,
    one_line,
    read_record,
    unreadable,
)
from mergekit_map.types import Metric
from mergekit_map.utils.files import digest, read_whole, unwritable

_LOCK = ".mergekit-map.lock"  # tells folders of earlier versions from others
_MOST_BYTES = 1 << 20  # of a recipe: models by the dozen, layer by layer


class Manifest(Record):
    """The settings of a finished search; written last, removed before a change."""

    mergekit_map: Line
    """Version of mergekit-map."""
    python: Line
    packages: dict[Line, Line]
    """Versions of the packages that merge and measure."""
    config: Line
    """Digest of the configuration."""
    directory: str
    """Folder that relative paths of the configuration start from."""
    seed: int
    """Seed of the search."""
    random_seed: int | None
    """Seed of methods that drop parameters at random."""
    merge: Annotated[Line, Field(pattern="^[0-9a-f]*$")]
    """Fingerprint of the merge, as in the log; folders are named by it."""
    identity: Annotated[Identity, AS_GIVEN]
    """Content that the fingerprint of the merge is of."""
    definitions: dict[Line, Line]
    """Fingerprints of the tasks."""
    digests: Annotated[int, Field(ge=1, le=4)] = 1
    """Version of the digests of models: 4 covers what a loader may read."""


class RunFolder:
    """The folder of a search; ArtifactError for a missing or damaged file of it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.config = path / "config.yml"  # with keys set by options
        self.log = path / "evaluations.jsonl"
        self.front = path / "front.json"
        self.table = path / "front.csv"
        self.picture = path / "front.png"
        self.chosen_recipe = path / "recipe.yml"
        self.soup_recipe = path / "recipes" / "soup.yml"
        # Of what users need not open; earlier versions had no such folder.
        marks = ("manifest.json", "search.json", _LOCK)
        old = any((path / name).exists() for name in marks)
        new = path / STATE
        self.state = state = path if old and not new.exists() else new
        self.manifest = state / "manifest.json"  # that a finished search has
        self.plan = state / "search.json"  # that an unfinished search has
        self.lock = state / _LOCK  # of the log
        # There while another point is chosen: what follows from it may be of the last.
        self.choosing = state / ".choosing"
        self.choosing_lock = state / ".choosing.lock"

    @property
    def exists(self) -> bool:
        """Whether the folder is that of a search."""
        marks = (self.manifest, self.log, self.plan, self.lock)
        return any(path.exists() for path in marks)

    @property
    def unfinished(self) -> bool:
        """Whether its search was stopped, was killed or is running."""
        return self.plan.exists() and not self.manifest.exists()

    def recipe(self, index: int) -> Path:
        """Return the path of a point's recipe."""
        return self.path / "recipes" / f"{index:03d}.yml"

    def samples(self, merge: str) -> Path:
        """Return the folder of records per item, of a fingerprint."""
        return self.state / "samples" / merge

    def held_out_samples(self, merge: str) -> Path:
        """Return the folder of records per item of held-out documents."""
        return self.state / "samples" / f"{merge}-holdout"

    def read_manifest(self) -> Manifest:
        """Read the manifest of a search, finished or not."""
        if self.unfinished:
            return self.read_plan().manifest
        if not self.exists:
            raise ArtifactError(
                f"{self.path} is not the folder of a search; name the one that search "
                "wrote, or OUT.run of run"
            )
        return read_record(self.manifest, Manifest, "finished search")

    def read_plan(self) -> SearchPlan:
        """Read the plan of an unfinished search."""
        return read_record(self.plan, SearchPlan, "search under way")

    @property
    def plan_digest(self) -> str:
        """Return the digest of the plan of an unfinished search."""
        return digest([self.plan.read_bytes().decode(errors="replace")])

    def read_front(self) -> Front:
        """Read the front of a finished search, or the partial front of another."""
        self.read_manifest()
        front = read_record(self.front, Front, "front")
        of = front.unfinished and front.unfinished.of.partition(" ")[0]
        if self.unfinished and of != self.plan_digest:
            raise ArtifactError(
                f"{self.front} is of an earlier search into this folder, and the new "
                "one is not finished; type its command again to go on"
            )
        return front

    def read_recipe(self, index: int) -> str:
        """Read the recipe of a point."""
        path = self.recipe(index)
        try:
            text = read_whole(path, _MOST_BYTES).decode()
            return lines_of_text(text.replace("\r\n", "\n"))  # of git on Windows
        except (OSError, ValueError) as error:
            raise unreadable(path, error) from None

    def claim(self) -> None:
        """Create the folder; refuse one with other files or links in it."""
        open_run(self.path)
        if not self.exists and any(p != self.state for p in self.path.glob("*")):
            raise ArtifactError(
                f"{self.path} holds files that are not of a search; name a new or "
                "empty folder"
            )
        try:
            self.state.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise unwritable(self.path, error) from None


def open_run(path: Path) -> RunFolder:
    """Return the folder of a search; ArtifactError if it holds a link or a device."""
    for folder, folders, files in os.walk(path, onerror=_refuse_unreadable):
        for found in (Path(folder, name) for name in sorted([*folders, *files])):
            try:
                mode = found.lstat().st_mode
            except FileNotFoundError:
                continue  # of a search that runs
            if not (stat.S_ISDIR(mode) or stat.S_ISREG(mode)):
                kind = "a symbolic link" if stat.S_ISLNK(mode) else "no ordinary file"
                raise ArtifactError(
                    f"{found} is {kind}, and a run folder holds files and folders "
                    "alone; name another folder, or put the file itself there"
                )
    return RunFolder(path)


def _refuse_unreadable(error: OSError) -> None:
    if not isinstance(error, FileNotFoundError | NotADirectoryError):
        raise ArtifactError(f"{error.filename} cannot be read: {error}") from None


class SearchPlan(Record):
    """The plan of an unfinished search; the file is removed at the end."""

    manifest: Manifest
    """The manifest to be written at the end."""
    most: int = Field(ge=0)
    """Largest number of merges that it measures."""
    bounds: dict[Line, Bounds]
    """Bounds of each coefficient."""
    anchors: dict[Line, Coefficients]
    """Base, parents and soup, as far as they are merges of the search."""
    corners: dict[Line, Coefficients] = Field(default_factory=dict)
    """Merges of one model, or of all with equal weights, that are none of these."""
    linear: dict[Line, LinearMerge] = Field(default_factory=dict)
    """The other reference points, as linear merges of the models."""
    tasks: dict[Line, Metric]
    """The metrics of the measured tasks."""
    documents: dict[Line, Documents]
    """Number of the documents of each task that are measured."""
    search: Annotated[SearchSpec, AS_GIVEN]
    """Settings of the search."""
    select: Annotated[SelectSpec, AS_GIVEN]
    """Settings by which the point is chosen."""
    recipe: Text
    """The mergekit YAML of one merge."""

    @model_validator(mode="after")
    def _anchors_of_bounds(self) -> Self:
        for label, anchor in {**self.anchors, **self.corners}.items():
            if anchor.keys() != self.bounds.keys():
                raise ValueError(f"anchors.{label}: the names are {[*self.bounds]}")
        for metric in self.tasks.values():
            one_line(metric.unit)
        if self.tasks.keys() != self.manifest.definitions.keys():
            raise ValueError("manifest.definitions: they are of other tasks")
        asked = {**(self.select.prefer or {}), **(self.select.require or {})}
        if not asked.keys() <= self.tasks.keys():
            raise ValueError(f"select: the tasks are {[*self.tasks]}")
        return self


def recipe_comments(front: Front, index: int) -> list[str]:
    """Write the comments above a recipe, with the results of its point."""
    point = front.points[index]
    lines = [f"mergekit-map {__version__}, point {index} of the front."]
    for task, predicted in point.readings("predicted").items():
        unit, measured = front.tasks[task].unit, point.measured[task].value
        text = f"{task}: predicted {predicted.value:.6g} {unit}".rstrip()
        lines.append(text if measured is None else f"{text}, measured {measured:.6g}")
    return lines
