from __future__ import annotations

import json

import pytest
import yaml

from mergekit_map.errors import ConfigError
from mergekit_map.hub.sanitize import PublicNames, public_names

SNAPSHOT = "/data/hub/models--org--tuned/snapshots/" + "a1" * 20


@pytest.fixture
def names() -> PublicNames:
    models = ["/data/m/base", "/old/base@main", "x/one", SNAPSHOT]
    return public_names(models, places=["/root", "/tmp"])


def test_models_of_the_hub_keep_their_names(names: PublicNames) -> None:
    assert names.reference("x/one@v2+y/lora") == "x/one@v2+y/lora"
    assert names.hub_id("x/one@v2") == "x/one"


def test_local_models_go_by_the_name_of_their_folder(names: PublicNames) -> None:
    assert names.reference("/data/m/base@r1+/elsewhere/lora") == "base@r1+lora"
    assert names.hub_id("/data/m/base") is None


def test_a_folder_of_the_hubs_cache_goes_by_repository_and_commit(
    names: PublicNames,
) -> None:
    assert names.reference(SNAPSHOT) == f"org/tuned@{'a1' * 20}"
    assert names.hub_id(SNAPSHOT) == "org/tuned"


@pytest.mark.parametrize("given", ["base", "/data/m/base", "/data/m/../m/base"])
def test_the_user_may_say_what_a_model_is_called_on_the_hub(given: str) -> None:
    names = public_names(["/data/m/base"], {given: "me/base"})

    assert names.reference("/data/m/base@r1") == "me/base@r1"
    assert names.hub_parents([{"base_model": "/data/m/base"}]) == ["me/base"]


def test_a_name_that_several_models_have_is_asked_for_as_a_path() -> None:
    models = ["/data/m/base", "/old/base"]

    with pytest.raises(ConfigError, match=r"'base' .*/data/m/base, /old/base.* path"):
        public_names(models, {"base": "me/base"})

    names = public_names(models, {"/old/base": "me/base"})
    assert names.reference("/old/base") == "me/base"
    assert names.reference("/data/m/base") == "base"


def test_relative_paths_of_a_configuration_are_found(names: PublicNames) -> None:
    there = public_names(["/data/m/base"], {"base": "me/base"}, directory="/data")

    config = {"models": [{"model": "m/base"}, {"model": "../data/m/base"}]}
    public = [{"model": "me/base"}, {"model": "me/base"}]
    assert there.config(config) == {"models": public}
    # Without the directory the first has the form of a Hub id.
    assert names.config({"model": "m/base"}) == {"model": "m/base"}


@pytest.mark.parametrize(
    ("text", "public"),
    [
        ("task 'x' on model '/data/m/base': no", "task 'x' on model 'base': no"),
        ("/data/m/base/model.safetensors", "base/model.safetensors"),
        ("/data/m/base2 is another", "/data/m/base2 is another"),
        ("see /root/secret/client.txt, line 2", "see client.txt, line 2"),
        ("in /root", "in ."),
        ("https://host/root/page", "https://host/root/page"),
        ("file:///root/a/b.txt", "file://b.txt"),
        (r"first\n/root/a/b.txt", r"first\nb.txt"),
        ("/rooted/a", "/rooted/a"),
    ],
)
def test_paths_in_texts_become_names(
    names: PublicNames, text: str, public: str
) -> None:
    assert names.text(text) == public


def test_no_spelling_of_a_path_is_missed() -> None:
    path = "/home/jürgen/it's <mine> & so/base"
    names = public_names([path])

    for spelled in (
        path,
        json.dumps(path),
        json.dumps(path, ensure_ascii=False),
        yaml.safe_dump({"model": path}),
        yaml.safe_dump({"model": f"{path}:\n"}),
        "/home/j%C3%BCrgen/it%27s%20%3Cmine%3E%20%26%20so/base",
        "/home/jürgen/it&#x27;s &lt;mine&gt; &amp; so/base",
    ):
        assert "rgen" not in names.text(spelled), spelled


def test_keys_and_values_of_any_depth_are_named(names: PublicNames) -> None:
    content = {"models": {"/data/m/base": "f1"}, "list": [["/data/m/base"], 1, None]}

    public = {"models": {"base": "f1"}, "list": [["base"], 1, None]}
    assert names.content(content) == public
