"""Mean token loss of own text: cross-entropy in nats per token, over fixed blocks.

With one tokenizer, which all merges of one base share, this orders models as
perplexity does, but its error is additive and its scale is that of a log-likelihood.
Each token of a block is predicted exactly once. Blocks follow the rolling windows of
lm-evaluation-harness: for one document the total equals its ``loglikelihood_rolling``
with ``add_bos_token=False``.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from transformers import PreTrainedModel

from mergekit_map.config.tasks import PerplexityTask
from mergekit_map.errors import EvaluationError
from mergekit_map.tasks.base import (
    Documents,
    PreparedTask,
    fingerprint,
    ratio_standard_error,
)
from mergekit_map.tasks.loglikelihood import (
    BatchSize,
    Budget,
    NextTokens,
    budget_of,
    found_by_trying,
    next_tokens,
)
from mergekit_map.tasks.text import read_documents
from mergekit_map.types import (
    NATS,
    Answers,
    Differentiate,
    Measure,
    Measurement,
    Metric,
)
from mergekit_map.utils.progress import step

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
        """Return these rows; a range makes no copy."""
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
    """Return at least so many tokens of a document, or all it has.

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


_DEFAULT_BLOCK = 512
_METRIC = Metric(
    higher_is_better=False, lower=0.0, upper=None, unit=NATS, differentiable=True
)


@dataclass(frozen=True)
class PerplexityText:
    """Documents whose mean token loss is measured."""

    name: str
    documents: tuple[str, ...]
    max_tokens: int
    block: int | None  # None: min(512, the model's longest input)
    fingerprint: str
    metric: Metric = _METRIC
    partial: bool = True  # whether some blocks can be measured


def load_perplexity(name: str, spec: PerplexityTask, directory: Path) -> PerplexityText:
    """Read the documents.

    Raises:
        InvalidTask: see ``read_documents``.
    """
    documents = read_documents(spec.perplexity, directory)
    # The number is the version of this module's definition of the value.
    identity = fingerprint("perplexity", 1, spec.max_tokens, spec.block, documents)
    return PerplexityText(name, documents, spec.max_tokens, spec.block, identity)


def prepare_perplexity(
    task: PerplexityText,
    model: PreTrainedModel,
    tokenizer: Any,
    batch_size: BatchSize = "auto",
    differentiate: Differentiate | None = None,
) -> Measure:
    """Tokenise once and put the blocks on the model's device.

    The measurement's ``n`` counts blocks in which something is scored, its standard
    error takes blocks as independent, and its samples give each block's mean loss.
    With ``differentiate`` it has a gradient.

    Raises:
        EvaluationError: nothing to predict, or the model cannot read the blocks.
    """
    blocks = _blocks(task, model.config, tokenizer)
    embeddings = model.get_input_embeddings().weight
    assert isinstance(embeddings, torch.Tensor)
    vocabulary = len(embeddings)
    _check(blocks, vocabulary)
    on_device = Blocks(blocks.inputs.to(model.device), blocks.targets.to(model.device))
    n = len(blocks.inputs)
    predicted = next_tokens(model)
    rows = _rows(predicted, on_device, batch_size, goes_back=differentiate is not None)
    text = _Text(predicted, on_device, rows)
    if differentiate is None:
        return PreparedTask(text.measure, n)
    return PreparedTask(functools.partial(_with_gradient, text, differentiate), n)


def count_blocks(task: PerplexityText, config: Any, tokenizer: Any, most: int) -> int:
    """Count the blocks of a text, up to some more than ``most``.

    Raises:
        EvaluationError: the model cannot read the blocks.
    """
    return len(_blocks(task, config, tokenizer, most).inputs)


def _blocks(
    task: PerplexityText, config: Any, tokenizer: Any, most: int | None = None
) -> Blocks:
    longest = getattr(config.get_text_config(), "max_position_embeddings", None)
    if task.block is not None and longest is not None and task.block > longest:
        raise EvaluationError(
            f"block must be at most the model's {longest} positions, got {task.block}; "
            "lower it or leave it out"
        )
    length = task.block or min(_DEFAULT_BLOCK, longest or _DEFAULT_BLOCK)
    tokens = task.max_tokens if most is None else min(task.max_tokens, most * length)
    return make_blocks(task.documents, tokenizer, length=length, max_tokens=tokens)


