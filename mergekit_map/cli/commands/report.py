"""``mergekit-map report`` and ``compare``: pages and tables of finished searches."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.markdown import Markdown

from mergekit_map.cli.mergekit_options import MakeOptions, MergeCommand
from mergekit_map.cli.options import (
    FILE,
    FOLDER,
    RUN,
    model_options,
    quiet_option,
    set_output,
    slow_imports,
    update_front,
    with_output_options,
)
from mergekit_map.utils.shutdown import deferred
from mergekit_map.utils.text import bytes_in_words, listed


@click.command()
@with_output_options
@quiet_option
@click.argument("runs", metavar="RUN...", nargs=-1, required=True, type=RUN)
@click.option(
    "--out",
    metavar="FILE.html",
    type=FILE,
    help="Where the page goes  [default: RUN/report.html; of several: RUN/fronts.html]",
)
def report(runs: tuple[Path, ...], out: Path | None) -> None:
    """Write the search RUN as one HTML page.

    The page has the answer, the front with sliders and limits that find its points,
    their recipes, the predictions and all measurements. It is one file that you can
    mail: it loads nothing else. Recipes hold the full paths of your models. If the
    search is not finished, the page shows the front so far.

    If you name several searches, the page compares their answers, hypervolumes and
    fronts, on the tasks that they share. Nothing is measured.

    Example: mergekit-map report my-search

    Example: mergekit-map report with-ties with-arithmetic --out both.html
    """
    for run in runs:
        update_front(run)  # of an unfinished search: the front so far
    with slow_imports(f"reading {listed(map(str, runs))} and drawing"):
        from mergekit_map.report.overlay import write_fronts_report
        from mergekit_map.report.page import write_report

    is_one = len(runs) == 1
    page = write_report(runs[0], out) if is_one else write_fronts_report(runs, out)
    pictures = [str(runs[0] / "front.png")] if is_one else []
    click.echo(f"{page} ({bytes_in_words(page.stat().st_size)}): open it in a browser")
    for picture in pictures:
        click.echo(picture)
    set_output(json={"page": str(page), "pictures": pictures}, quiet=page)


@click.command(cls=MergeCommand)
@with_output_options
@click.argument("runs", metavar="RUN...", type=RUN, nargs=-1, required=True)
@click.option("--out", type=FOLDER, help="Where the tables go  [default: RUN/compare]")
@click.option(
    "--opponents",
    metavar="NAME,...",
    default="random,moead",
    show_default=True,
    help="Other searches, to compare with: random (always included), sobol, grid, "
    "moead, nsga2, nsga3, sms_emoa; with the extra [bench] also cma_es, qlognehvi, "
    "optuna.",
)
@click.option(
    "--budget",
    type=click.IntRange(min=1),
    help="Merges that each opponent evaluates  [default: as many as the search]",
)
@click.option(
    "--preferences",
    type=click.IntRange(min=1),
    default=20,
    show_default=True,
    help="Random preferences that the methods are compared by.",
)
@click.option(
    "--seed",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    help="Of opponents and preferences.",
)
@model_options
def compare(
    make_options: MakeOptions,
    runs: tuple[Path, ...],
    out: Path | None,
    opponents: str,
    **settings: Any,
) -> None:
    """Compare finished searches with other methods and with baselines.

    It makes the tables of the MAP paper. Each opponent measures as many merges as
    --budget says, by default as many as the search did. All is kept in the log of RUN:
    if stopped, the same command continues; finished, it measures nothing again.

    Example: mergekit-map compare my-search --opponents random,nsga2 --budget 100
    """
    options = make_options(f"opening {runs[0]}")
    from mergekit_map.cli.screen import TerminalReporter
    from mergekit_map.compare.contest import ComparisonSpec
    from mergekit_map.compare.runner import compare_runs
    from mergekit_map.compare.tables import markdown

    folder = out or runs[0] / "compare"
    spec = ComparisonSpec(tuple(map(str.strip, opponents.split(","))), **settings)
    with deferred(), TerminalReporter() as reporter:
        tables = compare_runs(runs, folder, spec, options, [reporter])
    for table in tables:
        Console().print(Markdown(markdown(table)))
    click.echo(f"The tables are in {folder}, as Markdown and CSV.")
    content = [
        {**vars(t), "columns": [c.name for c in t.columns], "rows": t.text()}
        for t in tables
    ]
    set_output(json={"tables": content, "folder": str(folder)}, quiet=folder)
