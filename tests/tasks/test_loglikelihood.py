"""Log-likelihoods of requests, against those of each request by itself."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from transformers import PreTrainedModel

from mergekit_map.tasks import loglikelihood
from mergekit_map.tasks.loglikelihood import (
    Likelihoods,
    Request,
    checked,
    fitted,
    grow_trees,
    likelihoods,
)

VOCABULARY = 97
SIZES = {"vocab_size": VOCABULARY, "hidden_size": 32, "intermediate_size": 48}
SIZES |= {"num_hidden_layers": 2, "num_attention_heads": 4, "pad_token_id": 0}
SIZES |= {"max_position_embeddings": 256}
SIZES["initializer_range"] = 0.4  # so that what is seen decides
SOME_HEADS = {"num_key_value_heads": 2, "head_dim": 8}
EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16}
# Whether trees are read, and what makes the model.
MODELS: dict[str, tuple[bool, dict[str, Any]]] = {
    "Llama": (True, SOME_HEADS),
    "Qwen2": (True, {"num_key_value_heads": 2, "tie_word_embeddings": True}),
    "Gemma2": (True, {**SOME_HEADS, "final_logit_softcapping": 2.0}),
    "Granite": (True, {"logits_scaling": 3.0}),
    "Cohere": (True, {"logit_scale": 0.3}),
    "GPTNeoX": (True, {}),
    "GPT2": (True, {"bos_token_id": 1, "eos_token_id": 1}),
    "Qwen3Moe": (True, {**SOME_HEADS, **EXPERTS}),
    "Bloom": (False, {}),
    "Mamba": (False, {"state_size": 8}),
    "Lfm2": (False, {**SOME_HEADS, "layer_types": ["conv", "full_attention"]}),
}


def build(kind: str, **options: Any) -> PreTrainedModel:
    torch.manual_seed(0)
    config = getattr(transformers, f"{kind}Config")(**{**SIZES, **options})
    architecture = "GPT2LMHeadModel" if kind == "GPT2" else f"{kind}ForCausalLM"
    model = getattr(transformers, architecture)(config)
    return model.eval()  # type: ignore[no-any-return]


def questions(count: int = 12, shared: int = 9) -> list[Request]:
    """Make questions of one beginning, each with four choices of 1 to 5 tokens."""
    rng = np.random.default_rng(0)
    start = rng.integers(3, VOCABULARY, shared)
    found = []
    for _ in range(count):
        question = [*start, *rng.integers(3, VOCABULARY, rng.integers(2, 30))]
        for _ in range(4):
            choice = rng.integers(3, VOCABULARY, rng.integers(1, 6)).tolist()
            found.append(Request((*map(int, question), *choice[:-1]), tuple(choice)))
    return found


def one_by_one(model: PreTrainedModel, requests: list[Request]) -> Any:
    found = []
    with torch.inference_mode():
        for request in requests:
            logits = model(torch.tensor([request.inputs])).logits[0].float()
            chances = logits[-len(request.targets) :].log_softmax(-1)
            goals = torch.tensor(request.targets)
            best = bool((chances.argmax(-1) == goals).all())
            found.append((float(chances.gather(-1, goals[:, None]).sum()), best))
    return found


def in_trees(model: PreTrainedModel, requests: list[Request]) -> Likelihoods:
    return replace(likelihoods(model, "auto", requests, in_trees=True), tokens=256)


def assert_same(found: Any, expected: Any) -> None:
    assert [best for _, best in found] == [best for _, best in expected]
    np.testing.assert_allclose(
        [value for value, _ in found], [value for value, _ in expected], rtol=1e-5
    )


def test_what_is_shared_is_there_once_in_trees_that_are_no_longer_than_asked() -> None:
    requests = questions()
    longest = max(len(request.inputs) for request in requests)

    (tree,) = grow_trees(requests, width=4096, longest=10_000)
    apart = grow_trees(requests, width=None, longest=10_000)
    short = grow_trees(requests, width=4096, longest=longest)

    beginnings = {r.inputs[:n] for r in requests for n in range(1, len(r.inputs) + 1)}
    assert len(tree.tokens) == len(beginnings)
    assert sum(len(one.tokens) for one in apart) > 2 * len(beginnings)
    assert not any(one.branches for one in apart)
    assert any(one.branches for one in short)
    assert max(len(one.tokens) for one in short) <= longest
    # What goes on where another ends is plain text with it.
    going_on = [Request((5,), (6,)), Request((5, 6), (7,))]
    assert len(grow_trees(going_on, width=None, longest=2)) == 1


@pytest.mark.parametrize("kind", MODELS)
def test_models_score_as_they_do_request_by_request(
    kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    reads_trees, options = MODELS[kind]
    model, requests = build(kind, **options), questions()

    with caplog.at_level(logging.WARNING, "mergekit_map"):
        scores = checked(in_trees(model, requests), requests, "mine")

    assert scores.bounded
    assert (scores.width is not None) == reads_trees
    assert ("task 'mine': requests are scored one by one" in caplog.text) != reads_trees
    expected = one_by_one(model, requests)
    assert_same(scores.score_all(requests), expected)
    assert_same(replace(scores, width=None).score_all(requests), expected)


def test_logits_are_the_same_in_chunks_and_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model, requests = build("Llama", **SOME_HEADS), questions()
    expected = one_by_one(model, requests)
    monkeypatch.setattr(loglikelihood, "MOST_BYTES_CPU", 4 * VOCABULARY * 5)
    scores = in_trees(model, requests)
    held: list[int] = []
    head = model.lm_head.register_forward_hook(
        lambda _m, _i, out: held.append(out.shape[1])
    )

    assert_same(scores.score_all(requests), expected)
    assert max(held) == 5
    head.remove()
    handle = model.register_forward_pre_hook(refuse_no_input, with_kwargs=True)
    scores = in_trees(model, requests)
    handle.remove()
    assert not scores.bounded
    assert_same(scores.score_all(requests), expected)


def refuse_no_input(_model: Any, _args: Any, options: dict[str, Any]) -> None:
    """Refuse to predict from the states of the base alone, as other code may."""
    assert "input_ids" in options


def test_windows_shorter_than_a_request_are_kept(
    caplog: pytest.LogCaptureFixture,
) -> None:
    model = build("Mistral", num_key_value_heads=2, sliding_window=8)
    requests = questions()

    with caplog.at_level(logging.WARNING, "mergekit_map"):
        scores = checked(in_trees(model, requests), requests, "mine")

    assert "sliding_window is 8, and a request has " in caplog.text
    assert_same(scores.score_all(requests), one_by_one(model, requests))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("dropped", ["attention_mask", "position_ids"])
def test_models_that_do_not_heed_what_makes_a_tree_are_found_out(
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    dropped: str,
    dtype: torch.dtype,
) -> None:
    model = build("Llama", **SOME_HEADS).to(dtype)
    forward = model.model.forward

    def deaf(**inputs: Any) -> Any:
        inputs.pop(dropped, None)
        return forward(**inputs)

    monkeypatch.setattr(model.model, "forward", deaf)

    with caplog.at_level(logging.WARNING, "mergekit_map"):
        scores = checked(in_trees(model, questions()), questions(), "mine")

    assert scores.width is None
    assert "log-likelihoods differ by" in caplog.text


def test_the_tokens_of_a_pass_are_halved_until_it_fits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    requests = questions()
    scores = in_trees(build("Llama", **SOME_HEADS), requests)
    tried, score = [], Likelihoods.score

    def attempt(self: Likelihoods, batch: Any, asked: Any, **how: Any) -> Any:
        tried.append(self.tokens)
        if len(batch) * len(batch[0].tokens) > most:
            raise torch.OutOfMemoryError("full")
        return score(self, batch, asked, **how)

    monkeypatch.setattr(Likelihoods, "score", attempt)
    most = 100
    found = fitted(scores, requests)
    assert found.tokens == 64
    assert list(dict.fromkeys(tried)) == [256, 128, 64]
    assert len(found.score_all(requests)) == len(requests)
    most = 0
    with pytest.raises(torch.OutOfMemoryError, match="full"):
        fitted(scores, requests)


def test_of_equal_logits_the_first_is_the_most_likely() -> None:
    model = build("Llama", **SOME_HEADS)
    with torch.no_grad():
        model.lm_head.weight.zero_()
    requests = [Request((5,), (0,)), Request((5,), (6,))]

    found = likelihoods(model, "auto", requests, in_trees=True).score_all(requests)

    assert [best for _, best in found] == [True, False]
