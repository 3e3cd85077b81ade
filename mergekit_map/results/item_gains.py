"""Which items got better or worse from one merge to another, read from ``samples/``."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mergekit_map.measurement import Metric
from mergekit_map.results.front import Front, Merge, pairs
from mergekit_map.results.run_folder import Manifest, RunFolder
from mergekit_map.results.samples import read_sample_file

# Of sums that were added up in another order, or written with fewer digits.
_ROUNDING = 1e-6
# Keys of a record that say what it is of, or hold more than one number.
_NO_VALUES = frozenset({"doc_id", "block", "document", "tokens", "target"})
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
        measured = merge.measured[task].value
        if measured is None or not merge.coefficients:
            return {}
        content = read_sample_file(self.folder / task, merge.coefficients)
        known = self.definitions.get(task)
        if content.get("definition", known) != known:
            return {}
        try:
            return _items(content, measured)
        except (AttributeError, LookupError, TypeError, ValueError, ArithmeticError):
            return {}  # written by another version, or by hand


def _items(content: Mapping[str, Any], measured: float) -> dict[str, tuple[float, str]]:
    """Give value and text by the name of an item, if they are of what was measured."""
    samples, answers = content["samples"], content.get("answers")
    parts = {sample.get("task") for sample in samples}
    if answers:
        values, weights = answers["values"], answers["weights"]
        exponential = bool(answers["exponential"])
    else:
        values = [_value(sample) for sample in samples]
        weights = [sample.get("tokens", 1.0) for sample in samples]
        exponential = False
    total = math.fsum(weights)
    mean = math.fsum(w * v for w, v in zip(weights, values, strict=True)) / total
    mean = math.exp(mean) if exponential else mean
    if not math.isclose(mean, measured, rel_tol=_ROUNDING, abs_tol=_ROUNDING**2):
        return {}
    return {
        _name(sample, several=len(parts) > 1): (float(value), _text(sample))
        for sample, value in zip(samples, values, strict=True)
    }


def _value(sample: Mapping[str, Any]) -> float:
    (value,) = (
        value
        for key, value in sample.items()
        if key not in _NO_VALUES and isinstance(value, int | float)
    )
    return float(value)


def _name(sample: Mapping[str, Any], *, several: bool) -> str:
    if "block" in sample:
        return f"block {sample['block']}"
    if "document" in sample:
        return f"document {sample['document']}"
    part = f"{sample['task']} " if several else "document "
    return f"{part}{sample['doc_id']}"


def _text(sample: Mapping[str, Any]) -> str:
    texts = (sample[key] for key in _TEXTS if isinstance(sample.get(key), str))
    return next(texts, "")
