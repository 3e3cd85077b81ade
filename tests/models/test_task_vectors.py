"""Figures of task vectors against direct computation on whole tensors."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import peft
import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file
from torch import Tensor

from mergekit_map.models.adapters import ModelWeights, read_adapter
from mergekit_map.models.files import find_model, read_headers
from mergekit_map.models.task_vectors import measure_vectors

Tensors = dict[str, Tensor]


def store(name: str, tensors: Tensors) -> ModelWeights:
    """Write tensors to a file and return what reads them."""
    path = Path(f"{name}.safetensors")
    save_file(tensors, path)
    return ModelWeights(read_headers(path))


def random_tensors(seed: int, dtype: torch.dtype = torch.float32) -> Tensors:
    generator = torch.Generator().manual_seed(seed)
    shapes = {"a.weight": (40, 24), "norm": (24,), "experts": (3, 10, 8)}
    return {
        name: torch.randn(shape, generator=generator).to(dtype)
        for name, shape in shapes.items()
    }


def tuned(base: Tensors, seed: int, share: float = 0.5) -> Tensors:
    """Change a share of the weights."""
    generator = torch.Generator().manual_seed(seed)
    changed = {}
    for name, tensor in base.items():
        noise = 0.1 * torch.randn(tensor.shape, generator=generator)
        kept = torch.rand(tensor.shape, generator=generator) < share
        changed[name] = (tensor.float() + noise * kept).to(tensor.dtype)
    return changed


def flat(tensors: Tensors) -> Tensor:
    return torch.cat([tensors[name].double().flatten() for name in sorted(tensors)])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_figures_are_those_of_whole_tensors(dtype: torch.dtype) -> None:
    base = random_tensors(0, dtype)
    models = {name: tuned(base, seed) for seed, name in enumerate("xyz", start=1)}

    figures = measure_vectors(
        store("base", base), {name: store(name, t) for name, t in models.items()}
    )

    theta = flat(base)
    vectors = {name: flat(tensors) - theta for name, tensors in models.items()}
    assert figures.exact
    assert figures.n_parameters == len(theta)
    for name, vector in vectors.items():
        ratio = (vector.abs().sum() / theta.abs().sum()).item()
        assert figures.models[name].norm_ratio == pytest.approx(ratio, rel=1e-5)
        changed = (vector != 0).double().mean().item()
        assert figures.models[name].changed == pytest.approx(changed)
    assert list(figures.pairs) == list(itertools.combinations("xyz", 2))
    for (one, other), pair in figures.pairs.items():
        v, w = vectors[one], vectors[other]
        cosine = torch.nn.functional.cosine_similarity(v, w, dim=0).item()
        assert pair.cosine == pytest.approx(cosine, abs=1e-6)
        opposite = (v.sign() != w.sign())[(v != 0) & (w != 0)].double().mean().item()
        assert pair.sign_conflicts == pytest.approx(opposite)


def test_spread_rows_estimate_what_all_rows_give() -> None:
    # Matrices whose rows are alike, as they are in a model, and vectors.
    generator = torch.Generator().manual_seed(0)
    shapes = {"up": (4096, 128), "down": (128, 4096), "norm": (128,), "one": (1, 128)}
    front = {n: torch.randn(s, generator=generator) for n, s in shapes.items()}
    shift = {n: torch.randn(s, generator=generator) * 0.02 for n, s in shapes.items()}
    models = {}
    for name in "xy":
        own = {n: torch.randn(s, generator=generator) * 0.02 for n, s in shapes.items()}
        models[name] = store(name, {n: front[n] + shift[n] + own[n] for n in shapes})
    base = store("base", front)

    exact = measure_vectors(base, models)
    sampled = measure_vectors(base, models, budget=60_000)

    assert 50_000 < sampled.n_read < 140_000 < sampled.n_parameters
    assert exact.exact
    assert not sampled.exact
    for name in models:
        one, other = sampled.models[name], exact.models[name]
        assert one.norm_ratio == pytest.approx(other.norm_ratio, rel=0.02)
        assert one.changed == pytest.approx(other.changed, abs=1e-3)
    pair, whole = sampled.pairs["x", "y"], exact.pairs["x", "y"]
    assert pair.cosine == pytest.approx(whole.cosine, abs=0.02)
    assert pair.sign_conflicts == pytest.approx(whole.sign_conflicts, abs=0.02)
    assert measure_vectors(base, models, budget=60_000) == sampled


def test_other_shapes_and_missing_tensors_are_left_out() -> None:
    base = random_tensors(0)
    other = tuned(base, 1)
    del other["norm"]
    other["a.weight"] = other["a.weight"][:, :7].contiguous()

    figures = measure_vectors(store("base", base), {"x": store("x", other)})

    vector = (other["experts"] - base["experts"]).abs().sum()
    ratio = (vector / base["experts"].abs().sum()).item()
    assert figures.models["x"].norm_ratio == pytest.approx(ratio, rel=1e-5)
    assert figures.n_read == base["experts"].numel()
    assert not figures.exact


def test_nan_is_named_and_kept_out_of_the_sums() -> None:
    base, x, y = (random_tensors(0) for _ in range(3))
    x["a.weight"][0, 0] = float("nan")
    x["norm"][3] += 1
    y["experts"][0, 0, 0] = float("inf")
    base["norm"][5] = float("nan")

    stored = store("base", base), {"x": store("x", x), "y": store("y", y)}
    figures = measure_vectors(*stored)

    # Nor is it hidden by rows that cannot be compared.
    apart = measure_vectors(*stored, incomparable={"a.weight"})
    assert apart.models["x"].not_finite == ("a.weight",)
    assert figures.base_not_finite == ("norm",)
    assert figures.models["x"].not_finite == ("a.weight",)
    assert figures.models["y"].not_finite == ("experts",)
    total = sum(t.nan_to_num().abs().sum() for t in base.values()).item()
    assert figures.models["x"].norm_ratio == pytest.approx(1 / total, rel=1e-5)
    assert figures.models["y"].norm_ratio == 0
    assert figures.pairs["x", "y"].cosine is None


def adapted(model: Any, settings: dict[str, Any]) -> tuple[ModelWeights, Tensors]:
    """Train an adapter, by chance; give it as we read it, and as peft merges it."""
    model.save_pretrained("base")
    torch.manual_seed(5)
    config = peft.LoraConfig(r=4, lora_alpha=6, task_type="CAUSAL_LM", **settings)
    wrapped = peft.get_peft_model(model, config)
    with torch.no_grad():
        for parameter in wrapped.parameters():
            if parameter.requires_grad:
                parameter.add_(torch.randn_like(parameter) * 0.05)
    wrapped.save_pretrained("adapter")
    wrapped.merge_and_unload().save_pretrained("merged")
    front = read_headers(Path("base", "model.safetensors"))
    read = ModelWeights(front, read_adapter(find_model("adapter")))
    return read, load_file("merged/model.safetensors")


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_an_adapter_is_merged_as_peft_merges_it(
    family: dict[str, Path], dtype: torch.dtype
) -> None:
    settings = {"target_modules": ["q_proj"], "modules_to_save": ["lm_head"]}
    settings |= {"use_rslora": True, "rank_pattern": {"layers.0.self_attn.q_proj": 2}}
    model = transformers.LlamaForCausalLM.from_pretrained(family["base"], dtype=dtype)

    ours, theirs = adapted(model, settings)

    assert not ours.adapter.obscure
    base = load_file("base/model.safetensors")
    changed = {n for n, tensor in theirs.items() if not torch.equal(tensor, base[n])}
    assert changed == {*ours.adapter.matrices, *ours.adapter.whole}
    for tensor, merged in theirs.items():
        rows = ours.headers[tensor].shape[0]
        parts = [ours.read(tensor, 0, 3), ours.read(tensor, 3, rows)]
        whole = torch.cat(parts).view(merged.shape)
        # peft multiplies in the type of the adapter, and rounds once more or less.
        tolerance = 1e-6 if dtype == torch.float32 else 1e-2
        torch.testing.assert_close(
            whole, merged.float(), rtol=tolerance, atol=tolerance
        )


def test_an_adapter_of_transposed_layers_is_merged_as_peft_merges_it() -> None:
    torch.manual_seed(0)
    model = transformers.GPT2LMHeadModel(
        transformers.GPT2Config(n_embd=16, n_layer=1, n_head=2, vocab_size=50)
    )
    settings = {"target_modules": ["c_attn"], "fan_in_fan_out": True}

    ours, theirs = adapted(model, settings)

    (tensor,) = ours.adapter.matrices
    parts = [ours.read(tensor, 0, 5), ours.read(tensor, 5, 16)]
    torch.testing.assert_close(torch.cat(parts), theirs[tensor])
    assert not torch.equal(theirs[tensor], ours.front[tensor].read(0, 16))
    short = tensor.removeprefix("transformer.")
    assert ours.adapter.renamed({tensor: short}).matrices.keys() == {short}
