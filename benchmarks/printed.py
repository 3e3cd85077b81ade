"""Keep what commands print, as the pages show it.

    python benchmarks/printed.py demo
    python benchmarks/printed.py tutorial FOLDER

The demo runs in a folder of its own. The tutorial runs in FOLDER, whose ``models`` has
the base and two experts that ``laboratory/real_family.py`` trains; searches that are
there are not made again. What is printed, and what made it, is kept in
``docs/results/demo.json`` or ``tutorial.json`` with a page; of the tutorial, the
picture of the front and the model card as well.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from paper.kept import INDEX, index, origin

from mergekit_map.utils.files import write_atomically, write_json

DOCS = Path(__file__).resolve().parents[1] / "docs"
RESULTS = DOCS / "results"
_PROGRAM = "from mergekit_map.__main__ import main; main()"
_COLUMNS = "100"  # of the terminal
_MODELS = (
    "--base models/base --model models/math --model models/zen "
    "--text models/math.jsonl --text models/zen.jsonl"
)
# The commands of each page, and its title.
PAGES: dict[str, tuple[str, Sequence[str]]] = {
    "demo": ("The end of the demo's output (its bounds: 0 to 2)", ["demo"]),
    "tutorial": (
        "What the commands of the tutorial print",
        [
            f"run {_MODELS} my-model",
            "select my-model.run --require math=95%",
            "merge my-model.run more-math",
            f"run {_MODELS} --method ties my-ties",
            "push my-model me/my-model --run my-model.run --dry-run",
        ],
    ),
}
_FOLDER = {"demo": "", "tutorial": " FOLDER"}


def main() -> None:
    """Run the commands and keep what they print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("page", choices=PAGES)
    parser.add_argument("folder", nargs="?", type=Path)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = arguments.folder or Path(temporary)
        for name in ("my-model", "more-math", "my-ties"):  # are merged again
            shutil.rmtree(folder / name, ignore_errors=True)
        title, commands = PAGES[arguments.page]
        printed = []
        for command in commands:
            printed.append(_printed(command, folder))
            picture = folder / "my-model.run" / "front.png"
            if len(printed) == 1 and picture.exists():  # not yet of another choice
                shutil.copy(picture, DOCS)
    content = {
        "commands": [f"mergekit-map {command}" for command in commands],
        "printed": printed,
        **origin(),
    }
    write_json(RESULTS / f"{arguments.page}.json", content)
    write_atomically(
        RESULTS / f"{arguments.page}.md", _page(arguments.page, title, content)
    )
    write_atomically(RESULTS / INDEX, index(RESULTS))


def _printed(command: str, folder: Path) -> str:
    """Run a command and return what it prints, without spaces at the ends of lines."""
    printed = subprocess.run(
        [sys.executable, "-c", _PROGRAM, *command.split()],
        cwd=folder,
        env={**os.environ, "COLUMNS": _COLUMNS},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    ).stdout
    return "\n".join(line.rstrip() for line in printed.splitlines()).strip("\n") + "\n"


def _page(name: str, title: str, content: Mapping[str, Any]) -> str:
    shown = zip(content["commands"], content["printed"], strict=True)
    # Four marks: a model card has fences of its own.
    parts = [f"    {command}\n\n````text\n{text}````\n" for command, text in shown]
    made = (
        f"This page was written by `python benchmarks/printed.py {name}"
        f"{_FOLDER[name]}` on {content['date']}, on {content['machine']}."
    )
    return "\n".join([f"# {title}\n", *parts, made]) + "\n"


if __name__ == "__main__":
    main()
