"""Nested MAP on tiny models: it ships what it measured, which is what stock writes."""

from __future__ import annotations

from pathlib import Path

import yaml
from runs import assert_same_weights, invoke, read, stock, write_plain

ORDER = [["a", "b"], "c"]


def test_a_merge_of_merges_is_one_recipe(family: dict[str, Path]) -> None:
    search = {"strategy": "nested", "order": ORDER, "evaluations": 7, "remeasure": 2}
    # A method that elects signs and draws random numbers.
    write_plain(family, names="abc", method="dare_ties", density=0.7, **search)

    said = invoke("run", "config.yml", "out").output

    assert "not what the search measured" not in said
    front = read("out.run/front.json")
    assert front["order"] == ORDER
    assert [a["label"] for a in front["anchors"]] == ["base", *"abc", "soup"]
    recipe = yaml.safe_load(Path("out.run/recipe.yml").read_text())
    weights = [m["parameters"]["weight"] for m in recipe["models"]]
    assert weights == list(front["points"][front["selected"]]["coefficients"].values())
    stock("out.run/recipe.yml", "stock")
    assert_same_weights("out", "stock")
