"""Sparsifying without a full sort against mergekit's, bit by bit."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from mergekit.sparsify import RescaleNorm, SparsificationMethod, sparsify
from torch import Tensor

from mergekit_map.merging import trimming
from mergekit_map.merging.quicksort import before_by_position, before_by_quicksort
from mergekit_map.merging.trimming import sparsified

DTYPES = [torch.float32, torch.bfloat16, torch.float16]
MAGNITUDE = SparsificationMethod.magnitude
OUTLIERS = SparsificationMethod.magnitude_outliers


def task_vector(size: int, dtype: torch.dtype, seed: int = 0) -> Tensor:
    """Draw a task vector, a third of it zero, with many equal magnitudes."""
    generator = torch.Generator().manual_seed(seed)
    numbers = torch.randn(size, generator=generator) * 1e-3
    numbers[torch.rand(size, generator=generator) < 0.33] = 0
    return numbers.to(dtype)


@pytest.mark.parametrize("density", [0.0, 1e-5, 0.1, 0.5, 0.67, 0.9, 1.0])
@pytest.mark.parametrize("method", [MAGNITUDE, OUTLIERS])
@pytest.mark.parametrize("dtype", DTYPES)
def test_sparsifies_as_mergekit_does(
    dtype: torch.dtype, method: SparsificationMethod, density: float
) -> None:
    more: dict[str, Any] = {"gamma": 0.03} if method == OUTLIERS else {}
    for shape in ((5000,), (210, 200), (3, 40, 50), (31, 31)):
        delta = task_vector(torch.Size(shape).numel(), dtype).reshape(shape)
        for norm in (None, RescaleNorm.l1):
            kept = delta.clone()
            ours = sparsified(delta, density, method, norm, **more)
            stock = sparsify(
                delta, density=density, method=method, rescale_norm=norm, **more
            )
            assert torch.equal(ours.view(torch.uint8), stock.view(torch.uint8))
            assert torch.equal(delta, kept)


def test_this_machines_sort_is_known() -> None:
    # Else everything here is mergekit's own, and slow.
    assert trimming._order_of_equals() is not None


@pytest.mark.parametrize("value", [torch.inf, torch.nan])
def test_leaves_what_is_not_finite_to_mergekit(value: float) -> None:
    delta = task_vector(6000, torch.float32)
    delta[17] = value

    ours = sparsified(delta, 0.4, MAGNITUDE, None)

    stock = sparsify(delta, density=0.4, method=MAGNITUDE)
    assert torch.equal(ours.view(torch.uint8), stock.view(torch.uint8))


@pytest.mark.parametrize(
    "method", [SparsificationMethod.random, SparsificationMethod.della_magprune]
)
def test_methods_that_draw_draw_the_same(method: SparsificationMethod) -> None:
    delta = task_vector(6000, torch.bfloat16).view(60, 100)
    found = []
    for function in (sparsified, sparsify):
        torch.manual_seed(3)
        found.append(
            function(delta, density=0.5, method=method, rescale_norm=None, epsilon=0.1)
        )
    assert torch.equal(*found)


@pytest.fixture
def _stable_sort(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let torch's sort leave equal numbers in their order."""
    sort = torch.argsort
    trimming._order_of_equals.cache_clear()
    monkeypatch.setattr(torch, "argsort", lambda *a, **k: sort(*a, **k, stable=True))
    yield
    trimming._order_of_equals.cache_clear()


@pytest.mark.usefixtures("_stable_sort")
def test_follows_a_sort_of_another_order() -> None:
    delta = task_vector(9000, torch.bfloat16)

    assert trimming._order_of_equals() is before_by_position
    ours = sparsified(delta, 0.4, MAGNITUDE, None)

    assert torch.equal(ours, sparsify(delta, density=0.4, method=MAGNITUDE))


def test_an_unknown_sort_is_left_to_mergekit(monkeypatch: pytest.MonkeyPatch) -> None:
    delta = task_vector(9000, torch.bfloat16)
    monkeypatch.setattr(trimming, "_order_of_equals", lambda: None)

    ours = sparsified(delta, 0.4, MAGNITUDE, None)

    assert torch.equal(ours, sparsify(delta, density=0.4, method=MAGNITUDE))


def arrays() -> Iterator[np.ndarray[Any, Any]]:
    """Give arrays of many sizes, of few and many different numbers, some ordered."""
    rng = np.random.default_rng(0)
    for index, size in enumerate([*range(1, 40), *rng.integers(40, 30_000, 60)]):
        keys = rng.integers(-rng.choice([1, 3, 50, 30_000]), 1, size).astype(np.int16)
        if index % 4 == 0:
            keys.sort()
        yield keys[::-1].copy() if index % 8 == 0 else keys


def test_orders_of_equals_are_those_of_torchs_sorts() -> None:
    count = 0
    for keys in arrays():
        for rank in {0, 1, len(keys) // 3, len(keys) - 1, len(keys)}:
            for stable, before in (
                (False, before_by_quicksort),
                (True, before_by_position),
            ):
                if not stable and trimming._order_of_equals() is not before:
                    continue
                order = torch.argsort(torch.from_numpy(keys).float(), stable=stable)
                expected = np.zeros(len(keys), dtype=np.bool_)
                expected[order[:rank].numpy()] = True
                assert np.array_equal(before(keys, rank), expected)
                count += 1
    assert count > 400


def test_gives_up_where_the_quicksort_would() -> None:
    assert before_by_quicksort(killer(3000), 1500) is None


def killer(size: int) -> np.ndarray[Any, Any]:
    """Make numbers of which every partition takes two or so (McIlroy 1999).

    While libstdc++ partitions them they are made such that its pivots are small: of two
    numbers that are not decided, the one that may be a pivot is, to be the least left.
    """
    values, decided, candidate = [size] * size, 0, 0

    def less(one: int, other: int) -> bool:
        nonlocal decided, candidate
        if values[one] == values[other] == size:
            values[one if one == candidate else other] = decided
            decided += 1
        if values[one] == size:
            candidate = one
        elif values[other] == size:
            candidate = other
        return values[one] < values[other]

    places, first = list(range(size)), 0
    for _ in range(2 * size.bit_length()):
        first = partitioned(places, first, less)
    return np.array(values)


def partitioned(places: list[int], first: int, less: Callable[[int, int], bool]) -> int:
    """Partition all from ``first`` as libstdc++ does; gives where it cuts."""

    def lower(one: int, other: int) -> bool:
        return less(places[one], places[other])

    def exchange(one: int, other: int) -> None:
        places[one], places[other] = places[other], places[one]

    a, b, c = first + 1, (first + len(places)) // 2, len(places) - 1
    if lower(a, b):
        exchange(first, b if lower(b, c) else c if lower(a, c) else a)
    else:
        exchange(first, a if lower(a, c) else c if lower(b, c) else b)
    left, right = first + 1, len(places)
    while True:
        while lower(left, first):
            left += 1
        right -= 1
        while lower(first, right):
            right -= 1
        if left >= right:
            return left
        exchange(left, right)
        left += 1
