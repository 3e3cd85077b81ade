"""What a GPU does: bits, seconds from coefficients to a model, likelihoods, answers.

    python benchmarks/gpu.py [--size full|1b|tiny] [--parts abcd] [--minutes 9]

Builds random bfloat16 models where it runs, needs no network, and prints one table:

a. contract 1: for every method, whether the model in memory has the bytes of the
   checkpoint that stock mergekit writes on this device;
b. seconds from coefficients to a model for 1 B and 8 B parameters, two and four
   fine-tunes, against copying what must be touched; and the share of a search that is
   not forward passes (8 B: of a merge and two texts, held in memory alone);
c. tokens per second of a likelihood task against stock lm-eval at its best batch size;
d. whether vLLM may be written to in place (a plain, a tied and a mixture-of-experts
   model), and seconds to answer with vLLM and ``generate``.

``tiny`` does all of it in miniature on a CPU, too. What fails is said in its row, and
the other parts go on. Nothing is begun after the minutes are over. Every time is the
median of three or more.
"""

from __future__ import annotations

import argparse
import gc
import logging
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import random_family as families
import torch
import transformers
import yaml
from mergekit import merge_methods
from mergekit.merge_methods.base import TensorGroup
from mergekit.options import MergeOptions
from safetensors import safe_open

from mergekit_map import load_project, search_front
from mergekit_map.config.schema import SearchSpec
from mergekit_map.evaluation.evaluator import open_merges
from mergekit_map.merging.checkpoint import write_checkpoint
from mergekit_map.merging.in_memory import ResidentMerge, resident_merge
from mergekit_map.merging.methods import (
    TASK_VECTOR_METHODS,
    recordable_method,
    recording,
)
from mergekit_map.merging.recipe import stock_config
from mergekit_map.merging.replay import Replay
from mergekit_map.merging.space import MergeSpace, build_space
from mergekit_map.merging.weights import WeightTable
from mergekit_map.tasks.perplexity import PerplexityText, prepare_perplexity

CUDA = torch.cuda.is_available()
DEVICE = "cuda" if CUDA else "cpu"
OPTIONS = MergeOptions(device=DEVICE, random_seed=0, quiet=True)
ALONE = ("linear", "multislerp", "nuslerp")  # methods without a base model
N_TIMES = 3


@dataclass(frozen=True)
class Scale:
    """How large everything is."""

    contract: str
    in_memory: tuple[str, ...]
    searched: str
    tokens: int  # of each text
    questions: int
    answers: int
    answer_tokens: int
    batches: tuple[int, ...]


FULL = Scale("300m", ("1b", "8b"), "1b", 65536, 512, 256, 128, (8, 32, 128, 256))
SCALES = {
    "tiny": Scale("tiny", ("tiny",), "tiny", 512, 6, 3, 4, (2, 4)),
    "1b": Scale("300m", ("1b",), "1b", 65536, 256, 128, 64, (8, 32, 128)),
    "full": FULL,
}
Rows = Iterator[tuple[str, str]]


def main() -> None:
    arguments = parse_arguments()
    transformers.utils.logging.disable_progress_bar()
    transformers.utils.logging.set_verbosity_error()
    started, scale = time.perf_counter(), SCALES[arguments.size]
    parts = {
        "a": [contract_1],
        "b": [seconds_to_a_model, share_of_a_search],
        "c": [likelihoods],
        "d": [in_place, answers],
    }
    table = [("device", device_in_words()), ("torch", torch.__version__)]
    for letter in arguments.parts:
        for part in parts[letter]:
            spent = (time.perf_counter() - started) / 60
            if spent > arguments.minutes:
                table.append((part.__name__, f"left out: {spent:.1f} minutes are over"))
                continue
            for row in guarded(part, scale):
                table.append(row)
                print("...", *row, flush=True)
    print(f"\n| what | {arguments.size} |\n| --- | --- |")
    for what, found in table:
        print(f"| {what} | {found} |")
    print(f"\n{(time.perf_counter() - started) / 60:.1f} minutes")


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", choices=SCALES, default="full" if CUDA else "tiny")
    parser.add_argument("--parts", default="abcd")
    parser.add_argument("--minutes", type=float, default=9.0)
    return parser.parse_args()


