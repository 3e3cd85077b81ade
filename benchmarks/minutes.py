"""Searches of a real merge at equal processor time: this program beside what people do.

    python benchmarks/minutes.py run RESULTS.jsonl --base BASE --model MODEL \
        --model MODEL --text TEXT --text TEXT
    python benchmarks/minutes.py table RESULTS.jsonl

Everybody searches the weights of task arithmetic from 0 to 1, and measures the same
documents by the same tasks of lm-eval (``bits_per_byte``). This program searches with
nothing set. The others have as much processor time as it took. In one process, they
write every merge by mergekit, and load and measure it by lm-eval: Optuna's TPE and
NSGA-II (a population of 8, as its 50 would not fit), CMA-ES on the sum of the losses,
which is mergekit-evolve's, and the merges that people try by hand, with all the time
that these take. TEXT has a document per line, under ``text``.

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
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
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

OURS, BY_HAND, MODELS = "this program", "by hand", "models"
Line: TypeAlias = tuple[float, list[float]]  # seconds so far, and losses of a merge
COLUMNS = ("method", "runs", "merges", "hypervolume", "worst task", "share of time")
_METRIC = "bits_per_byte"
_ROWS = 8  # in a batch
_POPULATION = 8


class OutOfTimeError(Exception):
    """The processor time of a search is used up."""


class Bench:
    """Merges by mergekit and measures by lm-eval, until its time is used up."""

    def __init__(self, given: argparse.Namespace, folder: Path, seconds: float) -> None:
        self.folder, self.models = folder, given.model
        self.base = given.base
        self.tasks = write_tasks(given.text, folder)
        self.lines: list[Line] = []
        self._limit, self._start = seconds, time.process_time()

    def measure(self, weights: Sequence[float], **method: Any) -> list[float]:
        """Return the losses of a merge; raises OutOfTimeError after the last one."""
        models = [
            {"model": self._on_base(model), "parameters": {"weight": float(weight)}}
            for model, weight in zip(self.models, weights, strict=True)
        ]
        config = {"merge_method": "task_arithmetic", "dtype": "bfloat16", **method}
        config |= {"base_model": self.base, "models": models}
        out = self.folder / "merge"
        cache = str(self.folder / "adapters")
        options = MergeOptions(lora_merge_cache=cache, quiet=True, copy_tokenizer=True)
        run_merge(MergeConfiguration.model_validate(config), str(out), options)
        losses = self.loss_of(str(out))
        spent = time.process_time() - self._start
        if spent > self._limit:
            raise OutOfTimeError
        self.lines.append((spent, losses))
        return losses

    def _on_base(self, model: str) -> str:
        """Name a model as mergekit does."""
        return f"{self.base}+{model}" if is_adapter(model) else model

    def loss_of(self, pretrained: str, peft: str | None = None) -> list[float]:
        """Measure a model on disk by lm-eval, or an adapter of it."""
        # In bfloat16, log-likelihoods would be rounded to three digits.
        how = {"pretrained": pretrained, "softmax_dtype": "float32"}
        how["dtype"] = "bfloat16"
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
    """Notes when which merge of a search was measured on every task."""

    def __init__(self, tasks: Sequence[str]) -> None:
        self.lines: list[Line] = []
        self._tasks, self._start = tasks, time.process_time()
        self._seen: dict[MergeKey, dict[str, float]] = {}

    def on_measured(self, evaluation: Evaluation) -> None:
        found = self._seen.setdefault(evaluation.key[0], {})
        found[evaluation.task] = evaluation.value
        if len(found) == len(self._tasks):
            spent = time.process_time() - self._start
            self.lines.append((spent, [found[task] for task in self._tasks]))


def ours(given: argparse.Namespace, folder: Path, seed: int) -> list[Line]:
    """Search with this program, with nothing set but the seed."""
    tasks = write_tasks(given.text, folder)
    config = {
        "merge_method": "task_arithmetic",
        "dtype": "bfloat16",
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
    clock = Clock([path.stem for path in tasks])
    mergekit_map.search_front(path, folder / "run", callbacks=[clock])
    return clock.lines


def by_optuna(bench: Bench, sampler: optuna.samplers.BaseSampler) -> None:
    """Search with Optuna, all losses at once."""

    def objective(trial: optuna.Trial) -> list[float]:
        names = [f"weight_{index}" for index in range(len(bench.models))]
        return bench.measure([trial.suggest_float(name, 0.0, 1.0) for name in names])

    directions = ["minimize"] * len(bench.tasks)
    study = optuna.create_study(sampler=sampler, directions=directions)
    study.optimize(objective)


def by_tpe(bench: Bench, seed: int) -> None:
    by_optuna(bench, optuna.samplers.TPESampler(seed=seed))


def by_nsga2(bench: Bench, seed: int) -> None:
    sampler = optuna.samplers.NSGAIISampler(population_size=_POPULATION, seed=seed)
    by_optuna(bench, sampler)


def by_cma_es(bench: Bench, seed: int) -> None:
    """Search for the best sum of losses, as mergekit-evolve: it starts at 1 / N."""
    d = len(bench.models)
    options = {"bounds": [0, 1], "seed": seed + 1, "verbose": -9}
    strategy = cma.CMAEvolutionStrategy([1 / d] * d, 1 / 6, options)
    while True:
        asked = strategy.ask()
        strategy.tell(asked, [sum(bench.measure(weights)) for weights in asked])


def by_hand(bench: Bench, _: int) -> None:
    """Try the soup, 0.3 of each, TIES at 1, and a grid."""
    d = len(bench.models)
    bench.measure([1 / d] * d)
    bench.measure([0.3] * d)
    bench.measure([1.0] * d, merge_method="ties", parameters={"density": 0.5})
    levels = (0.5, 0.75, 1.0) if d == 2 else (0.5, 1.0)
    for weights in itertools.product(levels, repeat=d):
        bench.measure(weights)


SEARCHES: Mapping[str, Callable[[Bench, int], None]] = {
    "TPE": by_tpe,
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
            if not known:
                entry = {"method": MODELS, "seed": 0, "machine": machine()}
                append(given.results, {**entry, "lines": alone(given, folder)})
            if method == OURS:
                lines = ours(given, folder, seed)
            else:
                seconds = known[OURS, seed]["lines"][-1][0]
                bench = Bench(given, folder, math.inf if method == BY_HAND else seconds)
                with suppress(OutOfTimeError):
                    SEARCHES[method](bench, seed)
                lines = bench.lines
        append(given.results, {"method": method, "seed": seed, "lines": lines})
        print(method, seed, len(lines), f"{lines[-1][0]:.0f} s", flush=True)


def alone(given: argparse.Namespace, folder: Path) -> list[Line]:
    """Measure base and models on disk, adapters by peft."""
    bench = Bench(given, folder, math.inf)
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
        values = [
            f"{statistics.median(merges):.0f}",
            *map(_with_worst, (volumes, worst)),
        ]
        rows.append(
            [method, str(len(columns)), *values, f"{statistics.median(shares):.2f}"]
        )
    print("\n".join(markdown(COLUMNS, rows)))
    print("", models["machine"], sep="\n")


def _with_worst(values: Sequence[float]) -> str:
    return f"{statistics.median(values):.3f} ({min(values):.3f})"


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
