"""Log-likelihoods of requests under a model in memory, at the speed of its matmuls.

Common beginnings of requests are computed once, requests of one length together, and
logits only where something is scored. Models that do not read a tree of tokens as its
paths (recurrent ones, windows shorter than a request, custom code) read each request
by itself.

With a vocabulary of 128 000, the logits of 512 tokens are 250 MB, and most of them are
never used; so they are computed in chunks. ``batch_size`` bounds the tokens that a
model reads at once.
"""

from __future__ import annotations

import ctypes
import logging
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

import numpy as np
import torch
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint
from transformers import PreTrainedModel

from mergekit_map.tasks.prefix_tree import Request, Tree, arrange, padded, scored_places
from mergekit_map.utils.progress import step

# The numbers of these parameters in glibc's malloc.h.
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
_KEPT = 1 << 28  # bytes free at the end of the heap
LARGEST = 1 << 25  # bytes of a block that is kept; glibc takes no more
logger = logging.getLogger(__name__)
# ``head``: the head of the model on its last hidden states; ``selected``: the model
# itself, its head shown some hidden states alone; ``all``: the logits of all places.
Way: TypeAlias = Literal["head", "selected", "all"]
_WAYS: tuple[Way, ...] = ("head", "selected")
# Logits that are held at once, as float32. Processors are slower with more than the
# allocator keeps, and with much less, as each time the whole head is read.
MOST_BYTES_CPU = LARGEST * 3 // 4
MOST_BYTES = 256 << 20


def keep_freed_memory() -> None:
    """Make the allocator of this process keep freed memory; others do already."""
    if sys.platform.startswith("linux"):
        with suppress(AttributeError):  # another C library, which has no such call
            mallopt = ctypes.CDLL(None).mallopt
            mallopt(_MMAP_THRESHOLD, LARGEST)
            mallopt(_TRIM_THRESHOLD, _KEPT)


