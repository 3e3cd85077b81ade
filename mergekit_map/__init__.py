"""Find the trade-offs of a model merge.

Names resolve when they are used, so that importing this package stays cheap.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from mergekit_map._version import __version__ as __version__

if TYPE_CHECKING:
    from mergekit_map.compare.contest import ComparisonSpec as ComparisonSpec
    from mergekit_map.compare.runner import compare_runs as compare_runs
    from mergekit_map.errors import MapError as MapError
    from mergekit_map.evaluation.project import Project as Project
    from mergekit_map.evaluation.project import load_project as load_project
    from mergekit_map.report.overlay import write_fronts_report as write_fronts_report
    from mergekit_map.report.page import write_report as write_report
    from mergekit_map.results.answer import answer as answer
    from mergekit_map.results.gains import gains as gains
    from mergekit_map.search.reuse import read_imported as read_imported
    from mergekit_map.types import Measurement as Measurement
    from mergekit_map.types import Metric as Metric
    from mergekit_map.utils.progress import Progress as Progress
    from mergekit_map.workflows.callbacks import Callback as Callback
    from mergekit_map.workflows.callbacks import ProgressLine as ProgressLine
    from mergekit_map.workflows.init import config_schema as config_schema
    from mergekit_map.workflows.inspect import inspect_config as inspect_config
    from mergekit_map.workflows.inspect import probe_config as probe_config
    from mergekit_map.workflows.merge import merge_point as merge_point
    from mergekit_map.workflows.results import Merged as Merged
    from mergekit_map.workflows.results import Run as Run
    from mergekit_map.workflows.results import Selection as Selection
    from mergekit_map.workflows.results import read_run as read_run
    from mergekit_map.workflows.search import search_front as search_front
    from mergekit_map.workflows.select import look_at as look_at
    from mergekit_map.workflows.select import select_point as select_point

_NAMES = {  # module -> names that it holds
    "compare.contest": ["ComparisonSpec"],
    "compare.runner": ["compare_runs"],
    "errors": ["MapError"],
    "evaluation.project": ["Project", "load_project"],
    "report.overlay": ["write_fronts_report"],
    "report.page": ["write_report"],
    "results.answer": ["answer"],
    "results.gains": ["gains"],
    "search.reuse": ["read_imported"],
    "types": ["Measurement", "Metric"],
    "utils.progress": ["Progress"],
    "workflows.callbacks": ["Callback", "ProgressLine"],
    "workflows.init": ["config_schema"],
    "workflows.inspect": ["inspect_config", "probe_config"],
    "workflows.merge": ["merge_point"],
    "workflows.results": ["Merged", "Run", "Selection", "read_run"],
    "workflows.search": ["search_front"],
    "workflows.select": ["look_at", "select_point"],
}
_HOMES = {name: module for module, names in _NAMES.items() for name in names}
__all__ = [*_HOMES]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*_HOMES, *(name for name in globals() if name.startswith("__"))])
