"""Find the trade-offs of a model merge.

Names resolve when they are used, so that importing this package stays cheap.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from mergekit_map.errors import MapError
    from mergekit_map.measurement import Measurement, Metric
    from mergekit_map.pipeline import search_front
    from mergekit_map.project import Project, load_project
    from mergekit_map.selection import Selection, select_point
    from mergekit_map.shipping import merge_point

_HOMES = {
    "MapError": "errors",
    "Measurement": "measurement",
    "Metric": "measurement",
    "Project": "project",
    "load_project": "project",
    "merge_point": "shipping",
    "search_front": "pipeline",
    "Selection": "selection",
    "select_point": "selection",
}

__all__ = [
    "MapError",
    "Measurement",
    "Metric",
    "Project",
    "Selection",
    "load_project",
    "merge_point",
    "search_front",
    "select_point",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
