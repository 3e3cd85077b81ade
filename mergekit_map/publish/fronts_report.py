"""Several finished searches laid over one another, as one page; nothing is measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from mergekit_map.files import StrPath, write_atomically
from mergekit_map.publish.fronts_content import fronts_content
from mergekit_map.publish.html_page import build_page, refuse_foreign
from mergekit_map.results.finished import read_finished

# The page's own script, in the order in which its parts build on one another.
_SCRIPTS = (
    "guard.js",
    "choosing.js",
    "drawing.js",
    "in_view.js",
    "tables.js",
    "printing.js",
    "marks.js",
    "preferring.js",
    "fronts_chart.js",
    "fronts.js",
)


def write_fronts_report(runs: Sequence[StrPath], page: StrPath | None = None) -> Path:
    """Write ``fronts.html``, into the folder of the first search if nowhere else.

    Raises:
        ArtifactError: a search is not finished, a file of it is damaged, they share no
            task, or where the page should go is something else.
    """
    if page is not None:
        refuse_foreign(Path(page))
    folders = [Path(run) for run in runs]
    content = fronts_content([read_finished(run) for run in folders])
    written = Path(page or folders[0] / "fronts.html")
    write_atomically(written, fronts_page(content))
    return written


def fronts_page(content: Mapping[str, object]) -> str:
    """Put what ``fronts_content`` gives into the page."""
    return build_page("fronts.html", _SCRIPTS, content)
