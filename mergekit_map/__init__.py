"""Find the trade-offs of a model merge.

Names resolve when they are used, so that importing this package stays cheap.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from mergekit_map.version import __version__ as __version__

if TYPE_CHECKING:
    from mergekit_map.compare.comparing import compare_runs as compare_runs
    from mergekit_map.compare.contest import ComparisonSpec as ComparisonSpec
    from mergekit_map.errors import MapError as MapError
    from mergekit_map.measurement import Measurement as Measurement
    from mergekit_map.measurement import Metric as Metric
    from mergekit_map.publish.fronts_report import (
        write_fronts_report as write_fronts_report,
    )
    from mergekit_map.publish.report import write_report as write_report
    from mergekit_map.results.gained import gains as gains
    from mergekit_map.steps.inspect import inspect_config as inspect_config
    from mergekit_map.steps.looking import look_at as look_at
    from mergekit_map.steps.merge import Merged as Merged
    from mergekit_map.steps.merge import merge_point as merge_point
    from mergekit_map.steps.probing import probe_config as probe_config
    from mergekit_map.steps.project import Project as Project
    from mergekit_map.steps.project import load_project as load_project
    from mergekit_map.steps.reading import Run as Run
    from mergekit_map.steps.reading import read_run as read_run
    from mergekit_map.steps.schema import config_schema as config_schema
    from mergekit_map.steps.search import search_front as search_front
    from mergekit_map.steps.select import Selection as Selection
    from mergekit_map.steps.select import select_point as select_point
    from mergekit_map.study.callbacks import Callback as Callback
    from mergekit_map.study.import_csv import read_imported as read_imported
    from mergekit_map.study.study import Progress as Progress
    from mergekit_map.study.study import Reporter as Reporter

# name -> module that holds it
_HOMES = {
    "Callback": "study.callbacks",
    "ComparisonSpec": "compare.contest",
    "MapError": "errors",
    "Measurement": "measurement",
    "Merged": "steps.merge",
    "Metric": "measurement",
    "Progress": "study.study",
    "Project": "steps.project",
    "Reporter": "study.study",
    "Run": "steps.reading",
    "Selection": "steps.select",
    "compare_runs": "compare.comparing",
    "config_schema": "steps.schema",
    "gains": "results.gained",
    "inspect_config": "steps.inspect",
    "load_project": "steps.project",
    "look_at": "steps.looking",
    "merge_point": "steps.merge",
    "probe_config": "steps.probing",
    "read_imported": "study.import_csv",
    "read_run": "steps.reading",
    "search_front": "steps.search",
    "select_point": "steps.select",
    "write_fronts_report": "publish.fronts_report",
    "write_report": "publish.report",
}
__all__ = [*_HOMES]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*_HOMES, *(name for name in globals() if name.startswith("__"))])
