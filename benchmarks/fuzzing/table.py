"""Every attack of every class, tried; the table of what was tried and what failed.

    python benchmarks/fuzzing/table.py [CLASS ...] [--seed 0] [--most N] [--keep]

A class is a module ``attacks_on_CLASS.py`` beside this one with ``attacks(seed)``,
which yields them. With ``--keep`` what came out is kept in ``results/CLASS.json``, and
the table in ``results/table.md``.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import random
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from attack import Attack, Impossible, warm

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results"
_ROUTE = re.compile(r"/(?:[\w.+-]+/)+")  # to a file of this machine


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("classes", nargs="*", metavar="CLASS", default=classes())
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--most", type=int, help="of each class, drawn by the seed")
    parser.add_argument("--keep", action="store_true")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="attacks-home-") as home:
        apart(home)
        for name in arguments.classes:
            found = tried(name, arguments.seed, arguments.most)
            print(f"{name}: {found['tried']} tried, {len(found['failed'])} failed")
            if arguments.keep:
                text = json.dumps(found, indent=1, ensure_ascii=False) + "\n"
                (RESULTS / f"{name}.json").write_text(text)
    if arguments.keep:
        (RESULTS / "table.md").write_text(table())


def apart(home: str) -> None:
    """Ask nothing of the Hub, and keep what is kept apart from the user's."""
    offline = ("HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE", "TRANSFORMERS_OFFLINE")
    # Read by the libraries when they are imported.
    os.environ.update(dict.fromkeys(offline, "1"), OMP_NUM_THREADS="1")
    os.environ["MERGEKIT_MAP_HOME"] = home
    sys.path[:0] = [str(HERE.parent), str(HERE.parents[1] / "tests")]
    warm()


def classes() -> list[str]:
    """List the classes of attacks."""
    return sorted(
        path.stem.removeprefix("attacks_on_") for path in HERE.glob("attacks_on_*.py")
    )


def tried(name: str, seed: int, most: int | None) -> dict[str, Any]:
    """Try the attacks of a class, and say which failed, and how."""
    module = importlib.import_module(f"attacks_on_{name}")
    attacks = list(module.attacks(seed))
    there = len(attacks)
    if most is not None and most < there:
        attacks = random.Random(seed).sample(attacks, most)
    began = time.monotonic()
    failed, impossible = failures(attacks)
    for why, count in Counter(impossible).items():
        print(f"  {count} of {len(attacks)} not tried: {why}", file=sys.stderr)
    commit = subprocess.check_output(
        ["git", "rev-parse", "--short", "HEAD"], cwd=HERE, text=True
    )
    return {
        "commit": commit.strip(),
        "date": datetime.now(UTC).date().isoformat(),
        "seed": seed,
        "seconds": round(time.monotonic() - began),
        "tried": len(attacks) - len(impossible),
        "there": there,
        "failed": {name: _ROUTE.sub("", problem) for name, problem in failed.items()},
    }


def failures(attacks: Iterable[Attack]) -> tuple[dict[str, str], list[str]]:
    """Try attacks; gives those that failed, and why others are not possible here."""
    failed, impossible = {}, []
    for attack in attacks:
        scratch = tempfile.TemporaryDirectory(
            prefix="attack-", ignore_cleanup_errors=True
        )
        try:
            with scratch as folder:
                problem = attack.attempt(Path(folder))
        except Impossible as why:
            impossible.append(str(why))
            continue
        if problem:
            failed[attack.name] = problem
            print(f"  {attack.name}\n    {problem}", file=sys.stderr, flush=True)
    return failed, impossible


def table() -> str:
    """Write the table of all kept results."""
    rows = [
        "| class | there are | tried | failed | on |",
        "| --- | ---: | ---: | ---: | --- |",
    ]
    for path in sorted(RESULTS.glob("*.json")):
        found = json.loads(path.read_text())
        rows.append(
            f"| {path.stem.replace('_', ' ')} | {found['there']} | {found['tried']} | "
            f"{len(found['failed'])} | {found['commit']}, {found['date']} |"
        )
    return "\n".join(rows) + "\n"


if __name__ == "__main__":
    main()
