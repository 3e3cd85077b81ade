"""The paper's tables of a comparison: fronts, win rates, and methods by preference."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from mergekit_map.compare.baselines import NAMES
from mergekit_map.compare.contest import DIRECT, OURS
from mergekit_map.compare.indicators import ComparedRun, Comparison, RSquared, Sums
from mergekit_map.compare.tables import Cell, Column, Spread, Table

_LABELS = {
    DIRECT: "Direct search",
    "sobol": "Sobol",
    "grid": "Grid",
    "moead": "MOEA/D",
    "nsga2": "NSGA-II",
    "nsga3": "NSGA-III",
    "sms_emoa": "SMS-EMOA",
    "cma_es": "CMA-ES",
    "qlognehvi": "qLogNEHVI",
    "optuna": "Optuna",
}


def comparison_tables(comparison: Comparison) -> list[Table]:
    """Make all tables of a comparison."""
    return [make(comparison) for make in (win_rate_table, methods_table, fronts_table)]


def win_rate_table(comparison: Comparison) -> Table:
    """Compare each run with direct search, as tables 2 and 3 of the paper do."""
    rows: list[list[Cell]] = [
        [
            run.name,
            run.models,
            len(run.tasks),
            direct.evaluations,
            direct.evaluations ** (1 / len(run.coefficients)),
            run.fronts[OURS].evaluations,
            direct.win_rate,
            _spread(run.r2) if run.r2.tasks else None,
            direct.win_rate_paid,
            run.fronts[OURS].charged,
        ]
        for run in comparison.runs
        for direct in [run.fronts[DIRECT]]
    ]
    return Table(
        name="win_rate",
        title="Win rate over direct search",
        caption=(
            "Win rate: how often a point of the front of MAP is better than one of the "
            "direct search (random merges, those that no other dominates), over all "
            f"pairs of {comparison.draws} points drawn from each and all tasks, as "
            f"measured; 50 % is a tie, ± over {comparison.repeats} draws. R²: the "
            "surrogates on the merges of the direct search, which they were not fitted "
            "to; ± over the tasks. Merges: how many each evaluated, and per axis of "
            "the box. Measured points of MAP's front assess it and do not count here; "
            "with them MAP has paid for as many merges as the last column says. As "
            "paid: the win rate of the front of what the search itself evaluated."
        ),
        columns=[
            *map(Column, ("search", "models", "tasks", "merges, direct search")),
            Column("per axis", digits=2),
            Column("merges, MAP"),
            Column("win rate", digits=1, percent=True),
            Column("R²"),
            Column("win rate, as paid", digits=1, percent=True),
            Column("merges, MAP and its front"),
        ],
        rows=rows,
    )


def methods_table(comparison: Comparison) -> Table:
    """Compare all methods by preference, as table 4 of the paper does."""
    runs = comparison.runs
    methods = list(dict.fromkeys(name for run in runs for name in run.methods))
    methods = [name for name in methods if name != OURS] + [OURS]
    rows: list[list[Cell]] = [
        [_LABELS.get(name, name), *(_spread(run.methods.get(name)) for run in runs)]
        for name in methods
    ]
    percent = comparison.unit == "percent"
    unit = (
        "The metrics are scores between 0 and 1, taken as they are."
        if percent
        else "Tasks have different units, so 1 is the best and 0 the worst value of a "
        "task on the front of all that was measured of this merge; other merges may "
        "lie outside."
    )
    return Table(
        name="methods",
        title="Preference-weighted sums, higher is better",
        caption=(
            f"Mean ± standard deviation over {comparison.preferences} random "
            f"preferences that add up to 1. {unit} MAP gives each preference the point "
            "of its front with the best predicted sum, and what counts is what was "
            "measured there: one merge more for each preference that has another. As "
            "paid: the best merge that the search itself measured. Searches give each "
            "the best merge that they measured. "
            "Single task models: every task by the fine-tuned model that is best at "
            "it, which no one checkpoint is. The best single model is chosen for each "
            "preference. Baselines have the parameters of `mergekit_map.compare."
            "baselines`; task arithmetic the scalar of 0.1 to 1 with the best "
            "equally weighted sum, as measured, and DARE-TA the same; the tuned ones "
            "have the scale and density with the best such sum. With the "
            "preference as weights, a model has the sum of the shares of the tasks it "
            "is best at."
        ),
        columns=[
            Column("method"),
            *(
                Column(heading, 2 if percent else 3, percent, bold_best=True)
                for heading in _headings(runs)
            ),
        ],
        rows=rows,
        # What no single checkpoint can be: each task has a model of its own.
        beyond=[i for i, name in enumerate(methods) if name == NAMES.singles],
    )


def fronts_table(comparison: Comparison) -> Table:
    """Compare the fronts of all searches with a reference and one another."""
    return Table(
        name="fronts",
        title="Fronts",
        caption=(
            "As measured, tasks scaled by ideal and nadir of the reference: the merges "
            "that no other dominates, of all that any search measured of this merge. "
            "HV: share of the reference's hypervolume. GD, IGD: generational distance "
            "and its inverse, p = 2 as printed in the paper's appendix, to the "
            "reference and to the front of the direct search, random. MAP wins: its "
            "win rate over the method. Documents: how many each measured, of all tasks "
            "and merges; MAP's are those of the search from its start to its end, and "
            "an opponent measures all of them on each merge. MAP, as paid: the merges "
            "that the search itself evaluated. Merges paid: those that had to be "
            "measured for all that the row shows, MAP's points of the front among them."
        ),
        columns=[
            *map(Column, ("search", "method", "merges", "documents", "points")),
            *map(Column, ("HV", "GD", "IGD")),
            *map(Column, ("GD to direct", "IGD to direct")),
            Column("MAP wins", digits=1, percent=True),
            Column("MAP wins, as paid", digits=1, percent=True),
            Column("merges paid"),
        ],
        rows=[
            [run.name, method, *vars(scores).values()]  # in the order of the columns
            for run in comparison.runs
            for method, scores in run.fronts.items()
        ],
    )


def _headings(runs: Sequence[ComparedRun]) -> list[str]:
    counts = Counter(run.models for run in runs)
    return [
        f"{run.models} models" + (f" ({run.name})" if counts[run.models] > 1 else "")
        for run in runs
    ]


def _spread(found: RSquared | Sums | None) -> Cell:
    return None if found is None else Spread(found.mean, found.std)
