"""Train a family of models, from text that any Debian or Python installation has.

    python benchmarks/laboratory/build.py FAMILY FOLDER [--size SIZE] [--manpages DIR]

FAMILY is one of

- ``languages``: eight fine-tunes on manual pages in eight languages (Debian's packages
  manpages-de, -fr, -ru, -es, -pl, -tr, -it and -uk; DIR, by default /usr/share/man, has
  a folder per language; where there are few pages, the message catalogues in
  share/locale beside it are read too);
- ``mixed``: German, arithmetic, Python, C, logic and English;
- ``lora``: the base of ``mixed``, and the same six as LoRA adapters of it.

The base has learnt all domains, and each fine-tune leans towards one. Each is measured
by the loss on held-out text. Sizes: demo (0.3 M parameters), 5m, 20m.

FOLDER/FAMILY-SIZE gets the models and, last, ``family.json``, which says what they do.
A model that is finished is not trained again; same machine, same seed, same bytes.
"""

from __future__ import annotations

import argparse
import copy
import dataclasses
import itertools
import platform
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from domains import Sources, read_domain
from family import MANIFEST, Family, configuration, measure_family
from manual_pages import MANPAGES
from text_models import new_adapter, precision, save, train
from transformers import LlamaForCausalLM, PreTrainedTokenizerFast

from mergekit_map.demo.corpus import Split, interleaved_passages, write_documents
from mergekit_map.demo.training import (
    ModelSizes,
    Schedule,
    TokenArray,
    join_documents,
    new_model,
    train_tokenizer,
)
from mergekit_map.utils.files import whole_folder, write_json

_SEED = 0
_TOKENIZER_CHARACTERS = 400_000  # of each domain
_HELD_OUT_CHARACTERS = 200_000  # at most, of each text to measure on

_LANGUAGES = (
    *("german", "french", "russian", "spanish"),
    *("polish", "turkish", "italian", "ukrainian"),
)
_COMPUTED = ("arithmetic", "logic")  # what has to be computed takes more steps
_LONGER = 2

_MIXED = ("german", "arithmetic", "python", "c", "logic", "english")
_SMALLEST_GAIN = 0.02  # nats per token of its own text


@dataclass(frozen=True)
class Size:
    """Everything that decides how large a family is, and how long it trains."""

    model: ModelSizes
    base: Schedule
    fine_tune: Schedule
    adapter: Schedule
    characters: int  # of each domain, about
    largest_operand: int = 49  # of arithmetic
    measured_tokens: int = 4096  # of each text
    rank: int = 8  # of the adapters
    # Times the steps of an adapter of what has to be computed; else they are two.
    longer_adapters: int = 2


SIZES = {
    "demo": Size(  # 0.3 M parameters
        ModelSizes(1024, 64, 176, 3, 4, positions=128),
        base=Schedule(300, 8e-3, 0.03, batch=16),
        fine_tune=Schedule(40, 5e-4, 2e-3, batch=16),
        adapter=Schedule(40, 5e-4, 1e-2, batch=16),
        characters=1_000_000,
    ),
    "5m": Size(
        ModelSizes(4096, 192, 768, 6, 4, positions=128),
        base=Schedule(500, 8e-3, 0.03, batch=16),
        fine_tune=Schedule(30, 1.5e-3, 6e-3, batch=16),
        adapter=Schedule(30, 5e-4, 1e-2, batch=16),
        characters=1_500_000,
    ),
    "20m": Size(
        ModelSizes(8192, 384, 1024, 8, 6, positions=256),
        base=Schedule(300, 8e-3, 0.03, batch=8),
        fine_tune=Schedule(20, 1.5e-3, 7e-3, batch=8),
        adapter=Schedule(40, 5e-4, 1e-2, batch=8),
        characters=2_000_000,
        longer_adapters=1,
    ),
}


# The domains of each family, with a fine-tune for each.
FAMILIES = {"languages": _LANGUAGES, "mixed": _MIXED, "lora": _MIXED}
_ADAPTERS, _BASE = "lora", "mixed"  # adapters of that family's base


@dataclass(frozen=True)
class _Texts:
    size: Size
    domains: Mapping[str, Split]
    tokenizer: PreTrainedTokenizerFast
    streams: Mapping[str, TokenArray]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("family", choices=tuple(FAMILIES))
    parser.add_argument("folder", type=Path)
    parser.add_argument("--size", choices=tuple(SIZES), default="demo")
    parser.add_argument("--manpages", type=Path, nargs="+", default=[MANPAGES])
    arguments = parser.parse_args()
    transformers.utils.logging.disable_progress_bar()
    transformers.utils.logging.set_verbosity_error()
    root = arguments.folder.expanduser().resolve()
    print(build(arguments.family, root, arguments.size, arguments.manpages))


