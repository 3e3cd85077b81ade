"""Records per item as what each item does to the value."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from task_files import write_choices, write_rolling, write_yaml
from transformers import LlamaForCausalLM

from mergekit_map.config.tasks import LmEvalTask, PerplexityTask, PythonTask
from mergekit_map.tasks.influence import Itemised, itemise
from mergekit_map.tasks.loading import LoadedTask, load_tasks
from mergekit_map.tasks.preparing import prepare_tasks
from mergekit_map.types import Measurement
from mergekit_map.utils.files import plain

TEXT = {"perplexity": {"file": "text.txt"}, "block": 16}


def measure(
    folder: Path,
    model: Any,
    tokenizer: Any,
    spec: LmEvalTask | PerplexityTask | PythonTask,
) -> tuple[LoadedTask, Measurement, Itemised | None]:
    """Measure a task, and read its records as they come back from a file."""
    tasks, problems = load_tasks({"mine": spec}, folder)
    assert not problems
    found = prepare_tasks(tasks, model, tokenizer, batch_size=8)["mine"]()
    samples = json.loads(json.dumps(plain(list(found.samples))))
    return tasks["mine"], found, itemise(tasks["mine"], samples)


def error(influences: Any) -> float:
    n = len(influences)
    return math.sqrt(float(np.square(influences).sum()) * n / (n - 1))


def test_blocks_of_text_have_the_value_and_its_error(
    folder: Path, model: LlamaForCausalLM, tokenizer: Any, documents: list[str]
) -> None:
    (folder / "text.txt").write_text("\n".join(documents))
    spec = PerplexityTask.model_validate(TEXT)

    _, found, itemised = measure(folder, model, tokenizer, spec)

    assert itemised is not None
    assert len(set(itemised.items)) == found.n > 5
    assert itemised.value == pytest.approx(found.value, rel=1e-12)
    assert error(itemised.influences) == pytest.approx(found.stderr)


@pytest.mark.parametrize(
    ("task", "metric"),
    [
        ("choices", "acc"),
        ("rolling", "bits_per_byte"),
        ("rolling", "word_perplexity"),
    ],
)
def test_items_of_lm_eval_have_the_value_and_its_error(
    folder: Path,
    model: LlamaForCausalLM,
    tokenizer: Any,
    documents: list[str],
    task: str,
    metric: str,
) -> None:
    write_choices(folder)
    write_rolling(folder, documents)
    spec = LmEvalTask(lm_eval=f"{task}.yaml", metric=metric)

    _, found, itemised = measure(folder, model, tokenizer, spec)

    assert itemised is not None
    assert len(set(itemised.items)) == found.n
    assert itemised.value == pytest.approx(found.value, rel=1e-12)
    assert error(itemised.influences) == pytest.approx(found.stderr)


@pytest.mark.parametrize("by_size", [True, False])
def test_parts_of_a_group_count_as_in_its_value(
    folder: Path, model: LlamaForCausalLM, tokenizer: Any, by_size: bool
) -> None:
    metric = {"metric": "acc", "aggregation": "mean", "weight_by_size": by_size}
    write_choices(folder, "first")
    write_choices(folder, "second", test_split="train")
    content = {"group": "both", "task": ["first", "second"]}
    write_yaml(folder / "both.yaml", {**content, "aggregate_metric_list": [metric]})
    spec = LmEvalTask(lm_eval="both.yaml", metric="acc")

    _, found, itemised = measure(folder, model, tokenizer, spec)

    assert itemised is not None
    assert itemised.value == pytest.approx(found.value, rel=1e-12)
    parts = np.array([part for part, *_ in itemised.items])
    moved = [itemised.influences[parts == name] for name in ("first", "second")]
    assert [*map(len, moved)] == [40, 12]
    together = math.hypot(*map(error, moved))
    # lm-eval's pooled error of groups by size is this one to about 1 / n.
    assert together == pytest.approx(found.stderr, rel=0.05 if by_size else 1e-12)


def test_an_item_moves_the_value_as_leaving_it_out_does(
    folder: Path, model: LlamaForCausalLM, tokenizer: Any, documents: list[str]
) -> None:
    write_rolling(folder, documents)
    spec = LmEvalTask(lm_eval="rolling.yaml", metric="bits_per_byte")
    task, found, itemised = measure(folder, model, tokenizer, spec)
    assert itemised is not None

    without = itemise(task, found.samples[1:])

    assert without is not None
    # To first order in 1 / n: the long text that is left out has a quarter of it.
    moved = itemised.value - without.value
    assert moved == pytest.approx(itemised.influences[0], rel=0.35)


@pytest.mark.parametrize(
    "samples",
    [
        [],
        [{"block": 0, "loss": 1.0, "tokens": 3}],  # one item has no spread
        [{"block": i, "loss": None, "tokens": 3} for i in range(3)],  # was infinite
        [{"block": i, "loss": 1.0} for i in range(3)],
        [{"block": i, "loss": "high", "tokens": 3} for i in range(3)],
        [{"block": i, "loss": 1.0, "tokens": 0} for i in range(3)],
        ["block"],
    ],
)
def test_records_that_do_not_say_the_value_are_not_read(
    folder: Path, model: LlamaForCausalLM, tokenizer: Any, samples: Any
) -> None:
    (folder / "text.txt").write_text("one two three")
    spec = PerplexityTask.model_validate(TEXT)
    task, _, _ = measure(folder, model, tokenizer, spec)

    assert itemise(task, samples) is None
