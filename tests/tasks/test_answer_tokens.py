"""Tokens per answer: what is counted, and that nothing is generated twice for it."""

from __future__ import annotations

import math
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from lm_eval.models.huggingface import HFLM
from task_files import build_model, write_choices, write_generation
from transformers import LlamaForCausalLM

from mergekit_map.config.tasks import LmEvalTask
from mergekit_map.tasks.loading import load_tasks
from mergekit_map.tasks.preparing import Generations, prepare_tasks
from mergekit_map.types import Measure
from mergekit_map.utils.shutdown import Interrupted

TASKS: dict[str, dict[str, Any]] = {
    "right": {"metric": "exact_match", "filter": "whole"},
    "length": {"metric": "answer_tokens"},
}


@pytest.fixture
def generated(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """Keep what lm-eval's model generates, call by call."""
    real, kept = HFLM.generate_until, []

    def generate(*args: Any, **options: Any) -> list[str]:
        kept.append(real(*args, **options))
        return kept[-1]

    monkeypatch.setattr(HFLM, "generate_until", generate)
    return kept


def prepare(
    folder: Path,
    model: LlamaForCausalLM,
    tokenizer: Any,
    tasks: Mapping[str, Mapping[str, Any]] = TASKS,
    **options: Any,
) -> dict[str, Measure]:
    specs = {
        name: LmEvalTask.model_validate({"lm_eval": "generation.yaml", **task})
        for name, task in tasks.items()
    }
    loaded, problems = load_tasks(specs, folder)
    assert not problems
    return prepare_tasks(loaded, model, tokenizer, batch_size=4, **options)


def test_the_tokens_of_the_text_before_the_stop_string_are_counted(
    folder: Path, model: LlamaForCausalLM, tokenizer: Any, generated: list[list[str]]
) -> None:
    write_generation(folder)
    measure = prepare(folder, model, tokenizer)["length"]

    found = measure()

    (texts,) = generated
    counts = [len(tokenizer(t, add_special_tokens=False)["input_ids"]) for t in texts]
    assert len(set(counts)) > 1
    assert not any("." in text for text in texts)
    assert [s["answer_tokens"] for s in found.samples] == counts
    assert found.value == pytest.approx(np.mean(counts))
    assert found.stderr == pytest.approx(np.std(counts, ddof=1) / math.sqrt(6))
    assert found.n == 6
    assert found.details.keys() == {"exact_match,letter", "exact_match,whole"}


def test_fewer_tokens_are_better_unless_the_task_says_otherwise(folder: Path) -> None:
    write_generation(folder)
    found = {}
    for direction in (None, "maximize"):
        spec = LmEvalTask.model_validate(
            {"lm_eval": "generation.yaml", "direction": direction, **TASKS["length"]}
        )
        (task,) = load_tasks({"mine": spec}, folder)[0].values()
        found[direction] = task.metric

    assert (found[None].better, found[None].unit) == ("lower", "tokens")
    assert found[None].bounds == (0, math.inf)
    assert found["maximize"].better == "higher"


@pytest.mark.parametrize("draws", [True, False])
def test_both_metrics_of_a_task_are_of_one_generation(
    folder: Path,
    model: LlamaForCausalLM,
    tokenizer: Any,
    generated: list[list[str]],
    *,
    draws: bool,
) -> None:
    write_generation(folder, draws=draws)
    alone = {
        name: prepare(folder, model, tokenizer, {name: task})[name]()
        for name, task in TASKS.items()
    }
    generated.clear()

    shared = prepare(folder, model, tokenizer, generations=Generations())
    together = {name: measure() for name, measure in shared.items()}

    assert together == alone
    assert [len(texts) for texts in generated] == [6]


def test_an_interrupt_is_looked_for_before_each_token(
    folder: Path,
    model: LlamaForCausalLM,
    tokenizer: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    write_generation(folder)
    measure = prepare(folder, model, tokenizer)["length"]
    looks = iter([None, None, Interrupted(signal.SIGINT)])

    def look() -> None:
        if (stop := next(looks)) is not None:
            raise stop

    monkeypatch.setattr("mergekit_map.tasks.isolation.check_interrupt", look)
    with pytest.raises(Interrupted, match=r"^\Z"):
        measure()

    assert next(looks, "none is left") == "none is left"
    assert not model._forward_pre_hooks


def test_other_documents_are_generated_anew(
    folder: Path, model: LlamaForCausalLM, tokenizer: Any, generated: list[list[str]]
) -> None:
    write_generation(folder)
    shared = prepare(folder, model, tokenizer, generations=Generations())

    shared["right"]([0, 2, 5])
    shared["length"]([0, 2, 5])
    shared["length"]([0, 2])

    assert [len(texts) for texts in generated] == [3, 2]


def test_a_model_of_other_weights_generates_anew(
    folder: Path, model: LlamaForCausalLM, tokenizer: Any
) -> None:
    write_generation(folder)
    generations = Generations()
    measure = prepare(folder, model, tokenizer, generations=generations)["length"]
    other = build_model(len(tokenizer), seed=1)
    expected = prepare(folder, other, tokenizer)["length"]()
    before = measure()

    generations.forget()
    for target, source in zip(model.parameters(), other.parameters(), strict=True):
        target.copy_(source)

    assert measure() == expected != before


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"lm_eval": "choices.yaml"}, "task 'choices' has it choose or scores text"),
        ({"filter": "whole"}, "counts answers before any filter; remove the filter"),
    ],
)
def test_what_has_no_answers_to_count_is_refused(
    folder: Path, options: dict[str, Any], message: str
) -> None:
    write_generation(folder)
    write_choices(folder)
    spec = LmEvalTask.model_validate(
        {"lm_eval": "generation.yaml", "metric": "answer_tokens", **options}
    )

    _, problems = load_tasks({"mine": spec}, folder)

    assert len(problems) == 1
    assert message in problems[0].message
