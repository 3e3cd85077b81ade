"""How large the text families are, and how long they train."""

from __future__ import annotations

from dataclasses import dataclass

from mergekit_map.demo.training import ModelSizes, Schedule


@dataclass(frozen=True)
class Size:
    """Everything that decides how large a family is, and how long it trains."""

    model: ModelSizes
    base: Schedule
    fine_tune: Schedule
    adapter: Schedule
    characters: int  # of each domain, about
    largest_operand: int = 49  # of arithmetic
    measured_tokens: int = 4096  # of each text
    rank: int = 8  # of the adapters
    # Times the steps of an adapter of what has to be computed; else they are two.
    longer_adapters: int = 2


def _base(steps: int, batch: int, rate: float = 8e-3, inner: float = 0.03) -> Schedule:
    return Schedule(steps, rate, inner, batch)


def _fine_tune(
    steps: int, batch: int, rate: float = 5e-4, inner: float = 2e-3
) -> Schedule:
    return Schedule(steps, rate, inner, batch)


def _shape(
    vocabulary: int, hidden: int, intermediate: int, layers: int, heads: int
) -> ModelSizes:
    positions = 128 if hidden < 256 else 256
    return ModelSizes(vocabulary, hidden, intermediate, layers, heads, positions)


SIZES = {
    "demo": Size(  # 0.3 M parameters
        _shape(1024, 64, 176, 3, 4),
        base=_base(300, batch=16),
        fine_tune=_fine_tune(40, batch=16),
        adapter=_fine_tune(40, batch=16, inner=1e-2),
        characters=1_000_000,
    ),
    "5m": Size(
        _shape(4096, 192, 768, 6, 4),
        base=_base(500, batch=16),
        fine_tune=_fine_tune(30, batch=16, rate=1.5e-3, inner=6e-3),
        adapter=_fine_tune(30, batch=16, inner=1e-2),
        characters=1_500_000,
    ),
    "20m": Size(
        _shape(8192, 384, 1024, 8, 6),
        base=_base(300, batch=8),
        fine_tune=_fine_tune(20, batch=8, rate=1.5e-3, inner=7e-3),
        adapter=_fine_tune(40, batch=8, inner=1e-2),
        characters=2_000_000,
        longer_adapters=1,
    ),
}
