"""The paper's tables, on families of the laboratory.

    python benchmarks/laboratory/build.py languages FOLDER --size 5m
    python benchmarks/paper.py table2 table4 --families FOLDER --size 5m

Each NAME (all of them by default) is made for each family of that size, from searches
and comparisons by the ordinary program, and kept in ``docs/results/FAMILY-SIZE/`` as
``NAME.md`` and ``NAME.json``. What is measured lies in run folders below ``--work`` and
is not measured again; names share it.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

import transformers
from laboratory.family import MANIFEST, Family, load
from paper.fronts import table2, table3, table7
from paper.kept import Result, keep
from paper.preferences import fresh, table4
from paper.runs import Runs, Unfit

NAMES: dict[str, Callable[[Runs], Result]] = {
    make.__name__: make for make in (table2, table3, table4, table7, fresh)
}
RESULTS = Path(__file__).resolve().parents[1] / "docs" / "results"


def main() -> None:
    """Make what was asked for."""
    asked = _parser().parse_args()
    transformers.utils.logging.disable_progress_bar()
    for family in _families(asked.families, asked.size, asked.family):
        for name in asked.names or NAMES:
            try:
                made = str(make(name, family, asked))
            except Unfit as reason:
                made = f"left out, {reason}"
            print(f"{family.folder.name} {name}: {made}")


def make(name: str, family: Family, asked: argparse.Namespace) -> Path:
    """Make one table of a family, and keep it."""
    folder = family.folder.name
    kept = asked.share, asked.tokens, asked.models, asked.dtype
    runs = Runs(family, asked.work / folder, *kept)
    result = NAMES[name](runs)
    made = {
        "name": name,
        "folder": folder,
        **{key: family.facts[key] for key in ("family", "size", "parameters", "seed")},
        "options": _options(family, asked),  # of the command, folders aside
        "share": asked.share,
        "tokens": asked.tokens,
        "block": family.facts["tasks"][0]["task"].get("block", 512),
        "digest": family.digest,  # of what its models do
        "seconds": sum(runs.spent),  # of what was not there yet
    }
    return keep(result, made, asked.out)


def _options(family: Family, asked: argparse.Namespace) -> list[str]:
    """Give what of the command decides what is made."""
    options = ["--size", family.facts["size"], "--family", family.facts["family"]]
    for option in ("share", "tokens", "models", "dtype"):
        value = getattr(asked, option)
        if value != _parser().get_default(option):
            options += [f"--{option}", f"{value}"]
    return options


def _families(folder: Path, size: str, name: str | None) -> list[Family]:
    found = sorted(folder.expanduser().glob(f"{name or '*'}-{size}/{MANIFEST}"))
    if not found:
        raise SystemExit(
            f"{folder} has no {name or 'family'}-{size}; make it with "
            f"benchmarks/laboratory/build.py {name or 'languages'} {folder} "
            f"--size {size}"
        )
    return [load(path.parent) for path in found]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME", choices=[*NAMES, []])
    parser.add_argument("--families", type=Path, required=True, metavar="FOLDER")
    parser.add_argument("--size", required=True)
    parser.add_argument("--family", help="one of them; all by default")
    parser.add_argument(
        "--share", type=float, default=1.0, help="of the paper's budgets of others"
    )
    parser.add_argument("--tokens", type=int, default=512, help="of each text")
    parser.add_argument("--models", type=int, default=8, help="of each family, at most")
    parser.add_argument("--dtype", help="of the merges; the family's by default")
    parser.add_argument("--work", type=Path, default=Path("paper-runs"))
    parser.add_argument("--out", type=Path, default=RESULTS)
    return parser


if __name__ == "__main__":
    main()
