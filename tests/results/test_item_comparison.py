"""From the records of a run folder to what its front says of differences."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fakes import line
from fronts import CODE, make_front, write_folder

from mergekit_map.results.front import Front
from mergekit_map.results.log import Role
from mergekit_map.results.paired import stderrs_of_differences
from mergekit_map.results.run_folder import RunFolder
from mergekit_map.results.samples import (
    SampleStore,
    itemise,
    read_samples,
    with_differences,
)
from mergekit_map.types import Answers, Measurement, MeasurementRequest

N = 30
RNG = np.random.default_rng(0)
HARD = RNG.normal(3, 0.5, size=N)
TOKENS = RNG.integers(8, 17, size=N).tolist()


def answers_of(samples: list[Any]) -> Answers:
    keys = ("block", "loss", "tokens")
    return Answers(*(tuple(sample[key] for sample in samples) for key in keys))


def keep(folder: Path, place: dict[str, float], samples: list[Any]) -> None:
    measured = Measurement(
        0.0, None, 1, samples=tuple(samples), answers=answers_of(samples)
    )
    request = MeasurementRequest(tuple(place.items()), folder.name)
    SampleStore(folder.parent, {}).write(request, measured)


def losses(shift: float) -> list[dict[str, float]]:
    """Make the records of a merge: the same blocks, hard or easy for each of them."""
    values = HARD + shift + RNG.normal(size=N) / 20
    rows = enumerate(zip(values.tolist(), TOKENS, strict=True))
    return [{"block": i, "loss": v, "tokens": t} for i, (v, t) in rows]


def value(samples: list[dict[str, float]]) -> float:
    return sum(s["loss"] * s["tokens"] for s in samples) / sum(TOKENS)


def records(run: Path) -> Path:
    """Give the folder of what merges of a search answered on its only task."""
    return RunFolder(run).samples("") / "code"


def searched(run: Path, shifts: list[float]) -> tuple[Front, list[np.ndarray]]:
    """Write the records of merges with a=0, 0.01, ..., the last one an anchor."""
    rows, influences = [], []
    for index, shift in enumerate(shifts):
        samples = losses(shift)
        anchor = index == len(shifts) - 1
        place = {"a": 1.0, "b": 0.0} if anchor else {"a": index / 100, "b": 0.5}
        keep(records(run), place, samples)
        rows.append([(value(samples), 0.1)])
        itemised = itemise(answers_of(samples))
        assert itemised is not None
        influences.append(itemised.influences)
    points = [(row, row) for row in rows[:-1]]
    front = make_front(points, {"base": rows[-1]}, tasks={"code": CODE})
    write_folder(run, front)
    return front, influences


def test_merges_are_compared_item_by_item(tmp_path: Path) -> None:
    front, influences = searched(tmp_path, [0.0, 0.2, 0.5])

    found = with_differences(front, RunFolder(tmp_path))

    expected = stderrs_of_differences(np.array(influences), np.zeros(N, int))
    kept = found.differences["code"]
    assert kept.items == N
    assert not kept.answers
    np.testing.assert_allclose(kept.matrix, expected, rtol=1e-4)
    assert kept.matrix[0, 1] < 0.03  # though the losses are known to 0.1


@pytest.mark.parametrize("of_other_items", [False, True])
def test_only_records_of_the_same_items_and_of_what_was_measured_count(
    tmp_path: Path, of_other_items: bool
) -> None:
    front, _ = searched(tmp_path, [0.0, 0.2, 0.5])
    place = {"a": 0.01, "b": 0.5}
    # The file is of an earlier definition of the task, on texts as long as these.
    samples = losses(0.2)
    if of_other_items:
        known = read_samples(records(tmp_path), place).samples
        samples = [{**s, "block": s["block"] + 1} for s in known]
    keep(records(tmp_path), place, samples)

    found = with_differences(front, RunFolder(tmp_path))

    assert found.differences["code"].merges == (0, 2)


@pytest.mark.parametrize(
    ("roles", "merges"),
    [(["baseline", "opponent"], (0, 2)), (["opponent", "front"], (0, 1, 2))],
)
def test_what_rivals_measured_is_not_compared(
    tmp_path: Path, roles: list[Role], merges: tuple[int, ...]
) -> None:
    front, _ = searched(tmp_path, [0.0, 0.2, 0.5])
    log = [
        line({"a": 0.01, "b": 0.5}, "code", role=role, n=N, merge="", definition="")
        for role in roles
    ]

    found = with_differences(front, RunFolder(tmp_path), log)

    assert found.differences["code"].merges == merges
