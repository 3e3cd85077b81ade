"""How quadratic the losses of the eight fine-tunes are over the box [0, 1]^N.

    python benchmarks/family8_probe.py FOLDER [--max-tokens 4096]

FOLDER is what family8.py made. Fits the plain full quadratic on Sobol points, for two
models 60 and for eight 120, and prints its R2 on 40 other ones, for a loss taken as it
is and through the softplus. What was measured stays in FOLDER/probe_n2.npz and
FOLDER/probe_n8.npz: ``X`` (n, models), ``Y`` (n, tasks) losses in nats per token, the
names of models and tasks, and ``n_fit``, how many rows from the first are fitted.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import transformers
from family8 import config, measure
from family8_text import DOMAINS
from scipy.stats import qmc

from mergekit_map.search.fit import fit_surrogate
from mergekit_map.search.links import Link

Array = np.ndarray[tuple[int, ...], np.dtype[np.float64]]

_PROBES = {2: (("german", "code"), 60), 8: (DOMAINS, 120)}
_UNSEEN = 40
_LINKS = {"identity": Link(), "softplus": Link(lower=0.0)}


def probe(folder: Path, names: Sequence[str], n_fit: int, max_tokens: int) -> None:
    """Measure all tasks at Sobol points of some models, keep them, print the fits."""
    points = qmc.Sobol(len(names), seed=0).random_base2(8)[: n_fit + _UNSEEN]
    content = config(folder, names, DOMAINS, max_tokens=max_tokens)
    started = time.perf_counter()
    losses = measure(content, points)
    seconds = (time.perf_counter() - started) / losses.size
    path = folder / f"probe_n{len(names)}.npz"
    np.savez(path, X=points, Y=losses, models=names, tasks=DOMAINS, n_fit=n_fit)
    print(f"N = {len(names)}: {', '.join(names)}; {seconds * 1e3:.1f} ms per value")
    print(f"{'R2':>10}", *(f"{task[:7]:>7}" for task in DOMAINS), "   mean")
    for label, link in _LINKS.items():
        scores = [unseen_r2(points, y, n_fit, link) for y in losses.T]
        print(f"{label:>10}", *(f"{s:7.3f}" for s in (*scores, np.mean(scores))))
    print(f"{'range':>10}", *(f"{spread:7.3f}" for spread in np.ptp(losses, axis=0)))


def unseen_r2(X: Array, y: Array, n_fit: int, link: Link) -> float:
    """Fit the first ``n_fit`` rows and give R2 on the others."""
    bounds = np.tile([0.0, 1.0], (X.shape[1], 1))
    fitted = fit_surrogate(X[:n_fit], y[:n_fit], stderr=None, link=link, bounds=bounds)
    unseen = y[n_fit:]
    residuals = unseen - fitted.predict(X[n_fit:])
    return 1 - float((residuals**2).sum() / ((unseen - unseen.mean()) ** 2).sum())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--max-tokens", type=int, default=4096)
    arguments = parser.parse_args()
    transformers.utils.logging.disable_progress_bar()
    transformers.utils.logging.set_verbosity_error()
    for names, n_fit in _PROBES.values():
        probe(arguments.folder, names, n_fit, arguments.max_tokens)


if __name__ == "__main__":
    main()