def build(name: str, root: Path, size_name: str, manpages: Sequence[Path]) -> Path:
    """Train what is missing of a family, write its manifest last, give its folder."""
    size, adapters = SIZES[size_name], name == _ADAPTERS
    folder = root / f"{name}-{size_name}"
    if (folder / MANIFEST).exists():
        return folder
    folder.mkdir(parents=True, exist_ok=True)
    if adapters and not (folder / "base").exists():
        other = root / f"{_BASE}-{size_name}"
        _train_base(other, _read_texts(other, FAMILIES[_BASE], size, manpages))
        with whole_folder(folder / "base") as unfinished:
            shutil.copytree(other / "base", unfinished, dirs_exist_ok=True)
    domains = FAMILIES[name]
    texts = _read_texts(folder, domains, size, manpages)
    tasks = _write_evaluation(folder, texts)
    base = _train_base(folder, texts)
    for domain in domains:
        _tune(folder, domain, base, texts, adapter=adapters)
    facts = {
        "family": name,
        "size": size_name,
        "parameters": base.num_parameters(),
        "seed": _SEED,
        "models": [{"name": domain, "adapter": adapters} for domain in domains],
        "tasks": tasks,
        "schedules": dataclasses.asdict(size),
    }
    facts |= _describe(folder, facts)
    write_json(folder / MANIFEST, facts)
    return folder


def _read_texts(
    folder: Path, names: Sequence[str], size: Size, manpages: Sequence[Path]
) -> _Texts:
    sources = Sources(tuple(manpages), size.characters, size.largest_operand)
    domains = {name: read_domain(name, sources) for name in names}
    if (folder / "base").exists():
        tokenizer = PreTrainedTokenizerFast.from_pretrained(folder / "base")
    else:
        texts = [part for one in domains.values() for part in _first(one.train)]
        tokenizer = train_tokenizer(texts, size.model)
    streams = {
        name: join_documents(tokenizer, domain.train)
        for name, domain in domains.items()
    }
    return _Texts(size, domains, tokenizer, streams)


def _first(documents: Sequence[str]) -> list[str]:
    """Give as many documents as the tokenizer learns from."""
    starts = itertools.accumulate(map(len, documents), initial=0)
    return documents[: sum(start < _TOKENIZER_CHARACTERS for start in starts)]


def _write_evaluation(folder: Path, texts: _Texts) -> list[dict[str, Any]]:
    """Write the held-out texts; returns a task for each as ``family.json`` has it."""
    for name, domain in texts.domains.items():
        passages = interleaved_passages(domain.held_out, _HELD_OUT_CHARACTERS)
        write_documents(folder / f"{name}.jsonl", passages)
    size = texts.size
    block = {"max_tokens": size.measured_tokens, "block": size.model.positions}
    return [
        {
            "name": f"{name}_loss",
            "model": name,
            "kind": "loss",
            "task": {"perplexity": {"file": f"{name}.jsonl"}, **block},
        }
        for name in texts.domains
    ]


def _train_base(folder: Path, texts: _Texts) -> LlamaForCausalLM:
    if not (folder / "base").exists():
        model = new_model(_SEED, texts.tokenizer, texts.size.model)
        train("base", model, texts.streams, texts.size.base)
        with tempfile.TemporaryDirectory() as scratch:
            texts.tokenizer.save_pretrained(scratch)
            save(folder / "base", model, sorted(Path(scratch).iterdir()))
    return LlamaForCausalLM.from_pretrained(folder / "base", dtype="float32")


def _tune(
    folder: Path, domain: str, base: LlamaForCausalLM, texts: _Texts, *, adapter: bool
) -> None:
    if (folder / domain).exists():
        return
    size = texts.size
    schedule = size.adapter if adapter else size.fine_tune
    if domain in _COMPUTED:
        times = size.longer_adapters if adapter else _LONGER
        schedule = dataclasses.replace(schedule, steps=times * schedule.steps)
    model = new_adapter(base, size.rank) if adapter else copy.deepcopy(base)
    trained = model.get_base_model() if adapter else model
    train(domain, trained, {domain: texts.streams[domain]}, schedule)
    save(folder / domain, model, sorted((folder / "base").glob("tokenizer*")))


def _describe(folder: Path, facts: Mapping[str, Any]) -> dict[str, Any]:
    family = Family(folder, facts)
    content = configuration(family, family.models)
    return {
        "losses": measure_family(content, family.models, _SMALLEST_GAIN),
        "precision": precision(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "numpy": np.__version__,
    }


if __name__ == "__main__":
    main()
