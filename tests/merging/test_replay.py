"""The shortcuts of a replay against the operations that mergekit itself uses."""

from __future__ import annotations

import pytest
import torch
from mergekit.merge_methods.generalized_task_arithmetic import ConsensusMethod

from mergekit_map.merging.replay import TaskVectorReplay, allows_shortcuts

DTYPES = [torch.float32, torch.bfloat16]


def replay(
    base: torch.Tensor, deltas: torch.Tensor, *, elect: bool, plain: bool
) -> TaskVectorReplay:
    return TaskVectorReplay(
        models=tuple(range(len(deltas))),
        base=base,
        deltas=deltas,
        elect_signs=ConsensusMethod.sum if elect else None,
        mask_dtype=base.dtype,
        normalize=False,
        scale=1,
        plain=plain,
    )


@pytest.mark.parametrize("elect", [True, False])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n", [1, 2, 3])
@pytest.mark.parametrize("size", [256, 1000, (1 << 17) + 5])
def test_shortcuts_have_the_bits_of_mergekits_operations(
    n: int, size: int, dtype: torch.dtype, elect: bool
) -> None:
    generator = torch.Generator().manual_seed(n + size)
    base = torch.randn(size, generator=generator).to(dtype)
    deltas = (torch.randn(n, size, generator=generator) * 1e-2).to(dtype)
    deltas[torch.rand(n, size, generator=generator) < 0.3] = 0  # as sparsified
    deltas[:, ::7] = -deltas[:1, ::7]  # sums that cancel, in part exactly
    weights = torch.randn(n, generator=generator).tolist()
    assert allows_shortcuts(base, deltas)

    written = []
    for plain in (True, False):
        target = torch.empty_like(base)
        replay(base, deltas, elect=elect, plain=plain).write(weights, target)
        written.append(target.view(torch.uint8))

    assert torch.equal(*written)


def test_a_zero_weight_gives_the_base() -> None:
    base = torch.randn(512, generator=torch.Generator().manual_seed(0))
    deltas = torch.ones(2, 512)
    target = torch.empty(512)

    replay(base, deltas, elect=True, plain=True).write([0.0, 0.0], target)

    assert torch.equal(target, base)


@pytest.mark.parametrize(
    ("position", "value"),
    [("base", -0.0), ("deltas", float("inf")), ("deltas", float("nan"))],
)
def test_no_shortcuts_where_they_are_not_exact(position: str, value: float) -> None:
    tensors = {"base": torch.ones(512), "deltas": torch.ones(2, 512)}
    assert allows_shortcuts(**tensors)
    tensors[position].view(-1)[3] = value

    assert not allows_shortcuts(**tensors)


def test_no_shortcuts_for_many_models_small_tensors_or_half_precision() -> None:
    base = torch.ones(512)
    assert not allows_shortcuts(base, torch.ones(4, 512))
    assert not allows_shortcuts(base[:4], torch.ones(2, 4))
    assert not allows_shortcuts(base.half(), torch.ones(2, 512).half())
