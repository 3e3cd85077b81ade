"""A configuration, checked as far as it can be without a model."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from types import MappingProxyType

from mergekit.options import MergeOptions

from mergekit_map.config.parsing import Problem, raise_problems
from mergekit_map.config.specs import MapBlock, SearchSpec
from mergekit_map.config.yaml_file import MergeConfig, YamlFile
from mergekit_map.errors import ConfigError, LostModels, MergeError
from mergekit_map.files import StrPath, digest
from mergekit_map.merging.adapters import with_adapter_cache
from mergekit_map.merging.devices import decided, left_open
from mergekit_map.merging.recipe import merge_identity
from mergekit_map.merging.same_merges import only_places_differ
from mergekit_map.merging.space import MergeSpace, build_space
from mergekit_map.merging.staged import nests_checkpoints, staging_problems
from mergekit_map.merging.weights import check_plan
from mergekit_map.merging.what_changed import changes_in_words
from mergekit_map.models.moved import lost_models
from mergekit_map.models.preflight import check_models
from mergekit_map.models.references import map_references
from mergekit_map.results.places import first_folder, known_places
from mergekit_map.results.run_folder import Identity, Manifest, device_of, open_run
from mergekit_map.steps.drafting import Draft, concerns_merge, read_draft
from mergekit_map.study.checking import search_problems
from mergekit_map.study.study import Study
from mergekit_map.tasks.engine_choice import BATCHED, VLLM, Chosen, choose_engines
from mergekit_map.tasks.held_out import HeldOut, held_out_of, held_out_problems
from mergekit_map.tasks.loading import LoadedTask


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
    # Where models lie, by path as it is written, where they do not lie there.
    places: Mapping[str, str] = field(default_factory=dict)
    # How models are written, by reference to where they lie.
    names: Mapping[str, str] = field(default_factory=dict)
    # What these merges were called when they were searched, their models elsewhere.
    known_as: tuple[MergeSpace, Identity] | None = None
    open_device: bool = False  # nobody asked for the one in the options
    # What generated the answers of tasks before, where it may be chosen.
    used: Mapping[str, str] = field(default_factory=dict)

    def __repr__(self) -> str:
        """Say in a line what is searched for what."""
        names, tasks = ", ".join(self.space.names), ", ".join(self.tasks)
        return f"Project({str(self.file.path)!r}: weights {names} for tasks {tasks})"

    @cached_property
    def identity(self) -> Identity:
        """Name all that decides what a merge is, as a search knew it if one did."""
        if self.known_as is not None and self.known_as[0] is self.space:
            return self.known_as[1]
        return merge_identity(self.space, self.options, self.names)

    def as_known(self, identities: Iterable[Identity]) -> Project:
        """Take it for what was searched, if that had the same models elsewhere."""
        for identity in identities:
            if only_places_differ(identity, self.identity):
                return replace(self, known_as=(self.space, identity))
        return self

    def going_on(self, before: Identity) -> Project:
        """Go on on the device of what was measured before, if nobody asked for one."""
        if not self.open_device:
            return self
        options = decided(left_open(self.options), device_of(before))
        return replace(self, options=options)

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
            chosen = self.engines.get(name)
            task = self.tasks[name]
            return chosen.definition(task) if chosen else task.fingerprint[:16]
        return digest([self.tasks[name].fingerprint, backend.model_dump()])

    @property
    def batched(self) -> list[str]:
        """List the tasks whose answers continuous batching generates."""
        return [n for n, chosen in self.engines.items() if chosen.name == BATCHED]

    @property
    def by_engine(self) -> tuple[Project, Project]:
        """Divide the tasks into Hugging Face's model and vLLM."""
        there = {n for n, chosen in self.engines.items() if chosen.name == VLLM}
        here = {n: task for n, task in self.tasks.items() if n not in there}
        if not there:
            return self, replace(self, tasks={})
        rest = {n: task for n, task in self.tasks.items() if n in there}
        return replace(self, tasks=here), replace(self, tasks=rest)

    @cached_property
    def engines(self) -> Mapping[str, Chosen]:
        """Say what generates the answers of the tasks that generate, and why."""
        return choose_engines(
            self.tasks,
            self.spec,
            on_gpu=not str(self.options.device).startswith("cpu"),
            used=self.used,
        )


