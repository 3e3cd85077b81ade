"""Which device is used, what is said of it, and what does not fit on one."""

from __future__ import annotations

import pytest
import torch
from mergekit.options import MergeOptions

from mergekit_map.errors import ConfigError
from mergekit_map.merging.devices import (
    best_device,
    check_device,
    choice_in_words,
    decided,
    left_open,
    shares,
)

NO_GPU = pytest.mark.skipif(torch.cuda.is_available(), reason="a GPU is here")


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


@NO_GPU
def test_a_device_that_is_not_there_is_refused() -> None:
    assert decided(left_open(MergeOptions()), "cuda").device == "cpu"
    check_device(MergeOptions())
    with pytest.raises(ConfigError, match="--device cuda asks for a device"):
        check_device(MergeOptions(cuda=True))


def test_a_model_that_fits_on_all_gpus_and_not_on_one_is_shared_out() -> None:
    assert shares(90, [100, 100]) is None  # fits on the first
    assert shares(91, [100, 100]) == {0: 90, 1: 90}
    assert shares(180, [100, 100]) == {0: 90, 1: 90}
    assert shares(181, [100, 100]) is None  # refused: nothing is offloaded
    assert shares(91, [100]) is None


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_gpu_that_is_there_is_used_and_named_with_its_memory() -> None:
    assert decided(left_open(MergeOptions())).device == "cuda"
    words = choice_in_words(MergeOptions(device="cuda"), was_open=True)
    assert words is not None
    assert torch.cuda.get_device_name() in words
    assert "GB)" in words
