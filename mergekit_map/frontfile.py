"""``front.json`` as arrays and words: what those who read it share."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from mergekit_map.measurement import Metric

FloatArray = NDArray[np.float64]
Front: TypeAlias = Mapping[str, Any]


def metrics(front: Front) -> dict[str, Metric]:
    """Read what is known of the tasks."""
    return {
        task: Metric(
            higher_is_better=about["direction"] == "maximize",
            lower=about["range"][0],
            upper=about["range"][1],
            unit=about["unit"],
        )
        for task, about in front["tasks"].items()
    }


def utilities(
    front: Front, merges: Iterable[Mapping[str, Any]], kind: str
) -> FloatArray:
    """Read what was ``predicted`` or ``measured``, larger is better; (k, m), or NaN."""
    signs = [1 if m.higher_is_better else -1 for m in metrics(front).values()]
    return _read(front, merges, kind, "value") * signs


def standard_errors(
    front: Front, merges: Iterable[Mapping[str, Any]], kind: str
) -> FloatArray:
    """Read the standard errors that belong to ``utilities``; (k, m), NaN if unknown."""
    return _read(front, merges, kind, "stderr")


def _read(
    front: Front, merges: Iterable[Mapping[str, Any]], kind: str, part: str
) -> FloatArray:
    rows = [[merge[kind][task][part] for task in front["tasks"]] for merge in merges]
    # null, which JSON has in the place of NaN, becomes NaN again.
    return np.array(rows, dtype=np.float64).reshape(len(rows), len(front["tasks"]))


def in_words(reading: Mapping[str, Any]) -> str:
    """Write a value and its standard error: ``0.67 ± 0.01``."""
    value, stderr = reading["value"], reading["stderr"]
    known = stderr is not None and math.isfinite(stderr) and stderr > 0
    return f"{value:.4g}" + (f" ± {stderr:.1g}" if known else "")


def listed(words: Iterable[str]) -> str:
    """Join words: ``a``, ``a and b``, ``a, b and c``."""
    *first, last = words
    return f"{', '.join(first)} and {last}" if first else last
