"""Tiny models and tasks of every kind, written to a folder."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch
import yaml
from lm_eval import simple_evaluate
from lm_eval.models.huggingface import HFLM
from lm_eval.tasks import TaskManager
from tiny_tokenizer import SIZES, make_tokenizer
from tokenizers import processors
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from mergekit_map.config.tasks import TASK_KINDS
from mergekit_map.tasks.base import PreparedTask, quiet
from mergekit_map.tasks.loading import LoadedTask, load_tasks, prepare_tasks

# fmt: off
WORDS = [
    "the", "a", "cat", "dog", "bird", "sat", "ran", "flew", "on", "under", "over",
    "mat", "road", "sky", "and", "then", "it", "was", "not", "red", "green", "blue",
    "one", "two", "three", "Question", "Answer", "Yes", "No",
]
# fmt: on


def build_tokenizer(*, adds_bos: bool = False) -> PreTrainedTokenizerFast:
    """Bytes, whole words with and without a leading space, BOS, EOS."""
    tokenizer = make_tokenizer([form for word in WORDS for form in (word, f" {word}")])
    tokenizer.pad_token = None
    if adds_bos:
        tokenizer.backend_tokenizer.post_processor = processors.TemplateProcessing(
            single="<s> $A", special_tokens=[("<s>", 0)]
        )
    return tokenizer


def build_model(vocabulary: int, *, seed: int = 0) -> LlamaForCausalLM:
    torch.manual_seed(seed)
    settings = {**SIZES, "num_key_value_heads": 2, "max_position_embeddings": 128}
    settings |= {"vocab_size": vocabulary, "bos_token_id": 0, "eos_token_id": 1}
    # Far from uniform, so that answers differ.
    config = LlamaConfig(**settings, initializer_range=0.3)
    return LlamaForCausalLM(config).eval().requires_grad_(False)


@torch.inference_mode()
def plain_loss(model: Any, tokenizer: Any, texts: Iterable[str], block: int) -> float:
    """Return the mean loss over blocks, with nothing but transformers.

    A token separates each text from the one before, and is not scored itself.
    """
    bos, stream = tokenizer.bos_token_id, list[int]()
    for text in texts:
        stream += [bos, *tokenizer(text, add_special_tokens=False)["input_ids"]]
    tokens = torch.tensor(stream)
    n, losses = len(tokens) - 1, []
    for start in range(0, n, block):
        first = max(0, min(start, n - block))  # the last block has full length, too
        logits = model.eval()(tokens[None, first : first + block]).logits[0]
        goals = tokens[first + 1 : first + block + 1]
        loss = torch.nn.functional.cross_entropy(logits, goals, reduction="none")
        losses += loss[start - first :][goals[start - first :] != bos].tolist()
    return math.fsum(losses) / len(losses)


def by_lm_eval(
    checkpoint: Path, task: str, folder: Path, batch_size: int = 8, **options: Any
) -> dict[str, Any]:
    """Evaluate a checkpoint on a task of a folder as the ``lm_eval`` command does."""
    manager = TaskManager(include_path=str(folder), include_defaults=False)
    options |= {"model": "hf", "device": "cpu", "batch_size": batch_size}
    options["model_args"] = f"pretrained={checkpoint},softmax_dtype=float32"
    with quiet(), mock.patch("lm_eval.evaluator.add_env_info"):  # seconds
        return dict(simple_evaluate(tasks=[task], task_manager=manager, **options))


def kept_generations(patch: pytest.MonkeyPatch) -> list[list[str]]:
    """Keep what lm-eval's model generates, call by call."""
    real, kept = HFLM.generate_until, []

    def generate(*args: Any, **options: Any) -> list[str]:
        kept.append(real(*args, **options))
        return kept[-1]

    patch.setattr(HFLM, "generate_until", generate)
    return kept


