"""Train the three models of the demo, and write what they are measured on."""

from __future__ import annotations

import copy
import dataclasses
import functools
import json
import platform
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
import transformers
from transformers import LlamaForCausalLM, PreTrainedTokenizerFast
from transformers.utils import logging as transformers_logging

from mergekit_map.demo.choices import code_questions, math_questions
from mergekit_map.demo.corpus import (
    Corpus,
    CorpusSizes,
    interleaved_passages,
    read_corpus,
)
from mergekit_map.demo.evaluation import write_documents, write_questions
from mergekit_map.demo.training import (
    ModelSizes,
    Progress,
    Schedule,
    TokenArray,
    join_documents,
    new_model,
    one_thread,
    train_model,
    train_tokenizer,
)
from mergekit_map.files import sha256

_RECIPE_VERSION = 1  # raise it when a change of code changes what is trained
_SEED = 0
_BASE = Schedule(steps=650, learning_rate=8e-3, matrix_learning_rate=0.03)
_CODE = Schedule(steps=430, learning_rate=2e-3, matrix_learning_rate=0.01)
_MATH = Schedule(steps=220, learning_rate=2e-3, matrix_learning_rate=0.01)


@dataclass(frozen=True)
class FamilySizes:
    """Everything that decides how large a family is, and how long it trains."""

    corpus: CorpusSizes = field(default_factory=CorpusSizes)
    model: ModelSizes = field(default_factory=ModelSizes)
    base: Schedule = _BASE
    code: Schedule = _CODE
    math: Schedule = _MATH
    base_shares: tuple[float, float, float] = (0.68, 0.12, 0.2)  # english, code, math
    tokenizer_documents: int = 1_000  # of each domain
    questions: int = 180  # of each choice task
    held_out_characters: int = 60_000  # of each text to measure on

    @property
    def recipe(self) -> str:
        """A short name of these sizes and this version of the code."""
        written = json.dumps([_RECIPE_VERSION, _SEED, dataclasses.asdict(self)])
        return sha256(written)[:10]


def build_family(folder: Path, sizes: FamilySizes, progress: Progress) -> None:
    """Fill an empty folder with a family, its manifest last."""
    started = time.monotonic()
    with one_thread():
        progress("text", 0.0)
        corpus = read_corpus(_generator("corpus"), sizes.corpus)
        domains = {"english": corpus.english, "code": corpus.code, "math": corpus.math}
        first = slice(sizes.tokenizer_documents)
        documents = [text for part in domains.values() for text in part.train[first]]
        tokenizer = train_tokenizer(documents, sizes.model)
        streams = {
            name: join_documents(tokenizer, part.train)
            for name, part in domains.items()
        }
        frequencies = np.bincount(streams["code"], minlength=len(tokenizer))
        _write_evaluation(folder, corpus, tokenizer, frequencies, sizes)
        progress("text", 1.0)
        _train_models(folder, tokenizer, streams, sizes, progress)
    _write_manifest(folder, sizes, time.monotonic() - started)


def _write_evaluation(
    folder: Path,
    corpus: Corpus,
    tokenizer: PreTrainedTokenizerFast,
    frequencies: TokenArray,
    sizes: FamilySizes,
) -> None:
    nats = -np.log((frequencies + 1) / (frequencies + 1).sum())

    def surprise(text: str) -> float:
        return float(nats[tokenizer(text)["input_ids"]].sum())

    code = code_questions(
        _generator("code questions"), corpus.code.held_out, surprise, sizes.questions
    )
    math = math_questions(
        _generator("math questions"), corpus.held_out_problems, sizes.questions
    )
    write_questions(folder / "code_choice.jsonl", code)
    write_questions(folder / "math_choice.jsonl", math)
    for name, domain in (("code", corpus.code), ("math", corpus.math)):
        passages = interleaved_passages(domain.held_out, sizes.held_out_characters)
        write_documents(folder / f"{name}.jsonl", passages)


def _train_models(
    folder: Path,
    tokenizer: PreTrainedTokenizerFast,
    streams: Mapping[str, TokenArray],
    sizes: FamilySizes,
    progress: Progress,
) -> None:
    shares = dict(zip(streams, sizes.base_shares, strict=True))
    schedules = {"base": sizes.base, "code": sizes.code, "math": sizes.math}
    base = new_model(_SEED, tokenizer, sizes.model)
    for name, schedule in schedules.items():
        model: LlamaForCausalLM = base if name == "base" else copy.deepcopy(base)
        drawn = shares if name == "base" else {name: 1.0}
        sources = {domain: (streams[domain], share) for domain, share in drawn.items()}
        report = functools.partial(progress, name)
        report(0.0)
        train_model(_generator(name), model, sources, schedule, report)
        report(1.0)
        with _no_progress_bar():
            model.save_pretrained(folder / name)
        tokenizer.save_pretrained(folder / name)


@contextmanager
def _no_progress_bar() -> Iterator[None]:
    enabled = transformers_logging.is_progress_bar_enabled()
    transformers_logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    try:
        yield
    finally:
        if enabled:
            transformers_logging.enable_progress_bar()  # type: ignore[no-untyped-call]


def _generator(purpose: str) -> np.random.Generator:
    """Give each part its own draws, so that changing one leaves the others alone."""
    return np.random.default_rng([_SEED, *purpose.encode()])


def _write_manifest(folder: Path, sizes: FamilySizes, seconds: float) -> None:
    manifest = {
        "recipe": sizes.recipe,
        "sizes": dataclasses.asdict(sizes),
        "seed": _SEED,
        "seconds": round(seconds, 1),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "numpy": np.__version__,
    }
    path = folder / "manifest.json"
    path.write_text(json.dumps(manifest, indent=2) + "\n", encoding="utf-8")
