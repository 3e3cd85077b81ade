"""Where the processor time of a search with perplexity tasks goes.

    python benchmarks/overhead.py [--family FOLDER | --size 100m]
        [--evaluations 30] [--tokens 2048] [--profile FILE]

Searches in this process over two texts, and books every moment to the innermost of what
is listed: forward passes, writing merges, planning, records, pictures. FAMILY is the
demo's folder of models; else two fine-tunes of a random Llama are made, each a few
steps down the loss of a text. What is imported while it runs is booked apart. Times
are those of the processor, which other programs do not change: run it with
OMP_NUM_THREADS=1.
"""

from __future__ import annotations

import argparse
import cProfile
import functools
import importlib
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import random_family
import torch
import transformers
import yaml

from mergekit_map import search_front
from mergekit_map.evaluation import project as projects

# What is booked where: the innermost of these counts.
PLACES = {
    "forward passes": [
        "transformers:LlamaForCausalLM.forward",
        "transformers:LlamaModel.forward",
        "mergekit_map.tasks.loglikelihood:_predict",
    ],
    "loss of the logits": ["torch.nn.functional:cross_entropy"],
    "writing merges": ["mergekit_map.merging.in_memory:ResidentMerge.write"],
    "recording, loading": ["mergekit_map.evaluation.evaluator:resident_merge"],
    "preparing tasks": ["mergekit_map.evaluation.evaluator:prepare_tasks"],
    "measuring, the rest": ["mergekit_map.search.loop:measure"],
    "log and records": [
        "mergekit_map.results.log:EvaluationLog.append",
        "mergekit_map.results.samples:AnswerStore.write",
    ],
    "planning: fits": [
        "mergekit_map.search.loop:_fitted",
        "mergekit_map.search.finish:fit_surrogates",
        "mergekit_map.search.planning:fit_surrogates",
    ],
    "planning: next merge": ["mergekit_map.search.loop:next_round"],
    "planning: NSGA": ["mergekit_map.search.finish:predicted_front"],
    "planning: the end": ["mergekit_map.search.loop:end_search"],
    "planning, the rest": ["mergekit_map.workflows.search_loop:run_study"],
    "front and verdicts": ["mergekit_map.workflows.search:found_front"],
    "differences": ["mergekit_map.workflows.search:with_differences"],
    "recipes": ["mergekit_map.workflows.search:write_recipes"],
    "front.json, pictures": ["mergekit_map.workflows.search:save_front"],
    "reading the project": ["mergekit_map.evaluation.project:load_project"],
    "imports": ["_frozen_importlib:_find_and_load"],
}
FORWARD, IMPORTS = "forward passes", "imports"


class Books:
    """Books processor time to the innermost of named functions."""

    def __init__(self, clock: Callable[[], float] = time.process_time) -> None:
        self._clock = clock
        self.seconds: Counter[str] = Counter()
        self.calls: Counter[str] = Counter()
        self._open = ["the rest"]
        self._since = self._clock()

    def watch(self, place: str, function: str) -> None:
        """Book what a function or method takes from now on."""
        module, _, path = function.partition(":")
        owner: object = importlib.import_module(module)
        *parents, name = path.split(".")
        for parent in parents:
            owner = getattr(owner, parent)
        if not hasattr(owner, name):
            print(f"{function} is no more: its time is elsewhere", file=sys.stderr)
            return
        setattr(owner, name, self._booking(place, getattr(owner, name)))

    def _booking(self, place: str, original: Callable[..., object]) -> object:
        @functools.wraps(original)
        def booked(*arguments: object, **more: object) -> object:
            self.calls[place] += place != self._open[-1]
            self._turn()
            self._open.append(place)
            try:
                found = original(*arguments, **more)
            finally:
                self._turn()
                self._open.pop()
            # What a context does when it is entered counts, too.
            return self._entered(place, found) if hasattr(found, "gen") else found

        return booked

    def _entered(self, place: str, context: object) -> object:
        enter = type(context).__enter__

        class Entered:
            def __enter__(inner) -> object:
                return self._booking(place, lambda: enter(context))()

            def __exit__(inner, *error: object) -> object:
                return context.__exit__(*error)

        return Entered()

    def _turn(self) -> None:
        now = self._clock()
        self.seconds[self._open[-1]] += now - self._since
        self._since = now

    def begin(self) -> None:
        """Forget what was booked before."""
        self._since = self._clock()
        self.seconds.clear()
        self.calls.clear()

    def close(self) -> None:
        """Book the last moments."""
        self._turn()


class Silent:
    """Hears of a search, and says what it has to say."""

    def progress(self, progress: object) -> None:
        """Say nothing."""

    def notice(self, text: str) -> None:
        """Print it."""
        print(text)


def main() -> None:
    arguments = parse_arguments()
    transformers.utils.logging.disable_progress_bar()
    transformers.utils.logging.set_verbosity_error()
    with tempfile.TemporaryDirectory() as scratch:
        folder = arguments.family or Path(scratch) / "family"
        if arguments.family is None:
            size, n = random_family.SIZES[arguments.size], arguments.tokens + 8
            dtype = getattr(torch, arguments.dtype)
            random_family.build_family(folder, size, n_words=n, dtype=dtype, steps=3)
        config = Path(scratch) / "config.yml"
        config.write_text(yaml.safe_dump(configuration(folder, arguments)))
        books = Books()
        for place, functions in PLACES.items():
            for function in functions:
                books.watch(place, function)
        profile, started = cProfile.Profile(), time.perf_counter()
        books.begin()
        if arguments.profile:
            profile.enable()
        run = search_front(
            projects.load_project(config), Path(scratch) / "run", Silent()
        )
        profile.disable()
        books.close()
        wall = time.perf_counter() - started
        if arguments.profile:
            profile.dump_stats(arguments.profile)
        show(books, wall, run.front.ending)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--family", type=Path)
    parser.add_argument("--size", choices=random_family.SIZES, default="100m")
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32")
    parser.add_argument("--tokens", type=int, default=2048, help="of each text")
    parser.add_argument("--evaluations", type=int, default=30)
    parser.add_argument("--profile", type=Path, help="where cProfile's numbers go")
    return parser.parse_args()


def configuration(folder: Path, arguments: argparse.Namespace) -> dict[str, object]:
    demo = arguments.family is not None
    names = ("code", "math") if demo else random_family.NAMES[:2]

    def text(name: str) -> dict[str, object]:
        source = {"file": str(folder / f"{name}.{'jsonl' if demo else 'txt'}")}
        return {"perplexity": source, "max_tokens": arguments.tokens}

    return {
        "merge_method": "task_arithmetic",
        "base_model": str(folder / "base"),
        "models": [{"model": str(folder / name)} for name in names],
        "dtype": arguments.dtype,
        "map": {
            "tasks": {name: text(name) for name in names},
            "search": {"evaluations": arguments.evaluations},
        },
    }


def show(books: Books, wall: float, ending: object) -> None:
    total = sum(books.seconds.values()) - books.seconds[IMPORTS]
    print(f"{'':22} {'seconds':>8} {'share':>6} {'calls':>6}")
    for place, seconds in books.seconds.most_common():
        share = f"{100 * seconds / total:5.1f}%" if place != IMPORTS else ""
        print(f"{place:22} {seconds:8.2f} {share:>6} {books.calls[place]:6}")
    outside = 100 * (1 - books.seconds[FORWARD] / total)
    print(
        f"{total:.1f} s of processor time without imports, {wall:.1f} s by the clock; "
        f"{outside:.1f} % of it outside the forward passes"
    )
    print(ending)


if __name__ == "__main__":
    main()