def guarded(part: Callable[[Scale, Path], Rows], scale: Scale) -> Rows:
    """Run a part in a folder of its own; what fails is a row."""
    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as scratch:
        os.environ["MERGEKIT_MAP_HOME"] = str(Path(scratch) / "home")
        try:
            yield from part(scale, Path(scratch))
        except Exception as error:  # noqa: BLE001 - the others go on
            text = (str(error) or type(error).__name__).splitlines()[0][:200]
            yield part.__name__, f"failed: {type(error).__name__}: {text}"
    forget()
    yield f"{part.__name__}, all of it", f"{time.perf_counter() - began:.0f} s"


def contract_1(scale: Scale, folder: Path) -> Rows:
    size = families.SIZES[scale.contract]
    families.build_family(folder, size, 3, n_words=80, device=DEVICE)
    for method in (*TASK_VECTOR_METHODS, *ALONE):
        try:
            yield f"same bytes as mergekit, {method}", compared(folder, method)
        except Exception as error:  # noqa: BLE001 - the others go on
            yield f"same bytes as mergekit, {method}", f"failed: {error!r:.200}"


def compared(folder: Path, method: str) -> str:
    """Hold a model in memory against the checkpoint of stock mergekit, all bytes."""
    space = space_of(folder, method, 3)
    coefficients = {n: 0.3 + 0.1 * i for i, n in enumerate(space.names)}
    stock = folder / f"stock-{method}"
    write_checkpoint(stock_config(space, coefficients), stock, OPTIONS)
    different = []
    with resident_merge(space, OPTIONS) as merge:
        merge.write(coefficients)
        ours = merge.model.state_dict()
        for file in stock.glob("*.safetensors"):
            with safe_open(file, "pt") as tensors:
                for name in tensors.keys():  # noqa: SIM118 - it is no mapping
                    theirs, own = tensors.get_tensor(name), ours[name].cpu()
                    if not torch.equal(own.view(torch.uint8), theirs.view(torch.uint8)):
                        different.append(name)
    return f"no: {len(different)}, {different[0]} first" if different else "yes"


def seconds_to_a_model(scale: Scale, _: Path) -> Rows:
    for name in scale.in_memory:
        for count in (2, 4):
            for method in ("task_arithmetic", "ties"):
                what = f"{name}, {count} fine-tunes, {method}"
                try:
                    yield what, to_a_model(families.SIZES[name], count, method, scale)
                except torch.OutOfMemoryError:
                    yield what, "does not fit"
                forget()


def to_a_model(size: families.Size, count: int, method: str, scale: Scale) -> str:
    """Time writing a merge that is held in memory, and a text measured on it."""
    merge = merge_in_memory(size, count, method)
    at = [{name: 0.1 + 0.01 * i for name in merge.coefficients} for i in range(9)]
    turns = iter(at)
    merge.write(next(turns))
    write = timed(lambda: merge.write(next(turns)))
    copy = timed(lambda: copies(merge, count))
    text = " ".join(f"w{3 + i % (size.vocabulary - 3)}" for i in range(scale.tokens))
    task = PerplexityText("text", (text,), scale.tokens, None, "")
    measure = prepare_perplexity(task, merge.model, families.tokenizer(size.vocabulary))
    forward = timed(measure)
    outside = 100 * write / (write + 2 * forward)
    memory = ""
    if CUDA:
        memory = f", peak {torch.cuda.max_memory_allocated() / 2**30:.0f} GiB"
        torch.cuda.reset_peak_memory_stats()
    return (
        f"{write:.3g} s, {write / copy:.2g} times copying it; "
        f"a text of {scale.tokens} tokens {forward:.3g} s, so that writing is "
        f"{outside:.1f} % of a merge and two texts{memory}"
    )


