import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from task_files import write_choices
from transformers import LlamaForCausalLM

from mergekit_map.config.task_specs import (
    LmEvalTask,
    PerplexityTask,
    PythonTask,
    TaskSpec,
    TextSource,
)
from mergekit_map.tasks.loading import load_tasks
from mergekit_map.tasks.preparing import prepare_tasks


def good_specs(folder: Path) -> dict[str, TaskSpec]:
    write_choices(folder)
    (folder / "held_out.txt").write_text("the cat sat on the mat")
    (folder / "own_good.py").write_text("def score(model, tokenizer):\n    return 3\n")
    return {
        "choices": LmEvalTask(lm_eval="choices.yaml", metric="acc", num_fewshot=2),
        "text": PerplexityTask.model_validate({"perplexity": {"file": "held_out.txt"}}),
        "own": PythonTask(python="own_good:score", direction="minimize"),
    }


def test_tasks_keep_their_names_and_order(
    folder: Path, model: LlamaForCausalLM, tokenizer: Any
) -> None:
    specs = good_specs(folder)

    tasks, problems = load_tasks(specs, folder)
    measures = prepare_tasks(tasks, model, tokenizer, batch_size=4)

    assert problems == []
    assert [task.name for task in tasks.values()] == list(specs)
    assert [task.metric.higher_is_better for task in tasks.values()] == [1, 0, 0]
    assert list(measures) == list(specs)
    assert [measures[name]().n for name in specs] == [40, 1, 1]


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


@pytest.mark.slow  # imports lm-eval anew
def test_fingerprints_are_the_same_in_another_process_and_folder(
    folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    tasks, _ = load_tasks(good_specs(folder), folder)
    script = (
        "import sys\nfrom pathlib import Path\n"
        "sys.path.insert(0, sys.argv[2])\n"
        "from test_loading import good_specs\n"
        "from mergekit_map.tasks.loading import load_tasks\n"
        "folder = Path(sys.argv[1])\n"
        "tasks, _ = load_tasks(good_specs(folder), folder)\n"
        "for task in tasks.values():\n    sys.stdout.write(task.fingerprint + '\\n')\n"
    )
    result = subprocess.run(
        [sys.executable, "-c", script, str(elsewhere), str(Path(__file__).parent)],
        env={**os.environ, "PYTHONHASHSEED": "7", "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=True,
    )

    assert result.stdout.split() == [task.fingerprint for task in tasks.values()]
    assert all(len(line) == 64 for line in result.stdout.split())
    assert result.stderr == ""
