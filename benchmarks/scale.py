"""What a search takes against parameters, models and tasks: tables, a picture.

    OMP_NUM_THREADS=1 python benchmarks/scale.py [--sizes 10m,30m,100m]
        [--only parameters models tasks side] [--keep]

Models are random Llamas in bfloat16 and fine-tunes of them, texts of 2048 tokens; every
point is a search of 8 evaluations and 6 of its front in a process of its own, of one
thread. Prints Markdown; ``--keep`` writes it to ``results/scale.md``, from which
``tests/reference.py`` takes the tables of docs/scale.md, and docs/scale.png. About
15 minutes on two cores with the sizes by default. Seconds are those of the processor,
which other programs on the machine change little.
"""

from __future__ import annotations

import argparse
import functools
import importlib
import multiprocessing
import os
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import yaml
from records import machine, markdown

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
RESULT, PICTURE = HERE / "results" / "scale.md", ROOT / "docs" / "scale.png"
LEFT = "a checkpoint per candidate"
# As this program measures: in bfloat16 answers tie.
SOFTMAX = {"softmax_dtype": "float32"}

FORWARD, WRITING, OPENING = "forward passes", "writing merges", "opening"
PLANNING, IMPORTS = "planning", "imports"
# What is booked where: the innermost of these counts.
PLACES = {
    FORWARD: [
        "transformers:LlamaForCausalLM.forward",
        "transformers:LlamaModel.forward",
        "mergekit_map.tasks.loglikelihood:_predict",
    ],
    "loss of the logits": ["torch.nn.functional:cross_entropy"],
    WRITING: ["mergekit_map.merging.in_memory:ResidentMerge.write"],
    OPENING: [
        "mergekit_map.evaluation.evaluator:resident_merge",
        "mergekit_map.evaluation.evaluator:prepare_tasks",
    ],
    "measuring, the rest": ["mergekit_map.search.loop:measure"],
    PLANNING: ["mergekit_map.workflows.search:run_study"],
    IMPORTS: ["_frozen_importlib:_find_and_load"],
}
Found = Mapping[str, Any]  # what a search took
COLUMNS: dict[str, Callable[[Found], str]] = {
    "parameters": lambda f: f"{f['parameters'] / 1e6:.0f} M",
    "models": lambda f: str(f["models"]),
    "method": lambda f: f["method"],
    "tasks": lambda f: str(f["tasks"]),
    "a search s": lambda f: f"{f['seconds']:.1f}",
    "forward passes s": lambda f: f"{f['forward']:.1f}",
    "all else s": lambda f: f"{f['seconds'] - f['forward']:.1f}",
    "opening s": lambda f: f"{f['opening']:.1f}",
    "writing a merge s": lambda f: f"{f['writing'] / f['merges']:.3f}",
    "a text s": lambda f: f"{f['forward'] / f['merges'] / 2:.2f}",
    "planning s": lambda f: f"{f['planning'] / f['merges']:.2f}",
    "outside forward passes": lambda f: f"{100 * f['outside']:.1f} %",
    "peak copies": lambda f: f"{f['copies']:.1f}",
    "side by side": lambda f: f"{f['parameters'] / 1e6:.0f} M",
    "merges": lambda f: str(f["merges"]),
    "mergekit-map s": lambda f: f"{f['ours']:.0f}",
    "of it forward passes s": lambda f: f"{f['forward']:.0f}",
    f"{LEFT} s": lambda f: f"{f['seconds']:.0f}",
    "times": lambda f: f"{f['seconds'] / f['ours']:.1f}",
    "written to disk": lambda f: f"{f['written'] / 1e9:.1f} GB",
    "values differ by": lambda f: f"{f['far']:.2g}",
    "lm-eval's own, batches of 16 and 1": lambda f: f"{f['own']:.2g}",
}


@dataclass(frozen=True)
class Point:
    """A search."""

    size: str = "10m"
    models: int = 2
    tasks: int = 2
    tokens: int = 2048
    evaluations: int = 8
    method: str = "task_arithmetic"
    choices: int = 0  # questions of each lm-eval task, in the place of texts
    rival: bool = False  # the same merges, a checkpoint each


