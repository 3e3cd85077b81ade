"""BLAS has one thread where fits and fronts are computed, and all where tasks are."""

from __future__ import annotations

import os
import subprocess
import sys

SCRIPT = """
from threadpoolctl import threadpool_info
from mergekit_map.surrogates.fit import all_threads, one_thread

def count():
    return {i["num_threads"] for i in threadpool_info() if i["user_api"] == "blas"}

before = count()
with one_thread():
    fits = count()
    with all_threads():
        tasks = count()
    again = count()
print(before, fits, tasks, again, count())
"""


def test_fits_have_one_thread_and_tasks_among_them_those_of_before() -> None:
    threads = {"OMP_NUM_THREADS": "2", "OPENBLAS_NUM_THREADS": "2"}
    done = subprocess.run(
        [sys.executable, "-c", f"import numpy, scipy.linalg\n{SCRIPT}"],
        env={**os.environ, **threads},
        capture_output=True,
        text=True,
        check=True,
    )

    assert done.stdout.split() == ["{2}", "{1}", "{2}", "{1}", "{2}"]
