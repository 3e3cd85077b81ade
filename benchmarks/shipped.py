"""Whether what is shipped is what was measured: ten merges of a real language model.

    python benchmarks/shipped.py FAMILY FOLDER

FAMILY is the folder that ``laboratory/real_family.py`` made. Ten searches of a few
merges, by four methods, of two to eight models with adapters among them, choose and
write a merge each, by turns in bfloat16 and float32. Each is then written by stock
``mergekit-yaml`` from its recipe, and measured by ``lm_eval --model hf`` with one row
and with 16 in a batch: a benchmark with answers, and a loss. In bfloat16 the number of
rows moves values, too. What is finished in FOLDER is not made again.
"""

from __future__ import annotations

import argparse
import json
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
import yaml
from laboratory.family import Family, configuration, load, write_lm_eval_task
from records import append, markdown, read
from safetensors.torch import load_file

# Method, its parameters, and how many of the experts.
MERGES: tuple[tuple[str, dict[str, Any], int], ...] = (
    ("task_arithmetic", {}, 2),
    ("task_arithmetic", {}, 4),
    ("ties", {"density": 0.5}, 2),
    ("ties", {"density": 0.5}, 3),
    ("dare_linear", {"density": 0.7}, 2),
    ("dare_linear", {"density": 0.7}, 4),
    ("breadcrumbs", {"density": 0.9, "gamma": 0.01}, 2),
    ("breadcrumbs", {"density": 0.9, "gamma": 0.01}, 3),
    ("task_arithmetic", {}, 8),
    ("ties", {"density": 0.3}, 8),
)
_QUESTIONS, _DOCUMENTS = 20, 4
_LOSS = "bits_per_byte"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("family", type=Path)
    parser.add_argument("folder", type=Path)
    arguments = parser.parse_args()
    family, folder = load(arguments.family), arguments.folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    tasks = {
        "questions": (_questions(family.folder, folder), "acc_norm"),
        "text": (_text(family.folder, folder), _LOSS),
    }
    out = folder / "shipped.jsonl"
    for number, (method, parameters, count) in enumerate(MERGES):
        if number < len(read(out)):
            continue
        config = _configuration(family, tasks, count)
        config |= {"merge_method": method, "parameters": parameters}
        config["out_dtype"] = dtype = ("bfloat16", "float32")[number % 2]
        shipped = folder / f"{number}-{method}-{count}"
        Path(f"{shipped}.yml").write_text(yaml.safe_dump(config), encoding="utf-8")
        if not shipped.exists():
            _run("mergekit_map", "run", f"{shipped}.yml", shipped)
        stock = folder / "stock"
        shutil.rmtree(stock, ignore_errors=True)
        _by_mergekit(Path(f"{shipped}.run/recipe.yml"), stock, folder / "adapters")
        front = json.loads(Path(f"{shipped}.run/front.json").read_text())
        chosen = front["points"][front["selected"]]
        record = {
            "method": method,
            "models": count,
            "dtype": dtype,
            "tensors": _same(shipped, stock),
            "ours": {t: chosen["measured"][t]["value"] for t in tasks},
            "lm_eval": _by_lm_eval(shipped, tasks, dtype, 1),
            "lm_eval, 16 rows": _by_lm_eval(shipped, tasks, dtype, 16),
        }
        append(out, record)
    print("\n".join(_table(read(out))))


def _table(records: Sequence[Mapping[str, Any]]) -> list[str]:
    columns = ["method", "models", "dtype", "equal tensors"]
    by = ["ours", "lm_eval", "lm_eval, 16 rows"]
    rows = [
        [r["method"], str(r["models"]), r["dtype"], " of ".join(map(str, r["tensors"]))]
        + [f"{r[who][task]:.7g}" for task in r["ours"] for who in by]
        for r in records
    ]
    return markdown(
        [*columns, *(f"{t}: {who}" for t in records[0]["ours"] for who in by)], rows
    )


def _configuration(
    family: Family, tasks: Mapping[str, tuple[Path, str]], count: int
) -> dict[str, Any]:
    """Return the content of a configuration of the first experts."""
    # Any merge will do, as long as all models are in it.
    search = {"evaluations": 2 * count + 3, "remeasure": 1, "bounds": [0.3, 0.9]}
    content = configuration(family, family.models[:count], **search)
    content["map"]["tasks"] = {
        name: {"lm_eval": str(path), "metric": metric}
        for name, (path, metric) in tasks.items()
    }
    return content


def _questions(family: Path, folder: Path) -> Path:
    task = yaml.safe_load((family / "arc_easy.yaml").read_text())
    del task["task"], task["dataset_kwargs"]
    data = _first(family / "arc_easy.jsonl", _QUESTIONS, folder / "questions.jsonl")
    return write_lm_eval_task(data, **task)


def _text(family: Path, folder: Path) -> Path:
    metric = {"metric": _LOSS, "aggregation": _LOSS, "higher_is_better": False}
    return write_lm_eval_task(
        _first(family / "zen.jsonl", _DOCUMENTS, folder / "text.jsonl"),
        output_type="loglikelihood_rolling",
        doc_to_text="",
        doc_to_target="{{text}}",
        metric_list=[metric],
    )


def _first(source: Path, count: int, out: Path) -> Path:
    lines = source.read_text(encoding="utf-8").splitlines(keepends=True)
    out.write_text("".join(lines[:count]), encoding="utf-8")
    return out


def _same(one: Path, other: Path) -> tuple[int, int]:
    """Count the tensors of a checkpoint, and those with the bytes of another's."""
    ours, theirs = (
        {
            name: tensor
            for path in folder.glob("*.safetensors")
            for name, tensor in load_file(path).items()
        }
        for folder in (one, other)
    )
    same = [
        name in theirs
        and tensor.dtype == theirs[name].dtype
        and torch.equal(tensor.view(torch.uint8), theirs[name].view(torch.uint8))
        for name, tensor in ours.items()
    ]
    return sum(same), len({*ours, *theirs})


def _by_lm_eval(
    model: Path, tasks: dict[str, tuple[Path, str]], dtype: str, rows: int
) -> dict[str, float]:
    names = ",".join(str(path) for path, _ in tasks.values())
    how = f"pretrained={model},dtype={dtype},softmax_dtype=float32"
    with tempfile.TemporaryDirectory() as found:
        words = ["--model", "hf", "--model_args", how, "--batch_size", rows]
        words += ["--tasks", names, "--device", "cpu", "--output_path", found]
        _run("lm_eval", *words)
        (path,) = Path(found).rglob("*.json")
        results = json.loads(path.read_text(encoding="utf-8"))["results"]
    return {
        task: results[task][f"{metric},none"] for task, (_, metric) in tasks.items()
    }


def _by_mergekit(recipe: Path, out: Path, cache: Path) -> None:
    """Write a recipe by the command that stands in it."""
    command = re.search(r"^# Merge it with: (.*)$", recipe.read_text(), re.MULTILINE)
    assert command is not None
    places = {"OUT": str(out), "CACHE": str(cache)}
    words = [places.get(w, w) for w in shlex.split(command[1], comments=True)]
    for _ in range(1 + ("# twice" in command[1])):
        _run("mergekit.scripts.run_yaml", *words[1:])


def _run(module: str, *words: object) -> None:
    subprocess.run([sys.executable, "-m", module, *map(str, words)], check=True)


if __name__ == "__main__":
    main()
