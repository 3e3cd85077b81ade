"""Answers that are written piece by piece are lm-eval's, batch by batch."""

from __future__ import annotations

import json
import random
import signal
from pathlib import Path
from typing import Any

import lm_eval
import pytest
import torch
import yaml
from lm_eval.models.huggingface import HFLM
from task_files import WORDS, write_generation
from transformers import LlamaForCausalLM

from mergekit_map.config.task_specs import LmEvalTask
from mergekit_map.measurement import Measure
from mergekit_map.shutdown import Interrupted
from mergekit_map.tasks.generations import Generations
from mergekit_map.tasks.loading import load_tasks
from mergekit_map.tasks.preparing import prepare_tasks
from mergekit_map.tasks.surroundings import quiet, separate_randomness

TASK = {"lm_eval": "generation.yaml", "metric": "answer_tokens"}


@pytest.fixture
def batches(monkeypatch: pytest.MonkeyPatch) -> list[list[list[int]]]:
    """Keep what the model is handed, batch by batch."""
    real, kept = HFLM._model_generate, []

    def generate(lm: HFLM, context: torch.Tensor, **options: Any) -> torch.Tensor:
        kept.append(context.tolist())
        return real(lm, context, **options)

    monkeypatch.setattr(HFLM, "_model_generate", generate)
    return kept


def write_many(folder: Path) -> None:
    """Write a task of prompts of many lengths, some of them twice."""
    path = write_generation(folder, draws=False)
    rng = random.Random(0)
    rows = [
        {"question": " ".join(rng.choices(WORDS[:9], k=1 + i % 5)), "answer": "a"}
        for i in range(21)
    ]
    rows += rows[:2]
    data = "".join(json.dumps(row) + "\n" for row in rows)
    (folder / "generation.jsonl").write_text(data)
    content = yaml.safe_load(path.read_text())
    content["repeats"] = 2
    path.write_text(yaml.safe_dump(content))


def prepare(
    folder: Path, model: LlamaForCausalLM, tokenizer: Any, **options: Any
) -> Measure:
    specs = {"mine": LmEvalTask.model_validate({**TASK, **options.pop("task", {})})}
    loaded, problems = load_tasks(specs, folder)
    assert not problems
    options = {"batch_size": 4, "generations": Generations()} | options
    return prepare_tasks(loaded, model, tokenizer, **options)["mine"]


def test_an_interrupt_is_looked_for_before_each_token(
    folder: Path,
    model: LlamaForCausalLM,
    tokenizer: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    write_many(folder)
    measure = prepare(folder, model, tokenizer)
    looks = iter([None, None, Interrupted(signal.SIGINT)])

    def look() -> None:
        if (stop := next(looks)) is not None:
            raise stop

    monkeypatch.setattr("mergekit_map.tasks.surroundings.check_interrupt", look)
    with pytest.raises(Interrupted, match=r"^\Z"):
        measure()

    assert next(looks, "none is left") == "none is left"
    assert not model._forward_pre_hooks


def test_pieces_are_the_batches_of_lm_eval(
    folder: Path,
    model: LlamaForCausalLM,
    tokenizer: Any,
    batches: list[list[list[int]]],
) -> None:
    write_many(folder)
    measure = prepare(folder, model, tokenizer)
    measured = measure()
    ours = [*batches]
    batches.clear()

    with quiet(), separate_randomness():
        lm_eval.simple_evaluate(
            HFLM(pretrained=model, tokenizer=tokenizer, batch_size=4),
            tasks=[yaml.safe_load((folder / "generation.yaml").read_text())],
            bootstrap_iters=0,
        )

    assert ours == batches
    assert measure.pieces() == len(ours) == 12
    assert measured.n == 23


def test_pieces_in_any_order_make_what_is_measured_at_once(
    folder: Path, model: LlamaForCausalLM, tokenizer: Any
) -> None:
    """As workers do: each has its own model, and takes what comes."""
    write_many(folder)
    whole = prepare(folder, model, tokenizer)()
    for documents in (None, [0, 3, 4, 9, 17, 22]):
        workers = [prepare(folder, model, tokenizer) for _ in range(2)]
        order = random.Random(1).sample(
            range(workers[0].pieces(documents)), workers[0].pieces(documents)
        )
        found = {i: workers[i % 2].piece(documents, i) for i in order}
        joined = workers[0].whole(documents, [found[i] for i in sorted(found)])
        alone = prepare(folder, model, tokenizer)(documents)
        assert joined == alone
        assert (joined == whole) == (documents is None)


def test_what_draws_is_one_piece(
    folder: Path, model: LlamaForCausalLM, tokenizer: Any
) -> None:
    write_generation(folder, draws=True)
    assert prepare(folder, model, tokenizer).pieces() == 1
