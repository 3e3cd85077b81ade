from pathlib import Path
from typing import Any

import pytest
import task_files
from lm_eval.tasks import TaskManager
from task_files import WORDS, Bench, build_model, build_tokenizer
from transformers import PreTrainedTokenizerFast


@pytest.fixture(scope="session")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("tokenizer")
    build_tokenizer().save_pretrained(folder)
    return PreTrainedTokenizerFast.from_pretrained(folder)


@pytest.fixture(scope="session")
def documents() -> list[str]:
    """Deterministic sentences of different lengths, with text that is no word."""
    return [
        " ".join(WORDS[(i * 7 + j * j) % len(WORDS)] for j in range(n)) + f" #{i}é"
        for i, n in enumerate([3, 40, 7, 90, 1, 25, 60])
    ]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with two tasks of lm-eval, ``choices`` and ``generation``."""
    task_files.write_choices(tmp_path)
    task_files.write_generation(tmp_path)
    return tmp_path


@pytest.fixture
def groups(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the tasks and groups of the folder found by name, instead of lm-eval's."""
    monkeypatch.setattr(
        "mergekit_map.tasks.lm_eval_tasks.built_in_tasks",
        lambda: TaskManager(include_path=str(folder), include_defaults=False),
    )


@pytest.fixture
def bench(folder: Path, tokenizer: Any) -> Bench:
    return Bench(folder, build_model(len(tokenizer)), tokenizer)
