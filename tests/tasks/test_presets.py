"""Presets are settings that the installed lm-eval has, by its own YAML files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from lm_eval.tasks import TaskManager
from lm_eval.tasks._index import Kind
from lm_eval.tasks._yaml_loader import load_yaml

from mergekit_map.config.tasks import PRESETS, LmEvalTask, PresetTask
from mergekit_map.errors import InvalidTask
from mergekit_map.tasks.lm_eval_tasks import built_in_tasks, load_harness


@pytest.fixture
def manager() -> TaskManager:
    return built_in_tasks()


def leaves(manager: TaskManager, name: str) -> Iterator[str]:
    """List the tasks of a group, or a task itself."""
    entry = manager.task_index[name]
    if entry.kind is Kind.TAG:
        yield from (t for t, e in sorted(manager.task_index.items()) if name in e.tags)
        return
    if entry.kind is Kind.TASK:
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


def test_what_is_given_beside_a_preset_goes_first() -> None:
    given: Mapping[str, Any] = {"limit": None, "num_fewshot": 0, "documents": 64}

    task = PresetTask(preset="gsm8k", **given).in_full()

    assert task == LmEvalTask(
        lm_eval="gsm8k", metric="exact_match", filter="flexible-extract", **given
    )


@pytest.mark.skipif(find_spec("langdetect") is not None, reason="it is installed")
def test_a_package_that_a_task_wants_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidTask, match=r"No module .*lm-eval\[ifeval\]"):
        load_harness("x", PresetTask(preset="ifeval").in_full(), tmp_path)
