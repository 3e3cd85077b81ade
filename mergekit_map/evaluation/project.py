"""A project: a configuration, checked as far as possible without loading a model."""

from __future__ import annotations

import functools
import itertools
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from mergekit.options import MergeOptions

from mergekit_map.config.problems import (
    Problem,
    loaded_problems,
    named_code,
    parse_map_block,
    raise_problems,
)
from mergekit_map.config.schema import MapBlock, SearchSpec
from mergekit_map.config.tasks import LmEvalTask
from mergekit_map.config.yaml_file import (
    KeyPath,
    MergeConfig,
    YamlFile,
    map_references,
    read_yaml,
    with_settings,
)
from mergekit_map.errors import ArtifactError, MergeError
from mergekit_map.evaluation.holdout import HeldOut, HoldoutSplit
from mergekit_map.merging.checkpoint import with_adapter_cache
from mergekit_map.merging.devices import check_device, decided, left_open
from mergekit_map.merging.recipe import (
    changes_in_words,
    merge_identity,
    recipe_digest,
    space_digest,
)
from mergekit_map.merging.reference_points import ReferencePoints, reference_points
from mergekit_map.merging.space import MergeSpace, build_space, check_plan
from mergekit_map.merging.validation import check_merge
from mergekit_map.models.adapters import with_adapter_bases
from mergekit_map.models.compatibility import (
    Family,
    check_tokenizer_sources,
    inspect_models,
)
from mergekit_map.models.references import absolute_paths, references_in, with_places
from mergekit_map.results.records import Identity
from mergekit_map.results.run_folder import Manifest, RunFolder, open_run
from mergekit_map.search.checks import search_problems, select_problems
from mergekit_map.search.study import Study
from mergekit_map.tasks.base import PreparedTask
from mergekit_map.tasks.engines import HF, NAMES, VLLM, EngineChoice, choose_engines
from mergekit_map.tasks.lm_eval_model import BACKENDS
from mergekit_map.tasks.loading import LoadedTask, load_tasks
from mergekit_map.types import Measures
from mergekit_map.utils.files import StrPath, digest
from mergekit_map.utils.text import listed

# Names whose mistakes leave the models of a merge as they are.
_NAMES = {("merge_method",), ("dtype",), ("out_dtype",), ("chat_template",)}


@dataclass(frozen=True, eq=False)
class Draft:
    """A configuration with its problems and models, and its project if it has none."""

    file: YamlFile
    problems: Sequence[Problem]
    project: Project | None  # None where there are problems
    family: Family  # the models


def quiet_options(options: MergeOptions | None) -> MergeOptions:
    """Return the options; by default mergekit's without its bars, the device open."""
    return options or left_open(MergeOptions(quiet=True))


def read_draft(
    config: StrPath,
    options: MergeOptions | None,
    directory: StrPath | None,
    *,
    trust_run: bool,
    model_paths: Mapping[str, StrPath],
    settings: Mapping[str, Mapping[str, Any]] = {},
    download: bool = False,
) -> Draft:
    """Read a configuration, load its tasks and inspect its models.

    With ``download`` models are there afterwards, and their errors are problems. Raises
    ArtifactError for code that a run folder names, and ConfigError if the file cannot
    be read, or the device is not there.
    """
    root = Path(directory or Path.cwd()).resolve()
    given = quiet_options(options)
    if given.device is not None:
        check_device(given)
    file = with_settings(read_yaml(Path(config)), settings)
    twice = "stands twice; YAML would keep only the last one, remove one"
    problems = [Problem(key, twice) for key in file.repeated]
    problems += check_merge(file.merge)
    outside = _keys_outside_map(problems)
    spec, tasks, more = _read_map_block(file, root, trust_run=trust_run)
    problems += more
    if not outside <= _NAMES:
        return Draft(file, problems, None, Family((), None))
    moved = absolute_paths(with_places(file.merge, model_paths), root)
    merge = with_adapter_bases(moved, str(file.merge.get("base_model")))
    problems += [] if outside else check_merge(merge)  # two paths may be one model
    full = decided(given)
    # No model is downloaded for a merge that cannot be.
    family = inspect_models(merge, full, download=download and not outside)
    problems += family.problems if download else ()
    problems += check_tokenizer_sources(merge)
    if spec is None or _keys_outside_map(problems):
        return Draft(file, problems, None, family)
    full = with_adapter_cache(merge, full) if download else full
    if full.random_seed is None:
        full = full.model_copy(update={"random_seed": spec.search.seed})
    # mergekit plans only merges of models that are there.
    planned = full if download or (family.is_here and not family.problems) else None
    facts = family.models[0].facts if family.models else None
    # With the tasks that could be loaded: problems of the search are told, too.
    make = functools.partial(
        Project,
        file=file,
        directory=root,
        spec=spec,
        tasks=tasks,
        options=full,
        notes=family.warnings,
        open_device=given.device is None,
        layers=None if facts is None else facts.setting("num_hidden_layers"),
    )
    project, more = _build_project(make, file.merge, merge, spec.search, planned)
    problems += more
    return Draft(file, problems, None if problems else project, family)


