"""A plain mergekit file becomes one of ours, with the same settings."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from runs import invoke

from mergekit_map.errors import ConfigError
from mergekit_map.workflows.init import extend_plain

PLAIN = """\
# My merge, as tuned by hand
merge_method: dare_ties
base_model: org/base     # from the Hub
models:
  - model: org/base
  - model: org/law-model
    parameters: {weight: 0.5, density: 0.5}   # law counts
  - model: org/medicine
    parameters:
      weight: 3e-1   # tried 0.2
      density: 0.5
  - model: org/third
dtype: bfloat16"""


def extended(text: str, folder: Path) -> str:
    (folder / "plain.yml").write_text(text)
    return extend_plain(folder / "plain.yml", {})


def test_only_weights_change_and_a_block_follows(tmp_path: Path) -> None:
    text = extended(PLAIN, tmp_path)

    assert text.startswith(
        "# Searched by name: the weights of law-model (was 0.5), medicine (was 0.3)\n"
    )
    content = yaml.safe_load(text)
    weights = [e.get("parameters", {}).get("weight") for e in content["models"]]
    assert weights == [None, "law-model", "medicine", None]
    assert content.pop("map") == {
        "tasks": {
            name: {"perplexity": f"{name}.txt"}
            for name in ("law-model", "medicine", "third")
        }
    }
    for entry in content["models"]:
        entry.get("parameters", {}).pop("weight", None)
    was = yaml.safe_load(PLAIN)
    for entry in was["models"]:
        entry.get("parameters", {}).pop("weight", None)
    assert content == was


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("merge_method: ties\nmap: {}\nmodels: []", r"plain.yml:2: map: .*already"),
        ("merge_method: ties", r"'models:' with a 'model:' each was expected.*none"),
        ("base_model: a\nmodels: [{model: a}]", "'models:' with a 'model:' each"),
    ],
)
def test_what_cannot_be_extended_is_told(
    text: str, message: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=message):
        extended(text, tmp_path)


def test_init_writes_it_and_names_the_next_steps() -> None:
    Path("plain.yml").write_text(PLAIN)
    Path("fr.txt").touch()
    command = ["init", "plain.yml", "merge.yml", "--text", "fr.txt", "--task", "bbh"]

    result = invoke(*command)

    assert result.stderr.splitlines() == [
        "wrote merge.yml",
        "  mergekit-map inspect merge.yml",
        "  mergekit-map run merge.yml OUT",
    ]
    tasks = yaml.safe_load(Path("merge.yml").read_text())["map"]["tasks"]
    assert tasks == {"fr": {"perplexity": "fr.txt"}, "bbh": {"preset": "bbh"}}
    assert Path("plain.yml").read_text() == PLAIN
