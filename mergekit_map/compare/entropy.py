"""How unsure a model is of what comes next: AdaMerging's objective, without labels.

The entropy of the distribution over the next token, in nats, at every position that the
loss of the same text would score, averaged over a text and then over the texts. The
paper that this is from (Yang et al., ICLR 2024) takes that of image classes.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from transformers import PreTrainedModel

from mergekit_map.measurement import Differentiate, Measure, Measurement
from mergekit_map.tasks.blocks import NOT_SCORED, Blocks, make_blocks
from mergekit_map.tasks.fingerprint import fingerprint
from mergekit_map.tasks.perplexity import PerplexityText

_BLOCK = 256
# Of each text and step. The original takes a batch of 16 images per task and step; a
# position of text is an item here, and neighbours say much the same.
_MAX_TOKENS = 4096
_ROWS = 4  # passed through the model at a time


def entropy_fingerprint(texts: Mapping[str, PerplexityText]) -> str:
    """Name all that decides the value, except the model."""
    # The number is the version of this module's definition of the value.
    parts = [text.fingerprint for text in texts.values()]
    return fingerprint("next-token entropy", 1, _BLOCK, _MAX_TOKENS, parts)


def prepare_entropy(
    texts: Mapping[str, PerplexityText],
    model: PreTrainedModel,
    tokenizer: Any,
    differentiate: Differentiate,
) -> Measure:
    """Tokenise once; each measurement has a derivative by each coefficient."""
    longest = getattr(model.config.get_text_config(), "max_position_embeddings", None)
    blocks = [
        make_blocks(
            text.documents,
            tokenizer,
            length=min(_BLOCK, longest or _BLOCK),
            max_tokens=min(_MAX_TOKENS, text.max_tokens),
        )
        for text in texts.values()
    ]
    return functools.partial(_measure, model, blocks, differentiate)


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
    """Add up the entropies at the positions that are scored."""
    logits = model(input_ids=inputs.to(model.device), use_cache=False).logits
    scored = (targets != NOT_SCORED).to(logits.device)
    # It knows that what has no probability adds nothing and passes nothing back.
    predicted = torch.distributions.Categorical(logits=logits[scored].float())
    entropies: torch.Tensor = predicted.entropy()  # type: ignore[no-untyped-call]
    return entropies.sum()
