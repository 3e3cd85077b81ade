"""Log-likelihoods of requests under a model in memory, at the speed of its matmuls.

What requests begin with in common is computed once, those of one length are computed
together, and logits only where something is scored. Models that do not see a tree of
tokens as its paths (recurrent ones, windows shorter than a request, code of their own)
read each request by itself.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from transformers import PreTrainedModel

from mergekit_map.tasks.next_tokens import NextTokens, next_tokens
from mergekit_map.tasks.token_budget import Budget, found_by_trying, in_halves
from mergekit_map.tasks.token_trees import (
    Request,
    Tree,
    grow_trees,
    in_batches,
    padded,
    scored_places,
)

logger = logging.getLogger(__name__)

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
    """Scores requests on a model as it is, in batches that depend on nothing else."""

    model: PreTrainedModel
    predicted: NextTokens
    budget: Budget
    width: int | None  # as ``grow_trees`` has it

    def batches(self, requests: Sequence[Request]) -> list[list[Tree]]:
        """Arrange requests; a batch is independent of all others."""
        tokens = self._tokens()
        trees = grow_trees(requests, width=self.width, longest=tokens)
        return in_batches(trees, tokens=tokens, rows=self.budget.rows)

    def score(
        self, trees: Sequence[Tree], requests: Sequence[Request]
    ) -> dict[int, Likelihood]:
        """Score a batch, by number of request."""
        asked = [index for tree in trees for index, _ in tree.scored]
        found = in_halves(lambda some: self._score(some, requests), trees)
        return {
            index: (total, best == 1)
            for index, (total, best) in zip(asked, found.tolist(), strict=True)
        }

    def _tokens(self) -> int:
        if self.predicted.bounded:
            return self.budget.tokens
        return min(self.budget.tokens, self.predicted.most)

    def _score(
        self, trees: Sequence[Tree], requests: Sequence[Request]
    ) -> torch.Tensor:
        """Give log-likelihoods, and 1 where all tokens are the likeliest, (n, 2)."""
        tokens = padded([tree.tokens for tree in trees], 0)
        pairs = list(scored_places(trees, tokens.shape[1]))
        asked = [index for tree in trees for index, _ in tree.scored]
        owners = np.repeat(
            np.arange(len(asked)), [len(requests[index].targets) for index in asked]
        )
        targets = np.array([t for index in asked for t in requests[index].targets])
        places, where = np.unique([place for _, place in pairs], return_inverse=True)
        found, best = self._log_chances(trees, tokens, places, where, targets)
        sums = np.bincount(owners, weights=found, minlength=len(asked))
        missed = np.bincount(owners, weights=~best, minlength=len(asked))
        return torch.from_numpy(np.stack([sums, missed == 0], axis=1))

    def _log_chances(
        self,
        trees: Sequence[Tree],
        tokens: Any,
        places: Any,
        where: Any,
        targets: Any,
    ) -> tuple[Any, Any]:
        """Give the log-probability of each target, and whether none is likelier."""
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
    """Get ready to score on a model."""
    width = model.config.get_text_config().hidden_size
    return Likelihoods(model, next_tokens(model), budget, width)


def checked(scores: Likelihoods, requests: Sequence[Request], name: str) -> Likelihoods:
    """Give up trees of tokens where the model does not read them as their paths."""
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
    """Find how many tokens an accelerator has the memory for, by its fullest passes."""
    if scores.model.device.type == "cpu" or scores.budget.rows is not None:
        return scores

    def attempt(budget: Budget) -> None:
        trying = replace(scores, budget=budget)
        batches = trying.batches(requests)
        for branches in (True, False):
            kind = [batch for batch in batches if batch[0].branches == branches]
            for batch in kind[:1]:
                trying._score(batch, requests)

    return replace(scores, budget=found_by_trying(scores.budget, attempt))


def _reason(model: PreTrainedModel, requests: Sequence[Request]) -> str | None:
    """Say what stands in a configuration that a few short requests may not show."""
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
    """Compare a few trees with their paths; say how they differ."""
    trees = _to_check(scores, requests)
    if not trees:
        return None
    indices = [index for tree in trees for index, _ in tree.scored]
    plain = replace(scores, width=None)
    some = [requests[index] for index in indices]
    expected: dict[int, Likelihood] = {}
    for batch in plain.batches(some):
        expected |= plain.score(batch, some)
    try:
        found = scores.score(trees, requests)
    except Exception as error:  # noqa: BLE001 - code of any model, on a mask of ours
        return f"{type(error).__name__} on a mask of its own"
    one = np.array([expected[place][0] for place in range(len(indices))])
    other = np.array([found[index][0] for index in indices])
    tolerance = _TOLERANCE.get(scores.model.dtype, _HALF)
    if np.allclose(other, one, rtol=tolerance, atol=tolerance, equal_nan=True):
        return None
    return (
        f"log-likelihoods differ by {np.nanmax(abs(one - other)):.2g} from those of "
        "requests by themselves"
    )


def _to_check(scores: Likelihoods, requests: Sequence[Request]) -> list[Tree]:
    """Take the longest tree that is not too long, and some of the shortest."""
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
