from __future__ import annotations

import html
import json
from itertools import product
from pathlib import Path
from urllib.parse import quote

import pytest
import torch
import yaml
from safetensors.torch import save_file

from mergekit_map.errors import ArtifactError, ConfigError
from mergekit_map.hub.sanitize import (
    PublicFile,
    PublicNames,
    public_names,
    refuse_leaks,
)

SNAPSHOT = "/data/hub/models--org--tuned/snapshots/" + "a1" * 20
NO_OWNER = "/data/hub/models--gpt2/snapshots/" + "b2" * 20


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> PublicNames:
    monkeypatch.setenv("HOME", "/root")
    return public_names(["/data/m/base", "/old/base@main", "x/one", SNAPSHOT, NO_OWNER])


@pytest.mark.parametrize(
    ("model", "name", "hub_id"),
    [
        ("x/one@v2+y/lora", "x/one@v2+y/lora", "x/one"),
        # Local models go by the name of their folder.
        ("/data/m/base@r1+/elsewhere/lora", "base@r1+lora", None),
        # A folder of the Hub's cache by repository and commit.
        (SNAPSHOT, f"org/tuned@{'a1' * 20}", "org/tuned"),
        (NO_OWNER, f"gpt2@{'b2' * 20}", "gpt2"),
    ],
)
def test_models_have_public_names(
    names: PublicNames, model: str, name: str, hub_id: str | None
) -> None:
    assert names.reference(model) == name
    assert names.hub_id(model.partition("+")[0]) == hub_id


def test_the_user_may_say_what_a_model_is_called_on_the_hub() -> None:
    models = ["/data/m/base", "/old/base"]

    with pytest.raises(ConfigError, match=r"'base' \(/data/m/base, /old/base\)"):
        public_names(models, {"base": "me/base"})

    home = str(Path("~/m/base").expanduser())
    assert public_names([home], {home: "me/it"}).reference("~/m/base") == "me/it"
    names = public_names(models, {"/old/../old/base": "me/base"})
    assert names.reference("/old/base@r1") == "me/base@r1"
    assert names.reference("/data/m/base") == "base"
    assert names.hub_parents({"base_model": "/old/base", "models": []}) == ["me/base"]
    # By the name that it has beside the other.
    assert public_names(models, {"base-2": "me/base"}).names == names.names


def test_relative_paths_of_a_configuration_are_found(names: PublicNames) -> None:
    there = public_names(["/data/m/base"], {"base": "me/base"}, directory="/data")

    config = {"models": [{"model": "m/base"}, {"model": "../data/m/base"}]}
    public = [{"model": "me/base"}, {"model": "me/base"}]
    assert there.config(config) == {"models": public}
    # Without the directory the first has the form of a Hub id.
    assert names.config({"model": "m/base"}) == {"model": "m/base"}
    assert names.config({"dataset": "../me/fr"}) == {"dataset": "fr"}


@pytest.mark.parametrize(
    ("text", "public"),
    [
        ("task 'x' on model '/data/m/base': no", "task 'x' on model 'base': no"),
        ("/data/m/base/model.safetensors", "model.safetensors"),
        ("see /root/secret/client.txt, line 2", "see client.txt, line 2"),
        ("in /root", "in ."),
        ("https://host/root/page", "https://host/root/page"),
        ("file:///root/a/b.txt", "file://b.txt"),
        ("no /home/jane/b.txt, no /Users/jane", "no b.txt, no ."),
        ("and/or 3/4 a /b", "and/or 3/4 a /b"),
    ],
)
def test_paths_in_text_become_names(names: PublicNames, text: str, public: str) -> None:
    assert names.text(text) == public


def test_a_home_that_is_the_root_hides_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "see https://host/a or yes / no"
    for home in ("/", None):
        monkeypatch.setattr("os.path.expanduser", lambda path, home=home: home or path)
        assert public_names([]).text(text) == text


TOKEN = "api_org_secretsecret"
MODEL, HOME = "/home/jane/models/it's <mine> & so/bäse", "/home/jane"
PRIVATE = PublicNames({MODEL: "bäse"}, home=HOME)


def check(text: str, path: str = "README.md") -> None:
    refuse_leaks([PublicFile(path, text.encode())], PRIVATE, TOKEN)


SPELLED = [MODEL, json.dumps(MODEL), json.dumps(MODEL, ensure_ascii=False)]
SPELLED += [yaml.safe_dump({"model": MODEL}), quote(MODEL), html.escape(MODEL)]
HOMES = ["file:///home/jane/x", f"({HOME})", "/home/joe/models/x", "/Users/joe/x"]


@pytest.mark.parametrize(
    ("path", "text"),
    [
        *product(["config.json", "LICENSE", "mergekit-map/front.json"], HOMES),
        *product(["chat_template.jinja"], SPELLED),  # where other paths may be
    ],
)
def test_a_home_or_model_is_refused_with_file_and_line(path: str, text: str) -> None:
    with pytest.raises(ArtifactError, match=f"{path}:3: the local path "):
        check(f"one\ntwo\n{text}\n", path)


@pytest.mark.parametrize("token", [TOKEN, "hf_" + "a1B2" * 6, "sk-0123456789abcdef"])
def test_a_token_is_never_shown(token: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_API_KEY", "sk-0123456789abcdef")
    with pytest.raises(ArtifactError, match=r"README\.md:2: an access token") as error:
        check(f"one\nmy token={token}\n")

    assert token not in str(error.value)


@pytest.mark.parametrize(
    "text", ["https://host/home/jane", "/janet/x", "a/home/jane", "hf_short", "/", ""]
)
def test_what_only_looks_alike_passes(text: str) -> None:
    check(text)


def test_any_other_path_that_is_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match=f"the local path {tmp_path}"):
        check(f"see {tmp_path}.")
    check(f"see {tmp_path}/nothing and /usr/bin/env")


@pytest.mark.parametrize(
    "path", ["tokenizer.json", "additional_chat_templates/tools.jinja"]
)
def test_a_vocabulary_or_template_may_tell_of_any_folder_but_that_of_a_model(
    path: str, tmp_path: Path
) -> None:
    check(json.dumps({f"Write to {HOME}/out and {tmp_path}": 1}), path)
    for text in (f"see {MODEL}/notes", json.dumps({f"see {MODEL}/notes": 1})):
        with pytest.raises(ArtifactError, match=rf"{path}:1: the local path"):
            check(text, path)
    with pytest.raises(ArtifactError, match="an access token"):
        check(f"{TOKEN}", path)


def test_the_header_of_weights_is_read_and_their_numbers_are_not() -> None:
    letters = torch.tensor(list(f"xx {HOME} ".encode()), dtype=torch.uint8)
    named, picture = Path("model.safetensors"), Path("front.png")

    save_file({"a": letters}, named, metadata={"format": "pt"})
    refuse_leaks([PublicFile(named.name, named)], PRIVATE, TOKEN)

    save_file({"a": letters}, named, metadata={"from": MODEL})
    picture.write_bytes(b"\x89PNG\0\n" + MODEL.encode())
    for path, line in ((named, 1), (picture, 2)):
        with pytest.raises(ArtifactError, match=f"{path.name}:{line}: the local path"):
            refuse_leaks([PublicFile(path.name, path)], PRIVATE, TOKEN)
