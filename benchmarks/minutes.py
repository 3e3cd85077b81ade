"""Searches of a real merge in equal time: this program beside what people do.

    python benchmarks/minutes.py run RESULTS.jsonl --base BASE --model MODEL \
        --model MODEL --text TEXT --text TEXT
    python benchmarks/minutes.py table RESULTS.jsonl

Everybody searches the weights of task arithmetic from 0 to 1, and measures the same
documents by the same tasks of lm-eval (``bits_per_byte``). This program searches with
nothing set. The others write every merge by mergekit, and load and measure it by
lm-eval: Optuna's TPE and NSGA-II (a population of 8, as its 50 would not fit), CMA-ES
on the sum of the losses, which is mergekit-evolve's, and the merges that people try by
hand. TEXT has a document per line, under ``text``.

Speeds of machines change, so processor seconds are compared in turns: after each merge
of this program TPE has one, in the same process. All others have as many merges as TPE
makes in the seconds that this program took; by hand, people try all of theirs.

The table has gains: 0 is the base, and 1 the best model of the family on the task. The
models are known to everybody, and cost nothing. *Hypervolume* reaches from the base.
*Worst task* is the largest gain that some merge has on every task. Both are medians,
with the worst in brackets. *Share of time*: after this share of the method's time this
program had its hypervolume.
"""

from __future__ import annotations

import argparse
import itertools
import math
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import cma
import lm_eval
import numpy as np
import optuna
import torch
import yaml
from lm_eval.tasks import TaskManager
from mergekit.config import MergeConfiguration
from mergekit.merge import MergeOptions, run_merge
from records import append, machine, markdown, read

import mergekit_map
from mergekit_map.optimize.front_filling import hypervolume
from mergekit_map.results.log import Evaluation, MergeKey
from mergekit_map.surrogates.arrays import FloatArray

OURS, TPE, BY_HAND, MODELS = "this program", "TPE", "by hand", "models"
Line: TypeAlias = tuple[float, list[float]]  # seconds so far, and losses of a merge
COLUMNS = ("method", "runs", "merges", "hypervolume", "worst task", "share of time")
_METRIC = "bits_per_byte"
_DTYPE = "float32"  # in bfloat16, lm-eval rounds log-likelihoods to three digits
_ROWS = 8  # in a batch


class Bench:
    """Merges by mergekit and measures by lm-eval."""

    def __init__(self, given: argparse.Namespace, folder: Path) -> None:
        self.folder, self.models = folder, given.model
        self.base = given.base
        self.tasks = write_tasks(given.text, folder)
        self.lines: list[Line] = []
        self.seconds = 0.0  # of all its merges

    def measure(self, weights: Sequence[float], **method: Any) -> list[float]:
        """Return the losses of a merge."""
        start = time.process_time()
        models = [
            {"model": self._on_base(model), "parameters": {"weight": float(weight)}}
            for model, weight in zip(self.models, weights, strict=True)
        ]
        config = {"merge_method": "task_arithmetic", "dtype": _DTYPE, **method}
        config |= {"base_model": self.base, "models": models}
        out = self.folder / "merge"
        cache = str(self.folder / "adapters")
        options = MergeOptions(lora_merge_cache=cache, quiet=True, copy_tokenizer=True)
        run_merge(MergeConfiguration.model_validate(config), str(out), options)
        losses = self.loss_of(str(out))
        self.seconds += time.process_time() - start
        self.lines.append((self.seconds, losses))
        return losses

    def _on_base(self, model: str) -> str:
        """Name a model as mergekit does."""
        return f"{self.base}+{model}" if is_adapter(model) else model

    def loss_of(self, pretrained: str, peft: str | None = None) -> list[float]:
        """Measure a model on disk by lm-eval, or an adapter of it."""
        how = {"pretrained": pretrained, "dtype": _DTYPE}
        if peft is not None:
            how["peft"] = peft
        found = lm_eval.simple_evaluate(
            "hf",
            how,
            [path.stem for path in self.tasks],
            batch_size=_ROWS,
            device="cpu",
            log_samples=False,
            bootstrap_iters=0,
            task_manager=TaskManager(
                include_path=str(self.folder), include_defaults=False
            ),
        )
        assert found is not None
        return [found["results"][p.stem][f"{_METRIC},none"] for p in self.tasks]


