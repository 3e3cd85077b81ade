"""One recipe of each kind, run on tiny models: what it measures is what it ships."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from nested_runs import invoke
from recipe_files import RECIPES
from recipe_models import check_run, copy_recipe, pickle_weights, place

MakeModel = Callable[..., Path]


@pytest.fixture(autouse=True)
def _workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.slow
def test_math_and_code_from_pickles_with_another_padding_token(
    make_model: MakeModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(RECIPES)
    convert = __import__("to_safetensors").main
    base = place(make_model("base", 0), "meta-llama/Llama-2-13b-hf")
    for seed, model in enumerate(
        ["vanillaOVO/WizardMath-13B-V1.0", "layoric/llama-2-13b-code-alpaca"], start=1
    ):
        tuned = make_model(Path(model).name, seed, base, extra_tokens=("[PAD]",))
        pickled = pickle_weights(tuned, Path("hub", model))
        options = ("--out", model, "--dtype", "float32")
        invoke(pickled, *options, command=convert)
    copy_recipe("math_code", evaluations=9)

    check_run("math_code", "math-code")
