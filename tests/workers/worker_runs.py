"""Run folders of workers, compared with those of one process."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def lines(run: Path) -> list[dict[str, Any]]:
    """Read a log without its timings."""
    texts = (run / "evaluations.jsonl").read_text().splitlines()
    return [{**json.loads(text), "seconds": 0} for text in texts]


def assert_same(run: Path, other: Path) -> None:
    assert lines(run) == lines(other)
    for name in ("front.json", "front.csv"):
        assert (run / name).read_bytes() == (other / name).read_bytes()
    recipes = [path.relative_to(run) for path in sorted(run.glob("recipes/*.yml"))]
    assert recipes
    for name in [*recipes, Path("recipe.yml")]:
        text = (run / name).read_text().replace(f"{run}/", f"{other}/")
        assert text == (other / name).read_text()