def is_adapter(model: str) -> bool:
    return (Path(model) / "adapter_config.json").exists()


def write_tasks(texts: Sequence[str], folder: Path) -> list[Path]:
    """Write a task of lm-eval for the loss on each text."""
    metric = {"metric": _METRIC, "aggregation": _METRIC, "higher_is_better": False}
    paths = []
    for text in texts:
        task = {
            "task": Path(text).stem,
            "dataset_path": "json",
            "dataset_kwargs": {"data_files": {"test": str(Path(text).resolve())}},
            "test_split": "test",
            "output_type": "loglikelihood_rolling",
            "doc_to_text": "",
            "doc_to_target": "{{text}}",
            "metric_list": [metric],
        }
        paths.append(folder / f"{task['task']}.yaml")
        paths[-1].write_text(yaml.safe_dump(task), encoding="utf-8")
    return paths


class Clock(mergekit_map.Callback):
    """Notes when a merge was measured on every task, and lets another search go on."""

    def __init__(self, tasks: Sequence[str], other: Iterator[None]) -> None:
        self.lines: list[Line] = []
        self._tasks, self._start, self._other = tasks, time.process_time(), other
        self._seen: dict[MergeKey, dict[str, float]] = {}

    def on_measured(self, evaluation: Evaluation) -> None:
        found = self._seen.setdefault(evaluation.key[0], {})
        found[evaluation.task] = evaluation.value
        if len(found) == len(self._tasks):
            spent = time.process_time() - self._start
            self.lines.append((spent, [found[task] for task in self._tasks]))
            start = time.process_time()
            next(self._other)
            self._start += time.process_time() - start


def ours(
    given: argparse.Namespace, folder: Path, seed: int, other: Iterator[None]
) -> list[Line]:
    """Search with this program, with nothing set but the seed."""
    tasks = write_tasks(given.text, folder)
    config = {
        "merge_method": "task_arithmetic",
        "dtype": _DTYPE,
        "base_model": given.base,
        "models": [{"model": model} for model in given.model],
        "map": {
            "tasks": {
                path.stem: {"lm_eval": str(path), "metric": _METRIC} for path in tasks
            },
            "search": {"seed": seed},
        },
    }
    path = folder / "map.yml"
    path.write_text(yaml.safe_dump(config), encoding="utf-8")
    clock = Clock([path.stem for path in tasks], other)
    mergekit_map.search_front(path, folder / "run", callbacks=[clock])
    return clock.lines


def by_optuna(bench: Bench, sampler: optuna.samplers.BaseSampler) -> Iterator[None]:
    """Search with Optuna, all losses at once; a step for each merge."""
    directions = ["minimize"] * len(bench.tasks)
    study = optuna.create_study(sampler=sampler, directions=directions)
    names = [f"weight_{index}" for index in range(len(bench.models))]
    while True:
        trial = study.ask()
        weights = [trial.suggest_float(name, 0.0, 1.0) for name in names]
        study.tell(trial, bench.measure(weights))
        yield


def by_nsga2(bench: Bench, seed: int) -> Iterator[None]:
    return by_optuna(bench, optuna.samplers.NSGAIISampler(population_size=8, seed=seed))


def by_cma_es(bench: Bench, seed: int) -> Iterator[None]:
    """Search for the best sum of losses, as mergekit-evolve: it starts at 1 / N."""
    d = len(bench.models)
    options = {"bounds": [0, 1], "seed": seed + 1, "verbose": -9}
    strategy = cma.CMAEvolutionStrategy([1 / d] * d, 1 / 6, options)
    while True:
        asked, sums = strategy.ask(), list[float]()
        for weights in asked:
            sums.append(sum(bench.measure(weights)))
            yield
        strategy.tell(asked, sums)


def by_hand(bench: Bench, _: int) -> Iterator[None]:
    """Try the soup, 0.3 of each, TIES at 1, and a grid."""
    d = len(bench.models)
    bench.measure([1.0] * d, merge_method="ties", parameters={"density": 0.5})
    yield
    levels = (0.5, 0.75, 1.0) if d == 2 else (0.5, 1.0)
    for weights in ([1 / d] * d, [0.3] * d, *itertools.product(levels, repeat=d)):
        bench.measure(weights)
        yield


SEARCHES: Mapping[str, Callable[[Bench, int], Iterator[None]]] = {
    "NSGA-II": by_nsga2,
    "CMA-ES": by_cma_es,
    BY_HAND: by_hand,
}


