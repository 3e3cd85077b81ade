"""Budgets of hours: never more, and the same decision of the same log."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from parted import METRICS, SIZE, Models, lines_of, search, study_of

from mergekit_map.search.budget import can_go_on

# Anchors and a first design of five, all measured on all documents.
_FIRST = 5 * len(METRICS) * SIZE


@pytest.mark.slow
@pytest.mark.parametrize("documents", [24, "all"])
@pytest.mark.parametrize("budget", [1750, 1900])
def test_a_search_stays_within_its_budget(
    documents: Any, budget: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = study_of(documents, evaluations=40, refine=True, hours=budget / 3600)
    models = Models()

    search(study, tmp_path, models, monkeypatch)

    # The clock of these models counts documents.
    spent = sum(n for *_, n in models.asked)
    assert budget > _FIRST
    assert budget - 3 * len(METRICS) * SIZE < spent <= budget
    roles = [e.role for e in lines_of(tmp_path)]
    assert roles.count("front") >= len(METRICS)

    again = Models()
    before = (tmp_path / "front.json").read_text()
    search(study, tmp_path, again, monkeypatch)
    assert again.asked == []
    assert (tmp_path / "front.json").read_text() == before


def test_a_budget_too_small_for_the_first_design_ends_after_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    search(study_of(12, hours=1 / 3600), tmp_path, Models(), monkeypatch)

    roles = [e.role for e in lines_of(tmp_path)]
    assert "refinement" not in roles


def test_a_budget_does_not_count_what_was_taken_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = study_of("all", hours=10 * _FIRST / 3600)
    search(study_of("all", hours=_FIRST / 3600), tmp_path, Models(), monkeypatch)
    lines = lines_of(tmp_path)
    assert can_go_on(study, lines)
    many = [e for e in lines for _ in range(12)]

    assert not can_go_on(study, many)
    assert can_go_on(study, [replace(e, taken="0" * 16) for e in many])
