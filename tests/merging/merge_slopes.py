"""Small merges with their loss, its derivatives, and differences to hold them to.

Most merges are in float64, so that differences over small steps are exact to six
digits and more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeAlias

import pytest
import torch
import torch.nn.functional as F
from test_in_memory import OPTIONS, space_of
from test_in_memory import config as merge_config
from transformers import PreTrainedModel
from transformers.models.llama.modeling_llama import LlamaRMSNorm

from mergekit_map.merging.gradients import differentiation
from mergekit_map.merging.in_memory import ResidentMerge, resident_merge
from mergekit_map.merging.space import MergeSpace

TOKENS = torch.randint(3, 200, (6, 24), generator=torch.Generator().manual_seed(0))
BATCHES = TOKENS.split(4)  # of different size

Opened: TypeAlias = tuple[ResidentMerge, MergeSpace]


def distant_family(make_model: Callable[..., Path]) -> dict[str, Path]:
    """Build a family whose members differ enough for losses that are no lines."""
    base = make_model("distant", 70, noise=0.1)
    tuned = {n: make_model(n, 71 + i, base, noise=0.05) for i, n in enumerate("xyz")}
    return {"base": base, **tuned}


def norms_in_the_dtype_of_the_model(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let float64 be float64, for a test: transformers takes norms in float32."""

    def forward(self: LlamaRMSNorm, x: torch.Tensor) -> torch.Tensor:
        variance = x.pow(2).mean(-1, keepdim=True) + self.variance_epsilon
        return self.weight * x * variance.rsqrt()

    monkeypatch.setattr(LlamaRMSNorm, "forward", forward)


def config(
    method: str, family: Mapping[str, Path], names: str = "xy", **more: Any
) -> dict[str, Any]:
    merge = {**merge_config(method, family, names), "dtype": "float64", **more}
    for model in merge["models"]:
        model["parameters"] = dict.fromkeys(model["parameters"], 0.7)
    return merge


@contextmanager
def opened(merge: dict[str, Any]) -> Iterator[Opened]:
    space = space_of(merge)
    with resident_merge(space, OPTIONS) as resident:
        yield resident, space


def loss(model: PreTrainedModel, tokens: torch.Tensor) -> torch.Tensor:
    logits = model(input_ids=tokens, use_cache=False).logits[:, :-1].double()
    return F.cross_entropy(
        logits.flatten(0, 1), tokens[:, 1:].flatten(), reduction="sum"
    )


def derivatives(
    merge: ResidentMerge,
    space: MergeSpace,
    coefficients: Mapping[str, float],
    *,
    checkpoint: bool = False,
) -> dict[str, float]:
    merge.write(coefficients)
    with differentiation(merge, space, checkpoint_activations=checkpoint)() as found:
        for batch in BATCHES:
            loss(merge.model, batch).backward()
    return dict(found)


def value(merge: ResidentMerge, coefficients: Mapping[str, float]) -> float:
    merge.write(coefficients)
    return float(loss(merge.model, TOKENS))


def differences(
    merge: ResidentMerge, coefficients: Mapping[str, float], step: float
) -> dict[str, float]:
    """Differentiate the loss with the step, inside [0, 1]."""

    def difference(name: str) -> float:
        def at(offset: float) -> float:
            moved = coefficients[name] + offset * step
            return value(merge, {**coefficients, name: moved})

        if coefficients[name] < step:
            return (-3 * at(0) + 4 * at(1) - at(2)) / (2 * step)
        if coefficients[name] > 1 - step:
            return (3 * at(0) - 4 * at(-1) + at(-2)) / (2 * step)
        return (at(1) - at(-1)) / (2 * step)

    return {name: difference(name) for name in coefficients}
