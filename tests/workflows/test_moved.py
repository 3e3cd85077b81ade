"""Run folders and models that moved: every command that is printed works."""

from __future__ import annotations

import shlex
import shutil
from pathlib import Path

import pytest
import yaml
from runs import (
    assert_same_weights,
    change_json,
    invoke,
    merged_by_stock,
    read,
    write,
    write_plain,
    write_texts,
)

from mergekit_map import load_project
from mergekit_map.errors import ConfigError
from mergekit_map.utils.files import digest

Models = dict[str, Path]


def configure(models: dict[str, str]) -> None:
    """Configure a search that measures by own text, so that it names no code."""
    texts = write_texts("one", "two", block=16)
    write_plain(models, texts, method="ties", evaluations=7, remeasure=0)


@pytest.fixture(scope="module")
def project(family: Models, module_folder: Path) -> Path:
    """A folder with models, data and a finished search of relative paths."""
    names = ("base", "a", "b")
    configure({n: shutil.copytree(family[n], f"models/{n}") for n in names})
    invoke("search", "config.yml", "run")
    return module_folder


@pytest.fixture
def place(project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The run folder alone, elsewhere; the models are in other folders there."""
    folder = tmp_path / "there"
    shutil.copytree(project / "run", folder / "run")
    for name, new in {"base": "origin", "a": "first", "b": "second"}.items():
        shutil.copytree(project / "models" / name, folder / new)
    for text in ("one.txt", "two.txt"):
        shutil.copy(project / text, folder)
    text = (folder / "run/config.yml").read_text()
    (folder / "run/config.yml").write_text(text.replace("models/", "gone/"))
    files = [folder / "run" / file for file in (".state/manifest.json", "recipe.yml")]
    for path in (*files, *(folder / "run/recipes").iterdir()):
        path.write_text(path.read_text().replace(f"{project}/models", "/old/gone"))
    change_json(files[0], lambda manifest: manifest.update(directory="/old"))
    # It is what another machine wrote, whose paths began with /old.
    manifest = read(files[0])
    new = digest(manifest["identity"])
    for path in (files[0], folder / "run/evaluations.jsonl"):
        path.write_text(path.read_text().replace(manifest["merge"], new))
    samples = folder / "run/.state/samples"
    (samples / manifest["merge"]).rename(samples / new)
    monkeypatch.chdir(folder)
    return folder


PLACES = ("--model-path", "base=origin", "--model-path", "a=first")
ALL = (*PLACES, "--model-path", "gone/b=second")


def fails(*arguments: str) -> str:
    return invoke(*arguments, code=2).output


@pytest.mark.usefixtures("place")
def test_missing_models_are_told_with_the_option_to_add() -> None:
    said = fails("merge", "run", "out dir", "--index", "0")

    assert said.count("add --model-path ") == said.count("=FOLDER") == 3
    said = fails("merge", "run", "out", *PLACES)
    assert said.count("--model-path") == 1
    assert "there is no folder 'gone/b'" in " ".join(said.split())


def test_after_a_move_every_printed_command_works(place: Path) -> None:
    result = invoke("merge", "run", "out", *ALL)

    merged_by_stock(result.output, "stock")
    assert_same_weights("out", "stock")
    assert str(place / "second") in Path("run/recipes/soup.yml").read_text()
    tuned = [str(place / new) for new in ("first", "second")]
    for recipe in ("out/mergekit_config.yml", "run/recipe.yml", "run/recipes/000.yml"):
        merge = yaml.safe_load(Path(recipe).read_text())
        assert merge["base_model"] == str(place / "origin")
        assert [e["model"] for e in merge["models"]] == tuned
    # Nothing was measured but the checkpoint, and nothing is said to have changed.
    assert "not what the search measured" not in result.output
    said = invoke("select", "run", "--index", "0").output
    (command,) = [line for line in said.splitlines() if "mergekit-map merge" in line]
    words = shlex.split(command.partition("mergekit-map ")[2])
    assert words == ["merge", "run", "OUT"]
    result = invoke(*words[:-1], "again", *ALL)
    merged_by_stock(result.output, "stock-again")
    assert_same_weights("again", "stock-again")


@pytest.mark.usefixtures("place")
def test_a_model_that_is_not_the_one_that_was_measured_is_refused() -> None:
    swap = "--model-path base=origin --model-path a=second --model-path b=first"
    config = yaml.safe_load(Path("run/config.yml").read_text())
    del config["map"]["tasks"]["two"]
    write(config, "run/config.yml")

    said = fails("merge", "run", "out", *swap.split())

    assert "the models (a, b) and task 'two' changed since the search" in said
    assert "name the folders of the models that were measured" in said
    assert not Path("out").exists()


@pytest.mark.usefixtures("place")
def test_names_that_do_not_tell_a_model_and_folders_that_are_not_there() -> None:
    folders = {
        "base=nowhere/at/all": "there is no folder 'nowhere/at/all', and it is not",
        "bas=origin": "no model is called 'bas'; did you mean 'base'?",
        "base": "write it as NAME=FOLDER",
        "=origin": "write it as NAME=FOLDER",
        "base=origin --model-path base=origin": "as NAME=FOLDER, once for each",
    }
    for given, message in folders.items():
        assert message in fails("merge", "run", "out", "--model-path", *given.split())


def test_a_model_that_is_called_base_can_move(family: Models) -> None:
    configure({"base": "base", "a": str(family["a"]), "b": str(family["b"])})

    project = load_project(Path("config.yml"), model_paths={"base": family["base"]})

    assert project.space.template["base_model"] == str(family["base"].resolve())


def test_two_models_of_one_name_are_told_apart_by_more_of_their_paths(
    family: Models,
) -> None:
    configure({"base": str(family["base"]), "a": "law/model", "b": "code/model"})

    with pytest.raises(ConfigError, match="'law/model' or 'code/model'; name more"):
        load_project(Path("config.yml"), model_paths={"model": family["a"]})
    both = dict.fromkeys(["law/model", "code/model"], family["a"])
    with pytest.raises(ConfigError, match="two models have one folder"):
        load_project(Path("config.yml"), model_paths=both)
    missing = r"no folder 'law/model'.* --model-path law/model="
    with pytest.raises(ConfigError, match=missing):
        load_project(Path("config.yml"))
    apart = {"law/model": family["a"], "code/model": str(family["b"])}
    project = load_project(Path("config.yml"), model_paths=apart)
    assert project.space.names == ("law/model", "code/model")
    models = [entry["model"] for entry in project.space.template["models"]]
    assert models == [str(family[name].resolve()) for name in "ab"]


def test_a_project_that_moved_as_a_whole_needs_no_option(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    shutil.copytree(project, first)
    monkeypatch.chdir(first)
    shutil.rmtree("run")
    invoke("search", "config.yml", "run")
    first.rename(second)
    monkeypatch.chdir(second)

    merged_by_stock(invoke("merge", "run", "out").output, "stock")

    assert_same_weights("out", "stock")
    assert str(second / "models/base") in Path("run/recipe.yml").read_text()


@pytest.mark.usefixtures("place")
def test_a_search_with_models_elsewhere_measures_nothing_again() -> None:
    log = Path("run/evaluations.jsonl").read_bytes()
    shutil.copy("run/config.yml", "config.yml")

    result = invoke("search", "config.yml", "run", *ALL)

    assert f"; {len(log.splitlines())} of them are known" in result.output
    assert "kept but not used" not in result.output
    assert Path("run/evaluations.jsonl").read_bytes() == log
    assert list(read("run/front.json")["coefficients"]) == ["a", "b"]
    assert str(Path("origin").resolve()) in Path("run/recipe.yml").read_text()
    assert "add --model-path" in fails("merge", "run", "out")  # each time


@pytest.mark.usefixtures("place")
def test_what_is_merged_is_of_the_configuration_whatever_recipes_say() -> None:
    invoke("merge", "run", "untouched", "--index", "0", *ALL)
    given, models = Path("run/recipes/000.yml"), ("first", "second")
    text = given.read_text()
    first, second = (str(Path(name).resolve()) for name in models)
    swapped = text.replace(first, "?").replace(second, first).replace("?", second)
    assert swapped != text
    given.write_text(swapped.replace("weight: ", "weight: 0.1 # ", 1))

    invoke("merge", "run", "out", "--index", "0", *ALL)

    assert_same_weights("untouched", "out")
    assert given.read_text() == text
