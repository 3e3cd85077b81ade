"""Rules for what keeps models from being merged, each by itself."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hub_server import Hub, Repository
from huggingface_hub import constants
from mergekit.options import MergeOptions
from model_files import edit_config, edit_tensors, edit_tokenizer, swap_tokens, tuned

from mergekit_map.models.compatibility import Family, compare_tokenizers, inspect_models
from mergekit_map.models.facts import compare_settings, read_facts, read_tokenizer
from mergekit_map.models.files import find_model

MakeModel = Callable[..., Path]


@pytest.mark.parametrize(
    ("key", "one", "other", "expected"),
    [
        ("text_config.num_hidden_layers", 8, 4, ("size", "error")),
        ("rope_parameters.full.rope_theta", 1e6, 1e4, ("rope", "error")),
        ("partial_rotary_factor", 0.5, 1.0, ("rope", "error")),
        ("tie_word_embeddings", True, False, ("tied-embeddings", "warning")),
        ("hidden_act", "gelu", "silu", ("configuration-differs", "warning")),
        ("vocab_size", 100, 101, None),  # said with the tokenizer
        ("head_dim", 8, None, None),  # said with the tensors
        ("rope_parameters.type", "su", "longrope", None),  # of earlier versions
    ],
)
def test_each_setting_has_its_meaning(
    key: str, one: Any, other: Any, expected: tuple[str, str] | None
) -> None:
    plain = {"hidden_size": 32, "rope_parameters.rope_theta": 10000.0}
    mine, base = {**plain, key: one}, {**plain, key: other}

    found = [*compare_settings(mine, base, "base", layered=False)]

    assert [(f.code, f.severity) for f in found] == ([expected] if expected else [])


def test_what_follows_from_the_vocabulary_is_not_said(family: dict[str, Path]) -> None:
    other = Path(shutil.copytree(family["base"], "other"))
    edit_tokenizer(swap_tokens)(other)
    edit_tokenizer(lambda content: content["added_tokens"].pop())(other)

    mine, base = (
        read_tokenizer(folder, MergeOptions()) for folder in (other, family["base"])
    )
    found = compare_tokenizers(mine, base, "base", {})
    assert [finding.code for finding in found] == ["vocabulary"]


def inspected(
    base: Path,
    *models: Path,
    options: MergeOptions | None = None,
    download: bool = True,
    **merge: Any,
) -> Family:
    config = {"merge_method": "task_arithmetic", "base_model": str(base), **merge}
    config["models"] = [{"model": str(model)} for model in models]
    return inspect_models(config, options or MergeOptions(), download=download)


def codes(inspection: Family) -> list[list[tuple[str, str]]]:
    return [[(f.code, f.severity) for f in m.findings] for m in inspection.models]


def edited(base: Path, name: str, **entries: Any) -> Path:
    """Tune a model a little, and change its configuration."""
    model = tuned(base, Path(name).resolve(), 1)
    edit_config(**entries)(model)
    return model


def test_a_head_that_no_language_model_has_is_an_error(family: dict[str, Path]) -> None:
    judge = Path(shutil.copytree(family["a"], "judge"))
    edit_config(architectures=["LlamaForSequenceClassification"])(judge)

    _, (finding,) = read_facts(find_model(str(judge)), "judge", MergeOptions())

    assert (finding.code, finding.severity) == ("head", "error")
    whole = "ForConditionalGeneration"
    for kind, head in (("T5", whole), ("Bart", whole), ("Roberta", "ForMaskedLM")):
        edit_config(architectures=[kind + head], model_type=kind.lower())(judge)
        _, findings = read_facts(find_model(str(judge)), "judge", MergeOptions())
        assert "head" in {finding.code for finding in findings}
    gpt2 = {"architectures": ["GPT2LMHeadModel"], "model_type": "gpt2", "n_layer": 3}
    edit_config(**gpt2, num_hidden_layers="gone", num_local_experts=300)(judge)
    facts, _ = read_facts(find_model(str(judge)), "judge", MergeOptions())
    assert facts.setting("num_hidden_layers") == 3


def test_allowed_crimes_are_warnings(family: dict[str, Path]) -> None:
    rope = {"rope_parameters": {"rope_type": "default", "rope_theta": 5e5}}
    model = edited(family["base"], "model", model_type="mistral", **rope)

    allowed = inspected(family["base"], model, options=MergeOptions(allow_crimes=True))

    assert codes(inspected(family["base"], model)) == [[], [("architecture", "error")]]
    assert codes(allowed) == [[], [("architecture", "warning"), ("rope", "warning")]]


def test_truncated_embeddings_may_differ_in_size(
    make_model: MakeModel, family: dict[str, Path]
) -> None:
    larger = make_model(
        "larger", 3, family["base"], extra_tokens=("<x>",), noise=0.0005
    )
    truncated = MergeOptions(unsafe_truncate_embeddings=True)

    more = ("added-tokens", "warning")
    plain = inspected(family["base"], larger)
    assert codes(plain) == [[], [more, ("vocabulary-size", "error")]]
    assert "only in that of base ('<x>')" in plain.models[1].findings[0].cause
    assert "shape [268, 32] here and [267, 32] in" in plain.models[1].findings[1].cause
    found = inspected(family["base"], larger, options=truncated)
    assert codes(found) == [[], [more]]
    # mergekit does not cut the size that stands in the base's config.json.
    found = inspected(larger, family["base"], options=truncated)
    assert codes(found) == [[], [more, ("vocabulary-size", "error")]]
    aligned = inspected(family["base"], larger, tokenizer={"source": "union"})
    assert codes(aligned) == [[], []]


@pytest.mark.parametrize(
    ("kind", "tied", "factor", "found"),
    [
        ("Llama", False, 1.01, [("tied-embeddings", "warning")]),
        ("Llama", True, 1, []),
        ("Cohere2", True, 1, [("head", "error")]),  # whose tie mergekit does not know
        ("Olmo", True, 1, [("head", "error")]),
    ],
)
def test_a_stored_head_is_a_difference_where_it_is_not_tied(
    kind: str,
    tied: bool,
    factor: float,
    found: list[tuple[str, str]],
    make_model: MakeModel,
) -> None:
    base = make_model("tied", 1, kind=kind, tied=True)
    other = edited(base, "other", tie_word_embeddings=tied)
    embeddings = "model.embed_tokens.weight"
    edit_tensors(lambda t: t.update({"lm_head.weight": t[embeddings] * factor}))(other)

    assert codes(inspected(base, other)) == [[], found]


def test_two_models_of_another_base_point_the_same_way(
    family: dict[str, Path], make_model: MakeModel, tmp_path: Path
) -> None:
    other = make_model("other", 9, family["base"], noise=0.003)
    models = [make_model(f"of other {i}", i, other, noise=0.0003) for i in (1, 2)]

    found = inspected(family["base"], *models)

    assert codes(found) == [[], [], [("alike", "warning")]]
    cause = found.models[2].findings[0].cause
    assert "both were tuned from another base than base" in cause
    copy = Path(shutil.copytree(models[0], tmp_path / "copy"))
    found = inspected(family["base"], models[0], copy)
    assert codes(found) == [[], [], [("same-weights", "error")]]


def test_models_of_the_hub_are_told_by_their_headers(
    hub: Hub, family: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    other = edited(family["base"], "b", num_attention_heads=2)
    place = hub.url + "/{repo_id}/resolve/{revision}/{filename}"
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", place)
    for name, folder in {"me/a": family["a"], "me/b": other}.items():
        files = {path.name: path.read_bytes() for path in folder.iterdir()}
        weights = files["model.safetensors"]
        end = 8 + int.from_bytes(weights[:8], "little")
        files["model.safetensors"] = weights[:end]  # the header alone
        hub.repositories[name] = Repository(private=False, files=files)
    models = [Path(name) for name in hub.repositories]

    inspection = inspected(family["base"], *models, download=False)

    assert codes(inspection) == [[], [], [("size", "error")]]
    assert inspection.figures is None
    facts = inspection.models[1].facts
    assert facts.headers["lm_head.weight"].shape == (267, 32)
    assert facts.headers["lm_head.weight"].file is None
    assert not list(facts.files.folder.glob("*.safetensors"))
