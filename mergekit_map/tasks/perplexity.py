"""Mean token loss of own text: cross-entropy in nats per token, over fixed blocks.

With one tokenizer, which all merges of one base share, this orders models as
perplexity does, but its error is additive and its scale is that of a log-likelihood.
Each token of a block is predicted exactly once. Blocks follow the rolling windows of
lm-evaluation-harness: for one document the total equals its ``loglikelihood_rolling``
with ``add_bos_token=False``.
"""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import datasets
import torch
from transformers import PreTrainedModel

from mergekit_map.config.tasks import PerplexityTask, TextSource
from mergekit_map.errors import EvaluationError, InvalidTask
from mergekit_map.tasks.base import PreparedTask, fingerprint, quiet, ratio_stderr
from mergekit_map.tasks.loglikelihood import (
    NOT_SCORED,
    BatchSize,
    Likelihoods,
    Request,
    likelihoods,
)
from mergekit_map.types import NATS, Answers, Documents, Measurement, Metric
from mergekit_map.utils.files import read_whole
from mergekit_map.utils.text import alike, nearest

_METRIC = Metric(higher_is_better=False, lower=0.0, upper=None, unit=NATS)
_DEFAULT_BLOCK = 512
_USUAL = "text"  # a field
_LARGEST = 1 << 27  # bytes of a file
# Of a long text, only so many characters per token are tokenised, as a whole text of
# 20 MB takes 4 GB. Most tokens have 3 to 5; the rest keeps the cut off the last ones.
_CHARACTERS, _MORE = 16, 1 << 16


@dataclass(frozen=True)
class PerplexityText:
    """Documents whose mean token loss is measured."""

    name: str
    documents: tuple[str, ...]
    max_tokens: int
    block: int | None  # None: min(512, the model's longest input)
    fingerprint: str
    metric: Metric = _METRIC
    partial: bool = True  # whether some blocks can be measured


def load_text(name: str, spec: PerplexityTask, directory: Path) -> PerplexityText:
    """Read the documents; raise InvalidTask as ``read_documents`` does."""
    documents = read_documents(spec.perplexity, directory)
    # The number is the version of this module's definition of the value.
    identity = fingerprint("perplexity", 1, spec.max_tokens, spec.block, documents)
    return PerplexityText(name, documents, spec.max_tokens, spec.block, identity)


def read_documents(source: TextSource, directory: Path) -> tuple[str, ...]:
    """Read all documents: a .txt file is one, a .jsonl file has one per line.

    Empty lines of a .jsonl file are no documents. Paths are relative to ``directory``,
    that of a dataset too if it is a folder there. Raises InvalidTask if there is
    nothing to read, or a line or row without the text.
    """
    if source.file is None:
        documents, key = _read_dataset(source, directory), "dataset"
    else:
        text, key = _read_text(directory / os.path.expanduser(source.file)), "file"
        is_one = source.file.suffix == ".txt"
        documents = [text] if is_one else _texts(_parse(text), source.field, key)
    if not any(document.strip() for document in documents):
        raise _refusal(
            key,
            f"text to measure was expected, but {source.file or source.dataset} is "
            "empty; give held-out text of the kind the merge is for",
        )
    return tuple(documents)


def _refusal(key: str, text: str) -> InvalidTask:
    return InvalidTask(("perplexity", key), text)


def _read_text(path: Path) -> str:
    try:
        text = read_whole(path, _LARGEST).decode("utf-8-sig")
        return text.replace("\r\n", "\n").replace("\r", "\n")
    except FileNotFoundError:
        like = alike(path.name, [file.name for file in path.parent.glob("*.*")])
        text = f"there is no file {path}; {like or 'check the path'}"
        raise _refusal("file", text) from None
    except (OSError, ValueError) as error:
        text = (
            f"{str(path)!r:.300} cannot be read as UTF-8 text: {error!s:.300}; give "
            f"a text of at most {_LARGEST >> 20} MB, of which 'max_tokens' are used"
        )
        raise _refusal("file", text) from None


