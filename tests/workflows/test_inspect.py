"""One run names every cause against a merge; the plan of the search, and the probe."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click.testing
import pytest
import torch
import yaml
from model_files import (
    Edit,
    edit_config,
    edit_json,
    edit_tensors,
    edit_tokenizer,
    make_adapter,
    noise,
    swap_tokens,
    tuned,
)
from safetensors.torch import load_file

from mergekit_map.cli.main import main

UP = "model.layers.0.mlp.up_proj.weight"


def remove(name: str) -> Edit:
    return lambda model: (model / name).unlink()


def write(name: str, text: str) -> Edit:
    return lambda model: (model / name).write_text(text) and None


def cut_short(model: Path) -> None:
    path = model / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-100])


def make_nan(tensors: dict[str, torch.Tensor]) -> None:
    tensors[UP][3, 4] = float("nan")


def start_anew(tensors: dict[str, torch.Tensor]) -> None:
    generator = torch.Generator().manual_seed(99)
    for name, tensor in tensors.items():
        tensors[name] = torch.randn(tensor.shape, generator=generator) * tensor.std()


def tie_embeddings(model: Path) -> None:
    edit_config(tie_word_embeddings=True)(model)
    edit_tensors(lambda tensors: tensors.__delitem__("lm_head.weight"))(model)


# What is wrong with a copy of a good fine-tune, and what is said of it: a code, and a
# part of the cause.
SEEDS: dict[str, tuple[Edit, str, str]] = {
    "architecture": (edit_config(model_type="mistral"), "architecture", "mistral here"),
    "rope theta": (
        edit_config(rope_theta=1e6, rope_parameters=None),
        "rope",
        "rope_theta is 1e+06 here and 10000 in base",
    ),
    "tied embeddings": (tie_embeddings, "tied-embeddings", "its head is its"),
    "quantized": (
        edit_config(quantization_config={"quant_method": "awq", "bits": 4}),
        "quantized",
        "(awq)",
    ),
    "configuration damaged": (write("config.json", "{"), "model", "config.json is not"),
    "token ids": (edit_tokenizer(swap_tokens), "vocabulary", "names or ids"),
    "token name": (
        edit_tokenizer(lambda t: t["added_tokens"][-1].update(content="<|im_start|>")),
        "vocabulary",
        "is '<|im_start|>' here and 'three' there",
    ),
    "end of text": (
        edit_json("tokenizer_config.json", eos_token="<pad>"),
        "special-tokens",
        "eos_token is '<pad>' here and '</s>' in base",
    ),
    "tokenizer damaged": (write("tokenizer.json", "{"), "tokenizer", "be loaded"),
    "tokenizer gone": (remove("tokenizer.json"), "tokenizer-missing", "no tokenizer"),
    "head gone": (
        edit_tensors(lambda tensors: tensors.pop("lm_head.weight")),
        "tensors-missing",
        "it lacks 1 of the tensors that mergekit asks for ('lm_head.weight')",
    ),
    "all gone": (edit_tensors(dict.clear), "tensors-missing", "it lacks 21 of the"),
    "shape": (
        edit_tensors(lambda tensors: tensors.update({UP: tensors[UP][:, :16]})),
        "tensor-shapes",
        "and [64, 32] in",
    ),
    "cut short": (cut_short, "weights", "its download may have been cut"),
    "not a number": (edit_tensors(make_nan), "weights-not-finite", f"('{UP}')"),
    "another family": (edit_tensors(start_anew), "unrelated", "not a fine-tune of"),
    "another base": (
        edit_tensors(lambda tensors: noise(tensors, 0.015, 77)),
        "norm-ratio",
        "0.01 to 0.02 in the paper",
    ),
}
WARNINGS = ("adapter-base", "norm-ratio", "special-tokens", "tokenizer-missing")


def named(code: str) -> list[tuple[str, str]]:
    """Give a finding, which is an error unless it is listed above."""
    return [(code, "warning" if code in WARNINGS else "error")]


def configure(base: Path, models: list[str], **changes: Any) -> dict[str, Any]:
    tasks = {"text": {"perplexity": {"file": "text.txt"}, "max_tokens": 9000}}
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
    result = click.testing.CliRunner().invoke(main, ["inspect", "config.yml", *options])
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


@pytest.fixture
def base(family: dict[str, Path], tmp_path: Path) -> Path:
    """Return a base model, with a text to measure in the working directory."""
    (tmp_path / "text.txt").write_text("hello world, one plus two\n" * 400)
    return family["base"]


@pytest.fixture
def good(base: Path, tmp_path: Path) -> dict[str, Any]:
    """Configure a merge of two good fine-tunes."""
    models = [str(tuned(base, tmp_path / name, i)) for i, name in enumerate("ab")]
    return configure(base, models)


LITTLE = {"lora_alpha": 0.03}  # an adapter changes so little in a short training


@pytest.mark.slow
def test_one_run_names_the_cause_of_every_incompatibility(
    base: Path, make_model: Callable[..., Path], tmp_path: Path
) -> None:
    models, expected = {}, {"base": []}
    for seed, (name, (edit, code, _)) in enumerate(SEEDS.items()):
        models[name] = str(tuned(base, tmp_path / name, seed))
        edit(Path(models[name]))
        expected[name] = named(code)
    adapter = make_adapter(base, tmp_path / "adapter", 3, **LITTLE)
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
    model = tuned(base, tmp_path / "old", 1)
    new = ("rope_parameters", "head_dim", "dtype", "pad_token_id")
    old = {"rope_theta": 10000.0, "rope_scaling": None, "torch_dtype": "float32"}
    about = {"transformers_version": "4.35.2", "_name_or_path": "x"}
    edit_config(**dict.fromkeys(new, "gone"), **old, **about)(model)
    edit_tokenizer(lambda t: t["pre_tokenizer"].pop("use_regex"))(model)
    bos = {"__type": "AddedToken", "content": "<s>", "normalized": False}
    edit_json("tokenizer_config.json", bos_token=bos)(model)
    shard = model / "model-00001-of-00001.safetensors"
    (model / "model.safetensors").rename(shard)
    index = {"metadata": {}, "weight_map": dict.fromkeys(load_file(shard), shard.name)}
    (model / "model.safetensors.index.json").write_text(json.dumps(index))
    (model / "consolidated.safetensors").write_bytes(b"of other programs")
    models = [str(model), str(tuned(base, tmp_path / "b", 2))]

    assert found(inspected(configure(base, models))) == {"base": [], "old": [], "b": []}


def test_independent_causes_of_a_model_and_problems_of_the_file_are_all_named(
    base: Path, tmp_path: Path
) -> None:
    model = tuned(base, tmp_path / "bad", 1)
    edit_config(rope_theta=1e6, rope_parameters=None)(model)
    edit_tokenizer(swap_tokens)(model)
    edit_tensors(make_nan)(model)
    config = configure(base, [str(model)])
    config["map"]["search"]["sed"] = 1

    content = inspected(config)

    codes = ["rope", "vocabulary", "weights-not-finite"]
    assert [code for code, _ in found(content)["bad"]] == codes
    assert "unknown key 'sed'" in str(content["problems"])
    assert content["plan"] is None


def test_a_bad_base_does_not_hide_what_is_wrong_with_the_others(base: Path) -> None:
    broken = tuned(base, Path("broken").resolve(), 1)
    (broken / "config.json").unlink()
    model = tuned(base, Path("a").resolve(), 2)
    cut_short(model)

    content = inspected(configure(broken, [str(model)]))

    assert found(content) == {"broken": named("model"), "a": named("weights")}


def test_without_a_base_there_are_no_task_vectors(base: Path, tmp_path: Path) -> None:
    models = [str(tuned(base, tmp_path / name, i)) for i, name in enumerate("abcde")]
    edit_tensors(lambda tensors: noise(tensors, 0.015, 77))(Path(models[1]))
    edit_tensors(lambda tensors: noise(tensors, 5.0, 78))(Path(models[4]))
    shutil.copy(Path(models[0], "model.safetensors"), models[2])
    edit_tensors(make_nan)(Path(models[3]))
    config = configure(base, models, merge_method="linear")
    del config["base_model"]

    content = inspected(config)

    bad = {"c": "same-weights", "d": "weights-not-finite", "e": "unrelated"}
    expected = {name: named(code) for name, code in bad.items()}
    assert found(content) == {"a": [], "b": [], **expected}
    assert content["pairs"] == []
    config["models"] = config["models"][:2]
    shown = inspect(config).stdout
    for word in ("Task vectors of", "cosine", "sign conflicts", "bounds"):
        assert word not in shown


def test_an_adapter_is_looked_into_and_one_alone_is_merged_into_its_base_model(
    base: Path, tmp_path: Path
) -> None:
    adapter = make_adapter(base, tmp_path / "adapter", 1, **LITTLE)
    write("config.json", (base / "config.json").read_text())(adapter)  # as axolotl does

    content = inspected(configure(base, [str(adapter)]))

    assert found(content) == {"base": [], "base+adapter": []}
    assert content["plan"]["coefficients"] == ["adapter"]
    figures = content["models"][1]
    # Rank 4 in two of seven matrices of each layer.
    assert 0 < figures["norm_ratio"] < 0.01
    assert figures["changed"] == pytest.approx(6144 / 35680, abs=0.01)
    assert content["weights"]["read"] == 35680

    edit_json("adapter_config.json", base_model_name_or_path="org/other")(adapter)
    content = inspected(configure(base, [str(adapter)]))

    assert found(content)["adapter"] == named("adapter-alone")
    (finding,) = content["models"][1]["findings"]
    assert finding["cause"] == f"{adapter} is a LoRA adapter of org/other"


def edit_adapter(
    change: Callable[[str, torch.Tensor], tuple[str, torch.Tensor]],
) -> Edit:
    def change_each(tensors: dict[str, torch.Tensor]) -> None:
        for name in list(tensors):
            new, tensor = change(name, tensors.pop(name))
            tensors[new] = tensor

    return edit_tensors(change_each, "adapter_model.safetensors")


def as_whole(adapter: Path) -> None:
    remove("adapter_config.json")(adapter)
    write("config.json", "{}")(adapter)


ADAPTERS: dict[str, tuple[Edit, str, str]] = {
    "another base": (
        edit_json("adapter_config.json", base_model_name_or_path="org/other-7b"),
        "adapter-base",
        "org/other-7b",
    ),
    "other modules": (
        edit_adapter(lambda n, t: (n.replace("q_", "x_"), t)),
        "adapter-modules",
        "changes 2 tensors that",
    ),
    "other shapes": (
        edit_adapter(lambda n, t: (n, t[:, :16] if "q_proj.lora_A" in n else t)),
        "adapter-modules",
        "changes 2 tensors that",
    ),
    "prompts": (
        write("adapter_config.json", '{"peft_type": "PROMPT_TUNING"}'),
        "adapter-kind",
        "changes no weights",
    ),
    "rank": (edit_json("adapter_config.json", r="x"), "adapter", "peft cannot"),
    "other rank": (edit_json("adapter_config.json", r=10**9), "adapter", "the rank of"),
    "unread by peft": (
        edit_adapter(lambda n, t: (n.removeprefix("base_model."), t)),
        "adapter",
        "are named base_model",
    ),
    "gone": (remove("adapter_model.safetensors"), "adapter", "no weights"),
    "a whole model": (as_whole, "adapter", "'peft_type'"),
    "untrained": (
        edit_adapter(lambda n, t: (n, t * 0 if "lora_B" in n else t)),
        "same-weights",
        "does not differ from base",
    ),
}


@pytest.mark.filterwarnings("ignore:Setting .save_embedding_layers:UserWarning")
@pytest.mark.parametrize("layer", ["lm_head", "embed_tokens"])
def test_an_adapter_of_one_of_two_tied_layers_is_refused(
    layer: str, base: Path, tmp_path: Path
) -> None:
    adapter = make_adapter(base, tmp_path / "adapter", 1, target_modules=[layer])
    tied = shutil.copytree(base, tmp_path / "tied")
    tie_embeddings(tied)

    content = inspected(configure(tied, [f"{tied}+{adapter}"]))

    assert "adapter-tied" in [f["code"] for f in content["models"][1]["findings"]]


def test_one_run_names_what_is_wrong_with_adapters(base: Path, tmp_path: Path) -> None:
    models, expected = [], {"base": []}
    for seed, (name, (edit, code, _)) in enumerate(ADAPTERS.items()):
        folder = make_adapter(base, tmp_path / name, seed, **LITTLE)
        edit(folder)
        models.append(f"{base}+{folder}")
        expected[f"base+{name}"] = named(code)

    content = inspected(configure(base, models))

    assert found(content) == expected
    by_name = {model["name"]: model["findings"] for model in content["models"]}
    for name, (_, _, words) in ADAPTERS.items():
        assert words in by_name[f"base+{name}"][0]["cause"]


def test_the_plan_counts_merges_memory_and_disk(good: dict[str, Any]) -> None:
    config = {**good, "dtype": "bfloat16", "merge_method": "ties"}
    config["map"]["search"] = {"evaluations": 15, "remeasure": 4}
    config["map"]["tasks"]["own"] = {"python": "own:f", "direction": "maximize"}
    Path("own.py").write_text("def f(model, tokenizer):\n    return 1.0\n")

    plan = inspected(config)["plan"]

    assert (plan["searched"], plan["front"]) == (15, 5)
    assert plan["references"] == 1  # the soup, as no parts are dropped
    assert plan["measurements"] == plan["expected"] == 2 * (20 + 1)
    copy = 2 * 35680
    assert [room["n_bytes"] for room in plan["memory"]] == [copy]
    # The recordings are of the merge, and of base, parents and soup.
    assert [room["n_bytes"] for room in plan["disk"]] == [(4 + 4) * copy]
    config["map"]["task_vectors"] = "memory"
    assert inspected(config)["plan"]["memory"][0]["n_bytes"] == 4 * copy


def test_a_plan_that_does_not_fit_is_a_warning(
    base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "shutil.disk_usage", lambda _: shutil._ntuple_diskusage(10**6, 10**6, 100_000)
    )

    result = inspect(configure(base, [str(tuned(base, tmp_path / "a", 1))]))

    assert result.exit_code == 0
    text = " ".join(result.stdout.split())
    assert "task vectors: in a memory-mapped file" in text
    assert "warning: 428 kB" in text
    assert "Errors: 0, warnings: 1; a search can start" in text


@pytest.mark.slow
def test_a_probe_times_a_merge_and_every_task(good: dict[str, Any]) -> None:
    content = inspected(good, "--probe")

    probe = content["probe"]
    assert probe["coefficients"] == {"a": 0.5, "b": 0.5}
    assert list(probe["task_seconds"]) == ["text"]
    plan = content["plan"]
    once = probe["merge_seconds"] + probe["task_seconds"]["text"]
    seconds = probe["load_seconds"] + 61 * once
    assert plan["searched"] + plan["front"] == 61
    assert probe["expected_hours"] == pytest.approx(seconds / 3600)
    assert probe["task_documents"]["text"] > 0
    peak = Path("/proc/self/status").read_text().partition("VmHWM:")[2].split()[0]
    assert probe["peak_bytes"] == pytest.approx(1024 * int(peak), rel=0.05)
    assert not Path("run").exists()


def test_a_task_that_fails_in_a_probe_is_named(good: dict[str, Any]) -> None:
    code = "def f(model, tokenizer):\n    raise RuntimeError('no grader')\n"
    Path("failing.py").write_text(code)
    good["map"]["tasks"]["own"] = {"python": "failing:f", "direction": "maximize"}

    result = inspect(good, "--probe")

    assert result.exit_code == 2
    message = " ".join(result.stderr.split())
    assert "task 'own' cannot be measured at the soup" in message
    assert "no grader" in message


def test_the_plan_says_what_is_measured_on_all_documents(good: dict[str, Any]) -> None:
    good["map"]["tasks"]["text"]["documents"] = 8
    good["map"]["search"] = {"hours": 2.5}

    plan = inspected(good)["plan"]

    # Base, soup and two models; five points of the front, and what is chosen.
    assert plan["whole"] == 4 + 6
    assert plan["documents"] == {"text": 8}
    assert plan["hours"] == 2.5
    assert plan["searched"] == 120
    assert "the others on 8 of text" in " ".join(inspect(good).stdout.split())
