"""The entropy of the next token, where it is known and against differences."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import LlamaForCausalLM

from mergekit_map.compare import adamerging
from mergekit_map.compare.adamerging import (
    drawn_by,
    entropy_fingerprint,
    prepare_entropy,
)
from mergekit_map.config.task_specs import PerplexityTask
from mergekit_map.measurement import Measurement
from mergekit_map.tasks.perplexity import PerplexityText, load_perplexity


@contextmanager
def by_scale(model: LlamaForCausalLM) -> Iterator[dict[str, float]]:
    """Take the derivative by a factor on the last layer, as a merge would."""
    weight = model.lm_head.weight
    weight.requires_grad = True
    derivatives = {"scale": 0.0}
    yield derivatives
    derivatives["scale"] = float((weight.grad * weight.detach()).sum())
    weight.grad, weight.requires_grad = None, False


def text(folder: Path, name: str, documents: list[str]) -> PerplexityText:
    lines = [json.dumps({"text": document}) for document in documents]
    (folder / f"{name}.jsonl").write_text("\n".join(lines))
    spec = PerplexityTask.model_validate({"perplexity": {"file": f"{name}.jsonl"}})
    return load_perplexity(name, spec, folder)


def entropy(model: LlamaForCausalLM, tokenizer: Any, *texts: Any) -> Measurement:
    named = {t.name: t for t in texts}
    draws = partial(np.random.default_rng, 0)
    return prepare_entropy(named, model, tokenizer, lambda: by_scale(model), draws)()


@pytest.fixture
def one(folder: Path, documents: list[str]) -> PerplexityText:
    return text(folder, "one", documents)


@pytest.fixture
def other(folder: Path) -> PerplexityText:
    return text(folder, "other", ["the cat sat"])


def test_that_of_a_model_that_knows_nothing_is_the_logarithm_of_the_vocabulary(
    model: LlamaForCausalLM, tokenizer: Any, one: PerplexityText
) -> None:
    with torch.no_grad():
        model.lm_head.weight.zero_()

    measured = entropy(model, tokenizer, one)

    assert measured.value == pytest.approx(math.log(len(tokenizer)))
    assert measured.gradient == {"scale": 0}


def test_that_of_a_model_that_is_sure_is_zero(
    model: LlamaForCausalLM, tokenizer: Any, one: PerplexityText
) -> None:
    with torch.no_grad():
        model.lm_head.weight.mul_(1e6)

    assert entropy(model, tokenizer, one).value == pytest.approx(0, abs=1e-4)


def test_derivatives_are_slopes(
    model: LlamaForCausalLM, tokenizer: Any, one: PerplexityText, other: PerplexityText
) -> None:
    measured = entropy(model, tokenizer, one, other)

    step, values = 0.02, []
    for sign in (-1, 1):
        weight = model.lm_head.weight.clone()
        with torch.no_grad():
            model.lm_head.weight.mul_(1 + sign * step)
        values.append(entropy(model, tokenizer, one, other).value)
        with torch.no_grad():
            model.lm_head.weight.copy_(weight)
    assert measured.gradient is not None
    slope = (values[1] - values[0]) / (2 * step)
    assert measured.gradient["scale"] == pytest.approx(slope, rel=1e-3)
    assert slope < -0.01


def test_texts_count_alike_however_long_they_are(
    model: LlamaForCausalLM, tokenizer: Any, one: PerplexityText, other: PerplexityText
) -> None:
    alone = [entropy(model, tokenizer, t).value for t in (one, other)]

    both = entropy(model, tokenizer, one, other).value

    assert abs(alone[0] - alone[1]) > 0.01
    assert both == pytest.approx(sum(alone) / 2)


def test_a_step_has_sixteen_blocks_of_a_longer_text(
    model: LlamaForCausalLM,
    tokenizer: Any,
    folder: Path,
    documents: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(adamerging, "_BLOCK", 4)
    long = text(folder, "long", documents * 20)
    read: list[torch.Tensor] = []

    def nothing(model: LlamaForCausalLM, inputs: torch.Tensor, _: Any) -> torch.Tensor:
        read.append(inputs)
        return model.lm_head.weight.sum() * 0

    monkeypatch.setattr(adamerging, "_entropy", nothing)

    def step(coefficient: float) -> torch.Tensor:
        read.clear()
        draws = partial(drawn_by, {"c": coefficient})
        prepare_entropy({"l": long}, model, tokenizer, lambda: by_scale(model), draws)()
        return torch.cat(read)

    first, other, again = step(0.3), step(0.31), step(0.3)
    assert len(first) == len(other) == 16
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_another_text_has_another_fingerprint(
    one: PerplexityText, other: PerplexityText
) -> None:
    same = replace(one, name="of another name")

    assert entropy_fingerprint({"a": one}) == entropy_fingerprint({"b": same})
    assert entropy_fingerprint({"a": one}) != entropy_fingerprint({"a": other})
