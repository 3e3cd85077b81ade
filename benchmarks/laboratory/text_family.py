"""Build a text family: text, tokenizer, models, tasks, and what the models do."""

from __future__ import annotations

import copy
import dataclasses
import hashlib
import itertools
import json
import shutil
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from describing import check, describe
from domains import Domain, Sources, read_domain
from family import MANIFEST
from filelock import FileLock
from sizes import Size
from text_models import adapted, new_adapter, save, train
from transformers import LlamaForCausalLM, PreTrainedTokenizerFast

from mergekit_map.demo.corpus import interleaved_passages
from mergekit_map.demo.tasks import write_documents
from mergekit_map.demo.training import (
    Schedule,
    TokenArray,
    join_documents,
    new_model,
    train_tokenizer,
)

_RECIPE_VERSION = 1  # raise it when a change of code changes what is trained
_SEED = 0
_TOKENIZER_CHARACTERS = 400_000  # of each domain
_HELD_OUT_CHARACTERS = 200_000  # at most, of each text to measure on
_RECORD = "build.json"  # what was trained, and for how long
_REFUSED = "refused.json"  # what would be the manifest, until it is checked

_LANGUAGES = (
    *("german", "french", "russian", "spanish"),
    *("polish", "turkish", "italian", "ukrainian"),
)
_COMPUTED = ("arithmetic", "logic")  # what has to be computed takes more steps
_LONGER = 2

_MIXED = ("german", "arithmetic", "python", "c", "logic", "english")


@dataclass(frozen=True)
class Plan:
    """What a family is made of: a fine-tune for each domain."""

    domains: tuple[str, ...]
    adapters_of: str | None = None  # the family whose base they adapt


PLANS = {
    "languages": Plan(_LANGUAGES),
    "mixed": Plan(_MIXED),
    "lora": Plan(_MIXED, adapters_of="mixed"),
}


@dataclass(frozen=True)
class _Texts:
    domains: Mapping[str, Domain]
    tokenizer: PreTrainedTokenizerFast
    streams: Mapping[str, TokenArray]


def build_text_family(
    name: str, root: Path, size_name: str, size: Size, manpages: Sequence[Path]
) -> Path:
    """Train what is missing of a family, write its manifest last, give its folder."""
    plan = PLANS[name]
    folder = root / f"{name}-{size_name}"
    folder.mkdir(parents=True, exist_ok=True)
    if plan.adapters_of and not (folder / "base").exists():
        other = _base_alone(plan.adapters_of, root, size_name, size, manpages)
        shutil.copytree(other, folder / "base.unfinished", dirs_exist_ok=True)
        (folder / "base.unfinished").replace(folder / "base")
    with FileLock(folder / ".lock"):
        if (folder / MANIFEST).exists():
            return folder
        texts = _read_texts(folder, plan, size, manpages)
        tasks = _write_evaluation(folder, texts, size)
        base = _train_base(folder, texts, size)
        for domain in plan.domains:
            _tune(folder, domain, base, texts, size, adapter=bool(plan.adapters_of))
        facts = {
            "family": name,
            "size": size_name,
            "parameters": base.num_parameters(),
            "seed": _SEED,
            "base": "base",
            "models": [
                {"name": domain, "path": domain, "adapter": bool(plan.adapters_of)}
                for domain in plan.domains
            ],
            "tasks": tasks,
            "schedules": dataclasses.asdict(size),
            "seconds": {k: one["seconds"] for k, one in _record(folder).items()},
        }
        facts = _described(folder, facts)
        check(folder, facts)
        (folder / _REFUSED).replace(folder / MANIFEST)
    return folder


def _described(folder: Path, facts: Mapping[str, Any]) -> dict[str, Any]:
    """Measure the models, or read what was measured of the same ones and refused."""
    path = folder / _REFUSED
    refused = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    # As JSON has it: a tuple is a list there.
    wanted = json.loads(json.dumps(facts))
    if {key: refused.get(key) for key in wanted} != wanted:
        _write(path, wanted | describe(folder, facts))
    content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return content


def _base_alone(
    name: str, root: Path, size_name: str, size: Size, manpages: Sequence[Path]
) -> Path:
    """Train the base of another family, or take the one that is there."""
    folder = root / f"{name}-{size_name}"
    folder.mkdir(parents=True, exist_ok=True)
    with FileLock(folder / ".lock"):
        if not _trained(folder, "base", size, size.base):
            texts = _read_texts(folder, PLANS[name], size, manpages)
            _train_base(folder, texts, size)
    return folder / "base"


