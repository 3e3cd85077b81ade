"""What several commands do: search and merge, and show it.

What is heavy is imported inside the functions, so that help is no slower than
mergekit's own.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

import click

from mergekit_map.commands.merge_options import MergeOptions
from mergekit_map.commands.options import N_SHOWN, starting

if TYPE_CHECKING:
    from mergekit_map.results.front import Front
    from mergekit_map.steps.select import Selection


def search_and_show(
    config: Path,
    run: Path,
    options: MergeOptions,
    import_file: Path | None = None,
    again: Sequence[str] = (),
    *,
    model_paths: Mapping[str, str] = MappingProxyType({}),
    trust_run: bool = False,
    n_points: int = N_SHOWN,
) -> Front:
    """Search as CONFIG says, going on where it was stopped, and print the front."""
    with starting():
        from mergekit_map.commands.progress import TerminalReporter
        from mergekit_map.commands.terminal import show_front
        from mergekit_map.results.reason_words import unmet_limits
        from mergekit_map.steps.project import load_project
        from mergekit_map.steps.search import search_front
        from mergekit_map.study.import_csv import read_imported

    project = load_project(
        config, options, trust_run=trust_run, model_paths=model_paths
    )
    for note in project.notes:
        click.echo(note, err=True)
    imported = read_imported(import_file, project.study()) if import_file else []
    try:
        with TerminalReporter() as reporter:
            front = search_front(project, run, reporter, imported).front
    except KeyboardInterrupt:
        again = again or ["search", str(config), str(run)]
        places = (f"--model-path={name}={f}" for name, f in model_paths.items())
        words = shlex.join(["mergekit-map", *again, *places])
        click.echo(
            f"\nstopped; all finished measurements are kept. Go on with: {words}"
        )
        raise SystemExit(130) from None
    show_front(front, n_points)
    if unmet_limits(front):
        click.echo(f"warning: {front.reason}", err=True)
    return front


def merge_and_show(
    run: Path,
    out: Path,
    selection: Selection,
    options: MergeOptions,
    *,
    model_paths: Mapping[str, str] = MappingProxyType({}),
    trust_run: bool = False,
) -> None:
    """Write the checkpoint of a selection, and print what it gains and what is next."""
    with starting():
        from mergekit_map.commands.next_steps import after_merge, show_steps
        from mergekit_map.commands.progress import TerminalReporter
        from mergekit_map.commands.terminal import show_merged
        from mergekit_map.results.run_folder import RunFolder
        from mergekit_map.steps.merge import merge_point

    with TerminalReporter() as reporter:
        merged = merge_point(
            run,
            out,
            selection,
            options,
            reporter,
            trust_run=trust_run,
            model_paths=model_paths,
        )
    front = RunFolder(run).read_front()
    show_merged(front.with_point(selection.index, merged.point), out)
    click.echo(f"\nThe same checkpoint with mergekit alone:\n  {merged.command}")
    show_steps(after_merge(run, out, list(front.tasks)))
