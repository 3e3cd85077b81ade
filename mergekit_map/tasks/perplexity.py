"""Mean token loss of own text: cross-entropy in nats per token, over fixed blocks.

With one tokenizer, which all merges of one base share, this orders models as
perplexity does, but its error is additive and its scale is that of a log-likelihood.
Blocks follow the rolling windows of lm-evaluation-harness: for one document the
total equals its ``loglikelihood_rolling`` with ``add_bos_token=False``.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from transformers import PreTrainedModel

from mergekit_map.config.task_specs import PerplexityTask
from mergekit_map.errors import EvaluationError
from mergekit_map.measurement import (
    NATS,
    Answers,
    Differentiate,
    Measure,
    Measurement,
    Metric,
)
from mergekit_map.pulse import step
from mergekit_map.tasks.blocks import NOT_SCORED, Blocks, make_blocks
from mergekit_map.tasks.fingerprint import fingerprint
from mergekit_map.tasks.prepared_task import PreparedTask, with_derivatives
from mergekit_map.tasks.standard_error import ratio_standard_error
from mergekit_map.tasks.text import read_documents

_DEFAULT_BLOCK = 512
# Logits of one forward pass, as float32. Processors are a quarter slower with much
# more, for the allocations; accelerators need larger batches to be busy.
_MAX_LOGIT_BYTES_CPU = 8 << 20
_MAX_LOGIT_BYTES = 256 << 20
_METRIC = Metric(
    higher_is_better=False,
    lower=0.0,
    upper=None,
    unit=NATS,
    differentiable=True,
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


@dataclass(frozen=True)
class _WayBack:
    """How to go back through the model, for derivatives."""

    differentiate: Differentiate
    keeps_bits: bool  # whether losses on the way there are those of measuring alone


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
    differentiate: Differentiate | None = None,
) -> Measure:
    """Tokenise once and put the blocks on the model's device.

    The measurement's ``n`` counts blocks in which something is scored, its standard
    error takes blocks as independent, and its samples give each block's mean loss.
    With ``differentiate`` it has a gradient, and the same value to the last bit.

    Raises:
        EvaluationError: nothing to predict, or the model cannot read the blocks.
    """
    config = model.config.get_text_config()
    longest = getattr(config, "max_position_embeddings", None)
    if task.block is not None and longest is not None and task.block > longest:
        raise EvaluationError(
            f"block must be at most the model's {longest} positions, got {task.block}; "
            "lower it or leave it out"
        )
    length = task.block or min(_DEFAULT_BLOCK, longest or _DEFAULT_BLOCK)
    blocks = make_blocks(
        task.documents, tokenizer, length=length, max_tokens=task.max_tokens
    )
    embeddings = model.get_input_embeddings().weight
    assert isinstance(embeddings, torch.Tensor)
    vocabulary = len(embeddings)
    _check(blocks, vocabulary)
    on_cpu = model.device.type == "cpu"
    max_bytes = _MAX_LOGIT_BYTES_CPU if on_cpu else _MAX_LOGIT_BYTES
    rows = max(1, max_bytes // (4 * vocabulary * blocks.inputs.shape[1]))
    on_device = Blocks(blocks.inputs.to(model.device), blocks.targets.to(model.device))
    n = len(blocks.inputs)
    if differentiate is None:
        return PreparedTask(functools.partial(_measure, model, on_device, rows), n)
    keeps_bits = _keeps_bits(model, on_device, rows, differentiate)
    way_back = _WayBack(differentiate, keeps_bits)
    run = functools.partial(_measure, model, on_device, rows, way_back=way_back)
    return with_derivatives(run, n)


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


def _measure(
    model: PreTrainedModel,
    all_blocks: Blocks,
    rows: int,
    documents: Sequence[int] | None = None,
    *,
    way_back: _WayBack | None = None,
) -> Measurement:
    """Measure blocks; with a way back, going it through the model after each batch.

    The value is the same, by a pass of its own unless that way keeps its bits.
    """
    ids = range(len(all_blocks.inputs)) if documents is None else documents
    blocks = all_blocks if documents is None else all_blocks.some(documents)
    tokens = (blocks.targets != NOT_SCORED).sum(dim=1).tolist()
    gradient = None
    if way_back is not None:
        with way_back.differentiate() as derivatives:
            losses = _block_losses(model, blocks, rows, backward=True).tolist()
        gradient = {name: value / sum(tokens) for name, value in derivatives.items()}
    if way_back is None or not way_back.keeps_bits:
        with torch.inference_mode():
            losses = _block_losses(model, blocks, rows).tolist()
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
        gradient=gradient,
        answers=Answers(tuple(ids), tuple(means), tuple(map(float, tokens))),
    )


def _keeps_bits(
    model: PreTrainedModel, blocks: Blocks, rows: int, differentiate: Differentiate
) -> bool:
    """Tell whether a pass that can be gone back through has the losses of one that not.

    A library may choose other kernels for it. None did among 17 architectures on a CPU.
    """
    batch = Blocks(blocks.inputs[:rows], blocks.targets[:rows])
    with torch.inference_mode():
        plain = _block_losses(model, batch, rows)
    with differentiate():
        kept = _block_losses(model, batch, rows)
    return torch.equal(plain, kept)


def _block_losses(
    model: PreTrainedModel, blocks: Blocks, rows: int, *, backward: bool = False
) -> torch.Tensor:
    """Sum the losses of each block; (n,) float64 on the CPU.

    With ``backward`` the sum of all losses is passed back through the model.

    Positions that are not scored get logits all the same: they are at most one block
    and the separators, and not every architecture can leave them out.
    """
    losses = []
    for inputs, targets in zip(
        torch.split(blocks.inputs, rows), torch.split(blocks.targets, rows), strict=True
    ):
        loss = _token_losses(model, inputs, targets)
        if backward:
            loss.sum().backward()  # type: ignore[no-untyped-call]
        losses.append(loss.detach())
        step(sum(map(len, losses)) // targets.shape[1], len(blocks.inputs))
    # Moved before the sum: not every device has float64.
    return torch.cat(losses).cpu().double().view(blocks.targets.shape).sum(dim=1)


def _token_losses(
    model: PreTrainedModel, inputs: torch.Tensor, targets: torch.Tensor
) -> torch.Tensor:
    logits = model(input_ids=inputs, use_cache=False).logits.flatten(0, 1)
    goal = targets.flatten().to(logits.device)
    return F.cross_entropy(logits.float(), goal, reduction="none")
