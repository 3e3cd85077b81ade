"""Families of merges whose true values are known everywhere, for the contest.

    python benchmarks/family8.py FOLDER/gentle --manpages DIR
    python benchmarks/contest_families.py FOLDER [NAMES] [--manpages DIR]

Trains what is missing of the sets of models: ``demo`` (the family of ``mergekit-map
demo``), ``gentle`` (``family8.py``), and two whose fine-tunes go farther from the same
bases, so that no quadratic fits: ``strong`` and ``mixed``. Every family of ``FAMILIES``
is then measured, as a search would, at the corners of its box and at Sobol points, and
kept in ``FOLDER/NAME.npz``; what is there is not measured again.

Notation is that of ``contest_truth.py``.
"""

from __future__ import annotations

import argparse
import copy
import itertools
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from contest_truth import Array, block_losses, keep_family, quality
from family8 import EARLIER_DEMO, build, read_domains, train
from laboratory.family import open_project
from laboratory.manual_pages import MANPAGES
from scipy.stats import qmc
from transformers import LlamaForCausalLM, PreTrainedTokenizerFast

from mergekit_map.config.tasks import TextSource
from mergekit_map.demo.family import train_family
from mergekit_map.demo.training import Schedule, join_documents, one_thread
from mergekit_map.evaluation.evaluator import InPlace, merges_in_memory
from mergekit_map.evaluation.project import Project
from mergekit_map.tasks.perplexity import read_documents
from mergekit_map.types import Measure
from mergekit_map.utils.files import whole_folder

_STRONG = Schedule(steps=400, learning_rate=4e-3, matrix_learning_rate=1.2e-2, batch=16)
_QUESTIONS = 200  # of each task; fewer are the first of them
_ROWS = 100  # of a batch of answers
_PROMPT, _ANSWER, _ANSWERS = 12, 3, 4  # tokens, and answers of a question


@dataclass(frozen=True)
class Family:
    """Some models of a set, and on what their merges are measured."""

    models: str  # the set
    words: str  # names of the fine-tunes, which are the tasks as well
    points: int  # Sobol points; corners and the soup come on top
    upper: float = 1.0  # end of the box
    method: str = "task_arithmetic"
    choices: bool = False  # questions in place of texts
    tokens: int = 512  # of each text
    block: int = 64  # tokens of an item of it

    @property
    def names(self) -> list[str]:
        """List the fine-tunes."""
        return self.words.split()


FAMILIES = {
    "n2_shape": Family("demo", "code math", 400),
    "n2_wide": Family("demo", "code math", 400, upper=1.5),
    "acc2": Family("demo", "code math", 400, choices=True),
    "n3": Family("gentle", "german french code", 1200),
    "n4": Family("gentle", "spanish polish code arithmetic", 2000),
    "n7": Family(
        "gentle", "german french spanish italian polish code arithmetic", 2500
    ),
    "n5": Family("gentle", "german french polish code arithmetic", 1200),
    "n6": Family("gentle", "german french spanish polish code arithmetic", 1600),
    "n8": Family(
        "gentle", "german french spanish italian polish russian code arithmetic", 2200
    ),
    "acc3": Family("gentle", "german french code", 1200, choices=True),
    "n3_wide": Family("strong", "german code arithmetic", 1200, upper=1.5),
    "n3_shape": Family("mixed", "french code math", 1200),
    "ties2": Family("strong", "german code", 600, method="ties"),
    # Many documents each, to measure a part of them.
    "docs2": Family("demo", "code math", 150, tokens=4096, block=32),
    "docs3": Family("gentle", "german french code", 300, tokens=4096, block=32),
    "docs4": Family(
        "gentle", "spanish polish code arithmetic", 500, tokens=4096, block=32
    ),
}
# What is trained from the base of another set; its fine-tunes come along.
_TRAINED = {
    "strong": ("gentle", ("german", "code", "arithmetic")),
    "mixed": ("demo", ("french",)),
}


def build_family(folder: Path, name: str, manpages: Path) -> None:
    """Train what a family needs, measure it, and write ``NAME.npz``."""
    family = FAMILIES[name]
    _build_models(folder, family.models, manpages)
    X = family.upper * _design(len(family.names), family.points)
    start = time.perf_counter()
    items = np.array([*_measured(folder, family, X, name)])
    keep_family(folder / f"{name}.npz", family.names, family.upper, X, items)
    milliseconds = 1000 * (time.perf_counter() - start) / len(X)
    print(
        f"\r{name}: {len(X)} merges, {milliseconds:.0f} ms each",
        *quality(folder / f"{name}.npz"),
    )


def _design(d: int, n: int) -> Array:
    """Give corners (all single models and the base among them), soup, Sobol points."""
    corners = np.array(list(itertools.product((0.0, 1.0), repeat=d)))
    engine = qmc.Sobol(d, seed=0)
    sobol = engine.random_base2((n - 1).bit_length())[:n]
    return np.vstack([corners, np.full((1, d), 1 / d), sobol])


