"""What single documents say of a value, and measuring some of them alone."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from task_files import Bench, write_choices, write_generation, write_rolling, write_yaml

from mergekit_map.errors import EvaluationError
from mergekit_map.evaluation.holdout import HeldOut, HoldoutSplit
from mergekit_map.results.samples import itemise
from mergekit_map.tasks.loading import LoadedTask
from mergekit_map.types import Answers, Measurement

pytestmark = pytest.mark.usefixtures("groups")
LENGTHS = """
def lengths(model, tokenizer, documents):
    all_of_them = [0.5 * i * i for i in range(9)]
    return all_of_them if documents is None else [all_of_them[i] for i in documents]
"""
CHOICES, GENERATION = "choices.yaml", {"lm_eval": "generation.yaml"}
KINDS: dict[str, dict[str, Any]] = {
    "text": {"perplexity": {"file": "text.txt"}, "block": 16},
    "acc": {"lm_eval": CHOICES, "metric": "acc", "num_fewshot": 2},
    "acc_norm": {"lm_eval": CHOICES, "metric": "acc_norm", "limit": 11},
    "bits": {"lm_eval": "rolling.yaml", "metric": "bits_per_byte"},
    "words": {"lm_eval": "rolling.yaml", "metric": "word_perplexity"},
    "generation": {**GENERATION, "metric": "exact_match", "filter": "letter"},
    "length": {**GENERATION, "metric": "answer_tokens"},
    "by_size": {"lm_eval": "by_size", "metric": "acc_norm"},
    "by_part": {"lm_eval": "by_part", "metric": "acc_norm"},
    "own": {"python": "own_lengths:lengths", "direction": "maximize"},
}


@pytest.fixture(autouse=True)
def _files(folder: Path, documents: list[str]) -> None:
    (folder / "text.txt").write_text("\n".join(documents))
    (folder / "own_lengths.py").write_text(LENGTHS)
    write_choices(folder, "second", test_split="train", doc_to_text="{{question}}")
    write_rolling(folder, documents)
    write_generation(folder, draws=False)  # of which a part would draw others
    for name, by_size in {"by_size": True, "by_part": False}.items():
        metric = {"metric": "acc_norm", "weight_by_size": by_size}
        tasks = {"task": ["choices", "second"], "aggregate_metric_list": [metric]}
        write_yaml(folder / f"{name}.yaml", {"group": name, **tasks})


def by_id(answers: Answers) -> dict[int, tuple[float, float]]:
    pairs = zip(answers.values, answers.weights, strict=True)
    return dict(zip(answers.ids, pairs, strict=True))


def without_task(record: Mapping[str, Any]) -> dict[str, Any]:
    """Give what of a record is not rounded by the batch it was in."""
    return {k: v for k, v in record.items() if k not in ("loss", "loglikelihoods")}


@pytest.mark.parametrize("kind", KINDS)
def test_answers_make_the_value_and_parts_of_them_the_same_answers(
    bench: Bench, kind: str
) -> None:
    task = bench.load(**KINDS[kind])
    measure = bench.prepare(task)
    full = measure()

    assert task.partial
    assert measure.size in (full.n, None)
    assert full.answers.ids == tuple(range(full.n))
    assert full.answers.mean == pytest.approx(full.value, rel=1e-12)
    # lm-eval's pooled error of groups by size is that of items to about 1 / n.
    assert_items_make_the_error(full, 0.05 if kind == "by_size" else 1e-6)

    some = [i for i in range(full.n) if i % 2 or i < full.n // 3]
    halves = [some, sorted({*range(full.n)} - {*some})]
    parts = [measure(half) for half in halves]

    whole = by_id(full.answers)
    for half, part in zip(halves, parts, strict=True):
        assert part.answers.ids == tuple(half)
        assert part.n == len(half)
        assert part.answers.mean == pytest.approx(part.value, rel=1e-12)
        assert part.answers.exponential == full.answers.exponential
        if kind not in ("bits", "words"):
            expected = [without_task(full.samples[i]) for i in half]
            assert [without_task(sample) for sample in part.samples] == expected
        for i, (value, weight) in by_id(part.answers).items():
            assert value == pytest.approx(whole[i][0], rel=1e-5)
            assert weight == pytest.approx(whole[i][1]) or kind == "by_part"
        if kind == "by_part":  # tasks count alike, though not by a half of each
            scores = [(s["task"], s["acc_norm"]) for s in part.samples]
            means = [np.mean([x for t, x in scores if t == task]) for task, _ in scores]
            assert part.value == pytest.approx(np.mean([*{*means}]))
    # Nothing of a part is left behind.
    assert measure() == full


def assert_items_make_the_error(found: Measurement, rounding: float) -> None:
    answers = found.answers
    itemised = itemise(answers, [sample.get("task", "") for sample in found.samples])
    assert len(set(itemised.items)) == found.n
    parts = np.array([part for part, _ in itemised.items])
    squares = [
        np.square(one).sum() * len(one) / (len(one) - 1)
        for one in (itemised.influences[parts == part] for part in np.unique(parts))
    ]
    assert math.sqrt(sum(squares)) == pytest.approx(found.stderr, rel=rounding)
    if len(squares) == 1 and not answers.exponential:
        values, weights = np.array(answers.values), np.array(answers.weights)
        left_out = [
            np.average(values[k], weights=weights[k])
            for k in ~np.eye(found.n, dtype=bool)
        ]
        expected = (np.mean(left_out) - left_out) * (found.n - 1) / found.n
        assert itemised.influences == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize(
    ("answers", "parts"),
    [
        (Answers((), (), ()), []),
        (Answers((0,), (1.0,), (3.0,)), [""]),  # one item has no spread
        (Answers((0, 1), (1.0, 2.0), (1.0, 1.0)), []),  # records of another version
        (Answers((0, 1), (1e3, 1e4), (1.0, 1.0), exponential=True), ["", ""]),
    ],
)
def test_scores_that_do_not_give_an_error_are_not_compared(
    answers: Answers, parts: list[str]
) -> None:
    assert itemise(answers, parts) is None


def test_a_group_with_one_document_of_a_part_is_one_sample() -> None:
    answers = Answers((0, 1, 2), (1.0, 2.0, 4.0), (1.0,) * 3)

    found, expected = itemise(answers, ["one", "one", "other"]), itemise(answers)

    assert found.items == expected.items
    np.testing.assert_array_equal(found.influences, expected.influences)


@pytest.mark.parametrize("kind", ["acc", "own"])  # its size is known before, or not
def test_what_is_held_out_and_the_rest_are_measured_apart(
    bench: Bench, kind: str
) -> None:
    measure = bench.prepare(bench.load(**KINDS[kind]))
    n = measure().n
    found = HoldoutSplit("mine", measure, HeldOut(0.4, seed=1))

    parts = [found(None), found.held_out(None), found([0, 2])]

    searched, rest = HeldOut(0.4, seed=1).divide(n)
    assert len(searched) == n - round(0.4 * n)
    assert sorted(searched + rest) == list(range(n))
    some = [searched[0], searched[2]]
    for part, ids in zip(parts, (searched, rest, some), strict=True):
        asked = measure(ids)
        assert part == replace(asked, answers=part.answers)
        places = (0, 2) if ids == some else tuple(range(len(ids)))
        assert part.answers == replace(asked.answers, ids=places)


def test_the_same_places_are_held_out_and_too_few_documents_are_refused() -> None:
    first, other = (set(HeldOut(0.5, seed).divide(40)[1]) for seed in (0, 1))

    assert first != other
    # The same benchmark with a limit.
    assert len(set(HeldOut(0.5, 0).divide(36)[1]) - first) <= 4
    assert len(HeldOut(0.01, 0).divide(40)[1]) == 2
    with pytest.raises(EvaluationError, match=r"of 4 documents 'holdout: 0\.7'.*at l"):
        HeldOut(0.7, 0).divide(4)


def test_a_metric_of_all_documents_at_once_has_no_answers(bench: Bench) -> None:
    metric = {"metric": "acc", "aggregation": "median", "higher_is_better": True}
    write_choices(bench.folder, metric_list=[metric])
    task = bench.load(lm_eval=CHOICES, metric="acc")
    measure = bench.prepare(task)

    assert not task.partial
    assert measure().answers is None
    with pytest.raises(EvaluationError, match=r"'mine' .* only all of them can be"):
        measure([1, 2])


def test_says_that_a_document_lacks_the_metric(bench: Bench) -> None:
    (bench.folder / "own_part.py").write_text(
        "def process(doc, results):\n"
        "    return {'acc': 1.0} if doc['answer'] < 2 else {}\n"
    )
    path = bench.folder / CHOICES
    path.write_text(path.read_text() + "process_results: !function own_part.process\n")
    measure = bench.prepare({"lm_eval": CHOICES, "metric": "acc"})

    assert measure().answers is None
    assert measure([0, 1, 4]).value == 1.0
    with pytest.raises(EvaluationError, match="has no 'acc' of some of these"):
        measure([0, 2])


def load_own(bench: Bench, code: str) -> LoadedTask:
    (bench.folder / "own_list.py").write_text(f"import numpy, torch\n{code}\n")
    return bench.load(python="own_list:f", direction="maximize")


@pytest.mark.parametrize(
    "returned", ["[0, 0.5, 4]", "numpy.array([0, 0.5, 4])", "torch.tensor([0, 0.5, 4])"]
)
def test_a_function_may_give_a_number_for_each_document(
    bench: Bench, returned: str
) -> None:
    task = load_own(bench, f"def f(model, tokenizer):\n    return {returned}")

    found = bench.prepare(task)()

    values = (0.0, 0.5, 4.0)
    assert found == Measurement(
        value=1.5,
        stderr=pytest.approx(np.std(values, ddof=1) / math.sqrt(3)),
        n=3,
        samples=tuple({"document": i, "value": v} for i, v in enumerate(values)),
        answers=Answers((0, 1, 2), values, (1.0, 1.0, 1.0)),
    )
    assert not task.partial


@pytest.mark.parametrize(
    ("parameters", "partial"),
    [("documents", True), ("*, documents", True), ("**options", False)],
)
def test_a_function_with_documents_is_asked_for_some(
    bench: Bench, parameters: str, partial: bool
) -> None:
    code = f"def f(model, tokenizer, {parameters}):\n    return [1.0, 2.0]"

    task = load_own(bench, code)
    measure = bench.prepare(task)

    assert task.partial == partial
    assert measure().value == 1.5
    assert measure.size is None


@pytest.mark.parametrize(
    ("returned", "got"),
    [("[1.0, 2.0]", "2 numbers for 3 documents"), ("0.5", "no list, for 3 documents")],
)
def test_says_how_many_documents_the_function_was_asked_for(
    bench: Bench, returned: str, got: str
) -> None:
    code = f"def f(model, tokenizer, documents):\n    return {returned}"
    measure = bench.prepare(load_own(bench, code))

    with pytest.raises(EvaluationError, match=f"task 'mine' .*{got}"):
        measure([0, 4, 9])


@pytest.mark.skipif(version("lm_eval") != "0.4.13", reason="lm-eval is in the hash")
def test_tasks_have_the_identities_that_logs_know_them_by(bench: Bench) -> None:
    (bench.folder / "text.txt").write_text("the cat sat on the mat\n")
    (bench.folder / "own_golden.py").write_text(
        "def score(model, tokenizer):\n    return 0.5\n"
    )
    specs: dict[str, dict[str, Any]] = {
        "text": KINDS["text"],
        "choices": {"lm_eval": CHOICES, "metric": "acc", "limit": 5, "num_fewshot": 1},
        "own": {"python": "own_golden:score", "direction": "maximize"},
    }

    found = {name: bench.load(**keys).fingerprint for name, keys in specs.items()}

    # Computed before documents could be measured alone: the value is still this one.
    assert found == {
        "text": "924bf806ec01594c268d10bc9f1d2d7135c8366fdb4e30f2763a42ddf4d76416",
        "choices": "3190691be826126c7c83f754c6c69c1693723c10d913dd5a51c4e9b6f2535832",
        "own": "eee804f551aae84e9d230d75ea30a670f6f4d13b5c1f68663783311e5b21b065",
    }
