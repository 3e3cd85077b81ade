"""What is measured is what is shipped (design contract 1)."""

from __future__ import annotations

import itertools
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import accelerate
import numpy as np
import pytest
import torch
import transformers
import yaml
from mergekit.options import MergeOptions
from model_files import edit_config, edit_tensors
from runs import space_of
from safetensors.torch import load_file

from mergekit_map.config.yaml_file import yaml_text
from mergekit_map.errors import MergeError
from mergekit_map.merging.checkpoint import load_checkpoint, write_checkpoint
from mergekit_map.merging.in_memory import ResidentMerge, resident_merge
from mergekit_map.merging.space import MergeSpace

SEED = 7
OPTIONS = MergeOptions(random_seed=SEED, quiet=True)
TASK_VECTOR_METHODS = ["task_arithmetic", "ties", "dare_linear", "dare_ties", "della"]
TASK_VECTOR_METHODS += ["della_linear", "breadcrumbs", "breadcrumbs_ties"]


def config(
    method: str, family: dict[str, Path], names: str = "ab", **more: Any
) -> dict[str, Any]:
    parameters = {} if method in {"task_arithmetic", "linear"} else {"density": 0.5}
    models = [{"model": str(family[n]), "parameters": {**parameters}} for n in names]
    merge = {"merge_method": method, "base_model": str(family["base"])}
    return {**merge, "models": models, **more}


def some_coefficients(space: MergeSpace, seed: int = 0) -> dict[str, float]:
    return space.named(np.random.default_rng(seed).uniform(size=len(space.names)))


def assert_ships_what_it_measures(
    space: MergeSpace,
    options: MergeOptions = OPTIONS,
    *,
    model: transformers.PreTrainedModel | None = None,
) -> ResidentMerge:
    """Compare two merges in memory with stock mergekit's checkpoints and answers.

    The merges are written into ``model``, if it is given.
    """
    tokens = torch.arange(3, 40)[None]
    with resident_merge(space, options) as merge:
        if model is not None:
            merge.model = model
        for seed in (1, 2):
            coefficients = some_coefficients(space, seed)
            folder = Path(f"stock{seed}")
            write_checkpoint(space.config(coefficients), folder, options)
            stock, _ = load_checkpoint(folder, options)
            merge.write(coefficients)
            assert_equal_states(merge.model.state_dict(), stock.state_dict())
            with torch.no_grad():
                assert torch.equal(merge.model(tokens).logits, stock(tokens).logits)
        return merge


def assert_equal_states(
    ours: dict[str, torch.Tensor], theirs: dict[str, torch.Tensor]
) -> None:
    assert ours.keys() == theirs.keys()
    for name, tensor in theirs.items():
        assert ours[name].dtype == tensor.dtype
        # Bytes, so that a zero of the other sign is a difference.
        assert torch.equal(ours[name].view(torch.uint8), tensor.view(torch.uint8)), name


@pytest.mark.slow  # imports mergekit anew
def test_equals_the_checkpoints_of_mergekit_yaml_in_another_process(
    family: dict[str, Path], family_bf16: dict[str, Path], tmp_path: Path
) -> None:
    spaces = {}
    # test_replay has every method in every dtype.
    types = itertools.cycle([("float32", family), ("bfloat16", family_bf16)])
    for method, (dtype, models) in zip(TASK_VECTOR_METHODS, types, strict=False):
        spaces[method] = space = space_of(config(method, models, dtype=dtype))
        text = yaml_text(space.config(some_coefficients(space)))
        (tmp_path / f"{method}.yml").write_text(text)
    # The command itself, once per recipe, where we are not imported.
    script = (
        "import sys\n"
        "from mergekit.scripts.run_yaml import main\n"
        "for recipe in sys.argv[1:]:\n"
        f"    options = ['--random-seed', '{SEED}', '--quiet']\n"
        "    main([recipe, recipe[:-4], *options], standalone_mode=False)\n"
        "assert 'mergekit_map' not in sys.modules\n"
    )
    recipes = [str(tmp_path / f"{name}.yml") for name in spaces]
    command = [sys.executable, "-c", script, *recipes]
    subprocess.run(command, check=True, capture_output=True)

    for name, space in spaces.items():
        stock = load_file(tmp_path / name / "model.safetensors")
        with resident_merge(space, OPTIONS) as merge:
            merge.write(some_coefficients(space))
            assert_equal_states(dict(merge.model.state_dict()), stock)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["linear", "multislerp", "nuslerp"])
