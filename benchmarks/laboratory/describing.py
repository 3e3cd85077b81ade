"""Measure a family, and refuse one whose fine-tunes are not what their names say."""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from family import Family, Model, configuration, read
from measuring import Array, measure
from peft import PeftModel
from text_models import precision
from transformers import LlamaForCausalLM

_SMALLEST_GAIN = 0.02  # nats per token of its own text
_LARGEST_RATIO = 0.1  # of the 1-norms of a task vector and the base


def describe(folder: Path, facts: Mapping[str, Any]) -> dict[str, Any]:
    """Measure base and fine-tunes.

    ``losses`` has a row for the base, each fine-tune, the mean of all and the sum of
    all task vectors.
    """
    family = read(folder, facts)
    names = [model.name for model in family.models]
    losses = _losses(family, names)
    ratios = _norm_ratios(family)
    rows = ("base", *names, "mean", "sum")
    return {
        "norm_ratios": {name: round(ratio, 5) for name, ratio in ratios.items()},
        "losses": dict(zip(rows, losses.round(4).tolist(), strict=True)),
        "precision": precision(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "numpy": np.__version__,
    }


def check(folder: Path, facts: Mapping[str, Any]) -> None:
    """Refuse a family whose fine-tunes do not gain, or go far; say all at once."""
    wrong = [
        *_poor_losses(facts),
        *(
            f"the task vector of {name} has {ratio:.1%} of the base's 1-norm, more "
            f"than {_LARGEST_RATIO:.0%}"
            for name, ratio in facts["norm_ratios"].items()
            if ratio > _LARGEST_RATIO
        ),
    ]
    if wrong:
        raise SystemExit(
            f"the fine-tunes in {folder} are of no use: {'; '.join(wrong)}; change "
            "their schedule in sizes.py, and delete these models"
        )


def _losses(family: Family, names: Sequence[str]) -> Array:
    n = len(names)
    X = np.vstack([np.zeros(n), np.eye(n), np.full(n, 1 / n), np.ones(n)])
    return measure(configuration(family, names, "loss"), X)


def _poor_losses(facts: Mapping[str, Any]) -> list[str]:
    losses = facts["losses"]
    gains = {
        model["name"]: losses["base"][own] - losses[model["name"]][own]
        for own, model in enumerate(facts["models"])
    }
    return [
        f"{name} gains {gain:.3f} nats on its own text, less than {_SMALLEST_GAIN}"
        for name, gain in gains.items()
        if gain < _SMALLEST_GAIN
    ]


def _norm_ratios(family: Family) -> dict[str, float]:
    base = LlamaForCausalLM.from_pretrained(family.base, dtype="float32").state_dict()
    norm = sum(float(tensor.abs().sum()) for tensor in base.values())
    ratios = {}
    for model in family.models:
        tuned = _weights(family, model)
        moved = sum(float((tuned[k] - base[k]).abs().sum()) for k in base)
        ratios[model.name] = moved / norm
    return ratios


def _weights(family: Family, model: Model) -> dict[str, torch.Tensor]:
    if not model.adapter:
        whole = LlamaForCausalLM.from_pretrained(model.path, dtype="float32")
        return dict(whole.state_dict())
    base = LlamaForCausalLM.from_pretrained(family.base, dtype="float32")
    merged = PeftModel.from_pretrained(base, model.path).merge_and_unload()
    return dict(merged.state_dict())
