"""Whole searches on models of 20 M parameters: all documents against a part of them.

    python benchmarks/family20.py FOLDER
    python benchmarks/documents_time.py FOLDER > .../results/documents_time.md

Both searches run side by side, each a process of its own with one thread, from reading
the configuration to the written front. Tasks are the two texts of the family.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import yaml

_TASKS = ("code_loss", "math_loss")
_SIZE = {"max_tokens": 16384, "block": 32}  # 512 documents of each


def _configuration(folder: Path, documents: str, evaluations: int) -> str:
    content = yaml.safe_load((folder / "map.yaml").read_text())
    tasks = content["map"]["tasks"]
    content["map"]["tasks"] = {
        name: {**tasks[name], **_SIZE, "documents": documents} for name in _TASKS
    }
    content["map"]["search"]["evaluations"] = evaluations
    return yaml.safe_dump(content, sort_keys=False)


def _start(folder: Path, out: Path, text: str) -> subprocess.Popen[bytes]:
    config = folder / f"timed_{out.name}.yaml"
    config.write_text(text)
    command = "import sys; from mergekit_map.cli import main; sys.exit(main())"
    return subprocess.Popen(
        [sys.executable, "-c", command, "search", str(config), str(out)],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        stdout=subprocess.DEVNULL,
    )


def _row(name: str, out: Path, wall: float) -> list[str]:
    lines = [json.loads(x) for x in (out / "evaluations.jsonl").open()]
    front: dict[str, Any] = json.loads((out / "front.json").read_text())
    chosen = front["points"][front["selected"]]["measured"]
    return [
        *(name, f"{wall:.0f} s", str(len({str(e["coefficients"]) for e in lines}))),
        str(sum(e["n"] for e in lines)),
        *(f"{chosen[task]['value']:.4f}" for task in _TASKS),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--evaluations", type=int, default=30)
    arguments = parser.parse_args()
    rows, walls = [], {}
    with tempfile.TemporaryDirectory() as scratch:
        started, running = time.perf_counter(), {}
        for name in ("all", "auto"):
            text = _configuration(arguments.folder, name, arguments.evaluations)
            running[name] = _start(arguments.folder, Path(scratch) / name, text)
        while len(walls) < len(running):
            for name, process in running.items():
                if name not in walls and process.poll() is not None:
                    walls[name] = time.perf_counter() - started
            time.sleep(0.2)
        for name, process in running.items():
            if process.returncode:
                sys.exit(f"the search with documents: {name} failed")
            rows.append(_row(name, Path(scratch) / name, walls[name]))
            shutil.rmtree(Path(scratch) / name)
    columns = ["documents", "wall", "merges", "documents measured", *_TASKS]
    print("# A search of 20 M parameters on a part of the documents\n")
    print(
        f"    python benchmarks/documents_time.py FOLDER --evaluations "
        f"{arguments.evaluations}\n\nLosses are those of the chosen merge, measured on "
        f"all documents. Ratio of the walls: {walls['all'] / walls['auto']:.2f}.\n"
    )
    for line in (columns, ["---"] * len(columns), *rows):
        print(f"| {' | '.join(line)} |")


if __name__ == "__main__":
    main()
