import json
import math
import random
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from lm_eval.api.instance import Instance
from lm_eval.models.huggingface import HFLM
from task_files import Bench, build_model, build_tokenizer, plain_loss
from tiny_tokenizer import WORDS, make_tokenizer

from mergekit_map.config.tasks import TextSource
from mergekit_map.errors import EvaluationError, InvalidTask
from mergekit_map.tasks import perplexity
from mergekit_map.tasks.base import quiet
from mergekit_map.tasks.perplexity import make_blocks, read_documents
from mergekit_map.types import Measurement


def measure(bench: Bench, documents: list[str], **options: Any) -> Measurement:
    path = bench.folder / "text.jsonl"
    path.write_text("\n".join(json.dumps({"text": text}) for text in documents))
    task = bench.load(perplexity={"file": "text.jsonl"}, **options)
    return bench.prepare(task, batch_size="auto")()


@pytest.mark.parametrize(
    ("block", "has_bos"), [(8, True), (50, True), (128, True), (128, False)]
)
def test_one_document_has_the_rolling_loglikelihood_of_lm_eval(
    bench: Bench, documents: list[str], block: int, has_bos: bool
) -> None:
    document = " ".join(documents)
    if not has_bos:  # EOS separates documents
        bench.tokenizer = build_tokenizer()
        bench.tokenizer.bos_token, document = None, documents[0]

    result = measure(bench, [document], block=block)

    with quiet():
        options = {"batch_size": 3, "max_length": block, "add_bos_token": False}
        lm = HFLM(pretrained=bench.model, tokenizer=bench.tokenizer, **options)
        request = Instance("loglikelihood_rolling", {}, (document,), 0)
        (expected,) = lm.loglikelihood_rolling([request])
    n_tokens = len(bench.tokenizer(document)["input_ids"])
    assert sum(s["tokens"] for s in result.samples) == n_tokens
    assert -result.value * n_tokens == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("block", [8, 16, 128])
def test_documents_have_the_loss_of_a_plain_loop_over_the_stream(
    bench: Bench, documents: list[str], block: int
) -> None:
    result = measure(bench, documents, block=block)

    loss = plain_loss(bench.model, bench.tokenizer, documents, block)
    assert result.value == pytest.approx(loss, rel=1e-6)
    assert result.details["perplexity"] == pytest.approx(math.exp(result.value))
    count = sum(len(bench.tokenizer(text)["input_ids"]) for text in documents)
    assert sum(s["tokens"] for s in result.samples) == count


def test_max_tokens_counts_the_stream(bench: Bench, documents: list[str]) -> None:
    result = measure(bench, [documents[3]], block=16, max_tokens=32)

    assert [s["tokens"] for s in result.samples] == [16, 16]


def test_a_stream_shorter_than_a_block_is_one_short_block(bench: Bench) -> None:
    result = measure(bench, ["the cat"], block=100)

    n_tokens = len(bench.tokenizer("the cat")["input_ids"])
    assert (result.n, result.samples[0]["tokens"]) == (1, n_tokens)
    assert result.stderr is None


def test_a_tokenizer_that_adds_bos_itself_gives_the_same_value(
    bench: Bench, documents: list[str]
) -> None:
    plain = measure(bench, documents)
    bench.tokenizer = build_tokenizer(adds_bos=True)

    assert measure(bench, documents) == plain


def test_first_tokens_are_not_scored_where_there_is_no_separator(
    bench: Bench, documents: list[str]
) -> None:
    bench.tokenizer = build_tokenizer()
    bench.tokenizer.bos_token = bench.tokenizer.eos_token = None

    result = measure(bench, documents)

    n_tokens = sum(len(bench.tokenizer(text)["input_ids"]) for text in documents)
    assert sum(s["tokens"] for s in result.samples) == n_tokens - len(documents)
    with pytest.raises(EvaluationError, match="at least 2 tokens"):
        measure(bench, ["#"])


def test_nan_is_a_value(bench: Bench, documents: list[str]) -> None:
    bench.model.lm_head.weight.fill_(math.nan)

    result = measure(bench, documents, block=16)

    assert math.isnan(result.value)
    assert math.isnan(result.stderr)


def test_says_that_block_or_tokenizer_do_not_suit_the_model(
    bench: Bench, documents: list[str]
) -> None:
    message = "task 'mine' on model .*: block must be at most .* 128 .*got 129"
    with pytest.raises(EvaluationError, match=message):
        measure(bench, documents, block=129)
    bench.model = build_model(100)
    with pytest.raises(EvaluationError, match="embeddings for 100 tokens"):
        measure(bench, documents)


