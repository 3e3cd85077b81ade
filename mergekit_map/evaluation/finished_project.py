"""Loading the project of a finished search, with the same models and tasks."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from mergekit.options import MergeOptions

from mergekit_map.errors import MergeError
from mergekit_map.evaluation.project import Project, load_project
from mergekit_map.merging.recipe import changes_in_words
from mergekit_map.results.run_folder import Manifest, open_run
from mergekit_map.utils.files import StrPath


def finished_project(
    run: Path,
    options: MergeOptions,
    *,
    trust_run: bool = False,
    model_paths: Mapping[str, StrPath] = MappingProxyType({}),
) -> Project:
    """Load the project of a finished search, with the seed of its merges.

    Its models may have moved: to the places in ``model_paths``, or, for relative paths,
    to the working directory if that of the search no longer exists.

    Raises:
        ArtifactError: the search is not finished, or names code.
        ConfigError: its configuration cannot be used any more.
        MergeError: its models or tasks have changed since.
    """
    folder = open_run(run)
    manifest = folder.read_manifest()
    if options.random_seed is None:
        options = options.model_copy(update={"random_seed": manifest.random_seed})
    start = Path(manifest.directory)
    project = load_project(
        folder.config,
        options,
        start if start.is_dir() else None,
        trust_run=trust_run,
        model_paths=model_paths,
    )
    project = project.continuing(manifest)
    refuse_changes(project, manifest)
    return project


def refuse_changes(project: Project, manifest: Manifest) -> None:
    """Refuse a project whose models or tasks differ from those of a manifest.

    Raises:
        MergeError: with the changes.
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
        advice = (
            "search again, put back what changed, or name the folders of the models "
            "that were measured (--model-path)"
        )
        if manifest.digests == 1:
            advice += (
                "; mergekit-map 0.1.0 looked at fewer files of models and tasks: if "
                "what it searched is as it was, merge its recipe.yml with mergekit-yaml"
            )
        raise MergeError(
            f"{' and '.join(changed)} changed since the search, so the merge would not "
            f"be the one that was measured; {advice}"
        )
