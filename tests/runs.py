"""Searches of tiny models, and the stock commands to hold them to."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import click
import click.testing
import torch
import yaml
from mergekit.io.tasks import LoaderCache
from mergekit.scripts import run_yaml
from safetensors.torch import load_file

from mergekit_map.cli.main import main
from mergekit_map.config.schema import SearchSpec
from mergekit_map.merging.space import MergeSpace, build_space
from mergekit_map.merging.validation import check_merge


def write(config: dict[str, Any], name: str = "config.yml") -> None:
    Path(name).write_text(yaml.safe_dump(config, sort_keys=False))


def invoke(
    *arguments: str | Path,
    code: int = 0,
    command: click.Command = main,
    typed: str | None = None,
) -> click.testing.Result:
    """Run a command, which ends with ``code``, in this process."""
    result = click.testing.CliRunner().invoke(command, [*map(str, arguments)], typed)
    assert result.exit_code == code, result.output
    return result


def read(path: str | Path) -> Any:
    return json.loads(Path(path).read_text())


def lines(run: str | Path) -> list[dict[str, Any]]:
    """Read the log of a run folder."""
    text = Path(run, "evaluations.jsonl").read_text()
    return [json.loads(line) for line in text.splitlines()]


def untimed(run: Path) -> list[dict[str, Any]]:
    """Read the log of a run folder without its timings."""
    return [{**line, "seconds": 0} for line in lines(run)]


def assert_same_run(run: Path, other: Path) -> None:
    """Compare run folders, but for their timings and names."""
    assert untimed(run) == untimed(other)
    for name in ("front.json", "front.csv"):
        assert (run / name).read_bytes() == (other / name).read_bytes()
    recipes = [path.relative_to(run) for path in sorted(run.glob("recipes/*.yml"))]
    assert recipes
    for name in [*recipes, Path("recipe.yml")]:
        text = (run / name).read_text().replace(f"{run}/", f"{other}/")
        assert text == (other / name).read_text()


def files_of(run: Path) -> dict[str, bytes]:
    """Read all files of a folder, but for locks, by their places in it."""
    files = (p for p in sorted(run.rglob("[!.]*")) if p.is_file())
    return {str(path.relative_to(run)): path.read_bytes() for path in files}


def set_at(content: Any, value: Any, *keys: Any) -> None:
    """Set a value within mappings and lists."""
    *inner, last = keys
    for key in inner:
        content = content[key]
    content[last] = value


def change_json(path: Path, change: Callable[[Any], object]) -> None:
    content = read(path)
    change(content)
    path.write_text(json.dumps(content))


def tensors_of(checkpoint: str | Path) -> dict[str, torch.Tensor]:
    """Read the tensors of all files of weights."""
    files = sorted(Path(checkpoint).glob("*.safetensors"))
    return {name: t for file in files for name, t in load_file(file).items()}


def assert_same_weights(one: str | Path, other: str | Path) -> None:
    ours, theirs = tensors_of(one), tensors_of(other)
    assert ours
    assert ours.keys() == theirs.keys()
    for name, tensor in theirs.items():
        assert ours[name].dtype == tensor.dtype, name
        assert torch.equal(ours[name], tensor), name


def stock(recipe: str, out: str) -> None:
    """Run the command that stands in a recipe, in another folder."""
    (command,) = re.findall("^# Merge it with: (.*)", Path(recipe).read_text(), re.M)
    run_mergekit(command, out)


def merged_by_stock(output: str, out: str) -> None:
    """Run the command that merge said writes the same checkpoint."""
    said = output.split("mergekit writes the same tensors with:\n")[1]
    run_mergekit(said.splitlines()[0], out)


def run_mergekit(command: str, out: str) -> None:
    """Run a stock command, in this process because importing it takes seconds."""
    program, *words = shlex.split(command)
    assert (program, "OUT" in words) == ("mergekit-yaml", True)
    words = [out if word == "OUT" else word for word in words]
    LoaderCache().loaders.clear()
    result = click.testing.CliRunner().invoke(run_yaml.main, [*words, "--quiet"])
    LoaderCache().loaders.clear()
    assert result.exception is None, result.output


PLAIN_TASKS = """
def one(model, tokenizer):
    return 100 * model.lm_head.weight.float()[3].mean().item()

def two(model, tokenizer):
    return -100 * model.lm_head.weight.float()[3].mean().item()
"""


def write_plain(
    family: Mapping[str, Path | str],
    tasks: Sequence[str] | Mapping[str, Any] = ("one", "two"),
    code: str = PLAIN_TASKS,
    *,
    names: Sequence[str] = "ab",
    method: str = "task_arithmetic",
    density: float | None = None,
    **search: Any,
) -> dict[str, Any]:
    """Write a search into the working directory, and return it.

    ``tasks`` are functions of ``code``, to be minimized, or tasks as they are written.
    """
    Path("mine.py").write_text(code)
    if not isinstance(tasks, Mapping):
        own = {"direction": "minimize"}
        tasks = {name: {"python": f"mine:{name}", **own} for name in tasks}
    more = {} if density is None else {"parameters": {"density": density}}
    search = {"evaluations": 6, "remeasure": 1, **search}
    content = {
        "merge_method": method,
        "base_model": str(family["base"]),
        "models": [{"model": str(family[name]), **more} for name in names],
        "dtype": "float32",
        "map": {"tasks": dict(tasks), "search": search},
    }
    write(content)
    return content


def space_of(merge: dict[str, Any]) -> MergeSpace:
    assert check_merge(merge) == []
    space, problems = build_space(merge, SearchSpec())
    assert problems == []
    return space


def write_texts(*names: str, **options: Any) -> dict[str, Any]:
    """Write texts into the working directory; returns the tasks that measure them."""
    for name in names:
        line = "def return three" if name == "two" else "hello world, one plus two"
        Path(f"{name}.txt").write_text(f"{line}\n" * 60)
    return {name: {"perplexity": {"file": f"{name}.txt"}, **options} for name in names}
