"""Log-likelihoods of requests under a model in memory, at the speed of its matmuls.

Common beginnings of requests are computed once, requests of one length together, and
logits only where something is scored. Requests with a common beginning stand in a
prefix tree: one row of tokens, depth first, in which a token sees those above it alone
(``j`` sees ``i`` if ``i <= j < ends[i]``). A request is a path in it, and scored where
its last tokens are predicted. A row without branches is plain text. Models that do not
read a tree as its paths (recurrent ones, windows shorter than a request, custom code)
read each request by itself.

With a vocabulary of 128 000, the logits of 512 tokens are 250 MB, and most of them are
never used; so they are computed in chunks. ``batch_size`` bounds the tokens that a
model reads at once.
"""

from __future__ import annotations

import ctypes
import inspect
import logging
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import takewhile
from operator import eq
from typing import Any, Literal, TypeAlias
from unittest.mock import patch

import numpy as np
import torch
import torch.nn.functional as F
from torch.nn.utils.rnn import pad_sequence
from transformers import PreTrainedModel

from mergekit_map.utils.progress import step

logger = logging.getLogger(__name__)
BatchSize: TypeAlias = int | Literal["auto"]
# One log-likelihood, and whether each of its tokens is the most likely one.
Likelihood = tuple[float, bool]
# Logits of a chunk, in float32. Processors are slower with more than an allocator
# keeps, and with much less, as each chunk reads the whole head.
MOST_BYTES_CPU = 24 << 20
# Parameters of glibc's allocator, by their numbers: the largest block that it keeps (it
# takes no larger value), and the bytes that stay free at the end of the heap.
_KEEPING = {-3: 1 << 25, -1: 1 << 28}
MOST_BYTES = 256 << 20
_TOKENS_CPU = 1024  # of a batch; with more, processors only miss their caches
_TOKENS = 32768  # so many keep accelerators busy, if the memory is there
NOT_SCORED = -100  # torch's own default of ``ignore_index``
_OPEN = sys.maxsize  # the end of a token that all later ones may follow
_CHECKED = 8  # requests of a tree that are compared with themselves alone
_ATTENTION = {"full_attention", "sliding_attention", "chunked_attention"}
# Relative and absolute tolerance of equal log-likelihoods. In half precision, sums of
# dozens of nats are off by tenths.
_ROUNDING, _ROUNDING_HALF = 1e-4, 0.05


@dataclass(frozen=True)
class Request:
    """Tokens that a model reads, and the last ones to predict."""

    inputs: tuple[int, ...]
    targets: tuple[int, ...]  # at most as many; NOT_SCORED where one is not predicted


class Tree:
    """A row of tokens, which grows by requests in the order of their tokens."""

    def __init__(self) -> None:
        self.tokens: list[int] = []
        self.depths: list[int] = []  # how many are above each
        self.ends: list[int] = []  # behind the last that is below each
        # Which request, and at which places the tokens before its targets are.
        self.scored: list[tuple[int, list[int]]] = []
        self.last: tuple[int, ...] = ()  # the tokens of the last request
        self._path: list[int] = []  # their places

    @property
    def branches(self) -> bool:
        """Whether it is more than plain text."""
        return min(self.ends) < _OPEN

    def add(self, index: int, request: Request, shared: int) -> None:
        """Add a request but for its first tokens, ``shared`` with the last request."""
        start = len(self.tokens)
        inputs = request.inputs
        for place in self._path[shared:]:  # the new tokens are not below these
            self.ends[place] = start
        new = range(start, start + len(inputs) - shared)
        self._path = [*self._path[:shared], *new]
        self.tokens += inputs[shared:]
        self.depths += range(shared, len(inputs))
        self.ends += [_OPEN] * len(new)
        self.last = inputs
        self.scored.append((index, self._path[-len(request.targets) :]))