def main() -> None:
    parts = {
        "parameters": by_parameters,
        "models": by_models,
        "tasks": by_tasks,
        "side": side_by_side,
    }
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", default="10m,30m,100m")
    parser.add_argument("--only", nargs="+", choices=parts, default=[*parts])
    parser.add_argument("--keep", action="store_true")
    arguments = parser.parse_args()
    os.environ |= {"OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
    os.environ |= {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1"}
    tables = []
    for name in arguments.only:
        tables.append(parts[name](arguments))
        print(tables[-1], flush=True)
    if arguments.keep:
        command = f"`python benchmarks/scale.py --sizes {arguments.sizes}`"
        about = f"{command}: {machine()}; seconds of one thread of it."
        RESULT.write_text("\n\n".join(["# Scale", about, *tables]) + "\n")


def by_parameters(arguments: argparse.Namespace) -> str:
    found = [measured(Point(size=size)) for size in arguments.sizes.split(",")]
    if arguments.keep:
        draw(found)
    columns = ["parameters", "a search s", "opening s", "writing a merge s", "a text s"]
    columns += ["planning s", "outside forward passes", "peak copies"]
    return table(columns, found)


def by_models(_: argparse.Namespace) -> str:
    points = [
        Point(models=n, method=method, evaluations=2 * n + 2, tokens=512)
        for method in ("task_arithmetic", "ties")
        for n in (2, 4, 8)
    ]
    columns = ["models", "method", "opening s", "writing a merge s", "planning s"]
    return table([*columns, "peak copies"], map(measured, points))


def by_tasks(_: argparse.Namespace) -> str:
    columns = ["tasks", "a search s", "forward passes s", "all else s"]
    return table(columns, (measured(Point(tasks=count)) for count in (1, 2, 4)))


def side_by_side(_: argparse.Namespace) -> str:
    found = []
    for size in ("10m", "100m"):
        ours = measured(point := Point(size=size, evaluations=30, choices=24))
        theirs = measured(replace(point, rival=True))
        assert ours["merges"] == theirs["merges"], (ours, theirs)
        found.append(theirs | {"ours": ours["seconds"], "forward": ours["forward"]})
    columns = [*COLUMNS]
    return table(columns[columns.index("side by side") :], found)


def table(columns: Sequence[str], found: Iterable[Found]) -> str:
    rows = [[COLUMNS[name](one) for name in columns] for one in found]
    return "\n".join(markdown(columns, rows))


def measured(point: Point) -> dict[str, Any]:
    """Measure in a process of one thread, whose memory is its own."""
    print(f"... {point}", file=sys.stderr, flush=True)
    alone = ProcessPoolExecutor(1, multiprocessing.get_context("spawn"))
    with tempfile.TemporaryDirectory() as scratch, alone:
        prepare(Path(scratch), point)
        return alone.submit(measure, Path(scratch), point).result()


def prepare(folder: Path, point: Point) -> Path:
    """Build the family, and write the configuration."""
    import random_family as families

    shape = families.SIZES[point.size]
    count = max(point.models, 1 if point.choices else point.tasks)
    n_words = point.tokens + 8
    families.build_family(folder, shape, count, n_words)
    tasks: dict[str, Any] = {}
    for name in families.NAMES[: point.tasks]:
        text = {"perplexity": {"file": str(folder / f"{name}.txt")}}
        tasks[name] = {**text, "max_tokens": point.tokens}
        if point.choices:
            task = families.write_choices(folder, name, point.choices)
            tasks[name] = {"lm_eval": str(task), "metric": "acc"}
    parameters = {"density": 0.5} if point.method == "ties" else {}
    models = [
        {"model": str(folder / name), "parameters": parameters}
        for name in families.NAMES[: point.models]
    ]
    content = {
        "merge_method": point.method,
        "base_model": str(folder / "base"),
        "models": models,
        "dtype": "bfloat16",
        "map": {"tasks": tasks, "search": {"evaluations": point.evaluations}},
    }
    config = folder / "config.yml"
    config.write_text(yaml.safe_dump(content))
    return config


def measure(folder: Path, point: Point) -> dict[str, Any]:
    """Search, or make the rival's way; in this process."""
    import transformers

    from mergekit_map import load_project, search_front
    from mergekit_map.results.log import read_log

    transformers.utils.logging.disable_progress_bar()
    transformers.utils.logging.set_verbosity_error()
    os.environ["MERGEKIT_MAP_HOME"] = str(folder / "home")
    config, run = folder / "config.yml", folder / "run"
    books, memory = Books(PLACES), Memory()
    search_front(load_project(config), run)
    of, peak = books.close(), memory.stop()
    size = (folder / "base" / "model.safetensors").stat().st_size
    log = list(read_log(run / "evaluations.jsonl"))
    merges = {e.key[0]: e.coefficients for e in log}
    common = {**asdict(point), "parameters": size / 2, "merges": len(merges)}
    if point.rival:
        values = {(e.key[0], e.task): e.value for e in log}
        return {**common, **rival(config, merges, values)}
    seconds = sum(of.values()) - of[IMPORTS]
    return {
        **common,
        "seconds": seconds,
        "forward": of[FORWARD],
        "outside": 1 - of[FORWARD] / seconds,
        "writing": of[WRITING],
        "opening": of[OPENING],
        "planning": of[PLANNING],
        "copies": peak / size,
    }


def rival(
    config: Path, merges: Mapping[Any, Mapping[str, float]], values: Mapping[Any, float]
) -> dict[str, Any]:
    """Write each merge with stock mergekit, and have stock lm-eval load and measure it.

    Everything was imported before, and no standard errors are drawn. How far lm-eval's
    own values move with the size of its batches is measured beside, in no time.
    """
    import lm_eval
    from lm_eval.tasks import TaskManager

    from mergekit_map import load_project
    from mergekit_map.merging.checkpoint import write_checkpoint

    project = load_project(config)
    names = [f"{task}_choice" for task in project.tasks]
    far, own, written, beside = 0.0, 0.0, 0, 0.0
    started = time.process_time()
    manager = TaskManager(include_path=str(config.parent), include_defaults=False)
    for key, merge in merges.items():
        with tempfile.TemporaryDirectory() as place:
            out = Path(place) / "merge"
            write_checkpoint(project.space.config(merge), out, project.options)
            written += sum(f.stat().st_size for f in out.iterdir())
            in_batches = partial(
                lm_eval.simple_evaluate,
                model="hf",
                model_args={"pretrained": str(out), "dtype": "bfloat16"} | SOFTMAX,
                tasks=names,
                task_manager=manager,
                device="cpu",
                bootstrap_iters=0,
            )
            found = in_batches(batch_size=16)["results"]
            paused = time.process_time()
            alone = in_batches(batch_size=1)["results"]
            beside += time.process_time() - paused
        for task, name in zip(project.tasks, names, strict=True):
            value = found[name]["acc,none"]
            far = max(far, abs(value - values[key, task]))
            own = max(own, abs(value - alone[name]["acc,none"]))
    seconds = time.process_time() - started - beside
    return {"seconds": seconds, "written": written, "far": far, "own": own}


class Books:
    """Books processor time to the innermost of named functions."""

    def __init__(self, places: Mapping[str, Iterable[str]]) -> None:
        self._seconds: Counter[str] = Counter()
        self._open, self._since = ["the rest"], time.process_time()
        for place, functions in places.items():
            for function in functions:
                module, _, path = function.partition(":")
                *parents, name = path.split(".")
                owner: Any = importlib.import_module(module)
                for parent in parents:
                    owner = getattr(owner, parent)
                setattr(owner, name, self._booked(place, getattr(owner, name)))
        self._seconds.clear()
        self._since = time.process_time()

    def _booked(self, place: str, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def booked(*arguments: object, **more: object) -> Any:
            with self._at(place):
                found = original(*arguments, **more)
            # What a context does when it is entered counts, too.
            return self._entered(place, found) if hasattr(found, "gen") else found

        return booked

    @contextmanager
    def _entered(self, place: str, context: Any) -> Iterator[Any]:
        with ExitStack() as stack:
            with self._at(place):
                value = stack.enter_context(context)
            yield value

    @contextmanager
    def _at(self, place: str) -> Iterator[None]:
        self._turn()
        self._open.append(place)
        try:
            yield
        finally:
            self._turn()
            self._open.pop()

    def _turn(self) -> None:
        now = time.process_time()
        self._seconds[self._open[-1]] += now - self._since
        self._since = now

    def close(self) -> Mapping[str, float]:
        """Return the seconds of each place."""
        self._turn()
        return self._seconds


class Memory(threading.Thread):
    """Watches how much anonymous memory this process has, beyond what it has now."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self._before = self._peak = self._now()
        self._over = threading.Event()
        self.start()

    @staticmethod
    def _now() -> int:
        lines = Path("/proc/self/status").read_text().splitlines()
        (line,) = [line for line in lines if line.startswith("RssAnon")]
        return int(line.split()[1]) * 1024

    def run(self) -> None:
        """Look often."""
        while not self._over.wait(0.02):
            self._peak = max(self._peak, self._now())

    def stop(self) -> int:
        """Give the largest number of bytes seen."""
        self._over.set()
        self.join()
        return self._peak - self._before


def draw(found: Sequence[Found]) -> None:
    """Draw what one merge takes, part by part, against the number of parameters."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.4, 3.6), dpi=150, layout="constrained")
    axes = figure.add_subplot()
    size = [one["parameters"] / 1e6 for one in found]
    for label, key, mark in (
        ("forward passes, two texts of 2048 tokens", "forward", "o"),
        ("writing a merge", "writing", "s"),
        ("planning", "planning", "^"),
    ):
        axes.plot(size, [o[key] / o["merges"] for o in found], marker=mark, label=label)
    axes.set(xscale="log", yscale="log", xlabel="parameters, millions")
    axes.set_ylabel("seconds of one core, a merge")
    axes.set_xticks(size, [f"{one:.0f}" for one in size])
    axes.set_xticks([], minor=True)
    axes.legend(frameon=False)
    figure.savefig(PICTURE)


if __name__ == "__main__":
    main()
