"""Models whose paths have characters that shells and formats have a use for."""

from __future__ import annotations

import shutil
from pathlib import Path

from nested_runs import assert_same_weights, invoke, stock
from plain_runs import write_plain


def test_a_model_with_an_odd_path_is_searched_and_merged_as_mergekit_does(
    family: dict[str, Path],
) -> None:
    folder = Path('it\'s a "Märge"')
    places = {n: shutil.copytree(family[n], folder / n) for n in ("base", "a", "b")}
    write_plain(places, remeasure=0)

    invoke("search", "config.yml", "run")
    invoke("select", "run", "--index", "0")
    invoke("merge", "run", "out", "--trust-run")
    stock("run/recipe.yml", "stock")

    assert_same_weights("out", "stock")
