"""The report of a finished search: one self-contained HTML page.

The page holds its data, its own script and plotly.js. A content security policy allows
only these two scripts, by their hashes, and no requests. No text of the user is part of
the markup: all of it is data, which the script shows as text.
"""

from __future__ import annotations

import base64
import hashlib
import importlib.resources
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from string import Template

from plotly.offline import get_plotlyjs, get_plotlyjs_version

from mergekit_map.errors import ArtifactError
from mergekit_map.report.data import report_content
from mergekit_map.report.plots import plot_front
from mergekit_map.results.surrogates import read_finished
from mergekit_map.utils.files import StrPath, json_line, unwritable, write_atomically

# Where plotly.js would take a chart that is shared: see guard.js.
_SHARING = "https://cloud.plotly.com/newchart"
_TITLE = b"<title>mergekit-map"  # that all pages have, near their beginning
_BEGINNING = 4096  # bytes


def build_page(
    template: str, scripts: Iterable[str], content: Mapping[str, object]
) -> str:
    """Return a page with its data; scripts are in the order in which they build."""
    plotly = _as_parsed(get_plotlyjs()).replace(_SHARING, "")
    script = _as_parsed("\n".join(map(_page_file, scripts)))
    drawn = {**content, "plotlyjs": get_plotlyjs_version()}
    return Template(_page_file(template)).substitute(
        policy=_policy(plotly, script),
        style=_page_file("report.css"),
        plotly=plotly,
        script=script,
        # JSON that ends no element and opens no comment, whatever is in it.
        content=json_line(drawn).replace("<", "\\u003c"),
    )


def refuse_foreign(place: Path) -> None:
    """Raise ArtifactError if a page would overwrite a file that is not ours."""
    if not place.exists():
        return
    if place.is_file():
        try:
            with place.open("rb") as file:
                beginning = file.read(_BEGINNING)
        except OSError as error:
            raise unwritable(place, error) from None
        if not beginning or _TITLE in beginning:
            return
    raise ArtifactError(
        f"{place} exists already, is no page of mergekit-map, and is left as it is; "
        "name another file, or remove this one"
    )


def _page_file(name: str) -> str:
    folder = importlib.resources.files(__package__) / "pages"
    return (folder / name).read_text(encoding="utf-8")


def _as_parsed(script: str) -> str:
    """Normalise line ends as browsers do, before they hash a script."""
    return script.replace("\r\n", "\n").replace("\r", "\n")


def _policy(*scripts: str) -> str:
    """Allow these scripts, styles that plotly sets, and pictures made on the page."""
    digests = (hashlib.sha256(script.encode()).digest() for script in scripts)
    hashes = " ".join(f"'sha256-{base64.b64encode(d).decode()}'" for d in digests)
    return (
        f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; "
        "img-src data: blob:; connect-src 'none'; frame-src 'none'; object-src 'none'; "
        "base-uri 'none'; form-action 'none'"
    )


# The page's own script, in the order in which its parts build on one another.
_SCRIPTS = (
    "guard.js",
    "choosing.js",
    "drawing.js",
    "tables.js",
    "marks.js",
    "front_chart.js",
    "parallel_chart.js",
    "surrogate_charts.js",
    "panels.js",
    "report.js",
)


@dataclass(frozen=True)
class Report:
    """The paths of a written report."""

    page: Path
    pictures: tuple[Path, ...]  # of the front


def write_report(run: StrPath, page: StrPath | None = None) -> Report:
    """Write the page of a finished search, into its folder if nowhere else.

    Raises:
        ArtifactError: the search is not finished, a file cannot be read or written, or
            where the page should go is something else.
    """
    if page is not None:
        refuse_foreign(Path(page))
    finished = read_finished(Path(run))
    folder = finished.folder
    page, picture = Path(page or folder.path / "report.html"), folder.picture
    write_atomically(page, report_page(report_content(finished)))
    if not picture.exists():
        plot_front(finished.front, picture)
    return Report(page, (picture,))


def report_page(content: Mapping[str, object]) -> str:
    """Return the page of ``report_content``."""
    return build_page("report.html", _SCRIPTS, content)
