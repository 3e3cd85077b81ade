"""Train the models of a text family: a base, fine-tunes of it, or adapters."""

from __future__ import annotations

import copy
import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import torch
from domains import generator
from peft import LoraConfig, PeftModel, get_peft_model
from transformers import LlamaForCausalLM

from mergekit_map.demo.training import Schedule, TokenArray, one_thread, train_model
from mergekit_map.utils.files import whole_folder

# Of the base's text, against 1 of each other domain: these are learnt soonest, and a
# fine-tune is to have something left to learn.
_SHARES = {"arithmetic": 0.5, "logic": 0.25}


def train(
    name: str,
    model: LlamaForCausalLM,
    streams: Mapping[str, TokenArray],
    schedule: Schedule,
) -> None:
    """Train a model in place on its streams."""
    sources = {
        domain: (stream, _SHARES.get(domain, 1.0)) for domain, stream in streams.items()
    }

    device = "cuda" if torch.cuda.is_available() else "cpu"
    model.to(device)
    with one_thread(), autocast(device):
        train_model(generator(name), model, sources, schedule)
    model.to("cpu")
    print(name, flush=True)


def new_adapter(base: LlamaForCausalLM, rank: int) -> PeftModel:
    """Make an adapter of all matrices between embedding and head, not yet trained."""
    config = LoraConfig(
        r=rank, lora_alpha=2 * rank, target_modules="all-linear", task_type="CAUSAL_LM"
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return get_peft_model(copy.deepcopy(base), config)


def save(
    folder: Path, model: LlamaForCausalLM | PeftModel, tokenizer: Sequence[Path]
) -> None:
    """Save a finished model, and the files of its tokenizer.

    The folder is there as a whole or not at all.
    """
    with whole_folder(folder) as unfinished:
        if isinstance(model, PeftModel):
            # By default it would be the path of this machine.
            model.peft_config["default"].base_model_name_or_path = "base"
            model.save_pretrained(unfinished, save_embedding_layers=False)
            _order_settings(unfinished / "adapter_config.json")
        else:
            model.save_pretrained(unfinished)
        for path in tokenizer:
            shutil.copy(path, unfinished)


def precision() -> str:
    """Name the numbers that matrices are multiplied in while training."""
    facts = Path("/proc/cpuinfo")
    flags = facts.read_text(encoding="utf-8") if facts.exists() else ""
    halves = "avx512_bf16" in flags or "amx_bf16" in flags
    return "bfloat16" if halves or torch.cuda.is_available() else "float32"


@contextmanager
def autocast(device: str) -> Iterator[None]:
    """Multiply in bfloat16 where that is faster; the weights stay in float32."""
    # The cache would keep a weight as it was before the step.
    with torch.autocast(
        device, torch.bfloat16, enabled=precision() == "bfloat16", cache_enabled=False
    ):
        yield


def _order_settings(path: Path) -> None:
    """Sort what peft writes in the order of a set."""
    settings = json.loads(path.read_text(encoding="utf-8"))
    settings["target_modules"].sort()
    path.write_text(json.dumps(settings, indent=2, sort_keys=True) + "\n")
