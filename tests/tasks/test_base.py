"""Fingerprints, standard errors of ratios, and what is replaced in lm-eval."""

from __future__ import annotations

import functools
import io
import math
import runpy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import datasets
import lm_eval.api.task
import lm_eval.utils
import numpy as np
import pytest
import tqdm.auto

from mergekit_map.tasks.base import fingerprint, quiet, ratio_stderr
from mergekit_map.tasks.lm_eval_tasks import cached_templates


@dataclass
class Settings:
    name: str
    steps: Any


class Plain:
    pass


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}, True),
        ({"x", "y", "z"}, {"z", "y", "x"}, True),
        ((1, 2), [1, 2], True),
        (np.array([1.5, 2.0]), [1.5, 2.0], True),
        (np.float64(0.1), 0.1, True),
        (Plain(), Plain(), True),  # their memory addresses differ
        (functools.partial(sorted, key=len), functools.partial(sorted, key=len), True),
        (("ab", "c"), ("a", "bc"), False),
        ([1, 2], [2, 1], False),
        (b"a", b"b", False),
        ("1", 1, False),
        (Settings("a", 1), Settings("a", 2), False),
        (functools.partial(sorted, key=len), functools.partial(sorted, key=str), False),
        (ratio_stderr, fingerprint, False),
    ],
)
def test_equal_content_alone_has_one_fingerprint(
    one: Any, other: Any, same: bool
) -> None:
    assert (fingerprint(one) == fingerprint(other)) == same


def test_code_behind_a_decorator_of_another_file_counts(tmp_path: Path) -> None:
    path, found = tmp_path / "own.py", set()
    for value in (1, 2):
        path.write_text(f"def score(): return {value}")
        score = runpy.run_path(str(path))["score"]
        found.add(fingerprint(functools.wraps(score)(lambda: None)))

    assert len(found) == 2


def test_a_fingerprint_is_the_same_in_every_process() -> None:
    content = {"b": set("abcdefghijkl"), "a": frozenset({("one", 1), ("two", 2)})}

    assert fingerprint(content) == (
        "1fe3507dac7f7f907815433ec188d73d6d62b89f1e80a05d7fdd95cf009be231"
    )


def test_one_item_has_no_known_error_and_a_bad_total_makes_it_nan() -> None:
    assert ratio_stderr([], []) is ratio_stderr([1.0], [1.0]) is None
    for bad in (math.nan, math.inf):
        assert math.isnan(ratio_stderr([1.0, bad, 2.0], [1.0, 1.0, 1.0]))


def test_what_is_replaced_is_put_back() -> None:
    bars = (lm_eval.api.task.tqdm, tqdm.auto.tqdm, datasets.utils.tqdm)

    with quiet(), quiet(), cached_templates():
        assert all(bar([1, 2], disable=False).disable for bar in bars)
        assert "from_string" in vars(lm_eval.utils.env)

    assert not any(
        bar([1, 2], disable=False, file=io.StringIO()).disable for bar in bars
    )
    assert "from_string" not in vars(lm_eval.utils.env)


def test_a_template_gives_what_lm_evals_own_environment_gives() -> None:
    template = (
        "{% for c in choices %}{{loop.index}}. {{c}}\n{% endfor %}"
        "{{question|regex_replace('[0-9]', 'n')}} {{'%s: %d' % (question, answer)}}\n"
    )
    document = {"question": "2 + 2?", "choices": ["three", "four"], "answer": 1}
    expected = lm_eval.utils.env.from_string(template).render(**document)

    with cached_templates():
        assert lm_eval.utils.apply_template(template, document) == expected
