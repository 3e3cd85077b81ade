"""A base model and eight fine-tunes of it, to benchmark searches with many models.

    python benchmarks/family8.py FOLDER [--manpages DIR]

Six fine-tunes are on manual pages in six languages (Debian's packages manpages-de,
-fr, -es, -it, -pl and -ru; DIR holds a folder per language), one is on the source of
Python's standard library and one on arithmetic. Each domain has a held-out text to be
measured on. The task vectors are small, as the paper assumes: the base has learnt all
eight domains, and each fine-tune only leans towards one. What is finished is reused;
``manifest.json``, written last, says how large the vectors are and what they do.
"""

from __future__ import annotations

import argparse
import copy
import dataclasses
import itertools
import json
import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import transformers
import yaml
from family8_text import DOMAINS, read_domains
from safetensors.numpy import load_file
from transformers import LlamaForCausalLM, PreTrainedTokenizerFast

from mergekit_map import load_project
from mergekit_map.demo.corpus import Split, interleaved_passages
from mergekit_map.demo.tasks import write_documents
from mergekit_map.demo.training import (
    ModelSizes,
    Schedule,
    TokenArray,
    join_documents,
    new_model,
    one_thread,
    train_model,
    train_tokenizer,
)
from mergekit_map.evaluation.evaluator import merges_in_memory

_SEED = 0
_SIZES = ModelSizes(
    vocabulary=1024, hidden=64, intermediate=176, layers=3, heads=4, positions=128
)
_BASE = Schedule(steps=3000, learning_rate=6e-3, matrix_learning_rate=0.02, batch=16)
_FINE_TUNE = Schedule(
    steps=300, learning_rate=2e-3, matrix_learning_rate=1.5e-3, batch=16
)
_TOKENIZER_CHARACTERS = 200_000  # of each domain
_HELD_OUT_CHARACTERS = 60_000  # of each text to measure on
_SMALLEST_GAIN = 0.05  # nats per token; less is noise, or another task's loss
_MEASURED_TOKENS = 4096  # of each text, for the manifest

Vector = np.ndarray[tuple[int], np.dtype[np.float64]]


@dataclass(frozen=True)
class Landscape:
    """Losses in nats per token, task by task in the order of ``DOMAINS``."""

    base: list[float]
    fine_tunes: dict[str, list[float]]
    uniform_soup: list[float]  # every weight 1/8
    all_ones: list[float]  # every weight 1


def build(folder: Path, manpages: Path) -> None:
    """Train what is missing of the family, and write its manifest last."""
    folder.mkdir(parents=True, exist_ok=True)
    with one_thread():
        corpus = read_domains(manpages)
        for domain in DOMAINS:
            passages = interleaved_passages(
                corpus[domain].held_out, _HELD_OUT_CHARACTERS
            )
            write_documents(folder / f"{domain}.jsonl", passages)
        _train_models(folder, corpus)
        manifest = _describe(folder)
    text = json.dumps(manifest, indent=2) + "\n"
    (folder / "manifest.json").write_text(text, encoding="utf-8")


def config(
    folder: Path,
    names: Sequence[str],
    tasks: Sequence[str],
    method: str = "task_arithmetic",
    max_tokens: int = 1024,
    **search: Any,
) -> dict[str, Any]:
    """Give the content of a configuration: some fine-tunes, measured on some domains.

    ``search`` goes into ``map.search`` as it is.
    """
    folder = folder.resolve()
    return {
        "merge_method": method,
        "base_model": str(folder / "base"),
        "models": [{"model": str(folder / name)} for name in names],
        "dtype": "float32",
        "map": {
            "tasks": {
                f"{task}_loss": {
                    "perplexity": {"file": str(folder / f"{task}.jsonl")},
                    "max_tokens": max_tokens,
                    "block": _SIZES.positions,
                }
                for task in tasks
            },
            "search": {"seed": 0, **search},
        },
    }


