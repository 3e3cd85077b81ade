"""Coming from mergekit-evolve: loads no model and imports nothing heavy."""

from __future__ import annotations

import shlex
from pathlib import Path

import click

from mergekit_map.commands.options import FOLDER
from mergekit_map.commands.showing import answer, showing
from mergekit_map.errors import ArtifactError
from mergekit_map.files import write_atomically
from mergekit_map.migrating.evolve import migrate_evolve


@click.command("import-evolve")
@showing(quiet=True)
@click.argument("genome", type=FOLDER)
@click.argument("config", type=FOLDER, required=False)
@click.option(
    "--task-search-path",
    "task_folders",
    multiple=True,
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    metavar="FOLDER",
    help="Where your own lm-eval tasks are, as for mergekit-evolve; may be repeated.",
)
def import_evolve(
    genome: Path, config: Path | None, task_folders: tuple[Path, ...]
) -> None:
    """Turn GENOME, a configuration of mergekit-evolve, into one of ours.

    It is written to CONFIG, or else to standard output. What is not as it was is said,
    and stands as comments at its top.

    Example: mergekit-map import-evolve genome.yml merge.yml
    """
    if config is not None and config.exists():
        raise ArtifactError(
            f"{config} exists already and is left as it is; name another file"
        )
    migrated = migrate_evolve(genome, task_folders)
    answer(
        config,
        config=None if config is None else str(config),
        text=migrated.text,
        changes=[str(change) for change in migrated.changes],
    )
    for change in migrated.changes:
        click.echo(f"- {change}", err=True)
    if config is None:
        click.echo(migrated.text, nl=False)
        return
    write_atomically(config, migrated.text)
    words = shlex.join(["mergekit-map", "search", str(config), "RUN"])
    click.echo(f"\nwritten to {config}; read it, then search with:", err=True)
    click.echo(f"  {words}", err=True)
