"""The notebook runs from its first cell to its last, on tiny models and offline."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import nbclient
import nbformat
import pytest
import yaml
from pages import ROOT, blocks

NOTEBOOK = ROOT / "docs" / "notebook.ipynb"


def outputs(cell: dict[str, Any]) -> dict[str, Any]:
    """Give what a cell shows in the end, by kind."""
    found: dict[str, Any] = {}
    for output in cell["outputs"]:
        found |= output.get("data", {})
    return found


@pytest.fixture(scope="module")
def folder(family: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Put the README's configuration into a folder, and what it names."""
    folder = tmp_path_factory.mktemp("notebook")
    config = next(
        content
        for block in blocks("README.md", "yaml")
        if "merge_method" in (content := yaml.safe_load(block))
    )
    config["base_model"] = str(family["base"])
    config["models"] = [{"model": str(family[name])} for name in "ab"]
    (folder / "merge.yml").write_text(yaml.safe_dump(config))
    (folder / "law.txt").write_text("hello world, one plus two\n" * 30)
    lines = [json.dumps({"text": "def return three\n" * 10})] * 3
    (folder / "medicine.jsonl").write_text("\n".join(lines))
    return folder


@pytest.fixture(scope="module")
def executed(folder: Path) -> dict[str, dict[str, Any]]:
    """Run it there; gives its cells by source."""
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    client = nbclient.NotebookClient(
        notebook, timeout=600, resources={"metadata": {"path": str(folder)}}
    )
    client.execute()
    codes = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert len(codes) > 5
    return {cell["source"]: cell for cell in codes}


@pytest.mark.slow
def test_a_search_and_a_choice_are_shown_as_tables(
    executed: dict[str, dict[str, Any]],
) -> None:
    shown = {code.splitlines()[-1]: cell for code, cell in executed.items()}

    for name in ("run", "chosen", "merged"):
        assert "gain kept" in outputs(shown[name])["text/html"]


@pytest.mark.slow
def test_figures_are_shown_without_pyplot(executed: dict[str, dict[str, Any]]) -> None:
    drawn = [cell for code, cell in executed.items() if code.endswith("plot()")]

    assert len(drawn) == 2
    assert all(outputs(cell)["image/png"] for cell in drawn)


@pytest.mark.slow
def test_the_script_of_the_page_does_the_same(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (script,) = blocks("docs/run-folder.md", "python")
    monkeypatch.chdir(folder)

    exec(script.replace("my-", "its-"), {})

    search, choice, *_ = capsys.readouterr().out.splitlines()
    assert search.startswith("Run('its-search': ")
    assert "weighted sum of gains (law counts 2 and medicine counts 1)" in choice
    assert (folder / "its-model" / "model.safetensors").exists()


def test_no_output_is_kept() -> None:
    notebook = json.loads(NOTEBOOK.read_text(encoding="utf-8"))
    codes = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]

    assert len(codes) > 5
    assert not any(cell["outputs"] or cell["execution_count"] for cell in codes)
