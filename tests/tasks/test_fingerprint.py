import functools
import os
import subprocess
import sys
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from mergekit_map.tasks.base import fingerprint


@dataclass
class Settings:
    name: str
    steps: Any


class Plain:
    pass


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
        ({"x", "y", "z"}, {"z", "y", "x"}),
        ((1, 2), [1, 2]),
        (np.array([1.5, 2.0]), [1.5, 2.0]),
        (np.float64(0.1), 0.1),
        (Plain(), Plain()),  # their memory addresses differ
        (functools.partial(sorted, key=len), functools.partial(sorted, key=len)),
    ],
)
def test_equal_content_has_one_fingerprint(one: Any, other: Any) -> None:
    assert fingerprint(one) == fingerprint(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (("ab", "c"), ("a", "bc")),
        ([1, 2], [2, 1]),
        (b"a", b"b"),
        ("1", 1),
        (Settings("a", 1), Settings("a", 2)),
        (functools.partial(sorted, key=len), functools.partial(sorted, key=str)),
        (test_equal_content_has_one_fingerprint, fingerprint),
    ],
)
def test_different_content_has_different_fingerprints(one: Any, other: Any) -> None:
    assert fingerprint(one) != fingerprint(other)


def test_a_fingerprint_is_the_same_in_every_process() -> None:
    content = "{'b': {'x', 'y', 'z'}, 'a': frozenset({('one', 1), ('two', 2)})}"
    script = (
        "import sys\nfrom mergekit_map.tasks.base import fingerprint\n"
        f"sys.stdout.write(fingerprint({content}))"
    )
    expected = fingerprint(eval(content))
    for seed in ("1", "2"):
        found = subprocess.run(
            [sys.executable, "-c", script],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        )
        assert found.stdout == expected
