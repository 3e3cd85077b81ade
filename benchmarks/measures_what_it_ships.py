"""Show that what is measured is what is shipped, for all methods and two dtypes.

    python benchmarks/measures_what_it_ships.py FAMILY

FAMILY is the demo's folder of models. For each method and dtype: search, then run
stock ``mergekit-yaml recipe.yml`` and lm-eval's own command, each as a process of its
own, and compare tensors (bits), accuracy (exactly) and loss (relative error).
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
import transformers
import yaml
from mergekit.options import MergeOptions
from safetensors.torch import load_file

from mergekit_map import load_project, search_front
from mergekit_map.merging.methods import TASK_VECTOR_METHODS
from mergekit_map.merging.resident import resident_merge

SEED = 11
BLOCK = 128


class Silent:
    def progress(self, progress: object) -> None:
        pass

    def notice(self, text: str) -> None:
        print(text)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("family", type=Path)
    family = parser.parse_args().family
    transformers.utils.logging.disable_progress_bar()
    for method in TASK_VECTOR_METHODS:
        for dtype in ("float32", "bfloat16"):
            with tempfile.TemporaryDirectory() as folder:
                compare(family, method, dtype, Path(folder))


def compare(family: Path, method: str, dtype: str, folder: Path) -> None:
    config = folder / "config.yml"
    config.write_text(yaml.safe_dump(configuration(family, method, dtype)))
    project = load_project(config, MergeOptions(random_seed=SEED))
    front = search_front(project, folder / "run", Silent()).front
    chosen = front.chosen
    out = folder / "out"
    run(
        "mergekit.scripts.run_yaml",
        folder / "run/recipe.yml",
        out,
        "--random-seed",
        SEED,
    )
    same = same_bits(project, chosen.coefficients, out)
    loss, accuracy = (chosen.measured[t].value for t in ("loss", "accuracy"))
    error = abs(plain_loss(out, family / "code.jsonl", 4096) / loss - 1)
    stock = lm_eval_accuracy(family, out)
    print(
        f"{method:16} {dtype:8} tensors {'equal' if same else 'DIFFER'}, accuracy "
        f"{accuracy:.6f} and {stock:.6f} {'equal' if accuracy == stock else 'DIFFER'}, "
        f"relative error of the loss {error:.1e}",
        flush=True,
    )


def configuration(family: Path, method: str, dtype: str) -> dict[str, Any]:
    parameters = {} if method == "task_arithmetic" else {"density": 0.6}
    text = {"file": str(family / "code.jsonl"), "field": "text"}
    return {
        "merge_method": method,
        "base_model": str(family / "base"),
        "models": [
            {"model": str(family / name), "parameters": parameters}
            for name in ("code", "math")
        ],
        "dtype": dtype,
        "map": {
            "tasks": {
                "loss": {"perplexity": text, "max_tokens": 4096, "block": BLOCK},
                "accuracy": {
                    "lm_eval": str(family / "math_choice.yaml"),
                    "metric": "acc",
                },
            },
            "search": {"evaluations": 8, "remeasure": 0},
        },
    }


def run(module: str, *arguments: object) -> None:
    command = [sys.executable, "-W", "ignore", "-m", module, *map(str, arguments)]
    subprocess.run(command, check=True, capture_output=True)


def same_bits(project: Any, coefficients: dict[str, float], out: Path) -> bool:
    stock = load_file(out / "model.safetensors")
    with resident_merge(project.space, project.options) as merge:
        merge.write(coefficients)
        ours = merge.model.state_dict()
        return ours.keys() == stock.keys() and all(
            torch.equal(ours[name].view(torch.uint8), tensor.view(torch.uint8))
            for name, tensor in stock.items()
        )


@torch.no_grad()
def plain_loss(out: Path, text: Path, max_tokens: int) -> float:
    """Mean token loss, block by block, with transformers' own loss."""
    model = transformers.AutoModelForCausalLM.from_pretrained(out).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(out)
    stream: list[int] = []
    for line in text.read_text().splitlines():
        ids = tokenizer(json.loads(line)["text"], add_special_tokens=False)["input_ids"]
        stream += [tokenizer.bos_token_id, *ids]
    stream = stream[: max_tokens + 1]  # the first is not predicted
    total, count, scored = 0.0, 0, 1
    while scored < len(stream):
        end = min(scored + BLOCK, len(stream))
        first = max(0, end - BLOCK - 1)
        window = torch.tensor(stream[first:end])
        labels = window.clone()
        labels[: scored - first] = -100
        labels[window == tokenizer.bos_token_id] = -100
        number = int((labels != -100).sum())
        loss = model(input_ids=window[None], labels=labels[None]).loss.item()
        total, count, scored = total + loss * number, count + number, end
    return total / count


def lm_eval_accuracy(family: Path, out: Path) -> float:
    results = out / "results"
    model = f"pretrained={out},softmax_dtype=float32"
    arguments = ["--model", "hf", "--model_args", model, "--device", "cpu"]
    task = ["--tasks", family / "math_choice.yaml", "--batch_size", 8]
    run("lm_eval", *arguments, *task, "--output_path", results)
    (path,) = results.rglob("results_*.json")
    (values,) = json.loads(path.read_text())["results"].values()
    return values["acc,none"]


if __name__ == "__main__":
    main()
