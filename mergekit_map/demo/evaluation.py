"""The files a family can be measured on: two texts, two local lm-eval tasks."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from mergekit_map.demo.choices import Question


def write_documents(path: Path, documents: Iterable[str]) -> None:
    """Write one JSON object per document, with its text in ``text``."""
    _write_lines(path, ({"text": text} for text in documents))


def write_questions(path: Path, questions: Sequence[Question]) -> None:
    """Write one JSON object per question."""
    _write_lines(path, (dataclasses.asdict(question) for question in questions))


def write_choice_task(path: Path, questions: Path) -> None:
    """Write the lm-eval task that reads ``questions``, named as its file.

    lm-eval resolves relative data files against the working directory, so the path
    of ``questions`` is written in full.
    """
    lines = {
        "task": path.stem,
        "dataset_path": "json",
        "dataset_kwargs": {"data_files": {"test": str(questions.resolve())}},
        "test_split": "test",
        "output_type": "multiple_choice",
        "doc_to_text": "{{prompt}}",
        "doc_to_choice": "{{choices}}",
        "doc_to_target": "{{answer}}",
        "target_delimiter": "",
        "num_fewshot": 0,
        "metric_list": [
            {"metric": "acc", "aggregation": "mean", "higher_is_better": True}
        ],
        "metadata": {"version": 1.0},
    }
    # Every JSON value is a YAML value, with the same quotes and escapes.
    text = "".join(
        f"{key}: {json.dumps(value, ensure_ascii=False)}\n"
        for key, value in lines.items()
    )
    if not path.exists() or path.read_text(encoding="utf-8") != text:
        path.write_text(text, encoding="utf-8", newline="\n")


def _write_lines(path: Path, documents: Iterable[Mapping[str, Any]]) -> None:
    text = "".join(json.dumps(document) + "\n" for document in documents)
    path.write_text(text, encoding="utf-8", newline="\n")