def _read_map_block(
    file: YamlFile, directory: Path, *, trust_run: bool
) -> tuple[MapBlock | None, Mapping[str, LoadedTask], list[Problem]]:
    spec, specs, problems = parse_map_block(file)
    code = named_code(specs, spec)
    run = RunFolder(file.path.parent)
    if code and run.exists and not trust_run:
        raise ArtifactError(
            f"the configuration of the run folder {run.path} names code that would "
            f"run here: {', '.join(code)}; look at {file.path}, and if you trust it, "
            "add --trust-run (trust_run=True)"
        )
    tasks, wrong = load_tasks(specs, directory)
    problems += wrong
    if spec is not None:
        partial = {name: task.partial for name, task in tasks.items()}
        problems += loaded_problems(spec, partial, BACKENDS)
    return spec, tasks, problems


def _build_project(
    make: functools.partial[Project],
    written: MergeConfig,
    merge: MergeConfig,
    search: SearchSpec,
    options: MergeOptions | None,
) -> tuple[Project | None, list[Problem]]:
    """Make a project in the space of a merge, with problems of merges and the search.

    Its coefficients are named by models as ``written``. With ``options``, mergekit's
    plan is checked, too.
    """
    space, problems = build_space(written, search)
    if space is None:
        return None, problems
    places = dict(zip(references_in(written), references_in(merge), strict=True))
    if len(named := {place: name for name, place in places.items()}) < len(places):
        one, other = next((n, named[p]) for n, p in places.items() if named[p] != n)
        text = f"{one!r} and {other!r} are one model; write it the same way"
        return None, [Problem((), text)]
    found = iter(references_in(merge))
    placed = map_references(space.template, lambda _: next(found))
    project = make(space=replace(space, template=placed))
    if options is not None:
        problems += check_plan(project.space, options)
        if not placed.get("models"):
            project = _with_possible_references(project)
    study = project.outline()
    return project, [*problems, *search_problems(study), *select_problems(study)]


def _with_possible_references(project: Project) -> Project:
    """Leave out reference points that mergekit cannot merge: of other layers."""
    part = project.on_disk
    if part is None or not check_plan(part.space, part.options):
        return project
    note = (
        f"{listed(list(project.reference_points.others))} cannot be measured as they "
        "are on disk, because the models have other layers than the merge; it is not "
        "compared with them"
    )
    return replace(project, has_references=False, notes=[*project.notes, note])


def _keys_outside_map(problems: list[Problem]) -> set[KeyPath]:
    return {problem.key for problem in problems if problem.key[:1] != ("map",)}


