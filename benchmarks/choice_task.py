"""A task of lm-eval with questions of several choices, for benchmarks."""

from pathlib import Path

import yaml


def write_choice_task(path: Path, questions: Path) -> None:
    """Write the task that reads ``questions``, named as its file.

    lm-eval resolves relative data files against the working directory.
    """
    content = {
        "task": path.stem,
        "dataset_path": "json",
        "dataset_kwargs": {"data_files": {"test": str(questions.resolve())}},
        "test_split": "test",
        "output_type": "multiple_choice",
        "doc_to_text": "{{prompt}}",
        "doc_to_choice": "{{choices}}",
        "doc_to_target": "{{answer}}",
        "target_delimiter": "",
        "metric_list": [{"metric": "acc"}],  # lm-eval knows its mean and direction
    }
    path.write_text(yaml.safe_dump(content, sort_keys=False), encoding="utf-8")
