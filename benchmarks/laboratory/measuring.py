"""Measure merges with the ordinary program, and how far fine-tunes are from a base."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from mergekit_map import load_project
from mergekit_map.evaluation.evaluator import merges_in_memory

Array = np.ndarray[Any, np.dtype[np.float64]]


def measure(content: Mapping[str, Any], X: Array) -> Array:
    """Measure every task of a configuration at the rows of ``X`` (n, models).

    Returns (n, tasks) values in the tasks' own units, smaller is better for a loss.
    The columns of both are in the order in which ``content`` lists models and tasks.
    """
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch) / "config.yml"
        path.write_text(
            yaml.safe_dump(dict(content), sort_keys=False), encoding="utf-8"
        )
        project = load_project(path)
    names = project.space.names
    tasks = list(content["map"]["tasks"])  # not the project's: YAML may be reordered
    values = np.empty((len(X), len(tasks)))
    with merges_in_memory(project) as merges:
        for row, point in zip(values, X, strict=True):
            measures = merges(dict(zip(names, map(float, point), strict=True)))
            row[:] = [measures[task]().value for task in tasks]
    return values
