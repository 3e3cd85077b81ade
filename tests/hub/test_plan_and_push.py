"""Planning and uploading, against a server on this machine."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from fronts import make_front
from hub_server import TOKEN, Hub, Repository
from huggingface_hub import HfApi
from run_v1 import DATA
from safetensors.torch import save_file

from mergekit_map.errors import ArtifactError, ConfigError, HubError
from mergekit_map.hub.card import Licence, MergeRecord, write_card
from mergekit_map.hub.push import Plan, PushOptions, open_hub, plan_push, upload
from mergekit_map.results.front import Front
from mergekit_map.results.records import write_record

REPO = "me/merged"
# Files that a checkpoint may have beside its weights.
OPTIONAL = ["additional_chat_templates/tools.jinja", "chat_template.jinja"]
OPTIONAL += ["added_tokens.json", "generation_config.json", "merges.txt", "vocab.json"]
OPTIONAL += ["special_tokens_map.json", "tokenizer.json", "tokenizer.model"]
OPTIONAL += ["tokenizer_config.json"]
POINT = ([(0.7, 0.01), (2.8, 0.02)], [(0.7, 0.03), (2.8, 0.04)])


@pytest.fixture
def api(hub: Hub) -> HfApi:
    return open_hub(hub.url)


@pytest.fixture(scope="module")
def merged(module_folder: Path) -> Path:
    """A checkpoint of two files of weights, its parents a local model and the Hub's."""
    parent = module_folder / "models" / "one"
    parent.mkdir(parents=True)
    (parent / "README.md").write_text("---\nlicense: mit\n---\n")
    out = module_folder / "out"
    out.mkdir()
    (out / "config.json").write_text('{"architectures": ["LlamaForCausalLM"]}')
    for number in (1, 2):
        name = f"model-0000{number}-of-00002.safetensors"
        save_file({"a": torch.full((1000,), float(number))}, out / name)
    (out / "model.safetensors.index.json").write_text("{}")
    models = [{"model": str(parent)}, {"model": "x/two"}]
    recipe = yaml.safe_dump({"merge_method": "linear", "models": models})
    (out / "mergekit_config.yml").write_text(recipe)
    front = make_front([POINT])
    write_card(out, MergeRecord("out", recipe, "mergekit-yaml r OUT", front, {}))
    return out


@pytest.fixture
def folder(merged: Path, tmp_path: Path) -> Path:
    """A copy of it."""
    return Path(shutil.copytree(merged, tmp_path / "out"))


@pytest.fixture
def run(merged: Path, tmp_path: Path) -> Path:
    """What is left of the search."""
    run = tmp_path / "run"
    front = make_front([POINT] * 3, selected=2, reason="Chosen since.")
    write_record(run / "front.json", front)
    (run / "recipes").mkdir()
    shutil.copy(merged / "mergekit_config.yml", run / "recipes" / "001.yml")
    (run / "evaluations.jsonl").write_text("")
    (run / "config.yml").write_text("models: [{model: models/one}, {model: x/two}]\n")
    models = {str(merged.parent / "models" / "one"): "f1", "x/two": "f2"}
    manifest = json.loads((DATA / "run" / "manifest.json").read_text())
    manifest |= {"directory": str(merged.parent), "identity": {"models": models}}
    (run / "manifest.json").write_text(json.dumps(manifest))
    return run


def planned(
    folder: Path, api: HfApi | None = None, run: Path | None = None, **wishes: Any
) -> Plan:
    wishes = {"repo": REPO, "licence": "mit", **wishes}
    return plan_push(str(folder), run, PushOptions(**wishes), api)


def there(hub: Hub, *files: str, private: bool = True) -> None:
    """Put a repository on the server."""
    content = dict.fromkeys(("README.md", *files), b"old")
    hub.repositories[REPO] = Repository(private, content)


