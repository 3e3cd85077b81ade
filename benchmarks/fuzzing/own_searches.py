"""Whole small searches with a function of a user among their tasks."""

from __future__ import annotations

import atexit
import functools
import json
import math
import os
import shutil
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import transformers
from attack import Limits, Outcome, command

TESTS = Path(__file__).resolve().parents[2] / "tests"
sys.path.append(str(TESTS))
from quick_fronts import blank_pictures, fronts_of_few_points  # noqa: E402
from tiny_tokenizer import make_tokenizer  # noqa: E402

# A value of the merge, and whether this merge is one at which the function misbehaves:
# every second one, the same ones in every process.
_HEAD = """
import os, sys, math, struct, zlib
import torch

def value_of(model):
    return float(model.lm_head.weight.double().abs().mean()
                 - model.model.layers[0].mlp.up_proj.weight.double().abs().mean())

def chosen(value):
    return zlib.crc32(struct.pack("d", value)) % 2 == {odd}

"""
_LIMITS = Limits()
CONFIG = """
merge_method: task_arithmetic
base_model: {models}/base
dtype: float32
models:
  - model: {models}/a
  - model: {models}/b
map:
  merge: {merge}
  tasks:
    before: {{perplexity: {{file: {models}/one.txt}}, block: 32}}
    mine: {{python: "own_function:score", direction: maximize{more}}}
    after: {{perplexity: {{file: {models}/two.txt}}, block: 32}}
  search: {{evaluations: 7, remeasure: 1, refine: false, surrogate: quadratic{search}}}
"""


@dataclass(frozen=True)
class Searched:
    """What came of a search."""

    outcome: Outcome
    lines: tuple[Mapping[str, Any], ...]  # of the log
    run: Path

    def of(self, task: str) -> list[Mapping[str, Any]]:
        """Give what was measured of a task, without times and what was foretold."""
        return [
            {k: line.get(k) for k in ("coefficients", "role", "value", "stderr", "n")}
            for line in self.lines
            if line["task"] == task
        ]

    @property
    def others(self) -> dict[str, list[Mapping[str, Any]]]:
        """Give what was measured of the tasks that are not the user's."""
        return {task: self.of(task) for task in ("before", "after")}


def search(
    folder: Path,
    body: str,
    *,
    words: tuple[str, ...] = (),
    limits: Limits = _LIMITS,
    merge: str = "memory",
    more: str = "",
    of_search: str = "",
) -> Searched:
    """Search with a function of this code, in a folder."""
    (folder / "own_function.py").write_text(_HEAD.format(odd=_odd()) + body)
    text = CONFIG.format(models=models(), merge=merge, more=more, search=of_search)
    (folder / "config.yaml").write_text(text)
    others = {"MERGEKIT_MAP_HOME": str(models() / "home"), **limits.others}
    # A front is drawn quickly: what is looked at is what was measured.
    with fronts_of_few_points(), blank_pictures():
        outcome = command(
            ["search", "config.yaml", "run", *words],
            folder,
            Limits(**{**vars(limits), "others": others}),
        )
    return Searched(outcome, read_lines(folder / "run"), folder / "run")


def read_lines(run: Path) -> tuple[Mapping[str, Any], ...]:
    """Read a log as it lies there."""
    log = run / "evaluations.jsonl"
    lines = log.read_text().splitlines() if log.exists() else []
    return tuple(json.loads(line) for line in lines)


BENIGN = "def score(model, tokenizer):\n    return value_of(model)\n"
FAILING = """
def score(model, tokenizer):
    value = value_of(model)
    if chosen(value):
        raise RuntimeError("not this one")
    return value
"""


@functools.cache
def unharmed(merge: str = "memory", *, failing: bool) -> dict[str, Any]:
    """Give what others measure beside a function that does no harm.

    One that fails where another does harm has the same merges measured after that.
    """
    with tempfile.TemporaryDirectory(prefix="attack-") as folder:
        body = FAILING if failing else BENIGN
        found = search(Path(folder), body, merge=merge)
        assert found.outcome.code == 0, found.outcome.said
        return {**found.others, "mine": found.of("mine")}


@functools.cache
def _odd() -> int:
    """Choose such that the first merge, the base, is not among the chosen ones."""
    model = transformers.LlamaForCausalLM.from_pretrained(models() / "base")
    code: dict[str, Any] = {}
    exec(_HEAD.format(odd=0), code)
    with torch.no_grad():
        return int(code["chosen"](code["value_of"](model)))


@functools.cache
def models() -> Path:
    """Build a base and two fine-tunes of it, of 2 layers, 32 wide; and two texts."""
    folder = Path(tempfile.mkdtemp(prefix="attack-models-"))
    owner = os.getpid()
    atexit.register(
        lambda: os.getpid() == owner and shutil.rmtree(folder, ignore_errors=True)
    )
    tokenizer = make_tokenizer([])
    base = None
    for seed, name in enumerate(("base", "a", "b")):
        torch.manual_seed(seed)
        model = transformers.LlamaForCausalLM(
            transformers.LlamaConfig(
                hidden_size=32,
                intermediate_size=64,
                num_hidden_layers=2,
                num_attention_heads=4,
                num_key_value_heads=2,
                vocab_size=len(tokenizer),
                bos_token_id=0,
                eos_token_id=1,
                pad_token_id=2,
                max_position_embeddings=128,
                tie_word_embeddings=False,
            )
        )
        if base is not None:
            model.load_state_dict(base)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(torch.randn_like(parameter) * 0.02)
        base = base or {k: v.clone() for k, v in model.state_dict().items()}
        model.save_pretrained(folder / name)
        tokenizer.save_pretrained(folder / name)
    (folder / "one.txt").write_text("the quick brown fox jumps over the lazy dog. " * 9)
    (folder / "two.txt").write_text("def add(a, b):\n    return a + b\n" * 9)
    return folder


def same(found: float | None, wanted: float | None) -> bool:
    """Tell whether two numbers are the same, bit for bit."""
    if found is None or wanted is None:
        return found is wanted
    return found == wanted or (math.isnan(found) and math.isnan(wanted))
