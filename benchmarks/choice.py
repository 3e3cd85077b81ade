"""How often the choice of a search ships what it should not.

    python benchmarks/choice.py run RESULTS.jsonl
    python benchmarks/choice.py table RESULTS.jsonl > benchmarks/results/choice.md

Each front is of a synthetic search of two or three models and two to four tasks, whose
metric is a loss or the accuracy of 60 questions. The true value of every merge is known
in closed form. All merges are measured on one sample of documents. Fits, paired
differences, choice and advice are those of the package. The former rule chose by
predictions, among merges at least as good as the base.

*Dominated*: a measured merge is truly better on some task, by more than 1.645 paired
standard errors, and worse on none. *The base in disguise*: on no task truly better than
the base by more than 5 % of the range of the measured merges. *Worse than the base*: on
some task, by more than 1.645 paired standard errors. *Lost*: what the advised model
lacks of the best measured one, in the mean over the tasks, as a share of their ranges.
"""

from __future__ import annotations

import argparse
import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from contest_truth import ACCURACY, LOSS, Array, compared
from records import append, read
from scipy.special import ndtr
from scipy.stats import qmc

from mergekit_map.config.schema import SearchSpec, SelectSpec
from mergekit_map.optimize.front_filling import non_dominated
from mergekit_map.optimize.scalarization import farthest_point_subset
from mergekit_map.results.front import Front
from mergekit_map.results.limits import Anchors, Request
from mergekit_map.results.log import Evaluation, by_merge
from mergekit_map.results.paired import PairedMerges
from mergekit_map.results.selection import MERGE, advice, choose, choose_measured
from mergekit_map.search.finish import found_front
from mergekit_map.search.study import Candidate, Study, StudyResult
from mergekit_map.types import BASE, SOUP

RULES, LABELS = ("former", "present"), (MERGE, SOUP, BASE)
KINDS = ("trade-off", "soup is best", "a parent is best", "base is best", "no effect")
NOTABLE = 1.645  # standard errors
SLIGHT = 0.05  # of a task's range: what a base in disguise is better by at most


@dataclass(frozen=True, eq=False)
class Task:
    """The utility ``level + q(c) + own + response @ c + noise`` of each document.

    Here q is a concave quadratic. An answer is right where that is above 0.
    """

    slope: Array  # (d,) of q at the base
    curvature: Array  # (d, d)
    level: float
    answers: bool
    own: Array  # (n,) of each document
    response: Array  # (n, d)
    spread: tuple[float, float, float]  # of own, response and noise
    seed: int

    def utility(self, c: Array) -> float:
        """Return the true mean over all documents that there could be."""
        mean = self.level + float(self.slope @ c - c @ self.curvature @ c / 2)
        own, response, noise = self.spread
        scale = math.hypot(own, response * float(np.linalg.norm(c)), noise)
        return float(ndtr(mean / scale)) if self.answers else mean

    def sample(self, c: Array) -> Array:
        """Return the utility of each document of the sample; (n,)."""
        rng = np.random.default_rng([self.seed, *c.view(np.uint64) % 2**32])
        noise = self.spread[2] * rng.normal(size=len(self.own)) * (c != 0).any()
        quadratic = self.slope @ c - c @ self.curvature @ c / 2
        values = self.level + quadratic + self.own + self.response @ c + noise
        return (values > 0).astype(np.float64) if self.answers else values