@pytest.mark.parametrize(
    ("repo", "repo_id", "private"),
    [("merged", REPO, True), ("team/merged", "team/merged", False)],
)
def test_what_was_planned_is_what_is_there(
    folder: Path, hub: Hub, api: HfApi, repo: str, repo_id: str, private: bool
) -> None:
    plan = planned(folder, api, repo=repo, private=None if private else False)
    assert not hub.repositories
    assert not hub.count("POST", "")
    assert (plan.target.repo_id, plan.private) == (repo_id, private)
    assert rewritten(plan).keys() == {"README.md", "mergekit_config.yml"}

    url = upload(api, plan, "merged")

    repository = hub.repositories[repo_id]
    assert repository.private == private
    assert repository.commits == ["merged"]
    assert url == f"{hub.url}/{repo_id}/commit/{repository.sha}"
    assert list(repository.files) == [file.path for file in plan.files]
    for name in ("config.json", "model-00001-of-00002.safetensors"):
        assert repository.files[name] == (folder / name).read_bytes()


def test_an_upload_that_failed_can_be_made_again_and_another_changes_nothing(
    folder: Path, hub: Hub, api: HfApi
) -> None:
    hub.failures["POST", "commit"] = 403

    with pytest.raises(HubError, match="403"):
        upload(api, planned(folder, api), "merged")

    assert not hub.repositories[REPO].commits
    hub.failures.clear()
    upload(api, planned(folder, api), "merged")
    assert upload(api, planned(folder, api), "merged") is None
    assert hub.repositories[REPO].commits == ["merged"]


def test_weights_and_search_of_another_merge_are_removed(
    folder: Path, hub: Hub, api: HfApi
) -> None:
    stale = [*OPTIONAL, ".eval_results/gsm8k.yaml", "mergekit-map/front.json"]
    stale += ["adapter_config.json", "adapter_model.safetensors", "model.safetensors"]
    stale += ["pytorch_model-00001-of-00002.bin", "pytorch_model.bin.index.json"]
    kept = ["model.gguf", "sub/model.safetensors", ".gitattributes"]
    there(hub, *stale, *kept)

    plan = planned(folder, api)
    upload(api, plan, "merged")

    assert plan.deleted == sorted(stale)
    assert set(hub.repositories[REPO].files) == {*kept, *(f.path for f in plan.files)}


@pytest.mark.parametrize("private", [True, False])
def test_a_repository_stays_as_visible_as_it_is(
    folder: Path, hub: Hub, api: HfApi, private: bool
) -> None:
    words = "private, not public" if private else "public, not private"
    there(hub, private=private)

    for wish in (None, private):
        assert planned(folder, api, private=wish).private is private
    with pytest.raises(ConfigError, match=f"already and {words}"):
        planned(folder, api, private=not private)


@pytest.mark.parametrize(
    ("two", "known", "common"),
    [
        ("license: mit", "mit", "mit"),
        ("license: [mit]", "mit", "mit"),
        ("license: apache-2.0", "apache-2.0", None),
        ("tags: []", None, None),
        (None, None, None),
    ],
)
def test_the_licence_is_that_of_the_parents_where_they_agree(
    folder: Path,
    hub: Hub,
    api: HfApi,
    two: str | None,
    known: str | None,
    common: str | None,
) -> None:
    if two is not None:
        card = f"---\n{two}\n---"
        hub.repositories["x/two"] = Repository(False, {"README.md": card.encode()})

    plan = planned(folder, api, licence=None)

    other = Licence(known) if known else None
    assert plan.licences == {"one": Licence("mit"), "x/two": other}
    assert plan.licence == (Licence(common) if common else None)


