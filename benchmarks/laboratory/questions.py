"""What a family is measured on: held-out text, choices, answers to generate."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from domains import LANGUAGES, Domain, generator
from sizes import Size
from transformers import PreTrainedTokenizerFast

from mergekit_map.demo.corpus import interleaved_passages
from mergekit_map.demo.tasks import (
    Question,
    code_questions,
    line_questions,
    write_choice_task,
    write_documents,
    write_questions,
)
from mergekit_map.demo.training import TokenArray

_HELD_OUT_CHARACTERS = 200_000  # at most, of each text to measure on
_SEARCHED_CHARACTERS = 2_000  # of held-out text, for each question
_LINE_CHARACTERS = (24, 120)
_FEWEST_WORDS = 5
_LETTERS = 0.92  # share of letters and spaces that makes a line of prose
_EXAMPLES = 3  # solved lines before a question that has an answer
_ANSWER_TOKENS = 4


def write_tasks(
    folder: Path,
    domain: Domain,
    tokenizer: PreTrainedTokenizerFast,
    stream: TokenArray,
    size: Size,
) -> Iterator[dict[str, Any]]:
    """Write the tasks of a domain, and describe each as ``family.json`` does.

    ``stream`` is the domain's text to train on.
    """
    name = domain.name
    passages = interleaved_passages(domain.text.held_out, _HELD_OUT_CHARACTERS)
    write_documents(folder / f"{name}.jsonl", passages)
    block = {
        "perplexity": {"file": f"{name}.jsonl"},
        "max_tokens": size.measured_tokens,
        "block": size.model.positions,
    }
    yield _task(name, "loss", block)
    asked = _questions(domain, tokenizer, stream, size.questions)
    data = folder / f"{name}_choice.jsonl"
    write_questions(data, asked)
    write_choice_task(data.with_suffix(".yaml"), data)
    yield _task(name, "choice", {"lm_eval": f"{name}_choice.yaml", "metric": "acc"})
    if domain.questions:
        _write_answers(folder / f"{name}_generated.yaml", asked)
        block = {"lm_eval": f"{name}_generated.yaml", "metric": "exact_match"}
        yield _task(name, "generated", block)


def _task(model: str, kind: str, block: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "name": f"{model}_{kind}",
        "model": model,
        "kind": kind,
        "task": dict(block),
    }


def _questions(
    domain: Domain,
    tokenizer: PreTrainedTokenizerFast,
    stream: TokenArray,
    count: int,
) -> list[Question]:
    if domain.questions:
        examples = domain.text.train[0].splitlines(keepends=True)[:_EXAMPLES]
        context = "".join(examples)
        return [
            Question(context + one.prompt, one.choices, one.answer)
            for one in domain.questions[:count]
        ]
    rng = generator(f"{domain.name} questions")
    texts = interleaved_passages(domain.text.held_out, count * _SEARCHED_CHARACTERS)
    surprise = _surprise(tokenizer, stream)
    if domain.name in LANGUAGES:
        asked = line_questions(rng, texts, surprise, count, _is_prose)
    else:
        asked = code_questions(rng, texts, surprise, count)
    if len(asked) < count:
        raise SystemExit(
            f"{count} questions about {domain.name} are wanted, but its held-out text "
            f"holds {len(asked)}; give more text or a smaller size"
        )
    return asked


def _surprise(
    tokenizer: PreTrainedTokenizerFast, stream: TokenArray
) -> Callable[[str], float]:
    frequencies = np.bincount(stream, minlength=len(tokenizer)) + 1
    nats = -np.log(frequencies / frequencies.sum())
    return lambda text: float(nats[tokenizer(text)["input_ids"]].sum())


def _is_prose(line: str) -> bool:
    words = line.strip()
    shortest, longest = _LINE_CHARACTERS
    if not shortest <= len(words) <= longest or words.count(" ") < _FEWEST_WORDS - 1:
        return False
    letters = sum(character.isalpha() or character == " " for character in words)
    return letters >= _LETTERS * len(words)


def _write_answers(path: Path, questions: Sequence[Question]) -> None:
    """Write the lm-eval task that generates answers, and its data beside it."""
    data = path.with_suffix(".jsonl")
    rows = (
        {"prompt": one.prompt, "answer": one.choices[one.answer].strip()}
        for one in questions
    )
    data.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    first = [{"function": "regex", "regex_pattern": r"(\w+)"}]
    metric = {"metric": "exact_match", "aggregation": "mean", "higher_is_better": True}
    content = {
        "task": path.stem,
        "dataset_path": "json",
        "dataset_kwargs": {"data_files": {"test": str(data.resolve())}},
        "test_split": "test",
        "output_type": "generate_until",
        "doc_to_text": "{{prompt}}",
        "doc_to_target": "{{answer}}",
        "num_fewshot": 0,
        "generation_kwargs": {
            "until": ["\n"],
            "max_gen_toks": _ANSWER_TOKENS,
            "do_sample": False,
        },
        "filter_list": [
            {"name": "answer", "filter": [*first, {"function": "take_first"}]}
        ],
        "metric_list": [metric],
        "metadata": {"version": 1.0},
    }
    path.write_text(yaml.safe_dump(content, sort_keys=False), encoding="utf-8")