@dataclass(frozen=True, eq=False)
class NextTokens:
    """The predictions of a model, by the least work that gives its own logits."""

    model: PreTrainedModel
    way: Way
    most: int  # places whose logits are held at once

    def logits(
        self, inputs: Mapping[str, torch.Tensor], places: torch.Tensor
    ) -> Iterator[torch.Tensor]:
        """Yield the logits at rising places of the flattened input ids, in chunks.

        Chunks are (k, vocabulary), of the model's dtype.
        """
        if self.way == "head":
            head: Any = _head(self.model)
            hidden = self._hidden(inputs)
            if len(places) < len(hidden):
                hidden = hidden[places.to(hidden.device)]
            for some in torch.split(hidden, self.most):
                yield _predict(head, some)
            return
        if self.way == "selected":
            with _at_places(_head(self.model), places):
                found = self.model(**inputs, use_cache=False).logits[0]
        else:
            logits = self.model(**inputs, use_cache=False).logits.flatten(0, 1)
            found = logits[places.to(logits.device)]
        yield from torch.split(found, self.most)

    def losses(
        self, inputs: Mapping[str, torch.Tensor], targets: torch.Tensor
    ) -> torch.Tensor:
        """Return the cross-entropy of the target at every place, 0 where there is none.

        A backward pass through the model also computes logits one chunk at a time.
        """
        goals = targets.flatten()
        chunks = torch.split(goals, self.most)
        if self.way == "head" and torch.is_grad_enabled() and len(chunks) > 1:
            head, hidden = _head(self.model), self._hidden(inputs)
            pairs = zip(torch.split(hidden, self.most), chunks, strict=True)
            losses = [
                checkpoint(_head_loss, head, some, goal, use_reentrant=False)
                for some, goal in pairs
            ]
        else:
            places = torch.arange(len(goals), device=goals.device)
            found = zip(self.logits(inputs, places), chunks, strict=True)
            losses = [_loss(logits, goal) for logits, goal in found]
        return torch.cat(losses)

    def _hidden(self, inputs: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """Return the last hidden states of all places; (places, width)."""
        # Not every base model that can leave its cache out takes it as an option.
        hidden: torch.Tensor = self.model.base_model(**inputs, use_cache=False)[0]
        return hidden.flatten(0, 1)

    @property
    def bounded(self) -> bool:
        """Whether logits are bounded however large a batch is."""
        return self.way == "head"


def next_tokens(model: PreTrainedModel) -> NextTokens:
    """Choose the way with the least work, by trying it on a few tokens."""
    on_cpu = model.device.type == "cpu"
    embeddings = model.get_input_embeddings().weight
    assert isinstance(embeddings, torch.Tensor)
    vocabulary = len(embeddings)
    most_bytes = MOST_BYTES_CPU if on_cpu else MOST_BYTES
    most = max(1, most_bytes // (4 * vocabulary))
    tokens = torch.arange(8, device=model.device) % vocabulary
    inputs = {"input_ids": tokens[None]}
    places = torch.arange(len(tokens), device=model.device)
    with torch.inference_mode():
        (plain,) = NextTokens(model, "all", len(tokens)).logits(inputs, places)
        for way in _WAYS:
            if _same(NextTokens(model, way, len(tokens)), inputs, places, plain):
                return NextTokens(model, way, most)
    logger.debug("%s: logits of all places are computed", type(model).__name__)
    return NextTokens(model, "all", most)


def _same(
    predicted: NextTokens,
    inputs: Mapping[str, torch.Tensor],
    places: torch.Tensor,
    plain: torch.Tensor,
) -> bool:
    """Whether a way gives the bits of the model itself, at all places."""
    try:
        (found,) = predicted.logits(inputs, places)
    except Exception:  # noqa: BLE001 - code of any model, called as it may not expect
        return False
    return found.shape == plain.shape and torch.allclose(
        found, plain, rtol=0, atol=0, equal_nan=True
    )


def _head_loss(head: Any, hidden: torch.Tensor, goal: torch.Tensor) -> torch.Tensor:
    return _loss(_predict(head, hidden), goal)


def _loss(logits: torch.Tensor, goal: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(logits.float(), goal.to(logits.device), reduction="none")


def _predict(head: Any, hidden: torch.Tensor) -> torch.Tensor:
    logits: torch.Tensor = head(hidden)
    return logits


def _head(model: Any) -> Any:
    return model.get_output_embeddings()


@contextmanager
def _at_places(head: Any, places: torch.Tensor) -> Iterator[None]:
    """Pass a head the hidden states of these places alone, as one row."""

    def select(_: Any, args: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
        hidden = args[0].flatten(0, 1)
        return (hidden[places.to(hidden.device)][None], *args[1:])

    handle = head.register_forward_pre_hook(select)
    try:
        yield
    finally:
        handle.remove()


BatchSize: TypeAlias = int | Literal["auto"]


# Processors are not faster with more, only the caches are missed.
_TOKENS_CPU = 1024


# Accelerators are as busy as they get with so many, if the memory is there.
_TOKENS = 32768


@dataclass(frozen=True)
class Budget:
    """The size limit of one pass."""

    tokens: int  # padding counts
    rows: int | None = None  # in the place of tokens, if the user said so

    def rows_of(self, length: int) -> int:
        """Return how many rows of so many tokens make one pass, at least one."""
        return self.rows or max(1, self.tokens // length)


def budget_of(batch_size: BatchSize, device: torch.device) -> Budget:
    """Read ``batch_size`` of the configuration."""
    tokens = _TOKENS_CPU if device.type == "cpu" else _TOKENS
    return Budget(tokens, None if batch_size == "auto" else batch_size)


def found_by_trying(budget: Budget, attempt: Callable[[Budget], None]) -> Budget:
    """Halve the number of tokens until an attempt fits in memory.

    Raises:
        torch.OutOfMemoryError: one token does not fit.
    """
    while True:
        try:
            attempt(budget)
        except torch.OutOfMemoryError:
            if budget.tokens == 1:
                raise
        else:
            return budget
        torch.cuda.empty_cache()
        budget = Budget(budget.tokens // 2)
        logger.info("out of memory: at most %d tokens are read at once", budget.tokens)


# One log-likelihood, and whether each of its tokens is the most likely one.
Likelihood = tuple[float, bool]


_CHECKED = 4  # trees that are compared with their paths


_MOST_CHECKED = 2048  # tokens of these


# How far the same may be apart, of itself plus one, by rounding alone: sums of dozens
# of nats are off by hundredths in half precision.
_TOLERANCE = {torch.float32: 1e-4, torch.float64: 1e-6}


_HALF = 0.05


# Positions are turned by the longest request there is, so not by its own length.
_ROPES_BY_LENGTH = {"dynamic", "longrope"}


@dataclass(frozen=True, eq=False)
class Likelihoods:
    """Scores of requests under a model, in batches independent of other tasks."""

    model: PreTrainedModel
    predicted: NextTokens
    budget: Budget
    width: int | None  # as ``grow_trees`` has it

    def score_all(self, requests: Sequence[Request]) -> list[Likelihood]:
        """Score requests, the same ones once."""
        distinct = list(dict.fromkeys(requests))
        batches, known = self.batches(distinct), dict[Request, Likelihood]()
        for number, batch in enumerate(batches, start=1):
            found = self.score(batch, distinct)
            known |= {distinct[index]: score for index, score in found.items()}
            step(number, len(batches))
        return [known[request] for request in requests]

    def batches(self, requests: Sequence[Request]) -> list[list[Tree]]:
        """Arrange requests; a batch is independent of all others."""
        tokens, rows = self._tokens(), self.budget.rows
        return arrange(tuple(requests), width=self.width, tokens=tokens, rows=rows)

    def score(
        self, trees: Sequence[Tree], requests: Sequence[Request]
    ) -> dict[int, Likelihood]:
        """Score a batch, by number of request."""
        tokens = padded([tree.tokens for tree in trees], 0)
        asked = [index for tree in trees for index, _ in tree.scored]
        owners = np.repeat(
            np.arange(len(asked)), [len(requests[index].targets) for index in asked]
        )
        targets = np.array([t for index in asked for t in requests[index].targets])
        flat = scored_places(trees, tokens.shape[1])
        places, where = np.unique(flat, return_inverse=True)
        found, best = self._log_chances(trees, tokens, places, where, targets)
        sums = np.bincount(owners, weights=found, minlength=len(asked))
        missed = np.bincount(owners, weights=~best, minlength=len(asked))
        scores = zip(sums.tolist(), (missed == 0).tolist(), strict=True)
        return dict(zip(asked, scores, strict=True))

    def _tokens(self) -> int:
        if self.predicted.bounded:
            return self.budget.tokens
        return min(self.budget.tokens, self.predicted.most)

    def _log_chances(
        self, trees: Sequence[Tree], tokens: Any, places: Any, where: Any, targets: Any
    ) -> tuple[Any, Any]:
        """Return the log-probability of each target, and whether none is likelier."""
        found, best = np.empty(len(targets)), np.empty(len(targets), bool)
        device, start = self.model.device, 0
        with torch.inference_mode():
            inputs = _inputs(trees, tokens, self.model)
            for logits in self.predicted.logits(
                inputs, torch.from_numpy(places).to(device)
            ):
                end = start + len(logits)
                mine = np.flatnonzero((where >= start) & (where < end))
                rows = torch.from_numpy(where[mine] - start).to(logits.device)
                goals = torch.from_numpy(targets[mine]).to(logits.device)
                known = logits.float()
                chances = known[rows, goals] - known.logsumexp(-1)[rows]
                found[mine] = chances.cpu().numpy()
                best[mine] = (known.argmax(-1)[rows] == goals).cpu().numpy()
                start = end
        return found, best


def likelihoods(model: PreTrainedModel, budget: Budget) -> Likelihoods:
    """Return a scorer of requests under a model."""
    width = model.config.get_text_config().hidden_size
    return Likelihoods(model, next_tokens(model), budget, width)


def checked(scores: Likelihoods, requests: Sequence[Request], name: str) -> Likelihoods:
    """Disable trees of tokens where the model does not read them as their paths."""
    reason = _reason(scores.model, requests) or _difference(scores, requests)
    if reason is None:
        return scores
    logger.warning(
        "task %r: requests are scored one by one, what they begin with in common too: "
        "%s",
        *(name, reason),
    )
    return replace(scores, width=None)


def fitted(scores: Likelihoods, requests: Sequence[Request]) -> Likelihoods:
    """Find how many tokens fit in an accelerator's memory, by the largest passes."""
    if scores.model.device.type == "cpu" or scores.budget.rows is not None:
        return scores

    def attempt(budget: Budget) -> None:
        trying = replace(scores, budget=budget)
        batches = trying.batches(requests)
        for branches in (True, False):
            kind = [batch for batch in batches if batch[0].branches == branches]
            for batch in kind[:1]:
                trying.score(batch, requests)

    return replace(scores, budget=found_by_trying(scores.budget, attempt))


def _reason(model: PreTrainedModel, requests: Sequence[Request]) -> str | None:
    """Return the settings of a model that a few short requests may not reveal."""
    config: Any = model.config.get_text_config()
    longest = max((len(r.inputs) for r in requests), default=0)
    for key in ("sliding_window", "attention_chunk_size"):
        window = getattr(config, key, None)
        if window is not None and longest > window:
            return f"{key} is {window}, and a request has {longest} tokens"
    ropes: Any = getattr(config, "rope_parameters", None) or {}
    kinds = {ropes.get("rope_type")} | {
        rope.get("rope_type") for rope in ropes.values() if isinstance(rope, Mapping)
    }
    if kinds & _ROPES_BY_LENGTH:
        return "rotations depend on the length of what is read"
    return None


def _difference(scores: Likelihoods, requests: Sequence[Request]) -> str | None:
    """Compare a few trees with their paths; return how they differ."""
    trees = _to_check(scores, requests)
    if not trees:
        return None
    indices = [index for tree in trees for index, _ in tree.scored]
    plain = replace(scores, width=None)
    some = [requests[index] for index in indices]
    expected = plain.score_all(some)
    try:
        found = scores.score(trees, requests)
    except Exception as error:  # noqa: BLE001 - code of any model, on a mask of ours
        return f"{type(error).__name__} on a mask of its own"
    one = np.array([score for score, _ in expected])
    other = np.array([found[index][0] for index in indices])
    tolerance = _TOLERANCE.get(scores.model.dtype, _HALF)
    if np.allclose(other, one, rtol=tolerance, atol=tolerance, equal_nan=True):
        return None
    return (
        f"log-likelihoods differ by {np.nanmax(abs(one - other)):.2g} from those of "
        "requests by themselves"
    )


def _to_check(scores: Likelihoods, requests: Sequence[Request]) -> list[Tree]:
    """Return the longest tree that is not too long, and some of the shortest."""
    trees = [
        tree
        for batch in scores.batches(requests)
        for tree in batch
        if tree.branches and len(tree.tokens) <= _MOST_CHECKED
    ]
    trees.sort(key=lambda tree: -len(tree.tokens))
    return trees[:1] + trees[1:][-_CHECKED + 1 :]


def _inputs(
    trees: Sequence[Tree], tokens: Any, model: PreTrainedModel
) -> dict[str, torch.Tensor]:
    device = model.device
    inputs = {"input_ids": torch.from_numpy(tokens).to(device)}
    if not trees[0].branches:  # what is padded comes last, and is seen by nothing
        return inputs
    depths = torch.from_numpy(padded([tree.depths for tree in trees], 0))
    ends = torch.from_numpy(padded([tree.ends for tree in trees])).to(device)
    place = torch.arange(tokens.shape[1], device=device)
    seen = (place <= place[:, None]) & (place[:, None] < ends[:, None, :])
    # Added to the scores of attention: every implementation in torch takes it so.
    mask = torch.zeros(seen.shape, dtype=model.dtype, device=device)
    mask.masked_fill_(~seen, torch.finfo(model.dtype).min)
    inputs["position_ids"] = depths.to(device)
    inputs["attention_mask"] = mask[:, None]
    return inputs
