from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from lm_eval.tasks._index import Kind
from lm_eval.tasks._yaml_loader import load_yaml
from task_files import write_choices, write_generation, write_rolling, write_yaml

from mergekit_map.config.tasks import PRESETS, LmEvalTask, PresetTask
from mergekit_map.errors import InvalidTask
from mergekit_map.tasks.lm_eval_tasks import (
    HarnessTask,
    built_in_tasks,
    load_harness,
    same_documents,
)
from mergekit_map.types import Metric

ACC = {"metric": "acc", "aggregation": "mean", "higher_is_better": True}


def load(folder: Path, lm_eval: str, metric: str, **options: Any) -> HarnessTask:
    spec = LmEvalTask.model_validate({"lm_eval": lm_eval, "metric": metric, **options})
    return load_harness("mine", spec, folder)


@pytest.mark.parametrize(
    ("metric", "expected"),
    [
        ("acc", Metric(True, 0.0, 1.0)),
        ("bits_per_byte", Metric(False, 0.0, None)),
        ("word_perplexity", Metric(False, 1.0, None)),
        ("answer_tokens", Metric(False, 0.0, None)),
    ],
)
def test_knows_the_direction_and_range_of_common_metrics(
    folder: Path, metric: str, expected: Metric
) -> None:
    write_rolling(folder, ["the cat sat", "a dog ran"])
    files = {"acc": "choices.yaml", "answer_tokens": "generation.yaml"}
    file = files.get(metric, "rolling.yaml")

    given = load(folder, file, metric, range=[None, 0.9], direction="maximize").metric

    unit = "tokens" if metric == "answer_tokens" else metric
    assert load(folder, file, metric).metric == replace(expected, unit=unit)
    assert given == Metric(True, None, 0.9, unit=unit)


def test_a_metric_that_a_task_computes_itself_has_no_known_range(folder: Path) -> None:
    (folder / "own_metric.py").write_text(
        "def process(doc, results):\n    return {'f1': 50.0}\n\n\n"
        "def total(values):\n    return sum(values) / len(values)\n"
    )
    path = write_choices(folder, metric_list=["LIST"])
    own = (
        "process_results: !function own_metric.process\n"
        "metric_list: [{metric: f1, aggregation: !function own_metric.total, "
        "higher_is_better: true}]\n"
    )
    path.write_text(path.read_text().replace("metric_list:\n- LIST\n", own))

    found = load(folder, "choices.yaml", "f1").metric
    assert found == Metric(True, None, None, unit="f1")


def test_code_of_a_model_is_run_where_the_user_confirms_it(folder: Path) -> None:
    write_choices(folder, unsafe_code=True)

    with pytest.raises(InvalidTask, match="it runs code that a model writes"):
        load(folder, "choices.yaml", "acc")
    task = load(folder, "choices.yaml", "acc", confirm_run_unsafe_code=True)

    assert task.spec.confirm_run_unsafe_code


def test_a_task_that_changes_its_documents_finds_them_as_they_were() -> None:
    documents = [(0, {"answers": ["a", "b"]})]
    for _, document in same_documents(documents):
        document["answers"].pop()

    assert [*same_documents(documents)] == [(0, {"answers": ["a", "b"]})]


CHOICES, EXACT = "choices.yaml", {"metric": "exact_match"}
TOKENS = {"metric": "answer_tokens"}
# A task, keys of the configuration, the key that is blamed, and why.
CASES: list[tuple[str, dict[str, Any], str, str]] = [
    ("nothing.yaml", {}, "lm_eval", "No such file .*nothing"),
    ("broken.yaml", {}, "lm_eval", "ScannerError: .*line 2"),
    (CHOICES, {"metric": "acc_nrom"}, "metric", "no metric 'acc_nrom'.*'acc_norm'"),
    (CHOICES, {"filter": "strict"}, "filter", "no filter 'strict'; known: none"),
    ("generation.yaml", EXACT, "filter", "several filters, name one .*: letter, whole"),
    ("zero.yaml", {"num_fewshot": 2}, "num_fewshot", "keeps the 0 examples .*'zero'"),
    (CHOICES, {"num_fewshot": 13}, "lm_eval", "cannot set this task up"),
    ("template.yaml", {}, "lm_eval", "'quest' is undefined"),
    ("key.yaml", {}, "lm_eval", "argument 'doc_to_txt'"),
    ("own.yaml", {}, "metric", "no metric 'acc'"),
    ("both", {}, "metric", "one direction of 'acc'"),
    ("worthless", {}, "lm_eval", "no aggregate_metric_list .* tasks: choices, zero"),
    ("group.yaml", {}, "lm_eval", "is a group, which lm-eval finds by name alone"),
    ("dataset.yaml", {}, "lm_eval", "its dataset must be on the Hub or, offline"),
    ("generation.yaml", {**TOKENS, "filter": "whole"}, "filter", "before any filter"),
    (CHOICES, TOKENS, "metric", "task 'choices' has it choose or scores text"),
    ("parses.yaml", {}, "lm_eval", "got made-up answers, 'lol' where text is"),
]


