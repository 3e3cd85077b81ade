"""The partial front of an unfinished search, from the log alone.

It is the same whether the search was stopped, was killed or is still running.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import replace

import numpy as np

from mergekit_map.config.schema import SelectSpec
from mergekit_map.errors import ArtifactError, ConfigError, DesignError
from mergekit_map.optimize.front_filling import non_dominated
from mergekit_map.results.front import Front
from mergekit_map.results.gains import Anchors
from mergekit_map.results.limits import Request
from mergekit_map.results.log import Evaluation, by_merge
from mergekit_map.results.selection import choose
from mergekit_map.results.surrogate_file import Surrogates
from mergekit_map.search.finish import (
    end_search,
    fitted_surrogates,
    found_front,
    measured_merges,
)
from mergekit_map.search.measure import (
    on_disk_evaluations,
    own_evaluations,
    reference_values,
)
from mergekit_map.search.study import Study, StudyResult


def complete_merges(study: Study, log: Iterable[Evaluation]) -> list[Evaluation]:
    """List the merges of a search on which it measured every task itself."""
    own = own_evaluations(study, log)
    whole = {
        key for key, of in by_merge(own).items() if of.keys() >= study.tasks.keys()
    }
    return [e for e in own if e.key[0] in whole]


def find_partial_front(
    study: Study, log: Sequence[Evaluation], wishes: Sequence[SelectSpec]
) -> tuple[Front, Surrogates | None]:
    """Fit the measurements, and choose by the first selection that can be computed.

    If surrogates cannot be fitted, the front is of measured merges alone.

    Raises:
        ArtifactError: no merge is measured on every task.
    """
    known = complete_merges(study, log)
    latest = list({e.key: e for e in known}.values())
    anchors = reference_values(study, latest, log)
    study = replace(study, engines={e.task: e.engine for e in known if e.engine})
    every = [*wishes, SelectSpec()]
    for wish in every if _is_enough(study, known) else ():
        asked = replace(study, select=wish)
        # A limit may be of what is not measured yet, and a fit may fail.
        with suppress(ConfigError, DesignError):
            result = end_search(asked, [], latest, anchors, lambda *_: [])
            front = found_front(asked, replace(result, ending=None), log)
            return front, fitted_surrogates(asked, result)
    measured = [*known, *on_disk_evaluations(study, log)]
    for wish in every:
        asked = replace(study, select=wish)
        with suppress(ConfigError, DesignError):
            result = _measured_front(asked, latest, anchors)
            return found_front(asked, result, measured), None
    raise AssertionError("without limits, any front can be chosen from")


def _is_enough(study: Study, known: Sequence[Evaluation]) -> bool:
    """Whether a plane through the merges within the bounds leaves one to check it."""
    if study.search.strategy == "nested":  # whose merges lie on planes of pairs
        return False
    merges = {e.key[0]: e.coefficients for e in known if not e.failed}
    inside = study.contains(study.vectors(merges.values()))
    return int(inside.sum()) >= len(study.bounds) + 2


def _measured_front(
    study: Study, known: Sequence[Evaluation], anchors: Anchors
) -> StudyResult:
    """Return the front of the measured merges, without surrogates."""
    X, Y = measured_merges(study, known)
    order = np.flatnonzero(non_dominated(Y))
    if not len(order):
        tasks = "every task" if len(study.tasks) > 1 else next(iter(study.tasks))
        raise ArtifactError(
            f"no merge is measured on {tasks} yet, so that there is nothing to look at"
        )
    order = order[np.argsort(Y[order, 0], kind="stable")]
    order = order[-1:] if len(study.tasks) == 1 else order
    selected = choose(Request(study.select, study.tasks, anchors), Y[order])
    return StudyResult({}, [study.named(row) for row in X[order]], selected)
