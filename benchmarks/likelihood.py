"""Likelihood and perplexity tasks against lm-eval, or against another copy of the code.

    python benchmarks/likelihood.py [--rows 8,32] [--before FOLDER] [--sizes demo]

On the demo's family, and on a Llama of 100 million random parameters: its questions of
four choices without examples and with two, and its text with a vocabulary of 32 000.
Processor seconds of one evaluation, the best of several that take turns; forward
passes alone are those spent in the models' modules. lm-eval is ``simple_evaluate`` on
the same model in memory at the best of ``--rows``, and the values must be its own.
``--before`` is the root of another checkout, which is measured in a process of its own.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import transformers
import yaml
from lm_eval import simple_evaluate
from lm_eval.models.huggingface import HFLM
from lm_eval.tasks import TaskManager
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel

from mergekit_map.config.task_specs import LmEvalTask, PerplexityTask
from mergekit_map.demo.family import family_folder
from mergekit_map.tasks.loading import load_tasks
from mergekit_map.tasks.preparing import prepare_tasks
from mergekit_map.tasks.surroundings import quiet

# Task of the demo, examples, questions of a large model.
QUESTIONS = [("math", 0, 16), ("math", 2, 16), ("code", 0, 8), ("code", 2, 8)]
ROUNDS = {"demo": 4, "100 M": 1}


class Forward:
    """Counts processor seconds in the modules that a model is made of."""

    def __init__(self, model: PreTrainedModel) -> None:
        self.seconds = 0.0
        self._depth, self._since = 0, 0.0
        for module in (model, model.base_model, model.get_output_embeddings()):
            module.register_forward_pre_hook(self._enter)
            module.register_forward_hook(self._leave)

    def _enter(self, *_: Any) -> None:
        if self._depth == 0:
            self._since = time.process_time()
        self._depth += 1

    def _leave(self, *_: Any) -> None:
        self._depth -= 1
        if self._depth == 0:
            self.seconds += time.process_time() - self._since


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", default="8,32")
    parser.add_argument("--before", type=Path)
    parser.add_argument("--sizes", default="demo,100 M")
    parser.add_argument("--found", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    transformers.utils.logging.disable_progress_bar()
    rows = [] if arguments.found else [int(r) for r in arguments.rows.split(",") if r]
    found = {size: measured(size, rows) for size in arguments.sizes.split(",")}
    if arguments.found:
        print(json.dumps(found))
        return
    before = {} if arguments.before is None else of_checkout(arguments)
    print(table(found, before))


def of_checkout(arguments: argparse.Namespace) -> dict[str, Any]:
    """Measure another checkout with this script."""
    command = [sys.executable, __file__, "--found", "--sizes", arguments.sizes]
    environment = {**os.environ, "PYTHONPATH": str(arguments.before.resolve())}
    done = subprocess.run(
        command, env=environment, check=True, capture_output=True, text=True
    )
    return dict(json.loads(done.stdout.splitlines()[-1]))


def measured(size: str, rows: list[int]) -> dict[str, dict[str, Any]]:
    """Measure every task on a model: values, seconds, and seconds forward."""
    family = family_folder()
    tokenizer = AutoTokenizer.from_pretrained(family / "base")
    if size == "demo":
        model = AutoModelForCausalLM.from_pretrained(family / "math")
    else:
        model = large(len(tokenizer))
    clock = Forward(model.eval())
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, shots, limit in QUESTIONS:
            path = with_examples(family, name, shots, Path(folder))
            most = limit if size == "100 M" else None
            ours = ready(path, {"metric": "acc", "limit": most}, model, tokenizer)
            runs = {"ours": lambda ours=ours: ours().value}
            for count in rows:
                runs[f"lm-eval {count}"] = stock(path, most, model, tokenizer, count)
            title = f"{name}, {shots} examples"
            found[title] = timed(runs, clock, ROUNDS[size])
        source = {"file": str(family / "code.jsonl")}
        text = PerplexityTask.model_validate(
            {"perplexity": source, "max_tokens": 8192 if size == "demo" else 1024}
        )
        loss = prepared(text, Path(folder), model, tokenizer)
        found["text"] = timed({"ours": lambda: loss().value}, clock, ROUNDS[size])
    return found


def large(words: int) -> PreTrainedModel:
    """Build a Llama of 100 million random parameters, most of them not in its head."""
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=max(words, 32000),
        hidden_size=640,
        intermediate_size=1728,
        num_hidden_layers=12,
        num_attention_heads=10,
        num_key_value_heads=10,
        max_position_embeddings=512,
    )
    return transformers.LlamaForCausalLM(config)


def with_examples(family: Path, name: str, shots: int, folder: Path) -> Path:
    """Write a task of the demo with so many examples."""
    task = yaml.safe_load((family / f"{name}_choice.yaml").read_text())
    task |= {"task": f"{name}_{shots}", "num_fewshot": shots}
    path = folder / f"{name}_{shots}.yaml"
    path.write_text(yaml.safe_dump(task))
    return path


def ready(path: Path, options: dict[str, Any], model: Any, tokenizer: Any) -> Any:
    """Prepare a task of lm-eval."""
    spec = LmEvalTask.model_validate({"lm_eval": path.name, **options})
    return prepared(spec, path.parent, model, tokenizer)


def prepared(spec: Any, folder: Path, model: Any, tokenizer: Any) -> Any:
    """Prepare a task as a search does that says nothing of batches."""
    tasks, problems = load_tasks({"mine": spec}, folder)
    assert not problems, problems
    try:
        return prepare_tasks(tasks, model, tokenizer, batch_size="auto")["mine"]
    except TypeError:  # a checkout that knows numbers alone, and has this by default
        return prepare_tasks(tasks, model, tokenizer, batch_size=8)["mine"]


def stock(
    path: Path, limit: int | None, model: Any, tokenizer: Any, rows: int
) -> Callable[[], float]:
    """Give lm-eval's own evaluation, from its task to its metric."""
    manager = TaskManager(include_path=str(path.parent), include_defaults=False)

    def run() -> float:
        with quiet(), without_its_surroundings():
            lm = HFLM(
                pretrained=model,
                tokenizer=tokenizer,
                batch_size=rows,
                softmax_dtype="float32",
            )
            found = simple_evaluate(
                model=lm,
                tasks=[path.stem],
                limit=limit,
                task_manager=manager,
                bootstrap_iters=0,
            )
        assert found is not None
        return float(found["results"][path.stem]["acc,none"])

    return run