def _parse(text: str) -> list[Mapping[str, Any]]:
    records: list[Mapping[str, Any]] = []
    # Not splitlines(): it also splits at separators that JSON allows inside strings.
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        try:
            record = json.loads(line)
        except (ValueError, RecursionError) as error:
            reason = getattr(error, "msg", error)
            raise _refusal("file", f"line {number} is not JSON: {reason}") from None
        if not isinstance(record, dict):
            got = type(record).__name__
            text = f"line {number}: a JSON object was expected, got {got}"
            raise _refusal("file", text)
        records.append(record)
    return records


def _texts(
    records: Iterable[Mapping[str, Any]], field: str | None, key: str
) -> list[str]:
    """Return the texts of all records; by default, the first one shows their field."""
    texts = list[str]()
    for number, record in enumerate(records, start=1):
        field = field or _find_field(record, key)
        if (text := record.get(field, 0)) is None:
            continue  # an empty cell of a table
        # Text with lone surrogates cannot be encoded.
        if not isinstance(text, str) or text.encode(errors="replace").decode() != text:
            hint = nearest(field, record.keys() - {field})
            text = f"document {number} has no text in its field {field!r}; {hint}"
            raise _refusal(key, text)
        texts.append(text)
    return texts


def _find_field(record: Mapping[str, Any], key: str) -> str:
    """Return the field ``text``, or else the only one that is text."""
    if _USUAL in record:
        return _USUAL
    known = [name for name, value in record.items() if isinstance(value, str)]
    if len(known) != 1:
        raise _refusal(
            key,
            f"one field must hold text; those that do: {', '.join(known) or 'none'}; "
            f"name one with {{{key}: ..., field: NAME}}",
        )
    return known[0]


def _read_dataset(source: TextSource, directory: Path) -> list[str]:
    assert source.dataset is not None  # the schema: exactly one of file and dataset
    folder = directory / os.path.expanduser(source.dataset)
    path = str(folder) if folder.is_dir() else source.dataset
    version = {"split": source.split, "revision": source.revision}
    try:
        with quiet():
            rows = datasets.load_dataset(path, source.name, **version)
    except Exception as error:  # noqa: BLE001 - of whatever reads such files
        reason = " ".join(f"{error.__cause__ or error}".split())[:300]
        raise _refusal(
            "dataset",
            f"dataset {source.dataset!r} cannot be loaded: {reason}; check its name, "
            "its configuration ('name:') and, offline, that it is in the cache",
        ) from None
    field = source.field or _find_field(next(iter(rows), {_USUAL: ""}), "dataset")
    if field in rows.column_names:
        rows = rows.select_columns(field)
    if rows.data.nbytes > _LARGEST:
        size = f"at most {_LARGEST >> 20} MB of text are read, of which 'max_tokens' "
        raise _refusal("dataset", f"{size}are used; name a part: split: test[:1000]")
    return _texts(rows, field, "dataset")


def make_blocks(
    documents: Iterable[str], tokenizer: Any, *, length: int, max_tokens: int
) -> list[Request]:
    """Concatenate the documents to one stream of tokens and cut it into blocks.

    Before each document stands one BOS (or EOS, where there is no BOS) that is never
    predicted; with neither, the first token of each document is not predicted. The
    stream ends after ``max_tokens`` positions, these separators included. The last
    block is shifted left to full length and what it repeats is not scored again; a
    stream shorter than ``length`` is one short block. Blocks in which nothing is scored
    are left out.
    """
    tokens, targets = _make_stream(documents, tokenizer, max_tokens + 1)
    count = max(0, len(tokens) - 1)  # the last token is only predicted
    blocks = []
    for start in range(0, count, length):
        first = max(0, min(start, count - length))
        end = min(first + length, count)
        # The token at i predicts the target at i + 1; those before start are repeated.
        goals = [NOT_SCORED] * (start - first) + targets[start + 1 : end + 1]
        if any(goal != NOT_SCORED for goal in goals):
            blocks.append(Request(tuple(tokens[first:end]), tuple(goals)))
    return blocks


