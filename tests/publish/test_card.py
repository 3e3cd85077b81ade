from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import ModelCard

from mergekit_map.publish.card import write_card
from mergekit_map.selection import Selection


@pytest.fixture
def selection() -> Selection:
    reading = {"value": 1.25, "stderr": 0.125}
    point = {
        "coefficients": {"a": 0.5},
        "predicted": {"code": reading},
        "measured": {"code": {"value": None, "stderr": None}},
    }
    tasks = {"code": {"unit": "nats/token"}}
    return Selection(3, "Chosen by its index.", point, tasks, "recipe")


def written(folder: Path, selection: Selection, *recipe: dict[str, Any]) -> ModelCard:
    write_card(folder, "merged", recipe, selection, selection.point)
    return ModelCard.load(folder / "README.md")


def test_names_all_parents_of_the_hub(tmp_path: Path, selection: Selection) -> None:
    models = [{"model": "x/one@main"}, {"model": "y/two+z/adapter"}]
    config = {"base_model": "x/base", "models": models}

    card = written(tmp_path, selection, config)

    parents = ["x/base", "x/one", "y/two", "z/adapter"]
    assert sorted(card.data.base_model) == parents
    assert card.data.to_dict()["base_model_relation"] == "merge"


def test_says_what_was_predicted_and_what_was_not_measured(
    tmp_path: Path, selection: Selection
) -> None:
    card = written(tmp_path, selection, {"base_model": "x/base", "models": []})

    assert "| code (nats/token) | 1.25 ± 0.12 | not measured |" in card.text


def test_no_local_path_reaches_the_card(tmp_path: Path, selection: Selection) -> None:
    secret = tmp_path / "home" / "tuned"
    secret.mkdir(parents=True)
    models = [{"model": f"{secret}"}, {"model": f"x/one+{secret}"}]
    tokenizer = {"source": str(secret)}
    config = {"base_model": str(secret), "models": models, "tokenizer": tokenizer}

    card = written(tmp_path, selection, config)

    assert str(tmp_path) not in card.content
    assert "x/one+tuned" in card.content


def test_a_recipe_of_several_stages_names_the_models_alone(
    tmp_path: Path, selection: Selection
) -> None:
    pair = {"base_model": "x/base", "models": [{"model": "x/a"}, {"model": "x/b"}]}
    last = {"base_model": "x/base", "models": [{"model": "x/c"}, {"model": "pair-1"}]}

    card = written(tmp_path, selection, {"name": "pair-1", **pair}, last)

    assert card.data.base_model == ["x/base", "x/a", "x/b", "x/c"]
    assert "name: pair-1" in card.text.split("\n---\n")[0]
    assert "model: x/c" in card.text.split("\n---\n")[1]