@pytest.mark.parametrize(
    "own",
    [
        *("license: [apache-2.0, mit]", "license: other"),
        "license: other\nlicense_name: a\nlicense_link: TERMS",
    ],
)
def test_the_licence_of_the_card_stays(
    folder: Path, hub: Hub, api: HfApi, own: str
) -> None:
    hub.repositories["x/two"] = Repository(False, {"README.md": b"---\nlicense: mit"})
    card = folder / "README.md"
    card.write_text(card.read_text().replace("---\n", f"---\n{own}\n", 1))

    plan = planned(folder, api, licence=None)

    assert plan.licence is not None  # so that it is uploaded
    stated = yaml.safe_load(plan.card.split("---\n")[1])
    assert yaml.safe_load(own).items() <= stated.items()


def test_of_a_search_three_files_are_uploaded_with_the_merged_point_chosen(
    folder: Path, run: Path
) -> None:
    for path in ("samples/a/0.json", "recipe.yml", "my-notes.txt"):
        put(run, path, "{}")

    plan = planned(folder, run=run)

    searched = {f.path for f in plan.files if f.path.startswith("mergekit-map/")}
    names = ("config.yml", "evaluations.jsonl", "front.json")
    assert searched == {f"mergekit-map/{name}" for name in names}
    files = rewritten(plan)
    front = Front.model_validate_json(files["mergekit-map/front.json"])
    assert front.selected == 1
    assert "Point 1 of 3 is the uploaded one" in front.reason
    assert len(front.points) == 3
    assert "recipes/" not in files["mergekit-map/front.json"]


def put(folder: Path, path: str, text: str) -> None:
    (folder / path).parent.mkdir(parents=True, exist_ok=True)
    (folder / path).write_text(text)


def rewritten(plan: Plan) -> dict[str, str]:
    """Read the files that differ from those of the folder."""
    changed = {file.path: file.content for file in plan.files}
    return {p: c.decode() for p, c in changed.items() if isinstance(c, bytes)}


def test_only_files_of_a_merge_are_uploaded(folder: Path) -> None:
    allowed = ["LICENSE", "model.gguf", "my-picture.png", *OPTIONAL]
    left = ["notes.txt", "training/log.json", "sub/model.safetensors"]
    hidden = [".env", ".cache/a.json", "additional_chat_templates/.x.jinja"]
    for path in (*allowed, *left, *hidden):
        put(folder, path, "{}")

    plan = planned(folder)

    paths = {file.path for file in plan.files}
    assert set(allowed) <= paths
    assert plan.left_out == sorted(left)
    assert not [path for path in paths if "/." in f"/{path}"]


def test_only_names_of_models_change_in_the_files_of_a_checkpoint(
    folder: Path, merged: Path
) -> None:
    one = f"{merged.parent}/models/one"
    template = f"Write to {Path.home()}/out"
    tokenizer = {"chat_template": template, "name_or_path": one}
    put(folder, "tokenizer_config.json", json.dumps(tokenizer))
    put(folder, "chat_template.jinja", template)
    put(folder, "generation_config.json", '{"a": [1,\n2]}')
    put(folder, "tokenizer.json", json.dumps({f"{Path.home()}/x": 2}))
    lora = {"base_model_name_or_path": "/elsewhere/lora"}
    inner = {"text_config": {"_name_or_path": one}, "parts": [lora], "x": 1e-5}
    put(folder, "config.json", json.dumps(inner))

    public = rewritten(planned(folder))

    own = {"README.md", "mergekit_config.yml"}
    assert public.keys() == {*own, "config.json", "tokenizer_config.json"}
    renamed = {**tokenizer, "name_or_path": "one"}
    assert json.loads(public["tokenizer_config.json"]) == renamed
    named = json.dumps(inner).replace(one, "one").replace("/elsewhere/", "")
    assert json.loads(public["config.json"]) == json.loads(named)


