"""``mergekit-map merge``: writes the checkpoint of a point."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from mergekit_map.cli.mergekit_options import MergeOptions, PrettyPrintHelp, merging
from mergekit_map.cli.options import (
    FOLDER,
    model_path_option,
    readable_folder,
    selection_options,
    trust_option,
)
from mergekit_map.cli.output import with_output_options
from mergekit_map.cli.steps import merge_and_show


@click.command(cls=PrettyPrintHelp)
@with_output_options()
@click.argument("run", type=FOLDER)
@click.argument("out", type=FOLDER)
@selection_options
@model_path_option
@trust_option
@merging("opening {run}", "run", "out")
def merge(
    merge_options: MergeOptions,
    run: Path,
    out: Path,
    choice: dict[str, Any],
    model_paths: dict[str, str],
    *,
    trust_run: bool,
) -> None:
    """Write the checkpoint of a point of the front of RUN to OUT.

    Without a choice, the recipe chosen last is merged.

    Example: mergekit-map merge my-search my-model --prefer math=2,code=1
    """
    from mergekit_map.workflows.select import select_point

    run = readable_folder(run)
    selection = select_point(run, **choice)
    merge_and_show(
        run,
        out,
        selection,
        merge_options,
        model_paths=model_paths,
        trust_run=trust_run,
    )
