"""What the paper prints of its own experiments, by the names of its tables.

Rates and sums are in per cent, ``(mean, standard deviation)``; N is a number of models.
"""

from __future__ import annotations

from typing import NamedTuple


class WinRate(NamedTuple):
    """A row of table 2 or 3."""

    direct: int  # merges of the direct search
    merges: int  # of MAP
    rate: tuple[float, float]
    r2: tuple[float, float]


WIN_RATES = {
    2: WinRate(200, 30, (49.81, 0.30), (0.953, 0.018)),
    3: WinRate(300, 50, (46.90, 0.71), (0.980, 0.003)),
    4: WinRate(300, 60, (50.67, 2.44), (0.984, 0.004)),
    5: WinRate(500, 85, (53.00, 1.88), (0.941, 0.019)),
    6: WinRate(500, 100, (60.71, 1.34), (0.941, 0.030)),
    7: WinRate(1000, 140, (63.42, 1.91), (0.891, 0.024)),
    8: WinRate(1000, 250, (65.58, 0.94), (0.868, 0.028)),
}

# Table 4: sums of accuracies for 20 preferences, N = 2 to 8; a method by our name for
# it, and below that its means, each before its standard deviation.
_SUMS = """\
Single task models
75.84 1.76 77.03 1.84 82.43 4.40 87.69 4.50 88.52 4.02 89.26 3.58 90.62 2.52
MTL
73.63 0.30 75.13 1.00 80.10 2.79 84.93 3.58 86.78 2.94 87.40 2.56 89.11 2.36
Model soup
67.79 1.46 64.25 2.15 66.04 3.22 67.01 3.42 63.11 1.99 63.35 2.17 64.36 2.77
TIES
69.30 0.33 67.60 0.58 71.79 2.93 76.49 3.10 73.74 2.96 72.54 2.87 72.24 1.91
DARE-TIES
67.62 1.65 66.49 2.34 71.39 4.45 74.55 4.55 73.34 4.10 71.43 3.84 71.89 2.86
Task arithmetic
70.73 1.84 61.15 2.33 52.69 4.23 61.58 4.62 51.37 3.84 39.79 3.97 60.77 2.84
TA, preference as weights
69.22 1.40 66.88 2.37 68.73 5.48 71.92 5.50 68.13 4.69 68.14 4.20 68.17 2.89
DARE-TA
70.61 0.22 64.18 1.24 58.04 8.19 65.39 7.03 56.76 7.01 46.75 5.73 64.51 3.81
AdaMerging++
67.27 1.92 67.13 1.92 71.19 4.43 76.84 4.71 74.13 4.07 72.58 4.16 72.55 2.83
DELLA
67.10 2.08 65.92 2.48 70.71 4.31 74.43 4.32 72.64 3.77 71.16 3.95 71.49 2.83
MOEA/D
70.22 1.46 67.94 1.79 70.85 4.58 72.03 4.03 67.88 3.09 69.06 2.97 68.59 2.89
MAP
70.70 1.76 69.05 1.84 72.84 4.40 77.31 4.50 74.26 4.02 73.40 3.58 72.96 2.52
""".splitlines()
PREFERENCE_SUMS = {
    method: dict(zip(range(2, 9), zip(sums[::2], sums[1::2], strict=True), strict=True))
    for method, line in zip(_SUMS[::2], _SUMS[1::2], strict=True)
    if (sums := [*map(float, line.split())])
}

# Table 7: GD and IGD, (mean, standard deviation); the third is printed as 0.0.018.
DISTANCES = {
    "Arabic + French": ((0.023, 0.010), (0.035, 0.018)),
    "Chinese + Japanese": ((0.014, 0.013), (0.028, 0.017)),
    "Math + Code": ((0.039, 0.009), (0.018, 0.002)),
}