def test_other_methods_with_model_weights(method: str, family: dict[str, Path]) -> None:
    merge = config(method, family)
    del merge["base_model"]
    for model in merge["models"]:
        model["parameters"] = {}

    assert_ships_what_it_measures(space_of(merge))


def test_what_transformers_keeps_in_float32_is_rounded_as_it_is_stored(
    make_model: Callable[..., Path],
) -> None:
    some = {"n_routed_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 8}
    some |= {"kind": "Glm4Moe", "head_dim": 8, "n_group": 1, "topk_group": 1}
    models = {"base": make_model("glm", 0, **some)}
    models |= {n: make_model(f"glm-{n}", 1, models["base"], **some) for n in "ab"}
    bias = "model.layers.1.mlp.gate.e_score_correction_bias"
    edit_tensors(lambda tensors: tensors[bias].normal_())(models["a"])
    merge = config("task_arithmetic", models, dtype="float32", out_dtype="bfloat16")

    found = assert_ships_what_it_measures(space_of(merge))

    dtypes = {p.dtype for p in found.model.state_dict().values()}
    assert dtypes == {torch.bfloat16, torch.float32}


def test_tied_embeddings_in_several_files_stay_tied(
    make_model: Callable[..., Path],
) -> None:
    base = make_model("tied", 20, tied=True, shard="20KB")
    tuned = make_model("tied-a", 21, base, tied=True, shard="30KB")
    assert len(list(base.glob("*.safetensors"))) > 1
    space = space_of(config("dare_ties", {"base": base, "a": tuned}, "a"))

    model = assert_ships_what_it_measures(space).model

    assert model.lm_head.weight is model.model.embed_tokens.weight


def test_a_merge_with_its_own_head_says_so(make_model: Callable[..., Path]) -> None:
    base = make_model("tied", 20, tied=True)
    own = shutil.copytree(base, Path("own").resolve())
    embeddings = "model.embed_tokens.weight"
    edit_tensors(lambda t: t.update({"lm_head.weight": 1.1 * t[embeddings]}))(own)
    edit_config(tie_word_embeddings=False)(own)
    space = space_of(config("task_arithmetic", {"base": base, "a": own}, "a"))

    model = assert_ships_what_it_measures(space).model

    assert not torch.equal(model.lm_head.weight, model.model.embed_tokens.weight)
    assert not transformers.AutoConfig.from_pretrained("stock1").tie_word_embeddings


@pytest.mark.slow
@pytest.mark.parametrize("source", ["union", "base"])
def test_tokenizers_of_other_size(source: str, make_model: Callable[..., Path]) -> None:
    base = make_model("base", 0)
    more = make_model("more-tokens", 40, base, extra_tokens=("alpha", "beta"))
    merge = config("ties", {"base": base, "a": more}, "a", tokenizer={"source": source})

    found = assert_ships_what_it_measures(space_of(merge))

    rows = transformers.AutoConfig.from_pretrained(more if source == "union" else base)
    assert len(found.model.model.embed_tokens.weight) == rows.vocab_size


def test_slices(family: dict[str, Path]) -> None:
    def layer(number: int) -> dict[str, Any]:
        span = {"layer_range": [number, number + 1]}
        return {"sources": [{"model": str(family[n]), **span} for n in ("base", *"ab")]}

    merge = config("task_arithmetic", family)
    del merge["models"]
    merge["slices"] = [layer(0), layer(1), layer(1)]
    space = space_of(merge)

    found = assert_ships_what_it_measures(space)

    assert space.names == ("a", "b")
    assert "model.layers.2.mlp.up_proj.weight" in found.replays


def test_fixed_weights_filters_gradients_and_a_listed_base(
    make_model: Callable[..., Path],
) -> None:
    base = make_model("deep", 60, num_hidden_layers=7)
    a, b, c = (
        make_model(f"deep-{seed}", seed, base, num_hidden_layers=7)
        for seed in (61, 62, 63)
    )
    gradient = [0.0, "b_late", 0.1]  # of seven layers, most are between these
    filters = [{"filter": "mlp", "value": "a_mlp"}, {"value": 0.25}]
    merge = config("ties", {"base": base}, "", dtype="float32")
    merge["models"] = [
        {"model": str(base)},
        {"model": str(a), "parameters": {"weight": filters}},
        {"model": str(b), "parameters": {"weight": gradient}},
        {"model": str(c), "parameters": {"weight": 0.3, "density": [0.2, 1]}},
    ]
    space = space_of(merge)

    assert_ships_what_it_measures(space)

    assert space.names == ("a_mlp", "b_late")
    recipe = yaml.safe_load(yaml_text(space.config({"a_mlp": 0.1, "b_late": 0.7})))
    weights = [m.get("parameters", {}).get("weight") for m in recipe["models"]]
    assert weights[1][0] == {"filter": "mlp", "value": 0.1}
    assert weights[2:] == [[0.0, 0.7, 0.1], 0.3]


# Parts of a Llama, and where they lie.
_NAMES = ["model.embed_tokens", "model.layers.0", "model.layers.1", "model.norm"]
PARTS = dict.fromkeys([*_NAMES, "model.rotary_emb", "lm_head"], "cpu")


@pytest.mark.parametrize("method", ["task_arithmetic", "ties"])
def test_a_mixture_of_experts_is_merged_in_memory_as_mergekit_ships_it(
    method: str, make_half: Callable[..., dict[str, Path]]
) -> None:
    some = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16}
    experts = make_half("experts", kind="Qwen3Moe", head_dim=8, **some)

    merge = assert_ships_what_it_measures(space_of(config(method, experts)))

    assert any("experts" in name for name in merge.replays)


