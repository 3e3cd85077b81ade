"""The demo's family: a base model and two fine-tunes for opposing tasks.

It is trained once, from text that comes with Python, and kept in a cache folder with
the texts for its evaluation. Its configuration is what the demo runs.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np
from safetensors import SafetensorError
from transformers import LlamaForCausalLM, PreTrainedTokenizerFast

from mergekit_map.demo.corpus import (
    CorpusSizes,
    interleaved_passages,
    read_corpus,
    write_documents,
)
from mergekit_map.demo.training import (
    ModelSizes,
    Schedule,
    TokenArray,
    join_documents,
    new_model,
    one_thread,
    train_model,
    train_tokenizer,
)
from mergekit_map.errors import ArtifactError
from mergekit_map.utils.files import cache_home, sha256, whole_folder
from mergekit_map.utils.progress import stage

_RECIPE_VERSION = 2  # raise it when a change of code changes what is trained
_SEED = 0
_BASE = Schedule(steps=250, learning_rate=8e-3, matrix_learning_rate=0.03)
# Gentle, so that the fine-tunes stay near the base, as those of real models do: then
# the best weights are larger than those of the soup, 1/2.
_CODE = Schedule(steps=120, learning_rate=8e-4, matrix_learning_rate=0.002)
_MATH = Schedule(steps=100, learning_rate=8e-4, matrix_learning_rate=0.002)


@dataclass(frozen=True)
class FamilySizes:
    """All settings of a family's size and training time."""

    corpus: CorpusSizes = field(default_factory=CorpusSizes)
    model: ModelSizes = field(default_factory=ModelSizes)
    base: Schedule = _BASE
    code: Schedule = _CODE
    math: Schedule = _MATH
    base_shares: tuple[float, float, float] = (0.86, 0.1, 0.04)  # english, code, math
    replay: float = 0.3  # share of the other domains when one is learnt
    tokenizer_documents: int = 300  # of each domain
    held_out_characters: int = 30_000  # of each text to measure on

    @property
    def recipe(self) -> str:
        """A short name of these sizes and this version of the code."""
        return sha256(json.dumps([_RECIPE_VERSION, _SEED, asdict(self)]))[:10]


def build_family(folder: Path, sizes: FamilySizes) -> None:
    """Fill an empty folder with a family."""
    with one_thread():
        domains = read_corpus(_generator("corpus"), sizes.corpus)
        first = slice(sizes.tokenizer_documents)
        documents = [text for part in domains.values() for text in part.train[first]]
        tokenizer = train_tokenizer(documents, sizes.model)
        streams = {k: join_documents(tokenizer, v.train) for k, v in domains.items()}
        for name in ("code", "math"):
            held_out = domains[name].held_out
            passages = interleaved_passages(held_out, sizes.held_out_characters)
            write_documents(folder / f"{name}.jsonl", passages)
        _train_models(folder, tokenizer, streams, sizes)


def _train_models(
    folder: Path,
    tokenizer: PreTrainedTokenizerFast,
    streams: Mapping[str, TokenArray],
    sizes: FamilySizes,
) -> None:
    shares = dict(zip(streams, sizes.base_shares, strict=True))
    schedules = {"base": sizes.base, "code": sizes.code, "math": sizes.math}
    base = new_model(_SEED, tokenizer, sizes.model)
    for name, schedule in schedules.items():
        model: LlamaForCausalLM = base if name == "base" else copy.deepcopy(base)
        drawn = dict(shares)
        if name != "base":  # which must not forget the other domains
            share = sizes.replay / (len(shares) - 1)
            drawn = {**dict.fromkeys(shares, share), name: 1 - sizes.replay}
        sources = {domain: (streams[domain], share) for domain, share in drawn.items()}
        with stage(f"training {name}"):
            train_model(_generator(name), model, sources, schedule)
        model.save_pretrained(folder / name)
        tokenizer.save_pretrained(folder / name)


def _generator(purpose: str) -> np.random.Generator:
    """Return a generator for one purpose, independent of the others."""
    return np.random.default_rng([_SEED, *purpose.encode()])


def family_folder() -> Path:
    """Return the folder of the demo's family; another recipe has another folder."""
    return cache_home() / f"demo-family-{FamilySizes().recipe}"


def train_family(folder: Path, sizes: FamilySizes | None = None) -> Path:
    """Train a family into ``folder``, unless it is there; it appears when it is whole.

    Returns the absolute path, with the models ``base``, ``code`` and ``math`` and the
    held-out texts ``code.jsonl`` and ``math.jsonl``. Raises ArtifactError if ``folder``
    cannot be written, or Python came without the source of its library.
    """
    folder = folder.expanduser().resolve()
    try:
        if not folder.is_dir():
            with whole_folder(folder) as built:
                build_family(built, sizes or FamilySizes())
    except (OSError, SafetensorError) as error:
        raise ArtifactError(f"{folder} cannot be written: {error}") from None
    return folder


_TEMPLATE = """\
# What the demo runs. Outside of map: this is a configuration of mergekit, without the
# weights of the models, which are what is searched.
merge_method: task_arithmetic
base_model: "{family}/base"
models:
  - model: "{family}/code"
  - model: "{family}/math"
dtype: float32
map:
  tasks:
    # Mean token loss on text that no model has seen; smaller is better.
    code: {{perplexity: {{file: "{family}/code.jsonl", field: text}}, max_tokens: 8192}}
    math: {{perplexity: {{file: "{family}/math.jsonl", field: text}}, max_tokens: 8192}}
  search: {{strategy: map, evaluations: 20, bounds: [0, 2], seed: 0}}
  # Both alike, and neither worse than it was, or than plain averaging makes it.
  select: {{not_worse_than: [base, soup]}}
"""


def demo_config(family: Path) -> str:
    """Return the configuration for the family in a folder, an absolute path."""
    # JSON quotes whatever a path may hold, and YAML reads JSON.
    return _TEMPLATE.format(family=json.dumps(str(family), ensure_ascii=False)[1:-1])
