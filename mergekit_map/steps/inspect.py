"""Everything that can be said of a configuration before its search is paid for."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

from mergekit.options import MergeOptions

from mergekit_map.errors import EvaluationError
from mergekit_map.measurement import SOUP
from mergekit_map.merging.footprint import disk_needs, memory_needs, shortages
from mergekit_map.models.findings import has_errors
from mergekit_map.models.layout import main_dtype
from mergekit_map.models.preflight import InspectedModel, Inspection, inspect_models
from mergekit_map.models.vectors import Figures
from mergekit_map.steps.evaluate import merges_as_asked
from mergekit_map.steps.project import (
    Draft,
    Project,
    finish_draft,
    load_project,
    read_draft,
)
from mergekit_map.study.forecast import forecast

VERSION = 1

T = TypeVar("T")
Report: TypeAlias = dict[str, Any]  # what ``inspect --json`` prints, or a part of it


def inspect_config(
    config: Path,
    options: MergeOptions | None = None,
    directory: Path | None = None,
    *,
    trust_run: bool = False,
) -> Report:
    """Look at models and plan of a configuration; no model is loaded or downloaded.

    Returns what ``inspect --json`` prints: ``problems`` of the file, ``models`` with
    their findings and figures, ``pairs`` of models, and the ``plan`` of the search,
    which is None where the file has problems. ``mergeable`` is false where there is a
    problem or an error among the findings.

    Raises:
        ConfigError: the file cannot be read.
    """
    draft = read_draft(config, options, directory, trust_run=trust_run)
    inspection = Inspection((), None)
    if draft.merge is not None:
        inspection = inspect_models(draft.merge, draft.options, download=False)
    models = inspection.models
    sound = not any(has_errors(model.findings) for model in models)
    here = all(m.facts is not None and m.facts.files.fetched is None for m in models)
    project, problems = finish_draft(draft, plan=sound and here)
    return {
        "version": VERSION,
        "config": str(config),
        "mergeable": sound and not problems,
        "problems": [
            {"place": draft.file.locate(p.key), "message": p.message} for p in problems
        ],
        "models": [_model(model, draft, inspection.figures) for model in models],
        "pairs": _pairs(inspection),
        "weights": _weights(inspection),
        "plan": None if project is None else _plan(project, models),
        "probe": None,
    }


def probe_config(
    config: Path,
    options: MergeOptions | None = None,
    directory: Path | None = None,
    *,
    trust_run: bool = False,
) -> Report:
    """Merge the soup and measure every task at it, once, and say how long it all takes.

    Nothing of it is kept: a search measures the soup again. Models of the Hub are
    downloaded.

    Raises:
        ConfigError: the configuration or its models have problems.
        EvaluationError: a task cannot be measured.
        MergeError: the models cannot be merged.
    """
    project = load_project(config, options, directory, trust_run=trust_run)
    study = project.outline()
    soup, seconds = study.anchors[SOUP], {}
    with ExitStack() as stack:
        opened = merges_as_asked(project)(project)
        prepare, load = _timed(lambda: stack.enter_context(opened))
        measures, merge = _timed(lambda: prepare(soup))
        for task, measure in measures.items():
            try:
                _, seconds[task] = _timed(measure)
            except (
                EvaluationError,
                RuntimeError,
                ArithmeticError,
                MemoryError,
            ) as error:
                text = str(error) or type(error).__name__
                raise EvaluationError(
                    f"task {task!r} cannot be measured at the soup: {text}"
                ) from error
    apart = project.nests_checkpoints
    ahead = forecast(study, checkpoints=apart)
    loads = len(study.bounds) if apart else 1
    merges = (ahead.searched + ahead.front) * merge
    measurements = ahead.expected * sum(seconds.values()) / len(seconds)
    return {
        "coefficients": dict(soup),
        "load_seconds": load,
        "merge_seconds": merge,
        "task_seconds": seconds,
        "expected_hours": (loads * load + merges + measurements) / 3600,
    }


def _timed(action: Callable[[], T]) -> tuple[T, float]:
    started = time.perf_counter()
    return action(), time.perf_counter() - started


def _model(model: InspectedModel, draft: Draft, figures: Figures | None) -> Report:
    facts = model.facts
    headers = facts.headers.values() if facts is not None else ()
    figure = figures.models.get(model.reference) if figures is not None else None
    return {
        "name": model.name,
        "reference": model.reference,
        "place": draft.file.locate(model.key),
        "parameters": sum(header.n_elements for header in headers),
        "bytes": sum(header.n_bytes for header in headers),
        "dtype": main_dtype(facts) if facts is not None else None,
        "norm_ratio": figure.norm_ratio if figure else None,
        "changed": figure.changed if figure else None,
        "read": figure.n_read if figure else 0,
        "compared": figure.n_parameters if figure else 0,
        "findings": [asdict(finding) for finding in model.findings],
    }


def _pairs(inspection: Inspection) -> list[Report]:
    if inspection.figures is None:
        return []
    names = {model.reference: model.name for model in inspection.models}
    return [
        {
            "models": [names[one], names[other]],
            "cosine": figures.cosine,
            "sign_conflicts": figures.sign_conflicts,
        }
        for (one, other), figures in inspection.figures.pairs.items()
    ]


def _weights(inspection: Inspection) -> Report:
    """Say what the figures are of, and whose weights could not be read."""
    figures, models = inspection.figures, inspection.models
    away = [m.name for m in models if m.facts is not None and m.facts.files.fetched]
    return {
        "against": models[0].name if models else None,
        "read": figures.n_read if figures else 0,
        "parameters": figures.n_parameters if figures else 0,
        "exact": figures is not None and figures.exact,
        "on_the_hub": away,
    }


def _plan(project: Project, models: Sequence[InspectedModel]) -> Report:
    space, spec, options = project.space, project.spec, project.options
    study = project.outline()
    memory = memory_needs(space, spec, options, models)
    disk = disk_needs(space, spec, options, models)
    return {
        "strategy": spec.search.strategy,
        "merge": spec.merge,
        "coefficients": list(study.bounds),
        "tasks": list(study.tasks),
        **asdict(forecast(study, checkpoints=project.nests_checkpoints)),
        "memory": [asdict(need) for need in memory],
        "disk": [asdict(need) for need in disk],
        "shortages": [asdict(n) for ns in (memory, disk) for n in shortages(ns)],
    }
