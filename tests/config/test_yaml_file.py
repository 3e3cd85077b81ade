from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from mergekit_map.config.yaml_file import YamlFile, read_yaml, with_settings, yaml_text


def test_comments_stand_on_top_a_line_each() -> None:
    text = yaml_text({"b": 1, "a": [{"c": 2}]}, ["why", "", "two\nlines: here"])

    assert text == "# why\n#\n# two lines: here\nb: 1\na:\n- c: 2\n"


def read(text: str, folder: Path) -> YamlFile:
    (folder / "a.yml").write_text(text)
    return read_yaml(folder / "a.yml")


@pytest.mark.parametrize(
    "text",
    [
        "map:\n  tasks: {a: 1}\n  search: {seed: 3}\n  select:\n    prefer:\n     a: 2",
        "map: {tasks: {a: 1}}\n",
        "map:\n  tasks: {a: 1}\n  search:\nother: 3\n",
    ],
)
def test_settings_are_set_in_content_and_text(text: str, tmp_path: Path) -> None:
    settings = {"search": {"evaluations": 30}, "select": {"prefer": {"no": 1}}}

    file = with_settings(read(text, tmp_path), settings)

    assert yaml.safe_load(file.text) == file.content
    block = file.content["map"]
    assert block["search"]["evaluations"] == 30
    assert block["tasks"] == {"a": 1}
    assert block["select"] == settings["select"]


@pytest.mark.parametrize(
    "text",
    [
        "map: 3\n",
        "map:\n  search: [3]\n",
        "other: 1\n",
        "map: {search: {seed: 3}}\n",  # so that comments stay
    ],
)
def test_a_file_stays_where_nothing_can_be_set(text: str, tmp_path: Path) -> None:
    file = read(text, tmp_path)

    assert with_settings(file, {"search": {"seed": 3}}) is file


def test_keys_are_text_and_exponents_make_numbers(tmp_path: Path) -> None:
    text = "no: 1e-3\n3: '1e3'\ntrue: 2020-01-01\nb: 1:30\nc: 010\n"

    content = read(text, tmp_path).content

    texts = {"3": "1e3", "true": "2020-01-01", "b": "1:30", "c": "010"}
    assert content == {"no": 0.001, **texts}
    assert read(yaml_text(content), tmp_path).content == content


def test_what_an_alias_stands_for_can_be_changed_by_itself(tmp_path: Path) -> None:
    content = read("one: &shared {density: 0.5}\nother: *shared\n", tmp_path).content

    assert content["one"] == content["other"]
    assert content["one"] is not content["other"]
