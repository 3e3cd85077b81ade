"""What `select`, `report` and going on take, of folders far larger than the demo's.

    OMP_NUM_THREADS=1 python benchmarks/big_folders.py [--only demo,all] [--keep]

A folder comes of a real search of tiny models, whose tasks are distances of a layer
from that of a merge known to the benchmark alone. Lines are added to its log, of merges
that were never made, by the same distances, as a comparison would write them; and
points to its front, between those that were found, as predicted. Then each command is
run in a process of its own: seconds of the processor, and the most memory that it had.
Going on is a search on the folder, when nothing is left to measure. Prints Markdown;
``--keep`` writes it to ``results/big_folders.md``.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scale
import yaml

RESULT = Path(__file__).resolve().parent / "results" / "big_folders.md"
COMMANDS = ("select", "report", "going on")
TASKS = """
import torch

wanted = torch.load({path!r}, weights_only=True)

def task(number):
    def distance(model, tokenizer):
        weight = model.lm_head.weight.detach().float()[:8].flatten()
        return 1e4 * ((weight - wanted[number]) ** 2).mean().item(), 0.02
    distance.__name__ = distance.__qualname__ = f"task_{{number}}"
    return distance

{names}
"""


@dataclass(frozen=True)
class Big:
    """How large a folder is."""

    points: int = 100
    lines: int = 0  # at least so many in the log
    tasks: int = 2
    models: int = 2


FOLDERS = {
    "the demo's size": Big(),
    "5,000 points": Big(points=5000, tasks=3, models=3),
    "100,000 lines": Big(lines=100_000),
    "30 tasks": Big(tasks=30),
    "10 models": Big(models=10),
    "all of it": Big(5000, 100_000, 30, 10),
}


def main() -> None:
    arguments = parse_arguments()
    if arguments.build:
        build(arguments.build, Big(**json.loads(arguments.size)))
        return
    rows = []
    chosen = [*FOLDERS][: arguments.most] if not arguments.only else arguments.only
    for name in chosen:
        with tempfile.TemporaryDirectory() as scratch:
            rows.append([name, *row(FOLDERS[name], Path(scratch))])
        print("| " + " | ".join(rows[-1]) + " |", flush=True)
    head = ["folder", "points", "lines", "tasks", "models"]
    head += [f"{command} {unit}" for command in COMMANDS for unit in ("s", "MB")]
    text = scale.table([*head, "page"], rows)
    print(text)
    if arguments.keep:
        about = f"`python benchmarks/big_folders.py`: {scale.processor()}."
        RESULT.write_text(f"# Big folders\n\n{about}\n\n{text}\n")


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", action="append", choices=[*FOLDERS])
    parser.add_argument("--most", type=int, default=len(FOLDERS))
    parser.add_argument("--keep", action="store_true")
    parser.add_argument("--build", type=Path, help="only build a folder, here")
    parser.add_argument("--size", help="of that, as JSON")
    return parser.parse_args()


def row(size: Big, folder: Path) -> list[str]:
    """Build a folder in a process of its own, and measure the commands on it."""
    command = [sys.executable, str(Path(__file__).resolve()), "--build", str(folder)]
    built = [*command, "--size", json.dumps(asdict(size))]
    subprocess.run(built, check=True, cwd=folder, env=scale.environment())
    run, config = folder / "run", folder / "config.yml"
    front = json.loads((run / "front.json").read_text())
    prefer = ["--prefer", "task_0=2", "--prefer", "task_1=1"]
    found = [
        measured("select", run, *prefer),
        measured("report", run),
    ]
    page = (run / "report.html").stat().st_size
    measured("search", config, run)  # with the front that a search finds by itself
    found.append(measured("search", config, run))
    lines = sum(1 for _ in (run / "evaluations.jsonl").open())
    shape = [len(front["points"]), lines, size.tasks, size.models]
    taken = [cell for s, mb in found for cell in (f"{s:.1f}", f"{mb:.0f}")]
    return [*map(str, shape), *taken, f"{page / 1e6:.1f} MB"]


def measured(*words: object) -> tuple[float, float]:
    """Run a command; give its seconds of the processor, and its memory."""
    child = subprocess.Popen(
        [sys.executable, "-m", "mergekit_map", *map(str, words)],
        cwd=Path(str(words[1])).parent,
        env=scale.environment(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    said = child.stderr.read() if child.stderr else b""
    _, status, used = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        raise SystemExit(f"{words}: {said.decode()[-3000:]}")
    return used.ru_utime + used.ru_stime, used.ru_maxrss / 1024


def build(folder: Path, size: Big) -> None:
    """Search, add lines to the log, and points to the front."""
    import overhead
    import transformers

    from mergekit_map import search_front

    transformers.utils.logging.disable_progress_bar()
    config, run = prepare(folder, size), folder / "run"
    search_front(config, run, overhead.Silent())
    with (run / "evaluations.jsonl").open("r+") as log:
        known = [json.loads(line) for line in log]
        for line in further_lines(known, size, folder) if size.lines else ():
            log.write(json.dumps(line) + "\n")
    add_points(config, run, size.points)


def add_points(config: Path, run: Path, count: int) -> None:
    """Write points between those of a front into it, until there are so many."""
    from mergekit_map import load_project
    from mergekit_map.merging.recipe import Recipes
    from mergekit_map.publish.plots import save_front
    from mergekit_map.results.finished import read_finished
    from mergekit_map.results.front import UNKNOWN, Merge
    from mergekit_map.results.surrogates import predict
    from mergekit_map.steps.recipe_files import write_recipes

    finished, project = read_finished(run), load_project(config)
    front, rng = finished.front, np.random.default_rng(0)
    names, known = (
        list(front.coefficients),
        finished.locate(point.coefficients for point in front.points),
    )
    more = max(count - len(known), 0)
    ends, share = rng.integers(len(known), size=(2, more)), rng.uniform(size=(more, 1))
    X = known[ends[0]] * share + known[ends[1]] * (1 - share)
    points = [
        Merge(
            coefficients=dict(zip(names, row, strict=True)),
            predicted=readings,
            measured=dict.fromkeys(front.tasks, UNKNOWN),
        )
        for row, readings in zip(
            X.tolist(), predict(finished.surrogates, X), strict=True
        )
    ]
    front = front.model_copy(update={"points": (*front.points, *points)})
    write_recipes(Recipes(project.space, project.options), front, finished.folder)
    save_front(front, finished.folder)


def prepare(folder: Path, size: Big) -> Path:
    """Build models and tasks, and write the configuration."""
    import random_family as families
    import torch
    from safetensors.torch import load_file

    names = [f"model_{i}" for i in range(size.models)]
    shape = families.SIZES["tiny"]
    model = families.random_model(shape, torch.float32)
    heads, start = [], {key: v.clone() for key, v in model.state_dict().items()}
    for number, name in enumerate(["base", *names]):
        torch.manual_seed(number)
        if number:
            with torch.no_grad():
                for parameter in model.parameters():
                    parameter.add_(torch.randn_like(parameter) * 1e-2)
        model.save_pretrained(folder / name)
        families.tokenizer(shape.vocabulary).save_pretrained(folder / name)
        model.load_state_dict(start)  # fine-tunes of the base, not of one another
        head = load_file(folder / name / "model.safetensors")["lm_head.weight"]
        heads.append(head[:8].flatten())
    base, deltas = heads[0], torch.stack(heads[1:]) - heads[0]
    torch.manual_seed(0)
    torch.save(
        base + torch.rand(size.tasks, size.models) @ deltas, folder / "wanted.pt"
    )
    torch.save((base, deltas), folder / "heads.pt")
    functions = "\n".join(f"task_{t} = task({t})" for t in range(size.tasks))
    path = str(folder / "wanted.pt")
    (folder / "far_tasks.py").write_text(TASKS.format(path=path, names=functions))
    loss = {"direction": "minimize", "range": [0, None]}
    tasks = {
        f"task_{t}": {"python": f"far_tasks:task_{t}", **loss}
        for t in range(size.tasks)
    }
    search = {"refine": False, "evaluations": 4 * (size.models + 1)}
    content = {
        "merge_method": "task_arithmetic",
        "base_model": str(folder / "base"),
        "models": [{"model": str(folder / name)} for name in names],
        "dtype": "float32",
        "map": {"tasks": tasks, "search": search},
    }
    config = folder / "config.yml"
    config.write_text(yaml.safe_dump(content, sort_keys=False))
    return config


def further_lines(
    known: list[dict[str, Any]], size: Big, folder: Path
) -> Iterator[dict[str, Any]]:
    """Make lines of merges all over the box, as a comparison adds them."""
    import torch

    wanted = torch.load(folder / "wanted.pt", weights_only=True)
    base, deltas = torch.load(folder / "heads.pt", weights_only=True)
    of = {line["task"]: line for line in known}
    rng = np.random.default_rng(0)
    for _ in range((size.lines - len(known)) // size.tasks + 1):
        place = rng.uniform(size=size.models)
        head = base + torch.tensor(place, dtype=torch.float32) @ deltas
        values = 1e4 * ((head - wanted) ** 2).mean(dim=1)
        for task, value in zip(of, values.tolist(), strict=True):
            names = of[task]["coefficients"]
            merge = dict(zip(names, place.tolist(), strict=True))
            line = {**of[task], "coefficients": merge, "value": value}
            line.pop("foretold", None)
            yield {**line, "role": "opponent", "seconds": 0.01}


if __name__ == "__main__":
    main()