@dataclass
class Bench:
    """A model to measure, and the folder of the files of its tasks."""

    folder: Path
    model: LlamaForCausalLM
    tokenizer: Any

    def load(self, **keys: Any) -> LoadedTask:
        """Load a task as a configuration has it."""
        (kind,) = (kind for key, kind in TASK_KINDS.items() if key in keys)
        tasks, problems = load_tasks({"mine": kind.model_validate(keys)}, self.folder)
        assert not problems
        return tasks["mine"]

    def prepare(
        self, task: LoadedTask | Mapping[str, Any], model: Any = None, **options: Any
    ) -> PreparedTask:
        """Prepare a task for the model, or for another one."""
        loaded = self.load(**task) if isinstance(task, Mapping) else task
        options = {"batch_size": 8, "generations": {}, **options}
        tokenizer = options.pop("tokenizer", self.tokenizer)
        model = model or self.model
        return prepare_tasks({"mine": loaded}, model, tokenizer, **options)["mine"]


def write_jsonl(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def write_choices(folder: Path, name: str = "choices", **changes: Any) -> Path:
    """Write a multiple-choice task with 40 documents and 12 for examples."""
    rows = [
        {
            "question": f"{WORDS[i % 29]} {WORDS[(i * 7 + 3) % 29]} {i}?",
            "choices": [f"{WORDS[(i + j) % 29]} {WORDS[i * j % 29]}" for j in range(4)],
            "answer": i % 4,
        }
        for i in range(52)
    ]
    config = {
        "fewshot_split": "train",
        "output_type": "multiple_choice",
        "doc_to_text": "Question: {{question}}\nAnswer:",
        "doc_to_choice": "{{choices}}",
        "doc_to_target": "{{answer}}",
        "metric_list": [mean_of(metric) for metric in ("acc", "acc_norm")],
        **changes,
    }
    return _write_task(folder, name, rows[:40], rows[40:], **config)


def mean_of(metric: str) -> dict[str, Any]:
    return {"metric": metric, "aggregation": "mean", "higher_is_better": True}


def _write_task(
    folder: Path, name: str, rows: list[Any], examples: Any = (), **config: Any
) -> Path:
    """Write a task and its documents, of answers that are right or wrong by default."""
    files = {"test": str(write_jsonl(folder / f"{name}.jsonl", rows))}
    if examples:
        files["train"] = str(write_jsonl(folder / f"{name}_train.jsonl", examples))
    read = {"dataset_path": "json", "dataset_kwargs": {"data_files": files}}
    metrics = [mean_of("exact_match")]
    about = {"task": name, "test_split": "test", "metric_list": metrics}
    return write_yaml(folder / f"{name}.yaml", {**about, **read, **config})


def write_rolling(folder: Path, documents: list[str], name: str = "rolling") -> Path:
    metrics = ("word_perplexity", "byte_perplexity", "bits_per_byte")
    config = {"output_type": "loglikelihood_rolling", "doc_to_text": ""}
    config |= {"doc_to_target": "{{text}}"}
    config["metric_list"] = [{"metric": metric} for metric in metrics]
    return _write_task(folder, name, [{"text": d} for d in documents], **config)


def write_generation(
    folder: Path, name: str = "generation", *, draws: bool = True
) -> Path:
    """Write a task that generates, and reads the answers with two filters."""
    rows = [{"question": f"{WORDS[i]} {WORDS[i + 5]}", "answer": "a"} for i in range(6)]
    takes = {"function": "take_first"}
    letter = {"function": "regex", "regex_pattern": "(a)"}
    drawing = {"do_sample": True, "temperature": 1.0} if draws else {}
    filters = {"letter": [letter, takes], "whole": [takes]}
    listed = [{"name": one, "filter": steps} for one, steps in filters.items()]
    config = {"doc_to_text": "{{question}}", "doc_to_target": "{{answer}}"}
    config["generation_kwargs"] = {"until": ["."], "max_gen_toks": 8, **drawing}
    config |= {"output_type": "generate_until", "filter_list": listed}
    return _write_task(folder, name, rows, **config)


def write_ask(texts: Iterable[str], *, tokens: int = 8) -> None:
    """Write ``ask.yaml`` and its documents: go on with texts until an ``e``."""
    config: Any = {"output_type": "generate_until", "doc_to_text": "{{text}}"}
    config["generation_kwargs"] = {"until": ["e"], "max_gen_toks": tokens}
    rows = [{"text": text} for text in texts]
    _write_task(Path.cwd(), "ask", rows, **config, doc_to_target="a")


def write_yaml(path: Path, content: dict[str, Any]) -> Path:
    path.write_text(yaml.safe_dump(content, sort_keys=False), encoding="utf-8")
    return path