@torch.no_grad()
def merge_in_memory(size: families.Size, count: int, method: str) -> ResidentMerge:
    """Record a merge of tensors that never were on a disk."""
    model = families.random_model(size, torch.bfloat16, DEVICE)
    names = families.NAMES[:count]
    twin = merge_methods.get(recordable_method(method))
    common = {"normalize": False, "lambda": 1.0, "rescale": True, "int8_mask": False}
    each = {"weight": dict.fromkeys(names, 0.5), "density": dict.fromkeys(names, 0.5)}
    replays: dict[str, Replay] = {}
    with recording(replays.__setitem__):
        for name, base in model.state_dict().items():
            tuned = [base + torch.randn_like(base) * 1e-3 for _ in names]
            group = TensorGroup.from_tensors(
                [base, *tuned], ids=("base", *names), base_index=0, name=name
            )
            twin.merge_group(group, **common, **each)
    zero = {(tensor, name): 0.0 for tensor in replays for name in names}
    slopes = {name: {(tensor, name): 1.0 for tensor in replays} for name in names}
    table = WeightTable(zero, slopes)
    return ResidentMerge(model, None, replays, table, dict.fromkeys(names, 0.5))


@torch.no_grad()
def copies(merge: ResidentMerge, count: int) -> None:
    """Read and write as many bytes as a merge has to: base, task vectors, result."""
    for tensor in merge.model.state_dict().values():
        scratch = torch.empty_like(tensor)
        for _ in range((count + 2) // 2):  # each reads once and writes once
            scratch.copy_(tensor)


def share_of_a_search(scale: Scale, folder: Path) -> Rows:
    import overhead

    size = families.SIZES[scale.searched]
    families.build_family(folder, size, 2, n_words=scale.tokens + 8, device=DEVICE)
    forget()
    tasks = {
        name: {"perplexity": {"file": str(folder / f"{name}.txt")}}
        | {"max_tokens": scale.tokens}
        for name in families.NAMES[:2]
    }
    config = configure(folder, tasks, evaluations=8 if scale.tokens < 9999 else 30)
    books = overhead.Books(clock)
    for place, functions in overhead.PLACES.items():
        for function in functions:
            books.watch(place, function)
    books.begin()
    search_front(load_project(config, OPTIONS), folder / "run", overhead.Silent())
    books.close()
    total = sum(books.seconds.values()) - books.seconds[overhead.IMPORTS]
    outside = 100 * (1 - books.seconds[overhead.FORWARD] / total)
    yield (
        f"a search, {scale.searched}, two texts of {scale.tokens} tokens",
        f"{total:.0f} s, {outside:.1f} % of it outside forward passes",
    )
    for place, seconds in books.seconds.most_common(6):
        yield f"of it {place}", f"{seconds:.2f} s, {100 * seconds / total:.1f} %"


def likelihoods(scale: Scale, folder: Path) -> Rows:
    import lm_eval
    from lm_eval.models.huggingface import HFLM
    from lm_eval.tasks import TaskManager

    size = families.SIZES[scale.searched]
    families.build_family(folder, size, 2, n_words=2048, device=DEVICE)
    task = families.write_choices(folder, "one", scale.questions)
    config = configure(folder, {"one": {"lm_eval": str(task), "metric": "acc"}})
    tokens = scale.questions * 4 * (32 + 4)
    with open_merges(load_project(config, OPTIONS)) as merges:
        measure = merges.at({"one": 0.5, "two": 0.5})["one"]
        measure()
        ours = tokens / timed(measure)
        del measure, merges
    forget()
    yield f"likelihood, {scale.searched}, mergekit-map", f"{ours:.0f} tokens/s"
    model = transformers.AutoModelForCausalLM.from_pretrained(
        folder / "one", dtype=torch.bfloat16, device_map=DEVICE
    )
    manager = TaskManager(include_path=str(folder), include_defaults=False)
    stock = {}
    for batch in scale.batches:
        lm = HFLM(
            pretrained=model,
            tokenizer=families.tokenizer(size.vocabulary),
            batch_size=batch,
        )

        def evaluate(lm: Any = lm) -> Any:
            named = [task.stem]
            return lm_eval.simple_evaluate(
                model=lm, tasks=named, task_manager=manager, bootstrap_iters=0
            )

        evaluate()
        stock[batch] = tokens / timed(evaluate)
        yield (
            f"likelihood, stock lm-eval, batch {batch}",
            f"{stock[batch]:.0f} tokens/s",
        )
    yield "likelihood, times stock at its best", f"{ours / max(stock.values()):.2f}"


def in_place(scale: Scale, folder: Path) -> Rows:
    """Ask vLLM, by way of the program, whether merges may be written into it."""
    for kind in ("llama", "tied", "moe"):
        here = folder / kind
        size = families.SIZES["tiny"]
        families.build_family(here, size, 2, n_words=512, device=DEVICE, kind=kind)
        task = families.write_generations(here, "one", scale.answers, 4)
        said = Said()
        try:
            with ExitStack() as stack:
                stack.enter_context(said)
                opened(stack, here, task, "vllm")
            verdict = "; ".join(said.texts) or "yes"
        except Exception as error:  # noqa: BLE001 - the others go on
            verdict = f"not asked: {str(error).strip().splitlines()[-1][:200]}"
        yield f"vLLM written to in place, {kind}", verdict
        forget()


def answers(scale: Scale, folder: Path) -> Rows:
    size = families.SIZES[scale.searched]
    families.build_family(folder, size, 2, n_words=2048, device=DEVICE)
    task = families.write_generations(folder, "one", scale.answers, scale.answer_tokens)
    for engine in ("hf", "vllm"):
        what = f"{scale.answers} answers of {scale.answer_tokens} tokens, {engine}"
        try:
            with ExitStack() as stack:
                merges = opened(stack, folder, task, engine)
                at = iter([0.3, 0.4, 0.5, 0.6, 0.7])

                def measure(merges: Any = merges, at: Iterator[float] = at) -> None:
                    merges.at({"one": next(at), "two": 0.5})["one"]()

                measure()
                taken = timed(measure)
            rate = scale.answers * scale.answer_tokens / taken
            yield what, f"{taken:.2f} s with writing the merge, {rate:.0f} tokens/s"
        except Exception as error:  # noqa: BLE001 - the others go on
            yield what, f"left out: {str(error).strip().splitlines()[-1][:200]}"
        forget()


def opened(stack: ExitStack, folder: Path, task: Path, engine: str) -> Any:
    """Open the merges of a generating task with an engine, and make one."""
    tasks = {"one": {"lm_eval": str(task), "metric": "exact_match"}}
    config = configure(folder, tasks, {"engine": engine})
    merges = stack.enter_context(open_merges(load_project(config, OPTIONS)))
    merges.at({"one": 0.2, "two": 0.5})["one"]
    return merges


class Said(logging.Handler):
    """Hears what the program says of engines."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keep it."""
        self.texts.append(record.getMessage())

    def __enter__(self) -> Said:
        logging.getLogger("mergekit_map").addHandler(self)
        return self

    def __exit__(self, *_: object) -> None:
        logging.getLogger("mergekit_map").removeHandler(self)


def space_of(folder: Path, method: str, count: int) -> MergeSpace:
    alone = method in ALONE
    dense = {} if alone or method == "task_arithmetic" else {"density": 0.5}
    models = [
        {"model": str(folder / name), "parameters": dict(dense)}
        for name in families.NAMES[: 2 if method == "nuslerp" else count]
    ]
    merge = {"merge_method": method, "dtype": "bfloat16", "models": models}
    if not alone:
        merge["base_model"] = str(folder / "base")
    space, problems = build_space(merge, SearchSpec())
    assert space is not None, problems
    return space


def configure(
    folder: Path,
    tasks: Mapping[str, Any],
    more: Mapping[str, Any] | None = None,
    evaluations: int = 8,
) -> Path:
    content = {
        "merge_method": "task_arithmetic",
        "base_model": str(folder / "base"),
        "models": [{"model": str(folder / name)} for name in families.NAMES[:2]],
        "dtype": "bfloat16",
        "map": {"tasks": tasks, "search": {"evaluations": evaluations}, **(more or {})},
    }
    config = folder / "config.yml"
    config.write_text(yaml.safe_dump(content))
    return config


def timed(action: Callable[[], object]) -> float:
    taken = []
    for _ in range(N_TIMES):
        started = clock()
        action()
        taken.append(clock() - started)
    return statistics.median(taken)


def clock() -> float:
    """Say the time when the device is done."""
    if CUDA:
        torch.cuda.synchronize()
    return time.perf_counter()


def forget() -> None:
    gc.collect()
    if CUDA:
        torch.cuda.empty_cache()


def device_in_words() -> str:
    if not CUDA:
        return f"CPU, {torch.get_num_threads()} threads"
    memory = torch.cuda.get_device_properties(0).total_memory / 2**30
    return f"{torch.cuda.get_device_name()}, {memory:.0f} GiB"


if __name__ == "__main__":
    main()
