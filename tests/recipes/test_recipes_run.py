"""One recipe of each kind, run on tiny models: what it measures is what it ships."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import click
import peft
import pytest
import transformers
from recipe_files import RECIPES
from recipe_models import (
    assert_same_bits,
    copy_recipe,
    fine_tune,
    invoke,
    pad_embeddings,
    pickle_weights,
    place,
    read_front,
    read_lines,
    run_recipe,
    stock_merge,
)

from mergekit_map.search.refinement import GOOD_ENOUGH, QUIET_ROUNDS

MakeModel = Callable[..., Path]


@pytest.fixture(autouse=True)
def _workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def check_run(result: click.testing.Result, out: str, merges: int, tasks: int) -> None:
    """Hold a finished run against stock mergekit, and count what it measured."""
    assert_same_bits(Path(out), stock_merge(result, "stock"))
    front = read_front(f"{out}.run")
    chosen = front["points"][front["selected"]]
    assert all(reading["value"] is not None for reading in chosen["measured"].values())
    lines = read_lines(f"{out}.run")
    assert not any(line.get("error") for line in lines)
    first = [line for line in lines if line["role"] in {"anchor", "design"}]
    assert len(first) == 2 * (len(chosen["coefficients"]) + 1) * tasks
    refined = [line for line in lines if line["role"] == "refinement"]
    ending = front["ending"]
    assert len(first + refined) == ending["evaluations"] * tasks
    # It stopped early where nothing more could be learnt, and only there.
    assert ending["evaluations"] <= ending["allowed"] == merges
    assert ending["trusted"] == (ending["evaluations"] < merges)
    if ending["trusted"]:
        assert ending["error"] <= GOOD_ENOUGH
        assert ending["quiet"] >= QUIET_ROUNDS


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
        invoke(convert, str(pickled), "--out", model, "--dtype", "float32")
    copy_recipe("math_code")

    result = run_recipe("math_code", "math-code")

    check_run(result, "math-code", merges=30, tasks=2)


@pytest.mark.slow
def test_languages_that_two_adapters_know(make_model: MakeModel) -> None:
    base = place(make_model("base", 0), "mistralai/Mistral-7B-v0.1")
    for seed, adapter in enumerate(["predibase/gsm8k", "predibase/magicoder"]):
        make_adapter(base, Path(adapter), seed)
    copy_recipe("lora_math_code")

    result = run_recipe(
        "lora_math_code", "lora", "--lora-merge-cache", str(Path("cache").resolve())
    )

    check_run(result, "lora", merges=20, tasks=2)


def make_adapter(base: Path, folder: Path, seed: int) -> None:
    transformers.set_seed(seed)
    model = transformers.AutoModelForCausalLM.from_pretrained(base)
    lora = peft.LoraConfig(
        r=4, target_modules=["q_proj", "v_proj"], init_lora_weights=False
    )
    peft.get_peft_model(model, lora).save_pretrained(folder)


@pytest.mark.slow
def test_domains_of_which_one_has_padded_embeddings(make_model: MakeModel) -> None:
    base = place(make_model("base", 0), "meta-llama/Llama-3.2-3B")
    for seed, domain in enumerate(["math", "coding", "multilingual"], start=1):
        tuned = make_model(domain, seed, base)
        folder = place(tuned, f"MergeBench/Llama-3.2-3B_{domain}")
        if domain == "math":
            pad_embeddings(folder, 64)
    copy_recipe("mergebench_llama")

    result = run_recipe("mergebench_llama", "domains")

    check_run(result, "domains", merges=30, tasks=4)


@pytest.mark.slow
@pytest.mark.whole_front
def test_seven_languages_two_at_a_time(make_model: MakeModel) -> None:
    base = place(make_model("base", 0), "meta-llama/Meta-Llama-3-8B-Instruct")
    config = copy_recipe("seven_languages", in_memory=True, evaluations=8, remeasure=1)
    languages = list(config["map"]["tasks"])
    for language, entry in zip(languages, config["models"], strict=True):
        fine_tune(base, Path(f"{language}.jsonl"), Path(entry["model"]))

    result = run_recipe("seven_languages", "seven")

    assert_same_bits(Path("seven"), stock_merge(result, "stock"))
    front = read_front("seven.run")
    assert front["order"] == config["map"]["search"]["order"]
    # Every model is best at its own language, so that each pair is measured on two.
    pair = read_front("seven.run/nested/pair-1")
    assert list(pair["tasks"]) == ["french", "italian"]
    assert len(list(Path("seven.run/nested").glob("pair-*"))) == 6
    chosen = front["points"][front["selected"]]
    assert list(chosen["coefficients"]) == languages
    assert min(chosen["coefficients"].values()) > 0
    base_line, soup = (
        next(a for a in front["anchors"] if a["label"] == label)
        for label in ("base", "soup")
    )
    for language in languages:
        value = chosen["measured"][language]["value"]
        assert value < base_line["measured"][language]["value"]
    assert soup["measured"].keys() == chosen["measured"].keys()
