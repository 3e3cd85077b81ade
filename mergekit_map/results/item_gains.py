"""Which items got better or worse from one merge to another, read from ``samples/``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mergekit_map.measurement import Metric
from mergekit_map.results.front import Front, Merge
from mergekit_map.results.merge_order import pairs
from mergekit_map.results.run_folder import Manifest, RunFolder
from mergekit_map.results.samples import read_sample_file
from mergekit_map.results.won_items import Item, read_items

_TEXTS = ("text", "question", "prompt", "response")


@dataclass(frozen=True)
class ItemGain:
    """An item, as two merges did on it."""

    name: str
    value: float
    other: float
    ahead: float  # larger is better
    text: str  # of the document, where the records hold it


@dataclass(frozen=True)
class ItemRecords:
    """Where a finished search keeps the records of its merges."""

    folder: Path  # of the merges that have the coefficients of the front
    definitions: Mapping[str, str]

    @classmethod
    def of(cls, run: RunFolder, front: Front, manifest: Manifest) -> ItemRecords:
        """Find them; where nested MAP merges checkpoints, in the last pair."""
        place = run
        if front.order is not None and not all(a.coefficients for a in front.anchors):
            place = run.pair(len(pairs(front.order)))
            manifest = place.read_manifest()
        return cls(place.samples(manifest.merge), manifest.definitions)

    def compare(
        self, one: Merge, other: Merge, task: str, metric: Metric
    ) -> list[ItemGain]:
        """Hold one merge against another on what both were measured on, gains first.

        Empty where there are no records of both, or they are of another definition of
        the task.
        """
        ours, theirs = self._read(one, task), self._read(other, task)
        found = [
            ItemGain(
                name, value, theirs[name][0], metric.utility(value - theirs[name][0]), t
            )
            for name, (value, t) in ours.items()
            if name in theirs
        ]
        return sorted(found, key=lambda item: -item.ahead)

    def _read(self, merge: Merge, task: str) -> dict[str, tuple[float, str]]:
        """Give value and text by the name of an item."""
        measured = merge.measured[task].value
        if measured is None or not merge.coefficients:
            return {}
        content = read_sample_file(self.folder / task, merge.coefficients)
        known = self.definitions.get(task)
        if content.get("definition", known) != known:
            return {}
        values, samples = read_items(content, measured).values, content.get("samples")
        if not isinstance(samples, list) or len(samples) != len(values):
            samples = [{}] * len(values)
        return {
            _name(item, sample): (value, _text(sample))
            for (item, value), sample in zip(values.items(), samples, strict=True)
        }


def _name(item: Item, sample: Any) -> str:
    part, number = item
    kind = "block" if isinstance(sample, dict) and "block" in sample else "document"
    return f"{part or kind} {number}"


def _text(sample: Any) -> str:
    texts = (sample.get(key) for key in _TEXTS) if isinstance(sample, dict) else ()
    return next((text for text in texts if isinstance(text, str)), "")