@dataclass(frozen=True, eq=False)
class Project:
    """A configuration, checked as far as possible without loading a model."""

    file: YamlFile
    directory: Path  # where its relative paths start
    spec: MapBlock
    space: MergeSpace
    tasks: Mapping[str, LoadedTask]
    options: MergeOptions
    notes: Sequence[str] = ()  # for the user
    # Fingerprints in the manifest of an earlier search, by those of its merges.
    known_as: Mapping[str, str] = field(default_factory=dict)
    open_device: bool = False  # nobody asked for the one in the options
    # What generated the answers of tasks before, where it may be chosen.
    used: Mapping[str, str] = field(default_factory=dict)
    has_references: bool = True  # other than merges of this space
    layers: int | None = None  # of each model; None where that is not known

    def __repr__(self) -> str:
        """Return the coefficients and tasks on one line."""
        names, tasks = ", ".join(self.space.names), ", ".join(self.tasks)
        return f"Project({str(self.file.path)!r}: weights {names} for tasks {tasks})"

    @functools.cached_property
    def identity(self) -> Identity:
        """Return all settings that decide the result of a merge."""
        return merge_identity(self.space, self.options)

    @property
    def merge(self) -> str:
        """The fingerprint of the merges, as their search named it."""
        digest = space_digest(self.identity)
        return self.known_as.get(digest, digest)

    def continuing(self, before: Manifest) -> Project:
        """Return the project as an earlier search measured it.

        It gets that search's device and engines, where the user names none, and its
        fingerprint of the same merges.
        """
        project = self
        if self.open_device:
            options = decided(left_open(self.options), before.identity.device)
            project = replace(self, options=options)
        used = {}
        open_tasks = [task for task, choice in project.engines.items() if choice.open]
        for task, name in itertools.product(open_tasks, NAMES):
            tried = replace(project, used={task: name})
            if tried._definition(task) == before.definitions.get(task):
                used[task] = name
        known_as = {space_digest(before.identity): before.merge}
        return replace(project, used=used or project.used, known_as=known_as)

    @functools.cached_property
    def reference_points(self) -> ReferencePoints:
        """Return base, parents and soup, and how they are measured."""
        return reference_points(self.space, self.layers)

    @functools.cached_property
    def on_disk(self) -> Project | None:
        """Return the project of the reference points that are no merges of this one."""
        if not (self.has_references and self.reference_points.others):
            return None
        return replace(self, space=self.reference_points.linear, has_references=False)

    def study(self) -> Study:
        """Return the study: numbers, names and fingerprints, without models."""
        return self._identified(self.outline())

    def _identified(self, study: Study) -> Study:
        """Add the fingerprints of the merges to an outline."""
        if (on_disk := study.on_disk) is not None and self.on_disk is not None:
            on_disk = self.on_disk._identified(on_disk)
        recipe = functools.partial(recipe_digest, self.identity)
        return replace(study, merge=self.merge, recipe=recipe, on_disk=on_disk)

    def outline(self) -> Study:
        """Return the study as far as it is known without reading the models."""
        space, points = self.space, self.reference_points
        bounds = map(tuple, space.bounds.tolist())
        study = Study(
            bounds=dict(zip(space.names, bounds, strict=True)),
            anchors=points.own,
            corners=points.corners,
            tasks={name: task.metric for name, task in self.tasks.items()},
            definitions={name: self._definition(name) for name in self.tasks},
            merge="",
            search=self.spec.search,
            select=self.spec.select,
            documents={name: task.documents for name, task in self.spec.tasks.items()},
            engines={n: e.name for n, e in self.engines.items() if e.name != HF},
        )
        if self.on_disk is None:
            return study
        return replace(study, on_disk=study.of_models(points.others, merge=""))

    def by_engine(self) -> tuple[Project, Project]:
        """Divide the tasks into those of Hugging Face's model and those of vLLM."""
        of_vllm = {n: self.tasks[n] for n, e in self.engines.items() if e.name == VLLM}
        others = {n: task for n, task in self.tasks.items() if n not in of_vllm}
        hugging_face = replace(self, tasks=others) if of_vllm else self
        return hugging_face, replace(self, tasks=of_vllm)

    def as_searched(self, measures: Mapping[str, PreparedTask]) -> Measures:
        """Hide the held-out documents from the search."""
        if (held_out := self.held_out) is None:
            return measures
        return {
            name: HoldoutSplit(name, measure, held_out)
            for name, measure in measures.items()
        }

    @functools.cached_property
    def held_out(self) -> HeldOut | None:
        """Return the held-out documents; None where the search sees all."""
        share, seed = self.spec.search.holdout, self.spec.search.seed
        return None if share is None else HeldOut(share, seed)

    def held_out_study(self) -> Study:
        """Return the study whose tasks are the held-out documents."""
        assert self.held_out is not None
        definitions = {
            name: self.held_out.definition(self._whole_definition(name), "held out")
            for name in self.tasks
        }
        study = self.study()
        part = study.on_disk and replace(study.on_disk, definitions=definitions)
        return replace(study, definitions=definitions, documents={}, on_disk=part)

    def _definition(self, name: str) -> str:
        """Return a digest of the task as the search measures it."""
        whole = self._whole_definition(name)
        return self.held_out.definition(whole, "searched") if self.held_out else whole

    def _whole_definition(self, name: str) -> str:
        """Return a digest of the task on all documents, and of a foreign engine."""
        task = self.tasks[name]
        backend = self.spec.backend
        if backend is not None and isinstance(self.spec.tasks[name], LmEvalTask):
            return digest([task.fingerprint, backend.model_dump()])
        chosen = self.engines.get(name)
        return chosen.definition(task) if chosen else task.fingerprint[:16]

    @functools.cached_property
    def engines(self) -> Mapping[str, EngineChoice]:
        """Return the engine of each task that generates, and why it was chosen."""
        on_gpu = str(self.options.device) in {"cuda", "cuda:0", "xpu", "xpu:0"}
        return choose_engines(self.tasks, self.spec, on_gpu=on_gpu, used=self.used)


