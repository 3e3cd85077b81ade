"""Opening the folder of a finished search, to measure more merges of the same kind."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mergekit.options import MergeOptions

from mergekit_map.errors import MergeError
from mergekit_map.project import Project, load_project
from mergekit_map.study.results import read_json


def finished_project(run: Path, options: MergeOptions) -> Project:
    """Load the project of a finished search, with the seed that it was merged with.

    Raises:
        ArtifactError: the search is not finished.
        ConfigError: its configuration cannot be used any more.
        MergeError: its models or tasks have changed since.
    """
    manifest = read_json(run / "manifest.json", "finished search")
    if options.random_seed is None:
        options = options.model_copy(update={"random_seed": manifest["random_seed"]})
    project = load_project(run / "config.yml", options, Path(manifest["directory"]))
    refuse_changes(project, manifest)
    return project


def refuse_changes(project: Project, manifest: Mapping[str, Any]) -> None:
    """Refuse a project whose models or tasks are not those of a manifest.

    Raises:
        MergeError: with what has changed.
    """
    study = project.study()
    changed = [
        f"task {name!r}"
        for name, definition in study.definitions.items()
        if manifest["definitions"].get(name) != definition
    ]
    if study.merge != manifest["merge"]:
        changed.insert(0, changes_in_words(manifest["identity"], project.identity))
    if changed:
        raise MergeError(
            f"{' and '.join(changed)} changed since the search, so the merge would not "
            "be the one that was measured; search again, or put back what changed"
        )


def changes_in_words(before: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """Say what differs between two identities of a merge."""
    changed = [key for key in {**before, **now} if before.get(key) != now.get(key)]
    if "models" in changed and before.get("models"):
        models = {**before["models"], **now["models"]}
        names = [
            Path(name).name
            for name in models
            if before["models"].get(name) != now["models"].get(name)
        ]
        changed[changed.index("models")] = f"models ({', '.join(names)})"
    return "the " + ", ".join(changed or ["configuration"])
