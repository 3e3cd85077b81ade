"""Base, parents and soup are the models on disk, whatever the merge method is."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import peft
import pytest
import torch
import transformers
from fakes import front_of
from model_files import make_adapter
from runs import invoke, stock, write_plain
from safetensors.torch import load_file
from task_files import plain_loss

from mergekit_map.results.front import Merge
from mergekit_map.results.gains import gains
from mergekit_map.types import BASE, SOUP

BLOCK = 16  # tokens
TEXTS = {
    "fr": "le chat est sur la table et le chien dort dans la cour de la maison " * 2,
    "de": "die katze liegt auf dem tisch und der hund schläft im hof des hauses " * 2,
}


@pytest.fixture(scope="module")
def parents(family: Mapping[str, Path], module_folder: Path) -> dict[str, Path]:
    """A base model, a fine-tune of it, and an adapter for it."""
    adapter = make_adapter(family["base"], module_folder / "de", 7)
    return {"base": family["base"], "fr": family["a"], "de": adapter}


def write_search(parents: Mapping[str, Path], method: str, **search: Any) -> None:
    for task, text in TEXTS.items():
        Path(f"{task}.txt").write_text(text)
    lora = f"{parents['base']}+{parents['de']}"
    models = {"base": parents["base"], "a": parents["fr"], "b": lora}
    tasks = {t: {"perplexity": {"file": f"{t}.txt"}, "block": BLOCK} for t in TEXTS}
    more = {"density": 0.5, "refine": False, **search}
    write_plain(models, tasks, method=method, **more)


def on_disk(parents: Mapping[str, Path]) -> dict[str, dict[str, float]]:
    """Measure the models themselves with transformers alone."""
    load = transformers.AutoModelForCausalLM.from_pretrained  # all are in float32
    lora = peft.PeftModel.from_pretrained(load(parents["base"]), parents["de"])
    models = {BASE: load(parents["base"]), "a": load(parents["fr"])}
    models["de"] = lora.merge_and_unload()
    soup = copy.deepcopy(models["a"])
    tuned = [models["a"].state_dict(), models["de"].state_dict()]
    soup.load_state_dict({k: (tuned[0][k] + tuned[1][k]) / 2 for k in tuned[0]})
    tokenizer = transformers.AutoTokenizer.from_pretrained(parents["base"])
    return {
        label: {t: plain_loss(model, tokenizer, [TEXTS[t]], BLOCK) for t in TEXTS}
        for label, model in {**models, SOUP: soup}.items()
    }


def values(anchor: Merge) -> dict[str, float | None]:
    return {task: reading.value for task, reading in anchor.measured.items()}


def test_references_are_the_models_on_disk_for_every_method(
    parents: Mapping[str, Path],
) -> None:
    truth = on_disk(parents)
    for method in ("ties", "dare_ties"):
        write_search(parents, method)
        invoke("search", "config.yml", method)
        front = front_of(Path(method))

        assert [anchor.label for anchor in front.anchors] == [BASE, "a", "de", SOUP]
        for anchor in front.anchors:
            assert values(anchor) == pytest.approx(truth[anchor.label or ""], rel=1e-6)
        # At weight 0 each of these methods is the base.
        assert {a.label for a in front.anchors if a.coefficients} == {BASE}
        corners = {merge.label: merge for merge in front.merges if merge.label}
        alone = next(label for label in corners if label.startswith("a alone, "))
        assert corners[alone].coefficients == {"a": 1.0, "de": 0.0}
        assert values(corners[alone]) != pytest.approx(truth["a"], rel=1e-4)
        measured = [m.is_measured("fr") for m in front.all_merges]
        assert front.differences["fr"].merges == tuple(np.flatnonzero(measured))


def test_held_out_documents_and_the_soups_recipe(parents: Mapping[str, Path]) -> None:
    write_search(parents, "ties", holdout=0.3)

    invoke("search", "config.yml", "run")

    front = front_of(Path("run"))
    assert {BASE, SOUP} < {merge.label for merge in front.holdout.merges}
    found = gains(front)
    assert SOUP in found.rivals
    assert set(found.sources.values()) == {"held-out"}
    stock("run/recipes/soup.yml", "soup")
    found = load_file("soup/model.safetensors")
    base, one = (
        load_file(parents[name] / "model.safetensors") for name in ("base", "fr")
    )
    norm = "model.norm.weight"  # which the adapter leaves as it is
    torch.testing.assert_close(found[norm], (base[norm] + one[norm]) / 2)
