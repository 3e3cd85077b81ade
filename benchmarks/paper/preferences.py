"""Table 4: what random preferences get of each method; once more, on unseen texts.

What a method gives a preference was chosen by measurements, and table 4 counts these
same ones: of many merges it prefers the lucky. ``fresh`` measures the merges that were
chosen on others: the second half of each text.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from mergekit_map.compare.baselines import NAMES
from mergekit_map.compare.contest import OURS_PAID
from mergekit_map.compare.indicators import (
    best_merges,
    mean_and_std,
    scaled,
    weighted_sums,
)
from mergekit_map.compare.tables import Cell, Column, Spread, Table
from mergekit_map.config.schema import SelectSpec
from mergekit_map.results.selection import choose_point
from mergekit_map.results.surrogates import read_finished
from mergekit_map.surrogates.arrays import FloatArray
from mergekit_map.utils.files import write_atomically
from paper.adamerging import STEPS
from paper.kept import Result
from paper.published import PREFERENCE_SUMS, WIN_RATES
from paper.runs import OPPONENTS, Compared, Runs, Searched

DEFAULT, LITERAL = "MAP, default", "MAP, algorithm 1"
_OWN, ASKED = "MAP, default, own merges", "MAP, default, select"
_OURS = {DEFAULT, LITERAL, _OWN, ASKED, "MAP"}
_CAPTION = (
    "Mean ± standard deviation over 20 random preferences. 1 is the best and 0 the "
    "worst value of a task on the front of all that was measured of these models; "
    "other merges may lie outside. MAP gives a preference the point of its front that "
    "is predicted best for it, and what counts is what was measured there, at no "
    "charge; *select* is what `mergekit-map select --prefer` gives, which may lie "
    "between points of the front, measured likewise; *own merges* (what the search "
    "measured and fitted, to its end), direct search and MOEA/D give the best that "
    "they measured and paid. What the baselines are: `docs/comparing.md`."
)
TOKENS = 1024  # of each text, at most
_OF_FRESH = (
    "How much more a default search gives a preference than others that measure many "
    "merges: mean of the differences over 20 preferences ± its standard error over "
    "these, which is not that of measuring, in the units of table 4. *Front* and "
    "*select*: the point of its front that is predicted best, and what `mergekit-map "
    "select --prefer` gives. *Seen*: as in table 4, by what each method itself "
    "measured (of these merges, for MAP). *Fresh*: the same merges, {what}."
)
# What no single checkpoint is, so that it competes with none.
_BEYOND = {NAMES.singles, "MTL"}
_LABELS = {"random": "Direct search", "moead": "MOEA/D", "MAP": DEFAULT}


def table4(runs: Runs) -> Result:
    """Hold MAP against every baseline, by 20 preferences."""
    sums = {n: _sums(runs, n) for n in runs.sizes}
    ours = {
        n: {method: mean_and_std(one) for method, one in of_size.items()}
        for n, of_size in sums.items()
    }
    margins = [_margin(n, sums[n]) for n in sums]
    first, chosen, paid = (sum(row[i] == 1 for row in margins) for i in (1, 2, 3))
    leads = {row[0]: row[5] for row in margins}
    said = ", ".join(f"N = {n}: {a.mean:+.3f} ± {a.std:.3f}" for n, a in leads.items())
    return Result(
        title="Table 4: preference-weighted sums against all baselines",
        headline=(
            f"A default search is first of all methods for {first} of {len(ours)} "
            f"numbers of models by its front, for {chosen} by what `select --prefer` "
            f"gives, for {paid} by the merges alone that it paid; its front is ahead "
            "of the best other, direct search and MOEA/D having "
            f"{100 * runs.share:g} % of the paper's budgets, by {said} (paper: first "
            "for 6 of 7)."
        ),
        tables=[
            _table("sums", "Here", ours, digits=3, caption=_CAPTION),
            _margins(margins),
            _table(
                "published",
                "In the paper, accuracies in per cent",
                {n: _of_the_paper(n) for n in ours},
                digits=2,
            ),
        ],
        notes=[
            "The paper's models are fine-tunes of CLIP ViT-B/32. *MTL* is one model "
            "trained on all tasks, which is not trained here.",
            f"AdaMerging takes {STEPS} longer steps, its authors 500, "
            "all on the part of a text that is measured here, at most 16 blocks of it: "
            "this is not its best.",
        ],
    )


def asked(
    runs: Runs, models: Sequence[str], compared: Compared
) -> tuple[FloatArray, FloatArray]:
    """Choose a merge by ``select --prefer`` for each preference, and measure it.

    It may lie between points of the front. Returns the merges (P, d) and what they are
    worth (P, m). They are measured beside the run folder, whose log says what others
    are held to.
    """
    front, reference = compared.front, compared.contest.reference
    # ``select`` scales each task by its range over the front, as predicted.
    predicted = scaled(front.utilities(front.points, "predicted"), reference)
    surrogates = read_finished(compared.path).surrogates
    chosen = []
    for weights in compared.preferences * np.ptp(predicted, axis=0):
        prefer = dict(zip(front.metrics, weights.tolist(), strict=True))
        found = choose_point(front, SelectSpec(prefer=prefer), surrogates).chosen
        chosen.append(found.coefficients)
    X = compared.study.vectors(chosen)
    values = runs.measured(runs.folder / "asked", runs.content(models), X)
    return X, -values  # of losses


def _sums(runs: Runs, n: int) -> dict[str, FloatArray]:
    compared = runs.compare(n)
    terms = compared.preferences, compared.contest.reference
    methods: Mapping[str, Sequence[float]] = compared.report["methods"]
    found = {
        _LABELS.get(name, name): np.array(sums)
        for name, sums in methods.items()
        if None not in sums and name != OURS_PAID
    }
    for name, Y in compared.adapted.items():
        found[name] = weighted_sums(Y, *terms)
    literal = runs.as_in_the_paper(runs.models[:n], WIN_RATES[n].merges)
    sums, ours = as_predicted(literal, *terms), found.pop(DEFAULT)
    _, worth = asked(runs, runs.models[:n], compared)
    chosen = weighted_sums(worth, *terms)
    own = compared.own[best_merges(compared.own, *terms)]
    return {
        **found,
        _OWN: weighted_sums(own, *terms),
        LITERAL: sums,
        DEFAULT: ours,
        ASKED: chosen,
    }


def as_predicted(
    searched: Searched, preferences: FloatArray, reference: FloatArray
) -> FloatArray:
    """Give each preference the measured point of a front that is predicted best."""
    points = searched.assessed()
    chosen = best_merges(points.predicted, preferences, reference)
    return weighted_sums(points.measured[chosen], preferences, reference)


def _rivals(sums: Mapping[str, Spread]) -> dict[str, float]:
    return {m: s.mean for m, s in sums.items() if m not in _OURS | _BEYOND}


def _margin(n: int, sums: Mapping[str, FloatArray]) -> list[Any]:
    others = _rivals({method: mean_and_std(of) for method, of in sums.items()})
    best = max(others, key=others.__getitem__)
    paper = _of_the_paper(n)
    theirs = _rivals(paper)
    # Without the tuned ones, and weights per layer.
    shared = {method: mean for method, mean in others.items() if method in paper}
    rival = max(theirs, key=theirs.__getitem__)
    return [
        n,
        *(
            1 + sum(bool(value > sums[mine].mean()) for value in others.values())
            for mine in (DEFAULT, ASKED, _OWN)
        ),
        best,
        *(ahead(sums[mine], sums[best]) for mine in (DEFAULT, ASKED, _OWN, LITERAL)),
        ahead(sums[DEFAULT], sums[max(shared, key=shared.__getitem__)]),
        1 + sum(value > paper["MAP"].mean for value in theirs.values()),
        rival,
        (paper["MAP"].mean - theirs[rival]) / 100,
    ]


def _of_the_paper(n: int) -> dict[str, Spread]:
    return {method: Spread(*of[n]) for method, of in PREFERENCE_SUMS.items()}


def ahead(ours: FloatArray, theirs: FloatArray) -> Spread:
    """Compare preference by preference: the mean, and its standard error."""
    differences = ours - theirs
    return Spread(
        float(differences.mean()),
        float(differences.std(ddof=1) / math.sqrt(len(differences))),
    )


def _margins(rows: Sequence[Sequence[Cell]]) -> Table:
    return Table(
        name="margins",
        title="MAP beside the best other method",
        caption=(
            "Places of a default search among all methods but single task models: by "
            "its front, what `select` gives, its own merges. "
            "Margins are over the best other, preference by preference, ± the standard "
            "error of their mean over preferences, which share few merges: not that of "
            "measuring, nor what another seed of the search gives. *Over the paper's "
            "methods*: of the front, over the best that the paper has, too, which are "
            "neither tuned nor direct search. Its own margins are in points of "
            "accuracy."
        ),
        columns=[
            *map(Column, ("N", "place", "select", "own merges", "best other")),
            *map(Column, ("margin, default", "margin, select", "margin, own merges")),
            *map(Column, ("margin, algorithm 1", "margin over the paper's methods")),
            *map(Column, ("paper: place", "paper: best other")),
            Column("paper: margin", digits=2, percent=True),
        ],
        rows=rows,
    )


def _table(
    name: str,
    title: str,
    sums: Mapping[int, Mapping[str, Spread]],
    *,
    digits: int,
    caption: str = "",
) -> Table:
    methods = list(dict.fromkeys(m for of_size in sums.values() for m in of_size))
    methods.sort(key=lambda method: method in _OURS)  # the last
    return Table(
        name=name,
        title=title,
        caption=caption,
        columns=[
            Column("method"),
            *(Column(f"{n} models", digits) for n in sums),
        ],
        rows=[[m, *(of_size.get(m) for of_size in sums.values())] for m in methods],
    )


def fresh(runs: Runs) -> Result:
    """Hold what methods gave the preferences against items that they did not see."""
    rows = [row for n in runs.sizes for row in _rows(runs, n)]
    others = [row for row in rows if row[1] != _OWN]
    ahead_of = [sum(row[i].mean > 0 for row in others) for i in range(2, len(rows[0]))]
    what = f"on {TOKENS} tokens of the other half of each text"
    return Result(
        title="Fresh: the merges of table 4 on items that nobody saw",
        headline=(
            f"A default search is ahead in {ahead_of[0]} of {len(others)} "
            f"comparisons with other methods by what was measured to search, in "
            f"{ahead_of[1]} {what}; what `select --prefer` gives of it in "
            f"{ahead_of[2]} and {ahead_of[3]} (not in the paper)."
        ),
        tables=[
            Table(
                name="fresh",
                title="How far MAP is ahead",
                caption=_OF_FRESH.format(what=what),
                columns=[
                    *(Column("N"), Column("ahead of")),
                    *(Column("front: seen", 4), Column("front: fresh", 4)),
                    *(Column("select: seen", 4), Column("select: fresh", 4)),
                ],
                rows=rows,
            )
        ],
    )


def _rows(runs: Runs, n: int) -> list[list[Any]]:
    models = runs.models[:n]
    compared = runs.compare(n)
    chosen = _chosen(runs, models, compared)
    folder = runs.folder / "fresh"
    X = np.vstack([X for X, _ in chosen.values()])
    anew = runs.measured(folder, _second_halves(runs, models, folder), X)
    parts = np.split(-anew, len(chosen))  # of losses
    terms = compared.preferences, compared.contest.reference
    sums = {
        name: [weighted_sums(Y, *terms) for Y in (seen, part)]
        for (name, (_, seen)), part in zip(chosen.items(), parts, strict=True)
    }
    ours = [sums.pop(name) for name in (DEFAULT, ASKED)]
    return [
        [n, name, *map(ahead, ours[0], of), *map(ahead, ours[1], of)]
        for name, of in sums.items()
    ]


def _chosen(
    runs: Runs, models: Sequence[str], compared: Compared
) -> dict[str, tuple[FloatArray, FloatArray]]:
    """Give what each preference gets: merges (P, d), and what was measured (P, m)."""
    terms = compared.preferences, compared.contest.reference
    assessed = compared.assessed()
    shown = compared.study.vectors(compared.shown)
    rows = best_merges(assessed.predicted, *terms)
    found = {
        DEFAULT: (shown[rows], assessed.measured[rows]),
        ASKED: asked(runs, models, compared),
    }
    own = compared.study.vectors(compared.own_merges)
    rivals = compared.contest.rivals
    of = {_OWN: (own, compared.own)}
    of |= {_LABELS[name]: (rivals[name].X, rivals[name].Y) for name in OPPONENTS}
    for name, (X, Y) in of.items():
        rows = best_merges(Y, *terms)
        found[name] = (X[rows], Y[rows])
    return found


def _second_halves(runs: Runs, models: Sequence[str], folder: Path) -> dict[str, Any]:
    """Return the configuration of some models, on the second half of each text."""
    content = runs.content(models)
    for task in content["map"]["tasks"].values():
        source = Path(task["perplexity"]["file"])
        lines = source.read_text(encoding="utf-8").splitlines(keepends=True)
        write_atomically(folder / source.name, "".join(lines[len(lines) // 2 :]))
        task["perplexity"] = {**task["perplexity"], "file": str(folder / source.name)}
        task["max_tokens"] = TOKENS
    return content
