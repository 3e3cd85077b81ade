"""What a search of ours knows after a few merges: front, fits and choice.

    python benchmarks/contest_families.py FAMILIES
    python benchmarks/contest_fits.py run FAMILIES RUNS
    python benchmarks/contest_fits.py table FAMILIES RUNS... > RESULT.md

A search of ours is the whole study, as a user gets it who sets nothing but the
evaluations. Opponents are those of ``mergekit-map compare``, which begin where they
like here; ``contest.py`` has all begin with the same merges. Kept is a line per search;
what is there is not run again.
"""

from __future__ import annotations

from argparse import Namespace
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from contest import Documents, run_search, study_of
from contest_table import Reference
from contest_truth import REAL, SCENES, UNSEEN, Truth, compared, scene, unseen_merges
from records import Entry, markdown, parsers, read, run_missing

from mergekit_map.compare.opponents import OPPONENTS, Budget
from mergekit_map.config.schema import SearchSpec
from mergekit_map.results.answer import poor_tasks
from mergekit_map.results.log import by_merge
from mergekit_map.results.selection import choose_measured
from mergekit_map.search.finish import found_front
from mergekit_map.surrogates.fit import r_squared

OURS = "ours"
FAMILIES = {**SCENES, **REAL}
Searches = dict[int, list[Entry]]  # of a method, by budget
POOR = 0.9  # a true R2 below this is a bad fit
HEAD = f"""\
# What a search knows after a few merges

    python benchmarks/contest_families.py FAMILIES
    python benchmarks/contest_fits.py run FAMILIES RUNS
    python benchmarks/contest_fits.py table FAMILIES RUNS

Medians over the seeds, and the worst seed in brackets. *Front*: hypervolume of the true
values of the recommended points, as a share of that of the same finder run on the truth
(of accuracies, which have steps: of that of a dense grid). *R²*: of the worst task on
{UNSEEN} unseen merges. *Regret*: what the merge that `run` would ship, chosen among
the measured ones item by item, lacks of the best even sum of the tasks, each in units
of its range over the true front, in percent. *Covered*: the share of true values within
± 1.96 standard errors, of the worst task. *Merges*: all that were measured.
"""

BUDGETS = {
    2: (6, 8, 10, 12, 14, 16, 20, 30),
    3: (8, 10, 16, 25, 40),
    4: (10, 14, 20, 25, 40),
    7: (16, 24, 36, 60),
}
# Ours measures some merges of its front on top, so that opponents may have more.
EXTRA = 10
# The first n points are what it has after n: one run does for all budgets.
SEQUENTIAL = frozenset({"random", "sobol", "qlognehvi", "optuna"})
SLOWEST, SLOWEST_D, SLOWEST_BUDGET = "qlognehvi", 4, 40
NORMAL_95 = 1.96


def our_search(truth: Truth, budget: int, seed: int) -> dict[str, Any]:
    """Run a whole study, and see what its surrogates know of unseen merges."""
    study = study_of(truth, SearchSpec(evaluations=budget, seed=seed))
    result, log = run_search(study, Documents(study, truth))
    front = found_front(study, result, log)
    items = truth.items(study.vectors(merge.coefficients for merge in front.all_merges))
    shipped = choose_measured(compared(front, [*items])).chosen
    poor = poor_tasks(front)
    measured = [dict(key) for key in by_merge(log)]
    roles = [e.role for e in log if e.task == truth.names[0]]
    unseen = unseen_merges(truth.bounds)
    Y, surrogates = truth.predict(unseen), result.surrogates.values()
    predicted = np.column_stack([s.predict(unseen) for s in surrogates])
    stderr = np.column_stack([s.stderr(unseen) for s in surrogates])
    covered = np.abs(Y - predicted) <= NORMAL_95 * stderr
    return {
        "measured": study.vectors(measured).tolist(),
        "searched": sum(role != "front" for role in roles),
        "front": study.vectors(result.front).tolist(),
        "shipped": study.vector(shipped.coefficients).tolist(),
        "said": [task in poor for task in truth.names],
        "r2": [r_squared(y, p) for y, p in zip(Y.T, predicted.T, strict=True)],
        "covered": covered.mean(axis=0).tolist(),
    }


def opponent(truth: Truth, name: str, budget: int, seed: int) -> dict[str, Any]:
    """Let an opponent spend the budget."""
    allowed = Budget(truth.utilities, truth.bounds, len(truth.names), budget)
    OPPONENTS[name](allowed, np.random.default_rng(seed))
    return {"measured": allowed.X.tolist(), "sequential": name in SEQUENTIAL}


def jobs(arguments: Namespace) -> Iterator[dict[str, Any]]:
    """List the searches asked for, seed by seed."""
    for seed in range(arguments.seeds):
        for family in arguments.families:
            for method in arguments.methods:
                for budget in _budgets(method, FAMILIES[family]):
                    key = {"family": family, "method": method}
                    yield {**key, "budget": budget, "seed": seed}


