"""Presets are settings that the installed lm-eval has, by its own YAML files."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import yaml
from lm_eval.tasks import TaskManager
from lm_eval.tasks._index import Kind
from lm_eval.tasks._yaml_loader import load_yaml

from mergekit_map.config.tasks import PRESETS, LmEvalTask, PresetTask
from mergekit_map.errors import InvalidTask
from mergekit_map.tasks.lm_eval_tasks import built_in_tasks, load_harness

CHOICES = ["one", "two", "three", "four", "five"]

# What documents of benchmarks look like, of each way to ask and to score; of a group,
# of one of its tasks.
DOCUMENTS: dict[str, tuple[str, dict[str, Any]]] = {
    "gsm8k": ("gsm8k", {"question": "1 + 1", "answer": "one\n#### 2"}),
    "mmlu": ("mmlu_anatomy", {"question": "x", "choices": CHOICES[:4], "answer": 1}),
    "ifeval": (
        "ifeval",
        {
            "key": 1,
            "prompt": "hello",
            "instruction_id_list": ["punctuation:no_comma"],
            "kwargs": [{"unused": None}],
        },
    ),
    "winogrande": (
        "winogrande",
        {"sentence": "hello _ two", "option1": "a", "option2": "b", "answer": "1"},
    ),
    "truthfulqa_mc2": (
        "truthfulqa_mc2",
        {
            "question": "hello",
            "mc1_targets": {"choices": CHOICES, "labels": [1, 0, 0, 0, 0]},
            "mc2_targets": {"choices": CHOICES, "labels": [1, 1, 0, 0, 0]},
        },
    ),
    "lambada_openai": ("lambada_openai", {"text": "hello one two three"}),
}


@pytest.fixture
def manager() -> TaskManager:
    return built_in_tasks()


def leaves(manager: TaskManager, name: str) -> Iterator[str]:
    """List the tasks of a group, or a task itself."""
    entry = manager.task_index[name]
    if entry.kind is not Kind.GROUP:
        if entry.kind is Kind.TAG:
            for task in sorted(manager.task_index):
                if name in manager.task_index[task].tags:
                    yield task
        else:
            yield name
        return
    for member in load_yaml(entry.yaml_path, resolve_func=False)["task"]:
        listed = member if isinstance(member, str) else member["task"]
        for part in [listed] if isinstance(listed, str) else listed:
            yield from leaves(manager, part)


@pytest.mark.parametrize("name", PRESETS)
def test_lm_eval_has_the_metric_and_the_filter(name: str, manager: TaskManager) -> None:
    task = PresetTask(preset=name).in_full()
    entry = manager.task_index[task.lm_eval]
    found = list(leaves(manager, task.lm_eval))

    assert found
    for leaf in found:
        content = load_yaml(manager.task_index[leaf].yaml_path, resolve_func=False)
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
        (read,) = load_yaml(entry.yaml_path, resolve_func=False)[
            "aggregate_metric_list"
        ]
        assert read["metric"] == task.metric
        assert read.get("filter_list", task.filter) == task.filter


def local_task(folder: Path, own: str, yaml_path: Path, document: Any) -> Path:
    """Write a task that is lm-eval's own but for its documents, which lie here."""
    path = folder / "documents.jsonl"
    documents = [{**document, "number": n} for n in range(40)]
    path.write_text("\n".join(map(json.dumps, documents)))
    base = load_yaml(yaml_path, resolve_func=False)
    splits = {
        base.get(key)
        for key in ("training_split", "validation_split", "test_split", "fewshot_split")
    }
    changed = {
        "include": str(yaml_path),
        "task": f"{own}_here",
        "dataset_path": "json",
        "dataset_name": None,
        "dataset_kwargs": {"data_files": {s: str(path) for s in splits if s}},
    }
    (folder / "task.yaml").write_text(yaml.safe_dump(changed))
    return folder / "task.yaml"


@pytest.mark.slow
@pytest.mark.parametrize("name", DOCUMENTS)
def test_the_task_of_lm_eval_yields_what_a_preset_reads(
    name: str, manager: TaskManager, tmp_path: Path
) -> None:
    if name == "ifeval" and find_spec("langdetect") is None:
        pytest.skip("needs what lm-eval[ifeval] installs")
    own, document = DOCUMENTS[name]
    path = local_task(tmp_path, own, manager.task_index[own].yaml_path, document)
    preset = PresetTask(preset=name).in_full()
    spec = preset.model_copy(update={"lm_eval": str(path)})

    task = load_harness(name, spec, tmp_path)

    assert task.reading == f"{preset.metric},{preset.filter or 'none'}"
    assert task.metric.higher_is_better
    (loaded,) = task.loaded["tasks"].values()
    assert loaded.config.num_fewshot == preset.num_fewshot
    assert len({i.doc_id for i in loaded.instances}) == min(40, int(preset.limit or 0))


def test_what_is_given_beside_a_preset_goes_first() -> None:
    given: Mapping[str, Any] = {"limit": None, "num_fewshot": 0, "documents": 64}

    task = PresetTask(preset="gsm8k", **given).in_full()

    assert task == LmEvalTask(
        lm_eval="gsm8k", metric="exact_match", filter="flexible-extract", **given
    )


@pytest.mark.skipif(find_spec("langdetect") is not None, reason="it is installed")
def test_a_package_that_a_task_wants_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidTask, match=r"pip install 'lm-eval\[ifeval\]'"):
        load_harness("x", PresetTask(preset="ifeval").in_full(), tmp_path)