def draw_task(rng: np.random.Generator, kind: str, own: int, d: int, best: int) -> Task:
    """Draw a task that its own model gains on, or whatever the kind of front says."""
    answers = bool(rng.random() < 0.5)
    A = rng.normal(size=(d, d)) / math.sqrt(d)
    curvature = A @ A.T * 0.3 + np.eye(d) * 0.6
    peak = {
        "trade-off": np.eye(d)[own] * rng.uniform(0.7, 1.1) + rng.uniform(-0.3, 0.3, d),
        "soup is best": 1 / d + rng.normal(0, 0.03, d),
        "a parent is best": np.eye(d)[best] * rng.uniform(0.9, 1.1),
        "base is best": -rng.uniform(0, 0.5, d),
        "no effect": np.zeros(d),
    }[kind]
    curvature *= 0.0 if kind == "no effect" else rng.uniform(0.1, 1.0)
    scales, n = (0.4, rng.uniform(0.03, 0.15), 0.005), 96
    if answers:
        scales, n = (0.8, rng.uniform(0.2, 0.6), 0.1), 60
    level = rng.uniform(0.2, 1.5) if answers else -4.0
    drawn = rng.normal(0, scales[0], n), rng.normal(0, scales[1], (n, d))
    seed = int(rng.integers(2**31))
    return Task(curvature @ peak, curvature, level, answers, *drawn, scales, seed)


class Simulation:
    """A search whose merges are measured by known functions."""

    def __init__(self, seed: int, kind: str) -> None:
        rng = np.random.default_rng([seed, KINDS.index(kind)])
        d, m, best = (int(rng.integers(*ends)) for ends in ((2, 4), (2, 5), (0, 2)))
        drawn = [draw_task(rng, kind, i % d, d, best) for i in range(m)]
        self.tasks = {f"task{i}": task for i, task in enumerate(drawn)}
        names = [f"model{i}" for i in range(d)]
        corners = {BASE: dict.fromkeys(names, 0.0), SOUP: dict.fromkeys(names, 1 / d)}
        corners |= {name: {n: float(n == name) for n in names} for name in names}
        self.study = study = Study(
            bounds=dict.fromkeys(names, (0.0, 1.0)),
            anchors=corners,
            tasks={n: ACCURACY if t.answers else LOSS for n, t in self.tasks.items()},
            definitions={name: name for name in self.tasks},
            merge="m",
            search=SearchSpec(surrogate="quadratic", seed=seed),
            select=SelectSpec(not_worse_than=BASE),
        )
        sobol = qmc.Sobol(d, seed=int(rng.integers(2**31))).random(16)
        self.log: list[Evaluation] = []
        self.measure(study.candidates(study.vectors(corners.values())))
        self.measure(study.candidates(sobol))

    def measure(self, planned: Sequence[Candidate]) -> None:
        """Measure merges on the documents of the sample."""
        for (role, c), name in itertools.product(planned, self.tasks):
            x = self.tasks[name].sample(self.study.vector(c))
            known = {"role": role, "merge": "m", "definition": name, "seconds": 0.0}
            known |= {"value": self.study.tasks[name].utility(x.mean()), "n": len(x)}
            known["stderr"] = x.std(ddof=1) / math.sqrt(len(x))
            self.log.append(Evaluation(coefficients=c, task=name, **known))

    def front(self) -> Front:
        """End a search, and compare its merges document by document.

        It measures three points of the front, then twice what it would choose. The
        front is the best of 1,024 merges, as the package's finder takes seconds.
        """
        study = self.study
        many = qmc.Sobol(len(study.bounds), scramble=False).random(1024)
        for shown in (3, 0, 0):
            surrogates = study.fit(self.log)
            Y = study.predict(surrogates, many)
            best = np.flatnonzero(non_dominated(Y))
            rows = many[best[farthest_point_subset(Y[best], 40)]]
            anchors = Anchors.measured((study.anchors, self.log))
            rows, selected = study.choose(surrogates, rows, anchors)
            new = rows[:shown] if shown else rows[[selected]]
            self.measure([("refinement", study.rounded(row)) for row in new])
        found = by_merge(self.log).values()
        X = study.vectors(next(iter(of.values())).coefficients for of in found)
        Y = study.utilities(found)
        rows = np.unique(np.vstack([rows, X[non_dominated(Y)]]), axis=0)
        result = StudyResult(surrogates, [study.rounded(row) for row in rows], 0)
        front = found_front(study, result, self.log)
        vectors = study.vectors(merge.coefficients for merge in front.all_merges)
        items = [[task.sample(x) for task in self.tasks.values()] for x in vectors]
        return compared(front, items)