@pytest.mark.usefixtures("groups")
@pytest.mark.parametrize(("task", "keys", "place", "message"), CASES)
def test_says_what_is_wrong_before_a_model_is_loaded(
    folder: Path, task: str, keys: dict[str, Any], place: str, message: str
) -> None:
    (folder / "broken.yaml").write_text("task: a\n  b: [\n")
    write_choices(folder, "zero", num_fewshot=0)
    write_choices(folder, "template", doc_to_text="{{quest}}")
    write_choices(folder, "key", doc_to_txt="a")
    # lm-eval computes no bleu for multiple choice, and does not say so.
    write_choices(folder, "own", metric_list=[{**ACC, "metric": "bleu"}])
    write_choices(folder, "down", metric_list=[{**ACC, "higher_is_better": False}])
    aggregate = [{"metric": "acc", "weight_by_size": True}]
    group = {"group": "both", "task": ["choices", "down"]}
    write_yaml(folder / "group.yaml", {**group, "aggregate_metric_list": aggregate})
    tasks = ["choices", "zero"]
    write_yaml(folder / "valueless.yaml", {"group": "worthless", "task": tasks})
    write_choices(folder, "dataset", dataset_path="nobody/nothing", dataset_kwargs={})
    (folder / "numbers.py").write_text("def f(doc, results):\n    int(results[0])\n")
    path = write_generation(folder, "parses")
    path.write_text(path.read_text() + "process_results: !function numbers.f\n")

    with pytest.raises(InvalidTask, match=re.compile(message, re.DOTALL)) as caught:
        load(folder, task, **{"metric": "acc", **keys})
    assert caught.value.key == (place,)


def test_documents_that_come_late_and_empty_prompts_are_rehearsed(folder: Path) -> None:
    (folder / "late.py").write_text(
        "def process(doc, results):\n"
        "    return {'acc_late' if doc['question'] == '' else 'acc_early': 1.0}\n"
    )
    rows = [{"question": word, "answer": "a"} for word in ("a", "b", "c", "")]
    path = write_generation(folder, "late")
    (folder / "late.jsonl").write_text("".join(f"{json.dumps(r)}\n" for r in rows))
    path.write_text(path.read_text() + "process_results: !function late.process\n")

    options = {"filter": "whole", "direction": "maximize"}
    assert load(folder, "late.yaml", "acc_late", **options).size == 4


def test_says_which_built_in_tasks_are_near(folder: Path) -> None:
    with pytest.raises(InvalidTask, match=r"no task, group or tag 'gsm9k'.*'gsm8k'"):
        load(folder, "gsm9k", "exact_match")


def test_the_fingerprint_changes_with_what_is_measured(folder: Path) -> None:
    def of(metric: str = "acc", **options: Any) -> str:
        return load(folder, "choices.yaml", metric, **options).fingerprint

    seen = [of(), of("acc_norm"), of(limit=5), of(apply_chat_template=True)]
    seen += [of(num_fewshot=n) for n in (1, 2)]
    assert of(range=[0, 1]) == seen[0]
    write_choices(folder, doc_to_text="Q: {{question}}")
    seen.append(of())
    path = write_choices(folder).with_suffix(".jsonl")
    path.write_text(path.read_text().replace('"answer": 3', '"answer": 2', 1))
    seen.append(of())
    assert len(set(seen)) == 8


@pytest.mark.parametrize("changed", ["own_docs.py", "own_beside.py"])
def test_the_fingerprint_changes_with_the_code_of_the_task(
    folder: Path, monkeypatch: pytest.MonkeyPatch, changed: str
) -> None:
    monkeypatch.syspath_prepend(folder)
    path = write_choices(folder)
    path.write_text(path.read_text() + "process_docs: !function own_docs.process\n")
    code = "import own_beside\n\n\ndef process(rows):\n    return rows\n"
    (folder / "own_docs.py").write_text(code)
    (folder / "own_beside.py").write_text("K = 1\n")
    first = load(folder, "choices.yaml", "acc").fingerprint

    with (folder / changed).open("a") as file:
        file.write("SAME = 1\n")

    assert load(folder, "choices.yaml", "acc").fingerprint != first


def leaves(name: str) -> Iterator[str]:
    """List the tasks of a group, or a task itself."""
    index = built_in_tasks().task_index
    entry = index[name]
    if entry.kind is Kind.TAG:
        yield from (t for t, e in sorted(index.items()) if name in e.tags)
        return
    if entry.kind is Kind.TASK:
        yield name
        return
    for member in load_yaml(entry.yaml_path, resolve_func=False)["task"]:
        listed = member if isinstance(member, str) else member["task"]
        for part in [listed] if isinstance(listed, str) else listed:
            yield from leaves(part)


@pytest.mark.parametrize("name", PRESETS)
def test_lm_eval_has_the_metric_and_the_filter(name: str) -> None:
    task, index = PresetTask(preset=name).in_full(), built_in_tasks().task_index
    entry, found = index[task.lm_eval], list(leaves(task.lm_eval))

    assert found
    for leaf in found:
        content = load_yaml(index[leaf].yaml_path, resolve_func=False)
        filters = [kept["name"] for kept in content.get("filter_list") or ()]
        metrics = {entry["metric"]: entry for entry in content["metric_list"]}
        assert metrics[task.metric].get("higher_is_better", True)
        assert task.filter in filters if task.filter else len(filters) <= 1
        assert not content.get("unsafe_code"), "lm-eval would ask before it is run"
        # lm-eval keeps a 0 of the task's own, whatever it is asked for.
        assert content.get("num_fewshot") in {None, task.num_fewshot} or (
            content["num_fewshot"] > 0
        )
    if entry.kind is Kind.GROUP:
        group = load_yaml(entry.yaml_path, resolve_func=False)
        (read,) = group["aggregate_metric_list"]
        assert read["metric"] == task.metric
        assert read.get("filter_list", task.filter) == task.filter


def test_what_is_given_beside_a_preset_goes_first() -> None:
    given: Mapping[str, Any] = {"limit": None, "num_fewshot": 0, "documents": 64}

    assert PresetTask(preset="gsm8k", **given).in_full() == LmEvalTask(
        lm_eval="gsm8k", metric="exact_match", filter="flexible-extract", **given
    )