@contextmanager
def without_its_surroundings() -> Any:
    """Keep lm-eval from looking at the machine, which takes seconds."""
    from lm_eval import evaluator

    before, evaluator.add_env_info = evaluator.add_env_info, lambda _: None
    try:
        yield
    finally:
        evaluator.add_env_info = before


def timed(
    runs: dict[str, Callable[[], float]], clock: Forward, rounds: int
) -> dict[str, Any]:
    """Let the ways take turns, and keep the best seconds of each."""
    found: dict[str, Any] = {}
    for turn in range(rounds + 1):
        for name, run in runs.items():
            if name != "ours" and turn > 1:
                continue  # it takes long
            started, clock.seconds = time.process_time(), 0.0
            value = run()
            taken = [time.process_time() - started, clock.seconds]
            if turn or name != "ours":  # the first is to get warm
                known = found.setdefault(name, {"value": value, "seconds": taken})
                known["seconds"] = list(map(min, known["seconds"], taken))
                assert known["value"] == value
    return found


def table(found: dict[str, Any], before: dict[str, Any]) -> str:
    """Show seconds, of them forward, and what lm-eval and another checkout take."""
    head = ["model", "task", "value", "s", "forward s"]
    head += ["before s", "forward s", "times"] if before else []
    head += ["lm-eval s (rows)", "forward s", "times", "same value"]
    lines = [head, ["---"] * len(head)]
    for size, tasks in found.items():
        for task, of in tasks.items():
            ours = of["ours"]
            line = [size, task, f"{ours['value']:.4f}", *map(short, ours["seconds"])]
            if before:
                other = before[size][task]["ours"]
                line += [*map(short, other["seconds"]), ratio(other, ours)]
                assert abs(other["value"] - ours["value"]) < 1e-5
            line += against(of)
            lines.append(line)
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def against(of: dict[str, Any]) -> list[str]:
    """Show lm-eval at its best number of rows."""
    stock_runs = {k: v for k, v in of.items() if k != "ours"}
    if not stock_runs:
        return ["", "", "", ""]
    best = min(stock_runs, key=lambda name: stock_runs[name]["seconds"][0])
    theirs = stock_runs[best]
    same = all(run["value"] == of["ours"]["value"] for run in stock_runs.values())
    return [
        f"{short(theirs['seconds'][0])} ({best.split()[-1]})",
        short(theirs["seconds"][1]),
        ratio(theirs, of["ours"]),
        "yes" if same else "NO",
    ]


def ratio(theirs: dict[str, Any], ours: dict[str, Any]) -> str:
    """Compare seconds, and seconds forward."""
    pairs = zip(theirs["seconds"], ours["seconds"], strict=True)
    return " / ".join(f"{other / mine:.1f}" for other, mine in pairs)


def short(seconds: float) -> str:
    """Write seconds."""
    return f"{seconds:.3f}" if seconds < 1 else f"{seconds:.1f}"


if __name__ == "__main__":
    main()
