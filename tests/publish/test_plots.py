from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from matplotlib.image import imread

from mergekit_map.publish.plots import plot_front


def front(tasks: list[str], n_points: int = 5) -> dict[str, Any]:
    def reading(value: float | None) -> dict[str, Any]:
        return {"value": value, "stderr": None if value is None else 0.01}

    def point(index: int) -> dict[str, Any]:
        values = {t: index * (-1) ** k + 0.5 for k, t in enumerate(tasks)}
        measured = {t: v if index % 2 else None for t, v in values.items()}
        return {
            "predicted": {t: reading(v) for t, v in values.items()},
            "measured": {t: reading(v) for t, v in measured.items()},
        }

    about = {"direction": "minimize", "unit": "nats/token"}
    return {
        "tasks": dict.fromkeys(tasks, about),
        "points": [point(i) for i in range(n_points)],
        "anchors": [{"label": "$base_$ <b>", **point(1)}],
        "selected": 1,
    }


@pytest.mark.picture
@pytest.mark.parametrize("n_tasks", [1, 2, 3, pytest.param(5, marks=pytest.mark.slow)])
def test_draws_a_panel_for_each_pair_of_tasks(n_tasks: int, tmp_path: Path) -> None:
    path = tmp_path / "front.png"
    n_points = 1 if n_tasks == 1 else 5
    content = front([f"task{i}" for i in range(n_tasks)], n_points)
    content["selected"] = min(1, n_points - 1)

    plot_front(content, path)

    height, width = imread(path).shape[:2]
    panels = max(1, n_tasks - 1)
    assert width == pytest.approx(100 * (1.5 + 4.2 * panels), abs=1)
    assert height == pytest.approx(100 * (1.2 + 3.8 * panels), abs=1)
    assert list(tmp_path.iterdir()) == [path]
