"""What `merge` says of a checkpoint was measured of the files that it wrote."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from fakes import front_of
from mergekit.options import MergeOptions
from model_files import edit_tensors
from runs import invoke, lines, read, write, write_plain
from safetensors.torch import load_file

from mergekit_map.config.yaml_file import MergeConfig
from mergekit_map.merging.checkpoint import write_checkpoint

MODULE = """
def {name}(model, tokenizer):
    with open("asked", "a") as file:
        file.write("{name}\\n")
    assert not os.path.exists("broken")
    return model.lm_head.weight[{row}].square().mean().item()
"""
TASKS = ("first", "second")
pytestmark = pytest.mark.usefixtures("place")


@pytest.fixture(scope="module")
def searched(family: dict[str, Path], module_folder: Path) -> Path:
    """A folder with a finished search, ``run``, whose chosen point it has measured."""
    modules = [MODULE.format(name=name, row=row) for row, name in enumerate(TASKS)]
    code = "\n".join(["import os", *modules])
    config = write_plain(family, TASKS, code, evaluations=7, remeasure=0)
    del config["base_model"]
    write({**config, "merge_method": "linear"})
    invoke("search", "config.yml", "run")
    Path("asked").unlink()
    return module_folder


def chosen() -> dict[str, Any]:
    front = read("run/front.json")
    return front["points"][front["selected"]]


def test_every_checkpoint_is_measured_and_no_search_sees_it() -> None:
    before = Path("run/evaluations.jsonl").read_text()
    front = Path("run/front.json").read_bytes()
    values = {t: r["value"] for t, r in chosen()["measured"].items()}
    assert None not in values.values()

    result = invoke("merge", "run", "one", "--trust-run")
    invoke("merge", "run", "two", "--trust-run")

    assert "not what the search measured" not in result.output
    assert Path("asked").read_text().split() == [*TASKS, *TASKS]
    after = Path("run/evaluations.jsonl").read_text()
    assert after.startswith(before)
    added = [json.loads(line) for line in after[len(before) :].splitlines()]
    assert [line["role"] for line in added] == ["checkpoint"] * 4
    assert [line["value"] for line in added] == [*values.values()] * 2
    result = invoke("search", "config.yml", "run")
    assert "kept but not used" not in result.output
    assert Path("run/front.json").read_bytes() == front
    assert Path("run/evaluations.jsonl").read_text() == after


def test_a_checkpoint_that_is_not_what_was_measured_is_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def write_another(config: MergeConfig, folder: Path, options: MergeOptions) -> None:
        write_checkpoint(config, folder, options)
        edit_tensors(lambda tensors: tensors["lm_head.weight"][1].mul_(2))(folder)

    monkeypatch.setattr("mergekit_map.workflows.merge.write_checkpoint", write_another)
    before = {t: r["value"] for t, r in chosen()["measured"].items()}

    result = invoke("merge", "run", "out", "--trust-run")

    sentence = (
        "The checkpoint is not what the search measured: second is "
        f"{4 * before['second']:.7g}, and was {before['second']:.7g}."
    )
    assert sentence in " ".join(result.output.split())
    card = Path("out/README.md").read_text()
    assert sentence in card
    assert f"{4 * before['second']:.4g}" in card
    added = lines("run")[-2:]
    assert [line["value"] for line in added] == [before["first"], 4 * before["second"]]
    # What the search measured is compared with other merges that it measured.
    assert {t: r["value"] for t, r in chosen()["measured"].items()} == before


def unmeasured() -> int:
    points = front_of(Path("run")).points
    return next(i for i, p in enumerate(points) if not p.is_measured("first"))


@pytest.mark.parametrize("measured", [False, True])
def test_what_cannot_be_measured_is_told(measured: bool) -> None:
    Path("broken").touch()
    index = front_of(Path("run")).selected if measured else unmeasured()

    result = invoke("merge", "run", "out", "--trust-run", "--index", str(index))

    sentence = "The checkpoint cannot be measured on first and second."
    assert sentence in " ".join(result.output.split())
    assert sentence in Path("out/README.md").read_text()


def test_what_the_search_has_not_measured_it_has_from_the_checkpoint() -> None:
    index = unmeasured()

    invoke("merge", "run", "out", "--trust-run", "--index", str(index))

    head = load_file("out/model.safetensors")["lm_head.weight"]
    expected = [torch.square(head[row]).mean().item() for row in range(2)]
    assert [r["value"] for r in chosen()["measured"].values()] == expected
    assert [line["role"] for line in lines("run")[-2:]] == ["front", "front"]
    assert Path("asked").read_text().split() == list(TASKS)
    front = front_of(Path("run"))
    Y = front.utilities(front.all_merges, "measured")
    better = (Y[index] <= Y).all(axis=1) & (Y[index] < Y).any(axis=1)
    assert (index in front.recommended) == (not better.any())
