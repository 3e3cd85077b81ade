"""What lies in the folder of a finished search, read once for all that publishes it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mergekit_map.errors import ArtifactError
from mergekit_map.search.surrogate import Surrogate
from mergekit_map.study.log import Evaluation, Key, evaluation_key, read_log
from mergekit_map.study.results import read_json


@dataclass(frozen=True, eq=False)
class RunFolder:
    """A finished search: its front, what predicted it, and what was measured."""

    path: Path
    manifest: Mapping[str, Any]
    front: Mapping[str, Any]  # as in front.json, with what was measured since
    surrogates: Mapping[str, Surrogate]  # by task
    axes: tuple[str, ...]  # what the surrogates are functions of
    groups: Mapping[str, Mapping[str, float]]  # those of the axes that are merges
    evaluations: tuple[Evaluation, ...]  # of the front's coefficients, each key once


def read_run_folder(run: Path) -> RunFolder:
    """Read the folder of a finished search.

    Raises:
        ArtifactError: the search is not finished, or a file of it cannot be read.
    """
    manifest = read_json(run / "manifest.json", "finished search")
    front = read_json(run / "front.json", "front")
    content = read_json(run / "surrogates.json", "surrogates")
    try:
        surrogates = {
            task: Surrogate.from_dict(data) for task, data in content["tasks"].items()
        }
    except KeyError as error:
        raise ArtifactError(
            f"{run / 'surrogates.json'} has no {error}; search again with this version"
        ) from None
    evaluations = _evaluations(_folder_of_log(run, front), front)
    return RunFolder(
        path=run,
        manifest=manifest,
        front=_with_new_measurements(front, evaluations),
        surrogates=surrogates,
        axes=tuple(content["coefficients"]),
        groups=content.get("groups") or {},
        evaluations=evaluations,
    )


def _folder_of_log(run: Path, front: Mapping[str, Any]) -> Path:
    """Find what was measured of merges of the front.

    Where nested MAP merges checkpoints, that is in the folder of the last pair, and a
    single model is no merge of that pair: it has no coefficients in the front.
    """
    anchors = [anchor["coefficients"].values() for anchor in front["anchors"]]
    if not any(None in coefficients for coefficients in anchors):
        return run
    return run / "nested" / f"pair-{_count(front['order']) - 1}"


def _count(order: Any) -> int:
    """Count the models in the nested lists of two of ``order``."""
    return sum(map(_count, order)) if isinstance(order, list) else 1


def _evaluations(run: Path, front: Mapping[str, Any]) -> tuple[Evaluation, ...]:
    """Read the latest measurement of each task at each merge of this search."""
    manifest = read_json(run / "manifest.json", "finished search")
    latest: dict[Key, Evaluation] = {}
    for e in read_log(run / "evaluations.jsonl"):
        if (
            e.merge == manifest["merge"]
            and manifest["definitions"].get(e.task) == e.definition
            and e.task in front["tasks"]
            and e.coefficients.keys() == front["coefficients"].keys()
        ):
            latest[e.key] = e
    return tuple(latest.values())


def _with_new_measurements(
    front: Mapping[str, Any], evaluations: Iterable[Evaluation]
) -> dict[str, Any]:
    """Add to the front's points what was measured after it was written."""
    seen = {e.key: e for e in evaluations if not e.failed}

    def reading(point: Mapping[str, Any], task: str) -> dict[str, Any]:
        known: dict[str, Any] = point["measured"][task]
        found = seen.get(evaluation_key(point["coefficients"], task))
        if known["value"] is not None or found is None:
            return known
        return {"value": found.value, "stderr": found.stderr}

    points = [
        {**point, "measured": {task: reading(point, task) for task in front["tasks"]}}
        for point in front["points"]
    ]
    return {**front, "points": points}
