"""Searches that measure a subset of the documents, against those that measure all.

    python benchmarks/contest_families.py FAMILIES docs2 acc2 ...
    python benchmarks/documents.py run FAMILIES RUNS
    python benchmarks/documents.py table RUNS

Families have known true values, document by document (``contest_truth.py``). A search
is the whole study. Anchors, measured points of the front and the choice are measured on
all documents.

Kept is a line per search: how many documents were measured; the hypervolume of the
front and the regret of the chosen point, both in truth and as in the contest
(``contest_table.py``); how far estimates and predictions were off.
"""

from __future__ import annotations

import itertools
from argparse import Namespace
from collections import defaultdict
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from contest import Documents, run_search, study_of
from contest_table import Reference
from contest_truth import scene
from records import Entry, markdown, parsers, read, run_missing

from mergekit_map.config.schema import SearchSpec

FAMILIES = ("docs2", "docs3", "docs4", "acc2_200", "acc3_200")
COUNTS = ("all", "16", "32", "64")


def search(families: Path, job: Entry) -> Entry:
    """Run a whole study, and look its front and its choice up in truth."""
    family, documents, seed = job.values()
    truth = scene(families, family)
    study = study_of(truth, SearchSpec(seed=seed))
    size = truth.items(np.zeros((1, len(truth.bounds)))).shape[2]
    if documents != "all":
        study = replace(study, documents=dict.fromkeys(study.tasks, int(documents)))
    result, lines = run_search(study, Documents(study, truth))
    d, front = len(study.tasks), study.vectors(result.front)
    reference = Reference(truth, np.full((1, d), 1 / d))
    subset = [e for e in lines if not e.whole]
    known = truth.predict(study.vectors([e.coefficients for e in subset]))
    places = [truth.names.index(e.task) for e in subset]
    return {
        "front": reference.volume(front),
        "regret": reference.regret(front[[result.selected]]),
        "documents": sum(e.n for e in lines) / size / len(truth.names),
        "merges": len({e.key[0] for e in lines}),
        "asked": sum(e.n for e in subset) / size / max(len(subset), 1),
        "errors": [
            (e.value - float(values[place])) / e.sampling
            for e, values, place in zip(subset, known, places, strict=True)
            if e.sampling
        ],
        # Of what the surrogates say in the end of the front, before the last fit.
        "predictions": [
            (e.value - e.foretold.value) / e.foretold.stderr
            for e in lines
            if e.role == "front" and e.foretold and e.foretold.stderr
        ],
    }


def run(arguments: Namespace) -> None:
    """Do the searches that the record does not have yet."""
    wanted = arguments.families, arguments.documents, range(arguments.seeds)
    jobs = (dict(zip(_KEYS, job, strict=True)) for job in itertools.product(*wanted))
    run_missing(arguments.runs, jobs, partial(search, arguments.folder))


def table(arguments: Namespace) -> None:
    """Print medians over the seeds, with the worst."""
    found: dict[tuple[str, str], list[dict[str, Any]]] = defaultdict(list)
    for entry in read(arguments.runs):
        found[entry["family"], entry["documents_of"]].append(entry)
    rows = []
    for (family, documents), entries in sorted(found.items()):
        column = {k: np.array([e[k] for e in entries]) for k in _SHOWN}
        used = f"{np.median(column['documents']):.1f} of {column['merges'].mean():.1f}"
        cells = [
            *(family, documents, str(len(entries))),
            f"{np.median(column['asked']):.3f}" if documents != "all" else "1",
            used,
            f"{np.median(column['front']):.4f} ({column['front'].min():.4f})",
            f"{np.median(column['regret']):.2f} ({column['regret'].max():.2f})",
        ]
        for key in ("errors", "predictions"):
            z = np.concatenate([e[key] for e in entries])
            covered = np.abs(z) <= 1.96
            cells.append(f"{covered.mean():.3f} of {len(z)}" if len(z) else "")
        rows.append(cells)
    columns = ("family", "measured", "seeds", "asked", "documents", "front")
    columns = (*columns, "regret, %", "covered", "foretold")
    print("\n".join(markdown(columns, rows)))


_KEYS = ("family", "documents_of", "seed")
_SHOWN = ("asked", "documents", "merges", "front", "regret")


def main() -> None:
    parser, running, reading = parsers(__doc__, run, table, seeds=5)
    running.add_argument("--families", nargs="+", default=FAMILIES)
    running.add_argument("--documents", nargs="+", default=COUNTS)
    reading.add_argument("runs", type=Path)
    arguments = parser.parse_args()
    arguments.call(arguments)


if __name__ == "__main__":
    main()
