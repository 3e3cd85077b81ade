"""The paper's tables 2, 3 and 4 for the family of eight, by the commands themselves.

    python benchmarks/family8.py FAMILY
    python benchmarks/paper_tables.py FAMILY FOLDER

Searches for every N are what a user would type; ``mergekit-map compare`` of all of them
writes the tables to FOLDER/compare. A search or comparison that was stopped goes on.
"""

from __future__ import annotations

import argparse
import os
import shlex
import subprocess
import sys
from pathlib import Path

import yaml
from family8 import config
from family8_text import DOMAINS

EVALUATIONS = {2: 8, 3: 13, 4: 20, 6: 36, 8: 60}
MAX_TOKENS = 512


def run(*words: str) -> None:
    """Run a command on one thread, and show it."""
    print("+", shlex.join(words), flush=True)
    executable = str(Path(sys.executable).with_name(words[0]))
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    subprocess.run([executable, *words[1:]], check=True, env=environment)


def main() -> None:
    """Search for every N, then compare."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("family", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--sizes", type=int, nargs="+", default=list(EVALUATIONS))
    parser.add_argument("--opponents", default="random,moead")
    parser.add_argument("--budget", default="200")
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    searches = []
    for size in arguments.sizes:
        names = DOMAINS[:size]
        search = {"evaluations": EVALUATIONS[size], "surrogate": "regularized"}
        content = config(
            arguments.family, names, names, max_tokens=MAX_TOKENS, **search
        )
        path = arguments.folder / f"n{size}.yml"
        path.write_text(yaml.safe_dump(content, sort_keys=False), encoding="utf-8")
        searches.append(str(arguments.folder / f"n{size}"))
        run("mergekit-map", "search", str(path), searches[-1])
    options = ["--out", str(arguments.folder / "compare"), "--seed", "0"]
    options += ["--opponents", arguments.opponents, "--budget", arguments.budget]
    run("mergekit-map", "compare", *searches, *options)


if __name__ == "__main__":
    main()
