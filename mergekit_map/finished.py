"""Opening the folder of a finished search, to measure more merges of the same kind."""

from __future__ import annotations

from pathlib import Path

from mergekit.options import MergeOptions

from mergekit_map.errors import MergeError
from mergekit_map.project import Project, load_project
from mergekit_map.results.run_folder import Identity, Manifest, open_run


def finished_project(run: Path, options: MergeOptions) -> Project:
    """Load the project of a finished search, with the seed that it was merged with.

    Raises:
        ArtifactError: the search is not finished.
        ConfigError: its configuration cannot be used any more.
        MergeError: its models or tasks have changed since.
    """
    folder = open_run(run)
    manifest = folder.read_manifest()
    if options.random_seed is None:
        options = options.model_copy(update={"random_seed": manifest.random_seed})
    project = load_project(folder.config, options, Path(manifest.directory))
    refuse_changes(project, manifest)
    return project


def refuse_changes(project: Project, manifest: Manifest) -> None:
    """Refuse a project whose models or tasks are not those of a manifest.

    Raises:
        MergeError: with what has changed.
    """
    study = project.study()
    changed = [
        f"task {name!r}"
        for name, definition in study.definitions.items()
        if manifest.definitions.get(name) != definition
    ]
    if study.merge != manifest.merge:
        changed.insert(0, changes_in_words(manifest.identity, project.identity))
    if changed:
        raise MergeError(
            f"{' and '.join(changed)} changed since the search, so the merge would not "
            "be the one that was measured; search again, or put back what changed"
        )


def changes_in_words(before: Identity, now: Identity) -> str:
    """Say what differs between two identities of a merge."""
    changed = _differing(before, now)
    match before.get("models"), now.get("models"):
        case dict() as former, dict() as present if "models" in changed:
            names = [Path(name).name for name in _differing(former, present)]
            changed[changed.index("models")] = f"models ({', '.join(names)})"
    return "the " + ", ".join(changed or ["configuration"])


def _differing(before: Identity, now: Identity) -> list[str]:
    return [key for key in {**before, **now} if before.get(key) != now.get(key)]
