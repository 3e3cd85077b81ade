"""What is beyond the attacks of ``benchmarks/fuzzing``: sums, and who is asked when."""

import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from transformers import LlamaForCausalLM

from mergekit_map.errors import EvaluationError
from mergekit_map.pulse import heard_by
from mergekit_map.tasks.guarding import Guard
from mergekit_map.tasks.model_state import ModelState


class Heard:
    def __init__(self) -> None:
        self.texts: list[str] = []

    def staged(self, text: str, seconds: float | None) -> None: ...

    def stepped(self, done: int, total: int) -> None: ...

    def notice(self, text: str) -> None:
        self.texts.append(text)


def _turn_bit(bits: torch.Tensor, place: int) -> None:
    bits[place] ^= 1


def _roll(flat: torch.Tensor, by: int) -> None:
    flat.copy_(flat.roll(by))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("size", [(3,), (5, 7), (64, 96), (1, 1025), (2, 3, 4)])
def test_a_sum_sees_every_bit_and_every_exchange(
    dtype: torch.dtype, size: tuple[int, ...]
) -> None:
    layer = torch.nn.Module()
    content = torch.randn(size, generator=torch.Generator().manual_seed(0)).to(dtype)
    layer.weight = torch.nn.Parameter(content)
    known = ModelState(layer, {}).sums()
    flat = layer.weight.data.view(-1)

    def other(change: Callable[[], Any]) -> bool:
        before = flat.clone()
        change()
        found = ModelState(layer, {}).sums()
        flat.copy_(before)
        return found != known

    whole = {2: torch.int16, 4: torch.int32, 8: torch.int64}
    bits, count = flat.view(whole[dtype.itemsize]), flat.numel()
    for place in range(0, count, 1 + count // 20):
        assert other(functools.partial(_turn_bit, bits, place))
        if place:
            assert other(functools.partial(_roll, flat, place))
    assert ModelState(layer, {}).sums() == known


def test_sums_are_of_what_was_written_last(model: LlamaForCausalLM) -> None:
    guard = Guard(model, written=model.state_dict())
    guard.task_of_user("mine", lambda: None)

    model.lm_head.weight.data.fill_(0)
    guard.written_anew()
    guard.task_of_user("mine", lambda: None)

    model.lm_head.weight.data.fill_(1)
    with pytest.raises(EvaluationError, match="lm_head"):
        guard.task_of_user("mine", lambda: None)
    assert guard.spoilt


def test_what_no_merge_writes_is_written_again_by_the_guard(
    model: LlamaForCausalLM,
) -> None:
    buffer = model.model.rotary_emb.inv_freq
    known, guard = buffer.clone(), Guard(model, written=model.state_dict())

    with pytest.raises(EvaluationError, match="inv_freq"):
        guard.task_of_user("mine", lambda: buffer.mul_(2))
    guard.written_anew()

    assert torch.equal(model.model.rotary_emb.inv_freq, known)
    assert not guard.spoilt


def test_what_was_put_back_is_said_once(model: LlamaForCausalLM) -> None:
    guard, heard = Guard(model, written=model.state_dict()), Heard()

    with heard_by(heard):
        for _ in range(3):
            guard.task_of_user("mine", model.train)

    assert heard.texts == ["task 'mine' changed training mode, which was put back"]
    assert not model.training
