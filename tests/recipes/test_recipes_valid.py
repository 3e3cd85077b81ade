"""Every recipe is one that the program accepts, and its header is true."""

from __future__ import annotations

import importlib
import re
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import jsonschema
import pytest
from fakes import make_study

from mergekit_map.cli.main import main
from mergekit_map.config.problems import parse_map_block, raise_problems
from mergekit_map.config.schema import MapBlock
from mergekit_map.config.tasks import LmEvalTask, PerplexityTask, PythonTask
from mergekit_map.config.yaml_file import read_yaml
from mergekit_map.merging.space import MergeSpace, build_space
from mergekit_map.merging.validation import check_merge
from mergekit_map.search.checks import search_problems
from mergekit_map.tasks.lm_eval_tasks import built_in_tasks
from mergekit_map.tasks.python_function import load_function
from mergekit_map.workflows.init import config_schema

RECIPES = Path(__file__).parents[2] / "recipes"
PATHS = sorted(RECIPES.glob("*.yml"))
ALL = pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)


def load(path: Path) -> tuple[dict[str, Any], MapBlock, MergeSpace]:
    """Check all of a recipe that does not need models or data, as a search does."""
    file = read_yaml(path)
    spec, _, problems = parse_map_block(file)
    merge = {key: value for key, value in file.content.items() if key != "map"}
    assert not file.repeated
    problems += check_merge(merge)
    raise_problems(file, problems)
    space, found = build_space(merge, spec.search)
    raise_problems(file, [*problems, *found])
    return merge, spec, space


def test_all_recipes_are_looked_at_and_listed() -> None:
    text = (RECIPES / "README.md").read_text(encoding="utf-8")
    listed = re.findall(r"^\| \[`([\w.]+\.yml)`\]\(([\w.]+)\)", text, re.M)

    assert len(PATHS) == 9
    assert sorted(name for name, _ in listed) == [path.name for path in PATHS]
    assert all(name == link for name, link in listed)
    # Every script belongs to a recipe.
    used = " ".join(path.read_text(encoding="utf-8") for path in PATHS)
    scripts = sorted(RECIPES.glob("*.py"))
    assert len(scripts) == 3
    assert all(script.name in used for script in scripts)


@pytest.mark.slow  # lm-eval reads all its built-in tasks, about 5 seconds
@ALL
def test_a_recipe_is_accepted_and_what_it_measures_exists(path: Path) -> None:
    _, spec, space = load(path)

    bounds = dict(zip(space.names, map(tuple, space.bounds.tolist()), strict=True))
    plain = make_study(space.names, spec.tasks, select=spec.select)
    study = replace(plain, bounds=bounds, anchors=space.anchors(), search=spec.search)
    assert search_problems(study) == []
    # What an editor is told of it.
    jsonschema.validate(read_yaml(path).content, config_schema())
    for name, task in spec.tasks.items():
        match task:
            case LmEvalTask():
                check_harness_task(task)
            case PerplexityTask():
                check_dataset(task)
            case PythonTask():
                assert callable(load_function(name, task, RECIPES).function)


def check_harness_task(task: LmEvalTask) -> None:
    """Hold a task against the installed lm-eval, which needs no data for that."""
    assert task.lm_eval in built_in_tasks().task_index
    config = built_in_tasks().task_index[task.lm_eval].cfg
    assert task.metric in [entry["metric"] for entry in config["metric_list"]]
    filters = [entry["name"] for entry in config.get("filter_list", ())]
    assert task.filter in (filters or [None])
    # What runs the answers as code has to be allowed, which no recipe asks for.
    assert not config.get("unsafe_code")


def check_dataset(task: PerplexityTask) -> None:
    """Find a dataset of the Hub among those of lm-eval: its name, split and field."""
    text = task.perplexity
    templates = [
        " ".join(str(config.get(key)) for key in ("doc_to_text", "doc_to_target"))
        for entry in built_in_tasks().task_index.values()
        for config in [entry.cfg or {}]
        if config.get("dataset_path") == text.dataset
        and config.get("dataset_name") == text.name
        and config.get("test_split") == text.split
    ]
    assert any(f"{{{text.field}}}" in template for template in templates)


@ALL
def test_the_commands_of_a_header_are_accepted(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(RECIPES)
    monkeypatch.syspath_prepend(RECIPES)
    text = path.read_text(encoding="utf-8")
    (block,) = re.findall(r"^# Command:\n((?:#   .*\n)+)", text, re.M)
    commands = [shlex.split(line.removeprefix("#")) for line in block.splitlines()]

    assert [parse(words) for words in commands].count("mergekit-map run") == 1
    config = next(words[2] for words in commands if words[0] == "mergekit-map")
    assert config == path.name


def parse(words: list[str]) -> str:
    """Parse a command as click would, without running it; gives its name."""
    match words:
        case ["mergekit-map", *rest]:
            command: click.Command = main
        case ["python", script, *rest]:
            command = importlib.import_module(Path(script).stem).main
        case ["pip", "install", extra]:
            assert extra == "lm_eval[ifeval]"
            return "pip"
        case _:
            raise AssertionError(words)
    context = click.Context(command)
    if not isinstance(command, click.Group):
        command.make_context(words[1], rest)
        return words[1]
    name, found, rest = command.resolve_command(context, rest)
    if name == "refit":  # of a folder that the command before it makes
        rest[0] = "."
    found.make_context(str(name), rest, parent=context)
    return f"{words[0]} {name}"
