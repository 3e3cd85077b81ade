"""What ``mergekit-map select --prefer`` gives: a merge between points, too."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mergekit_map.config.schema import SelectSpec
from mergekit_map.results.run_folder import RunFolder
from mergekit_map.results.selection import choose_point
from mergekit_map.results.surrogate_file import read_surrogates
from mergekit_map.surrogates.arrays import FloatArray
from paper.runs import Runs
from paper.searched import Compared


def asked(
    runs: Runs, models: Sequence[str], compared: Compared
) -> tuple[FloatArray, FloatArray]:
    """Choose a merge for each preference; those (P, d), and what they are worth (P, m).

    They are measured beside the run folder, whose log says what others are held to.
    """
    X = compared.study.vectors([_chosen(compared, p) for p in _weights(compared)])
    values = runs.measured(runs.folder / "asked", runs.content(models), X)
    return X, values * np.array([m.sign for m in compared.metrics.values()])


def _weights(compared: Compared) -> FloatArray:
    """Turn weights in the scale of a comparison into those of ``select``; (P, m).

    It scales each task by its range over the front, as predicted.
    """
    front, scale = compared.front, compared.scale
    predicted = scale.apply(front.utilities(front.points, "predicted"))
    return np.asarray(compared.preferences * np.ptp(predicted, axis=0))


def _chosen(compared: Compared, weights: FloatArray) -> dict[str, float]:
    front = compared.front
    prefer = dict(zip(front.metrics, weights.tolist(), strict=True))
    surrogates = read_surrogates(RunFolder(compared.path).surrogates, front)
    chosen = choose_point(front, SelectSpec(prefer=prefer), surrogates).chosen
    return dict(chosen.coefficients)
