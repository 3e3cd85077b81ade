"""Tokens per answer: what is counted, and that nothing is generated twice for it."""

from __future__ import annotations

import math
import signal
from typing import Any

import numpy as np
import pytest
from lm_eval.models.huggingface import HFLM
from task_files import Bench, write_generation

from mergekit_map.config.tasks import LmEvalTask
from mergekit_map.tasks.loading import Generations, load_tasks, prepare_tasks
from mergekit_map.types import Measure
from mergekit_map.utils.shutdown import Interrupted

LENGTH = {"lm_eval": "generation.yaml", "metric": "answer_tokens"}
TASKS = {
    "right": {**LENGTH, "metric": "exact_match", "filter": "whole"},
    "length": LENGTH,
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


def prepare_both(bench: Bench, **options: Any) -> dict[str, Measure]:
    specs = {name: LmEvalTask.model_validate(task) for name, task in TASKS.items()}
    loaded, problems = load_tasks(specs, bench.folder)
    assert not problems
    return prepare_tasks(loaded, bench.model, bench.tokenizer, batch_size=8, **options)


def test_the_tokens_of_the_text_before_the_stop_string_are_counted(
    bench: Bench, generated: list[list[str]]
) -> None:
    write_generation(bench.folder)

    found = bench.prepare(LENGTH)()

    (texts,) = generated
    encode = bench.tokenizer
    counts = [len(encode(t, add_special_tokens=False)["input_ids"]) for t in texts]
    assert len(set(counts)) > 1
    assert not any("." in text for text in texts)
    assert [s["answer_tokens"] for s in found.samples] == counts
    assert found.value == pytest.approx(np.mean(counts))
    assert found.stderr == pytest.approx(np.std(counts, ddof=1) / math.sqrt(6))
    assert found.n == 6
    assert found.details.keys() == {"exact_match,letter", "exact_match,whole"}


def test_an_interrupt_is_looked_for_before_each_token(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_generation(bench.folder)
    measure = bench.prepare(LENGTH)
    looks = iter([None, None, Interrupted(signal.SIGINT)])

    def look() -> None:
        if (stop := next(looks)) is not None:
            raise stop

    monkeypatch.setattr("mergekit_map.tasks.lm_eval_model.check_interrupt", look)
    with pytest.raises(Interrupted, match=r"^\Z"):
        measure()

    assert next(looks, "none is left") == "none is left"
    assert not bench.model._forward_pre_hooks


def test_other_documents_are_generated_anew(
    bench: Bench, generated: list[list[str]]
) -> None:
    write_generation(bench.folder)
    shared = prepare_both(bench, generations=Generations())

    shared["right"]([0, 2, 5])
    shared["length"]([0, 2, 5])
    shared["length"]([0, 2])

    assert [len(texts) for texts in generated] == [3, 2]
