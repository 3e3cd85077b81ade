"""A page of HTML that needs nothing else, from its parts in ``pages/`` and its data.

The page holds its data, its own script and plotly.js. A content security policy lets
only these two scripts run, known by their hashes, and nothing be fetched. No text of
the user stands in the markup: all of it is data, which the script shows as text.
"""

from __future__ import annotations

import base64
import hashlib
import importlib.resources
from collections.abc import Iterable, Mapping
from pathlib import Path
from string import Template

from plotly.offline import get_plotlyjs, get_plotlyjs_version

from mergekit_map.errors import ArtifactError
from mergekit_map.files import json_line, unwritable

# Where plotly.js would take a chart that is shared: see guard.js.
_SHARING = "https://cloud.plotly.com/newchart"
_TITLE = b"<title>mergekit-map"  # that all pages have, near their beginning
_BEGINNING = 4096  # bytes


def build_page(
    template: str, scripts: Iterable[str], content: Mapping[str, object]
) -> str:
    """Put data into a page; its scripts are in the order in which they build."""
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
    """Raise ArtifactError if a page would take the place of what is no page of ours."""
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
    """Write line ends as browsers read them, before they hash a script."""
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
