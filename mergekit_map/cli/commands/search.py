"""``mergekit-map search``: evaluates merges and finds the front."""

from __future__ import annotations

from pathlib import Path

import click

from mergekit_map.cli.config_options import config_or_options
from mergekit_map.cli.mergekit_options import MergeOptions, PrettyPrintHelp, merging
from mergekit_map.cli.options import (
    FOLDER,
    model_path_option,
    points_option,
    starting,
    trust_option,
    workers_option,
)
from mergekit_map.cli.output import with_output_options
from mergekit_map.cli.steps import search_and_show
from mergekit_map.types import BASE


@click.command(cls=PrettyPrintHelp)
@with_output_options()
@config_or_options("run", "RUN")
@click.option(
    "--import",
    "import_file",
    type=FOLDER,
    metavar="FILE.csv",
    help="Evaluations that were measured elsewhere, a row per merge: a column per "
    "coefficient, a column named as each task, and 'TASK stderr' where it is known.",
)
@workers_option
@points_option
@model_path_option
@trust_option
@merging("reading {config}", "config")
def search(
    merge_options: MergeOptions,
    config: Path,
    run: Path,
    import_file: Path | None,
    points: int,
    model_paths: dict[str, str],
    workers: int | str | None,
    *,
    trust_run: bool,
) -> None:
    """Evaluate merges as CONFIG says, into the folder RUN, and find the front.

    A search that was stopped goes on where it was; one that is finished measures only
    what CONFIG asks for anew (more evaluations, another task).

    Without CONFIG, options say what it would; it is written to RUN.yml.

    Example: mergekit-map search merge.yml my-search
    """
    with starting():
        from mergekit_map.cli.hints import after_search, show_steps

    front = search_and_show(
        config,
        run,
        merge_options,
        import_file,
        model_paths=model_paths,
        trust_run=trust_run,
        n_points=points,
        workers=workers,
    )
    click.echo(f"\nThe front is in {run}: front.csv, front.png and a recipe per point.")
    has_base = any(anchor.label == BASE for anchor in front.anchors)
    show_steps(after_search(run, list(front.tasks), has_base=has_base))