def test_of_recipe_and_configuration_numbers_are_kept_and_of_paths_the_names(
    folder: Path, run: Path, merged: Path
) -> None:
    path = folder / "mergekit_config.yml"
    weight = "  parameters:\n    weight: 0.30999940935401793\n"
    put(folder, path.name, f"# {Path.home()}\n{path.read_text()}{weight}")
    shutil.copy(path, run / "recipes/001.yml")
    config = """
models: [{model: models/one}, {model: x/two}]
map:
  tasks:
    mine: {perplexity: {file: HOME/texts/mine.txt}}
    short: {perplexity: ../texts/short.txt}
    hub: {perplexity: {dataset: org/text}}
    own: {lm_eval: ./tasks/own.yaml, metric: acc}
  backend: {name: vllm, args: {download_dir: HOME/cache}}
"""
    put(run, "config.yml", "# jane" + config.replace("HOME", str(merged.parent)))

    texts = rewritten(planned(folder, run=run))

    recipe, public = texts["mergekit_config.yml"], texts["mergekit-map/config.yml"]
    weighted = {"model": "x/two", "parameters": {"weight": 0.30999940935401793}}
    assert yaml.safe_load(recipe)["models"] == [{"model": "one"}, weighted]
    names = re.sub(r"(HOME|\.\.|\.)/(\w+/)?|models/", "", config)
    assert yaml.safe_load(public) == yaml.safe_load(names)
    assert not recipe.startswith("#")
    assert "jane" not in public


@pytest.mark.parametrize(
    ("path", "text", "message"),
    [
        ("out/generation_config.json", "{", r"generation_config\.json cannot be read"),
        ("run/recipes/001.yml", "merge_method: ties\n", "no recipe of this merge"),
    ],
)
def test_a_damaged_file_and_the_search_of_another_merge_are_refused(
    folder: Path, run: Path, path: str, text: str, message: str
) -> None:
    put(folder.parent, path, text)

    with pytest.raises(ArtifactError, match=message):
        planned(folder, run=run)


@pytest.mark.parametrize(
    ("place", "what"), [("README.md", "a local path: {}"), ("LICENSE", "my token: {}")]
)
def test_nothing_is_planned_with_a_path_or_token_in_a_file(
    folder: Path, merged: Path, hub: Hub, api: HfApi, place: str, what: str
) -> None:
    secret = TOKEN if "token" in what else str(merged.parent / "models" / "one")
    with (folder / place).open("a") as file:
        file.write(what.format(secret))

    with pytest.raises(ArtifactError, match=rf"{place}:\d+: "):
        planned(folder, api)
    assert not hub.requests or hub.count("POST", "") == 0


@pytest.mark.parametrize(
    ("path", "status", "words"),
    [
        ("whoami", 401, r"refuses .Invalid user token.*; check the login"),
        ("models/me", 502, r"refuses .502: .* push again to go on"),
    ],
)
def test_what_the_hub_refuses_is_told(
    folder: Path, hub: Hub, api: HfApi, path: str, status: int, words: str
) -> None:
    hub.failures["GET", path] = status

    with pytest.raises(HubError, match=words) as error:
        planned(folder, api)
    assert TOKEN not in str(error.value)
    assert error.value.__suppress_context__


def test_a_licence_that_the_hub_does_not_know_is_refused_before_any_file(
    folder: Path, hub: Hub, api: HfApi
) -> None:
    with pytest.raises(HubError, match=r'"license" must be one of '):
        upload(api, planned(folder, api, licence="my-own"), "merged")
    assert not hub.count("POST", "upload|commit")


@pytest.mark.usefixtures("hub")
def test_a_network_that_is_down_is_told(folder: Path) -> None:
    with pytest.raises(HubError, match=r"127\.0\.0\.1:9 cannot be used .*push again"):
        planned(folder, HfApi(endpoint="http://127.0.0.1:9", token=TOKEN))


@pytest.mark.parametrize("repo", ["a/b/c", "me/bad name", ""])
def test_a_name_that_no_repository_can_have_is_refused(
    folder: Path, hub: Hub, api: HfApi, repo: str
) -> None:
    with pytest.raises(ConfigError, match="write it as owner/name"):
        planned(folder, api, repo=repo)
    assert not hub.requests
