"""Records per item as what each item does to the value."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from task_files import Bench, write_choices, write_rolling, write_yaml

from mergekit_map.results.samples import mean_of
from mergekit_map.types import Answers, Measurement
from mergekit_map.workflows.holdout import Itemised, itemise


def measure(bench: Bench, **keys: Any) -> tuple[Measurement, Itemised]:
    found = bench.prepare(keys)()
    assert found.answers is not None
    parts = [sample.get("task", "") for sample in found.samples]
    itemised = itemise(found.answers, parts)
    assert itemised is not None
    return found, itemised


def error(influences: Any) -> float:
    n = len(influences)
    return math.sqrt(float(np.square(influences).sum()) * n / (n - 1))


def test_blocks_of_text_have_the_value_and_its_error(
    bench: Bench, documents: list[str]
) -> None:
    (bench.folder / "text.txt").write_text("\n".join(documents))

    found, itemised = measure(bench, perplexity={"file": "text.txt"}, block=16)

    assert len(set(itemised.items)) == found.n > 5
    assert mean_of(found.answers) == pytest.approx(found.value, rel=1e-12)
    assert error(itemised.influences) == pytest.approx(found.stderr)


@pytest.mark.parametrize(
    ("task", "metric"),
    [("choices", "acc"), ("rolling", "bits_per_byte"), ("rolling", "word_perplexity")],
)
def test_items_of_lm_eval_have_the_value_and_its_error(
    bench: Bench, documents: list[str], task: str, metric: str
) -> None:
    write_choices(bench.folder)
    write_rolling(bench.folder, documents)

    found, itemised = measure(bench, lm_eval=f"{task}.yaml", metric=metric)

    assert len(set(itemised.items)) == found.n
    assert mean_of(found.answers) == pytest.approx(found.value, rel=1e-12)
    assert error(itemised.influences) == pytest.approx(found.stderr)


@pytest.mark.usefixtures("groups")
@pytest.mark.parametrize("by_size", [True, False])
def test_parts_of_a_group_count_as_in_its_value(bench: Bench, by_size: bool) -> None:
    metric = {"metric": "acc", "aggregation": "mean", "weight_by_size": by_size}
    write_choices(bench.folder, "first")
    write_choices(bench.folder, "second", test_split="train")
    content = {"group": "both", "task": ["first", "second"]}
    write_yaml(
        bench.folder / "both.yaml", {**content, "aggregate_metric_list": [metric]}
    )

    found, itemised = measure(bench, lm_eval="both", metric="acc")

    assert mean_of(found.answers) == pytest.approx(found.value, rel=1e-12)
    parts = np.array([part for part, *_ in itemised.items])
    moved = [itemised.influences[parts == name] for name in ("first", "second")]
    assert [*map(len, moved)] == [40, 12]
    together = math.hypot(*map(error, moved))
    # lm-eval's pooled error of groups by size is this one to about 1 / n.
    assert together == pytest.approx(found.stderr, rel=0.05 if by_size else 1e-12)


def test_an_item_moves_the_value_as_leaving_it_out_does(
    bench: Bench, documents: list[str]
) -> None:
    write_rolling(bench.folder, documents)
    found, itemised = measure(bench, lm_eval="rolling.yaml", metric="bits_per_byte")
    answers = found.answers
    assert answers is not None

    rest = Answers(answers.ids[1:], answers.values[1:], answers.weights[1:])

    # To first order in 1 / n: the long text that is left out has a quarter of it.
    moved = mean_of(answers) - mean_of(rest)
    assert moved == pytest.approx(itemised.influences[0], rel=0.35)


@pytest.mark.parametrize(
    ("answers", "parts"),
    [
        (Answers((), (), ()), []),
        (Answers((0,), (1.0,), (3.0,)), [""]),  # one item has no spread
        (Answers((0, 1, 2), (1.0, 2.0, 3.0), (1.0,) * 3), ["one", "one", "other"]),
        (Answers((0, 1), (1.0, 2.0), (1.0, 1.0)), []),  # records of another version
        (Answers((0, 1), (1e3, 1e4), (1.0, 1.0), exponential=True), ["", ""]),
    ],
)
def test_scores_that_do_not_give_an_error_are_not_compared(
    answers: Answers, parts: list[str]
) -> None:
    assert itemise(answers, parts) is None
