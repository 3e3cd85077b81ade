"""The results of a search, a selection and a merge, for a notebook.

A notebook shows headline, gains and findings, without a style of their own. All text of
the user is escaped, and there is no script.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

from mergekit_map.report.plots import front_figure, front_frame
from mergekit_map.results.answer import answer
from mergekit_map.results.front import Front, Merge
from mergekit_map.results.run_folder import open_run
from mergekit_map.utils.files import StrPath

if TYPE_CHECKING:
    import pandas
    from matplotlib.figure import Figure


@dataclass(frozen=True, eq=False, repr=False)
class FrontResult:
    """A front with its table and picture."""

    front: Front  # all that front.json holds

    @property
    def index(self) -> int:
        """Return the number of the chosen point."""
        return self.front.selected

    @property
    def point(self) -> Merge:
        """Return the chosen point."""
        return self.front.chosen

    def to_pandas(self) -> pandas.DataFrame:
        """Return the points of the front as a table, the columns of front.csv."""
        return front_frame(self.front)

    def plot(self) -> Figure:
        """Draw the front, the chosen point with it."""
        return front_figure(self.front)


@dataclass(frozen=True, eq=False, repr=False)
class Run(FrontResult):
    """The folder of a finished search, with its front; usable as a path."""

    path: Path

    def __fspath__(self) -> str:
        return str(self.path)

    def __repr__(self) -> str:
        return f"Run({str(self.path)!r}: {front_line(self.front)})"

    def _repr_html_(self) -> str:
        return front_html(self.front, str(self.path))


@dataclass(frozen=True, eq=False, repr=False)
class Selection(FrontResult):
    """A point of a front, and the recipe that merges it."""

    recipe: str  # mergekit YAML

    def __repr__(self) -> str:
        return f"Selection({front_line(self.front)})"

    def _repr_html_(self) -> str:
        return front_html(self.front, "chosen") + folded("recipe.yml", self.recipe)


@dataclass(frozen=True, eq=False, repr=False)
class Merged(FrontResult):
    """A checkpoint that was written and measured; its point is so in the front."""

    path: Path
    command: str  # that writes the same one with mergekit alone

    def __repr__(self) -> str:
        return f"Merged({str(self.path)!r}: {front_line(self.front)})"

    def _repr_html_(self) -> str:
        shown = front_html(self.front, str(self.path))
        return shown + folded("the same tensors with mergekit alone", self.command)


def read_run(run: StrPath) -> Run:
    """Read the folder of a finished search, without changes to it.

    Raises ArtifactError if the search is not finished, or a file of it is damaged.
    """
    folder = open_run(Path(run))
    return Run(folder.read_front(), folder.path)


def front_line(front: Front) -> str:
    """Describe the size of a front and its choice in a line."""
    tasks = ", ".join(front.tasks)
    points = "1 point" if len(front.points) == 1 else f"{len(front.points)} points"
    return f"{points} for {tasks}; chosen {front.selected}: {front.chosen.weights}"


def front_html(front: Front, heading: str) -> str:
    """Return the answer of a front."""
    found = answer(front)
    table = _row("th", found.headings)
    table += "".join(_row("td", row) for row in found.table)
    parts = [
        f"<i>{escape(heading)}</i>",
        f"<b>{escape(found.headline)}</b>",
        f"<table>{table}</table>",
        *map(escape, [found.sample, *found.findings]),
    ]
    shown = "".join(f"<div>{part}</div>" for part in parts)
    details = "\n".join(found.details)
    return shown + (folded("details", details) if details else "")


def folded(title: str, text: str) -> str:
    """Return a text that opens on a click."""
    summary = f"<summary>{escape(title)}</summary>"
    return f"<details>{summary}<pre>{escape(text)}</pre></details>"


def _row(tag: str, cells: Iterable[str]) -> str:
    return f"<tr>{''.join(f'<{tag}>{escape(cell)}</{tag}>' for cell in cells)}</tr>"
