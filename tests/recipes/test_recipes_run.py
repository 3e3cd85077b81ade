"""One recipe of each kind, run on tiny models: what it measures is what it ships."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import peft
import pytest
import transformers
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


@pytest.mark.slow
def test_languages_that_two_adapters_know(make_model: MakeModel) -> None:
    base = place(make_model("base", 0), "mistralai/Mistral-7B-v0.1")
    for seed, adapter in enumerate(["predibase/gsm8k", "predibase/magicoder"]):
        make_adapter(base, Path(adapter), seed)
    copy_recipe("lora_math_code", evaluations=9)

    cache = str(Path("cache").resolve())
    check_run("lora_math_code", "lora", "--lora-merge-cache", cache)


def make_adapter(base: Path, folder: Path, seed: int) -> None:
    transformers.set_seed(seed)
    model = transformers.AutoModelForCausalLM.from_pretrained(base)
    lora = peft.LoraConfig(
        r=4, target_modules=["q_proj", "v_proj"], init_lora_weights=False
    )
    peft.get_peft_model(model, lora).save_pretrained(folder)