@pytest.mark.parametrize("end", ["", " ", "é", "\n\n"])
def test_only_the_beginning_of_a_long_text_is_cut_into_the_tokens_of_the_whole(
    monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    words = random.Random(0).choices([*WORDS, "größer", "🦙", "x" * 40], k=20_000)
    text, tokenizer = f"{end} ".join(words), mock.Mock(wraps=make_tokenizer([]))
    tokenizer.bos_token_id = 0
    monkeypatch.setattr(perplexity, "_MORE", 1 << 10)
    made = make_blocks([text, "one"], tokenizer, length=64, max_tokens=1000)
    assert sum(len(call.args[0]) for call in tokenizer.call_args_list) < 20_000
    monkeypatch.setattr(perplexity, "_MORE", len(text))

    assert made == make_blocks([text, "one"], tokenizer, length=64, max_tokens=1000)


def test_a_jsonl_file_has_one_document_per_line(folder: Path) -> None:
    # U+2028 ends a line for str.splitlines, and may stand inside a JSON string.
    texts = ["one\ntwo", "three\u2028four", ""]
    lines = [json.dumps({"body": text}, ensure_ascii=False) for text in texts]
    (folder / "a.jsonl").write_text("\n\n".join(lines) + "\n", encoding="utf-8")

    documents = read_documents(TextSource(file="a.jsonl", field="body"), folder)

    assert documents == tuple(texts)


def test_the_only_field_that_is_text_need_not_be_named(folder: Path) -> None:
    records = [{"id": 1, "body": "one"}, {"id": 2, "body": "two", "note": "mine"}]
    (folder / "data").mkdir()
    for path in ("a.jsonl", "data/test.jsonl"):
        cells = [*records, {"id": 3, "body": None}]
        lines = "\n".join(json.dumps({**r, "note": None}) for r in cells)
        (folder / path).write_text(lines)

    assert read_documents(TextSource(file="a.jsonl"), folder) == ("one", "two")
    assert read_documents(TextSource(dataset="data"), folder) == ("one", "two")


@pytest.mark.parametrize(
    ("keys", "content", "message"),
    [
        ({"file": "a.txt"}, None, "there is no file .*a.txt; check the path"),
        ({"file": "a.txt"}, b"\xff\xfe", "cannot be read as UTF-8"),
        ({"file": "a.txt"}, b" \n", "a.txt is empty"),
        ({"file": "a.jsonl"}, b"", "a.jsonl is empty"),
        ({"file": "a.jsonl"}, b'{"text": "a"}\n{"text": ', "line 2 is not JSON"),
        ({"file": "a.jsonl"}, b'["a"]', "line 1: a JSON object was .* got list"),
        ({"file": "a.jsonl", "field": "text"}, b'{"txt": "a"}', "did you mean 'txt'"),
        ({"file": "a.jsonl"}, b'{"text": "a"}\n{"txt": "a"}', "document 2 has no text"),
        ({"file": "a.jsonl"}, b'{"text": "\\ud800"}', "document 1 has no text in its"),
        ({"file": "a.jsonl"}, b'{"q": "a", "a": "b"}', "those that do: q, a; name one"),
        ({"file": "a.jsonl"}, b'{"n": 1}\n{"q": "b"}', "those that do: none; name one"),
        ({"dataset": "data", "split": "tests"}, None, "Unknown split .* Should be one"),
        ({"dataset": "data", "field": "id"}, None, "document 1 has no text in its"),
        ({"dataset": "nobody/nothing"}, None, "cannot be loaded: .*offline"),
        ({"dataset": "data", "name": "en"}, None, "cannot be loaded: .*'en'"),
    ],
)
def test_says_what_is_wrong_with_a_text(
    folder: Path, keys: dict[str, str], content: bytes | None, message: str
) -> None:
    (folder / "data").mkdir()
    (folder / "data" / "test.jsonl").write_text('{"text": "a", "id": 1}\n')
    if content is not None:
        (folder / keys["file"]).write_bytes(content)

    with pytest.raises(InvalidTask, match=message) as caught:
        read_documents(TextSource(**keys), folder)
    assert caught.value.key == ("perplexity", next(iter(keys)))


def test_the_fingerprint_changes_with_text_and_options_only(
    bench: Bench, tmp_path_factory: pytest.TempPathFactory
) -> None:
    def fingerprint(content: str, **options: Any) -> str:
        (bench.folder / "a.jsonl").write_text(content)
        return bench.load(perplexity={"file": "a.jsonl"}, **options).fingerprint

    lines = ['{"text": "a b"}', '{"text": "c"}']
    text = "\n".join(lines)
    others = ("\n".join(reversed(lines)), '{"text": "a"}\n{"text": " bc"}')
    found = {fingerprint(one) for one in (text, *others)}
    found |= {fingerprint(text, max_tokens=9), fingerprint(text, block=9)}

    assert len(found) == 5
    bench.folder = tmp_path_factory.mktemp("elsewhere")
    assert fingerprint("\n\n".join(lines) + "\n") == fingerprint(text) in found
