"""Tiny models, built once per session; nothing is downloaded."""

from __future__ import annotations

import gc
import os
import shutil
import sys

# Read by the libraries when they are imported.
os.environ.update(
    HF_HUB_OFFLINE="1",
    HF_DATASETS_OFFLINE="1",
    TRANSFORMERS_OFFLINE="1",
    OMP_NUM_THREADS="1",
)

from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from quick_fronts import (
    AS_FOR_USERS,
    blank_pictures,
    configurations_read_once,
    fronts_of_few_points,
)
from tiny_tokenizer import IDS, SIZES, make_tokenizer
from xdist.plugin import pytest_xdist_auto_num_workers as available_cores

torch.set_num_threads(1)
# While the tests import nothing is garbage, and looking for some takes seconds.
gc.disable()
transformers.utils.logging.disable_progress_bar()

pytest_plugins = ["hub_server", "run_v1"]
MOST_PROCESSES = 4  # of more than a gigabyte each

TESTS = pytest.StashKey[Iterator[int]]()
FROZEN = pytest.StashKey[int]()  # modules and tests when it was done last


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """Share the whole suite among processes; a part of it is done sooner in this one.

    Each process imports torch and transformers anew, which takes seconds.
    """
    marks = config.getoption("markexpr")
    part = config.getoption("keyword") or config.getoption("lf", None)
    if part or marks != "not nightly" or config.args != config.getini("testpaths"):
        return 0
    cores = available_cores(config)
    return min(cores, MOST_PROCESSES) if cores > 1 else 0


def pytest_collection_finish() -> None:
    """Collect garbage again."""
    gc.enable()


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Set aside what was imported or is kept of the tests before: it is no garbage.

    Each merge collects all garbage, and going through the objects of torch,
    transformers and lm-eval for that takes longer than the merge of tiny models.
    """
    kept = len(sys.modules) + next(item.config.stash.setdefault(TESTS, count()))
    if kept > item.config.stash.get(FROZEN, 0) + 100:
        gc.collect()
        gc.freeze()
        item.config.stash[FROZEN] = kept


@pytest.fixture(autouse=True, scope="session")
def _quick_searches(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Search quickly, and keep recorded merges apart from the user's."""
    with (
        fronts_of_few_points(),
        blank_pictures(),
        configurations_read_once(),
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setattr(os, "fsync", lambda _: None)  # only a crash would notice
        patch.setenv("MERGEKIT_MAP_HOME", str(tmp_path_factory.mktemp("home")))
        yield


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every test work in a folder of its own."""
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="module")
def module_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Work in a new folder while what a module shares is made."""
    folder = tmp_path_factory.mktemp("module")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        yield folder


@pytest.fixture
def place(searched: Path, tmp_path: Path) -> Path:
    """Copy the finished search of a module, to change it."""
    shutil.copytree(searched, tmp_path, dirs_exist_ok=True)
    return tmp_path


@pytest.fixture(autouse=True)
def _as_for_users(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Search and draw as for users where a mark asks for it."""
    for mark in request.node.iter_markers():
        for name, value in AS_FOR_USERS.get(mark.name, {}).items():
            monkeypatch.setattr(name, value)


@pytest.fixture(scope="session")
def make_model(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Build a model of 2 layers, 32 wide, noise away from ``near`` where that is given.

    The same arguments give the same folder, and no others do.
    """
    made: dict[str, Path] = {}

    def make(
        name: str,
        seed: int,
        near: Path | None = None,
        kind: str = "Llama",
        *,
        dtype: torch.dtype = torch.float32,
        tied: bool = False,
        extra_tokens: tuple[str, ...] = (),
        shard: str = "1GB",
        noise: float = 0.02,
        **config: object,
    ) -> Path:
        alike = (dtype, tied, extra_tokens, shard, noise, config)
        if (key := repr((name, seed, near, kind, *alike))) in made:
            return made[key]
        tokenizer = make_tokenizer(list(extra_tokens))
        torch.manual_seed(seed)
        plain = {"num_key_value_heads": 2, "max_position_embeddings": 128, **IDS}
        settings = {**SIZES, **plain, **config, "tie_word_embeddings": tied}
        causal = getattr(transformers, f"{kind}ForCausalLM")
        configure = getattr(transformers, f"{kind}Config")
        model = causal(configure(**settings, vocab_size=len(tokenizer)))
        if near is not None:
            parent = causal.from_pretrained(near, dtype=torch.float32)
            parent.resize_token_embeddings(len(tokenizer))
            model.load_state_dict(parent.state_dict())
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(torch.randn_like(parameter) * noise)
        folder = tmp_path_factory.mktemp("models") / name
        model.to(dtype).save_pretrained(folder, max_shard_size=shard)
        tokenizer.save_pretrained(folder)
        made[key] = folder
        return folder

    return make


@pytest.fixture(scope="session")
def family(make_model: Callable[..., Path]) -> dict[str, Path]:
    """A base model and three fine-tunes of it, in float32."""
    base = make_model("base", 0)
    tuned = {n: make_model(n, i, base) for i, n in enumerate("abc", start=1)}
    return {"base": base, **tuned}


@pytest.fixture(scope="session")
def make_half(make_model: Callable[..., Path]) -> Callable[..., dict[str, Path]]:
    """Build a base model and two fine-tunes of it, in bfloat16."""

    def make(name: str, **settings: Any) -> dict[str, Path]:
        settings["dtype"] = torch.bfloat16
        base = make_model(name, 0, **settings)
        tuned = {
            n: make_model(f"{name}-{n}", i, base, **settings)
            for i, n in enumerate("ab", start=1)
        }
        return {"base": base, **tuned}

    return make


@pytest.fixture(scope="session")
def family_bf16(make_half: Callable[..., dict[str, Path]]) -> dict[str, Path]:
    """Such a family of Llamas."""
    return make_half("base16")
