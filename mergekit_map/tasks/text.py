"""Documents of the user's text: a .txt file, a .jsonl file, or a dataset of the Hub."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import datasets

from mergekit_map.config.tasks import TextSource
from mergekit_map.errors import InvalidTask, nearest
from mergekit_map.tasks.isolation import quiet
from mergekit_map.utils.files import read_whole

_USUAL = "text"  # a field
_SHOWN_PROBLEMS = 5  # of one file; the rest is counted
_SAMPLED = 10  # rows of a dataset
_LARGEST = 1 << 27  # bytes of a file


def read_documents(source: TextSource, directory: Path) -> tuple[str, ...]:
    """Read all documents: a .txt file is one, a .jsonl file has one per line.

    Empty lines of a .jsonl file are no documents. Paths are relative to
    ``directory``, that of a dataset too if it is a folder there.

    Raises:
        InvalidTask: nothing to read, or a line or row without the text.
    """
    if source.file is None:
        documents, key = _read_dataset(source, directory), "dataset"
    else:
        text, key = _read_text(directory / source.file), "file"
        is_one = source.file.suffix == ".txt"
        documents = [text] if is_one else _parse_lines(text, source.field)
    if not any(document.strip() for document in documents):
        raise InvalidTask(
            ("perplexity", key),
            f"text to measure was expected, but {source.file or source.dataset} is "
            "empty; give held-out text of the kind the merge is for",
        )
    return tuple(documents)


def _read_text(path: Path) -> str:
    key = ("perplexity", "file")
    try:
        text = read_whole(path, _LARGEST).decode("utf-8")
        return text.replace("\r\n", "\n").replace("\r", "\n")
    except FileNotFoundError:
        text = f"there is no file {path}; relative paths start at the working directory"
        raise InvalidTask(key, text) from None
    except (OSError, ValueError) as error:
        text = (
            f"{str(path)!r:.300} cannot be read as UTF-8 text: {error!s:.300}; give "
            f"a text of at most {_LARGEST >> 20} MB, of which 'max_tokens' are used"
        )
        raise InvalidTask(key, text) from None


def _parse_lines(text: str, field: str | None) -> list[str]:
    records: dict[int, Any] = {}  # by line
    problems: list[str] = []
    # Not splitlines(): it also splits at separators that JSON allows inside strings.
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        try:
            record = json.loads(line)
        except (ValueError, RecursionError) as error:
            reason = error.msg if isinstance(error, json.JSONDecodeError) else error
            problems.append(f"line {number} is not JSON: {reason}")
            continue
        if isinstance(record, dict):
            records[number] = record
        else:
            got = type(record).__name__
            problems.append(f"line {number}: a JSON object was expected, got {got}")
    _refuse("file", problems)
    field = field or _find_field(list(records.values()), "file")
    wrong = {number: _problem(record, field) for number, record in records.items()}
    _refuse("file", [f"line {n}: {text}" for n, text in wrong.items() if text])
    return [record[field] for record in records.values()]


def _find_field(records: Sequence[Mapping[str, Any]], key: str) -> str:
    """Return the field ``text``, or else the only one that is text in every record."""
    if not records or any(_USUAL in record for record in records):
        return _USUAL
    known = [
        name
        for name in records[0]
        if all(isinstance(record.get(name), str) for record in records)
    ]
    if len(known) == 1:
        return known[0]
    if known:
        problem = f"several fields hold text: {', '.join(known)}"
    else:
        problem = f"no field holds text in every record; there are: {_names(records)}"
    raise InvalidTask(
        ("perplexity", key),
        f"{problem}; name one with {{{key}: ..., field: {(known or ['NAME'])[0]}}}",
    )


def _names(records: Sequence[Mapping[str, Any]]) -> str:
    return ", ".join(dict.fromkeys(name for record in records for name in record))


def _problem(record: Mapping[str, Any], field: str) -> str | None:
    if field not in record:
        return f"there is no field {field!r}; {nearest(field, record)}"
    if isinstance(record[field], str):
        if record[field].encode(errors="replace").decode() == record[field]:
            return None
        return f"field {field!r} has half of a character (a lone surrogate); remove it"
    return (
        f"field {field!r} must be a string, got {type(record[field]).__name__}; name a "
        "field that holds text with 'field:'"
    )


def _refuse(key: str, problems: Sequence[str]) -> None:
    if problems:
        rest = len(problems) - _SHOWN_PROBLEMS
        more = [f"and {rest} more lines like these"] if rest > 0 else []
        raise InvalidTask(("perplexity", key), [*problems[:_SHOWN_PROBLEMS], *more])


def _read_dataset(source: TextSource, directory: Path) -> list[str]:
    assert source.dataset is not None  # the schema: exactly one of file and dataset
    folder = directory / source.dataset
    path = str(folder) if folder.is_dir() else source.dataset
    try:
        with quiet():
            splits = datasets.load_dataset(path, source.name, revision=source.revision)
    except Exception as error:  # noqa: BLE001 - of whatever reads such files
        reason = " ".join(f"{error.__cause__ or error}".split())[:300]
        raise InvalidTask(
            ("perplexity", "dataset"),
            f"dataset {source.dataset!r} cannot be loaded: {reason}; check its name, "
            "its configuration ('name:') and, offline, that it is in the cache",
        ) from None
    if source.split not in splits:
        text = f"{source.dataset!r} has no split {source.split!r}; "
        raise InvalidTask(("perplexity", "split"), text + nearest(source.split, splits))
    rows = splits[source.split]
    field = source.field or _find_field(_sample(rows), "dataset")
    if field not in rows.column_names:
        text = f"{source.dataset!r} has no field {field!r}; "
        hint = nearest(field, rows.column_names)
        raise InvalidTask(("perplexity", "field"), text + hint)
    column: list[str] = list(rows[field])
    wrong = (_problem({field: value}, field) for value in column)
    _refuse("field", [f"row {n}: {text}" for n, text in enumerate(wrong) if text])
    return column


def _sample(rows: datasets.Dataset) -> list[Mapping[str, Any]]:
    """Return the first rows: columns have one type."""
    return [dict(row) for row in rows.select(range(min(len(rows), _SAMPLED)))]
