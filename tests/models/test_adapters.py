"""The base of an adapter, from what the adapter says of itself."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from mergekit_map.models.adapters import with_adapter_bases


def adapter(folder: Path, **settings: Any) -> str:
    folder.mkdir()
    (folder / "adapter_config.json").write_text(json.dumps(settings))
    return str(folder)


def model(folder: Path) -> str:
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    return str(folder)


@pytest.mark.parametrize(
    ("settings", "base"),
    [
        ({"base_model_name_or_path": "org/base"}, "org/base"),
        ({"base_model_name_or_path": "org/base", "revision": "v2"}, "org/base@v2"),
        ({"base_model_name_or_path": "gpt2", "revision": None}, "gpt2"),
        ({"base_model_name_or_path": "local"}, "{folder}/local"),
        ({"base_model_name_or_path": "./gone"}, None),
        ({"base_model_name_or_path": "/gone/model"}, None),
        ({"base_model_name_or_path": ""}, None),
        ({"base_model_name_or_path": 3}, None),
        ({}, None),
    ],
)
def test_the_base_is_the_one_that_the_adapter_names(
    settings: dict[str, Any], base: str | None, tmp_path: Path
) -> None:
    model(tmp_path / "local")
    lora = adapter(tmp_path / "lora", **settings)
    merge = {"merge_method": "linear", "models": [{"model": lora}, {"model": lora}]}

    written, said = with_adapter_bases(merge, tmp_path)

    if base is None:
        assert written == merge
        assert said == {}
    else:
        whole = f"{base.format(folder=tmp_path)}+{lora}"
        assert written == {**merge, "models": [{"model": whole}] * 2}
        assert list(said) == [whole]


def test_the_base_of_the_merge_is_taken_where_it_is_called_the_same(
    tmp_path: Path,
) -> None:
    lora = adapter(tmp_path / "lora", base_model_name_or_path="org/Llama-3")
    front = model(tmp_path / "llama-3")
    slices = [{"sources": [{"model": lora, "layer_range": [0, 1]}]}]
    merge = {"merge_method": "ties", "base_model": front, "slices": slices}

    written, _ = with_adapter_bases(merge, tmp_path)

    assert written["slices"][0]["sources"][0]["model"] == f"{front}+{lora}"
    assert slices[0]["sources"][0]["model"] == lora, "what was given is left as it is"


def test_models_and_adapters_with_a_base_stay(tmp_path: Path) -> None:
    lora = adapter(tmp_path / "lora", base_model_name_or_path="org/other")
    whole = model(tmp_path / "whole")
    models = [{"model": whole}, {"model": f"{whole}+{lora}"}]
    merge = {"merge_method": "ties", "base_model": whole, "models": models}

    assert with_adapter_bases(merge, tmp_path) == (merge, {})