def grow_trees(
    requests: Sequence[Request], *, width: int | None, longest: int
) -> list[Tree]:
    """Arrange all requests in trees of at most ``longest`` tokens, where one can be.

    A request joins the one before it in the order of their tokens if that is less work
    for a model of this ``width``. Without a width it joins only in plain text.
    """
    trees: list[Tree] = []
    for index in sorted(range(len(requests)), key=lambda i: (requests[i].inputs, i)):
        inputs = requests[index].inputs
        last = trees[-1].last if trees else ()
        shared = sum(takewhile(bool, map(eq, last, inputs)))  # tokens at the start
        if not trees or not _joins(trees[-1], len(inputs), shared, width, longest):
            trees.append(Tree())
            shared = 0
        trees[-1].add(index, requests[index], shared)
    return trees


def _joins(tree: Tree, length: int, shared: int, width: int | None, most: int) -> bool:
    """Whether a request of this length, which shares tokens, is to join a tree."""
    size = len(tree.tokens)
    joined = size + length - shared
    if size == shared == len(tree.last):  # the request goes on where the tree ends
        return joined <= max(most, length)
    if width is None or joined > most:
        return False
    return _work(joined, width) - _work(size, width) < _work(length, width)


def _work(tokens: int, width: int) -> int:
    """Return the work for a row, in units of attention to one token.

    The layers take as long for a token as attention to ``6 * width`` tokens.
    """
    return 6 * width * tokens + tokens**2


@dataclass(frozen=True, eq=False)
class Likelihoods:
    """Scores of requests under a model, in batches independent of other tasks."""

    model: PreTrainedModel
    most: int  # places in a chunk of logits
    tokens: int  # that are read at once, padding included
    rows: int | None  # that are read at once; None: as many as ``tokens`` allow
    width: int | None  # as ``grow_trees`` has it
    bounded: bool = False  # whether logits are computed by chunk, and not all at once

    def score_all(
        self, requests: Sequence[Request], *, greedy: bool = True
    ) -> list[Likelihood]:
        """Score requests in the order in which they were given.

        Whether targets are the most likely tokens is False unless ``greedy``: to find
        out takes as long as the loss.
        """
        batches = self.batches(requests)
        scores = dict[int, Likelihood]()
        for number, batch in enumerate(batches, start=1):
            scores |= self.score(batch, requests, greedy=greedy)
            step(number, len(batches))
        return [scores[index] for index in range(len(requests))]

    def batches(self, requests: Sequence[Request]) -> list[list[Tree]]:
        """Arrange requests in trees, and these by length in independent batches.

        Rows with branches need a mask, and are batched apart from plain text.
        """
        tokens = self.tokens if self.bounded else min(self.tokens, self.most)
        trees = grow_trees(requests, width=self.width, longest=tokens)
        batches: list[list[Tree]] = []
        for tree in sorted(trees, key=lambda t: (not t.branches, -len(t.tokens))):
            longest = batches[-1][0] if batches else tree
            most = self.rows or tokens // len(longest.tokens)
            is_full = not batches or len(batches[-1]) >= most
            if is_full or longest.branches != tree.branches:
                batches.append([])
            batches[-1].append(tree)
        return batches

    def score(
        self, trees: Sequence[Tree], requests: Sequence[Request], *, greedy: bool = True
    ) -> dict[int, Likelihood]:
        """Score a batch, by number of request."""
        inputs = _stack(trees, self.model)
        length = inputs["input_ids"].shape[1]
        indices = [index for tree in trees for index, _ in tree.scored]
        targets = [token for index in indices for token in requests[index].targets]
        places = [
            row * length + place
            for row, tree in enumerate(trees)
            for _, path in tree.scored
            for place in path
        ]
        losses, is_best = list[torch.Tensor](), list[torch.Tensor]()  # by chunk
        with torch.inference_mode():
            chunks = self.logits(inputs, torch.tensor(places))
            target_chunks = torch.split(torch.tensor(targets), self.most)
            for chunk, wanted in zip(chunks, target_chunks, strict=True):
                logits = chunk.float()
                target = wanted.to(logits.device)
                losses.append(F.cross_entropy(logits, target, reduction="none").cpu())
                best = logits.argmax(-1) if greedy else torch.full_like(target, -1)
                is_best.append((best == target).cpu())
        lengths = [len(requests[index].targets) for index in indices]
        losses_of = torch.split(torch.cat(losses).double(), lengths)
        is_best_of = torch.split(torch.cat(is_best), lengths)
        by_request = zip(indices, losses_of, is_best_of, strict=True)
        return {i: (-float(loss.sum()), bool(b.all())) for i, loss, b in by_request}

    def logits(
        self, inputs: Mapping[str, torch.Tensor], places: torch.Tensor
    ) -> Iterator[torch.Tensor]:
        """Yield the logits at places of the flattened input ids, in chunks.

        Chunks are (k, vocabulary), of the model's dtype.
        """
        if not self.bounded:
            logits = self.model(**inputs, use_cache=False).logits.flatten(0, 1)
            yield from torch.split(logits[places.to(logits.device)], self.most)
            return
        base = self.model.base_model(**inputs, use_cache=False)
        hidden = base.last_hidden_state.flatten(0, 1)
        for some in torch.split(hidden[places.to(hidden.device)], self.most):
            yield self._predict(replace(base, last_hidden_state=some[None]))

    def _predict(self, hidden: Any) -> torch.Tensor:
        """Let the model predict from what its base has returned.

        Its forward pass knows what comes behind the base: a head, and limits of logits.
        """
        with patch.object(self.model.base_model, "forward", lambda *_, **__: hidden):
            logits: torch.Tensor = self.model(use_cache=False).logits[0]
        return logits


