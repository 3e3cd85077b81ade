"""A further merge, or more documents of one that is there."""

from __future__ import annotations

from typing import Any

import numpy as np
from fakes import LOSS

from mergekit_map.config.specs import SearchSpec, SelectSpec
from mergekit_map.results.log import Evaluation, merge_key
from mergekit_map.study.dividing import best_spent, times_asked
from mergekit_map.study.fitting import fit_surrogates
from mergekit_map.study.study import Candidate, Study

STUDY = Study(
    bounds={"x": (0.0, 1.0)},
    anchors={"base": {"x": 0.0}, "one": {"x": 1.0}},
    tasks={"loss": LOSS},
    definitions={"loss": "d"},
    merge="m",
    search=SearchSpec(surrogate="residual_gp"),
    select=SelectSpec(),
    documents={"loss": 10},
)
FRONT, WIDTH = np.linspace(0, 1, 9)[:, None], np.ones(1)
NEW: list[Candidate] = [("refinement", {"x": 0.75})]


def measured(x: float, **kinds: Any) -> Evaluation:
    """Measure on all documents; on some of 100 with an error of ``part``."""
    part = kinds.pop("part", None)
    of_part = {"of": 100, "documents": tuple(range(10)), "stderr_of_all": 1e-4}
    given = {
        "coefficients": {"x": x},
        "task": "loss",
        "role": "refinement",
        "value": (x - 0.4) ** 2,
        "stderr": 1e-4 if part is None else part,
        "n": 100 if part is None else 10,
        "seconds": 10.0 if part is None else 1.0,
        "merge": "m",
        "definition": "d",
    }
    return Evaluation(**given, **({} if part is None else of_part), **kinds)


def asked(*evaluations: Evaluation) -> list[list[Candidate]]:
    return [[("refinement", e.coefficients)] for e in evaluations]


def proposed(known: list[Evaluation], planned: list[Candidate]) -> list[Candidate]:
    surrogates = fit_surrogates(STUDY, known)
    return best_spent(STUDY, planned, asked(*known), known, surrogates, FRONT, WIDTH)


def test_where_all_documents_were_measured_there_are_no_more() -> None:
    known = [measured(x) for x in (0.0, 0.3, 0.6, 1.0)]

    assert proposed(known, NEW) == NEW


def test_a_merge_whose_part_tells_little_is_asked_more_of() -> None:
    # Beside what is well known, another merge has nothing to teach.
    known = [measured(x) for x in (0.0, 0.7, 0.74, 0.78, 1.0)]
    known += [measured(0.3, part=0.02), measured(0.76, part=1e-6)]

    [(role, merge)] = proposed(known, [("refinement", {"x": 0.75})])

    assert role == "refinement"
    assert merge == {"x": 0.3}


def test_a_merge_that_is_known_well_enough_is_not_asked_more_of() -> None:
    known = [measured(x) for x in (0.0, 0.2, 1.0)]
    known += [measured(0.4, part=1e-6)]

    assert proposed(known, NEW) == NEW


def test_more_is_never_asked_of_a_merge_outside_the_box_or_of_an_import() -> None:
    known = [measured(x) for x in (0.0, 0.7, 0.74, 0.78, 1.0)]
    outside, imported = measured(1.2, part=0.5), measured(0.3, part=0.5)
    surrogates = fit_surrogates(STUDY, [*known, imported])

    found = best_spent(
        STUDY,
        NEW,
        asked(*known, outside),
        [*known, outside, imported],
        surrogates,
        FRONT,
        WIDTH,
    )

    assert found == NEW


def test_without_a_merge_to_measure_the_search_is_over() -> None:
    known = [measured(0.0), measured(1.0), measured(0.3, part=0.2)]

    assert proposed(known, []) == []


def test_a_merge_is_asked_for_once_in_a_round_however_often_it_stands_there() -> None:
    twice: Candidate = ("design", {"x": 0.5})

    times = times_asked([[twice, twice], NEW, [twice]])

    assert times == {merge_key({"x": 0.5}): 2, merge_key({"x": 0.75}): 1}
