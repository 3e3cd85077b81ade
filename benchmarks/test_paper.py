"""The smallest version of every table and figure of the paper."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import paper
import pytest
from experiments import curves, nested, pairs
from experiments.asked import asked
from experiments.kept import INDEX, index, page
from experiments.kept import results as results_of
from experiments.published import WIN_RATES, WinRate
from experiments.runs import Runs
from laboratory.family import load

from mergekit_map.compare.scores import Scale
from mergekit_map.results.run_folder import RunFolder
from mergekit_map.results.surrogates import read_surrogates
from mergekit_map.search.arrays import FloatArray

MODELS = ("math", "code", "german")
TWO_MODELS = ("table2", "table4", "figure1", "figure2", "figure5", "figure9", "fresh")
SEARCHES = ("table7", "figure6", "figure7", "figure8", "figure14", "figure15")


@pytest.fixture(scope="module")
def families(
    make_model: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """Write families of models with noise in the place of training."""
    root = tmp_path_factory.mktemp("families")
    base = make_model("base", 0)
    near = {
        name: make_model(name, seed, base, noise=0.01)
        for seed, name in enumerate(MODELS, 1)
    }
    texts = {name: " ".join([name, "is what it is."] * 40) for name in MODELS}
    for family, models in (("two", MODELS[:2]), ("three", MODELS)):
        folder = root / f"{family}-tiny"
        folder.mkdir()
        tasks = []
        for name in models:
            (folder / f"{name}.txt").write_text(texts[name], encoding="utf-8")
            block = {"perplexity": f"{name}.txt", "max_tokens": 64, "block": 32}
            tasks.append(
                {"name": f"{name}_loss", "model": name, "kind": "loss", "task": block}
            )
        content = {
            "family": family,
            "size": "tiny",
            "parameters": 30_000,
            "seed": 0,
            "base": str(base),
            "models": [
                {"name": name, "path": str(near[name]), "adapter": False}
                for name in models
            ],
            "tasks": tasks,
        }
        (folder / "family.json").write_text(json.dumps(content), encoding="utf-8")
    return root


@pytest.fixture(scope="module", autouse=True)
def _tiny() -> Iterator[None]:
    """Search with fewer merges than the paper did."""
    with pytest.MonkeyPatch.context() as patch:
        for n in WIN_RATES:
            rate = WinRate(32, 4 + (n + 1) * (n + 2) // 2, (50.0, 0.0), (0.9, 0.0))
            patch.setitem(WIN_RATES, n, rate)
        patch.setattr(curves, "MERGES", {2: (8, 9)})
        patch.setattr(nested, "NESTED_MERGES", 8)
        patch.setattr(nested, "NESTED_PREFERENCES", 2)
        patch.setattr(pairs, "MEDICAL_MERGES", 10)
        for module in (curves, pairs):
            patch.setattr(module, "SEEDS", range(1))
        yield


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("work")


@pytest.fixture(scope="module")
def make(
    families: Path, work: Path, tmp_path_factory: pytest.TempPathFactory
) -> Callable[..., Path]:
    out = tmp_path_factory.mktemp("results")

    def made(family: str, *names: str) -> Path:
        places = ("--families", families, "--work", work, "--out", out)
        how = ("--size", "tiny", "--family", family, "--share", 0.5)
        paper.main([*map(str, (*names, *places, *how))])
        return out / f"{family}-tiny"

    return made


def kept(folder: Path, name: str) -> dict[str, object]:
    content: dict[str, object] = json.loads((folder / f"{name}.json").read_text())
    assert (folder / f"{name}.md").read_text() == page(content)
    assert (folder / f"{name}.png").exists() == content["picture"]
    assert index(folder.parent) == (folder.parent / "README.md").read_text()
    assert f"{folder.name}/{name}.md" in index(folder.parent)
    assert "nan" not in page(content).lower().split()
    return content


def test_two_models_make_the_tables_and_figures_of_two(
    make: Callable[..., Path],
) -> None:
    names = ("table1", "figure3", *TWO_MODELS)

    folder = make("two", *names)

    for name in names:
        content = kept(folder, name)
        assert content["title"].startswith(re.sub(r"(\d+)", r" \1:", name).capitalize())


def test_what_a_result_says_of_win_rates_is_what_was_measured(
    make: Callable[..., Path],
) -> None:
    content = kept(make("two", "table2"), "table2")

    (table,) = content["tables"]
    default, literal = table["rows"]
    assert (default[1], default[3], literal[3]) == (16, "default", "algorithm 1")
    assert literal[4] == WIN_RATES[2].merges
    assert 0 <= default[6]["mean"] <= 1
    assert f"{100 * default[6]['mean']:.1f} % with {default[4]}" in content["headline"]


def test_what_was_measured_is_not_measured_again(
    make: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    before = kept(make("two", *TWO_MODELS), "table2")
    monkeypatch.delattr("mergekit_map.study.measuring.measure")

    after = kept(make("two", *TWO_MODELS), "table2")

    assert after["seconds"] == 0
    assert after["tables"] == before["tables"]


def test_what_select_gives_is_predicted_no_worse_than_any_point_of_the_front(
    families: Path, work: Path, make: Callable[..., Path]
) -> None:
    make("two", "table4")
    runs = Runs(load(families / "two-tiny"), work / "two-tiny", "loss", share=0.5)
    compared = runs.compare(runs.plain(runs.models), runs.direct(2))
    front = compared.front
    fitted = read_surrogates(RunFolder(compared.path).surrogates, front).values()

    # Units in which the tasks are of other sizes than `select` gives them.
    compared.__dict__["scale"] = Scale(np.zeros(2), np.array([1.0, 10.0]))

    X, measured = asked(runs, runs.models, compared)

    def sums(X: FloatArray) -> FloatArray:
        losses = np.column_stack([fitted[task].predict(X) for task in front.metrics])
        return compared.scale.apply(-losses) @ compared.preferences.T

    points = compared.study.vectors([point.coefficients for point in front.points])
    assert np.all(np.diag(sums(X)) >= sums(points).max(axis=0) - 1e-4)
    assert np.all(measured < 0)  # losses, larger is better


def test_what_a_family_is_not_made_for_is_left_out_and_said(
    make: Callable[..., Path], capsys: pytest.CaptureFixture[str]
) -> None:
    folder = make("two", "table3", "table9", "figure7", "figure10")

    said = capsys.readouterr().out
    assert said.count("left out, it has ") == 3
    assert "left out, it is no family of ResNets" in said
    assert not (folder / "table3.json").exists()


def test_a_size_that_was_not_built_is_named_with_the_command_that_builds_it(
    families: Path,
) -> None:
    with pytest.raises(SystemExit, match=r"build\.py languages .* --size 5m"):
        paper.main(["table1", "--families", str(families), "--size", "5m"])


@pytest.mark.slow
def test_searches_of_pairs_make_their_tables_and_figures(
    make: Callable[..., Path],
) -> None:
    names = [name for name in SEARCHES if name != "figure7"]

    folder = make("two", *names)

    for name in names:
        kept(folder, name)


@pytest.mark.slow
def test_three_models_are_searched_at_once_and_pair_by_pair(
    make: Callable[..., Path],
) -> None:
    folder = make("three", "table9", "figure12")

    content = kept(folder, "table9")
    kept(folder, "figure12")
    measured = {row[0]: row[1] for row in content["tables"][1]["rows"]}
    assert measured["nested"] > 0


def test_kept_pages_and_their_index_are_made_of_what_was_kept() -> None:
    results = paper.RESULTS

    for content in results_of(results):
        path = results / content["folder"] / f"{content['name']}.md"
        assert path.read_text(encoding="utf-8") == page(content)
        assert path.with_suffix(".png").exists() == content["picture"]
        assert "/root" not in path.with_suffix(".json").read_text(encoding="utf-8")
    # A family that was trained anew, otherwise, has all of its results made anew.
    assert len({(c["folder"], c["digest"]) for c in results_of(results)}) == len(
        {c["folder"] for c in results_of(results)}
    )
    assert (results / INDEX).read_text(encoding="utf-8") == index(results)


def test_every_name_has_a_test_of_its_smallest_version() -> None:
    tested = {"table1", "figure3", *TWO_MODELS, *SEARCHES, "table9", "figure12"}

    # Table 3 is table 2 with more models.
    assert tested | {"table3", "figure10"} == set(paper.NAMES)
