"""The command ``inspect``: one run names every cause, and a good pair has none."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click.testing
import peft
import pytest
import torch
import transformers
import yaml
from safetensors.torch import load_file, save_file

from mergekit_map.cli import main
from mergekit_map.terminal_inspection import show_inspection

MakeModel = Callable[..., Path]
Edit = Callable[[Path], None]

UP = "model.layers.0.mlp.up_proj.weight"


def edit_json(name: str, **fields: Any) -> Edit:
    """Set entries of a JSON file; None removes them."""

    def edit(model: Path) -> None:
        path = model / name
        content = {**json.loads(path.read_text()), **fields}
        path.write_text(json.dumps({k: v for k, v in content.items() if v != "gone"}))

    return edit


def edit_config(**fields: Any) -> Edit:
    return edit_json("config.json", **fields)


def edit_tokenizer(change: Callable[[dict[str, Any]], None]) -> Edit:
    def edit(model: Path) -> None:
        content = json.loads((model / "tokenizer.json").read_text())
        change(content)
        (model / "tokenizer.json").write_text(json.dumps(content))

    return edit


def edit_tensors(change: Callable[[dict[str, torch.Tensor]], None]) -> Edit:
    def edit(model: Path) -> None:
        tensors = load_file(model / "model.safetensors")
        change(tensors)
        whole = {name: tensor.contiguous() for name, tensor in tensors.items()}
        save_file(whole, model / "model.safetensors", metadata={"format": "pt"})

    return edit


def remove(*names: str) -> Edit:
    def edit(model: Path) -> None:
        for name in names:
            (model / name).unlink()

    return edit


def swap_tokens(content: dict[str, Any]) -> None:
    ids = content["model"]["vocab"]
    ids["A"], ids["B"] = ids["B"], ids["A"]


def rename_token(content: dict[str, Any]) -> None:
    content["added_tokens"][-1]["content"] = "<|im_start|>"


def join_more(content: dict[str, Any]) -> None:
    content["model"]["merges"] = [["A", "B"]]


def write(name: str, text: str) -> Edit:
    return lambda model: (model / name).write_text(text) and None


def cut_short(model: Path) -> None:
    path = model / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-100])


def lose_a_shard(model: Path) -> None:
    names = load_file(model / "model.safetensors")
    (model / "model.safetensors").rename(model / "model-00001-of-00002.safetensors")
    index = dict.fromkeys(names, "model-00001-of-00002.safetensors")
    index["lm_head.weight"] = "model-00002-of-00002.safetensors"
    content = {"metadata": {}, "weight_map": index}
    (model / "model.safetensors.index.json").write_text(json.dumps(content))


def pickle(model: Path) -> None:
    (model / "model.safetensors").rename(model / "pytorch_model.bin")


def noise(tensors: dict[str, torch.Tensor], scale: float, seed: int) -> None:
    """Add to every tensor what a short training would."""
    generator = torch.Generator().manual_seed(seed)
    for name, tensor in tensors.items():
        extra = torch.randn(tensor.shape, generator=generator) * scale
        tensors[name] = (tensor.float() + extra).to(tensor.dtype)


def make_nan(tensors: dict[str, torch.Tensor]) -> None:
    tensors[UP][3, 4] = float("nan")


def make_zero(tensors: dict[str, torch.Tensor]) -> None:
    tensors[UP].zero_()


def start_anew(*parts: str) -> Callable[[dict[str, torch.Tensor]], None]:
    def change(tensors: dict[str, torch.Tensor]) -> None:
        generator = torch.Generator().manual_seed(99)
        for name, tensor in tensors.items():
            if any(part in name for part in parts):
                shape = tensor.shape
                tensors[name] = torch.randn(shape, generator=generator) * tensor.std()

    return change


def permute_neurons(tensors: dict[str, torch.Tensor]) -> None:
    for layer in range(2):
        order = torch.randperm(64, generator=torch.Generator().manual_seed(layer))
        for name in ("up_proj", "gate_proj"):
            key = f"model.layers.{layer}.mlp.{name}.weight"
            tensors[key] = tensors[key][order]
        key = f"model.layers.{layer}.mlp.down_proj.weight"
        tensors[key] = tensors[key][:, order]


def fewer_columns(tensors: dict[str, torch.Tensor]) -> None:
    tensors[UP] = tensors[UP][:, :16]


def drop_a_tensor(tensors: dict[str, torch.Tensor]) -> None:
    del tensors["model.norm.weight"]


def add_a_reward_head(tensors: dict[str, torch.Tensor]) -> None:
    tensors["score.weight"] = torch.ones(1, 32)


def add_biases(model: Path) -> None:
    edit_config(attention_bias=True)(model)

    def change(tensors: dict[str, torch.Tensor]) -> None:
        for layer in range(2):
            for part, size in {"q": 32, "k": 16, "v": 16, "o": 32}.items():
                name = f"model.layers.{layer}.self_attn.{part}_proj.bias"
                tensors[name] = torch.zeros(size)

    edit_tensors(change)(model)


def tie_embeddings(model: Path) -> None:
    edit_config(tie_word_embeddings=True)(model)
    edit_tensors(lambda tensors: tensors.__delitem__("lm_head.weight"))(model)


def as_bfloat16(tensors: dict[str, torch.Tensor]) -> None:
    for name, tensor in tensors.items():
        tensors[name] = tensor.to(torch.bfloat16)


# What is wrong with a copy of a good fine-tune, and what is said of it: code, severity
# and words of the cause.
SEEDS: dict[str, tuple[Edit, str, str, str]] = {
    "architecture": (
        edit_config(model_type="mistral"),
        "architecture",
        "error",
        "model_type is mistral here and llama in base",
    ),
    "rope theta": (
        edit_config(rope_theta=1e6, rope_parameters=None),
        "rope-theta",
        "error",
        "rope_theta is 1e+06 here and 10000 in base",
    ),
    "rope scaling": (
        edit_config(
            rope_parameters={
                "rope_type": "linear",
                "factor": 4.0,
                "rope_theta": 10000.0,
            }
        ),
        "rope-scaling",
        "error",
        "rope_type is linear here and default in base",
    ),
    "layers": (
        edit_config(num_hidden_layers=3),
        "size",
        "error",
        "num_hidden_layers is 3 here and 2 in base",
    ),
    "key value heads": (
        edit_config(num_key_value_heads=4),
        "size",
        "error",
        "num_key_value_heads is 4 here and 2 in base",
    ),
    "activation": (
        edit_config(hidden_act="gelu"),
        "activation",
        "error",
        "hidden_act is gelu here and silu in base",
    ),
    "biases": (
        add_biases,
        "bias",
        "error",
        "attention_bias is True here and False in base",
    ),
    "tied embeddings": (
        tie_embeddings,
        "tied-embeddings",
        "error",
        "its head is its embeddings once more",
    ),
    "epsilon": (
        edit_config(rms_norm_eps=1e-3),
        "norm-epsilon",
        "warning",
        "rms_norm_eps is 0.001 here and 1e-06 in base",
    ),
    "context": (
        edit_config(max_position_embeddings=4096),
        "context-length",
        "warning",
        "max_position_embeddings is 4096 here and 128 in base",
    ),
    "quantized": (
        edit_config(quantization_config={"quant_method": "awq", "bits": 4}),
        "quantized",
        "error",
        "its weights are quantized (awq)",
    ),
    "configuration damaged": (
        write("config.json", "{"),
        "model",
        "error",
        "config.json is not JSON",
    ),
    "configuration refused": (
        edit_config(num_attention_heads=5),
        "configuration",
        "error",
        "is not a multiple of the number of attention heads (5)",
    ),
    "no configuration": (
        remove("config.json"),
        "model",
        "error",
        "holds no config.json",
    ),
    "token ids": (
        edit_tokenizer(swap_tokens),
        "vocabulary",
        "error",
        "other tokens or ids than that of base",
    ),
    "token name": (
        edit_tokenizer(rename_token),
        "special-tokens-renamed",
        "warning",
        "'<|im_start|>' for 'three'",
    ),
    "normalizer": (
        edit_tokenizer(lambda t: t.update(normalizer={"type": "Lowercase"})),
        "tokenizer-normalizer",
        "warning",
        "its tokenizer normalizes text otherwise than that of base",
    ),
    "pre-tokenizer": (
        edit_tokenizer(lambda t: t.update(pre_tokenizer={"type": "Whitespace"})),
        "tokenizer-pre_tokenizer",
        "warning",
        "its tokenizer cuts text into words otherwise",
    ),
    "token merges": (
        edit_tokenizer(join_more),
        "tokenizer-merges",
        "warning",
        "its tokenizer joins the parts of words otherwise",
    ),
    "end of text": (
        edit_json("tokenizer_config.json", eos_token="<pad>"),
        "special-tokens",
        "warning",
        "eos_token is '<pad>' here and '</s>' in base",
    ),
    "end of text by its id": (
        edit_config(eos_token_id=7),
        "special-tokens",
        "warning",
        "eos_token_id is 7 here and 1 in base",
    ),
    "chat template": (
        write("chat_template.jinja", "{{ messages }}"),
        "chat-template",
        "note",
        "its chat template is not that of base",
    ),
    "tokenizer damaged": (
        write("tokenizer.json", "{"),
        "tokenizer",
        "error",
        "tokenizer.json is not JSON",
    ),
    "added tokens without a name": (
        edit_json("tokenizer.json", added_tokens=[{"id": 1}]),
        "tokenizer",
        "error",
        "tokenizer.json is damaged at 'added_tokens.0.content'",
    ),
    "vocabulary damaged": (
        edit_json("tokenizer.json", model="x"),
        "tokenizer",
        "error",
        "tokenizer.json is damaged at 'model'",
    ),
    "chat template damaged": (
        lambda model: (model / "chat_template.jinja").write_bytes(b"\xff") and None,
        "tokenizer",
        "error",
        "chat_template.jinja is no text",
    ),
    "tokenizer gone": (
        remove("tokenizer.json", "tokenizer_config.json"),
        "tokenizer-missing",
        "warning",
        "it holds no tokenizer",
    ),
    "tensor gone": (
        edit_tensors(drop_a_tensor),
        "tensors-missing",
        "error",
        "'model.norm.weight'",
    ),
    "tensor too many": (
        edit_tensors(add_a_reward_head),
        "tensors-left-out",
        "warning",
        "'score.weight'",
    ),
    "shape": (
        edit_tensors(fewer_columns),
        "tensor-shapes",
        "error",
        "has shape [64, 16] here and [64, 32] in base",
    ),
    "dtype": (
        edit_tensors(as_bfloat16),
        "dtype",
        "note",
        "stored as BF16, those of base as F32",
    ),
    "cut short": (
        cut_short,
        "weights",
        "error",
        "so its download was cut short",
    ),
    "shard gone": (
        lose_a_shard,
        "weights",
        "error",
        "model-00002-of-00002.safetensors",
    ),
    "pickled": (pickle, "weights", "error", "has pickled weights"),
    "no weights": (
        remove("model.safetensors"),
        "weights",
        "error",
        "holds no weights",
    ),
    "not a number": (
        edit_tensors(make_nan),
        "weights-not-finite",
        "error",
        f"hold NaN or infinity ('{UP}')",
    ),
    "zeros": (
        edit_tensors(make_zero),
        "weights-zero",
        "warning",
        f"are zero, while those of base are not ('{UP}')",
    ),
    "another family": (
        edit_tensors(start_anew("")),
        "unrelated",
        "error",
        "so it is not a fine-tune of the same model",
    ),
    "permuted": (
        edit_tensors(permute_neurons),
        "permuted",
        "error",
        "its hidden units are in another order",
    ),
    "another head": (
        edit_tensors(start_anew("lm_head")),
        "matrices-unrelated",
        "warning",
        "have nothing in common with those of base ('lm_head.weight')",
    ),
    "another base": (
        edit_tensors(lambda tensors: noise(tensors, 0.015, 77)),
        "norm-ratio",
        "warning",
        "of the L1 norm of base: quadratics are known to fit up to about 0.3",
    ),
}


def tuned(base: Path, folder: Path, seed: int) -> Path:
    """Copy a model and change its weights a little."""
    shutil.copytree(base, folder)
    edit_tensors(lambda tensors: noise(tensors, 0.0005, seed))(folder)
    return folder


def make_adapter(base: Path, folder: Path, seed: int) -> Path:
    torch.manual_seed(seed)
    model = transformers.LlamaForCausalLM.from_pretrained(base, dtype=torch.float32)
    settings = peft.LoraConfig(r=4, lora_alpha=8, target_modules=["q_proj", "up_proj"])
    adapted = peft.get_peft_model(model, settings)
    with torch.no_grad():
        for name, parameter in adapted.named_parameters():
            if "lora_B" in name:
                parameter.normal_(std=0.001)
    adapted.save_pretrained(folder)
    return folder


@pytest.fixture
def base(
    family: dict[str, Path], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "text.txt").write_text("hello world, one plus two\n" * 40)
    return family["base"]


def configure(base: Path, models: list[str], **changes: Any) -> dict[str, Any]:
    tasks = {"text": {"perplexity": {"file": "text.txt"}, "max_tokens": 300}}
    search = {"surrogate": "regularized", "evaluations": 60, "remeasure": 0}
    return {
        "merge_method": "task_arithmetic",
        "base_model": str(base),
        "models": [{"model": model} for model in models],
        "map": {"tasks": tasks, "search": search},
        **changes,
    }


def inspect(config: dict[str, Any], *options: str) -> click.testing.Result:
    Path("config.yml").write_text(yaml.safe_dump(config, sort_keys=False))
    arguments = ["inspect", "config.yml", *options]
    result = click.testing.CliRunner().invoke(main, arguments)
    assert isinstance(result.exception, SystemExit | None), result.exception
    return result


def inspected(config: dict[str, Any], *options: str) -> dict[str, Any]:
    result = inspect(config, "--json", *options)
    content: dict[str, Any] = json.loads(result.stdout)
    assert result.exit_code == (0 if content["mergeable"] else 2)
    return content


def found(content: dict[str, Any]) -> dict[str, list[tuple[str, str]]]:
    """Give codes and severities of every model, by its folder."""
    return {
        model["name"]: [(f["code"], f["severity"]) for f in model["findings"]]
        for model in content["models"]
    }


def test_one_run_names_the_cause_of_every_incompatibility(
    base: Path, make_model: MakeModel, tmp_path: Path
) -> None:
    models, expected = {}, {"base": []}
    for seed, (name, (edit, code, severity, _)) in enumerate(SEEDS.items()):
        models[name] = str(tuned(base, tmp_path / name, seed))
        edit(Path(models[name]))
        expected[name] = [(code, severity)]
    larger = make_model("larger", 5, base, extra_tokens=("<x>",), noise=0.0005)
    for name, folder, code in (
        ("smaller", make_model("smaller", 5, hidden_size=16), "size"),
        ("larger", larger, "added-tokens"),
        ("copy", shutil.copytree(base, tmp_path / "copy"), "same-weights"),
        ("adapter", make_adapter(base, tmp_path / "adapter", 3), "adapter-alone"),
    ):
        models[name], expected[name] = str(folder), [(code, "error")]

    content = inspected(configure(base, list(models.values())))

    assert len(content["models"]) == len(SEEDS) + 5
    assert found(content) == expected
    by_name = {model["name"]: model["findings"] for model in content["models"]}
    for name, (_, _, _, words) in SEEDS.items():
        assert words in by_name[name][0]["cause"]
    assert not content["mergeable"]
    assert content["problems"] == []


@pytest.mark.parametrize("method", ["task_arithmetic", "ties", "dare_linear"])
def test_a_good_pair_is_silent(base: Path, tmp_path: Path, method: str) -> None:
    models = [str(tuned(base, tmp_path / name, i)) for i, name in enumerate("ab")]

    content = inspected(configure(base, models, merge_method=method))

    assert content["mergeable"]
    assert found(content) == {"base": [], "a": [], "b": []}
    assert content["problems"] == []
    assert content["plan"]["shortages"] == []


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
        bos = {"content": "<s>", "lstrip": False, "normalized": False}
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

    assert [code for code, _ in found(content)["bad"]] == [
        "activation",
        "rope-theta",
        "vocabulary",
        "weights-not-finite",
    ]


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


def test_a_base_without_a_tokenizer_is_an_error(base: Path, tmp_path: Path) -> None:
    bare = tuned(base, tmp_path / "bare", 1)
    remove("tokenizer.json", "tokenizer_config.json")(bare)
    model = tuned(base, tmp_path / "a", 2)

    content = inspected(configure(bare, [str(model)]))

    assert found(content)["bare"] == [("tokenizer-missing", "error")]


def test_adapters_are_looked_into(base: Path, tmp_path: Path) -> None:
    adapter = make_adapter(base, tmp_path / "adapter", 1)

    content = inspected(configure(base, [f"{base}+{adapter}"]))

    assert found(content) == {"base": [], "base+adapter": []}
    figures = content["models"][1]
    # Rank 4 in two of seven matrices of each layer.
    assert 0 < figures["norm_ratio"] < 0.01
    assert figures["changed"] == pytest.approx(6144 / 35680, abs=0.01)
    assert figures["read"] == figures["compared"] == 35680


ADAPTERS: dict[str, tuple[Edit, str, str, str]] = {
    "another base": (
        edit_json("adapter_config.json", base_model_name_or_path="org/other-7b"),
        "adapter-base",
        "warning",
        "its adapter was trained on org/other-7b",
    ),
    "other modules": (
        lambda folder: change_adapter(folder, lambda n, t: (n.replace("q_", "x_"), t)),
        "adapter-modules",
        "error",
        "changes 2 tensors that",
    ),
    "other shapes": (
        lambda folder: change_adapter(
            folder, lambda n, t: (n, t[:, :16] if "q_proj.lora_A" in n else t)
        ),
        "adapter-shapes",
        "error",
        "has shape [32, 16], and",
    ),
    "other rank": (
        edit_json("adapter_config.json", r=8),
        "adapter-rank",
        "error",
        "its adapter says rank 8",
    ),
    "pattern that is none": (
        edit_json("adapter_config.json", rank_pattern={"[": 3}),
        "adapter",
        "error",
        "is no regular expression",
    ),
    "list of patterns": (
        edit_json("adapter_config.json", alpha_pattern=[1]),
        "adapter",
        "error",
        "adapter_config.json is damaged at 'alpha_pattern'",
    ),
    "alpha in words": (
        edit_json("adapter_config.json", lora_alpha="much"),
        "adapter",
        "error",
        "adapter_config.json is damaged at 'lora_alpha'",
    ),
    "prompts": (
        edit_json("adapter_config.json", peft_type="PROMPT_TUNING"),
        "adapter-kind",
        "error",
        "changes no weights",
    ),
    "another kind": (
        edit_json("adapter_config.json", peft_type="LOHA"),
        "adapter-unknown",
        "note",
        "peft_type: LOHA",
    ),
    "no weights": (
        remove("adapter_model.safetensors"),
        "adapter",
        "error",
        "holds no weights",
    ),
    "untrained": (
        lambda folder: change_adapter(
            folder, lambda n, t: (n, t * 0 if "lora_B" in n else t)
        ),
        "same-weights",
        "error",
        "it has the same content as base",
    ),
}


def change_adapter(
    folder: Path, change: Callable[[str, torch.Tensor], tuple[str, torch.Tensor]]
) -> None:
    path = folder / "adapter_model.safetensors"
    changed = dict(change(name, tensor) for name, tensor in load_file(path).items())
    save_file({name: tensor.contiguous() for name, tensor in changed.items()}, path)


def test_one_run_names_what_is_wrong_with_adapters(base: Path, tmp_path: Path) -> None:
    models, expected = [], {"base": []}
    for seed, (name, (edit, code, severity, _)) in enumerate(ADAPTERS.items()):
        folder = make_adapter(base, tmp_path / name, seed)
        edit(folder)
        models.append(f"{base}+{folder}")
        expected[f"base+{name}"] = [(code, severity)]

    content = inspected(configure(base, models))

    assert found(content) == expected
    by_name = {model["name"]: model["findings"] for model in content["models"]}
    for name, (_, _, _, words) in ADAPTERS.items():
        assert words in by_name[f"base+{name}"][0]["cause"]


def test_an_adapter_without_alpha_has_that_of_peft(base: Path, tmp_path: Path) -> None:
    models = [make_adapter(base, tmp_path / name, 1) for name in "ab"]  # alpha is 8
    edit_json("adapter_config.json", lora_alpha="gone")(models[1])

    content = inspected(configure(base, [f"{base}+{model}" for model in models]))

    ratios = [model["norm_ratio"] for model in content["models"][1:]]
    assert ratios[0] == ratios[1] > 0


def test_a_whole_model_behind_a_plus_is_told_what_to_do(
    base: Path, tmp_path: Path
) -> None:
    whole = tuned(base, tmp_path / "a", 1)

    content = inspected(configure(base, [f"{base}+{whole}"]))

    (finding,) = content["models"][1]["findings"]
    assert finding["code"] == "adapter-whole"
    assert "list the model as one of its own" in finding["advice"]


def test_findings_have_one_order_whatever_the_hashes(
    base: Path, tmp_path: Path
) -> None:
    model = tuned(base, tmp_path / "a", 1)
    for name in ("normalizer", "pre-tokenizer", "token merges"):
        SEEDS[name][0](model)

    content = inspected(configure(base, [str(model)]))

    codes = [code for code, _ in found(content)["a"]]
    assert codes == [
        f"tokenizer-{n}" for n in ("merges", "normalizer", "pre_tokenizer")
    ]


def test_without_a_base_there_are_no_task_vectors(base: Path, tmp_path: Path) -> None:
    models = [str(tuned(base, tmp_path / name, i)) for i, name in enumerate("abcde")]
    edit_tensors(lambda tensors: noise(tensors, 0.015, 77))(Path(models[1]))
    edit_tensors(lambda tensors: noise(tensors, 5.0, 78))(Path(models[4]))
    edit_tensors(make_zero)(Path(models[1]))
    shutil.copy(Path(models[0], "model.safetensors"), models[2])
    edit_tensors(make_nan)(Path(models[3]))
    config = configure(base, models, merge_method="linear")
    del config["base_model"]

    content = inspected(config)

    assert found(content) == {
        "a": [],
        "b": [("weights-zero", "warning")],
        "c": [("same-weights", "error")],
        "d": [("weights-not-finite", "error")],
        "e": [("unrelated", "error")],
    }
    assert content["pairs"] == []
    assert {model["norm_ratio"] for model in content["models"]} == {None}
    config["models"] = config["models"][:2]
    memory = inspected(config)["plan"]["memory"]
    assert memory[0]["what"] == "2 models and the one under evaluation"
    shown = inspect(config).stdout
    for word in ("task vector", "cosine", "sign conflicts", "bounds"):
        assert word not in shown


def test_the_plan_counts_merges_memory_and_disk(base: Path, tmp_path: Path) -> None:
    models = [str(tuned(base, tmp_path / name, i)) for i, name in enumerate("ab")]
    config = configure(base, models, dtype="bfloat16", merge_method="ties")
    config["map"]["search"] = {"evaluations": 15, "remeasure": 4}
    other = {"python": "os:getcwd", "direction": "maximize"}
    config["map"]["tasks"]["own"] = other
    (tmp_path / "own.py").write_text("def f(model, tokenizer):\n    return 1.0\n")
    other["python"] = "own:f"

    plan = inspected(config)["plan"]

    assert plan["searched"] == 15
    assert plan["front"] == 5
    assert plan["measurements"] == plan["expected"] == 2 * 20
    copy = 2 * 35680
    assert [need["n_bytes"] for need in plan["memory"]] == [4 * copy]
    assert [need["n_bytes"] for need in plan["disk"]] == [copy, copy]
    config["map"]["search"] |= {"gradients": True}
    assert inspected(config)["plan"]["memory"][0]["n_bytes"] == 5 * copy


def test_nested_checkpoints_are_counted(base: Path, tmp_path: Path) -> None:
    models = [str(tuned(base, tmp_path / name, i)) for i, name in enumerate("abcd")]
    config = configure(base, models, merge_method="ties")
    config["map"]["search"] = {"strategy": "nested", "remeasure": 4}

    plan = inspected(config)["plan"]

    # Base, soup and four models; then three pairs of 20 merges, and what is chosen of
    # the first two; then the front.
    assert plan["searched"] == 6 + 3 * 20 + 2
    # The pair that does not own the only task is measured on it all the same.
    assert plan["measurements"] == plan["expected"] == 6 + 60 + 2 + 5
    copy = 4 * 35680
    needs = {need["what"]: need["n_bytes"] for need in plan["disk"]}
    assert needs["2 merges on the way"] == 2 * copy
    assert plan["memory"][0]["n_bytes"] == 6 * copy


def test_nested_sums_know_the_corners_of_their_pairs(
    base: Path, tmp_path: Path
) -> None:
    models = [str(tuned(base, tmp_path / name, i)) for i, name in enumerate("abcd")]
    config = configure(base, models)
    texts = config["map"]["tasks"]
    config["map"]["tasks"] = {name: texts["text"] for name in ("one", "two", "three")}
    config["map"]["search"] = {"strategy": "nested", "evaluations": 10}

    plan = inspected(config)["plan"]

    # Base, soup and four models; then pairs whose base and two sides are known.
    assert plan["searched"] == 6 + 3 * 7 + 2
    assert plan["measurements"] == 3 * (29 + plan["front"])
    # A task is owned by a first pair with 1/2; none of three by it with 1/8.
    shares = 8 * 3 * (1 / 2 + 1 / 8) * 2 + 7 * 3
    assert plan["expected"] == 3 * (6 + plan["front"]) + shares


def test_a_plan_that_does_not_fit_is_a_warning(
    base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    models = [str(tuned(base, tmp_path / "a", 1))]
    monkeypatch.setattr(
        "mergekit_map.merging.footprint.shutil.disk_usage",
        lambda _: shutil._ntuple_diskusage(10**6, 10**6, 100_000),
    )

    result = inspect(configure(base, models))

    assert result.exit_code == 0
    assert "has 100 kB free, and 143 kB are needed for a merge" in " ".join(
        result.stdout.split()
    )
    assert "1 warning: a search can start" in result.stdout


def test_problems_of_the_file_and_of_models_are_told_together(
    base: Path, tmp_path: Path
) -> None:
    model = tuned(base, tmp_path / "a", 1)
    cut_short(model)
    config = configure(base, [str(model)])
    config["map"]["tasks"]["text"]["perplexity"]["file"] = "no.txt"
    config["map"]["search"]["sed"] = 1

    content = inspected(config)

    assert found(content)["a"] == [("weights", "error")]
    messages = [problem["message"] for problem in content["problems"]]
    assert any("no.txt" in message for message in messages)
    assert any("unknown key 'sed'" in message for message in messages)
    assert content["plan"] is None


def test_a_merge_without_a_map_block_is_inspected(base: Path, tmp_path: Path) -> None:
    config = configure(base, [str(tuned(base, tmp_path / "a", 1))])
    del config["map"]

    content = inspected(config)

    assert [model["name"] for model in content["models"]] == ["base", "a"]
    assert content["models"][1]["norm_ratio"] > 0
    assert "a 'map:' block" in content["problems"][0]["message"]


def test_mergekits_part_is_checked_before_models(base: Path, tmp_path: Path) -> None:
    config = configure(base, [str(tuned(base, tmp_path / "a", 1))], merge_metod="x")

    content = inspected(config)

    assert content["models"] == []
    assert "merge_metod" in content["problems"][0]["message"]


@pytest.mark.parametrize("width", [80, 120])
def test_the_table_fits_the_terminal(
    base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, width: int
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    models = [str(tuned(base, tmp_path / name, i)) for i, name in enumerate("abc")]
    edit_config(rms_norm_eps=1e-3)(Path(models[0]))
    cut_short(Path(models[1]))

    result = inspect(configure(base, models))

    assert result.exit_code == 2
    assert max(map(len, result.stdout.splitlines())) <= width
    text = " ".join(result.stdout.split())
    for part in (
        "Models, against base",
        "warning: its norms add another epsilon",
        "error: ",
        "cut short",
        "Plan: strategy map, 3 coefficients, 1 task",
        "1 error, 1 warning: no search can start",
    ):
        assert part in text


def test_models_whose_weights_are_not_here_are_named(
    base: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    content = inspected(configure(base, [str(tuned(base, tmp_path / "a", 1))]))
    content["weights"]["on_the_hub"] = ["me/a"]

    show_inspection(content)

    text = " ".join(capsys.readouterr().out.split())
    assert "Weights that are not here were not read (me/a)" in text


def test_a_probe_times_a_merge_and_every_task(base: Path, tmp_path: Path) -> None:
    models = [str(tuned(base, tmp_path / name, i)) for i, name in enumerate("ab")]
    config = configure(base, models)

    content = inspected(config, "--probe")

    probe = content["probe"]
    assert probe["coefficients"] == {"a": 0.5, "b": 0.5}
    assert list(probe["task_seconds"]) == ["text"]
    plan = content["plan"]
    seconds = probe["load_seconds"] + 61 * (
        probe["merge_seconds"] + probe["task_seconds"]["text"]
    )
    assert plan["searched"] + plan["front"] == 61
    assert probe["expected_hours"] == pytest.approx(seconds / 3600)
    result = inspect(config, "--probe")
    assert "Probe at the soup: opening the models" in result.stdout
    assert "The search will take about" in " ".join(result.stdout.split())
    assert not Path("run").exists()


def test_a_task_that_fails_in_a_probe_is_named(base: Path, tmp_path: Path) -> None:
    config = configure(base, [str(tuned(base, tmp_path / "a", 1))])
    (tmp_path / "failing.py").write_text(
        "def f(model, tokenizer):\n    raise RuntimeError('no grader')\n"
    )
    own = {"python": "failing:f", "direction": "maximize"}
    config["map"]["tasks"]["own"] = own

    result = inspect(config, "--probe")

    assert result.exit_code == 2
    message = " ".join(result.stderr.split())
    assert "task 'own' cannot be measured at the soup" in message
    assert "no grader" in message


def test_what_cannot_be_merged_is_not_probed(base: Path, tmp_path: Path) -> None:
    model = tuned(base, tmp_path / "a", 1)
    cut_short(model)

    result = inspect(configure(base, [str(model)]), "--probe")

    assert result.exit_code == 2
    assert "not probed" in result.stderr
