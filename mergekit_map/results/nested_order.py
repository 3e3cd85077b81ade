"""The order in which nested MAP merges pairs: the ``order`` of ``front.json``."""

from __future__ import annotations

from typing import Any

from typing_extensions import TypeAliasType

from mergekit_map.results.records import Line

# The name of a coefficient, or the two that are merged.
Order = TypeAliasType("Order", "Line | tuple[Order, Order]")


def members(order: Order | list[Any]) -> tuple[str, ...]:
    """List the names in an order, from left to right."""
    if isinstance(order, str):
        return (order,)
    return tuple(name for part in order for name in members(part))


def pairs(order: Order | list[Any]) -> list[tuple[Order, Order]]:
    """List the two sides of every merge of an order, the inner ones first."""
    if isinstance(order, str):
        return []
    one, other = order
    return [*pairs(one), *pairs(other), (one, other)]
