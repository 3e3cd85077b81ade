"""The report of a finished search: one page that needs nothing else, and pictures."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from mergekit_map.files import StrPath, write_atomically
from mergekit_map.publish.html_page import build_page, refuse_foreign
from mergekit_map.publish.measured_merges import measured_merges
from mergekit_map.publish.plots import plot_front
from mergekit_map.publish.report_data import report_content
from mergekit_map.publish.surfaces import predict_surfaces
from mergekit_map.publish.surrogate_plots import plot_surrogates
from mergekit_map.results.finished import FinishedSearch, read_finished

# The page's own script, in the order in which its parts build on one another.
_SCRIPTS = (
    "guard.js",
    "choosing.js",
    "drawing.js",
    "in_view.js",
    "marks.js",
    "space_chart.js",
    "front_charts.js",
    "parallel_chart.js",
    "surrogate_charts.js",
    "history_chart.js",
    "tables.js",
    "address.js",
    "copying.js",
    "printing.js",
    "views.js",
    "panels.js",
    "gain_panel.js",
    "items_panel.js",
    "evaluations.js",
    "report.js",
)


@dataclass(frozen=True)
class Report:
    """Where the parts of a report were written."""

    page: Path
    pictures: tuple[Path, ...]  # of the front and of the surrogates


def write_report(run: StrPath, page: StrPath | None = None) -> Report:
    """Write ``report.html``, ``front.png`` and ``surrogates.png`` of a finished search.

    They go into the folder of the search; only the page may go elsewhere.

    Raises:
        ArtifactError: the search is not finished, a file cannot be read or written, or
            where the page should go is something else.
    """
    if page is not None:
        refuse_foreign(Path(page))
    run, page = Path(run), Path(page or Path(run) / "report.html")
    finished = read_finished(run)
    surfaces, merges = predict_surfaces(finished), measured_merges(finished)
    content = report_content(finished, surfaces, merges)
    pictures = [finished.folder.picture, run / "surrogates.png"]
    if not _is_drawn(finished):
        plot_front(finished.front, pictures[0])
    if finished.surrogates:
        plot_surrogates(finished.front, surfaces, merges, pictures[1])
    else:
        pictures = pictures[:1]
    write_atomically(page, report_page(content))
    return Report(page, tuple(pictures))


def _is_drawn(finished: FinishedSearch) -> bool:
    """Tell whether the picture was drawn after the front, and of all that is known."""
    folder = finished.folder
    if not folder.picture.exists() or finished.front != folder.read_front():
        return False
    return folder.picture.stat().st_mtime_ns > folder.front.stat().st_mtime_ns


def report_page(content: Mapping[str, object]) -> str:
    """Put what ``report_content`` gives into the page."""
    return build_page("report.html", _SCRIPTS, content)
