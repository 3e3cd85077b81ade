"""How long merging a tensor again takes, in times of copying what it must touch.

    python benchmarks/kernels.py [--millions 91] [--models 8] [--repeats 5]

A random bfloat16 Llama, tensors built in memory, one thread. For 1 to 8 models, side by
side in one run: the time to copy the bytes that a merge has to touch (base and task
vectors read, result written), the time to merge in slices and the time of mergekit's
own operations (for all but the embedding), the least of several repeats, in processor
time. Then preparing: the time to sparsify as mergekit does it and as we do. Where bits
differ it stops. 2 GB of memory.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from functools import partial

import torch
from mergekit.merge_methods.generalized_task_arithmetic import ConsensusMethod
from mergekit.sparsify import SparsificationMethod, sparsify
from torch import Tensor

from mergekit_map.merging.replay import TaskVectorReplay, in_slices
from mergekit_map.merging.trimming import sparsified

# Name, whether signs are elected, whether weights are normalised.
RULES = [
    ("task_arithmetic", None, False),
    ("ties", ConsensusMethod.sum, False),
    ("ties, normalize", ConsensusMethod.sum, True),
]
DTYPE = torch.bfloat16
MAGNITUDE = SparsificationMethod.magnitude
OUTLIERS = SparsificationMethod.magnitude_outliers
HIDDEN, INNER, VOCABULARY = 1024, 2816, 32000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--millions", type=int, default=91)
    parser.add_argument("--models", type=int, nargs="*", default=[*range(1, 9)])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--own", action="store_true", help="leave mergekit's out")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    torch.set_grad_enabled(mode=False)
    shapes = list(llama(arguments.millions * 10**6))
    size = sum(shape.numel() for shape in shapes)
    print(f"{size / 1e6:.0f} M parameters in {len(shapes)} tensors, one thread")
    print("times of copying what is touched; in brackets mergekit's operations")
    print(f"{'N':>2}" + "".join(f"{name:>24}" for name, *_ in RULES))
    for n in arguments.models:
        ratios = merging(shapes, n, arguments.repeats, own=arguments.own)
        cells = [f"{ours:.2f} ({stock:.1f})" for ours, stock in ratios]
        print(f"{n:2}" + "".join(f"{cell:>24}" for cell in cells), flush=True)
    preparing(shapes)


def llama(parameters: int) -> Iterator[torch.Size]:
    """Give the shapes of a Llama of about so many parameters."""
    yield torch.Size((VOCABULARY, HIDDEN))
    layer = [(HIDDEN, HIDDEN)] * 4 + [(INNER, HIDDEN)] * 2 + [(HIDDEN, INNER)]
    layer += [(HIDDEN,)] * 2
    of_layer = sum(torch.Size(shape).numel() for shape in layer)
    for _ in range(max(1, round((parameters - VOCABULARY * HIDDEN) / of_layer))):
        yield from map(torch.Size, layer)


def merging(
    shapes: list[torch.Size], n: int, repeats: int, *, own: bool
) -> list[tuple[float, float]]:
    """Merge the model again and again; gives times in copies, ours and mergekit's."""
    weights = [0.2 + 0.1 * index for index in range(n)]
    tensors = list(random_tensors(shapes, n))
    target = torch.empty(max(shapes, key=torch.Size.numel).numel(), dtype=DTYPE)
    jobs = [lambda: [target[: b.numel()].copy_(b.view(-1)) for b, _ in tensors]]
    for _, elect, normalize in RULES:
        eager = [
            TaskVectorReplay(
                models=tuple(range(n)),
                base=base,
                deltas=deltas,
                elect_signs=elect,
                mask_dtype=DTYPE,
                normalize=normalize,
                scale=1,
                plain=False,
            )
            for base, deltas in tensors
        ]
        sliced = [in_slices(replay, weights) for replay in eager]
        for ours, stock in zip(sliced[1:], eager[1:], strict=True):
            check(ours, stock, weights, target)
        jobs.append(partial(write, sliced, weights, target))
        if not own:
            # The embedding would want several times the memory.
            jobs.append(partial(write, eager[1:], weights, target))
    copying, *times = best(jobs, repeats)
    touched = copying * (n + 2) / 2  # a copy reads once and writes once
    if own:
        return [(ours / touched, float("nan")) for ours in times]
    all_of_it = sum(map(torch.Size.numel, shapes))
    touched_by_stock = touched * (1 - shapes[0].numel() / all_of_it)
    pairs = zip(times[::2], times[1::2], strict=True)
    return [(ours / touched, stock / touched_by_stock) for ours, stock in pairs]


def write(
    tensors: list[TaskVectorReplay], weights: list[float], target: Tensor
) -> None:
    """Merge each tensor, all into the same place."""
    for replay in tensors:
        replay.write(weights, target[: replay.base.numel()].view(replay.base.shape))


def random_tensors(shapes: list[torch.Size], n: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Draw bases and trimmed task vectors, one after the other to spare memory."""
    generator = torch.Generator().manual_seed(n)
    for shape in shapes:
        base = torch.randn(shape, generator=generator).mul_(0.02).to(DTYPE)
        numbers = torch.randn(shape, generator=generator).mul_(1e-3)
        numbers = torch.where(numbers.abs() > 6e-4, numbers, 0).to(DTYPE)
        deltas = base.new_empty((n, *shape))
        for index, delta in enumerate(deltas):
            delta.copy_(numbers.roll(index * 31))
        yield base, deltas


def check(
    ours: TaskVectorReplay,
    stock: TaskVectorReplay,
    weights: list[float],
    target: Tensor,
) -> None:
    """Compare both ways, bit by bit."""
    if ours.base.numel() > 1 << 13 and not ours.plain:
        raise SystemExit("a tensor is not merged in slices")
    found = []
    for replay in (ours, stock):
        write([replay], weights, target)
        found.append(target[: replay.base.numel()].view(torch.int16).clone())
    if not torch.equal(*found):
        raise SystemExit("other bits than mergekit's")


def best(jobs: list[Callable[[], object]], repeats: int) -> list[float]:
    """Run jobs in turn; gives the least processor time of each."""
    least = [float("inf")] * len(jobs)
    for _ in range(repeats):
        for place, job in enumerate(jobs):
            started = time.process_time()
            job()
            least[place] = min(least[place], time.process_time() - started)
    return least


def preparing(shapes: list[torch.Size]) -> None:
    """Sparsify one task vector of the model as mergekit does it, and as we do."""
    print("preparing a task vector: seconds of mergekit, ours, times less")
    vectors = [delta[0] for _, delta in random_tensors(shapes, 1)]
    for method in (MAGNITUDE, OUTLIERS):
        more = {"gamma": 0.01} if method == OUTLIERS else {}
        stock = partial(sparsify, density=0.3, method=method, **more)
        ours = partial(
            sparsified, density=0.3, method=method, rescale_norm=None, **more
        )
        for vector in vectors:
            if not torch.equal(stock(vector), ours(vector)):
                raise SystemExit("another sparse task vector than mergekit's")
        jobs = [
            lambda function=function: [function(vector) for vector in vectors]
            for function in (stock, ours)
        ]
        seconds = best(jobs, 2)
        name = method.value
        print(f"{name:20} {seconds[0]:6.2f} {seconds[1]:6.2f}", end=" ")
        print(f"{seconds[0] / seconds[1]:5.1f}", flush=True)


if __name__ == "__main__":
    main()
