"""Everything that can be said of a configuration before its search is paid for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from types import MappingProxyType

from mergekit.options import MergeOptions

from mergekit_map.config.parsing import Problem
from mergekit_map.config.yaml_file import shortened
from mergekit_map.errors import MergeError
from mergekit_map.files import StrPath
from mergekit_map.merging.devices import best_device, choice_in_words
from mergekit_map.merging.footprint import Need, needs, shortages, storage
from mergekit_map.models.findings import Finding, has_errors
from mergekit_map.models.layout import main_dtype
from mergekit_map.models.moved import lost_models
from mergekit_map.models.preflight import Family, InspectedModel, inspect_models
from mergekit_map.models.vectors import Figures
from mergekit_map.results.quality import n_safe
from mergekit_map.steps.drafting import Draft, read_draft
from mergekit_map.steps.engines import by_engine
from mergekit_map.steps.probing import Probe
from mergekit_map.steps.project import Project, finish_draft
from mergekit_map.steps.vllm_engine import memory_in_words
from mergekit_map.study.forecast import forecast
from mergekit_map.study.planning import default_evaluations


@dataclass(frozen=True)
class Place:
    """A problem of the file."""

    place: str
    message: str


@dataclass(frozen=True)
class Model:
    """What headers and weights say of a model, and what was found of it."""

    name: str
    reference: str
    place: str
    parameters: int
    bytes: int
    dtype: str | None
    norm_ratio: float | None
    changed: float | None
    read: int
    compared: int
    findings: Sequence[Finding]


@dataclass(frozen=True)
class Pair:
    """Two task vectors."""

    models: tuple[str, str]
    cosine: float | None
    sign_conflicts: float | None


@dataclass(frozen=True)
class WeightsRead:
    """What the figures are of, and whose weights could not be read."""

    against: str | None
    read: int
    parameters: int
    exact: bool
    on_the_hub: Sequence[str]


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What the search will measure, and what it wants of memory and disk."""

    strategy: str
    merge: str
    coefficients: Sequence[str]
    tasks: Sequence[str]
    searched: int
    front: int
    measurements: int
    expected: int
    whole: int  # merges on all documents
    safe: int  # merges below which a front is a guess
    default: int  # merges of a search that is not told how many
    documents: Mapping[str, int | str]  # of each task, measured of the other merges
    hours: float | None  # to measure at most
    confirming: int
    # What generates the answers of tasks that generate, and why that.
    engines: Mapping[str, str] = field(default_factory=dict)
    memory: Sequence[Need]
    disk: Sequence[Need]
    shortages: Sequence[Need]
    device: str = "cpu"  # that merges are made and measured on
    device_choice: str | None = None  # in words, where there is one
    task_vectors: str | None = None  # device, memory or mapped; None: none are held
    task_vectors_why: str | None = None


@dataclass(frozen=True, kw_only=True)
class Inspection:
    """What ``inspect --json`` prints."""

    version: int = 1
    config: str
    mergeable: bool  # no problem, and no error among the findings
    problems: Sequence[Place]  # of the file
    models: Sequence[Model]
    pairs: Sequence[Pair]
    weights: WeightsRead
    plan: Plan | None  # None where the file has problems
    probe: Probe | None = None  # None where none was asked for
    lost: Sequence[str] = ()  # models that were not found, as --model-path names them


def inspect_config(
    config: StrPath,
    options: MergeOptions | None = None,
    directory: StrPath | None = None,
    *,
    trust_run: bool = False,
    model_paths: Mapping[str, StrPath] = MappingProxyType({}),
) -> Inspection:
    """Look at models and plan of a configuration; no model is loaded or downloaded.

    Raises:
        ConfigError: the file cannot be read.
    """
    draft = read_draft(
        config, options, directory, trust_run=trust_run, model_paths=model_paths
    )
    family = Family((), None)
    if draft.merge is not None:
        family = inspect_models(draft.merge, draft.options, download=False)
    models = family.models
    names = {model.reference: model.name for model in models}
    pairs = family.figures.pairs.items() if family.figures else ()
    sound = not any(has_errors(model.findings) for model in models)
    here = all(m.facts is not None and m.facts.files.fetched is None for m in models)
    project, problems = finish_draft(draft, plan=sound and here)
    return Inspection(
        config=str(config),
        mergeable=sound and not problems,
        problems=[
            Place(draft.file.locate(p.key), shortened(p.message)) for p in problems
        ],
        models=[_model(model, draft, family.figures) for model in models],
        pairs=[
            Pair((names[one], names[other]), pair.cosine, pair.sign_conflicts)
            for (one, other), pair in pairs
        ],
        weights=_weights(family),
        plan=None if project is None else _plan(project, models),
        lost=_lost(draft, models),
    )


def _lost(draft: Draft, models: Sequence[InspectedModel]) -> list[str]:
    if draft.merge is None:
        return []
    found = [Problem(m.key, str(f)) for m in models for f in m.findings]
    return lost_models(draft.merge, found, draft.places)


def _model(model: InspectedModel, draft: Draft, figures: Figures | None) -> Model:
    facts = model.facts
    headers = facts.headers.values() if facts is not None else ()
    figure = figures.models.get(model.reference) if figures is not None else None
    return Model(
        name=model.name,
        reference=model.reference,
        place=draft.file.locate(model.key),
        parameters=sum(header.n_elements for header in headers),
        bytes=sum(header.n_bytes for header in headers),
        dtype=main_dtype(facts) if facts is not None else None,
        norm_ratio=figure.norm_ratio if figure else None,
        changed=figure.changed if figure else None,
        read=figure.n_read if figure else 0,
        compared=figure.n_parameters if figure else 0,
        findings=[
            *model.findings,
            *(
                draft.adapters[name]
                for name in [model.reference]
                if name in draft.adapters
            ),
        ],
    )


def _weights(family: Family) -> WeightsRead:
    figures, models = family.figures, family.models
    return WeightsRead(
        against=models[0].name if models else None,
        read=figures.n_read if figures else 0,
        parameters=figures.n_parameters if figures else 0,
        exact=figures is not None and figures.exact,
        on_the_hub=[
            m.name for m in models if m.facts is not None and m.facts.files.fetched
        ],
    )


def _engines(project: Project) -> dict[str, str]:
    """Say what generates the answers of each task that generates."""
    chosen = {n: found.in_words() for n, found in project.engines.items()}
    there = by_engine(project)[1].tasks
    try:
        words = memory_in_words(project)
    except MergeError as error:
        words = f"; {error}"
    return {n: text + (words if n in there else "") for n, text in chosen.items()}


def _plan(project: Project, models: Sequence[InspectedModel]) -> Plan:
    space, spec, options = project.space, project.spec, project.options
    study = project.outline()
    memory, disk = needs(space, spec, options, models)
    place = storage(space, spec, options, models)
    return Plan(
        strategy=spec.search.strategy,
        merge=spec.merge,
        coefficients=list(study.bounds),
        tasks=list(study.tasks),
        **asdict(forecast(study, checkpoints=project.nests_checkpoints)),
        safe=n_safe(len(study.bounds)),
        default=default_evaluations(len(study.bounds)),
        documents=dict(study.documents),
        engines=_engines(project),
        hours=spec.search.hours,
        memory=memory,
        disk=disk,
        shortages=[*shortages(memory), *shortages(disk)],
        device=str(options.device),
        task_vectors=None if place is None else place.place,
        task_vectors_why=None if place is None else place.why,
        device_choice=choice_in_words(
            str(options.device), best_device(), was_open=project.open_device
        ),
    )
