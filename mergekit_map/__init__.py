"""Find the trade-offs of a model merge.

Names resolve when they are used, so that importing this package stays cheap.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from mergekit_map.comparing import compare_runs
    from mergekit_map.errors import MapError
    from mergekit_map.importing import read_imported
    from mergekit_map.inspecting import inspect_config, probe_config
    from mergekit_map.measurement import Measurement, Metric
    from mergekit_map.migrating.evolve import migrate_evolve
    from mergekit_map.pipeline import search_front
    from mergekit_map.project import Project, load_project
    from mergekit_map.publish.report import write_report
    from mergekit_map.schema import config_schema
    from mergekit_map.selection import Selection, select_point
    from mergekit_map.shipping import merge_point

# name -> module that holds it
_HOMES = {
    "MapError": "errors",
    "Measurement": "measurement",
    "Metric": "measurement",
    "Project": "project",
    "Selection": "selection",
    "compare_runs": "comparing",
    "config_schema": "schema",
    "inspect_config": "inspecting",
    "load_project": "project",
    "merge_point": "shipping",
    "migrate_evolve": "migrating.evolve",
    "probe_config": "inspecting",
    "read_imported": "importing",
    "search_front": "pipeline",
    "select_point": "selection",
    "write_report": "publish.report",
}

__all__ = [
    "MapError",
    "Measurement",
    "Metric",
    "Project",
    "Selection",
    "compare_runs",
    "config_schema",
    "inspect_config",
    "load_project",
    "merge_point",
    "migrate_evolve",
    "probe_config",
    "read_imported",
    "search_front",
    "select_point",
    "write_report",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
