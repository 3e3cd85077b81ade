"""A base model of 21.8 M parameters and two fine-tunes, to time whole searches on.

    python benchmarks/family20.py FOLDER

Large enough that the forward passes dominate a search on a CPU, not more: the models
train for some ten minutes of one core and are no good at anything. The fine-tunes are
better than the base on their own text, code or arithmetic, and worse on the other's.
Tasks: the loss on 64 blocks of each text, and how a line of code goes on (240
questions). FOLDER gets ``map.yaml``, which measures every document of every merge, and
``map_documents.yaml``, which leaves open how many (``documents: auto``).

Same machine, same seed, same bytes. A model that is finished is not trained again;
``family.json``, written last, says what the models do.
"""

from __future__ import annotations

import argparse
import copy
import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import transformers
import yaml
from family8 import config, measure, train
from transformers import LlamaForCausalLM, PreTrainedTokenizerFast

from mergekit_map.demo.choices import code_questions
from mergekit_map.demo.corpus import (
    Corpus,
    CorpusSizes,
    interleaved_passages,
    read_corpus,
)
from mergekit_map.demo.evaluation import (
    write_choice_task,
    write_documents,
    write_questions,
)
from mergekit_map.demo.training import (
    ModelSizes,
    Schedule,
    TokenArray,
    join_documents,
    new_model,
    one_thread,
    train_tokenizer,
)

TASKS = ("code", "math")

_SEED = 0
_SIZES = ModelSizes(  # narrow, with a wide middle: Muon is cheapest on those
    vocabulary=1536, hidden=256, intermediate=3072, layers=8, heads=4, positions=128
)
_BASE = Schedule(steps=60, learning_rate=8e-3, matrix_learning_rate=0.03, batch=16)
_FINE_TUNE = Schedule(steps=30, learning_rate=2e-3, matrix_learning_rate=0.005)
_TOKENIZER_DOCUMENTS = 1_000  # of each domain
_HELD_OUT_CHARACTERS = 60_000  # of each text to measure on
_MEASURED_TOKENS = 64 * 128  # blocks of each text
_QUESTIONS = 240
_EVALUATIONS = 20
_MANIFEST = "family.json"  # a manifest.json beside map.yaml would make it a run
_SMALLEST_EFFECT = 0.05  # nats per token, for the better and for the worse


def build(folder: Path) -> None:
    """Train what is missing of the family, and write its manifest last."""
    folder.mkdir(parents=True, exist_ok=True)
    with one_thread():
        corpus = read_corpus(_generator("corpus"), CorpusSizes())
        domains = {"english": corpus.english, "code": corpus.code, "math": corpus.math}
        documents = [
            text
            for split in domains.values()
            for text in split.train[:_TOKENIZER_DOCUMENTS]
        ]
        tokenizer = train_tokenizer(documents, _SIZES)
        streams = {
            name: join_documents(tokenizer, split.train)
            for name, split in domains.items()
        }
        _write_evaluation(folder, corpus, tokenizer, streams["code"])
        _train_models(folder, tokenizer, streams)
        manifest = _describe(folder)
    _write_configurations(folder)
    text = json.dumps(manifest, indent=2) + "\n"
    (folder / _MANIFEST).write_text(text, encoding="utf-8")


def _generator(purpose: str) -> np.random.Generator:
    return np.random.default_rng([_SEED, *purpose.encode()])


def _write_evaluation(
    folder: Path, corpus: Corpus, tokenizer: PreTrainedTokenizerFast, code: TokenArray
) -> None:
    counts = np.bincount(code, minlength=len(tokenizer)) + 1
    nats = -np.log(counts / counts.sum())

    def surprise(text: str) -> float:
        return float(nats[tokenizer(text)["input_ids"]].sum())

    for name, split in (("code", corpus.code), ("math", corpus.math)):
        passages = interleaved_passages(split.held_out, _HELD_OUT_CHARACTERS)
        write_documents(folder / f"{name}.jsonl", passages)
    questions = code_questions(
        _generator("questions"), corpus.code.held_out, surprise, _QUESTIONS
    )
    write_questions(folder / "code_choice.jsonl", questions)
    write_choice_task(folder / "code_choice.yaml", folder / "code_choice.jsonl")


def _train_models(
    folder: Path, tokenizer: PreTrainedTokenizerFast, streams: Mapping[str, TokenArray]
) -> None:
    if not (folder / "base" / "config.json").exists():
        base = new_model(_SEED, tokenizer, _SIZES)
        train(folder / "base", base, tokenizer, streams, _BASE)
    base = LlamaForCausalLM.from_pretrained(folder / "base", dtype="float32")
    for name in TASKS:
        if not (folder / name / "config.json").exists():
            model = copy.deepcopy(base)
            train(folder / name, model, tokenizer, {name: streams[name]}, _FINE_TUNE)


def _describe(folder: Path) -> dict[str, Any]:
    """Measure the base and the fine-tunes, and refuse those that do not differ."""
    content = config(folder, TASKS, TASKS, max_tokens=_MEASURED_TOKENS)
    base, *tuned = measure(content, np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]]))
    for own, (name, losses) in enumerate(zip(TASKS, tuned, strict=True)):
        gain, loss = base[own] - losses[own], losses[1 - own] - base[1 - own]
        if min(gain, loss) < _SMALLEST_EFFECT:
            raise SystemExit(
                f"a fine-tune must be {_SMALLEST_EFFECT} nats better on its own text "
                f"and worse on the other, but {name} is {gain:.3f} better and "
                f"{loss:.3f} worse; train it for longer"
            )
    model = LlamaForCausalLM.from_pretrained(folder / "base", dtype="float32")
    return {
        "seed": _SEED,
        "parameters": model.num_parameters(),
        "model": dataclasses.asdict(_SIZES),
        "base": dataclasses.asdict(_BASE),
        "fine_tune": dataclasses.asdict(_FINE_TUNE),
        "tasks": list(TASKS),
        "losses": {
            name: losses.round(4).tolist()
            for name, losses in zip(("base", *TASKS), (base, *tuned), strict=True)
        },
    }


def _write_configurations(folder: Path) -> None:
    content = config(
        folder,
        TASKS,
        TASKS,
        max_tokens=_MEASURED_TOKENS,
        evaluations=_EVALUATIONS,
        bounds=[0, 1],
    )
    tasks = content["map"]["tasks"]
    choice = str((folder / "code_choice.yaml").resolve())
    tasks["code_choice"] = {"lm_eval": choice, "metric": "acc"}
    _write_yaml(folder / "map.yaml", content)
    for task in tasks.values():
        task["documents"] = "auto"
    _write_yaml(folder / "map_documents.yaml", content)


def _write_yaml(path: Path, content: Mapping[str, Any]) -> None:
    text = yaml.safe_dump(dict(content), sort_keys=False)
    path.write_text(text, encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    transformers.utils.logging.disable_progress_bar()
    transformers.utils.logging.set_verbosity_error()
    if not (folder / _MANIFEST).exists():
        build(folder)
    manifest = json.loads((folder / _MANIFEST).read_text(encoding="utf-8"))
    print(f"{manifest['parameters']:,} parameters; losses on", *manifest["tasks"])
    for name, losses in manifest["losses"].items():
        print(f"{name:>5}", *(f"{loss:7.3f}" for loss in losses))


if __name__ == "__main__":
    main()
