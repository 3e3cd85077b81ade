"""What merges won and lost item by item, in a form that may be passed on.

Counts and the numbers of documents, never their text.
"""

from __future__ import annotations

from mergekit_map.results.finished import FinishedSearch
from mergekit_map.results.front import Merge
from mergekit_map.results.samples import read_sample_file
from mergekit_map.results.won_items import ItemValues, item_values, won_items


class ItemReader:
    """Reads the records of a finished search, each file once."""

    def __init__(self, run: FinishedSearch) -> None:
        self._tasks = run.front.metrics
        self._definitions = run.manifest.definitions
        self._folder = run.folder.samples(run.manifest.merge)
        self._known: dict[tuple[int, str], ItemValues] = {}

    def compare(self, one: Merge, other: Merge, task: str) -> list[object] | None:
        """Count items won, lost and level, and name those that differ most."""
        values = self._values(one, task), self._values(other, task)
        found = won_items(*values, self._tasks[task])
        if found is None:
            return None
        most = [(name, float(f"{ahead:.3g}")) for name, ahead in found.most]
        return [found.won, found.lost, found.level, most]

    def _values(self, merge: Merge, task: str) -> ItemValues:
        key = id(merge), task
        if key not in self._known:
            self._known[key] = self._read(merge, task)
        return self._known[key]

    def _read(self, merge: Merge, task: str) -> ItemValues:
        value = merge.measured[task].value
        if value is None or not merge.coefficients:
            return {}
        content = read_sample_file(self._folder / task, merge.coefficients)
        if content.get("definition", self._definitions[task]) != (
            self._definitions[task]
        ):
            return {}
        return item_values(content, value)
