"""How long merging a tensor again takes, in times of copying what it must touch.

    python tests/benchmarks/kernels.py [--millions 91] [--models 8] [--repeats 5]

A random bfloat16 Llama, tensors built in memory, one thread. For 1 to 8 models, side by
side in one run: the time to copy the bytes that a merge has to touch (base and task
vectors read, result written), the time to merge in slices and the time of mergekit's
own operations, the least of several repeats, in processor time. Then preparing: the
time to sparsify as mergekit does it and as we do. Where bits differ it stops.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from dataclasses import replace

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
    """Add up, over the tensors, what each takes at best; gives ours and mergekit's."""
    generator = torch.Generator().manual_seed(n)
    weights = [0.2 + 0.1 * index for index in range(n)]
    sums = [[0.0, 0.0] for _ in RULES]
    copied = 0.0
    for shape, count in {shape: shapes.count(shape) for shape in shapes}.items():
        base, deltas = random_tensors(shape, n, generator)
        target = torch.empty_like(base)
        jobs: list[Callable[[], object]] = [lambda: [target.copy_(base)]]
        for _, elect, normalize in RULES:
            eager = TaskVectorReplay(
                models=tuple(range(n)),
                base=base,
                deltas=deltas,
                elect_signs=elect,
                mask_dtype=base.dtype,
                normalize=normalize,
                scale=1,
                plain=False,
            )
            ours = in_slices(eager, weights)
            check(ours, eager, weights)
            jobs += [lambda ours=ours: ours.write(weights, target)]
            jobs += [] if own else [lambda eager=eager: eager.write(weights, target)]
        times = [count * seconds for seconds in best(jobs, repeats)]
        copied += times[0] * (n + 2) / 2  # a copy reads once and writes once
        for place, pair in enumerate(sums):
            pair[0] += times[1 + place * (1 if own else 2)]
            pair[1] += 0 if own else times[2 + place * 2]
    return [(ours / copied, stock / copied) for ours, stock in sums]


def random_tensors(
    shape: torch.Size, n: int, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """Draw a base and trimmed task vectors, one after the other to spare memory."""
    base = torch.randn(shape, generator=generator).mul_(0.02).bfloat16()
    deltas = base.new_empty((n, *shape))
    for delta in deltas:
        numbers = torch.randn(shape, generator=generator).mul_(1e-3)
        delta.copy_(torch.where(numbers.abs() > 6e-4, numbers, 0))
    return base, deltas


def check(
    ours: TaskVectorReplay, eager: TaskVectorReplay, weights: list[float]
) -> None:
    """Compare both ways, bit by bit."""
    if ours.base.numel() > 1 << 13 and not ours.plain:
        raise SystemExit("a tensor is not merged in slices")
    if ours.base.numel() > 1 << 23:  # mergekit's way wants many times the memory
        rows = slice(0, 1000)
        parts = {"base": ours.base[rows], "deltas": ours.deltas[:, rows].contiguous()}
        ours, eager = replace(ours, **parts), replace(eager, **parts)
    one, other = torch.empty_like(ours.base), torch.empty_like(ours.base)
    ours.write(weights, one)
    eager.write(weights, other)
    if not torch.equal(one.view(torch.int16), other.view(torch.int16)):
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
    generator = torch.Generator().manual_seed(0)
    print("preparing a task vector: seconds of mergekit, ours, times less")
    for method, more in (
        (SparsificationMethod.magnitude, {}),
        (SparsificationMethod.magnitude_outliers, {"gamma": 0.01}),
    ):
        stock = ours = 0.0
        for shape, count in {shape: shapes.count(shape) for shape in shapes}.items():
            delta = random_tensors(shape, 1, generator)[0]
            found: dict[str, Tensor] = {}

            def mergekits() -> None:
                found["stock"] = sparsify(delta, density=0.4, method=method, **more)  # noqa: B023

            def own() -> None:
                found["ours"] = sparsified(delta, 0.4, method, None, **more)  # noqa: B023

            times = best([mergekits, own], 2)
            if not torch.equal(found["stock"], found["ours"]):
                raise SystemExit("another sparse task vector than mergekit's")
            stock, ours = stock + count * times[0], ours + count * times[1]
        name = method.value
        print(f"{name:20} {stock:6.2f} {ours:6.2f} {stock / ours:5.1f}", flush=True)


if __name__ == "__main__":
    main()