def _make_stream(
    documents: Iterable[str], tokenizer: Any, max_length: int
) -> tuple[list[int], list[int]]:
    """Return the tokens, and the same as targets."""
    if (prefix := tokenizer.bos_token_id) is None:
        prefix = tokenizer.eos_token_id
    tokens, targets = list[int](), list[int]()
    for document in documents:
        if len(tokens) >= max_length:
            break
        beginning = document[: _CHARACTERS * (max_length - len(tokens)) + _MORE]
        # verbose=False: no advice that the text is longer than the model's context.
        encoded = tokenizer(beginning, add_special_tokens=False, verbose=False)
        ids: list[int] = encoded["input_ids"]
        if prefix is not None:
            ids = [prefix, *ids]
        tokens += ids
        targets += [NOT_SCORED, *ids[1:]] if ids else []
    return tokens[:max_length], targets[:max_length]


def prepare_text(
    task: PerplexityText, model: PreTrainedModel, tokenizer: Any, batch_size: BatchSize
) -> PreparedTask:
    """Tokenise once; each block is a request, some of whose tokens are not scored.

    The measurement's ``n`` counts blocks in which something is scored, its standard
    error takes blocks as independent, and its samples give each block's mean loss.
    Raises EvaluationError if nothing is predicted, or the model cannot read the blocks.
    """
    config: Any = model.config.get_text_config()
    longest = getattr(config, "max_position_embeddings", None)
    if task.block is not None and longest is not None and task.block > longest:
        raise EvaluationError(
            f"block must be at most the model's {longest} positions, got {task.block}; "
            "lower it or leave it out"
        )
    length = task.block or min(_DEFAULT_BLOCK, longest or _DEFAULT_BLOCK)
    blocks = make_blocks(
        task.documents, tokenizer, length=length, max_tokens=task.max_tokens
    )
    if not blocks:
        raise EvaluationError(
            "the text must have at least 2 tokens, a leading BOS included, so that one "
            "is predicted; give more text"
        )
    largest = max(max(*block.inputs, *block.targets) for block in blocks)
    embeddings: Any = model.get_input_embeddings()
    if largest >= (vocabulary := len(embeddings.weight)):
        raise EvaluationError(
            f"the tokenizer gives token {largest}, but the model has embeddings for "
            f"{vocabulary} tokens; use the tokenizer the model was made with"
        )
    scores = likelihoods(model, batch_size, blocks, in_trees=False)
    return PreparedTask(functools.partial(_measure, scores, blocks), len(blocks))


def _measure(
    scores: Likelihoods, requests: Sequence[Request], documents: Documents
) -> Measurement:
    """Average the losses over the tokens of all blocks, or of some.

    Positions that are not scored get logits all the same: they are at most one block
    and the separators.
    """
    ids = range(len(requests)) if documents is None else documents
    blocks = [requests[i] for i in ids]
    losses = [-score for score, _ in scores.score_all(blocks, greedy=False)]
    tokens = [len(b.targets) - b.targets.count(NOT_SCORED) for b in blocks]
    value = sum(losses) / sum(tokens)
    means = [loss / count for loss, count in zip(losses, tokens, strict=True)]
    return Measurement(
        value=value,
        stderr=ratio_stderr(losses, tokens),
        n=len(tokens),
        # torch's exp: infinity where the loss is too large, not an exception.
        details={"perplexity": torch.tensor(value, dtype=torch.float64).exp().item()},
        samples=tuple(
            {"block": i, "loss": mean, "tokens": count}
            for i, mean, count in zip(ids, means, tokens, strict=True)
        ),
        answers=Answers(tuple(ids), tuple(means), tuple(map(float, tokens))),
    )
