"""Choosing a point of a finished front: no model is loaded, nothing is evaluated."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mergekit_map.config import parse_select
from mergekit_map.errors import ArtifactError, ConfigError, nearest
from mergekit_map.files import write_atomically
from mergekit_map.frontfile import Front, in_words, listed, metrics, utilities
from mergekit_map.specs import SelectSpec, share_of
from mergekit_map.study.choosing import (
    Readings,
    choose,
    find_limits,
    limit_in_words,
    preference,
)
from mergekit_map.study.results import (
    front_table,
    read_json,
    write_json,
)
from mergekit_map.verdicts import verdicts


@dataclass(frozen=True)
class Selection:
    """A point of a front, and the recipe that merges it."""

    index: int
    reason: str
    point: Mapping[str, Any]  # as in front.json
    tasks: Mapping[str, Any]
    recipe: str  # mergekit YAML
    verdicts: tuple[str, ...] = ()  # sentences on the front and the point


def select_point(
    run: Path,
    *,
    prefer: Mapping[str, float] | None = None,
    scalarization: str | None = None,
    knee: bool = False,
    require: Mapping[str, float | str] | None = None,
    index: int | None = None,
) -> Selection:
    """Choose a point of a front and write ``recipe.yml``.

    The arguments are the keys of ``map.select``. Without any, what was chosen last
    stays chosen.

    Args:
        run: The folder of a finished search.
        prefer: How much each task counts, after it is scaled by its best and worst
            value on the front.
        scalarization: ``sum`` of the weighted tasks, or ``achievement``: the weighted
            distance to the best, on the task where it is largest.
        knee: Take the point that every other one loses more against than it gains.
        require: Limits that the predictions of the point must keep: a number in the
            task's own units, or a share of the best single model such as ``"95%"``.
        index: The number of the point.

    Raises:
        ArtifactError: the search is not finished.
        ConfigError: there is no such task, or the arguments do not go together.
        DesignError: there is no such point, or none within the limits.
    """
    asked = {
        "prefer": prefer,
        "scalarization": scalarization,
        "knee": knee or None,
        "require": require,
        "index": index,
    }
    select = parse_select({k: v for k, v in asked.items() if v is not None})
    read_json(run / "manifest.json", "finished search")
    front = read_json(run / "front.json", "front")
    if select.model_fields_set:
        front["selected"], front["reason"] = _choose(front, select)
        front["select"] = select.model_dump(exclude_unset=True)
    return _keep(run, front)


def _keep(run: Path, front: dict[str, Any]) -> Selection:
    """Write the chosen recipe, and the front that says which it is."""
    front["verdicts"] = verdicts(front)
    point = front["points"][front["selected"]]
    path = run / point["recipe"]
    try:
        recipe = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ArtifactError(f"{path} cannot be read: {error}; search again") from None
    recipe = f"# {front['reason']}\n{recipe}"
    write_atomically(run / "recipe.yml", recipe)
    write_json(run / "front.json", front)
    write_atomically(run / "front.csv", front_table(front))
    return Selection(
        index=front["selected"],
        reason=front["reason"],
        point=point,
        tasks=front["tasks"],
        recipe=recipe,
        verdicts=tuple(front["verdicts"]),
    )


def _choose(front: Front, select: SelectSpec) -> tuple[int, str]:
    for key, names in (("prefer", select.prefer), ("require", select.require)):
        for name in names or ():
            if name not in front["tasks"]:
                raise ConfigError(
                    f"{key}: there is no task {name!r}; {nearest(name, front['tasks'])}"
                )
    predicted = utilities(front, front["points"], "predicted")
    chosen = choose(select, metrics(front), predicted, _readings(front))
    return chosen, selection_reason(front, select, chosen)


def selection_reason(front: Front, select: SelectSpec, chosen: int) -> str:
    """Say in one line how a point was chosen, for the top of its recipe."""
    start = f"Point {chosen} of {len(front['points'])}"
    if select.index is not None:
        return f"{start}, chosen by its index."
    how = "the knee of the front" if select.knee else _preferred(front, select)
    if select.require is None:
        return f"{start}, {how}."
    return f"{start}, {how} with {_kept_limits(front, select, chosen)}"


def _preferred(front: Front, select: SelectSpec) -> str:
    weights = preference(select, front["tasks"])
    how = " (achievement)" if select.scalarization == "achievement" else ""
    if select.require and not select.prefer:
        alike = " alike" if len(weights) > 1 else ""
        return f"the best {listed(weights)}{alike}{how}"
    listing = ", ".join(f"{task}={weight:g}" for task, weight in weights.items())
    return f"chosen by the preference {listing}{how}"


def _kept_limits(front: Front, select: SelectSpec, chosen: int) -> str:
    """Say the limits, what is predicted, and where that is not sure."""
    tasks = metrics(front)
    predicted = front["points"][chosen]["predicted"]
    kept, unsure = [], []
    for task, limit in find_limits(select, tasks, _readings(front)).items():
        share = share_of((select.require or {})[task])
        of = "" if share is None else f", {100 * share:g}% of the best single model"
        words = limit_in_words(task, tasks[task], limit)
        kept.append(f"{words}{of} (predicted {in_words(predicted[task])})")
        if abs(predicted[task]["value"] - limit) < (predicted[task]["stderr"] or 0):
            unsure.append(task)
    text = f"{listed(kept)}."
    if unsure:
        verb = "keeps its limit" if len(unsure) == 1 else "keep their limits"
        text += f" {listed(unsure)} {verb} by less than one standard error."
    return text


def _readings(front: Front) -> Readings:
    return {
        anchor["label"]: {
            task: reading["value"]
            for task, reading in anchor["measured"].items()
            if reading["value"] is not None and math.isfinite(reading["value"])
        }
        for anchor in front["anchors"]
    }
