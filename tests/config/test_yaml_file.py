from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from mergekit_map.config.yaml_file import read_yaml, with_settings, yaml_text


def test_comments_stand_on_top_a_line_each() -> None:
    text = yaml_text([{"b": 1, "a": [{"c": 2}]}], ["why", "", "two\nlines: here"])

    assert text == "# why\n#\n# two lines: here\nb: 1\na:\n- c: 2\n"


@pytest.mark.parametrize(
    "text",
    [
        "map:\n  tasks: {a: 1}\n  search: {seed: 3}\n  select:\n    prefer:\n     a: 2",
        "map: {tasks: {a: 1}}\n",
        "map:\n  tasks: {a: 1}\n  search:\nother: 3\n",
        "map:\n    # mine\n    search: # as well\n        evaluations: 3 # at most\n",
    ],
)
def test_settings_are_set_in_content_and_text(text: str, tmp_path: Path) -> None:
    (tmp_path / "a.yml").write_text(text)
    before = read_yaml(tmp_path / "a.yml")
    settings = {"search": {"evaluations": 30}, "select": {"prefer": {"no": 1}}}

    file = with_settings(before, settings)

    assert yaml.safe_load(file.text) == file.content
    block = file.content["map"]
    assert block["search"]["evaluations"] == 30
    assert block.get("tasks") == before.content["map"].get("tasks")
    assert block["select"] == settings["select"]
    assert with_settings(file, settings) is file  # comments stay where nothing is set


@pytest.mark.parametrize("text", ["map: 3\n", "map:\n  search: [3]\n", "other: 1\n"])
def test_settings_of_what_is_no_mapping_are_left_to_its_validation(
    text: str, tmp_path: Path
) -> None:
    (tmp_path / "a.yml").write_text(text)
    file = read_yaml(tmp_path / "a.yml")

    assert with_settings(file, {"search": {"seed": 3}}) is file


def test_keys_are_text_and_exponents_make_numbers(tmp_path: Path) -> None:
    (tmp_path / "a.yml").write_text("no: 1e-3\n3: '1e3'\ntrue: 2020-01-01\n")

    content = read_yaml(tmp_path / "a.yml").content

    assert content == {"no": 0.001, "3": "1e3", "true": "2020-01-01"}
    (tmp_path / "b.yml").write_text(yaml_text([content]))
    assert read_yaml(tmp_path / "b.yml").content == content


def test_what_an_alias_stands_for_can_be_changed_by_itself(tmp_path: Path) -> None:
    (tmp_path / "a.yml").write_text("one: &shared {density: 0.5}\nother: *shared\n")

    content = read_yaml(tmp_path / "a.yml").content

    assert content["one"] == content["other"]
    assert content["one"] is not content["other"]