def judge(simulation: Simulation, front: Front, advised: str) -> dict[str, Any]:
    """Compare the chosen merge with the truth."""
    whole = [i for i, m in enumerate(front.all_merges) if m.is_measured(*front.tasks)]
    places = {a.label: len(front.points) + i for i, a in enumerate(front.anchors)}
    X = simulation.study.vectors(merge.coefficients for merge in front.all_merges)
    tasks = simulation.tasks.values()
    truth = np.array([[task.utility(c) for task in tasks] for c in X])
    here = np.full(len(whole), front.selected)
    stderr = PairedMerges.of(front, np.array(whole), here).stderr
    ahead = truth[whole] - truth[front.selected]
    gain = truth[front.selected] - truth[places[BASE]]
    noise, width = stderr[whole.index(places[BASE])], np.ptp(truth[whole], axis=0)
    sums = (truth / np.where(width > 0, width, 1)).mean(axis=1)
    ahead[(ahead < 0).any(axis=1)] = 0  # of those that are somewhere worse
    return {
        "dominated": bool((ahead > NOTABLE * stderr).any()),
        "dominated by any amount": bool((ahead > 0).any()),
        "the base in disguise": bool((gain <= SLIGHT * width).all()),
        "worse than the base": bool((gain < -NOTABLE * noise).any()),
        "lost": float(sums[whole].max() - sums[places.get(advised, front.selected)]),
    }


def simulate(seed: int) -> Iterator[dict[str, Any]]:
    """Judge the former choice, by predictions, and the present one on a front."""
    simulation = Simulation(seed, kind := KINDS[seed % len(KINDS)])
    front = simulation.front()
    spec = SelectSpec(not_worse_than=BASE)
    Y = front.utilities(front.points, "predicted")
    exact = Anchors(Anchors.of(front).values)  # nothing allowed for noise
    index = choose(Request(spec, front.metrics, exact), Y)
    former = front.model_copy(update={"selected": index})
    front = choose_measured(front)
    for rule, one in zip(RULES, (former, front), strict=True):
        told = MERGE if one is former else advice(one)
        about = {"kind": kind, "rule": rule, "advice": told}
        yield about | judge(simulation, one, told)


def table(lines: Sequence[dict[str, Any]]) -> str:
    """Count the failures of each rule, and the advice for each kind of front."""
    rules = [[line for line in lines if line["rule"] == rule] for rule in RULES]
    rows = [f"# {(__doc__ or '').strip()}\n\nShares of {len(rules[1])} fronts:\n"]
    rows += ["| advised is a merge that is | formerly | now |\n|---|--:|--:|"]
    for key in (key for key, value in lines[0].items() if isinstance(value, bool)):
        bad = [np.mean([x[key] and x["advice"] == MERGE for x in r]) for r in rules]
        rows.append(f"| {key} | {bad[0]:.1%} | {bad[1]:.1%} |")
    rows += ["\n| fronts | number | advice: merge | soup | base | lost | formerly |"]
    rows += ["|---" + "|--:" * 6 + "|"]
    for kind in KINDS:
        before, of = ([x for x in r if x["kind"] == kind] for r in rules)
        told = [np.mean([x["advice"] == label for x in of]) for label in LABELS]
        lost = [np.mean([x["lost"] for x in r]) for r in (of, before)]
        cells = [f"{share:.0%}" for share in told] + [f"{one:.3f}" for one in lost]
        rows.append(f"| {kind} | {len(of)} | {' | '.join(cells)} |")
    return "\n".join(rows) + "\n"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("action", choices=["run", "table"])
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--seeds", nargs=2, type=int, default=(0, 500))
    asked = parser.parse_args()
    if asked.action == "run":
        asked.files[0].unlink(missing_ok=True)
        for seed in range(*asked.seeds):
            append(asked.files[0], *simulate(seed))
    else:
        print(table(read(*asked.files)), end="")
