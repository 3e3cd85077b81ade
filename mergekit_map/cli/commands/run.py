"""``mergekit-map run``: searches, selects and merges."""

from __future__ import annotations

from pathlib import Path

import click

from mergekit_map.cli.config_options import config_or_options
from mergekit_map.cli.mergekit_options import MergeOptions, PrettyPrintHelp, merging
from mergekit_map.cli.options import (
    FOLDER,
    model_path_option,
    points_option,
    trust_option,
    workers_option,
)
from mergekit_map.cli.output import with_output_options
from mergekit_map.cli.steps import merge_and_show, search_and_show


@click.command(cls=PrettyPrintHelp)
@with_output_options()
@config_or_options("out", "OUT")
@click.option(
    "--run-folder",
    "run_folder",
    type=FOLDER,
    help="Where the search goes  [default: OUT.run]",
)
@workers_option
@points_option
@model_path_option
@trust_option
@merging("reading {config}", "config", "out")
def run(
    merge_options: MergeOptions,
    config: Path,
    out: Path,
    run_folder: Path | None,
    points: int,
    model_paths: dict[str, str],
    workers: int | str | None,
    *,
    trust_run: bool,
) -> None:
    """Search, select as CONFIG says, and merge into OUT: as mergekit-yaml, searched.

    Without CONFIG, options say what it would; it is written to OUT.yml:
    mergekit-map run --base A --model B --model C --text fr.txt --task gsm8k OUT

    Example: mergekit-map run merge.yml my-model
    """
    from mergekit_map.workflows.select import select_point

    run_folder = run_folder or out.with_name(f"{out.name}.run")
    again = ["run", str(config), str(out), "--run-folder", str(run_folder)]
    search_and_show(
        config,
        run_folder,
        merge_options,
        again=again,
        model_paths=model_paths,
        trust_run=trust_run,
        n_points=points,
        workers=workers,
    )
    # What was searched here just now is nobody else's.
    selection = select_point(run_folder)
    merge_and_show(
        run_folder,
        out,
        selection,
        merge_options,
        model_paths=model_paths,
        trust_run=True,
    )
