"""The report of a finished search: one HTML page that needs nothing else, and pictures.

The page holds its data, its own script and plotly.js. A content security policy lets
only these two scripts run, known by their hashes, and nothing be fetched. No text of
the user stands in the markup: all of it is data, which the script shows as text.
"""

from __future__ import annotations

import base64
import hashlib
import importlib.resources
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from string import Template

from plotly.offline import get_plotlyjs, get_plotlyjs_version

from mergekit_map.files import StrPath, write_atomically
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
        ArtifactError: the search is not finished, or a file cannot be read or written.
    """
    run, page = Path(run), Path(page or Path(run) / "report.html")
    finished = read_finished(run)
    surfaces, merges = predict_surfaces(finished), measured_merges(finished)
    content = report_content(finished, surfaces, merges)
    pictures = finished.folder.picture, run / "surrogates.png"
    if not _is_drawn(finished):
        plot_front(finished.front, pictures[0])
    plot_surrogates(finished.front, surfaces, merges, pictures[1])
    write_atomically(page, report_page(content))
    return Report(page, pictures)


def _is_drawn(finished: FinishedSearch) -> bool:
    """Tell whether the picture was drawn after the front, and of all that is known."""
    folder = finished.folder
    if not folder.picture.exists() or finished.front != folder.read_front():
        return False
    return folder.picture.stat().st_mtime_ns > folder.front.stat().st_mtime_ns


def report_page(content: Mapping[str, object]) -> str:
    """Put what ``report_content`` gives into the page."""
    plotly = _as_parsed(get_plotlyjs())
    script = _as_parsed("\n".join(map(_page_file, _SCRIPTS)))
    drawn = {**content, "plotlyjs": get_plotlyjs_version()}
    return Template(_page_file("report.html")).substitute(
        policy=_policy(plotly, script),
        style=_page_file("report.css"),
        plotly=plotly,
        script=script,
        # JSON that ends no element and opens no comment, whatever is in it.
        content=json.dumps(drawn, allow_nan=False).replace("<", "\\u003c"),
    )


def _page_file(name: str) -> str:
    folder = importlib.resources.files(__package__) / "pages"
    return (folder / name).read_text(encoding="utf-8")


def _as_parsed(script: str) -> str:
    """Write line ends as browsers read them, before they hash a script."""
    return script.replace("\r\n", "\n").replace("\r", "\n")


def _policy(*scripts: str) -> str:
    """Allow these scripts, styles that plotly sets, and pictures made on the page."""
    digests = (hashlib.sha256(script.encode()).digest() for script in scripts)
    hashes = " ".join(f"'sha256-{base64.b64encode(d).decode()}'" for d in digests)
    return (
        f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; "
        "img-src data: blob:; base-uri 'none'; form-action 'none'"
    )
