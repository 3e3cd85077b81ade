"""Which documents, blocks or questions a merge won and lost against another.

Read from the records of measurements. What is given are counts, and the numbers of the
documents that differ most: no text of them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from mergekit_map.measurement import Metric

# What tells an item, as the records number it: its part, and its number there.
Item: TypeAlias = tuple[str, int]

# Between items that are alike: sums are rounded.
_ROUNDING = 1e-9
# Keys of a record of lm-eval that are no value of a metric.
_NO_METRICS = frozenset({"doc_id", "target"})


@dataclass(frozen=True)
class Items:
    """What single items say of a value, which is their weighted mean."""

    values: Mapping[Item, float]
    weights: Mapping[Item, float]
    exponential: bool = False  # whether the value is the exponential of the mean


NO_ITEMS = Items({}, {})


@dataclass(frozen=True)
class WonItems:
    """How one merge did beside another, item by item, on what both were measured on."""

    won: int
    lost: int
    level: int
    most: tuple[tuple[str, float], ...]  # what differs most; larger is better


def won_items(
    ours: Items, theirs: Items, metric: Metric, most: int = 3
) -> WonItems | None:
    """Count what one merge won and lost; None where they share no item.

    ``most``: how many items to name, of those that are won and of those that are lost.
    """
    one, other = ours.values, theirs.values
    shared = [item for item in one if item in other]
    if not shared:
        return None
    ahead = {item: metric.sign * (one[item] - other[item]) for item in shared}
    won = sorted((i for i in shared if ahead[i] > _ROUNDING), key=lambda i: -ahead[i])
    lost = sorted((i for i in shared if ahead[i] < -_ROUNDING), key=lambda i: ahead[i])
    named = [*won[:most], *lost[:most]]
    return WonItems(
        won=len(won),
        lost=len(lost),
        level=len(shared) - len(won) - len(lost),
        most=tuple((_called(item), ahead[item]) for item in named),
    )


def read_items(content: Mapping[str, Any], value: float) -> Items:
    """Read what every item says from a file of records.

    None of them where that is not known: for a metric that is no mean of its items,
    and where the mean is not the ``value`` that was measured, so that the records are
    of something else.
    """
    try:
        found = _read(content)
        total = math.fsum(found.weights.values())
        mean = math.fsum(found.weights[i] * v for i, v in found.values.items()) / total
        mean = math.exp(mean) if found.exponential else mean
    except (KeyError, TypeError, ValueError, IndexError, ArithmeticError):
        return NO_ITEMS  # written by another version, or by hand
    return found if math.isclose(mean, value, rel_tol=1e-6, abs_tol=1e-9) else NO_ITEMS


def _read(content: Mapping[str, Any]) -> Items:
    if answers := content.get("answers"):
        ids: list[Item] = [("", int(i)) for i in answers["ids"]]
        columns = (answers["values"], answers["weights"])
        values, weights = (
            {i: float(v) for i, v in zip(ids, column, strict=True)}
            for column in columns
        )
        return Items(values, weights, bool(answers["exponential"]))
    samples = content["samples"]
    if "loss" in samples[0]:
        return Items(
            {("", int(s["block"])): float(s["loss"]) for s in samples},
            {("", int(s["block"])): float(s["tokens"]) for s in samples},
        )
    if "document" in samples[0]:
        values = {("", int(s["document"])): float(s["value"]) for s in samples}
        return Items(values, dict.fromkeys(values, 1.0))
    (metric,) = (key for key in samples[0] if _is_metric(key, samples[0][key]))
    several = len({s["task"] for s in samples}) > 1
    values = {
        (s["task"] if several else "", int(s["doc_id"])): float(s[metric])
        for s in samples
    }
    return Items(values, dict.fromkeys(values, 1.0))


def _is_metric(key: str, value: object) -> bool:
    return key not in _NO_METRICS and isinstance(value, int | float)


def _called(item: Item) -> str:
    part, number = item
    return f"{part} {number}" if part else str(number)