def run(given: argparse.Namespace) -> None:
    """Do the searches that the record does not have yet."""
    torch.set_num_threads(1)
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    for seed, method in itertools.product(range(given.seeds), (OURS, *SEARCHES)):
        known = {(one["method"], one["seed"]): one for one in read(given.results)}
        if (method, seed) in known or (method == BY_HAND and seed):
            continue
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            os.environ["MERGEKIT_MAP_HOME"] = str(folder / "home")  # nothing is known
            bench = Bench(given, folder)
            found: dict[str, list[Line]] = {}
            if not known:
                found[MODELS] = alone(given, bench)
            if method == OURS:
                steps = by_optuna(bench, optuna.samplers.TPESampler(seed=seed))
                found[OURS] = ours(given, folder, seed, steps)
                seconds = found[OURS][-1][0]
                while bench.seconds < seconds:
                    next(steps)
                each = bench.seconds / len(bench.lines)
                found[TPE] = in_turns(bench, each, int(seconds / each))
            else:
                times = [spent for spent, _ in known[TPE, seed]["lines"]]
                most = None if method == BY_HAND else len(times)
                for _ in itertools.islice(SEARCHES[method](bench, seed), most):
                    pass
                found[method] = in_turns(bench, times[0], most)
        for name, lines in found.items():
            entry = {"method": name, "seed": seed, "machine": machine()}
            append(given.results, {**entry, "lines": lines})
            print(name, seed, len(lines), f"{lines[-1][0]:.0f} s", flush=True)


def in_turns(bench: Bench, each: float, most: int | None) -> list[Line]:
    """Return the first merges, each as long as merges took beside this program."""
    return [(n * each, one) for n, (_, one) in enumerate(bench.lines[:most], start=1)]


def alone(given: argparse.Namespace, bench: Bench) -> list[Line]:
    """Measure base and models on disk, adapters by peft."""
    found = [bench.loss_of(given.base)]
    for model in given.model:
        words = (given.base, model) if is_adapter(model) else (model,)
        found.append(bench.loss_of(*words))
    return [(0.0, losses) for losses in found]


def table(given: argparse.Namespace) -> None:
    """Print what each method found in the time that this program took."""
    (models,) = (one for one in read(given.results) if one["method"] == MODELS)
    base, *parents = (np.array(losses) for _, losses in models["lines"])
    best = np.min([base, *parents], axis=0)
    found = {(e["method"], e["seed"]): e["lines"] for e in read(given.results)}

    def gains(lines: Sequence[Line], seconds: float = math.inf) -> FloatArray:
        losses = [losses for spent, losses in lines if spent <= seconds]
        return (base - np.array([*parents, *losses])) / (base - best)

    rows = []
    for method in dict.fromkeys(method for method, _ in found if method != MODELS):
        columns: list[list[float]] = []
        for seed in (s for m, s in found if m == method):
            lines, own = found[method, seed], found[OURS, seed]
            Y, times = gains(lines), [spent for spent, _ in own]
            covered = hypervolume(Y, 0.0)
            same = [t for t in times if hypervolume(gains(own, t), 0.0) >= covered]
            reached = min(same, default=math.nan) / lines[-1][0]
            columns.append([len(lines), covered, Y.min(axis=1).max(), reached])
        merges, volumes, worst, shares = zip(*columns, strict=True)
        counts = [str(len(columns)), f"{statistics.median(merges):.0f}"]
        ends = (f"{statistics.median(v):.3f} ({min(v):.3f})" for v in (volumes, worst))
        rows.append([method, *counts, *ends, f"{statistics.median(shares):.2f}"])
    print("\n".join([*markdown(COLUMNS, rows), "", models["machine"]]))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(required=True)
    running, reading = commands.add_parser("run"), commands.add_parser("table")
    running.set_defaults(call=run)
    reading.set_defaults(call=table)
    for command in (running, reading):
        command.add_argument("results", type=Path, help="a .jsonl file, which grows")
    running.add_argument("--base", required=True)
    running.add_argument("--model", action="append", required=True)
    running.add_argument("--text", action="append", required=True)
    running.add_argument("--seeds", type=int, default=3)
    arguments = parser.parse_args()
    arguments.call(arguments)


if __name__ == "__main__":
    main()
