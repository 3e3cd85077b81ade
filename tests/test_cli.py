"""The command line on real, if tiny, models: from YAML to checkpoint."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import transformers
import yaml
from runs import assert_same_weights, invoke, lines, read, stock, write_plain
from runs import write as write_config
from task_files import by_lm_eval, plain_loss, write_choices

from mergekit_map.results.log import open_log
from mergekit_map.results.run_folder import RunFolder

SPREAD = """
def spread(model, tokenizer):
    return model.lm_head.weight.std().item()
"""


@pytest.fixture
def config(family: dict[str, Path], tmp_path: Path) -> dict[str, Any]:
    """Tasks of three kinds, and paths that shells and formats have a use for."""
    Path("greeting.txt").write_text("hello world, one plus two\n" * 30)
    write_choices(tmp_path, "questions")
    folder = Path('it\'s a "Märge"')
    models = {n: shutil.copytree(family[n], folder / n) for n in ("base", "a", "b")}
    tasks = {
        "greeting": {"perplexity": {"file": "greeting.txt"}, "block": 32},
        "questions": {"lm_eval": "questions.yaml", "metric": "acc"},
        "spread": {"python": "mine:spread", "direction": "maximize"},
    }
    more = {"evaluations": 7, "remeasure": 2, "seed": 3}
    return write_plain(models, tasks, SPREAD, method="dare_ties", density=0.6, **more)


def write(config: dict[str, Any], **search: Any) -> None:
    config["map"]["search"].update(search)
    write_config(config)


def search_spread(config: dict[str, Any]) -> None:
    """Search by one of the tasks alone."""
    config["map"]["tasks"] = {"spread": config["map"]["tasks"]["spread"]}
    write(config)
    invoke("search", "config.yml", "out.run")


@pytest.mark.slow
def test_one_yaml_in_checkpoint_out_as_others_merge_and_measure_it(
    config: dict[str, Any],
) -> None:
    write(config, remeasure=1)

    assert "gain kept" in invoke("run", "config.yml", "out").stdout
    manifest = read("out.run/.state/manifest.json")
    front = read("out.run/front.json")
    chosen = front["points"][front["selected"]]
    recipe = Path("out.run/recipe.yml").read_text()
    assert all(m["value"] is not None for m in chosen["measured"].values())
    assert len(list(Path("out.run/recipes").glob("[0-9]*.yml"))) == len(front["points"])
    shipped = Path("out/mergekit_config.yml").read_text()
    index = front["selected"]
    here = shipped.replace("out/mergekit_config", f"out.run/recipes/{index:03d}")
    assert here == recipe
    assert "--random-seed 3" in recipe
    assert manifest["random_seed"] == 3
    assert yaml.safe_load(recipe)["merge_method"] == "dare_ties"
    stock("out.run/recipe.yml", "stock")
    assert_same_weights("out", "stock")

    measured = chosen["measured"]  # which is what others measure
    model = transformers.AutoModelForCausalLM.from_pretrained("out")
    tokenizer = transformers.AutoTokenizer.from_pretrained("out")
    loss = plain_loss(model, tokenizer, [Path("greeting.txt").read_text()], 32)
    assert measured["greeting"]["value"] == pytest.approx(loss, rel=1e-4)
    theirs = by_lm_eval(Path("out"), "questions", Path())["results"]["questions"]
    assert measured["questions"]["value"] == theirs["acc,none"]
    assert measured["questions"]["stderr"] == pytest.approx(theirs["acc_stderr,none"])


@pytest.mark.slow
def test_changes_are_named_and_never_mixed(
    config: dict[str, Any], family: dict[str, Path]
) -> None:
    search_spread(config)
    before = lines("out.run")
    drawn = [line for line in before if line["merge"] == before[-1]["merge"]]
    known = {line["merge"] for line in before}

    write(config, seed=4)
    result = invoke("search", "config.yml", "out.run")
    said = " ".join(result.stderr.split())
    # The models on disk, which no seed changes, are not measured again.
    assert f"{len(drawn)} measurements" in said
    assert "the seed changed" in said
    assert not {line["merge"] for line in lines("out.run")[len(before) :]} & known

    config["models"][1]["model"] = str(family["c"])
    write(config)
    result = invoke("search", "config.yml", "out.run")
    assert "models (b)" in " ".join(result.stderr.split())

    mine = Path("mine.py")
    mine.write_text(mine.read_text().replace("std()", "mean()"))
    result = invoke("search", "config.yml", "out.run")
    assert "the tasks or their definitions changed" in " ".join(result.stderr.split())


def test_a_refused_search_leaves_the_running_one_alone(config: dict[str, Any]) -> None:
    search_spread(config)
    before = {p: p.read_bytes() for p in Path("out.run").iterdir() if p.is_file()}
    config["map"]["search"]["evaluations"] = 9
    write(config)
    with open_log(RunFolder(Path("out.run"))):
        result = invoke("search", "config.yml", "out.run", code=2)

    assert "another search is writing" in result.stderr
    assert {p: p.read_bytes() for p in before} == before


@pytest.mark.slow
def test_from_disk_and_by_another_backend_the_same_is_measured(
    config: dict[str, Any],
) -> None:
    config["models"].pop()
    backend = {"name": "hf", "args": {"softmax_dtype": "float32", "device": "cpu"}}
    ways = {"memory": {}, "disk": {"merge": "disk"}}
    ways["theirs"] = {"merge": "disk", "backend": backend}
    for run, way in ways.items():
        config["map"].update(way)
        write(config, evaluations=4, remeasure=0)
        invoke("search", "config.yml", run)

    memory, disk, theirs = (
        [{**line, "seconds": None} for line in lines(run)] for run in ways
    )
    assert memory == disk
    assert [line["value"] for line in theirs] == [line["value"] for line in disk]
