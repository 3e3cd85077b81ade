"""AdaMerging's derivatives against autograd, through a merge made by hand."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from mergekit.options import MergeOptions
from safetensors.torch import load_file
from torch.func import functional_call
from transformers import LlamaForCausalLM, PreTrainedTokenizerFast

from mergekit_map.compare.adamerging import drawn_by, prepare_entropy
from mergekit_map.compare.baseline_merges import per_layer, task_arithmetic
from mergekit_map.config.specs import SearchSpec
from mergekit_map.config.task_specs import PerplexityTask
from mergekit_map.measurement import Measurement
from mergekit_map.merging.gradients import differentiation
from mergekit_map.merging.resident import resident_merge
from mergekit_map.merging.space import MergeSpace, build_space
from mergekit_map.tasks.blocks import Blocks, make_blocks
from mergekit_map.tasks.perplexity import load_perplexity

TEXT = "hello world, one plus two"


@pytest.fixture
def space(family: dict[str, Path]) -> MergeSpace:
    config = {
        "merge_method": "task_arithmetic",
        "base_model": str(family["base"]),
        "models": [{"model": str(family[n])} for n in "ab"],
        "dtype": "float32",
    }
    whole, _ = build_space(config, SearchSpec())
    assert whole is not None
    return per_layer(task_arithmetic(whole))


def test_derivatives_by_layer_are_those_of_autograd(
    family: dict[str, Path], space: MergeSpace, tmp_path: Path
) -> None:
    rng = np.random.default_rng(0)
    weights = {name: float(rng.random()) for name in space.names}

    found = measured(space, weights, tmp_path)

    by_hand = torch.tensor([*weights.values()], requires_grad=True)
    entropy = entropy_by_hand(family, dict(zip(weights, by_hand, strict=True)))
    entropy.backward()
    assert found.value == pytest.approx(entropy.item(), rel=1e-5)
    assert found.gradient is not None
    slopes = torch.tensor([found.gradient[name] for name in weights])
    torch.testing.assert_close(slopes, by_hand.grad, rtol=1e-3, atol=1e-6)
    assert len(set(slopes.tolist())) == len(space.names)


def measured(
    space: MergeSpace, weights: Mapping[str, float], folder: Path
) -> Measurement:
    (folder / "text.jsonl").write_text(json.dumps({"text": TEXT}))
    task = PerplexityTask.model_validate({"perplexity": {"file": "text.jsonl"}})
    texts = {"text": load_perplexity("text", task, folder)}
    with resident_merge(space, MergeOptions(quiet=True)) as merge:
        merge.write(weights)
        differentiate = differentiation(merge, space, checkpoint_activations=False)
        return prepare_entropy(
            texts,
            merge.model,
            merge.tokenizer,
            differentiate,
            lambda: drawn_by(merge.coefficients),
        )()


def entropy_by_hand(
    family: Mapping[str, Path], weights: Mapping[str, torch.Tensor]
) -> torch.Tensor:
    base, *tuned = (
        load_file(family[n] / "model.safetensors") for n in ("base", "a", "b")
    )

    def of(model: str, tensor: str) -> torch.Tensor:
        [weight] = [w for n, w in weights.items() if f"{model} {tensor}".startswith(n)]
        return weight

    merge = {
        name: tensor
        + sum(
            of(m, name) * (t[name] - tensor) for m, t in zip("ab", tuned, strict=True)
        )
        for name, tensor in base.items()
    }
    model = LlamaForCausalLM.from_pretrained(family["base"], dtype="float32")
    tokenizer: Any = PreTrainedTokenizerFast.from_pretrained(family["base"])
    blocks: Blocks = make_blocks([TEXT], tokenizer, length=256, max_tokens=1000)
    logits = functional_call(model, merge, (blocks.inputs,)).logits
    log_chances = logits.log_softmax(-1)
    return -(log_chances.exp() * log_chances).sum(-1).mean()
