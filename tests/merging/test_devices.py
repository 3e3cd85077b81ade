"""Which device is used, and where task vectors lie: it changes no bit of a merge."""

from __future__ import annotations

from pathlib import Path
from unittest.mock import Mock

import pytest
import torch
from mergekit.options import MergeOptions
from test_in_memory import OPTIONS, assert_equal_states, config, space_of

from mergekit_map.config.schema import MapBlock
from mergekit_map.errors import ConfigError, MergeError
from mergekit_map.merging import devices
from mergekit_map.merging.devices import (
    best_device,
    check_device,
    check_room,
    choice_in_words,
    choose_place,
    decided,
    left_open,
    recording_bytes,
)
from mergekit_map.merging.in_memory import resident_merge

CPU, GPU = torch.device("cpu"), torch.device("cuda")
NEEDS_GPU = pytest.mark.skipif(
    not torch.cuda.is_available(), reason="needs a CUDA device"
)


def test_on_a_cpu_they_are_mapped_and_on_a_gpu_they_lie_where_they_fit_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    free = {"cuda": 1000, "cpu": 1000}
    monkeypatch.setattr(devices, "free_memory", lambda device: free[device.type])
    assert choose_place("auto", CPU, 10**20) == "mapped"
    assert choose_place("memory", CPU, 1) == "memory"
    assert choose_place("device", CPU, 1) == "memory"
    assert choose_place("auto", GPU, 600, 300) == "device"
    assert choose_place("auto", GPU, 500, 401) == "memory"
    free["cpu"] = 999
    assert choose_place("auto", GPU, 500, 401) == "mapped"
    assert choose_place("device", GPU, 10**9) == "device"


def test_types_that_differ_are_counted_as_what_they_are_promoted_to(
    family: dict[str, Path], family_bf16: dict[str, Path]
) -> None:
    short, wide, all_wide = (
        recording_bytes(space_of(config("ties", models)))
        for models in (family_bf16, {**family, "base": family_bf16["base"]}, family)
    )

    assert wide == all_wide == 2 * short


def test_what_does_not_fit_on_a_device_is_refused(
    family_bf16: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    space = space_of(config("ties", family_bf16))
    spec = MapBlock(tasks={"text": {"perplexity": "text.txt"}})
    options = OPTIONS.model_copy(update={"device": "meta"})
    monkeypatch.setattr(devices, "check_device", lambda _: None)
    sizes: dict[str, int | None] = {"cpu": 0, "meta": None}
    monkeypatch.setattr(devices, "free_memory", lambda device: sizes[device.type])
    check_room(space, spec, options)  # what is free is not known
    sizes["meta"] = 10**9
    check_room(space, spec, options)  # the host's memory is not checked
    sizes["meta"] = 1000

    text = (
        r"beside activations and libraries \(.* evaluation .*\), 1 kB are free; write"
    )
    with pytest.raises(MergeError, match=text):
        check_room(space, spec, options)


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=NEEDS_GPU)])
@pytest.mark.parametrize("method", ["ties", "linear"])
def test_every_place_gives_the_same_bits(
    method: str, device: str, family_bf16: dict[str, Path]
) -> None:
    merge = config(method, family_bf16)
    if method == "linear":
        merge = {**merge, "models": [{"model": m["model"]} for m in merge["models"]]}
        del merge["base_model"]
    space = space_of(merge)
    options = OPTIONS.model_copy(update={"device": device})
    states = {}
    for place in ("mapped", "memory", "device"):
        with resident_merge(space, options, place) as merge:
            merge.write({name: 0.4 for name in space.names})
            states[place] = merge.model.state_dict()

    assert_equal_states(states["memory"], states["mapped"])
    assert_equal_states(states["device"], states["mapped"])


def test_an_open_device_is_the_one_of_before_if_that_is_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    options = left_open(MergeOptions())

    assert decided(options).device == best_device()
    assert decided(options, "cpu").device == "cpu"
    assert decided(options, "meta").device == best_device()  # it holds no values
    assert decided(options, "no-such-device").device == best_device()
    assert decided(MergeOptions(device="mps"), "cpu").device == "mps"
    monkeypatch.setattr("mergekit_map.merging.devices.is_there", "other".__eq__)
    assert decided(options, "other").device == "other"


def test_a_full_device_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    full = Mock(side_effect=torch.OutOfMemoryError("CUDA out of memory."))
    monkeypatch.setattr(torch, "zeros", full)
    assert devices.is_there("cuda")


@pytest.mark.skipif(torch.cuda.is_available(), reason="a GPU is here")
def test_a_device_that_is_not_there_is_refused() -> None:
    assert decided(left_open(MergeOptions()), "cuda").device == "cpu"
    check_device(MergeOptions())
    with pytest.raises(ConfigError, match="--device cuda asks for a device"):
        check_device(MergeOptions(cuda=True))


@NEEDS_GPU
def test_a_gpu_that_is_there_is_used_and_named_with_its_memory() -> None:
    assert decided(left_open(MergeOptions())).device == "cuda"
    words = choice_in_words(MergeOptions(device="cuda"), was_open=True)
    assert torch.cuda.get_device_name() in words
    assert "GB)" in words
