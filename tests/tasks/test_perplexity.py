import json
import math
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from lm_eval.api.instance import Instance
from lm_eval.models.huggingface import HFLM
from task_files import build_model, build_tokenizer
from transformers import LlamaForCausalLM

from mergekit_map.config.tasks import PerplexityTask
from mergekit_map.errors import EvaluationError
from mergekit_map.tasks import loglikelihood
from mergekit_map.tasks.isolation import quiet
from mergekit_map.tasks.loading import load_tasks
from mergekit_map.tasks.preparing import prepare_tasks
from mergekit_map.types import Differentiate, Measurement


def measure(
    documents: list[str],
    model: Any,
    tokenizer: Any,
    folder: Path,
    *,
    differentiate: Differentiate | None = None,
    **options: Any,
) -> Measurement:
    path = folder / "text.jsonl"
    path.write_text("\n".join(json.dumps({"text": text}) for text in documents))
    spec = PerplexityTask.model_validate(
        {"perplexity": {"file": "text.jsonl"}, **options}
    )
    tasks, problems = load_tasks({"text": spec}, folder)
    assert not problems
    return prepare_tasks(tasks, model, tokenizer, differentiate=differentiate)["text"]()


def rolling_loglikelihood(
    document: str, model: Any, tokenizer: Any, block: int
) -> float:
    with quiet():
        lm = HFLM(
            pretrained=model,
            tokenizer=tokenizer,
            batch_size=3,
            max_length=block,
            add_bos_token=False,
        )
        request = Instance("loglikelihood_rolling", {}, (document,), 0)
        return float(lm.loglikelihood_rolling([request])[0])


def test_uniform_predictions_lose_the_logarithm_of_the_vocabulary(
    model: LlamaForCausalLM, tokenizer: Any, documents: list[str], folder: Path
) -> None:
    model.lm_head.weight.zero_()

    result = measure(documents, model, tokenizer, folder, block=16)

    assert result.value == pytest.approx(math.log(len(tokenizer)), rel=1e-6)
    assert result.details["perplexity"] == pytest.approx(len(tokenizer), rel=1e-5)
    assert result.stderr == pytest.approx(0, abs=1e-6)


@pytest.mark.parametrize("block", [8, 50, 128])
def test_one_document_has_the_rolling_loglikelihood_of_lm_eval(
    model: LlamaForCausalLM,
    tokenizer: Any,
    documents: list[str],
    folder: Path,
    block: int,
) -> None:
    document = " ".join(documents)

    result = measure([document], model, tokenizer, folder, block=block)

    expected = rolling_loglikelihood(document, model, tokenizer, block)
    n_tokens = len(tokenizer(document)["input_ids"])
    assert sum(s["tokens"] for s in result.samples) == n_tokens
    assert -result.value * n_tokens == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("block", [8, 16, pytest.param(128, marks=pytest.mark.slow)])
