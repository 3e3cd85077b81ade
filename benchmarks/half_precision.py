"""How far log-likelihoods of choices are from exact ones in bfloat16, by who scores.

    OMP_NUM_THREADS=1 python benchmarks/half_precision.py [--size 10m] [--keep]

Random models in bfloat16 score the answers of questions: as this program does, by trees
of tokens and one request by one, and as lm-eval does, with the softmax of the model's
dtype (what `lm_eval` does by itself) and of float32 (what this program asks of it). The
same weights in float32 say what is right. The *margin* of a question is how far its
best answer is ahead of the next one: what rounds by more may answer something else.
Prints Markdown; ``--keep`` writes it to ``results/half_precision.md``.
"""

from __future__ import annotations

import argparse
import copy
import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import random_family as families
import scale
import torch
import transformers
from lm_eval.models.huggingface import HFLM

from mergekit_map.tasks.likelihoods import likelihoods
from mergekit_map.tasks.token_budget import Budget
from mergekit_map.tasks.token_trees import Request

RESULT = Path(__file__).resolve().parent / "results" / "half_precision.md"
QUESTIONS = {"10m": 120, "100m": 48}
ANSWERS, PROMPT, LENGTH = 4, 32, 4  # answers, and tokens of each part
_TOKENS = 1024  # of a pass, as on processors


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keep", action="store_true")
    parser.add_argument("--size", action="append", choices=QUESTIONS)
    arguments = parser.parse_args()
    rows = []
    for size in arguments.size or QUESTIONS:
        rows += rows_of(size, QUESTIONS[size])
        print(rows[-1], flush=True)
    head = [
        *("parameters", "scored by", "off by, nats", "at most"),
        *("margins off by", "median margin", "answers that differ", "equal best"),
    ]
    text = scale.table(head, rows)
    print(text)
    if arguments.keep:
        sizes = "".join(f" --size {size}" for size in arguments.size or ())
        command = f"`python benchmarks/half_precision.py{sizes}`"
        about = f"{command}: {scale.processor()}."
        RESULT.write_text(f"# Half precision\n\n{about}\n\n{text}\n")


def rows_of(size: str, count: int) -> list[list[str]]:
    """Score the questions in every way."""
    shape = families.SIZES[size]
    half = families.random_model(shape, torch.bfloat16)
    tokenizer = families.tokenizer(shape.vocabulary)
    parameters = sum(p.numel() for p in half.parameters())
    requests = drawn(np.random.default_rng(0), shape.vocabulary, count)
    exact = ours(copy.deepcopy(half).float(), requests, trees=False)
    ways: Mapping[str, Callable[[], Any]] = {
        "this program": lambda: ours(half, requests, trees=True),
        "this program, one by one": lambda: ours(half, requests, trees=False),
        "lm-eval, softmax in float32": lambda: theirs(
            half, tokenizer, requests, softmax_dtype="float32", batch_size=16
        ),
        "the same, batches of 1": lambda: theirs(
            half, tokenizer, requests, softmax_dtype="float32", batch_size=1
        ),
        "lm-eval by itself": lambda: theirs(half, tokenizer, requests, batch_size=16),
        "the same, batch of 1": lambda: theirs(half, tokenizer, requests, batch_size=1),
    }
    named = f"{parameters / 1e6:.0f} M"
    return [[named, way, *compared(score(), exact)] for way, score in ways.items()]


def drawn(rng: np.random.Generator, vocabulary: int, count: int) -> list[Request]:
    """Draw questions, whose answers follow one another."""
    requests = []
    for _ in range(count):
        prompt = rng.integers(3, vocabulary, PROMPT).tolist()
        for _ in range(ANSWERS):
            answer = rng.integers(3, vocabulary, LENGTH).tolist()
            requests.append(Request((*prompt, *answer[:-1]), tuple(answer)))
    return requests


def ours(model: Any, requests: Sequence[Request], *, trees: bool) -> Any:
    """Score as this program does, (questions, answers)."""
    scores = likelihoods(model, Budget(_TOKENS, None if trees else 16))
    if not trees:
        scores = type(scores)(model, scores.predicted, scores.budget, None)
    found: dict[int, tuple[float, bool]] = {}
    for batch in scores.batches(requests):
        assert batch[0].branches == trees
        found |= scores.score(batch, requests)
    values = [found[index][0] for index in range(len(requests))]
    return np.array(values).reshape(-1, ANSWERS)


def theirs(
    model: Any, tokenizer: Any, requests: Sequence[Request], **settings: Any
) -> Any:
    """Score as lm-eval does, (questions, answers)."""
    lm = HFLM(pretrained=model, tokenizer=tokenizer, **settings)
    asked = [
        (("", ""), list(r.inputs[: -LENGTH + 1]), list(r.targets)) for r in requests
    ]
    found = lm._loglikelihood_tokens(asked, disable_tqdm=True)
    return np.array([value for value, _ in found]).reshape(-1, ANSWERS)


def compared(found: Any, exact: Any) -> list[str]:
    """Hold what was scored against what is right."""
    off = found - exact
    best = exact.argsort(axis=1)[:, ::-1][:, :2]  # and the next one
    rows = np.arange(len(exact))[:, None]
    margins = np.diff(-exact[rows, best], axis=1)
    away = np.diff(-off[rows, best], axis=1)
    other = int((found.argmax(axis=1) != exact.argmax(axis=1)).sum())
    equal = int(((found == found.max(axis=1, keepdims=True)).sum(axis=1) > 1).sum())
    return [
        f"{np.sqrt(np.mean(off**2)):.4f}",
        f"{np.abs(off).max():.3f}",
        f"{np.sqrt(np.mean(away**2)):.4f}",
        f"{np.median(margins):.3f}",
        f"{other} of {len(exact)}",
        str(equal),
    ]


if __name__ == "__main__":
    logging.disable()
    transformers.utils.logging.disable_progress_bar()
    main()
