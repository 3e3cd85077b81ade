"""Models whose paths have characters that shells and formats have a use for."""

from __future__ import annotations

import shutil
from pathlib import Path

from nested_runs import assert_same_weights, invoke, stock, write

TASK = """
def measure(model, tokenizer):
    return float(model.lm_head.weight.double().sum())
"""


def test_a_model_with_an_odd_path_is_searched_and_merged_as_mergekit_does(
    family: dict[str, Path],
) -> None:
    name = 'it\'s a "Märge"'
    Path("own_sum.py").write_text(TASK)
    places = {n: shutil.copytree(family[n], Path(name) / n) for n in ("base", "a", "b")}
    task = {"python": "own_sum:measure", "direction": "maximize"}
    search = {"evaluations": 6, "remeasure": 0}
    write(
        {
            "merge_method": "task_arithmetic",
            "base_model": str(places["base"]),
            "models": [{"model": str(places[n])} for n in "ab"],
            "dtype": "float32",
            "map": {"search": search, "tasks": {"sum": task}},
        }
    )

    invoke("search", "config.yml", "run")
    invoke("select", "run", "--index", "0")
    invoke("merge", "run", "out", "--trust-run")
    stock("run/recipe.yml", "stock")

    assert_same_weights("out", "stock")