def _budgets(method: str, d: int) -> Sequence[int]:
    if method == SLOWEST:
        return (SLOWEST_BUDGET,) if d <= SLOWEST_D else ()
    budgets = BUDGETS[d]
    if method in SEQUENTIAL:
        return (budgets[-1] + EXTRA,)
    if method in OPPONENTS:
        return (*budgets, budgets[-1] + EXTRA)
    return budgets


def do(families: Path, key: dict[str, Any]) -> dict[str, Any]:
    """Do one search; returns what it came to."""
    truth = scene(families, key["family"])
    method, search = key["method"], (key["budget"], key["seed"])
    if method == OURS:
        return our_search(truth, *search)
    return opponent(truth, method, *search)


def run(arguments: Namespace) -> None:
    """Do all searches that the record does not have yet."""
    run_missing(arguments.runs, jobs(arguments), partial(do, arguments.folder))


def table(families: Path, runs: Sequence[Path]) -> str:
    """Write Markdown: what each way of searching comes to, scene by scene."""
    entries = read(*runs)
    parts = []
    for name, d in FAMILIES.items():
        searches: dict[str, Searches] = defaultdict(dict)
        for entry in entries:
            if entry["family"] == name:
                by_budget = searches[entry["method"]]
                by_budget.setdefault(entry["budget"], []).append(entry)
        if not searches:
            continue
        reference = Reference(scene(families, name), np.full((1, d), 1 / d))
        ours = dict(sorted(searches.pop(OURS, {}).items()))
        parts += [f"## {name}", "", *_fits(ours, reference), ""]
        parts += [*_measured(searches, ours, reference), ""]
    return "\n".join([HEAD, *parts, *_warnings(entries)])


def _fits(ours: Searches, reference: Reference) -> list[str]:
    """Tell what is predicted and recommended, a row for each budget."""
    columns = "method", "budget", "seeds", "merges", "front", "R²", "regret", "covered"
    rows = []
    for budget, found in ours.items():
        regrets = [reference.regret([e["shipped"]]) for e in found]
        cells = [
            _median([reference.volume(e["front"]) for e in found], min, "{:.4f}"),
            _median([min(e["r2"]) for e in found], min, "{:.3f}"),
            _median(regrets, max, "{:.2f}"),
            _median([min(e["covered"]) for e in found], min, "{:.2f}"),
        ]
        merges = f"{_used(found):.1f}"
        rows.append([OURS, str(budget), str(len(found)), merges, *cells])
    return markdown(columns, rows)


def _used(found: Sequence[Entry]) -> float:
    return float(np.mean([len(e["measured"]) for e in found]))


def _measured(
    rivals: Mapping[str, Searches], ours: Searches, reference: Reference
) -> list[str]:
    """Hold what a search of ours has measured against opponents' as many merges."""
    curves = {
        name: sorted(
            point for found in of.values() for point in _curve(found, reference)
        )
        for name, of in rivals.items()
    }
    rows = []
    for budget, found in ours.items():
        used = _used(found)
        volumes = [reference.volume(e["measured"]) for e in found]
        theirs = [
            float(np.interp(used, *np.array(curve).T)) for curve in curves.values()
        ]
        best = "**" if np.median(volumes) >= max(theirs, default=0.0) else ""
        cells = [f"{volume:.3f}" for volume in theirs]
        own = best + _median(volumes, min, "{:.3f}") + best
        rows.append([OURS, str(budget), f"{used:.1f}", own, *cells])
    return markdown(("method", "budget", "merges", "measured", *curves), rows)


def _curve(found: Sequence[Entry], reference: Reference) -> list[tuple[float, float]]:
    """Give merges and the median volume of the first so many, for one budget's runs.

    A search by populations is only taken at its whole budget, as that is what it was
    planned for.
    """
    whole = len(found[0]["measured"])
    sizes = range(4, whole + 1, 2) if found[0].get("sequential") else [whole]
    return [
        (n, float(np.median([reference.volume(e["measured"][:n]) for e in found])))
        for n in sizes
    ]


def _warnings(entries: Iterable[Entry]) -> list[str]:
    """Count fits: whether they are bad, and whether that was said."""
    fits = Counter(
        (r2 < POOR, said)
        for entry in entries
        if "said" in entry
        for r2, said in zip(entry["r2"], entry["said"], strict=True)
    )
    row = [
        f"{fits[poor, True]} of {fits[poor, True] + fits[poor, False]}"
        for poor in (True, False)
    ]
    columns = ("method", f"R² below {POOR}: said", "false alarms")
    return ["## Predictions are poor", "", *markdown(columns, [[OURS, *row]])]


def _median(
    values: Sequence[float], worst: Callable[[Sequence[float]], float], form: str
) -> str:
    return f"{form} ({form})".format(float(np.median(values)), worst(values))


def main() -> None:
    parser, running, reading = parsers(
        __doc__, run, lambda a: print(table(a.folder, a.runs)), seeds=5
    )
    running.add_argument("--families", nargs="+", default=list(SCENES))
    methods = (OURS, *OPPONENTS)
    running.add_argument("--methods", nargs="+", choices=methods, default=methods)
    reading.add_argument("folder", type=Path)
    reading.add_argument("runs", type=Path, nargs="+")
    arguments = parser.parse_args()
    arguments.call(arguments)


if __name__ == "__main__":
    main()
