"""Cholesky factors of small matrices, many thousand times: LAPACK without detours.

What SciPy's functions of these names compute, to the last bit. Matrices here are so
small that looking at arguments takes longer than solving.
"""

from __future__ import annotations

import numpy as np
from scipy.linalg.lapack import dpotrf, dpotrs, dtrtrs

from mergekit_map.search.arrays import FloatArray


def lower_root(matrix: FloatArray) -> FloatArray:
    """Give the lower Cholesky factor of a symmetric matrix.

    Raises:
        LinAlgError: the matrix is not positive definite, or not finite.
    """
    root, info = dpotrf(matrix, lower=1, clean=1)
    if info:
        raise np.linalg.LinAlgError("the matrix is not positive definite")
    return np.asarray(root)


def solve_by_root(root: FloatArray, right: FloatArray) -> FloatArray:
    """Solve for the matrix of which ``root`` is the lower factor."""
    return np.asarray(dpotrs(root, right, lower=1)[0])


def solve_root(root: FloatArray, right: FloatArray) -> FloatArray:
    """Solve for the lower factor itself."""
    return np.asarray(dtrtrs(root, right, lower=1)[0])
