"""How long writing a merge takes, beside measuring 8,192 tokens with it.

    python benchmarks/merge_time.py [--size 135m|1b] [--device cuda]

A random Llama of the shape of SmolLM2-135M, or of a larger one, in bfloat16 with tied
embeddings, and small noise in place of fine-tunes; one thread, or a GPU. For each
method and number of models: seconds of writing a merge and of copying a model (medians
of five), of measuring 8,192 tokens as the perplexity task does (once, with the first
merge), the ratio of the first to the last, and whether the tensors are, bit for bit,
those of stock mergekit. Seconds of a CPU are processor time. 3 GB of memory, and ten
minutes, by default.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Iterator
from functools import partial

import torch
from mergekit import merge_methods
from mergekit.merge_methods.base import TensorGroup
from random_family import SIZES, Size, random_model
from transformers import LlamaForCausalLM

from mergekit_map.merging.in_memory import ResidentMerge
from mergekit_map.merging.methods import recordable_method, recording
from mergekit_map.merging.replay import Replay
from mergekit_map.merging.space import WeightTable
from mergekit_map.tasks.loglikelihood import Request, likelihoods

METHODS = ("task_arithmetic", "ties", "dare_linear", "dare_ties")
TOKENS, BLOCK = 8192, 1024
SHARED = {"normalize": False, "lambda": 1.0, "rescale": True, "int8_mask": False}
HEAD = (
    "| method | models | write, s | copy, s | 8,192 tokens, s | write / tokens | bits |"
)


def main() -> None:
    """Print a row for each method and number of models."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", choices=SIZES, default="135m")
    parser.add_argument("--device", default="cpu")
    arguments = parser.parse_args()
    torch.set_default_device(arguments.device)
    torch.set_num_threads(1)
    torch.set_grad_enabled(mode=False)
    measuring, size = 0.0, SIZES[arguments.size]
    print(f"{HEAD}\n| --- | ---: | ---: | ---: | ---: | ---: | --- |")
    for method in METHODS:
        for n in (2, 4):
            model = random_model(size)
            merge = recorded(model, method, n, size)
            coefficients = {f"m{i}": 0.3 + 0.1 * i for i in range(n)}
            writes, copies = times(merge, coefficients)
            measuring = measuring or seconds(partial(measure, model))
            same = is_stock(model, method, coefficients, size)
            print(
                f"| {method} | {n} | {writes:.3f} | {copies:.3f} | {measuring:.1f} "
                f"| {writes / measuring:.1%} | {'the same' if same else 'OTHERS'} |",
                flush=True,
            )


def times(merge: ResidentMerge, coefficients: dict[str, float]) -> tuple[float, float]:
    """Return seconds of writing a merge and of copying a model, side by side."""
    source = [parameter.clone() for parameter in merge.model.parameters()]
    writes, copies = [], []
    for _ in range(5):
        copies.append(seconds(partial(copy, source, merge.model)))
        writes.append(seconds(partial(merge.write, coefficients)))
    return statistics.median(writes), statistics.median(copies)


def groups(n: int, size: Size) -> Iterator[TensorGroup]:
    """Draw the tensors of base and fine-tunes, the same ones each time."""
    names = [f"m{i}" for i in range(n)]
    noise = torch.Generator(torch.get_default_device()).manual_seed(n)
    for name, base in random_model(size).named_parameters():
        tuned = [
            base + (torch.randn(base.shape, generator=noise) * 1e-3).bfloat16()
            for _ in names
        ]
        yield TensorGroup.from_tensors(
            [base.data, *tuned], ids=("base", *names), base_index=0, name=name
        )


def recorded(model: LlamaForCausalLM, method: str, n: int, size: Size) -> ResidentMerge:
    """Record a merge of tensors that never were on a disk."""
    names = [f"m{i}" for i in range(n)]
    each = {"weight": dict.fromkeys(names, 0.5), "density": dict.fromkeys(names, 0.5)}
    twin = merge_methods.get(recordable_method(method))
    replays: dict[str, Replay] = {}
    torch.manual_seed(1)
    with recording(replays.__setitem__):
        for group in groups(n, size):
            twin.merge_group(group, **SHARED, **each)
    zero = {name: dict.fromkeys(replays, 0.0) for name in names}
    slopes = {n: {**zero, n: dict.fromkeys(replays, 1.0)} for n in names}
    return ResidentMerge(model, None, replays, WeightTable(zero, slopes))


def is_stock(
    model: LlamaForCausalLM, method: str, coefficients: dict[str, float], size: Size
) -> bool:
    """Compare the tensors of the model with those of stock mergekit, bit by bit."""
    stock = merge_methods.get(method)
    density = dict.fromkeys(coefficients, 0.5)
    found = dict(model.named_parameters())
    torch.manual_seed(1)
    same = []
    for group in groups(len(coefficients), size):
        merged = stock.merge_group(
            group, **SHARED, weight=coefficients, density=density
        )
        ours = found.pop(group.metadata.name)
        same.append(torch.equal(ours.view(torch.int16), merged.view(torch.int16)))
    return all(same) and not found


def measure(model: LlamaForCausalLM) -> None:
    """Compute the losses of a text, in passes of one block."""
    ids = torch.randint(model.config.vocab_size, (TOKENS // BLOCK, BLOCK + 1))
    blocks = [Request(tuple(row[:-1]), tuple(row[1:])) for row in ids.tolist()]
    likelihoods(model, "auto", blocks, in_trees=False).score_all(blocks, greedy=False)


def copy(source: list[torch.Tensor], model: torch.nn.Module) -> None:
    """Write as many bytes as a merge does."""
    for tensor, parameter in zip(source, model.parameters(), strict=True):
        parameter.copy_(tensor)


def seconds(action: Callable[[], object]) -> float:
    """Measure processor time, or the time until a GPU is done."""
    gpu = torch.get_default_device().type == "cuda"
    clock = time.perf_counter if gpu else time.process_time
    started = clock()
    action()
    if gpu:
        torch.cuda.synchronize()
    return clock() - started


if __name__ == "__main__":
    main()
