"""Requests as prefix trees: a common beginning stands, and is computed, once.

A tree is one row of tokens, depth first, in which a token sees those above it alone:
``j`` sees ``i`` if ``i <= j < ends[i]``. A request is a path in it, and scored where
its last tokens are predicted. A row without branches is plain text.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Integers = NDArray[np.int64]

_BUSY = 4  # a batch of this part of the tokens is as fast as a full one
_ALIKE = 0.9  # of the longest row; rows below are not padded to it for nothing


@dataclass(frozen=True)
class Request:
    """Tokens that a model reads, and the last ones to predict."""

    inputs: tuple[int, ...]
    targets: tuple[int, ...]  # at most as many


@dataclass(frozen=True, eq=False)
class Tree:
    """A row of tokens, and the places where requests are scored in it."""

    tokens: Integers  # (length,)
    depths: Integers  # (length,) how many are above each
    ends: Integers  # (length,) behind the last that is below each
    # Which request, and at which places the tokens before its targets are.
    scored: tuple[tuple[int, tuple[int, ...]], ...]

    @property
    def branches(self) -> bool:
        """Whether it is more than plain text."""
        return bool((self.ends < len(self.tokens)).any())


@functools.lru_cache(maxsize=32)  # for each set of documents of a few tasks
def arrange(
    requests: tuple[Request, ...], *, width: int | None, tokens: int, rows: int | None
) -> list[list[Tree]]:
    """Arrange requests in trees, and those in batches."""
    trees = grow_trees(requests, width=width, longest=tokens)
    return in_batches(trees, tokens=tokens, rows=rows)


def grow_trees(
    requests: Sequence[Request], *, width: int | None, longest: int
) -> list[Tree]:
    """Arrange all requests in trees of at most ``longest`` tokens, where one can be.

    A request joins the one before it in the order of their tokens if that is less work
    for a model of this ``width``, whose layers take as long for a token as for
    ``6 * width`` others in attention. Without a width it joins only in plain text.
    """
    order = sorted(range(len(requests)), key=lambda i: (requests[i].inputs, i))
    trees, growing = [], _Growing()
    for index in order:
        inputs = requests[index].inputs
        shared = _common(growing.last, inputs)
        if not _joins(growing, len(inputs), shared, width, longest):
            trees.append(growing)
            growing, shared = _Growing(), 0
        growing.add(index, requests[index], shared)
    return [tree.finished() for tree in [*trees, growing] if tree.scored]


def in_batches(
    trees: Iterable[Tree], *, tokens: int, rows: int | None = None
) -> list[list[Tree]]:
    """Sort by length into batches of at most the padded tokens, or the rows.

    Rows with branches need a mask, and are batched apart from plain text.
    """
    order = sorted(trees, key=lambda tree: (not tree.branches, -len(tree.tokens)))
    batches: list[list[Tree]] = []
    for tree in order:
        last = batches[-1] if batches else []
        if not last or _is_full(last, tree, tokens, rows):
            batches.append([tree])
        else:
            last.append(tree)
    return batches


def _is_full(batch: Sequence[Tree], tree: Tree, tokens: int, rows: int | None) -> bool:
    """Whether a tree must, or should for its shortness, go with others."""
    longest = len(batch[0].tokens)
    if batch[0].branches != tree.branches:
        return True
    if rows is not None:
        return len(batch) >= rows
    keeps_busy = longest * len(batch) >= tokens // _BUSY
    is_short = len(tree.tokens) < _ALIKE * longest
    return longest * (len(batch) + 1) > tokens or (keeps_busy and is_short)


class _Growing:
    """A tree to which requests are added in the order of their tokens."""

    def __init__(self) -> None:
        self.tokens: list[int] = []
        self.depths: list[int] = []
        self.ends: list[int] = []
        self.scored: list[tuple[int, tuple[int, ...]]] = []
        self.last: tuple[int, ...] = ()
        self._path: list[int] = []

    def add(self, index: int, request: Request, shared: int) -> None:
        """Add the tokens that the last request does not share."""
        start, inputs = len(self.tokens), request.inputs
        for place in self._path[shared:]:
            self.ends[place] = start
        new = range(start, start + len(inputs) - shared)
        self._path = [*self._path[:shared], *new]
        self.tokens += inputs[shared:]
        self.depths += range(shared, len(inputs))
        self.ends += [0] * len(new)
        self.last = inputs
        self.scored.append((index, tuple(self._path[-len(request.targets) :])))

    def finished(self) -> Tree:
        """Close the open tokens."""
        for place in self._path:
            self.ends[place] = len(self.tokens)
        return Tree(
            tokens=np.array(self.tokens, np.int64),
            depths=np.array(self.depths, np.int64),
            ends=np.array(self.ends, np.int64),
            scored=tuple(self.scored),
        )


def _joins(
    growing: _Growing, length: int, shared: int, width: int | None, longest: int
) -> bool:
    size, new = len(growing.tokens), length - shared
    if shared == len(growing.last) and size == shared:  # nothing branches
        return size + new <= max(longest, length)
    if width is None or size + new > longest:
        return False
    joined = 6 * width * new + (size + new) ** 2 - size**2
    return joined < 6 * width * length + length**2


def _common(one: Sequence[int], other: Sequence[int]) -> int:
    """Count the tokens that both begin with."""
    low, high = 0, min(len(one), len(other))
    while low < high:  # comparing slices is faster than a loop over tokens
        middle = (low + high + 1) // 2
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def padded(rows: Sequence[Integers], fill: int | None = None) -> Integers:
    """Stack rows to the length of the longest, (n, length).

    Without a ``fill``, places are filled with the number that follows each.
    """
    length = max(map(len, rows))
    places = np.arange(1, length + 1)
    stacked = np.tile(places if fill is None else np.full(length, fill), (len(rows), 1))
    for row, values in zip(stacked, rows, strict=True):
        row[: len(values)] = values
    return stacked


def scored_places(trees: Sequence[Tree], length: int) -> list[int]:
    """Return the flat place of each prediction in a stack of trees."""
    return [
        row * length + place
        for row, tree in enumerate(trees)
        for _, places in tree.scored
        for place in places
    ]
