"""Keep what the demo and the commands of the tutorial print, as the pages show it.

    python benchmarks/demo_end.py

Runs them in folders of their own and keeps what they print, and what made it, in
``docs/results/demo.json``, ``tutorial.json`` and a page for each.
"""

from __future__ import annotations

import datetime
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from paper.kept import INDEX, index, machine, versions

from mergekit_map.demo.family import family_folder
from mergekit_map.utils.files import write_atomically, write_json

RESULTS = Path(__file__).resolve().parents[1] / "docs" / "results"
_PROGRAM = "from mergekit_map.__main__ import main; main()"
_COLUMNS = "100"  # of the terminal
_MODELS = (
    "--base models/base --model models/code --model models/math "
    "--text models/code.jsonl --text models/math.jsonl --holdout 0.3"
)
# The commands of each page, and its title.
PAGES = {
    "demo": ("How the demo ends", ["demo"]),
    "tutorial": (
        "What the commands of the tutorial print",
        [
            f"run {_MODELS} my-model",
            "select my-model.run --require math=30%",
            "merge my-model.run more-math",
            f"run {_MODELS} --method ties my-ties",
        ],
    ),
}


def main() -> None:
    """Run the commands and keep what they print."""
    RESULTS.mkdir(parents=True, exist_ok=True)
    for name, (title, commands) in PAGES.items():
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "models").symlink_to(family_folder())
            printed = [_printed(command, folder) for command in commands]
        content = {
            "commands": [f"mergekit-map {command}" for command in commands],
            "printed": printed,
            "date": datetime.datetime.now(datetime.timezone.utc).date().isoformat(),
            "machine": machine(),
            "versions": versions(),
        }
        write_json(RESULTS / f"{name}.json", content)
        write_atomically(RESULTS / f"{name}.md", _page(title, content))
    write_atomically(RESULTS / INDEX, index(RESULTS))


def _printed(command: str, folder: str) -> str:
    """Run a command and return what it prints, without spaces at the ends of lines."""
    printed = subprocess.run(
        [sys.executable, "-c", _PROGRAM, *command.split()],
        cwd=folder,
        env={**os.environ, "COLUMNS": _COLUMNS},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    ).stdout
    return "\n".join(line.rstrip() for line in printed.splitlines()).strip() + "\n"


def _page(title: str, content: Mapping[str, Any]) -> str:
    shown = zip(content["commands"], content["printed"], strict=True)
    parts = [f"    {command}\n\n```text\n{text}```\n" for command, text in shown]
    made = (
        f"    python benchmarks/demo_end.py\n\n{content['date']}, {content['machine']}."
    )
    return "\n".join([f"# {title}\n", *parts, made]) + "\n"


if __name__ == "__main__":
    main()
