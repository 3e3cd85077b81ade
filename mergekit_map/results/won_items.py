"""Which documents, blocks or questions a merge won and lost against another.

Read from the records of measurements. What is given are counts, and the numbers of the
documents that differ most: no text of them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from mergekit_map.measurement import Metric

# What tells an item, as the records number it: its part, and its number there.
Item: TypeAlias = tuple[str, int]
ItemValues: TypeAlias = Mapping[Item, float]

# Between items that are alike: sums are rounded.
_ROUNDING = 1e-9
# Keys of a record of lm-eval that are no value of a metric.
_NO_METRICS = frozenset({"doc_id", "target"})


@dataclass(frozen=True)
class WonItems:
    """How one merge did beside another, item by item, on what both were measured on."""

    won: int
    lost: int
    level: int
    most: tuple[tuple[str, float], ...]  # what differs most; larger is better


def won_items(
    ours: ItemValues, theirs: ItemValues, metric: Metric, most: int = 3
) -> WonItems | None:
    """Count what one merge won and lost; None where they share no item.

    ``most``: how many items to name, of those that are won and of those that are lost.
    """
    shared = [item for item in ours if item in theirs]
    if not shared:
        return None
    ahead = {item: metric.sign * (ours[item] - theirs[item]) for item in shared}
    won = sorted((i for i in shared if ahead[i] > _ROUNDING), key=lambda i: -ahead[i])
    lost = sorted((i for i in shared if ahead[i] < -_ROUNDING), key=lambda i: ahead[i])
    named = [*won[:most], *lost[:most]]
    return WonItems(
        won=len(won),
        lost=len(lost),
        level=len(shared) - len(won) - len(lost),
        most=tuple((_called(item), ahead[item]) for item in named),
    )


def item_values(content: Mapping[str, Any], value: float) -> ItemValues:
    """Read the value of every item from a file of records.

    Empty where they are not known: for a metric that is no mean of its items, and where
    the mean is not the ``value`` that was measured, so that the records are of others.
    """
    try:
        found, weights, exponential = _read(content)
        total = math.fsum(weights)
        mean = math.fsum(w * v for w, v in zip(weights, found.values(), strict=True))
        mean = math.exp(mean / total) if exponential else mean / total
    except (KeyError, TypeError, ValueError, ArithmeticError):
        return {}  # written by another version, or by hand
    return found if math.isclose(mean, value, rel_tol=1e-6, abs_tol=1e-9) else {}


def _read(
    content: Mapping[str, Any],
) -> tuple[dict[Item, float], Sequence[float], bool]:
    if answers := content.get("answers"):
        ids, values = answers["ids"], map(float, answers["values"])
        found = {("", int(i)): v for i, v in zip(ids, values, strict=True)}
        return found, answers["weights"], bool(answers["exponential"])
    samples = content["samples"]
    if "loss" in samples[0]:
        blocks = {("", int(s["block"])): float(s["loss"]) for s in samples}
        return blocks, [float(s["tokens"]) for s in samples], False
    if "document" in samples[0]:
        found = {("", int(s["document"])): float(s["value"]) for s in samples}
        return found, [1.0] * len(found), False
    (metric,) = (key for key in samples[0] if _is_metric(key, samples[0][key]))
    parts = {s["task"] for s in samples}
    found = {
        (s["task"] if len(parts) > 1 else "", int(s["doc_id"])): float(s[metric])
        for s in samples
    }
    return found, [1.0] * len(found), False


def _is_metric(key: str, value: object) -> bool:
    return key not in _NO_METRICS and isinstance(value, int | float)


def _called(item: Item) -> str:
    part, number = item
    return f"{part} {number}" if part else str(number)