def load_project(
    config: StrPath,
    options: MergeOptions | None = None,
    directory: StrPath | None = None,
    *,
    trust_run: bool = False,
    model_paths: Mapping[str, StrPath] = {},
    settings: Mapping[str, Mapping[str, Any]] = {},
) -> Project:
    """Read a configuration and report every problem of it at once.

    Relative paths start at ``directory``, by default the working directory, as they do
    in mergekit and lm-eval. The seed of mergekit's random methods is that of the search
    unless the options name one. ``trust_run`` lets the configuration of a run folder
    name code. ``model_paths`` gives the present places of moved models, by name.
    ``settings`` override keys of the map block: ``{"search": {"evaluations": 30}}``.

    Raises:
        ArtifactError: the configuration is of a run folder, and names code.
        ConfigError: with all problems, located by file, line and key.
    """
    draft = read_draft(
        config,
        options,
        directory,
        trust_run=trust_run,
        model_paths=model_paths,
        settings=settings,
        download=True,
    )
    raise_problems(draft.file, draft.problems)
    assert draft.project is not None  # where there is no problem
    return draft.project


def finished_project(
    run: Path,
    options: MergeOptions,
    *,
    trust_run: bool = False,
    model_paths: Mapping[str, StrPath] = {},
) -> Project:
    """Load the project of a finished search, with the options that its merges had.

    Its models may have moved: to the places in ``model_paths``, or, for relative paths,
    to the working directory if that of the search no longer exists.

    Raises:
        ArtifactError: the search is not finished, or names code.
        ConfigError: its configuration cannot be used any more.
        MergeError: its models or tasks have changed since.
    """
    folder = open_run(run)
    manifest = folder.read_manifest()
    lora_dtype = manifest.identity.lora_merge_dtype
    known = {"random_seed": manifest.random_seed, "lora_merge_dtype": lora_dtype}
    unset = {key: v for key, v in known.items() if getattr(options, key) is None}
    options = options.model_copy(update=unset)
    # Another user's folder may not be looked at, and is then not there.
    start = manifest.directory if os.path.isdir(manifest.directory) else None
    project = load_project(
        folder.config, options, start, trust_run=trust_run, model_paths=model_paths
    ).continuing(manifest)
    refuse_changes(project, manifest)
    return project


def refuse_changes(project: Project, manifest: Manifest) -> None:
    """Raise MergeError if models or tasks differ from those of a manifest."""
    study = project.study()
    changed = [
        f"task {name!r}"
        for name in {**manifest.definitions, **study.definitions}
        if manifest.definitions.get(name) != study.definitions.get(name)
    ]
    if study.merge != manifest.merge:
        changed.insert(0, changes_in_words(manifest.identity, project.identity))
    if changed:
        raise MergeError(
            f"{' and '.join(changed)} changed since the search, so what was measured "
            "would not be of this merge, or not comparable; search again, put back "
            "what changed, or name the folders of the models that were measured "
            "(--model-path). Earlier versions looked at other files and settings: if "
            "what was searched is as it was, merge its recipe.yml with mergekit-yaml"
        )
