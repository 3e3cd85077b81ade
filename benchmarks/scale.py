"""What a search takes against parameters, models, tasks and workers: tables, a picture.

    OMP_NUM_THREADS=1 python benchmarks/scale.py [--sizes 10m,30m,100m]
        [--only parameters,models,tasks,workers,side] [--keep]

Models are random Llamas in bfloat16 and fine-tunes of them, texts of 2048 tokens; every
point is a search of 8 evaluations and 6 of its front in a process of its own, of one
thread. Prints Markdown; ``--keep`` writes it to ``results/scale.md``, from which
``tests/docs/reference.py`` takes the tables of docs/scale.md, and docs/scale.png. About
15 minutes on two cores with the sizes by default. Seconds are those of the processor,
which other programs on the machine change little, but for workers, where they are those
of the clock and the best of three.
"""

from __future__ import annotations

import argparse
import functools
import importlib
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import yaml

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
RESULT, PICTURE = HERE / "results" / "scale.md", ROOT / "docs" / "scale.png"
LEFT = "a checkpoint per candidate"
# As this program measures: in bfloat16 answers tie.
SOFTMAX = {"softmax_dtype": "float32"}


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
    arguments = parse_arguments()
    if arguments.prepare:
        prepare(arguments.prepare, Point(**json.loads(arguments.point)))
        return
    if arguments.point:
        print(json.dumps(measure(Point(**json.loads(arguments.point)))))
        return
    parts: dict[str, Callable[[argparse.Namespace], str]] = {
        "parameters": by_parameters,
        "models": by_models,
        "tasks": by_tasks,
        "workers": by_workers,
        "side": side_by_side,
    }
    tables = []
    for name in arguments.only.split(","):
        tables.append(parts[name](arguments))
        print(tables[-1], flush=True)
    if arguments.keep:
        command = f"`python benchmarks/scale.py --sizes {arguments.sizes}`"
        machine = f"{processor()}; seconds of one thread of it."
        parts = ["# Scale", f"{command}: {machine}", *tables]
        RESULT.write_text("\n\n".join(parts) + "\n")
        draw(arguments.found)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", default="10m,30m,100m")
    parser.add_argument("--only", default="parameters,models,tasks,workers,side")
    parser.add_argument("--keep", action="store_true")
    parser.add_argument("--point", help="a search to measure in this process, as JSON")
    parser.add_argument("--prepare", type=Path, help="only build its models here")
    parser.set_defaults(found=[])
    return parser.parse_args()


def by_parameters(arguments: argparse.Namespace) -> str:
    rows = []
    for size in arguments.sizes.split(","):
        found = in_new_process(Point(size=size))
        arguments.found.append(found)
        merges = found["merges"]
        outside = 100 * (1 - found["forward"] / found["seconds"])
        rows.append(
            [
                f"{found['parameters'] / 1e6:.0f} M",
                f"{found['seconds']:.1f}",
                f"{found['opening']:.1f}",
                f"{found['writing'] / merges:.3f}",
                f"{found['forward'] / merges / 2:.2f}",
                f"{found['planning'] / merges:.2f}",
                f"{outside:.1f} %",
                f"{found['copies']:.1f}",
            ]
        )
    head = [
        *("parameters", "a search s", "opening s", "writing a merge s"),
        *("a text s", "planning s", "outside forward passes", "peak copies"),
    ]
    return table(head, rows)


def by_models(_: argparse.Namespace) -> str:
    rows = []
    for method in ("task_arithmetic", "ties"):
        for count in (2, 4, 8):
            point = Point(models=count, method=method, evaluations=2 * count + 2)
            found = in_new_process(replace(point, tokens=512))
            rows.append(
                [
                    str(count),
                    method,
                    f"{found['opening']:.1f}",
                    f"{found['writing'] / found['merges']:.3f}",
                    f"{found['planning'] / found['merges']:.2f}",
                    f"{found['copies']:.1f}",
                ]
            )
    head = ["models", "method", "opening s", "writing a merge s", "planning s"]
    return table([*head, "peak copies"], rows)