def test_documents_have_the_loss_of_a_plain_loop_over_the_stream(
    model: LlamaForCausalLM,
    tokenizer: Any,
    documents: list[str],
    folder: Path,
    block: int,
) -> None:
    stream = [
        (token, position > 0)
        for document in documents
        for position, token in enumerate([0, *tokenizer(document)["input_ids"]])
    ]
    n_positions = len(stream) - 1
    loss, count = 0.0, 0
    for position in range(n_positions):
        target, is_scored = stream[position + 1]
        # The last block is moved left to full length.
        start = min(position // block * block, max(0, n_positions - block))
        context = torch.tensor([[token for token, _ in stream[start : position + 1]]])
        if is_scored:
            logits = model(context).logits[0, -1].double()
            loss += float(logits.logsumexp(0) - logits[target])
            count += 1

    result = measure(documents, model, tokenizer, folder, block=block)

    assert result.value == pytest.approx(loss / count, rel=1e-6)
    assert sum(s["tokens"] for s in result.samples) == count


def test_max_tokens_counts_the_positions_of_the_stream(
    model: LlamaForCausalLM, tokenizer: Any, documents: list[str], folder: Path
) -> None:
    result = measure([documents[3]], model, tokenizer, folder, block=16, max_tokens=32)

    assert [s["tokens"] for s in result.samples] == [16, 16]


def test_a_stream_shorter_than_a_block_is_one_short_block(
    model: LlamaForCausalLM, tokenizer: Any, folder: Path
) -> None:
    result = measure(["the cat"], model, tokenizer, folder, block=100)

    n_tokens = len(tokenizer("the cat")["input_ids"])
    assert (result.n, result.samples[0]["tokens"]) == (1, n_tokens)
    assert result.stderr is None


def test_the_standard_error_is_that_of_a_ratio_over_blocks(
    model: LlamaForCausalLM, tokenizer: Any, documents: list[str], folder: Path
) -> None:
    result = measure(documents, model, tokenizer, folder, block=8)

    counts = torch.tensor([s["tokens"] for s in result.samples], dtype=torch.float64)
    losses = torch.tensor([s["loss"] for s in result.samples], dtype=torch.float64)
    generator = torch.Generator().manual_seed(0)
    draws = torch.randint(result.n, (20_000, result.n), generator=generator)
    totals = (losses * counts)[draws].sum(1) / counts[draws].sum(1)
    assert result.stderr == pytest.approx(totals.std().item(), rel=0.03)
    assert [s["block"] for s in result.samples] == list(range(result.n))
    assert float((losses * counts).sum() / counts.sum()) == pytest.approx(result.value)


def test_values_follow_weights_overwritten_in_place(
    model: LlamaForCausalLM, tokenizer: Any, documents: list[str], folder: Path
) -> None:
    (folder / "text.txt").write_text(documents[3])
    spec = PerplexityTask.model_validate({"perplexity": {"file": "text.txt"}})
    tasks, _ = load_tasks({"text": spec}, folder)
    run = prepare_tasks(tasks, model, tokenizer, batch_size=2)["text"]
    other = build_model(len(tokenizer), seed=1)
    expected = prepare_tasks(tasks, other, tokenizer, batch_size=2)["text"]()

    first, again = run(), run()
    for target, source in zip(model.parameters(), other.parameters(), strict=True):
        target.copy_(source)

    assert first == again
    assert run() == expected
    assert first.value != expected.value


def test_a_tokenizer_that_adds_bos_itself_gives_the_same_value(
    model: LlamaForCausalLM, tokenizer: Any, documents: list[str], folder: Path
) -> None:
    plain = measure(documents, model, tokenizer, folder)

    assert measure(documents, model, build_tokenizer(adds_bos=True), folder) == plain


def test_eos_separates_documents_where_there_is_no_bos(
    model: LlamaForCausalLM, documents: list[str], folder: Path
) -> None:
    tokenizer = build_tokenizer()
    tokenizer.bos_token = None
    expected = rolling_loglikelihood(documents[0], model, tokenizer, 128)
    n_tokens = len(tokenizer(documents[0])["input_ids"])

    result = measure([documents[0]], model, tokenizer, folder)

    assert -result.value * n_tokens == pytest.approx(expected, rel=1e-6)


def test_first_tokens_are_not_scored_where_there_is_no_separator(
    model: LlamaForCausalLM, documents: list[str], folder: Path
) -> None:
    tokenizer = build_tokenizer()
    tokenizer.bos_token = tokenizer.eos_token = None

    result = measure(documents, model, tokenizer, folder)

    n_tokens = sum(len(tokenizer(text)["input_ids"]) for text in documents)
    assert sum(s["tokens"] for s in result.samples) == n_tokens - len(documents)


def test_nan_and_infinity_are_values(
    model: LlamaForCausalLM, tokenizer: Any, documents: list[str], folder: Path
) -> None:
    model.lm_head.weight.fill_(math.nan)

    result = measure(documents, model, tokenizer, folder, block=16)

    assert math.isnan(result.value)
    assert result.stderr is not None
    assert math.isnan(result.stderr)


class Scaled:
    """The derivative by a factor on the weights of the head."""

    def __init__(self, model: LlamaForCausalLM):
        self.model = model
        self.passes = 0

    @contextmanager
    def __call__(self) -> Iterator[dict[str, float]]:
        weight = self.model.lm_head.weight
        derivatives = {"head": 0.0}

        def take(_: torch.Tensor) -> None:
            self.passes += 1
            derivatives["head"] += float((weight.grad * weight).sum())
            weight.grad = None

        with torch.enable_grad():
            hook = weight.requires_grad_(True).register_post_accumulate_grad_hook(take)
            yield derivatives
        hook.remove()
        weight.requires_grad_(False)


@pytest.mark.parametrize("one_by_one", [False, True])
def test_the_gradient_is_that_of_the_value(
    model: LlamaForCausalLM,
    tokenizer: Any,
    documents: list[str],
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    one_by_one: bool,
) -> None:
    if one_by_one:
        monkeypatch.setattr(loglikelihood, "_TOKENS_CPU", 1)
    text = (documents, model, tokenizer, folder)
    scaled = Scaled(model)

    result = measure(*text, differentiate=scaled, block=16)

    assert scaled.passes == (result.n if one_by_one else 1)
    weight = model.lm_head.weight.clone()
    ends = []
    for factor in (0.99, 1.01):
        model.lm_head.weight.copy_(weight * factor)
        ends.append(measure(*text, block=16).value)
    assert result.gradient == pytest.approx(
        {"head": (ends[1] - ends[0]) / 0.02}, rel=1e-3
    )


def test_says_that_a_block_is_longer_than_the_model_reads(
    model: LlamaForCausalLM, tokenizer: Any, documents: list[str], folder: Path
) -> None:
    message = "task 'text' on model .*: block must be at most .* 128 .*got 129"
    with pytest.raises(EvaluationError, match=message):
        measure(documents, model, tokenizer, folder, block=129)


def test_says_that_nothing_is_left_to_predict(
    model: LlamaForCausalLM, folder: Path
) -> None:
    tokenizer = build_tokenizer()
    tokenizer.bos_token = tokenizer.eos_token = None

    with pytest.raises(EvaluationError, match="at least 2 tokens"):
        measure(["#"], model, tokenizer, folder)


def test_says_that_the_tokenizer_belongs_to_another_model(
    tokenizer: Any, documents: list[str], folder: Path
) -> None:
    with pytest.raises(EvaluationError, match="embeddings for 100 tokens"):
        measure(documents, build_model(100), tokenizer, folder)
