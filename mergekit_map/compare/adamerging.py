"""AdaMerging: coefficients that make the merge sure of itself (Yang et al., ICLR 2024).

No labels: Adam goes down the mean entropy of what the merge predicts, from 0.3 each, on
a batch of 16 items of every task per step. A coefficient is one of a model, or of a
layer of a model. Every step is a line of the log, with its derivatives, so that a
descent which was stopped goes on where it was.

The entropy is that of the distribution over the next token, in nats, at every position
that the loss of the same text would score, averaged over a text and then over the
texts. The paper takes that of image classes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from transformers import PreTrainedModel

from mergekit_map.errors import EvaluationError
from mergekit_map.measurement import Differentiate, Measure, Measurement
from mergekit_map.results.log import evaluation_key
from mergekit_map.results.opened_log import EvaluationLog
from mergekit_map.study.measuring import matching
from mergekit_map.study.study import Study
from mergekit_map.tasks.blocks import NOT_SCORED, Blocks, make_blocks
from mergekit_map.tasks.fingerprint import fingerprint
from mergekit_map.tasks.perplexity import PerplexityText
from mergekit_map.tasks.prepared_task import with_derivatives

START = 0.3  # of every coefficient, as in AdaMerging's own experiments
_RATE = 1e-3  # theirs, too, with 500 steps
_REACH = 0.5  # that is as far as they can come; fewer steps are longer
_DECAYS = (0.9, 0.999)
_TINY = 1e-8

_BLOCK = 256
_BATCH = 16  # blocks of each text and step, where it has more
_ROWS = 4  # passed through the model at a time


def minimise_entropy(
    study: Study,
    log: EvaluationLog,
    measure: Callable[[Mapping[str, float]], object],
    steps: int,
) -> dict[str, float]:
    """Go down the only task of ``study``; returns the coefficients after ``steps``.

    ``measure`` leaves a measurement with its gradient in the log, unless it is there.
    Coefficients stay in [0, 1], as in the authors' program.
    """
    (task,) = study.tasks
    rate = max(_RATE, _REACH / steps)
    c = np.full(len(study.bounds), START)
    mean, square = np.zeros_like(c), np.zeros_like(c)
    for step in range(1, steps + 1):
        named = study.named(c)
        measure(named)
        slope = study.vector(_gradient(study, log, task, named))
        mean = _DECAYS[0] * mean + (1 - _DECAYS[0]) * slope
        square = _DECAYS[1] * square + (1 - _DECAYS[1]) * slope**2
        unbiased = mean / (1 - _DECAYS[0] ** step)
        scale = np.sqrt(square / (1 - _DECAYS[1] ** step)) + _TINY
        c = np.clip(c - rate * unbiased / scale, 0.0, 1.0)
    return study.named(c)


def _gradient(
    study: Study, log: EvaluationLog, task: str, coefficients: Mapping[str, float]
) -> Mapping[str, float]:
    key = evaluation_key(coefficients, task)
    for e in reversed(matching(study, log)):
        slopes = e.gradient or {}
        if e.key == key and slopes and all(map(math.isfinite, slopes.values())):
            return slopes
    raise EvaluationError(
        f"the entropy at {dict(coefficients)} has no finite derivatives; see the last "
        f"lines of {log.path}"
    )


def entropy_fingerprint(texts: Mapping[str, PerplexityText]) -> str:
    """Name all that decides the value, except the model."""
    # The number is the version of this module's definition of the value.
    parts = [text.fingerprint for text in texts.values()]
    return fingerprint("next-token entropy", 2, _BLOCK, _BATCH, parts)


def drawn_by(coefficients: Mapping[str, float]) -> np.random.Generator:
    """Make what draws the batch of a step, the same whenever that is taken again."""
    return np.random.default_rng(np.array([*coefficients.values()]).view(np.uint64))


def prepare_entropy(
    texts: Mapping[str, PerplexityText],
    model: PreTrainedModel,
    tokenizer: Any,
    differentiate: Differentiate,
    draws: Callable[[], np.random.Generator],
) -> Measure:
    """Tokenise once; each measurement has a derivative by each coefficient.

    ``draws`` gives the generator of a measurement, which draws its batch.
    """
    longest = getattr(model.config.get_text_config(), "max_position_embeddings", None)
    blocks = [
        make_blocks(
            text.documents,
            tokenizer,
            length=min(_BLOCK, longest or _BLOCK),
            max_tokens=text.max_tokens,
        )
        for text in texts.values()
    ]

    def run() -> Measurement:
        rng = draws()
        batch = [_drawn(text, rng) for text in blocks]
        return _measure(model, batch, differentiate)

    return with_derivatives(run, sum(len(text.inputs) for text in blocks))


def _drawn(text: Blocks, rng: np.random.Generator) -> Blocks:
    if len(text.inputs) <= _BATCH:
        return text
    rows = np.sort(rng.choice(len(text.inputs), _BATCH, replace=False))
    return text.some(rows.tolist())


def _measure(
    model: PreTrainedModel, texts: Sequence[Blocks], differentiate: Differentiate
) -> Measurement:
    total = 0.0
    with differentiate() as derivatives:
        for text in texts:
            weight = 1 / (len(texts) * int((text.targets != NOT_SCORED).sum()))
            for inputs, targets in zip(
                torch.split(text.inputs, _ROWS),
                torch.split(text.targets, _ROWS),
                strict=True,
            ):
                entropy = weight * _entropy(model, inputs, targets)
                entropy.backward()  # type: ignore[no-untyped-call]
                total += entropy.item()
    count = sum(len(text.inputs) for text in texts)
    return Measurement(total, None, count, gradient=dict(derivatives))


def _entropy(
    model: PreTrainedModel, inputs: torch.Tensor, targets: torch.Tensor
) -> torch.Tensor:
    logits = model(input_ids=inputs.to(model.device), use_cache=False).logits
    scored = (targets != NOT_SCORED).to(logits.device)
    # It knows that what has no probability adds nothing and passes nothing back.
    predicted = torch.distributions.Categorical(logits=logits[scored].float())
    entropies: torch.Tensor = predicted.entropy()  # type: ignore[no-untyped-call]
    return entropies.sum()
