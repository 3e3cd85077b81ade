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
import scipy
import torch
from task_files import write_choices
from transformers import LlamaForCausalLM

from mergekit_map.compare import adamerging
from mergekit_map.compare.adamerging import (
    drawn_by,
    entropy_fingerprint,
    has_entropy,
    prepare_entropy,
)
from mergekit_map.config.task_specs import LmEvalTask, PerplexityTask
from mergekit_map.measurement import Measurement
from mergekit_map.tasks.harness import load_harness
from mergekit_map.tasks.perplexity import PerplexityText, load_perplexity
from mergekit_map.tasks.preparing import prepare_tasks


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

    expected = slope(model, tokenizer, one, other)
    assert measured.gradient is not None
    assert measured.gradient["scale"] == pytest.approx(expected, rel=1e-3)
    assert expected < -0.01


def slope(model: LlamaForCausalLM, tokenizer: Any, *tasks: Any) -> float:
    step, values = 0.02, []
    for sign in (-1, 1):
        weight = model.lm_head.weight.clone()
        with torch.no_grad():
            model.lm_head.weight.mul_(1 + sign * step)
        values.append(entropy(model, tokenizer, *tasks).value)
        with torch.no_grad():
            model.lm_head.weight.copy_(weight)
    return (values[1] - values[0]) / (2 * step)


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

    def nothing(logits: torch.Tensor) -> torch.Tensor:
        return logits.sum(-1) * 0

    monkeypatch.setattr(adamerging, "entropy_of", nothing)

    def listen(_: Any, __: Any, inputs: dict[str, torch.Tensor]) -> None:
        read.append(inputs["input_ids"])

    model.register_forward_pre_hook(listen, with_kwargs=True)

    def step(coefficient: float) -> torch.Tensor:
        read.clear()
        draws = partial(drawn_by, {"c": coefficient})
        prepare_entropy({"l": long}, model, tokenizer, lambda: by_scale(model), draws)()
        return torch.cat(read)

    first, other, again = step(0.3), step(0.31), step(0.3)
    assert len(first) == len(other) == 16
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_that_of_a_question_is_of_the_likelihoods_that_lm_eval_has(
    model: LlamaForCausalLM,
    tokenizer: Any,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    write_choices(folder)
    spec = LmEvalTask(lm_eval="choices.yaml", metric="acc")
    task = load_harness("choices", spec, folder)
    measured = prepare_tasks({"choices": task}, model, tokenizer)["choices"]()
    found = [sample["loglikelihoods"] for sample in measured.samples]
    expected = scipy.stats.entropy(scipy.special.softmax(found, axis=1), axis=1)

    monkeypatch.setattr(adamerging, "_BATCH", len(found))
    assert has_entropy(task)
    assert entropy(model, tokenizer, task).value == pytest.approx(expected.mean())
    monkeypatch.undo()
    some = entropy(model, tokenizer, task)
    assert (some.n, measured.n) == (16, 40)
    assert some.value != pytest.approx(expected.mean())
    assert some.gradient is not None
    assert some.gradient["scale"] == pytest.approx(slope(model, tokenizer, task), 1e-2)


def test_another_text_has_another_fingerprint(
    one: PerplexityText, other: PerplexityText
) -> None:
    same = replace(one, name="of another name")

    assert entropy_fingerprint({"a": one}) == entropy_fingerprint({"b": same})
    assert entropy_fingerprint({"a": one}) != entropy_fingerprint({"a": other})
