"""A search of two coefficients and two texts, for workers, and other tasks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from runs import write, write_plain, write_texts
from task_files import write_ask, write_choices

MINE = """
def one(model, tokenizer, documents=None):
    row = model.lm_head.weight[0].tolist()
    return [row[i] for i in (documents or range(len(row)))]
"""

# Beside the task, which lm-eval imports by its path.
ASKED = "def text(document):\n    return 'one ' + document['question']\n"


@pytest.fixture
def config(family: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Give a configuration; it is in the working directory, with what tasks read."""
    Path("v1.2").mkdir()  # no module of Python has such a name
    monkeypatch.chdir("v1.2")
    Path("asked.py").write_text(ASKED)
    path = write_choices(Path.cwd(), doc_to_text="ASKED")
    path.write_text(path.read_text().replace("ASKED", "!function asked.text"))
    write_ask(f"hello {i}" for i in range(12))
    texts = write_texts("one", "two", block=32)
    config = write_plain(family, texts, MINE, evaluations=8, remeasure=1)
    config["map"]["batch_size"] = 4
    write(config)
    return config