def _build_models(folder: Path, models: str, manpages: Path) -> None:
    """Train what is missing of a set, and of the sets that it builds on."""
    if models == "demo":
        train_family(folder / "demo", EARLIER_DEMO)
    else:
        build(folder / "gentle", manpages)
    if models in _TRAINED and not (folder / models).exists():
        origin, names = _TRAINED[models]
        _build_models(folder, origin, manpages)
        with whole_folder(folder / models) as unfinished:
            shutil.copytree(folder / origin, unfinished, dirs_exist_ok=True)
            for name in names:
                shutil.copy(folder / "gentle" / f"{name}.jsonl", unfinished)
                shutil.rmtree(unfinished / name, ignore_errors=True)
            _train_strongly(unfinished, names, manpages)


def _train_strongly(folder: Path, names: Sequence[str], manpages: Path) -> None:
    """Train fine-tunes of the base in a folder that go far from it."""
    corpus = read_domains(manpages)
    base = LlamaForCausalLM.from_pretrained(folder / "base", dtype="float32")
    tokenizer = PreTrainedTokenizerFast.from_pretrained(folder / "base")
    for name in names:
        stream = {name: join_documents(tokenizer, corpus[name].train)}
        train(folder / name, copy.deepcopy(base), tokenizer, stream, _STRONG)


def _open(folder: Path, family: Family) -> Project:
    """Open the project of a family, whose models are trained."""
    models = folder.resolve() / family.models
    about = {"max_tokens": family.tokens, "block": family.block}
    tasks = {
        name: {"perplexity": {"file": str(models / f"{name}.jsonl")}, **about}
        for name in family.names
    }
    content = {
        "merge_method": family.method,
        "base_model": str(models / "base"),
        "models": [{"model": str(models / name)} for name in family.names],
        "dtype": "float32",
        "map": {"tasks": tasks, "search": {"seed": 0, "bounds": [0.0, family.upper]}},
    }
    if family.method == "ties":
        content["parameters"] = {"density": 0.5}
    return open_project(content)


def _measured(folder: Path, family: Family, X: Array, name: str) -> Iterator[Array]:
    """Merge and measure in memory, point by point; yields all items of all tasks."""
    project = _open(folder, family)
    with merges_in_memory(project) as merges:
        merges(dict.fromkeys(project.space.names, 0.0))  # the base asks the questions
        measure = _answers(folder, family, merges) if family.choices else _block_losses
        for i, point in enumerate(X):
            named = dict(zip(project.space.names, map(float, point), strict=True))
            yield measure(merges(named))
            if i % 50 == 0:
                print(f"\r{name} {i} of {len(X)}", end="", flush=True)


def _block_losses(measures: Mapping[str, Measure]) -> Array:
    return block_losses(measure(None) for measure in measures.values())


def _answers(
    folder: Path, family: Family, merges: InPlace
) -> Callable[[Mapping[str, Measure]], Array]:
    """Return what measures the log-likelihoods of all answers, (m, questions, answers).

    A question is how a text goes on: as it does, or as the base model would have it.
    """
    rng = np.random.default_rng(0)
    asked = []
    for name in family.names:
        source = TextSource(file=folder / family.models / f"{name}.jsonl")
        documents = read_documents(source, folder)
        stream = join_documents(merges.resident.tokenizer, documents)
        asked.append(_questions(rng, merges.resident.model, stream))
    tokens = torch.stack(asked)  # (m, questions, answers, length)
    batches = tokens.flatten(0, 2).split(_ROWS)

    @torch.inference_mode()
    def measure(_: Mapping[str, Measure]) -> Array:
        found = []
        for rows in batches:
            logits = merges.resident.model(rows[:, :-1], logits_to_keep=_ANSWER).logits
            chances = logits.log_softmax(-1).gather(-1, rows[:, -_ANSWER:, None])
            found.append(chances.double().sum(dim=(1, 2)))
        return torch.cat(found).view(tokens.shape[:3]).numpy()

    return measure


@torch.inference_mode()
def _questions(rng: np.random.Generator, model: Any, stream: Any) -> torch.Tensor:
    """Draw places in a text; returns (questions, answers, length) tokens."""
    length = _PROMPT + _ANSWER
    starts = rng.integers(len(stream) - length, size=_QUESTIONS)
    true = torch.from_numpy(stream[starts[:, None] + np.arange(length)])
    generator = torch.Generator().manual_seed(int(rng.integers(2**31)))
    wrong = true[:, :_PROMPT].repeat_interleave(_ANSWERS - 1, dim=0)
    while wrong.shape[1] < length:
        chances = model(wrong, logits_to_keep=1).logits[:, -1].softmax(-1)
        drawn = torch.multinomial(chances, 1, generator=generator)
        wrong = torch.cat([wrong, drawn], dim=1)
    return torch.cat([true[:, None], wrong.view(_QUESTIONS, -1, length)], dim=1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*", default=list(FAMILIES))
    parser.add_argument("--manpages", type=Path, default=MANPAGES)
    arguments = parser.parse_args()
    transformers.utils.logging.disable_progress_bar()
    transformers.utils.logging.set_verbosity_error()
    with one_thread():
        for name in arguments.names:
            if not (arguments.folder / f"{name}.npz").exists():
                build_family(arguments.folder, name, arguments.manpages)


if __name__ == "__main__":
    main()
