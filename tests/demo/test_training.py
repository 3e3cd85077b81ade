import pytest
import torch

from mergekit_map.demo.training import (
    ModelSizes,
    Muon,
    orthogonalise,
    train_tokenizer,
)

SIZES = ModelSizes(
    vocabulary=300, hidden=32, intermediate=64, layers=2, heads=2, positions=32
)


@pytest.mark.parametrize("shape", [(16, 16), (40, 16), (16, 40)])
def test_orthogonalise_keeps_singular_vectors_and_levels_the_values(
    shape: tuple[int, int],
) -> None:
    matrix = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    left, _, right = torch.linalg.svd(matrix, full_matrices=False)

    rotated = left.T @ orthogonalise(matrix) @ right.T

    values = rotated.diagonal()
    torch.testing.assert_close(rotated, torch.diag(values), rtol=0, atol=1e-3)
    assert values.max() < 1.3
    assert values.median() > 0.6


def test_muon_goes_down_a_quadratic() -> None:
    matrix = torch.nn.Parameter(torch.eye(4) * 3)
    muon = Muon([matrix])
    for step in range(200):
        matrix.grad = 2 * matrix.detach()
        muon.step(0.05 * (1 - step / 200))

    assert matrix.detach().square().sum() < 1.0


def test_the_tokenizer_gives_back_what_it_read() -> None:
    tokenizer = train_tokenizer(["def f():\n    return 1 + 2\n"] * 5, SIZES)
    text = "def g(é):\n\treturn 12 + 7 = 19\n"

    assert tokenizer.decode(tokenizer(text)["input_ids"]) == text
    assert (tokenizer.bos_token_id, tokenizer.eos_token_id, tokenizer.pad_token_id) == (
        0,
        1,
        2,
    )
