import json
from pathlib import Path
from typing import Any

import pytest

from mergekit_map.config.tasks import PerplexityTask, TextSource
from mergekit_map.errors import InvalidTask
from mergekit_map.tasks.loading import load_tasks
from mergekit_map.tasks.perplexity import read_documents


def source(**keys: Any) -> TextSource:
    return TextSource.model_validate(keys)


def test_a_jsonl_file_has_one_document_per_line(folder: Path) -> None:
    # U+2028 ends a line for str.splitlines, and may stand inside a JSON string.
    texts = ["one\ntwo", "three\u2028four", ""]
    lines = [json.dumps({"body": text}, ensure_ascii=False) for text in texts]
    (folder / "a.jsonl").write_text("\n\n".join(lines) + "\n", encoding="utf-8")

    documents = read_documents(source(file="a.jsonl", field="body"), folder)

    assert documents == tuple(texts)


def test_the_only_field_that_is_text_need_not_be_named(folder: Path) -> None:
    records = [{"id": 1, "body": "one"}, {"id": 2, "body": "two", "note": "mine"}]
    (folder / "data").mkdir()
    for path in ("a.jsonl", "data/test.jsonl"):
        lines = "\n".join(json.dumps({**r, "note": None}) for r in records)
        (folder / path).write_text(lines)

    assert read_documents(source(file="a.jsonl"), folder) == ("one", "two")
    assert read_documents(source(dataset="data"), folder) == ("one", "two")


@pytest.mark.parametrize(
    ("name", "content", "keys", "message"),
    [
        ("a.txt", None, {}, "there is no file .*a.txt"),
        ("a.txt", b"\xff\xfe", {}, "cannot be read as UTF-8"),
        ("a.txt", b" \n", {}, "a.txt is empty"),
        ("a.jsonl", b"", {}, "a.jsonl is empty"),
        ("a.jsonl", b'{"text": "a"}\n{"text": ', {}, "line 2 is not JSON"),
        ("a.jsonl", b'["a"]', {}, "line 1: a JSON object was expected, got list"),
        ("a.jsonl", b'{"txt": "a"}', {"field": "text"}, "'text'; did you mean 'txt'"),
        (
            "a.jsonl",
            b'{"body": "a"}',
            {"field": "text"},
            "no field 'text'; known: body",
        ),
        ("a.jsonl", b'{"text": "a"}\n{"txt": "a"}', {}, "line 2: there is no field"),
        (
            "a.jsonl",
            b'{"q": "a", "a": "b"}',
            {},
            "several fields hold text: q, a; name",
        ),
        ("a.jsonl", b'{"n": 1}\n{"q": "b"}', {}, "no field holds .* there are: n, q"),
        ("a.jsonl", b'{"text": 3}', {}, "'text' must be a string, got int"),
        ("a.jsonl", b'{"text": "\\ud800"}', {}, "'text' has half of a character"),
    ],
)
def test_says_what_is_wrong_with_a_file(
    folder: Path, name: str, content: bytes | None, keys: dict[str, str], message: str
) -> None:
    if content is not None:
        (folder / name).write_bytes(content)

    with pytest.raises(InvalidTask, match=message) as caught:
        read_documents(source(file=name, **keys), folder)
    assert caught.value.key == ("perplexity", "file")


def test_counts_the_bad_lines_it_does_not_show(folder: Path) -> None:
    (folder / "a.jsonl").write_text("no\n" * 12)

    with pytest.raises(InvalidTask, match="and 7 more lines") as caught:
        read_documents(source(file="a.jsonl"), folder)
    assert len(caught.value.messages) == 6


@pytest.mark.parametrize(
    ("keys", "key", "message"),
    [
        ({"dataset": "data", "split": "tests"}, "split", "no split 'tests'; did you"),
        ({"dataset": "data", "field": "txt"}, "field", "no field 'txt'; did you mean"),
        ({"dataset": "data", "field": "id"}, "field", "row 0: .* string, got int"),
        ({"dataset": "nobody/nothing"}, "dataset", "cannot be loaded: .*offline"),
        ({"dataset": "data", "name": "en"}, "dataset", "cannot be loaded: .*'en'"),
    ],
)
def test_says_what_is_wrong_with_a_dataset(
    folder: Path, keys: dict[str, str], key: str, message: str
) -> None:
    (folder / "data").mkdir()
    (folder / "data" / "test.jsonl").write_text('{"text": "a", "id": 1}\n')

    with pytest.raises(InvalidTask, match=message) as caught:
        read_documents(source(**keys), folder)
    assert caught.value.key == ("perplexity", key)


def fingerprint_of(folder: Path, **options: Any) -> str:
    spec = PerplexityTask.model_validate({"perplexity": {"file": "a.jsonl"}, **options})
    tasks, problems = load_tasks({"a": spec}, folder)
    assert not problems
    return tasks["a"].fingerprint


def test_the_fingerprint_changes_with_text_and_options_only(
    folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    lines = ['{"text": "a b"}', '{"text": "c"}']
    (folder / "a.jsonl").write_text("\n".join(lines))
    first = fingerprint_of(folder)
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    (elsewhere / "a.jsonl").write_text("\n\n".join(lines) + "\n")
    assert fingerprint_of(elsewhere) == first

    others = [fingerprint_of(folder, max_tokens=9), fingerprint_of(folder, block=9)]
    (folder / "a.jsonl").write_text("\n".join(reversed(lines)))
    others.append(fingerprint_of(folder))
    (folder / "a.jsonl").write_text('{"text": "a"}\n{"text": " bc"}')
    others.append(fingerprint_of(folder))

    assert len({first, *others}) == 5
