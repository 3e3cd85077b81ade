"""One run names every cause against a merge, and a good pair has none."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from inspect_seeds import (
    SEEDS,
    MakeModel,
    configure,
    cut_short,
    edit_config,
    edit_json,
    edit_tensors,
    edit_tokenizer,
    found,
    inspect,
    inspected,
    make_adapter,
    make_nan,
    named,
    noise,
    swap_tokens,
    tuned,
)
from safetensors.torch import load_file


@pytest.mark.slow
def test_one_run_names_the_cause_of_every_incompatibility(
    base: Path, make_model: MakeModel, tmp_path: Path
) -> None:
    models, expected = {}, {"base": []}
    for seed, (name, (edit, code, _)) in enumerate(SEEDS.items()):
        models[name] = str(tuned(base, tmp_path / name, seed))
        edit(Path(models[name]))
        expected[name] = named(code)
    adapter = make_adapter(base, tmp_path / "adapter", 3)
    gone = {"base_model_name_or_path": "/gone/model"}
    edit_json("adapter_config.json", **gone)(adapter)
    larger = make_model("larger", 5, base, extra_tokens=("<x>",), noise=0.0005)
    for name, folder, code in (
        ("smaller", make_model("smaller", 5, hidden_size=16), "size"),
        ("larger", larger, "vocabulary-size"),
        ("copy", shutil.copytree(base, tmp_path / "copy"), "same-weights"),
        ("adapter", adapter, "adapter-alone"),
    ):
        models[name], expected[name] = str(folder), named(code)

    expected["larger"].insert(0, ("added-tokens", "warning"))
    expected["token name"] = [("vocabulary", "warning")]

    content = inspected(configure(base, list(models.values())))

    assert len(content["models"]) == len(SEEDS) + 5
    assert found(content) == expected
    by_name = {model["name"]: model["findings"] for model in content["models"]}
    for name, (_, _, words) in SEEDS.items():
        assert words in by_name[name][0]["cause"]
    assert not content["mergeable"]
    assert content["problems"] == []


def test_what_older_versions_wrote_is_no_difference(base: Path, tmp_path: Path) -> None:
    folder = tuned(base, tmp_path / "old", 1)

    def as_they_did(model: Path) -> None:
        config = json.loads((model / "config.json").read_text())
        for key in ("rope_parameters", "head_dim", "dtype", "pad_token_id"):
            config.pop(key, None)
        old = {"rope_theta": 10000.0, "rope_scaling": None, "torch_dtype": "float32"}
        content = {
            **config,
            **old,
            "transformers_version": "4.35.2",
            "_name_or_path": "x",
        }
        (model / "config.json").write_text(json.dumps(content))
        edit_tokenizer(lambda t: t["pre_tokenizer"].pop("use_regex"))(model)
        bos = {"__type": "AddedToken", "content": "<s>", "normalized": False}
        edit_json("tokenizer_config.json", bos_token=bos)(model)
        (model / "model.safetensors").rename(model / "model-00001-of-00001.safetensors")
        names = load_file(model / "model-00001-of-00001.safetensors")
        index = dict.fromkeys(names, "model-00001-of-00001.safetensors")
        content = {"metadata": {}, "weight_map": index}
        (model / "model.safetensors.index.json").write_text(json.dumps(content))
        (model / "consolidated.safetensors").write_bytes(b"of other programs")

    as_they_did(folder)
    models = [str(folder), str(tuned(base, tmp_path / "b", 2))]

    assert found(inspected(configure(base, models))) == {"base": [], "old": [], "b": []}


def test_independent_causes_of_one_model_are_all_named(
    base: Path, tmp_path: Path
) -> None:
    model = tuned(base, tmp_path / "bad", 1)
    edit_config(rope_theta=1e6, rope_parameters=None, hidden_act="gelu")(model)
    edit_tokenizer(swap_tokens)(model)
    edit_tensors(make_nan)(model)

    content = inspected(configure(base, [str(model)]))

    codes = ["configuration-differs", "rope", "vocabulary", "weights-not-finite"]
    assert [code for code, _ in found(content)["bad"]] == codes


def test_a_bad_base_does_not_hide_what_is_wrong_with_the_others(
    base: Path, tmp_path: Path
) -> None:
    broken = tuned(base, tmp_path / "broken", 1)
    (broken / "config.json").unlink()
    model = tuned(base, tmp_path / "a", 2)
    cut_short(model)

    content = inspected(configure(broken, [str(model)]))

    assert found(content) == {
        "broken": [("model", "error")],
        "a": [("weights", "error")],
    }


def test_without_a_base_there_are_no_task_vectors(base: Path, tmp_path: Path) -> None:
    models = [str(tuned(base, tmp_path / name, i)) for i, name in enumerate("abcde")]
    edit_tensors(lambda tensors: noise(tensors, 0.015, 77))(Path(models[1]))
    edit_tensors(lambda tensors: noise(tensors, 5.0, 78))(Path(models[4]))
    shutil.copy(Path(models[0], "model.safetensors"), models[2])
    edit_tensors(make_nan)(Path(models[3]))
    config = configure(base, models, merge_method="linear")
    del config["base_model"]

    content = inspected(config)

    assert found(content) == {
        "a": [],
        "b": [],
        "c": [("same-weights", "error")],
        "d": [("weights-not-finite", "error")],
        "e": [("unrelated", "error")],
    }
    assert content["pairs"] == []
    assert {model["norm_ratio"] for model in content["models"]} == {None}
    config["models"] = config["models"][:2]
    shown = inspect(config).stdout
    for word in ("Task vectors of", "cosine", "sign conflicts", "bounds"):
        assert word not in shown
