"""Continuous batching gives the greedy answers of generate."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from lm_eval.models.huggingface import HFLM
from task_files import build_model, write_generation
from transformers import LlamaForCausalLM

from mergekit_map.config.task_specs import LmEvalTask
from mergekit_map.errors import EvaluationError
from mergekit_map.measurement import Measurement
from mergekit_map.tasks.generations import Generations
from mergekit_map.tasks.loading import load_tasks
from mergekit_map.tasks.preparing import prepare_tasks


@pytest.fixture
def texts(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Keep what generate answers, before and after it is cut."""
    kept: list[str] = []
    real = HFLM.generate_until

    def generate(*args: Any, **options: Any) -> list[str]:
        found = real(*args, **options)
        kept.extend(found)
        return found

    monkeypatch.setattr(HFLM, "generate_until", generate)
    return kept


def measured(
    folder: Path, model: LlamaForCausalLM, tokenizer: Any, *, batched: bool
) -> Measurement:
    specs = {
        "mine": LmEvalTask.model_validate(
            {"lm_eval": "generation.yaml", "metric": "answer_tokens"}
        )
    }
    tasks, problems = load_tasks(specs, folder)
    assert not problems
    measures = prepare_tasks(
        tasks,
        model,
        tokenizer,
        batch_size=4,
        generations=Generations(),
        batched=["mine"] if batched else [],
    )
    return measures["mine"]()


def test_answers_are_those_of_generate(
    folder: Path, model: LlamaForCausalLM, tokenizer: Any, texts: list[str]
) -> None:
    write_generation(folder, draws=False)
    one_by_one = measured(folder, model, tokenizer, batched=False)
    assert len(set(texts)) > 3
    texts.clear()

    together = measured(folder, model, tokenizer, batched=True)

    assert together == one_by_one
    assert not texts  # generate was not called


def test_answers_are_of_the_weights_that_the_model_has_now(
    folder: Path, model: LlamaForCausalLM, tokenizer: Any
) -> None:
    write_generation(folder, draws=False)
    before = measured(folder, model, tokenizer, batched=True)
    other = build_model(len(tokenizer), seed=1)
    with torch.no_grad():
        for name, value in model.state_dict().items():
            value.copy_(other.state_dict()[name])

    after = measured(folder, model, tokenizer, batched=True)

    assert after != before
    assert after == measured(folder, other, tokenizer, batched=False)
    # The model is as it was for plain forward passes.
    assert model.config._attn_implementation == other.config._attn_implementation


def test_a_task_that_draws_its_answers_is_refused(
    folder: Path, model: LlamaForCausalLM, tokenizer: Any
) -> None:
    write_generation(folder)

    with pytest.raises(EvaluationError, match=r"for greedy answers.*engine: hf"):
        measured(folder, model, tokenizer, batched=True)
