"""Logits where they are wanted and nowhere else, and never many at a time.

With a vocabulary of 128 000, the logits of 512 tokens are 250 MB, and most of them are
of tokens that nobody asked about.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import torch
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint
from transformers import PreTrainedModel

from mergekit_map.tasks.kept_memory import LARGEST

logger = logging.getLogger(__name__)

# ``head``: the head of the model on its last hidden states; ``selected``: the model
# itself, its head shown some hidden states alone; ``all``: the logits of all places.
Way: TypeAlias = Literal["head", "selected", "all"]
_WAYS: tuple[Way, ...] = ("head", "selected")
# Logits that are held at once, as float32. Processors are slower with more than the
# allocator keeps, and with much less, as each time the whole head is read.
MOST_BYTES_CPU = LARGEST * 3 // 4
MOST_BYTES = 256 << 20


@dataclass(frozen=True, eq=False)
class NextTokens:
    """What a model predicts, by the least work that gives its own logits."""

    model: PreTrainedModel
    way: Way
    most: int  # places whose logits are held at once

    def logits(
        self, inputs: Mapping[str, torch.Tensor], places: torch.Tensor
    ) -> Iterator[torch.Tensor]:
        """Give the logits at rising places of the flattened input ids, in chunks.

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
            with _shown(_head(self.model), places):
                found = self.model(**inputs, use_cache=False).logits[0]
        else:
            logits = self.model(**inputs, use_cache=False).logits.flatten(0, 1)
            found = logits[places.to(logits.device)]
        yield from torch.split(found, self.most)

    def losses(
        self, inputs: Mapping[str, torch.Tensor], targets: torch.Tensor
    ) -> torch.Tensor:
        """Give the cross-entropy of the target at every place, 0 where there is none.

        On a way back through the model, logits of one chunk at a time are there too.
        """
        goals = targets.flatten()
        if self.way != "head":
            places = torch.arange(len(goals), device=goals.device)
            pairs = zip(
                self.logits(inputs, places), torch.split(goals, self.most), strict=True
            )
            return torch.cat([_loss(logits, goal) for logits, goal in pairs])
        head, hidden = _head(self.model), self._hidden(inputs)
        if len(goals) <= self.most:
            return _loss(_predict(head, hidden), goals)
        chunks = zip(
            torch.split(hidden, self.most), torch.split(goals, self.most), strict=True
        )
        if not torch.is_grad_enabled():
            return torch.cat([_loss(_predict(head, h), goal) for h, goal in chunks])
        return torch.cat(
            [
                checkpoint(_head_loss, head, some, goal, use_reentrant=False)
                for some, goal in chunks
            ]
        )

    def _hidden(self, inputs: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """Give the last hidden states of all places; (places, width)."""
        # Not every base model that can leave its cache out takes it as an option.
        hidden: torch.Tensor = self.model.base_model(**inputs, use_cache=False)[0]
        return hidden.flatten(0, 1)

    @property
    def bounded(self) -> bool:
        """Tell whether logits are bounded however large a batch is."""
        return self.way == "head"


def next_tokens(model: PreTrainedModel) -> NextTokens:
    """Find the way with the least work, by trying it on a few tokens."""
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
    """Tell whether a way gives the bits of the model itself, of all places."""
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
def _shown(head: Any, places: torch.Tensor) -> Iterator[None]:
    """Show a head the hidden states of these places alone, as one row."""

    def select(_: Any, args: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
        hidden = args[0].flatten(0, 1)
        return (hidden[places.to(hidden.device)][None], *args[1:])

    handle = head.register_forward_pre_hook(select)
    try:
        yield
    finally:
        handle.remove()
