"""A base model and eight fine-tunes of it, to benchmark searches with many models.

    python benchmarks/family8.py FOLDER [--manpages DIR]

Six fine-tunes are on manual pages in six languages (Debian's packages manpages-de,
-fr, -es, -it, -pl and -ru; DIR holds a folder per language), one is on the source of
Python's standard library and one on arithmetic. Each domain has a held-out text to be
measured on. The task vectors are small, as the paper assumes: the base has learnt all
eight domains, and each fine-tune only leans towards one. What is finished is reused.
"""

from __future__ import annotations

import argparse
import copy
import itertools
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import transformers
from laboratory.manual_pages import MANPAGES, draw_pages
from transformers import LlamaForCausalLM, PreTrainedTokenizerFast

from mergekit_map.demo.corpus import (
    CorpusSizes,
    Split,
    interleaved_passages,
    read_corpus,
    write_documents,
)
from mergekit_map.demo.family import FamilySizes
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
from mergekit_map.utils.files import whole_folder

LANGUAGES = dict(german="de", french="fr", spanish="es") | dict(
    italian="it", polish="pl", russian="ru"
)
DOMAINS = (*LANGUAGES, "code", "arithmetic")

_SEED = 0
_SIZES = ModelSizes(1024, 64, 176, layers=3, heads=4, positions=128)
EARLIER_DEMO = FamilySizes(  # when the kept results were made
    CorpusSizes(2_000_000, 1_200),
    ModelSizes(1536, 128, 352),
    base=Schedule(650, 8e-3, 0.03),
    code=Schedule(400, 8e-4, 0.002),
    math=Schedule(300, 8e-4, 0.002),
    tokenizer_documents=1_000,
    held_out_characters=60_000,
)
_BASE = Schedule(3000, 6e-3, 0.02, batch=16)
_FINE_TUNE = Schedule(300, 2e-3, 1.5e-3, batch=16)
_TOKENIZER_CHARACTERS = 200_000  # of each domain
_HELD_OUT_CHARACTERS = 60_000  # of each text to measure on
_CHARACTERS = 1_500_000  # of each domain, about
_HELD_OUT_SHARE = 0.1
_FEWEST_PAGES = 20


def build(folder: Path, manpages: Path) -> None:
    """Train what is missing of the family, the last domain last."""
    if (folder / DOMAINS[-1]).exists():
        return
    folder.mkdir(parents=True, exist_ok=True)
    with one_thread():
        corpus = read_domains(manpages)
        for domain in DOMAINS:
            held_out = corpus[domain].held_out
            passages = interleaved_passages(held_out, _HELD_OUT_CHARACTERS)
            write_documents(folder / f"{domain}.jsonl", passages)
        _train_models(folder, corpus)


def read_domains(manpages: Path) -> dict[str, Split]:
    """Read and divide all eight domains, in the order of ``DOMAINS``.

    ``manpages`` is a folder such as share/man, with a folder per language.
    """
    python = read_corpus(_generator("python"), CorpusSizes(_CHARACTERS, 1_200))
    languages = {
        name: _read_pages(_generator(name), manpages / code)
        for name, code in LANGUAGES.items()
    }
    return {**languages, "code": python["code"], "arithmetic": python["math"]}


def _read_pages(rng: np.random.Generator, folder: Path) -> Split:
    """Draw pages of one language; whole pages are held out."""
    pages = draw_pages(rng, [folder], _CHARACTERS)
    if len(pages) < _FEWEST_PAGES:
        raise SystemExit(
            f"{folder} has {len(pages)} manual pages, and {_FEWEST_PAGES} are wanted; "
            f"install Debian's manpages-{folder.name}, or name its share/man"
        )
    held_out = max(1, round(_HELD_OUT_SHARE * len(pages)))
    return Split(tuple(pages[held_out:]), tuple(pages[:held_out]))


def _generator(purpose: str) -> np.random.Generator:
    """Give each part its own draws, so that changing one leaves the others alone."""
    return np.random.default_rng([_SEED, *purpose.encode()])


def _train_models(folder: Path, corpus: Mapping[str, Split]) -> None:
    tokenizer = _tokenizer(folder, corpus)
    streams = {
        name: join_documents(tokenizer, split.train) for name, split in corpus.items()
    }
    print({name: len(stream) for name, stream in streams.items()}, "tokens", flush=True)
    if not (folder / "base").exists():
        base = new_model(_SEED, tokenizer, _SIZES)
        train(folder / "base", base, tokenizer, streams, _BASE)
    base = LlamaForCausalLM.from_pretrained(folder / "base", dtype="float32")
    for name in DOMAINS:
        if not (folder / name).exists():
            model = copy.deepcopy(base)
            train(folder / name, model, tokenizer, {name: streams[name]}, _FINE_TUNE)


def _tokenizer(folder: Path, corpus: Mapping[str, Split]) -> PreTrainedTokenizerFast:
    if (folder / "base").exists():
        return PreTrainedTokenizerFast.from_pretrained(folder / "base")
    documents: list[str] = []
    for split in corpus.values():
        starts = itertools.accumulate(map(len, split.train), initial=0)
        documents += split.train[: sum(n < _TOKENIZER_CHARACTERS for n in starts)]
    return train_tokenizer(documents, _SIZES)


def train(
    folder: Path,
    model: LlamaForCausalLM,
    tokenizer: PreTrainedTokenizerFast,
    streams: Mapping[str, TokenArray],
    schedule: Schedule,
) -> None:
    """Train a model on its streams, all alike, and save it."""
    sources = {name: (stream, 1.0) for name, stream in streams.items()}
    train_model(_generator(folder.name), model, sources, schedule)
    print(folder.name, flush=True)
    with whole_folder(folder) as unfinished:
        model.save_pretrained(unfinished)
        tokenizer.save_pretrained(unfinished)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--manpages", type=Path, default=MANPAGES)
    arguments = parser.parse_args()
    transformers.utils.logging.disable_progress_bar()
    transformers.utils.logging.set_verbosity_error()
    build(arguments.folder, arguments.manpages)


if __name__ == "__main__":
    main()
