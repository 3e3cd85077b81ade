"""The base of an adapter, from what the adapter says of itself."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from mergekit_map.models.adapters import with_adapter_bases


def model(folder: Path, file: str = "config.json", **settings: Any) -> str:
    folder.mkdir()
    (folder / file).write_text(json.dumps(settings))
    return str(folder)


def adapter(folder: Path, base: Any) -> str:
    return model(folder, "adapter_config.json", base_model_name_or_path=base)


@pytest.mark.parametrize(
    ("named", "is_its_base"),
    [
        ("org/Llama-3", True),  # as trained on another machine
        ("{folder}/llama-3", True),
        ("{folder}/other", False),
        ("org/other", False),
        ("", False),
        (3, False),
        ("x" * 5000, False),
    ],
)
def test_an_adapter_of_the_base_model_is_merged_into_it(
    named: Any, is_its_base: bool, tmp_path: Path
) -> None:
    front = model(tmp_path / "llama-3")
    model(tmp_path / "other")
    if isinstance(named, str):
        named = named.format(folder=tmp_path)
    lora = adapter(tmp_path / "lora", named)
    slices = [{"sources": [{"model": lora, "layer_range": [0, 1]}]}]
    merge = {"merge_method": "ties", "base_model": front, "slices": slices}

    found = with_adapter_bases(merge)["slices"][0]["sources"][0]["model"]
    assert found == (f"{front}+{lora}" if is_its_base else lora)
    assert slices[0]["sources"][0]["model"] == lora, "what was given is left as it is"
    moved = with_adapter_bases(merge, "org/other")  # as the configuration calls it
    assert (moved != merge) == (is_its_base or str(named).endswith("other"))


def test_an_adapter_stays_alone_where_its_tokenizer_is_wanted(tmp_path: Path) -> None:
    front = model(tmp_path / "base")
    lora = adapter(tmp_path / "lora", "org/base")
    merge = {"base_model": front, "models": [{"model": lora}], "tokenizer_source": lora}
    merge["tokenizer"] = {"source": lora, "tokens": {"x": {"source": lora}}}

    written = with_adapter_bases(merge)

    whole = f"{front}+{lora}"
    assert written["models"] == [{"model": whole}]
    assert written["tokenizer_source"] == written["tokenizer"]["source"] == lora
    assert written["tokenizer"]["tokens"] == {"x": {"source": whole}}


def test_models_and_adapters_with_a_base_stay(tmp_path: Path) -> None:
    lora = adapter(tmp_path / "lora", "org/other")
    whole = model(tmp_path / "whole")
    models = [{"model": whole}, {"model": f"{whole}+{lora}"}]
    merge = {"merge_method": "ties", "base_model": whole, "models": models}

    assert with_adapter_bases(merge) == merge
    alone = {"merge_method": "linear", "models": [{"model": lora}]}
    assert with_adapter_bases(alone) == alone
