"""The front as the command line shows it: thinned, yet the whole of it."""

from __future__ import annotations

import itertools
import math

import click
import click.testing
import pytest
from fronts import NOT_MEASURED, Row, make_front

from mergekit_map.cli.options import points_option
from mergekit_map.cli.tables import show_front
from mergekit_map.results.front import Front

N = 200


def long_front() -> Front:
    points: list[tuple[Row, Row]] = []
    for index in range(N):
        angle = math.pi / 2 * index / (N - 1)
        row: Row = [(math.cos(angle), 0.01), (3 - math.sin(angle), 0.01)]
        points.append((row, row if index == 77 else NOT_MEASURED))
    return make_front(points, {"base": [(0.1, 0.01), (9.0, 0.01)]}, selected=33)


def shown(output: str) -> list[int]:
    words = [line.split()[0] for line in output.splitlines() if line.strip()]
    return [int(word) for word in words if word.isdecimal()]


def test_twenty_points_show_the_whole_front(capsys: pytest.CaptureFixture[str]) -> None:
    show_front(long_front())

    output = capsys.readouterr().out
    rows = shown(output)
    assert {0, 33, 77, N - 1} <= set(rows)  # ends, the chosen and the measured one
    assert 20 <= len(rows) <= 22
    gaps = [after - before for before, after in itertools.pairwise(rows)]
    assert max(gaps) < 20
    assert f"{len(rows)} of the front's {N} points" in output
    assert "33 chosen" in output
    # Of the base and the measured point alone.
    assert sum(line.split()[:1] == ["measured"] for line in output.splitlines()) == 2


@pytest.mark.parametrize(
    ("asked", "expected"), [("0", 2), ("5", 7), ("all", N), ("9999", N)]
)
def test_points_says_how_many(
    asked: str, expected: int, capsys: pytest.CaptureFixture[str]
) -> None:
    counts = []

    @click.command()
    @points_option
    def command(points: int) -> None:
        counts.append(points)

    command(["--points", asked], standalone_mode=False)
    show_front(long_front(), counts[0])

    assert len(shown(capsys.readouterr().out)) == expected
