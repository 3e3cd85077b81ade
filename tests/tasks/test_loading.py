from pathlib import Path

import pytest
from task_files import write_choices

from mergekit_map.config.tasks import (
    LmEvalTask,
    PerplexityTask,
    PythonTask,
    TaskSpec,
    TextSource,
)
from mergekit_map.tasks.loading import load_tasks


def good_specs(folder: Path) -> dict[str, TaskSpec]:
    write_choices(folder)
    (folder / "held_out.txt").write_text("the cat sat on the mat")
    (folder / "own_good.py").write_text("def score(model, tokenizer):\n    return 3\n")
    return {
        "choices": LmEvalTask(lm_eval="choices.yaml", metric="acc", num_fewshot=2),
        "text": PerplexityTask.model_validate({"perplexity": {"file": "held_out.txt"}}),
        "own": PythonTask(python="own_good:score", direction="minimize"),
    }


def test_all_problems_of_all_tasks_are_found_together(folder: Path) -> None:
    specs = good_specs(folder)
    (folder / "bad.jsonl").write_text("no\n[]\n")
    specs |= {
        "bad text": PerplexityTask(perplexity=TextSource(file=Path("bad.jsonl"))),
        "bad metric": LmEvalTask(lm_eval="choices.yaml", metric="f1"),
        "bad code": PythonTask(python="own_good:scores", direction="minimize"),
    }

    tasks, problems = load_tasks(specs, folder)

    assert list(tasks) == ["choices", "text", "own"]
    assert [p.key for p in problems] == [
        ("map", "tasks", "bad text", "perplexity", "file"),
        ("map", "tasks", "bad text", "perplexity", "file"),
        ("map", "tasks", "bad metric", "metric"),
        ("map", "tasks", "bad code", "python"),
    ]
    assert "did you mean 'score'" in problems[-1].message


def test_fingerprints_are_the_same_in_another_folder(
    folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    def fingerprints(place: Path) -> list[str]:
        tasks, _ = load_tasks(good_specs(place), place)
        return [task.fingerprint for task in tasks.values()]

    found = fingerprints(folder)

    assert found == fingerprints(tmp_path_factory.mktemp("elsewhere"))
    assert [len(text) for text in found] == [64, 64, 64]