def _trained(folder: Path, name: str, size: Size, schedule: Schedule) -> bool:
    """Say whether a model is finished; refuse one that another recipe made."""
    recipe = _recipe(size, schedule)
    made = _record(folder).get(name, {"recipe": recipe})["recipe"]
    if (folder / name).exists() and made != recipe:
        raise SystemExit(
            f"{folder / name} was trained by other sizes or another version of the "
            "laboratory; delete it, or name another folder"
        )
    return (folder / name).exists()


def _recipe(size: Size, schedule: Schedule) -> str:
    """Give a short name to all that a model depends on."""
    text = (size.characters, size.largest_operand)
    parts = (size.model, size.base, schedule)
    written = json.dumps(
        [_RECIPE_VERSION, _SEED, text, *map(dataclasses.asdict, parts)]
    )
    return hashlib.sha256(written.encode()).hexdigest()[:10]


def _record(folder: Path) -> dict[str, Any]:
    path = folder / _RECORD
    if not path.exists():
        return {}
    content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return content


def _write(path: Path, content: Mapping[str, Any]) -> None:
    unfinished = path.with_suffix(".unfinished")
    unfinished.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    unfinished.replace(path)


def _read_texts(
    folder: Path, plan: Plan, size: Size, manpages: Sequence[Path]
) -> _Texts:
    sources = Sources(tuple(manpages), size.characters, size.largest_operand)
    domains = {name: read_domain(name, sources) for name in plan.domains}
    if (folder / "base").exists():
        tokenizer = PreTrainedTokenizerFast.from_pretrained(folder / "base")
    else:
        texts = [part for one in domains.values() for part in _first(one)]
        tokenizer = train_tokenizer(texts, size.model)
    streams = {
        name: join_documents(tokenizer, domain.text.train)
        for name, domain in domains.items()
    }
    return _Texts(domains, tokenizer, streams)


def _first(domain: Domain) -> list[str]:
    """Give as many documents as the tokenizer learns from."""
    lengths = itertools.accumulate(map(len, domain.text.train))
    return [
        text
        for text, length in zip(domain.text.train, lengths, strict=True)
        if length - len(text) < _TOKENIZER_CHARACTERS
    ]


def _write_evaluation(folder: Path, texts: _Texts, size: Size) -> list[dict[str, Any]]:
    """Write the held-out texts; returns a task for each as ``family.json`` has it."""
    for name, domain in texts.domains.items():
        passages = interleaved_passages(domain.text.held_out, _HELD_OUT_CHARACTERS)
        write_documents(folder / f"{name}.jsonl", passages)
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


def _train_base(folder: Path, texts: _Texts, size: Size) -> LlamaForCausalLM:
    if not _trained(folder, "base", size, size.base):
        started = time.monotonic()
        model = new_model(_SEED, texts.tokenizer, size.model)
        train("base", model, texts.streams, size.base)
        with tempfile.TemporaryDirectory() as scratch:
            texts.tokenizer.save_pretrained(scratch)
            save(folder / "base", model, sorted(Path(scratch).iterdir()))
        _note(folder, "base", _recipe(size, size.base), started)
    return LlamaForCausalLM.from_pretrained(folder / "base", dtype="float32")


def _tune(
    folder: Path,
    domain: str,
    base: LlamaForCausalLM,
    texts: _Texts,
    size: Size,
    *,
    adapter: bool,
) -> None:
    schedule = size.adapter if adapter else size.fine_tune
    if domain in _COMPUTED:
        times = size.longer_adapters if adapter else _LONGER
        schedule = dataclasses.replace(schedule, steps=times * schedule.steps)
    if _trained(folder, domain, size, schedule):
        return
    started = time.monotonic()
    model = new_adapter(base, size.rank) if adapter else copy.deepcopy(base)
    trained = adapted(model) if adapter else model
    train(domain, trained, {domain: texts.streams[domain]}, schedule)
    tokenizer = sorted((folder / "base").glob("tokenizer*"))
    save(folder / domain, model, tokenizer)
    _note(folder, domain, _recipe(size, schedule), started)


def _note(folder: Path, name: str, recipe: str, started: float) -> None:
    seconds = round(time.monotonic() - started, 1)
    record = _record(folder) | {name: {"recipe": recipe, "seconds": seconds}}
    _write(folder / _RECORD, record)