def by_tasks(_: argparse.Namespace) -> str:
    rows = []
    for count in (1, 2, 4):
        found = in_new_process(Point(tasks=count))
        others = found["seconds"] - found["forward"]
        rows.append(
            [
                str(count),
                f"{found['seconds']:.1f}",
                f"{found['forward']:.1f}",
                f"{others:.1f}",
            ]
        )
    return table(["tasks", "a search s", "forward passes s", "all else s"], rows)


def by_workers(_: argparse.Namespace) -> str:
    if "--workers" not in cli("search", "--help").stdout:
        return "The `search` of this version has no `--workers`."
    rows, alone = [], 0.0
    with tempfile.TemporaryDirectory() as scratch:
        config = prepare(Path(scratch), Point(size="30m", evaluations=16))
        for count in (1, 2):
            taken = []
            for again in range(3):
                run = Path(scratch) / f"run-{count}-{again}"
                started = time.perf_counter()
                more = ["--workers", count] if count > 1 else []
                done = cli("search", config, run, *more)
                taken.append(time.perf_counter() - started)
                assert done.returncode == 0, done.stderr[-2000:]
            alone = alone or min(taken)
            same = Path(scratch) / "run-1-0" / "front.json"
            equal = same.read_bytes() == (run / "front.json").read_bytes()
            share = f"{min(taken) / alone:.2f}"
            rows.append([str(count), f"{min(taken):.0f}", share, str(equal).lower()])
    return table(["workers", "by the clock s", "of one worker", "same front"], rows)


def side_by_side(_: argparse.Namespace) -> str:
    rows = []
    for size in ("10m", "100m"):
        point = Point(size=size, evaluations=30, choices=24)
        ours = in_new_process(point)
        theirs = in_new_process(replace(point, rival=True))
        assert ours["merges"] == theirs["merges"], (ours, theirs)
        rows.append(
            [
                f"{ours['parameters'] / 1e6:.0f} M",
                str(ours["merges"]),
                f"{ours['seconds']:.0f}",
                f"{ours['forward']:.0f}",
                f"{theirs['seconds']:.0f}",
                f"{theirs['seconds'] / ours['seconds']:.1f}",
                f"{theirs['written'] / 1e9:.1f} GB",
                f"{theirs['far']:.2g}",
                f"{theirs['own']:.2g}",
            ]
        )
    head = [
        *("side by side", "merges", "mergekit-map s", "of it forward passes s"),
        *(f"{LEFT} s", "times"),
        *("written to disk", "values differ by", "lm-eval's own, batches of 16 and 1"),
    ]
    return table(head, rows)


