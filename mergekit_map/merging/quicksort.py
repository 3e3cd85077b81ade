"""Which numbers a quicksort puts before a rank, without sorting all of them.

Who of equal numbers ends before a rank is up to the sort. That of libstdc++ (Musser's
introspective sort: the median of three as pivot, Hoare's partition, insertion sort for
the last 16) decides it on the way to that rank alone: each partition leaves one side to
look at. So that way is gone here, with arrays in the place of loops.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Keys: TypeAlias = NDArray[Any]  # (n,) integers
Mask: TypeAlias = NDArray[np.bool_]  # (n,)
Places: TypeAlias = NDArray[Any]  # integers, some of 0 to n - 1

_INSERTION = 16  # so many or fewer are sorted by insertion, which is stable
_NEAR = 4096  # keys among which a cut is looked for one by one


def before_by_position(keys: Keys, rank: int) -> Mask:
    """Mark what a stable sort puts before a rank."""
    mask, equal, wanted = _split(keys, rank)
    mask[np.flatnonzero(equal)[:wanted]] = True
    return mask


def before_by_quicksort(keys: Keys, rank: int) -> Mask | None:
    """Mark what libstdc++'s ``std::sort`` puts before a rank.

    None where partitions are so uneven that it would take to another sort.
    """
    mask, equal, wanted = _split(keys, rank)
    if wanted == np.count_nonzero(equal):
        return mask | equal
    value = keys[np.argmax(equal)]
    places = _way_to(keys.copy(), rank, value)
    if places is None:
        return None
    mask[places] = True
    return mask


def _split(keys: Keys, rank: int) -> tuple[Mask, Mask, int]:
    """Mark what is less and what equals the last before a rank; how many of those."""
    if not 0 < rank <= len(keys):
        nothing = np.zeros(len(keys), dtype=np.bool_)
        return nothing, nothing, 0
    value = np.partition(keys, rank - 1)[rank - 1]
    less = keys < value
    return less, keys == value, rank - int(np.count_nonzero(less))


def _way_to(keys: Keys, rank: int, value: int) -> Places | None:
    """List the places of keys of this value that end before the rank.

    Overwrites the keys. Not all of that value end there, so wherever a whole side does,
    none in it is greater.
    """
    index = np.int32 if len(keys) < 2**31 else np.int64
    places = np.arange(len(keys), dtype=index)
    found = []
    for _ in range(2 * (len(keys).bit_length() - 1)):
        if len(keys) <= _INSERTION or rank == 0:
            break
        _median_to_front(keys, places)
        pivot = keys[0]
        cut, left, right = _exchanges(keys, pivot)
        for array in (keys, places):
            array[left], array[right] = array[right], array[left]
        if rank < cut:
            keys, places = keys[:cut], places[:cut]
            continue
        if pivot == value:
            found.append(places[:cut][keys[:cut] == value])
        keys, places, rank = keys[cut:], places[cut:], rank - cut
    if len(keys) > _INSERTION and rank:
        return None
    last = np.argsort(keys, kind="stable")[:rank]
    found.append(places[last[keys[last] == value]])
    return np.concatenate(found)


def _median_to_front(keys: Keys, places: Places) -> None:
    """Exchange the first with the median of the second, the middle and the last."""
    second, middle, last = 1, len(keys) // 2, len(keys) - 1
    a, b, c = keys[second], keys[middle], keys[last]
    if a < b:
        median = middle if b < c else last if a < c else second
    else:
        median = second if a < c else last if b < c else middle
    for array in (keys, places):
        array[0], array[median] = array[median], array[0]


def _exchanges(keys: Keys, pivot: int) -> tuple[int, Places, Places]:
    """Say what a partition of all but the first exchanges, and where it cuts.

    From the left it stops at what is not less than the pivot, from the right at what is
    not greater; those are exchanged, pair after pair, until the two have met.
    """
    high, low = keys >= pivot, keys <= pivot
    high[0] = low[0] = False
    # Left of ``start`` less stops than right of it have been passed, not so at ``end``:
    # they meet between.
    start, end = 0, len(keys)
    passed, ahead = 0, int(np.count_nonzero(low))
    while end - start > _NEAR:
        middle = (start + end) // 2
        more = passed + int(np.count_nonzero(high[start:middle]))
        less = ahead - int(np.count_nonzero(low[start:middle]))
        if more > less:
            end = middle
        else:
            start, passed, ahead = middle, more, less
    left = np.flatnonzero(high[:end])
    right = np.flatnonzero(low[start:])[::-1] + start
    pairs = min(len(left), len(right))
    count = int(np.count_nonzero(left[:pairs] < right[:pairs]))
    stops = [*left[count : count + 1], *right[:count][-1:]]
    return int(min(stops)), left[:count], right[:count]
