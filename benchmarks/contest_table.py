"""The tables of ``contest.py``, from its record."""

from __future__ import annotations

import bisect
import datetime
import itertools
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from contest_truth import LOSS, Array, Truth, quality, scene
from records import Entry, machine, markdown, read
from scipy.optimize import minimize
from scipy.stats import qmc

from mergekit_map.compare.indicators import draw_preferences, hypervolume, scaled
from mergekit_map.optimize.nsga3 import compute_front, non_dominated

Score = Callable[[Array], float]
Merges = Array | Sequence[Sequence[float]]

FAMILIES = dict(n2_wide=2, n3_wide=3, n4=4, n5=5, n6=6, n7=7, n8=8)
MARKS = (20, 50, 100, 200, 500, 1000)  # merges that are paid
OURS, ASKED = "map", "map_asked"
DENSE = 14  # log2 of the merges that stand for a whole box
FITTED = (OURS, ASKED, "gp", "forest")  # who fit first, and have no limit of time
NAMES = {
    OURS: "MAP",
    ASKED: "MAP, asked",
    "gp": "Gaussian process, our front finder",
    "forest": "random forest",
    "random": "random",
    "sobol": "Sobol",
    "grid": "grid",
    "moead": "MOEA/D",
    "nsga2": "NSGA-II",
    "nsga3": "NSGA-III",
    "sms_emoa": "SMS-EMOA",
    "cma_es": "CMA-ES",
    "optuna": "Optuna",
    "qlognehvi": "BoTorch",
}
HEAD = """\
# The contest

    python benchmarks/contest_families.py FAMILIES {families}
    python benchmarks/contest.py run FAMILIES RUNS \\
        --seeds {count} --seconds SECONDS [--methods ...]
    python benchmarks/contest.py table FAMILIES RUNS

{when}; table of {day}, {machine}. N tiny models are merged by task arithmetic and
measured on the losses of N texts: for two models those of an earlier demo, for
three some that were trained to go far from their base, both in a box to 1.5; for more
those of `family8.py` (282 k parameters, a box to 1). All methods begin with the same
merges (the base, each model, the uniform soup) and **pay for every merge whose value
counts here**, these included. MAP is `mergekit-map search` with nothing set but the
evaluations ({searches}); the rest of a column is spent on points of the front that it
predicts, as many as there are. *MAP, asked* pays first for what `mergekit-map select
--prefer` gives each of the 20 preferences of the second tables. So it is with the
process and the forest, which fit as many merges of a plain design. MOEA/D, NSGA-II,
NSGA-III, SMS-EMOA and the grid search anew for each column, as they plan for what they
may spend; the others go on from column to column. An opponent's search ends after so
many seconds of processor time: {limits}. Who has fewer than 1000 merges *at the end*
was stopped by that. BoTorch asks for four merges at a time. CMA-ES goes for one sum of
the tasks, so that its front is a by-product.

Not run: {missing}.

Medians over the seeds (lowest to highest). A cell is empty where nothing was run, or
some seed did not come so far. *At the end*: what the method has after all that its
longest search evaluated, and how many merges that was. *s*: processor time of that
search, in which measuring is an interpolation. Bold: the best median of a column in
which MAP has one.

What a merge is worth is a fitted truth: an interpolation of merges that were measured
once. R² on a tenth left out of it is at least {quality:.5f}, in every family and task.
"""
VOLUMES = """\
Hypervolume of all that was paid, as a share of that of the front that our finder has of
the truth itself (100 points for two models, else 450; more points can have more).
"""
REGRETS = """\
What the best merge paid lacks of the best there is, mean over 20 random preferences, in
percent of a task's range over the front; lower is better.
"""
MATCHES = """\
Merges paid until the hypervolume is that of MAP's search alone, no point of its front
measured on top; medians over the seeds. `>`: not yet after so many in most seeds. Who
searches anew for each column is looked at there alone: ≤ 500 is over 200, 500 at most.
"""


def preferences(m: int) -> Array:
    """Give the preferences by which all are judged, (20, m)."""
    return draw_preferences(m, np.random.default_rng(0), 20)