def _stack(trees: Sequence[Tree], model: PreTrainedModel) -> dict[str, torch.Tensor]:
    """Return the inputs of a model; with branches, a mask and positions, too."""

    def pad(rows: Sequence[list[int]]) -> torch.Tensor:
        tensors = [torch.tensor(row) for row in rows]
        return pad_sequence(tensors, batch_first=True).to(model.device)

    inputs = {"input_ids": pad([tree.tokens for tree in trees])}
    if not trees[0].branches:  # no token sees the padding, which comes last
        return inputs
    ends = pad([tree.ends for tree in trees])
    i = torch.arange(ends.shape[1], device=model.device)
    j = i[:, None]
    is_seen = (i <= j) & (j < ends[:, None, :])  # (rows, j, i), i by j
    # Every implementation of attention in torch takes a mask to add to its scores.
    mask = torch.zeros(is_seen.shape, dtype=model.dtype, device=model.device)
    mask.masked_fill_(~is_seen, torch.finfo(model.dtype).min)
    inputs["position_ids"] = pad([tree.depths for tree in trees])
    inputs["attention_mask"] = mask[:, None]
    return inputs


def likelihoods(
    model: PreTrainedModel,
    batch_size: BatchSize,
    requests: Sequence[Request],
    *,
    in_trees: bool,
) -> Likelihoods:
    """Return a scorer whose passes fit in memory, or raise OutOfMemoryError."""
    rows = None if batch_size == "auto" else batch_size
    on_cpu = model.device.type == "cpu"
    config: Any = model.config.get_text_config()
    width = getattr(config, "hidden_size", None) if in_trees else None
    rope = getattr(config, "rope_parameters", None) or {}
    short = rope.get("original_max_position_embeddings") or sys.maxsize
    if "longrope" in str(rope) and any(len(r.inputs) > short for r in requests):
        rows, width = 1, None  # beyond, all positions of a batch are others
    vocabulary = len(model.get_input_embeddings().weight)  # type: ignore[arg-type]
    most = max(1, (MOST_BYTES_CPU if on_cpu else MOST_BYTES) // (4 * vocabulary))
    if on_cpu:
        _keep_freed_memory()
    scores = Likelihoods(model, most, _TOKENS_CPU if on_cpu else _TOKENS, rows, width)
    scores = replace(scores, bounded=_predicts_in_chunks(scores, vocabulary))
    return scores if on_cpu else fitted(scores, requests)


def _keep_freed_memory() -> None:
    """Make glibc keep freed memory for the next pass, as other allocators do.

    Without it, SmolLM2-135M takes 3 % longer to score, tiny models a fifth.
    """
    with suppress(AttributeError):  # another library has no such function
        for number, value in _KEEPING.items():
            ctypes.CDLL(None).mallopt(number, value)


def _predicts_in_chunks(scores: Likelihoods, vocabulary: int) -> bool:
    """Try on a few tokens whether a model predicts in chunks what it does at once."""
    places = torch.arange(8, device=scores.model.device)
    inputs = {"input_ids": places[None] % vocabulary}
    at_once = replace(scores, most=len(places))
    with torch.inference_mode():
        (plain,) = at_once.logits(inputs, places)
        try:
            (found,) = replace(at_once, bounded=True).logits(inputs, places)
            return torch.allclose(found.to(plain.device), plain, 0, 0, equal_nan=True)
        except Exception:  # noqa: BLE001 - code of any model, called as it may not expect
            return False


def fitted(scores: Likelihoods, requests: Sequence[Request]) -> Likelihoods:
    """Halve the number of tokens until the largest passes fit in memory."""
    while True:
        # The largest batch with branches, by its mask, and the largest without.
        batches = sorted(scores.batches(requests), key=_size)
        try:
            for batch in {one[0].branches: one for one in batches}.values():
                scores.score(batch, requests)
            return scores
        except torch.OutOfMemoryError:
            if scores.tokens == 1:
                raise
        except Exception:  # by the code of a model that reads no trees
            if scores.width is None:
                raise
            scores = replace(scores, width=None)
            continue
        torch.cuda.empty_cache()
        scores = replace(scores, tokens=scores.tokens // 2)
        logger.info("out of memory: at most %d tokens are read at once", scores.tokens)


def _size(batch: Sequence[Tree]) -> int:
    length = len(batch[0].tokens)
    return len(batch) * length * (length if batch[0].branches else 1)


def checked(scores: Likelihoods, requests: Sequence[Request], name: str) -> Likelihoods:
    """Disable trees of tokens where the model does not read them as their paths."""
    reason = _window_reason(scores.model, requests) or _difference(scores, requests)
    if reason is None:
        return scores
    logger.warning(
        "task %r: requests are scored one by one, what they begin with in common too: "
        "%s",
        *(name, reason),
    )
    return replace(scores, width=None)


def _window_reason(model: PreTrainedModel, requests: Sequence[Request]) -> str | None:
    """Return why rows cannot be trees; a few requests may not reveal it."""
    config: Any = model.config.get_text_config()
    kinds = {*(getattr(config, "layer_types", None) or ())}
    if kinds - _ATTENTION or getattr(model, "_is_stateful", False):
        return "not all of its layers are of attention"
    if "position_ids" not in inspect.signature(model.forward).parameters:
        return "it takes no positions"
    longest = max((len(r.inputs) for r in requests), default=0)
    for key in ("sliding_window", "attention_chunk_size", "window_size"):
        if isinstance(window := getattr(config, key, None), int) and longest > window:
            return f"{key} is {window}, and a request has {longest} tokens"
    return None


def _difference(scores: Likelihoods, requests: Sequence[Request]) -> str | None:
    """Score the last requests of a tree by themselves, too; return how they differ."""
    batches = scores.batches(requests)
    if not batches or not batches[0][0].branches:  # those with branches come first
        return None
    tree = batches[0][0]
    last = [index for index, _ in tree.scored[-_CHECKED:]]
    alone = replace(scores, width=None).score_all([requests[i] for i in last])
    try:
        in_tree = scores.score([tree], requests)
    except Exception as error:  # noqa: BLE001 - code of any model, on a mask of ours
        return f"{type(error).__name__} on a mask of its own"
    expected = np.array([score for score, _ in alone])
    found = np.array([in_tree[index][0] for index in last])
    is_half = scores.model.dtype in (torch.bfloat16, torch.float16)
    rounding = _ROUNDING_HALF if is_half else _ROUNDING
    if np.allclose(found, expected, rtol=rounding, atol=rounding, equal_nan=True):
        return None
    return (
        f"log-likelihoods differ by {np.nanmax(abs(expected - found)):.2g} from those "
        "of requests by themselves"
    )
