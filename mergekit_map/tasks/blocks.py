"""Text as fixed blocks of tokens, each token to be predicted exactly once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

NOT_SCORED = -100  # torch's own default of ``ignore_index``

_SHORT = 1 << 16  # characters that are always cut into tokens
_CHARACTERS = 8  # for a token that is wanted, more than most have
_UNSURE = 256  # tokens at the end of a text that goes on


@dataclass(frozen=True, eq=False)
class Blocks:
    """Rows of input tokens and, at each position, the token to predict."""

    inputs: torch.Tensor  # (n, length) int64
    targets: torch.Tensor  # (n, length) int64, NOT_SCORED where nothing is predicted

    def some(self, rows: Sequence[int]) -> Blocks:
        """Take these rows; of a range without a copy."""
        which: slice | list[int] = list(rows)
        if isinstance(rows, range) and rows.step == 1:
            which = slice(rows.start, rows.stop)
        return Blocks(self.inputs[which], self.targets[which])


def make_blocks(
    documents: Iterable[str], tokenizer: Any, *, length: int, max_tokens: int
) -> Blocks:
    """Concatenate the documents to one stream of tokens and cut it into blocks.

    Before each document stands one BOS (or EOS, where there is no BOS) that is never
    predicted; with neither, the first token of each document is not predicted. The
    stream ends after ``max_tokens`` positions, these separators included. The last
    block is shifted left to full length and what it repeats is not scored again; a
    stream shorter than ``length`` is one short block. No rows if nothing is scored.
    """
    tokens, scored = _make_stream(documents, tokenizer, max_tokens + 1)
    targets = torch.where(scored, tokens, NOT_SCORED)[1:]
    inputs = tokens[:-1]
    length = min(length, len(inputs))
    if length == 0:
        return Blocks(inputs.reshape(0, 1), targets.reshape(0, 1))
    starts = torch.arange(0, len(inputs), length).clamp(max=len(inputs) - length)
    positions = starts[:, None] + torch.arange(length)  # (n, length)
    goals = targets[positions]
    goals[-1, : -len(inputs) % length] = NOT_SCORED
    keep = (goals != NOT_SCORED).any(dim=1)
    return Blocks(inputs[positions[keep]], goals[keep])


def _make_stream(
    documents: Iterable[str], tokenizer: Any, max_length: int
) -> tuple[torch.Tensor, torch.Tensor]:
    prefix = tokenizer.bos_token_id
    if prefix is None:
        prefix = tokenizer.eos_token_id
    tokens: list[int] = []
    scored: list[bool] = []
    for document in documents:
        if len(tokens) >= max_length:
            break
        ids = _first_tokens(document, tokenizer, max_length - len(tokens))
        if prefix is not None:
            ids = [prefix, *ids]
        tokens += ids
        scored += [position > 0 for position in range(len(ids))]
    return (
        torch.tensor(tokens[:max_length], dtype=torch.int64),
        torch.tensor(scored[:max_length], dtype=torch.bool),
    )


def _first_tokens(document: str, tokenizer: Any, wanted: int) -> list[int]:
    """Give at least so many tokens of a document, or all it has.

    Of a long one only the beginning is cut into tokens, and the last of them are left
    out: they may be parts of others. One text of 20 MB has 4 GB of tokens.
    """
    size = max(_SHORT, wanted * _CHARACTERS)
    while True:
        # verbose=False: no advice that the text is longer than the model's context.
        found: list[int] = tokenizer(
            document[:size], add_special_tokens=False, verbose=False
        )["input_ids"]
        if size >= len(document):
            return found
        if len(found) >= wanted + _UNSURE:
            return found[:-_UNSURE]
        size *= 4