def measure(
    content: Mapping[str, Any], X: np.ndarray[Any, np.dtype[np.float64]]
) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Measure every task of a configuration at the rows of ``X`` (n, models).

    Returns (n, tasks) values in the tasks' own units, smaller is better for a loss.
    The columns of both are in the order in which ``content`` lists models and tasks.
    """
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch) / "config.yml"
        path.write_text(
            yaml.safe_dump(dict(content), sort_keys=False), encoding="utf-8"
        )
        project = load_project(path)
    names = project.space.names
    tasks = list(content["map"]["tasks"])  # not the project's: YAML may be reordered
    values = np.empty((len(X), len(tasks)))
    with merges_in_memory(project) as merges:
        for row, point in zip(values, X, strict=True):
            measures = merges.at(dict(zip(names, map(float, point), strict=True)))
            row[:] = [measures[task]().value for task in tasks]
    return values


def _generator(purpose: str) -> np.random.Generator:
    """Give each part its own draws, so that changing one leaves the others alone."""
    return np.random.default_rng([_SEED, *purpose.encode()])


def _train_models(folder: Path, corpus: Mapping[str, Split]) -> None:
    tokenizer = _tokenizer(folder, corpus)
    streams = {
        name: join_documents(tokenizer, split.train) for name, split in corpus.items()
    }
    print({name: len(stream) for name, stream in streams.items()}, "tokens", flush=True)
    if not (folder / "base" / "config.json").exists():
        base = new_model(_SEED, tokenizer, _SIZES)
        train(folder / "base", base, tokenizer, streams, _BASE)
    base = LlamaForCausalLM.from_pretrained(folder / "base", dtype="float32")
    for name in DOMAINS:
        if not (folder / name / "config.json").exists():
            model = copy.deepcopy(base)
            train(folder / name, model, tokenizer, {name: streams[name]}, _FINE_TUNE)


def _tokenizer(folder: Path, corpus: Mapping[str, Split]) -> PreTrainedTokenizerFast:
    if (folder / "base" / "config.json").exists():
        return PreTrainedTokenizerFast.from_pretrained(folder / "base")
    documents: list[str] = []
    for split in corpus.values():
        lengths = itertools.accumulate(map(len, split.train))
        documents += [
            text
            for text, length in zip(split.train, lengths, strict=True)
            if length - len(text) < _TOKENIZER_CHARACTERS
        ]
    return train_tokenizer(documents, _SIZES)


def train(
    folder: Path,
    model: LlamaForCausalLM,
    tokenizer: PreTrainedTokenizerFast,
    streams: Mapping[str, TokenArray],
    schedule: Schedule,
) -> None:
    """Train a model on its streams, all alike, and save it."""
    sources = {name: (stream, 1.0) for name, stream in streams.items()}

    def report(share: float) -> None:
        print(f"\r{folder.name} {share:.0%}", end="", flush=True)

    train_model(_generator(folder.name), model, sources, schedule, report)
    report(1.0)
    print()
    unfinished = folder.with_name(folder.name + ".unfinished")
    model.save_pretrained(unfinished)
    tokenizer.save_pretrained(unfinished)
    os.replace(unfinished, folder)


def _describe(folder: Path) -> dict[str, Any]:
    """Measure the family: how large its vectors are, and what they do."""
    base = _weights(folder / "base")
    vectors = {name: _weights(folder / name) - base for name in DOMAINS}
    units = np.array([vector / np.linalg.norm(vector) for vector in vectors.values()])
    n = len(DOMAINS)
    X = np.vstack([np.zeros(n), np.eye(n), np.full(n, 1 / n), np.ones(n)])
    losses = measure(config(folder, DOMAINS, DOMAINS, max_tokens=_MEASURED_TOKENS), X)
    _check_gains(losses[0] - np.diag(losses[1 : n + 1]))
    rows = losses.round(4).tolist()
    singles = dict(zip(DOMAINS, rows[1 : n + 1], strict=True))
    return {
        "seed": _SEED,
        "model": dataclasses.asdict(_SIZES),
        "base": dataclasses.asdict(_BASE),
        "fine_tune": dataclasses.asdict(_FINE_TUNE),
        "parameters": base.size,
        "measured_tokens": _MEASURED_TOKENS,
        "domains": list(DOMAINS),
        "norm_ratios": {  # of the 1-norms, as in the paper
            name: round(float(np.abs(vector).sum() / np.abs(base).sum()), 4)
            for name, vector in vectors.items()
        },
        "cosines": (units @ units.T).round(3).tolist(),
        "losses": dataclasses.asdict(Landscape(rows[0], singles, *rows[n + 1 :])),
    }


def _check_gains(gains: Vector) -> None:
    """Refuse a family whose fine-tunes are not what their names say, gains (models,).

    This is also what shows that rows and columns of the losses are labelled rightly.
    """
    poor = [
        f"{name} ({gain:+.3f})"
        for name, gain in zip(DOMAINS, gains, strict=True)
        if gain < _SMALLEST_GAIN
    ]
    if poor:
        raise SystemExit(
            f"every fine-tune must gain at least {_SMALLEST_GAIN} nats on its own "
            f"text, these gain too little: {', '.join(poor)}; train them for longer"
        )


def _weights(folder: Path) -> Vector:
    tensors = load_file(folder / "model.safetensors")
    return np.concatenate([tensors[name].ravel() for name in sorted(tensors)]).astype(
        np.float64
    )


def _print_manifest(manifest: Mapping[str, Any]) -> None:
    losses = manifest["losses"]
    rows = {
        "base": losses["base"],
        **losses["fine_tunes"],
        "soup": losses["uniform_soup"],
        "ones": losses["all_ones"],
    }
    print(f"{'losses':>10}", *(f"{name[:7]:>7}" for name in DOMAINS), "  ratio")
    for name, row in rows.items():
        ratio = manifest["norm_ratios"].get(name)
        shown = "" if ratio is None else f"{ratio:7.1%}"
        print(f"{name:>10}", *(f"{value:7.3f}" for value in row), shown)
    print("cosines")
    for name, row in zip(DOMAINS, manifest["cosines"], strict=True):
        print(f"{name:>10}", *(f"{value:7.3f}" for value in row))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--manpages", type=Path, default=Path("/usr/share/man"))
    arguments = parser.parse_args()
    transformers.utils.logging.disable_progress_bar()
    transformers.utils.logging.set_verbosity_error()
    if not (arguments.folder / "manifest.json").exists():
        build(arguments.folder, arguments.manpages)
    text = (arguments.folder / "manifest.json").read_text(encoding="utf-8")
    _print_manifest(json.loads(text))


if __name__ == "__main__":
    main()