def test_a_model_in_parts_is_merged_and_answers_alike(family: dict[str, Path]) -> None:
    space = space_of(config("ties", family))
    tuned = transformers.AutoModelForCausalLM.from_pretrained(family["a"])
    parts = accelerate.dispatch_model(tuned, PARTS, force_hooks=True)
    assert parts.hf_device_map == PARTS

    assert_ships_what_it_measures(space, model=parts)


def test_offloaded_and_converted_models_are_refused_before_anything_is_written(
    family: dict[str, Path], tmp_path: Path
) -> None:
    space = space_of(config("task_arithmetic", family))
    places = {**PARTS, "model.layers.1": "disk"}
    offloaded = transformers.AutoModelForCausalLM.from_pretrained(
        family["base"], device_map=places, offload_folder=tmp_path
    )
    before = {n: p.clone() for n, p in offloaded.state_dict().items() if not p.is_meta}
    with resident_merge(space, OPTIONS) as merge:
        away = ResidentMerge(offloaded, merge.tokenizer, merge.replays, merge.weights)
        with pytest.raises(MergeError, match=r"9 tensors .*layers\.1\..* offloaded"):
            away.write({"a": 0.5, "b": 0.5})
        merge.model.half()
        with pytest.raises(MergeError, match=r"21 tensors .* or changed in dtype"):
            merge.write({"a": 0.5, "b": 0.5})
    left = {n: p for n, p in offloaded.state_dict().items() if not p.is_meta}
    assert 0 < len(left) < len(offloaded.state_dict())
    assert_equal_states(left, before)
