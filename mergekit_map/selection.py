"""Choosing a point of a finished front: no model is loaded, nothing is evaluated."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from mergekit_map.errors import ArtifactError, ConfigError, nearest
from mergekit_map.files import write_atomically
from mergekit_map.search.selection import select_by_preference
from mergekit_map.study.results import (
    front_table,
    read_json,
    write_json,
)


@dataclass(frozen=True)
class Selection:
    """A point of a front, and the recipe that merges it."""

    index: int
    reason: str
    point: Mapping[str, Any]  # as in front.json
    tasks: Mapping[str, Any]
    recipe: str  # mergekit YAML


def select_point(
    run: Path,
    *,
    prefer: Mapping[str, float] | None = None,
    index: int | None = None,
) -> Selection:
    """Choose a point by preference or index and write ``recipe.yml``.

    Without either, what was chosen last stays chosen. Preferences weigh the tasks after
    each is scaled by its best and worst value on the front.

    Raises:
        ArtifactError: the search is not finished.
        ConfigError: there is no such task or point.
    """
    read_json(run / "manifest.json", "finished search")
    front = read_json(run / "front.json", "front")
    chosen, reason = _choose(front, prefer, index)
    point = front["points"][chosen]
    path = run / point["recipe"]
    try:
        recipe = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ArtifactError(f"{path} cannot be read: {error}; search again") from None
    recipe = f"# {reason}\n{recipe}"
    write_atomically(run / "recipe.yml", recipe)
    front.update(selected=chosen, reason=reason)
    write_json(run / "front.json", front)
    write_atomically(run / "front.csv", front_table(front))
    return Selection(chosen, reason, point, front["tasks"], recipe)


def _choose(
    front: Mapping[str, Any], prefer: Mapping[str, float] | None, index: int | None
) -> tuple[int, str]:
    count = len(front["points"])
    if index is not None:
        if not 0 <= index < count:
            raise ConfigError(
                f"the front has the points 0 to {count - 1}, not {index}; "
                "front.csv lists them"
            )
        return index, f"Point {index} of {count}, chosen by its index."
    if prefer is None:
        return front["selected"], front["reason"]
    unknown = [name for name in prefer if name not in front["tasks"]]
    if unknown:
        raise ConfigError(
            f"--prefer: there is no task {unknown[0]!r}; "
            f"{nearest(unknown[0], front['tasks'])}"
        )
    chosen = select_by_preference(
        utilities(front), np.array([prefer.get(t, 0.0) for t in front["tasks"]])
    )
    return chosen, preference_reason(chosen, count, prefer)


def preference_reason(chosen: int, count: int, prefer: Mapping[str, float]) -> str:
    """Say how a point was chosen, for the top of its recipe."""
    weights = ", ".join(f"{task}={weight:g}" for task, weight in prefer.items())
    return f"Point {chosen} of {count}, chosen by the preference {weights}."


def utilities(front: Mapping[str, Any]) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Read the predicted values of a front, turned so that larger is better; (k, m)."""
    signs = [1 if t["direction"] == "maximize" else -1 for t in front["tasks"].values()]
    values = [
        [point["predicted"][task]["value"] for task in front["tasks"]]
        for point in front["points"]
    ]
    return np.array(values, dtype=np.float64) * signs
