"""Muon: momentum whose update of every matrix is made orthogonal first.

AdamW alone is far behind it after the few hundred steps that a demo can wait for.
After Keller Jordan et al., "Muon: an optimizer for hidden layers in neural networks"
(2024). PyTorch has its own from 2.9 on; we support older ones, and handle all
matrices of one shape as one batch.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch

_COEFFICIENTS = (3.4445, -4.7750, 2.0315)  # of the quintic iteration, from the paper
_ITERATIONS = 5
_MOMENTUM = 0.95


class Muon:
    """Update matrices in place; the caller clears their gradients."""

    def __init__(self, matrices: Iterable[torch.nn.Parameter]) -> None:
        by_shape: dict[torch.Size, list[torch.nn.Parameter]] = {}
        for matrix in matrices:
            by_shape.setdefault(matrix.shape, []).append(matrix)
        self._groups = list(by_shape.values())
        self._momenta = [
            torch.zeros(len(group), *group[0].shape, device=group[0].device)
            for group in self._groups
        ]

    @torch.no_grad()
    def step(self, learning_rate: float) -> None:
        """Take one step along the orthogonal factor of the Nesterov momentum."""
        for group, momentum in zip(self._groups, self._momenta, strict=True):
            gradient = torch.stack([_gradient(matrix) for matrix in group])
            momentum.mul_(_MOMENTUM).add_(gradient)
            update = orthogonalise(gradient + _MOMENTUM * momentum)
            rows, columns = update.shape[-2:]
            rate = learning_rate * max(1.0, rows / columns) ** 0.5
            for matrix, direction in zip(group, update, strict=True):
                matrix.sub_(direction, alpha=rate)


def orthogonalise(matrices: torch.Tensor) -> torch.Tensor:
    """Bring the singular values of a batch (n, rows, columns) to about 1.

    Newton-Schulz: the values end between about 0.7 and 1.2, and a zero stays zero.
    """
    tall = matrices.shape[-2] > matrices.shape[-1]
    X = matrices.mT if tall else matrices
    X = X / X.norm(dim=(-2, -1), keepdim=True).clamp_min(1e-7)
    first, third, fifth = _COEFFICIENTS
    for _ in range(_ITERATIONS):
        gram = X @ X.mT
        X = first * X + (third * gram + fifth * gram @ gram) @ X
    orthogonal: torch.Tensor = X.mT if tall else X
    return orthogonal


def _gradient(matrix: torch.nn.Parameter) -> torch.Tensor:
    if matrix.grad is None:
        raise ValueError("call backward() before step()")
    return matrix.grad
