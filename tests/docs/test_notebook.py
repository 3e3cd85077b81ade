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
def executed(
    family: dict[str, Path], tmp_path_factory: pytest.TempPathFactory
) -> dict[str, dict[str, Any]]:
    """Run it in a folder with the README's configuration; gives its cells by source."""
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
        assert "best parent" in outputs(shown[name])["text/html"]


@pytest.mark.slow
def test_figures_are_shown_without_pyplot(executed: dict[str, dict[str, Any]]) -> None:
    drawn = [cell for code, cell in executed.items() if code.endswith("plot()")]

    assert len(drawn) == 2
    assert all(outputs(cell)["image/png"] for cell in drawn)


def test_no_output_is_kept() -> None:
    notebook = json.loads(NOTEBOOK.read_text(encoding="utf-8"))
    codes = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]

    assert len(codes) > 5
    assert not any(cell["outputs"] or cell["execution_count"] for cell in codes)
