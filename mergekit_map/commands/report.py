"""The command that writes what a finished search found as a page."""

from __future__ import annotations

from pathlib import Path

import click

from mergekit_map.commands.options import FOLDER, look_first, starting
from mergekit_map.words import bytes_in_words


@click.command()
@click.argument("run", type=FOLDER)
@click.option(
    "--out",
    "page",
    metavar="FILE.html",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Where the page goes  [default: RUN/report.html]",
)
def report(run: Path, page: Path | None) -> None:
    """Write the finished search RUN as one HTML page, and pictures into RUN.

    The page shows the front, the surrogates and all that was measured, and lets you
    choose a point by sliders and limits and copy its recipe. It holds all it needs,
    fetches nothing, and can be mailed as it is; recipes name your models as you did,
    paths included.

    Example: mergekit-map report my-search
    """
    look_first(run=run)
    with starting(f"reading {run} and drawing"):
        from mergekit_map.publish.report import write_report

    written = write_report(run, page)
    size = bytes_in_words(written.page.stat().st_size)
    click.echo(f"{written.page} ({size}): open it in a browser")
    for picture in written.pictures:
        click.echo(picture)
