"""A small search to attack: models of two layers, texts, and its finished run folder."""

from __future__ import annotations

import atexit
import functools
import os
import shutil
import tempfile
from contextlib import ExitStack
from pathlib import Path

import torch
import transformers
import yaml
from attack import Limits, Outcome, command
from quick_fronts import blank_pictures, fronts_of_few_points
from tiny_tokenizer import make_tokenizer

EVALUATIONS = 12
TASKS = ("one", "two")


@functools.cache
def place() -> Path:
    """Make models, texts and a finished search, once; they go with this process."""
    folder, made_by = Path(tempfile.mkdtemp(prefix="small-search-")), os.getpid()
    atexit.register(
        lambda: os.getpid() == made_by and shutil.rmtree(folder, ignore_errors=True)
    )
    folder.chmod(0o755)
    (folder / "home").mkdir()
    base = _model(folder / "base", 0)
    for number, name in enumerate("ab", start=1):
        _model(folder / name, number, base)
    (folder / "one.txt").write_text("hello world, one plus two\n" * 40)
    (folder / "two.txt").write_text("def return three\n" * 40)
    (folder / "config.yml").write_text(yaml.safe_dump(_config(folder, "memory")))
    (folder / "disk.yml").write_text(yaml.safe_dump(_config(folder, "disk")))
    done = run_in(folder, ["search", "config.yml", "run"])
    assert done.code == 0, done.said
    done = run_in(folder, ["merge", "run", "merged"])
    assert done.code == 0, done.said
    return folder


def run_in(folder: Path, words: list[str | Path], limits: Limits = Limits()) -> Outcome:
    """Run a command with the cache of the small search, and quick fronts."""
    home = {"MERGEKIT_MAP_HOME": str(folder / "home"), "HF_HUB_OFFLINE": "1"}
    others = {**home, **limits.others}

    def before() -> None:
        ExitStack().enter_context(fronts_of_few_points())
        ExitStack().enter_context(blank_pictures())
        limits.before()

    return command(words, folder, dataclass_replace(limits, others, before))


def dataclass_replace(limits: Limits, others, before) -> Limits:
    from dataclasses import replace

    return replace(limits, others=others, before=before)


def _config(folder: Path, merge: str) -> dict[str, object]:
    tasks = {
        name: {"perplexity": {"file": str(folder / f"{name}.txt")}, "block": 64}
        for name in TASKS
    }
    search = {"evaluations": EVALUATIONS, "remeasure": 2}
    return {
        "merge_method": "task_arithmetic",
        "base_model": str(folder / "base"),
        "models": [{"model": str(folder / name)} for name in "ab"],
        "dtype": "float32",
        "map": {"tasks": tasks, "search": search, "merge": merge},
    }


def _model(folder: Path, seed: int, near: Path | None = None) -> Path:
    torch.manual_seed(seed)
    tokenizer = make_tokenizer([])
    config = transformers.LlamaConfig(
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        vocab_size=len(tokenizer),
        max_position_embeddings=128,
        tie_word_embeddings=False,
    )
    model = transformers.LlamaForCausalLM(config)
    if near is not None:
        parent = transformers.LlamaForCausalLM.from_pretrained(near)
        model.load_state_dict(parent.state_dict())
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.02)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder
