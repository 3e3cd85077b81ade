"""Checks, plan and costs of a configuration before its search.

The probe times one merge and its measurement.
"""

from __future__ import annotations

import resource
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, field

from mergekit.options import MergeOptions

from mergekit_map.errors import EvaluationError
from mergekit_map.evaluation.evaluator import Worker, open_merges
from mergekit_map.evaluation.project import Draft, Project, load_project, read_draft
from mergekit_map.merging.devices import Room, choice_in_words, room_of
from mergekit_map.models.compatibility import InspectedModel
from mergekit_map.models.facts import Finding
from mergekit_map.models.task_vectors import Figures
from mergekit_map.search.checks import Forecast, forecast, probe_multiples
from mergekit_map.search.measure import FAILURES
from mergekit_map.types import SOUP, MeasurementRequest
from mergekit_map.utils.files import StrPath
from mergekit_map.workflows.callbacks import reporting


@dataclass(frozen=True)
class Probe:
    """The times and the memory of a probe."""

    coefficients: Mapping[str, float]
    load_seconds: float
    merge_seconds: float
    task_seconds: Mapping[str, float]
    expected_hours: float
    task_documents: Mapping[str, int]
    peak_bytes: int  # of memory that this process held at once


def probe_config(
    config: StrPath,
    options: MergeOptions | None = None,
    directory: StrPath | None = None,
    *,
    trust_run: bool = False,
    model_paths: Mapping[str, StrPath] = {},
) -> Probe:
    """Merge the soup, measure every task at it once, and return the times.

    The measurement is not kept: a search measures the soup again. Models of the Hub are
    downloaded.

    Raises:
        ConfigError: the configuration or its models have problems.
        EvaluationError: a task cannot be measured.
        MergeError: the models cannot be merged.
    """
    project = load_project(
        config, options, directory, trust_run=trust_run, model_paths=model_paths
    )
    soup, seconds, sizes = project.space.anchors()[SOUP], {}, {}
    with reporting([]), closing(Worker(open_merges(project))) as worker:
        started = time.perf_counter()
        worker.open()
        opened = time.perf_counter()
        worker.merge_if_needed(soup)
        merged = time.perf_counter()
        for task in project.tasks:
            try:
                found = worker.measure(MeasurementRequest(tuple(soup.items()), task))
            except FAILURES as error:
                text = str(error) or type(error).__name__
                raise EvaluationError(
                    f"task {task!r} cannot be measured at the soup: {text}"
                ) from error
            seconds[task], sizes[task] = found.seconds or 0.0, found.n
    load, merge = opened - started, merged - opened
    study = project.outline()
    loads = 1 + (study.on_disk is not None)
    n_merges, times = probe_multiples(study, sizes)
    measuring = sum(times[task] * s for task, s in seconds.items())
    hours = (loads * load + n_merges * merge + measuring) / 3600
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    peak *= 1 if sys.platform == "darwin" else 1024  # bytes
    return Probe(soup, load, merge, seconds, hours, sizes, peak)


@dataclass(frozen=True)
class Place:
    """A problem of the file, with its position."""

    place: str
    message: str


@dataclass(frozen=True)
class Model:
    """The facts about a model from headers and weights, with its diagnostics."""

    name: str
    reference: str
    place: str
    parameters: int
    bytes: int
    dtype: str | None
    norm_ratio: float | None
    changed: float | None
    findings: Sequence[Finding]


@dataclass(frozen=True)
class Pair:
    """The comparison of two task vectors."""

    models: tuple[str, str]
    cosine: float | None
    sign_conflicts: float | None


@dataclass(frozen=True)
class WeightsRead:
    """The weights behind the figures, and the models that could not be read."""

    against: str | None
    read: int
    parameters: int
    exact: bool
    on_the_hub: Sequence[str]


@dataclass(frozen=True, kw_only=True)
class Plan(Forecast):
    """The measurements of the search, and its needs of memory and disk."""

    strategy: str
    merge: str
    coefficients: Sequence[str]
    tasks: Sequence[str]
    documents: Mapping[str, int | str]  # of each task, measured of the other merges
    hours: float | None  # to measure at most
    # What generates the answers of tasks that generate, and why that.
    engines: Mapping[str, str] = field(default_factory=dict)
    memory: Sequence[Room]  # of the device first
    disk: Sequence[Room]
    device: str = "cpu"  # that merges are made and measured on
    device_choice: str | None = None  # in words, where there is one
    task_vectors: str | None = None  # device, memory or mapped; None: none are held


@dataclass(frozen=True, kw_only=True)
class Inspection:
    """The content of ``inspect --json``."""

    version: int = 1
    config: str
    mergeable: bool  # no problem, and no error among the findings
    problems: Sequence[Place]  # of the file
    models: Sequence[Model]
    pairs: Sequence[Pair]
    weights: WeightsRead
    plan: Plan | None  # None where the file has problems
    probe: Probe | None = None  # None where none was asked for


def inspect_config(
    config: StrPath,
    options: MergeOptions | None = None,
    directory: StrPath | None = None,
    *,
    trust_run: bool = False,
    model_paths: Mapping[str, StrPath] = {},
) -> Inspection:
    """Check models and plan of a configuration; no model is loaded.

    Raises ConfigError if the file cannot be read.
    """
    draft = read_draft(
        config, options, directory, trust_run=trust_run, model_paths=model_paths
    )
    family, models = draft.family, draft.family.models
    names = {model.reference: model.name for model in models}
    figures = family.figures
    return Inspection(
        config=draft.file.locate(()),
        mergeable=not family.problems and not draft.problems,
        problems=[Place(draft.file.locate(p.key), p.message) for p in draft.problems],
        models=[_model(model, draft, figures) for model in models],
        pairs=[
            Pair((names[one], names[other]), pair.cosine, pair.sign_conflicts)
            for (one, other), pair in (figures.pairs.items() if figures else ())
        ],
        weights=WeightsRead(
            against=models[0].name if models else None,
            read=figures.n_read if figures else 0,
            parameters=figures.n_parameters if figures else 0,
            exact=figures is not None and figures.exact,
            on_the_hub=[m.name for m in models if m.facts and m.facts.files.on_the_hub],
        ),
        plan=None if draft.project is None else _plan(draft.project, models),
    )


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
        dtype=facts.dtype if facts is not None else None,
        norm_ratio=figure.norm_ratio if figure else None,
        changed=figure.changed if figure else None,
        findings=model.findings,
    )


def _plan(project: Project, models: Sequence[InspectedModel]) -> Plan:
    space, spec, options = project.space, project.spec, project.options
    study = project.outline()
    beside = project.on_disk.space if project.on_disk else None
    memory, disk, place = room_of(space, spec, options, models, beside)
    return Plan(
        strategy=spec.search.strategy,
        merge=spec.merge,
        coefficients=list(study.bounds),
        tasks=list(study.tasks),
        **asdict(forecast(study)),
        documents=dict(study.documents),
        engines={n: found.in_words() for n, found in project.engines.items()},
        hours=spec.search.hours,
        memory=[memory] if memory else [],
        disk=[disk] if disk else [],
        device=str(options.device),
        task_vectors=place,
        device_choice=choice_in_words(options, was_open=project.open_device),
    )
