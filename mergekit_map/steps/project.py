"""A configuration, checked as far as it can be without a model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from mergekit.options import MergeOptions

from mergekit_map.config.parsing import (
    Problem,
    parse_map_block,
    raise_problems,
    repeated_keys,
)
from mergekit_map.config.specs import MapBlock
from mergekit_map.config.yaml_file import MergeConfig, YamlFile, read_yaml
from mergekit_map.errors import MergeError
from mergekit_map.files import StrPath, digest
from mergekit_map.merging.adapters import with_adapter_cache
from mergekit_map.merging.entries import check_merge
from mergekit_map.merging.gradients import check_gradients
from mergekit_map.merging.recipe import merge_identity
from mergekit_map.merging.space import MergeSpace, build_space
from mergekit_map.merging.staged import nests_checkpoints, staging_problems
from mergekit_map.merging.weights import check_plan
from mergekit_map.models.adapter_bases import with_adapter_bases
from mergekit_map.models.findings import Finding
from mergekit_map.models.preflight import check_models
from mergekit_map.models.references import absolute_references
from mergekit_map.results.origin import refuse_foreign_code
from mergekit_map.results.run_folder import Identity, Manifest, open_run
from mergekit_map.study.checking import part_problems, search_problems
from mergekit_map.study.study import Study
from mergekit_map.tasks.held_out import HeldOut, held_out_of, held_out_problems
from mergekit_map.tasks.loading import LoadedTask, load_tasks


@dataclass(frozen=True, eq=False)
class Project:
    """A configuration that has been checked as far as it can be without a model."""

    file: YamlFile
    directory: Path  # where its relative paths start
    spec: MapBlock
    space: MergeSpace
    tasks: Mapping[str, LoadedTask]
    options: MergeOptions
    notes: Sequence[str] = ()  # for the user: what was filled in

    def __repr__(self) -> str:
        """Say in a line what is searched for what."""
        names, tasks = ", ".join(self.space.names), ", ".join(self.tasks)
        return f"Project({str(self.file.path)!r}: weights {names} for tasks {tasks})"

    @cached_property
    def identity(self) -> Identity:
        """Name all that decides what a merge is."""
        return merge_identity(self.space, self.options)

    @property
    def nests_checkpoints(self) -> bool:
        """Tell whether a search merges checkpoints pair by pair."""
        return nests_checkpoints(self.space, self.spec.search)

    def study(self) -> Study:
        """Reduce to what the study room needs: numbers, names, fingerprints."""
        return replace(self.outline(), merge=digest(self.identity))

    def outline(self) -> Study:
        """Give the study as far as it is known without reading the models."""
        space = self.space
        return Study(
            bounds=dict(
                zip(space.names, map(tuple, space.bounds.tolist()), strict=True)
            ),
            anchors=space.anchors(),
            tasks={name: task.metric for name, task in self.tasks.items()},
            definitions={name: self._definition(name) for name in self.tasks},
            merge="",
            search=self.spec.search,
            select=self.spec.select,
            documents={name: task.documents for name, task in self.spec.tasks.items()},
        )

    @cached_property
    def held_out(self) -> HeldOut | None:
        """Give the documents that a search never sees; None where it sees all."""
        return held_out_of(self.spec.search)

    def held_out_study(self) -> Study:
        """Give the study whose tasks are the documents that a search never sees."""
        assert self.held_out is not None
        definitions = {
            name: self.held_out.definitions(self._of_all(name))[1]
            for name in self.tasks
        }
        return replace(self.study(), definitions=definitions, documents={})

    def _definition(self, name: str) -> str:
        """Digest what a search measures."""
        definition = self._of_all(name)
        if self.held_out is None:
            return definition
        return self.held_out.definitions(definition)[0]

    def _of_all(self, name: str) -> str:
        """Digest what is measured, and by what where it is not by this program."""
        backend = self.spec.backend
        if backend is None or self.spec.tasks[name].kind != "lm_eval":
            return self.tasks[name].fingerprint[:16]
        return digest([self.tasks[name].fingerprint, backend.model_dump()])


@dataclass(frozen=True, eq=False)
class Draft:
    """What a configuration says, before a model is looked at."""

    file: YamlFile
    directory: Path
    options: MergeOptions
    spec: MapBlock | None  # None where the map block is wrong
    tasks: Mapping[str, LoadedTask]
    merge: MergeConfig | None  # mergekit's part; None where it is wrong
    problems: Sequence[Problem]
    adapters: Mapping[str, Finding]  # models whose base was filled in


def load_project(
    config: StrPath,
    options: MergeOptions | None = None,
    directory: StrPath | None = None,
    *,
    trust_run: bool = False,
) -> Project:
    """Read a configuration and report every problem of it at once.

    Relative paths start at ``directory``, by default the working directory, as they do
    in mergekit and lm-eval. The seed of mergekit's random methods is that of the search
    unless the options name one. ``trust_run`` lets the configuration of a run folder of
    somebody else name code.

    Raises:
        ArtifactError: the configuration is of such a folder, and names code.
        ConfigError: with all problems, located by file, line and key.
    """
    draft = read_draft(config, options, directory, trust_run=trust_run)
    if (merge := draft.merge) is not None:
        problems = check_models(merge, draft.options)
        draft = replace(draft, problems=[*draft.problems, *problems])
        if not problems:
            draft = replace(draft, options=with_adapter_cache(merge, draft.options))
    project, problems = finish_draft(draft)
    raise_problems(draft.file, problems)
    if project is None:
        raise AssertionError("no problem, and no project either")
    return project


def read_draft(
    config: StrPath,
    options: MergeOptions | None = None,
    directory: StrPath | None = None,
    *,
    trust_run: bool = False,
) -> Draft:
    """Read a configuration and load its tasks; of models only adapters are looked at.

    Raises:
        ArtifactError: it is of somebody else's run folder, and names code.
        ConfigError: the file cannot be read.
    """
    config, directory = Path(config), Path(directory or Path.cwd()).resolve()
    file = read_yaml(config)
    problems = [*repeated_keys(file), *check_merge(file.merge)]
    sound = not _concerns_merge(problems)
    merge = absolute_references(file.merge, directory) if sound else None
    said: Mapping[str, Finding] = {}
    if merge is not None:
        merge, said = with_adapter_bases(merge, directory)
    spec, specs, more = parse_map_block(file)
    if not trust_run:
        refuse_foreign_code(config, file.text, specs, spec.backend if spec else None)
    tasks, wrong = load_tasks(specs, directory)
    problems += [*more, *wrong]
    if spec is not None:
        problems += check_gradients(file.merge, spec)
        metrics = {name: task.metric for name, task in tasks.items()}
        unable = {name for name, task in tasks.items() if not task.partial}
        problems += part_problems(spec, metrics, unable)
    options = quietly(options)
    return Draft(file, directory, options, spec, tasks, merge, problems, said)


def quietly(options: MergeOptions | None) -> MergeOptions:
    """Give the options, by default those of mergekit without its own bars."""
    return options or MergeOptions(quiet=True)


def finish_draft(
    draft: Draft, *, plan: bool = True
) -> tuple[Project | None, list[Problem]]:
    """Make a project of a draft, or say what stands against it, the draft's included.

    With ``plan``, mergekit plans the merge, for which it wants the models.
    """
    options, spec, problems = draft.options, draft.spec, [*draft.problems]
    if draft.merge is None or spec is None or _concerns_merge(problems):
        return None, problems
    if options.random_seed is None:
        options = options.model_copy(update={"random_seed": spec.search.seed})
    space, more = build_space(draft.merge, spec.search)
    problems += more
    if space is None:
        return None, problems
    problems += check_plan(space, options) if plan else []
    if problems:
        return None, problems
    project = Project(
        file=draft.file,
        directory=draft.directory,
        spec=spec,
        space=space,
        tasks=draft.tasks,
        options=options,
        notes=[str(finding) for finding in draft.adapters.values()],
    )
    if project.nests_checkpoints:
        problems += staging_problems(space)
    problems += held_out_problems(
        spec.search, draft.tasks, nests_checkpoints=project.nests_checkpoints
    )
    problems += search_problems(project.outline())
    return (None if problems else project), problems


def _concerns_merge(problems: list[Problem]) -> bool:
    return any(problem.key[:1] != ("map",) for problem in problems)


def finished_project(
    run: Path, options: MergeOptions, *, trust_run: bool = False
) -> Project:
    """Load the project of a finished search, with the seed that it was merged with.

    Raises:
        ArtifactError: the search is not finished, or is somebody else's and names code.
        ConfigError: its configuration cannot be used any more.
        MergeError: its models or tasks have changed since.
    """
    folder = open_run(run)
    manifest = folder.read_manifest()
    if options.random_seed is None:
        options = options.model_copy(update={"random_seed": manifest.random_seed})
    directory = Path(manifest.directory)
    project = load_project(folder.config, options, directory, trust_run=trust_run)
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
