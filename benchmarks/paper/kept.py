"""What an experiment found, kept as JSON and as a page, and the index of all pages."""

from __future__ import annotations

import datetime
import importlib.metadata
import itertools
import json
import math
import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from records import machine
from records import markdown as rows_of

from mergekit_map._version import __version__
from mergekit_map.compare.tables import Table, markdown
from mergekit_map.utils.files import write_atomically, write_json

_PACKAGES = ("mergekit", "torch", "transformers", "numpy", "scipy", "pymoo")
INDEX = "README.md"


@dataclass(frozen=True)
class Result:
    """What an experiment found on one family."""

    title: str  # with the paper's name of it
    headline: str  # a sentence with the numbers that matter, and the paper's
    tables: Sequence[Table]
    notes: Sequence[str] = ()  # what it was made of; differences to the paper


def keep(result: Result, made: Mapping[str, Any], out: Path) -> Path:
    """Write ``NAME.json``, ``NAME.md`` and the index; ``made`` says how."""
    content = {**made, **asdict(result), **origin()}
    path = out / made["folder"] / f"{made['name']}.json"
    write_json(path, content)
    write_atomically(path.with_suffix(".md"), page(result, content))
    write_atomically(out / INDEX, index(out))
    return path


def origin() -> dict[str, Any]:
    """Say when, where and by what something was measured."""
    versions = {"mergekit-map": __version__, "python": platform.python_version()}
    versions |= {name: importlib.metadata.version(name) for name in _PACKAGES}
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    return {"date": today, "machine": machine(), "versions": versions}


def page(result: Result, content: Mapping[str, Any]) -> str:
    """Write the page of a result."""
    name = content["name"]
    parts = [f"# {result.title}", result.headline]
    parts += [markdown(table).rstrip() for table in result.tables]
    parts += [f"- {note}" for note in result.notes]
    options = " ".join(content["options"])
    parts += [
        "## How it was made",
        f"    python benchmarks/paper.py {name} --families FOLDER {options}",
        f"On the family `{content['family']}` of size {content['size']} "
        f"({content['parameters']:,} parameters, seed {content['seed']}, "
        f"{content['digest']}), tasks of kind `loss`, "
        + _tokens(content["tokens"], content["block"])
        + "; direct search and MOEA/D with "
        f"{100 * content['share']:g} % of the paper's budgets. {content['date']}, "
        f"{content['machine']}; searches and comparisons that were not there from "
        f"another result took {content['seconds']:.0f} s. "
        + ", ".join(f"{k} {v}" for k, v in content["versions"].items())
        + ".",
    ]
    return "\n\n".join(parts) + "\n"


def _tokens(count: int, block: int) -> str:
    blocks = math.ceil(count / block)
    of = f"{blocks} blocks of it" if blocks > 1 else "one block of it"
    unknown = "" if blocks > 1 else ", whose error of measuring is not known"
    return f"{count} tokens of each text ({of}{unknown})"


def index(out: Path) -> str:
    """Write the index: what is kept of each family, in a line each."""
    parts = [
        "# Kept results",
        "The paper's tables, made anew by `benchmarks/paper.py` on "
        "families that scripts in `benchmarks/laboratory` train. Each page has its "
        "command, date, machine, seeds and versions, and the JSON beside it has the "
        "numbers. Pages before 2026-11-27 have an older surrogate. This page is made "
        "by the same command.",
        "[How the demo ends](demo.md), and [what the commands of the tutorial print]"
        "(tutorial.md).",
    ]
    kept = [json.loads(path.read_text()) for path in sorted(out.glob("*/*.json"))]
    kept.sort(key=_family)
    for (parameters, folder), of_family in itertools.groupby(kept, key=_family):
        parts.append(f"## {folder}, {parameters:,} parameters")
        rows = [
            (f"[{c['title']}]({folder}/{c['name']}.md)", c["headline"])
            for c in of_family
        ]
        parts.append("\n".join(rows_of(("result", "says"), rows)))
    return "\n\n".join(parts) + "\n"


def _family(content: Mapping[str, Any]) -> tuple[int, str]:
    return content["parameters"], content["folder"]
