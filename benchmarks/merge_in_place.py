"""Seconds from coefficients to a model that can be evaluated, and the memory it takes.

    python benchmarks/merge_in_place.py [--layers 24] [--repeats 3]

Builds a random bfloat16 Llama (300 M parameters by default) and two fine-tunes of it,
then, for each method in turn and in one process, merges with stock mergekit to disk and
loads the result, and merges in place. The floor is copying the bytes that a merge has
to read and write once: base, task vectors, result. Peak memory is taken in a process
of its own, in copies of the model beyond what the libraries take.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import re
import statistics
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

import tokenizers
import torch
import transformers
from mergekit.options import MergeOptions

from mergekit_map.config.specs import SearchSpec
from mergekit_map.merging.checkpoint import write_checkpoint
from mergekit_map.merging.recipe import stock_config
from mergekit_map.merging.resident import resident_merge
from mergekit_map.merging.space import MergeSpace, build_space

METHODS = {
    "task_arithmetic": {},
    "ties": {"density": 0.5},
    "dare_linear": {"density": 0.5},
}
OPTIONS = MergeOptions(random_seed=0, quiet=True)


def main() -> None:
    arguments = parse_arguments()
    transformers.utils.logging.disable_progress_bar()
    transformers.utils.logging.set_verbosity_error()
    with tempfile.TemporaryDirectory() as folder:
        os.environ["MERGEKIT_MAP_HOME"] = str(Path(folder) / "home")
        size = build_models(Path(folder), arguments.layers)
        print(f"{size / 2e6:.0f} M parameters, {torch.get_num_threads()} threads")
        print(f"{'':16} {'disk s':>8} {'in place s':>10} {'faster':>7} {'copies':>7}")
        for method, parameters in METHODS.items():
            space = make_space(Path(folder), method, parameters)
            compare(method, space, size, arguments.repeats)
        os.environ["MERGEKIT_MAP_HOME"] = str(Path(folder) / "home anew")
        for method, parameters in METHODS.items():
            space = make_space(Path(folder), method, parameters)
            copies = in_new_process(peak_copies, space, size)
            print(f"{method:16} peak memory {copies:.2f} copies of the model, N = 2")


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--layers", type=int, default=18)
    parser.add_argument("--repeats", type=int, default=3)
    return parser.parse_args()


def build_models(folder: Path, layers: int) -> int:
    """Save base and two fine-tunes; returns the bytes of one."""
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        hidden_size=1024,
        intermediate_size=2816,
        num_hidden_layers=layers,
        num_attention_heads=16,
        num_key_value_heads=16,
        vocab_size=32000,
        tie_word_embeddings=False,
        dtype="bfloat16",
    )
    model = transformers.LlamaForCausalLM(config).to(torch.bfloat16)
    for name in ("base", "one", "two"):
        if name != "base":
            with torch.no_grad():
                for parameter in model.parameters():
                    parameter.add_(torch.randn_like(parameter) * 1e-3)
        model.save_pretrained(folder / name)
        tokenizer().save_pretrained(folder / name)
    return sum(p.numel() * p.element_size() for p in model.parameters())


def tokenizer() -> transformers.PreTrainedTokenizerFast:
    vocabulary = {f"t{i}": i for i in range(32000)}
    model = tokenizers.models.WordLevel(vocabulary, unk_token="t0")
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizers.Tokenizer(model), unk_token="t0"
    )


def make_space(folder: Path, method: str, parameters: dict[str, float]) -> MergeSpace:
    models = [
        {"model": str(folder / name), "parameters": dict(parameters)}
        for name in ("one", "two")
    ]
    base = str(folder / "base")
    merge = {"merge_method": method, "base_model": base, "dtype": "bfloat16"}
    space, problems = build_space({**merge, "models": models}, SearchSpec())
    assert space is not None, problems
    return space


def compare(method: str, space: MergeSpace, size: int, repeats: int) -> None:
    coefficients = {"one": 0.4, "two": 0.7}

    def through_disk() -> None:
        with tempfile.TemporaryDirectory() as folder:
            out = Path(folder) / "out"
            write_checkpoint(stock_config(space, coefficients), out, OPTIONS)
            transformers.AutoModelForCausalLM.from_pretrained(out, dtype="auto")

    with resident_merge(space, OPTIONS) as merge:
        # Base and two task vectors are read, the result is written: two copies.
        source = [torch.ones(size // 2, dtype=torch.bfloat16) for _ in range(2)]
        target = torch.empty_like(source[0])
        merge.write(coefficients)
        disk, place, copy = [], [], []
        for _ in range(repeats):
            disk.append(seconds(through_disk))
            place.append(seconds(lambda: merge.write(coefficients)))
            copy.append(seconds(lambda: [target.copy_(s) for s in source]))
    slow, fast, floor = map(statistics.median, (disk, place, copy))
    ratio, copies = slow / fast, fast / floor
    print(f"{method:16} {slow:8.2f} {fast:10.3f} {ratio:7.1f} {copies:7.2f}")


def seconds(action: Callable[[], object]) -> float:
    started = time.perf_counter()
    action()
    return time.perf_counter() - started


def in_new_process(action: Callable[..., float], *arguments: object) -> float:
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(action, arguments)


def peak_copies(space: MergeSpace, size: int) -> float:
    """Record, load and merge; gives peak anonymous memory in copies of the model.

    Files that mergekit maps into memory are left out: the kernel takes those pages
    back when it needs them.
    """
    before, peak, done = anonymous_bytes(), 0, threading.Event()

    def watch() -> None:
        nonlocal peak
        while not done.wait(0.005):
            peak = max(peak, anonymous_bytes())

    watcher = threading.Thread(target=watch)
    watcher.start()
    with resident_merge(space, OPTIONS) as merge:
        merge.write({"one": 0.4, "two": 0.7})
    done.set()
    watcher.join()
    return (peak - before) / size


def anonymous_bytes() -> int:
    status = Path("/proc/self/status").read_text()
    return int(re.search(r"RssAnon:\s+(\d+) kB", status).group(1)) * 1024


if __name__ == "__main__":
    main()
