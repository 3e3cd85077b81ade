"""The notebook runs from its first cell to its last, on tiny models and offline."""

from __future__ import annotations

import ast
import asyncio
import io
import json
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import pytest
import yaml
from pages import ROOT, blocks
from runs import write, write_texts


class Stream(io.StringIO):
    """What a kernel writes to: no file, and no terminal."""


Stream.__module__ = "ipykernel.iostream"


def sources() -> list[str]:
    notebook = json.loads((ROOT / "docs/notebook.ipynb").read_text(encoding="utf-8"))
    codes = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert len(codes) > 5
    assert not any(cell["outputs"] or cell["execution_count"] for cell in codes)
    return ["".join(cell["source"]) for cell in codes]


def shown(source: str, names: dict[str, Any]) -> Any:
    """Run a cell, and return the value of its last line, which a notebook shows."""
    *lines, last = ast.parse(source).body
    exec(compile(ast.Module(lines, []), "cell", "exec"), names)
    if isinstance(last, ast.Expr):
        return eval(compile(ast.Expression(last.value), "cell", "eval"), names)
    return exec(compile(ast.Module([last], []), "cell", "exec"), names)


@pytest.fixture(scope="module")
def folder(family: dict[str, Path], module_folder: Path) -> Path:
    """Put the README's configuration into a folder, and what it names."""
    config = next(
        content
        for block in blocks("README.md", "yaml")
        if "merge_method" in (content := yaml.safe_load(block))
    )
    config["base_model"] = str(family["base"])
    config["models"] = [{"model": str(family[name])} for name in "ab"]
    config["map"]["search"] = {"evaluations": 7, "remeasure": 1}
    write(config, "merge.yml")
    write_texts("law")
    lines = [json.dumps({"text": "def return three\n" * 10})] * 3
    Path("medicine.jsonl").write_text("\n".join(lines))
    return module_folder


@pytest.mark.picture
def test_the_notebook_shows_tables_and_figures(folder: Path) -> None:
    async def run_cells() -> dict[str, Any]:
        names: dict[str, Any] = {}
        return {source: shown(source, names) for source in sources()}

    # As a kernel runs it: within a loop, and with streams of its own.
    progress = Stream()
    with pytest.MonkeyPatch.context() as patch, redirect_stderr(progress):
        patch.chdir(folder)
        with redirect_stdout(Stream()):
            found = asyncio.run(run_cells())
    assert "anchor, " in progress.getvalue()

    by_line = {source.splitlines()[-1]: value for source, value in found.items()}
    for name in ("run", "chosen", "merged"):
        assert "gain kept" in by_line[name]._repr_html_()
    drawn = [value for line, value in by_line.items() if line.endswith("plot()")]
    assert len(drawn) == 2
    assert all(figure._repr_png_().startswith(b"\x89PNG") for figure in drawn)


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
