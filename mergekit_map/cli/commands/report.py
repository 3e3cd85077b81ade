"""``mergekit-map report``: writes finished searches as a page."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from mergekit_map.cli.options import (
    FILE,
    FOLDER,
    check_paths,
    readable_folder,
    starting,
)
from mergekit_map.cli.output import answer, with_output_options
from mergekit_map.utils.text import bytes_in_words, listed


@click.command()
@with_output_options(quiet=True)
@click.argument("runs", metavar="RUN...", nargs=-1, required=True, type=FOLDER)
@click.option(
    "--out",
    "page",
    metavar="FILE.html",
    type=FILE,
    help="Where the page goes  [default: RUN/report.html; of several: RUN/fronts.html]",
)
def report(runs: tuple[Path, ...], page: Path | None) -> None:
    """Write the search RUN as one HTML page.

    The page begins with the answer. It shows the front, finds points by sliders and
    limits, and has their recipes, the predictions and all measurements. It is one file
    that fetches nothing and can be mailed; recipes name your models as you did, with
    paths. Of a search that is not finished it shows the front so far.

    Several searches are compared on one page (TIES or task arithmetic?): their answers,
    hypervolumes and fronts, on the tasks that they share. Nothing is measured.

    Example: mergekit-map report my-search

    Example: mergekit-map report with-ties with-arithmetic --out both.html
    """
    for run in runs:
        check_paths(run=run)
    with starting(f"reading {listed(map(str, runs))} and drawing"):
        from mergekit_map.report.page import write_report

    pictures: Sequence[Path] = ()
    if len(runs) > 1:
        from mergekit_map.report.overlay import write_fronts_report

        page = write_fronts_report([*map(readable_folder, runs)], page)
    else:
        written = write_report(readable_folder(runs[0]), page)
        page, pictures = written.page, written.pictures
    answer(page, page=str(page), pictures=[*map(str, pictures)])
    size = bytes_in_words(page.stat().st_size)
    click.echo(f"{page} ({size}): open it in a browser")
    for picture in pictures:
        click.echo(picture)