class Reference:
    """The front of a family, and the best sum of each preference."""

    def __init__(self, truth: Truth, preferences: Array) -> None:
        """Look for what is best at all by preferences (P, m)."""
        d = len(truth.bounds)
        self._truth, self._preferences = truth, preferences
        if truth.metric is LOSS:
            found = compute_front(truth.utilities, truth.bounds, seed=0)
        else:  # it has steps
            found = qmc.Sobol(d, scramble=False).random_base2(DENSE)
            found = found * truth.bounds[:, 1]
            found = found[non_dominated(truth.utilities(found))]
        self._front = truth.utilities(found)  # (k, m)
        starts = found[self._sums(found).argmax(axis=0)]
        best = [
            minimize(lambda x, i=i: -self._sums(x[None])[0, i], x, bounds=truth.bounds)
            for i, x in enumerate(starts)
        ]
        self._best = -np.array([one.fun for one in best])  # (P,)

    def volume(self, X: Merges) -> float:
        """Give the share of the front's hypervolume that merges (k, d) have."""
        return hypervolume(self._truth.utilities(np.array(X)), self._front)

    def regret(self, X: Merges) -> float:
        """Give what the best of merges (k, d) lacks, in percent."""
        return float(100 * (self._best - self._sums(np.array(X)).max(axis=0)).mean())

    def _sums(self, X: Array) -> Array:
        """Sum utilities in units of their ranges over the front; (k, P)."""
        Y = scaled(self._truth.utilities(X), self._front)
        return np.asarray(Y @ self._preferences.T)


@dataclass(frozen=True, eq=False)
class Runs:
    """The searches of one method on one family; by seed, those of each budget."""

    seeds: Mapping[int, Mapping[int, Entry]]

    @property
    def longest(self) -> list[Entry]:
        """Give the longest search of each seed."""
        return [max(runs.values(), key=_measured) for runs in self.seeds.values()]

    @property
    def seconds(self) -> float:
        """Give the median of the longest searches."""
        longest = [
            max(e["seconds"] for e in runs.values()) for runs in self.seeds.values()
        ]
        return float(np.median(longest))

    def paid(self, seed: int, n: int) -> Array | None:
        """Give the first n merges that were paid, (n, d); None if fewer were."""
        runs = self.seeds[seed]
        longest = max(runs.values(), key=_measured)
        fit = [e for e in runs.values() if _measured(e) <= n and e["front"]]
        if fit:  # the largest search that leaves something of the charge, or nothing
            X = _everything(max(fit, key=_measured))
        elif n in runs:  # planned for it, and came so far
            X = np.array(runs[n]["measured"])
        elif len(runs) == 1 and not longest["front"]:  # goes on
            X = np.array(longest["measured"])
        else:
            return None
        return X[:n] if len(X) >= n else None


def _measured(entry: Entry) -> int:
    return len(entry["measured"])


def _everything(entry: Entry) -> Array:
    """Give all that was paid by a search."""
    return np.array([*entry["measured"], *entry["front"]])


def table(families: Path, path: Path) -> str:
    """Write Markdown: what each method has for what it paid, family by family."""
    found: dict[str, dict[str, Any]] = defaultdict(lambda: defaultdict(dict))
    entries = read(path)
    for e in entries:
        runs = found[e["family"]][e["method"]]
        runs.setdefault(e["seed"], {})[e["budget"]] = e
    parts, matches = [], []
    for family, d in FAMILIES.items():
        if OURS not in found[family]:
            continue
        measure = Reference(scene(families, family), preferences(d))
        methods = {m: Runs(found[family][m]) for m in NAMES if found[family][m]}
        matches.append([str(d), *_matches(methods, measure)])
        parts += [f"## {d} models (`{family}`)", ""]
        for words, score, form, better in (
            (VOLUMES, measure.volume, "{:.3f}", max),
            (REGRETS, measure.regret, "{:.2f}", min),
        ):
            parts += [words, *_scores(methods, score, form, better), ""]
    rivals = [name for name in NAMES if name not in FITTED]
    columns = ["models", "MAP paid", "has", *(NAMES[name] for name in rivals)]
    head = ["## Until others have what MAP has", "", MATCHES]
    about = _head(families, entries, found)
    return "\n".join([about, *head, *markdown(columns, matches), "", *parts])


def _head(families: Path, entries: Sequence[Entry], found: Mapping[str, Any]) -> str:
    names = [name for name in FAMILIES if OURS in found[name]]
    seeds = {e["seed"] for e in entries}
    searches = sorted({e["budget"] for e in entries if e["method"] == OURS})
    ran = {e["method"] for e in entries}
    missing = [NAMES[m] for m in NAMES if m not in ran]
    missing += [f"{d} models" for n, d in FAMILIES.items() if n not in names]
    return HEAD.format(
        missing=", ".join(missing) or "nothing of this",
        families=" ".join(names),
        day=datetime.date.today(),
        machine=machine(),
        count=len(seeds),
        when=f"Seeds {min(seeds)} to {max(seeds)}",
        searches=", ".join(map(str, searches)),
        limits=_limits(entries),
        quality=min(quality(families / f"{name}.npz").min() for name in names),
    )


