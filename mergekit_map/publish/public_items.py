"""What merges won and lost item by item, in a form that may be passed on.

Counts and the numbers of documents, never their text.
"""

from __future__ import annotations

from collections.abc import Mapping

from mergekit_map.results.finished import FinishedSearch
from mergekit_map.results.front import Merge
from mergekit_map.results.log import Key, evaluation_key
from mergekit_map.results.samples import read_sample_file
from mergekit_map.results.won_items import NO_ITEMS, Items, read_items, won_items


class ItemReader:
    """Reads the records of a finished search, each file once."""

    def __init__(self, run: FinishedSearch) -> None:
        self._tasks = run.front.metrics
        self._definitions = run.manifest.definitions
        self._folder = run.folder.samples(run.manifest.merge)
        self._known: dict[Key, Items] = {}

    def compare(self, one: Merge, other: Merge, task: str) -> list[object] | None:
        """Count items won, lost and level, and name those that differ most."""
        found = won_items(
            self.read(one, task), self.read(other, task), self._tasks[task]
        )
        if found is None:
            return None
        most = [(name, float(f"{ahead:.3g}")) for name, ahead in found.most]
        return [found.won, found.lost, found.level, most]

    def read(self, merge: Merge, task: str) -> Items:
        """Read what every item says of a merge."""
        return self.read_at(merge.coefficients, merge.measured[task].value, task)

    def read_at(
        self, coefficients: Mapping[str, float], value: float | None, task: str
    ) -> Items:
        """Read what every item says of a merge that measured a value."""
        key = evaluation_key(coefficients, task)
        if value is None or not coefficients:
            return NO_ITEMS
        if key not in self._known:
            self._known[key] = self._read(coefficients, value, task)
        return self._known[key]

    def _read(
        self, coefficients: Mapping[str, float], value: float, task: str
    ) -> Items:
        content = read_sample_file(self._folder / task, coefficients)
        known = self._definitions.get(task)
        if content.get("definition", known) != known:
            return NO_ITEMS
        return read_items(content, value)
