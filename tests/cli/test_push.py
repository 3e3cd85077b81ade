"""``mergekit-map push`` from YAML to a repository that others load; nothing leaks."""

from __future__ import annotations

import json
import os
from pathlib import Path

import huggingface_hub
import pytest
import yaml
from hub_server import TOKEN, Hub, Repository
from runs import invoke, write_plain, write_texts

REPO = "me/merged"


@pytest.fixture(scope="module")
def merged(family: dict[str, Path], module_folder: Path) -> Path:
    """A folder with a search, ``run``, and what it merged, ``out`` in several files.

    Models and texts have absolute and relative paths; one measurement has failed.
    """
    folder, run = module_folder, module_folder / "run"
    texts = write_texts("greeting", "code", block=64)
    texts["code"]["perplexity"]["file"] = str(folder / "code.txt")
    models = {**family, "b": os.path.relpath(family["b"], folder)}
    merge = {"method": "dare_linear", "density": 0.6}
    config = write_plain(models, texts, **merge, evaluations=7, seed=3)
    text = yaml.safe_dump(config, sort_keys=False)
    (folder / "config.yml").write_text(f"# texts of {folder}\n{text}")
    invoke("search", "config.yml", "run")
    log = run / "evaluations.jsonl"
    line = json.loads(log.read_text().splitlines()[-1])
    error = f"task 'code' on model '{family['a']}': no file {run}/x, {Path.home()}/y"
    failed = {**line, "value": None, "merge": "another", "error": error}
    with log.open("a") as file:
        file.write(json.dumps(failed) + "\n")
    invoke("merge", "run", "out", "--out-shard-size", "50K")
    return folder


@pytest.fixture(autouse=True)
def _there(merged: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(merged)


def test_without_a_terminal_nothing_is_uploaded(hub: Hub) -> None:
    output = invoke("push", "out", "merged", "--license", "mit", code=2).output

    assert "model-00001-of-" in output
    assert "The repository is new and will be private" in output
    assert "no terminal to ask on; look at the list above" in output
    for options in (["--parent", "a"], ["--license", "Apache 2"]):
        assert "write " in invoke("push", "out", REPO, *options, code=2).output
    assert not hub.repositories


def test_a_dry_run_shows_files_and_card_and_uploads_nothing(
    hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    def tried(*options: str, code: int = 0) -> str:
        table, card = invoke("push", "out", REPO, *options, code=code).output.split(
            "\n# merged\n\n**"
        )
        assert "mergekit_config.yml" in table
        assert not hub.repositories
        return table + card

    with Path("run/evaluations.jsonl").open("a") as log:
        log.write('{"a line that a kill cut')
    dry = ("--run", "run", "--dry-run")
    known = tried(*dry)
    monkeypatch.setenv("HF_TOKEN", "")
    monkeypatch.setattr(huggingface_hub.constants, "HF_TOKEN_PATH", "no-file")
    hub.requests.clear()
    unknown = tried(*dry)

    for output in (known, unknown):
        assert "mergekit-map/front.json" in output
        assert "Nothing was uploaded." in output
        assert ("no login to the Hub was found" in output) == (output == unknown)
    assert "log in with: hf auth login" in tried("--yes", code=2)
    assert not hub.requests


def test_a_script_does_not_push_to_a_public_repository_by_accident(hub: Hub) -> None:
    hub.repositories[REPO] = Repository(private=False)

    output = invoke("push", "out", REPO, "--license", "mit", "--yes", code=2).output

    assert "there already and stays PUBLIC: everybody sees it" in output
    assert "add --public too" in output
    assert hub.repositories[REPO].commits == []
    invoke("push", "out", REPO, "--license", "mit", "--yes", "--public")
    assert len(hub.repositories[REPO].commits) == 1


@pytest.mark.slow
def test_only_after_a_yes_files_are_uploaded_and_none_has_a_local_path_or_token(
    merged: Path, family: dict[str, Path], hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    push, licence = ("push", "out", REPO, "--run", "run"), ("--license", "mit")
    monkeypatch.setattr(os, "isatty", lambda _: True)

    unlicensed = invoke(*push, typed="y\n", code=2).output
    refused = invoke(*push, *licence, typed="n\n", code=1).output
    assert "add --license ID" in unlicensed
    assert "Nothing was uploaded." in refused
    assert {method for method, _ in hub.requests} == {"GET"}
    accepted = invoke(*push, *licence, typed="y\n").output

    assert f"{hub.url}/{REPO} holds the merge" in accepted
    assert TOKEN not in refused + accepted
    repository = hub.repositories[REPO]
    assert repository.private
    assert repository.card()["license"] == "mit"
    files = repository.files
    paths = [merged, *family.values(), Path.home(), Path.cwd()]
    private = [*(str(path).encode() for path in paths), TOKEN.encode()]
    leaks = [(p, secret) for p, c in files.items() for secret in private if secret in c]
    assert leaks == []
    assert {"README.md", "front.png", "mergekit_config.yml"} <= files.keys()
    assert len([path for path in files if path.startswith("mergekit-map/")]) == 3
    # All of it is there on this machine, paths and all.
    local = [p for p in merged.glob("run/**/*") if p.suffix in {".json", ".yml"}]
    holding = [p.name for p in local if str(family["a"]) in p.read_text()]
    assert {"recipe.yml", "config.yml"} <= set(holding)
