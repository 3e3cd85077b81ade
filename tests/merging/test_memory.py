"""Where task vectors lie is chosen by what is free, and changes no bit of a merge."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from test_in_memory import OPTIONS, assert_equal_states, config, space_of

from mergekit_map.config.schema import MapBlock
from mergekit_map.errors import MergeError
from mergekit_map.merging import memory
from mergekit_map.merging.in_memory import resident_merge
from mergekit_map.merging.memory import Storage, check_room, choose_storage

CPU, GPU = torch.device("cpu"), torch.device("cuda")
NEEDS_GPU = pytest.mark.skipif(
    not torch.cuda.is_available(), reason="needs a CUDA device"
)


@pytest.fixture
def free(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """What is said to be free, by device."""
    sizes = {"cuda": 1000, "cpu": 1000}
    monkeypatch.setattr(memory, "free_memory", lambda device: sizes[device.type])
    return sizes


def test_on_a_cpu_they_are_mapped_unless_asked_otherwise() -> None:
    assert choose_storage("auto", CPU, 10**20).place == "mapped"
    assert choose_storage("memory", CPU, 1) == Storage("memory", "as asked")
    assert choose_storage("device", CPU, 1).place == "memory"


def test_on_a_gpu_they_lie_where_they_fit_first(free: dict[str, int]) -> None:
    assert choose_storage("auto", GPU, 600, 300).place == "device"
    assert choose_storage("auto", GPU, 500, 401).place == "memory"
    free["cpu"] = 999
    found = choose_storage("auto", GPU, 500, 401)
    assert found == Storage("mapped", "cuda has 1 kB free, the host 999 B")
    assert choose_storage("device", GPU, 10**9).place == "device"


def test_what_does_not_fit_on_a_device_is_refused(
    family_bf16: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    space = space_of(config("ties", family_bf16))
    spec = MapBlock(tasks={"text": {"perplexity": "text.txt"}})
    options = OPTIONS.model_copy(update={"device": "meta"})
    monkeypatch.setattr(memory, "check_device", lambda _: None)
    sizes: dict[str, int | None] = {"cpu": 0, "meta": None}
    monkeypatch.setattr(memory, "free_memory", lambda device: sizes[device.type])
    check_room(space, spec, options)  # what is free is not known
    sizes["meta"] = 10**9
    check_room(space, spec, options)  # the host's memory is not checked
    sizes["meta"] = 1000

    text = r"in the memory of meta \(.* evaluation .*\), 1 kB are free; write"
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