def _rows(
    predicted: NextTokens, blocks: Blocks, batch_size: BatchSize, *, goes_back: bool
) -> int:
    """Return the number of blocks of one pass."""
    device, length = predicted.model.device, blocks.inputs.shape[1]
    budget = budget_of(batch_size, device)
    # The way back on an accelerator holds what every layer found.
    if not predicted.bounded or (goes_back and device.type != "cpu"):
        return min(budget.rows_of(length), max(1, predicted.most // length))
    if device.type != "cpu" and budget.rows is None:
        budget = found_by_trying(budget, functools.partial(_try, predicted, blocks))
    return budget.rows_of(length)


def _try(predicted: NextTokens, blocks: Blocks, budget: Budget) -> None:
    """Make one pass to check that it fits in memory."""
    count = min(len(blocks.inputs), budget.rows_of(blocks.inputs.shape[1]))
    rows = blocks.some(range(count))
    with torch.inference_mode():
        predicted.losses({"input_ids": rows.inputs}, rows.targets)


def _check(blocks: Blocks, vocabulary: int) -> None:
    if len(blocks.inputs) == 0:
        raise EvaluationError(
            "the text must have at least 2 tokens, a leading BOS included, so that one "
            "is predicted; give more text"
        )
    largest = int(torch.maximum(blocks.inputs.max(), blocks.targets.max()))
    if largest >= vocabulary:
        raise EvaluationError(
            f"the tokenizer gives token {largest}, but the model has embeddings for "
            f"{vocabulary} tokens; use the tokenizer the model was made with"
        )


@dataclass(frozen=True, eq=False)
class _Text:
    """The blocks of a task on the device of the model, and their number in one pass."""

    predicted: NextTokens
    blocks: Blocks
    rows: int

    def measure(self, documents: Documents) -> Measurement:
        """Average the losses over the tokens of all blocks, or of some."""
        losses, passes = list[float](), self.passes(documents)
        for number, rows in enumerate(passes, start=1):
            losses += self.losses(rows)
            step(number, len(passes))
        return self.average(documents, losses)

    def passes(self, documents: Documents) -> list[Sequence[int]]:
        """Divide blocks into passes."""
        ids = self._ids(documents)
        return [ids[i : i + self.rows] for i in range(0, len(ids), self.rows)]

    def losses(self, rows: Sequence[int]) -> list[float]:
        """Sum the losses of each block of one pass."""
        with torch.inference_mode():
            return self.loss(rows).tolist()

    def loss(self, rows: Sequence[int], *, backward: bool = False) -> torch.Tensor:
        """Sum the losses of each block of one pass; (rows,) float64 on the CPU.

        With ``backward`` the sum of all is passed back through the model.

        Positions that are not scored get logits all the same: they are at most one
        block and the separators, and not every architecture can leave them out.
        """
        batch = self.blocks.some(rows)
        loss = self.predicted.losses({"input_ids": batch.inputs}, batch.targets)
        if backward:
            loss.sum().backward()  # type: ignore[no-untyped-call]
        # Moved before the sum: not every device has float64.
        return loss.detach().cpu().double().view(batch.targets.shape).sum(dim=1)

    def average(self, documents: Documents, losses: Sequence[float]) -> Measurement:
        """Average the losses of blocks over their tokens."""
        ids = self._ids(documents)
        tokens = (self.blocks.some(ids).targets != NOT_SCORED).sum(dim=1).tolist()
        return _measurement(ids, losses, tokens)

    def _ids(self, documents: Documents) -> Sequence[int]:
        return range(len(self.blocks.inputs)) if documents is None else documents


def _with_gradient(
    text: _Text, differentiate: Differentiate, documents: Documents
) -> Measurement:
    """Measure blocks, with a backward pass after each forward pass.

    Among 17 architectures on a CPU, the losses of each had the bits of those without.
    """
    losses, passes = list[float](), text.passes(documents)
    with differentiate() as derivatives:
        for number, rows in enumerate(passes, start=1):
            losses += text.loss(rows, backward=True).tolist()
            step(number, len(passes))
    measured = text.average(documents, losses)
    tokens = sum(sample["tokens"] for sample in measured.samples)
    gradient = {name: value / tokens for name, value in derivatives.items()}
    return replace(measured, gradient=gradient)


def _measurement(
    ids: Sequence[int], losses: Sequence[float], tokens: Sequence[int]
) -> Measurement:
    value = sum(losses) / sum(tokens)
    means = [loss / count for loss, count in zip(losses, tokens, strict=True)]
    return Measurement(
        value=value,
        stderr=ratio_standard_error(losses, tokens),
        n=len(tokens),
        # torch's exp: infinity where the loss is too large, not an exception.
        details={"perplexity": torch.tensor(value, dtype=torch.float64).exp().item()},
        samples=tuple(
            {"block": i, "loss": mean, "tokens": count}
            for i, mean, count in zip(ids, means, tokens, strict=True)
        ),
        answers=Answers(tuple(ids), tuple(means), tuple(map(float, tokens))),
    )