def _limits(entries: Sequence[Entry]) -> str:
    """Name the seconds that opponents may take, most common first."""
    allowed: dict[str, set[float]] = defaultdict(set)
    for e in entries:
        if e["method"] not in FITTED:
            allowed[e["method"]].add(e["limit"])
    if not allowed:
        return ""
    [(usual, _)] = Counter(itertools.chain(*allowed.values())).most_common(1)
    others = [
        f"{NAMES[method]} {' or '.join(f'{limit:g} s' for limit in sorted(limits))}"
        for method, limits in allowed.items()
        if limits != {usual}
    ]
    return ", ".join([f"{usual:g} s", *others])


def _scores(
    methods: Mapping[str, Runs],
    score: Score,
    form: str,
    better: Callable[[Sequence[float]], float],
) -> list[str]:
    """Make a row for each method, a column for each number of merges paid."""
    values = {
        name: [_by_seed(runs, mark, score) for mark in MARKS]
        for name, runs in methods.items()
    }
    best = [
        better([float(np.median(row[i])) for row in values.values() if row[i]] or [0.0])
        for i in range(len(MARKS))
    ]
    rows = []
    for name, runs in methods.items():
        cells = [
            _cell(v, form, bold=bool(v and ours) and float(np.median(v)) == top)
            for v, ours, top in zip(values[name], values[OURS], best, strict=True)
        ]
        ends = [_everything(one) for one in runs.longest]
        paid = np.median([len(X) for X in ends])
        end = f"{_cell([score(X) for X in ends], form)} with {paid:.0f}"
        rows.append(
            [NAMES[name], str(len(runs.seeds)), *cells, end, f"{runs.seconds:.0f}"]
        )
    columns = ["method", "seeds", *map(str, MARKS), "at the end", "s"]
    return markdown(columns, rows)


def _by_seed(runs: Runs, mark: int, score: Score) -> list[float]:
    paid = [X for seed in runs.seeds if (X := runs.paid(seed, mark)) is not None]
    return [score(X) for X in paid] if len(paid) == len(runs.seeds) else []


def _cell(values: Sequence[float], form: str, *, bold: bool = False) -> str:
    if not values:
        return ""
    stars = "**" if bold else ""
    middle, low, high = (form.format(f(values)) for f in (np.median, min, max))
    return f"{stars}{middle}{stars} ({low} to {high})"


def _matches(methods: Mapping[str, Runs], measure: Reference) -> list[str]:
    """Count what others pay for as much as MAP's longest search has measured."""
    searches = [max(runs.items())[1] for runs in methods[OURS].seeds.values()]
    reached = [measure.volume(e["measured"]) for e in searches]
    wanted = float(np.median(reached))
    cells = [f"{np.median([_measured(e) for e in searches]):.0f}", f"{wanted:.3f}"]
    for name in NAMES:
        if name not in FITTED:
            known = name in methods
            cells.append(_reached(methods[name], measure, wanted) if known else "")
    return cells


def _reached(runs: Runs, measure: Reference, wanted: float) -> str:
    numbers = [_first(of, measure, wanted) for of in runs.seeds.values()]
    middle = float(np.median(numbers))
    if not np.isfinite(middle):
        return f"> {np.median([_measured(one) for one in runs.longest]):.0f}"
    anew = any(len(by_budget) > 1 for by_budget in runs.seeds.values())
    return f"≤ {middle:.0f}" if anew else f"{middle:.0f}"


def _first(by_budget: Mapping[int, Entry], measure: Reference, wanted: float) -> float:
    def is_enough(merges: Sequence[Sequence[float]]) -> bool:
        return measure.volume(merges) >= wanted

    if len(by_budget) > 1:  # a search of its own for each mark
        searches = sorted(by_budget.items())
        marks = (mark for mark, e in searches if is_enough(e["measured"]))
        return next(marks, np.inf)
    [e] = by_budget.values()
    merges = e["measured"]
    sizes = range(1, len(merges) + 1)
    # More merges never have less.
    place = bisect.bisect_left(sizes, True, key=lambda n: is_enough(merges[:n]))
    return sizes[place] if place < len(sizes) else np.inf