def table(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---", *["---:"] * (len(head) - 1)], *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def in_new_process(point: Point) -> dict[str, Any]:
    """Measure in a process of one thread, whose memory is its own."""
    command = [sys.executable, str(Path(__file__)), "--point", json.dumps(vars(point))]
    print(f"... {point}", file=sys.stderr, flush=True)
    done = subprocess.run(command, capture_output=True, text=True, env=environment())
    if done.returncode:
        raise SystemExit(done.stderr[-3000:])
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def cli(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "mergekit_map", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, env=environment())


def environment() -> dict[str, str]:
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    offline = {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1"}
    one = {"OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
    return {**os.environ, **one, **offline, "PYTHONPATH": path}


def processor() -> str:
    names = [
        line.partition(":")[2].strip()
        for line in Path("/proc/cpuinfo").read_text().splitlines()
        if line.startswith("model name")
    ]
    return f"{len(names)} cores of {names[0]}" if names else "a processor"


def prepare(folder: Path, point: Point) -> Path:
    """Build the family, and write the configuration."""
    import random_family as families

    shape = families.SIZES[point.size]
    count = max(point.models, 1 if point.choices else point.tasks)
    n_words = point.tokens + 8
    families.build_family(folder, shape, count, n_words=n_words)
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


def measure(point: Point) -> dict[str, Any]:
    """Search, or make the rival's way; in this process."""
    import transformers

    from mergekit_map import load_project, search_front
    from mergekit_map.results.log import read_log

    transformers.utils.logging.disable_progress_bar()
    transformers.utils.logging.set_verbosity_error()
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        os.environ["MERGEKIT_MAP_HOME"] = str(folder / "home")
        # In another process, whose memory is not this one's to use again.
        alone = [sys.executable, __file__, "--prepare", str(folder)]
        wanted = ["--point", json.dumps(vars(point))]
        subprocess.run([*alone, *wanted], check=True, env=environment())
        config = folder / "config.yml"
        run, books = folder / "run", Books()
        for place, functions in PLACES.items():
            for function in functions:
                books.watch(place, function)
        books.begin()
        memory = Memory()
        search_front(load_project(config), run, Silent())
        books.close()
        peak = memory.stop()
        size = (folder / "base" / "model.safetensors").stat().st_size
        log = list(read_log(run / "evaluations.jsonl"))
        merges = {e.key[0]: e.coefficients for e in log}
        common = {"parameters": size / 2, "merges": len(merges)}
        if point.rival:
            measured = {(e.key[0], e.task): e.value for e in log}
            return {**common, **rival(folder, config, merges, measured)}
        of = books.seconds
        planning = sum(s for place, s in of.items() if place.startswith("planning"))
        seconds = sum(of.values()) - of[IMPORTS]
        return {
            **common,
            "seconds": seconds,
            "forward": of[FORWARD],
            "writing": of["writing merges"],
            "opening": of["recording, loading"] + of["preparing tasks"],
            "planning": planning,
            "copies": peak / size,
        }


def rival(
    folder: Path,
    config: Path,
    merges: Mapping[Any, Mapping[str, float]],
    measured: Mapping[Any, float],
) -> dict[str, Any]:
    """Write each merge with stock mergekit, and have stock lm-eval load and measure it.

    Everything was imported before, and no standard errors are drawn. How far lm-eval's
    own values move with the size of its batches is measured beside, in no time.
    """
    import lm_eval
    from lm_eval.tasks import TaskManager

    from mergekit_map import load_project
    from mergekit_map.merging.checkpoint import write_checkpoint
    from mergekit_map.merging.recipe import stock_config

    project = load_project(config)
    names = [f"{task}_choice" for task in project.tasks]
    far, own, written, beside = 0.0, 0.0, 0, 0.0
    started = time.process_time()
    manager = TaskManager(include_path=str(folder), include_defaults=False)
    for key, merge in merges.items():
        with tempfile.TemporaryDirectory() as place:
            out = Path(place) / "merge"
            write_checkpoint(stock_config(project.space, merge), out, project.options)
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
            far = max(far, abs(value - measured[key, task]))
            own = max(own, abs(value - alone[name]["acc,none"]))
    seconds = time.process_time() - started - beside
    return {"seconds": seconds, "written": written, "far": far, "own": own}


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


def draw(found: list[dict[str, Any]]) -> None:
    """Draw what one merge takes, part by part, against the number of parameters."""
    from matplotlib.figure import Figure

    if not found:
        return
    figure = Figure(figsize=(6.4, 3.6), dpi=150, layout="constrained")
    axes = figure.add_subplot()
    size = [one["parameters"] / 1e6 for one in found]
    parts = {
        "forward passes, two texts of 2048 tokens": "forward",
        "writing a merge": "writing",
        "planning": "planning",
    }
    for (label, key), mark in zip(parts.items(), "os^", strict=True):
        axes.plot(size, [o[key] / o["merges"] for o in found], marker=mark, label=label)
    axes.set(xscale="log", yscale="log", xlabel="parameters, millions")
    axes.set(ylabel="seconds of one core, a merge")
    axes.set_xticks(size, [f"{one:.0f}" for one in size])
    axes.set_xticks([], minor=True)
    axes.legend(frameon=False)
    figure.savefig(PICTURE)


if __name__ == "__main__":
    main()