def load_project(
    config: StrPath,
    options: MergeOptions | None = None,
    directory: StrPath | None = None,
    *,
    trust_run: bool = False,
    model_paths: Mapping[str, StrPath] = MappingProxyType({}),
) -> Project:
    """Read a configuration and report every problem of it at once.

    Relative paths start at ``directory``, by default the working directory, as they do
    in mergekit and lm-eval. The seed of mergekit's random methods is that of the search
    unless the options name one. ``trust_run`` lets the configuration of a run folder of
    somebody else name code. ``model_paths`` says where models lie, by name, that lie
    elsewhere than it is written.

    Raises:
        ArtifactError: the configuration is of such a folder, and names code.
        ConfigError: with all problems, located by file, line and key.
    """
    draft = read_draft(
        config, options, directory, trust_run=trust_run, model_paths=model_paths
    )
    lost: list[str] = []
    if (merge := draft.merge) is not None:
        problems = check_models(merge, draft.options)
        draft = replace(draft, problems=[*draft.problems, *problems])
        lost = lost_models(merge, problems, draft.places)
        if not problems:
            draft = replace(draft, options=with_adapter_cache(merge, draft.options))
    project, problems = finish_draft(draft)
    try:
        raise_problems(draft.file, problems)
    except ConfigError as error:
        if lost:
            raise LostModels(str(error), lost) from None
        raise
    if project is None:
        raise AssertionError("no problem, and no project either")
    return project


def finish_draft(
    draft: Draft, *, plan: bool = True
) -> tuple[Project | None, list[Problem]]:
    """Make a project of a draft, or say what stands against it, the draft's included.

    With ``plan``, mergekit plans the merge, for which it wants the models.
    """
    options, spec, problems = draft.options, draft.spec, [*draft.problems]
    if draft.merge is None or spec is None or concerns_merge(problems):
        return None, problems
    if options.random_seed is None:
        options = options.model_copy(update={"random_seed": spec.search.seed})
    space, more = _named_as_written(draft.merge, spec.search, draft.names)
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
        places=draft.places,
        names=draft.names,
        open_device=draft.open_device,
    )
    if project.nests_checkpoints:
        problems += staging_problems(space)
    problems += held_out_problems(
        spec.search, draft.tasks, nests_checkpoints=project.nests_checkpoints
    )
    problems += search_problems(project.outline())
    return (None if problems else project), problems


def _named_as_written(
    merge: MergeConfig, search: SearchSpec, names: Mapping[str, str]
) -> tuple[MergeSpace | None, list[Problem]]:
    """Build the space, its coefficients called as models are written."""
    places = {name: place for place, name in names.items()}
    written = map_references(merge, lambda model: names.get(model, model))
    space, problems = build_space(written, search)
    if space is not None:
        placed = map_references(space.template, lambda m: places.get(m, m))
        space = replace(space, template=placed)
    return space, problems


def finished_project(
    run: Path,
    options: MergeOptions,
    *,
    trust_run: bool = False,
    model_paths: Mapping[str, StrPath] = MappingProxyType({}),
) -> Project:
    """Load the project of a finished search, with the seed that it was merged with.

    Its models may lie elsewhere now: where ``model_paths`` says, or where an earlier
    command on this machine was told, or, by relative paths, in the working directory if
    the one that the search was started in is no more.

    Raises:
        ArtifactError: the search is not finished, or is somebody else's and names code.
        ConfigError: its configuration cannot be used any more.
        MergeError: its models or tasks have changed since.
    """
    folder = open_run(run)
    manifest = folder.read_manifest()
    if options.random_seed is None:
        options = options.model_copy(update={"random_seed": manifest.random_seed})
    options = decided(options, device_of(manifest.identity))
    known = known_places(folder)
    project = load_project(
        folder.config,
        options,
        first_folder(manifest.directory, known.directory),
        trust_run=trust_run,
        model_paths={**known.there, **model_paths},
    )
    project = project.as_known([manifest.identity])
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
        advice = "search again, or put back what changed"
        if project.places:
            advice += ", or name the folders of the models that were measured"
        raise MergeError(
            f"{' and '.join(changed)} changed since the search, so the merge would not "
            f"be the one that was measured; {advice}"
        )
