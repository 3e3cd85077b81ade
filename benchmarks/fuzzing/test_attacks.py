"""Some attacks of each class; ``table.py`` tries all of them."""

from __future__ import annotations

import importlib
import random

import pytest
from attack import warm
from table import classes, failures


@pytest.fixture(scope="module", autouse=True)
def _warm() -> None:
    warm()


@pytest.mark.parametrize("name", classes())
def test_what_is_attacked_holds(name: str) -> None:
    module = importlib.import_module(f"attacks_on_{name}")
    if missing := getattr(module, "MISSING", ""):
        pytest.skip(missing)
    attacks = list(module.attacks(0))
    some = random.Random(0).sample(attacks, min(module.QUICK, len(attacks)))
    failed, impossible = failures(some)
    assert not failed
    if impossible:
        why = "; ".join(sorted(set(impossible.values())))
        pytest.skip(f"{len(impossible)} of {len(some)} are not tried: {why}")


def test_each_class_has_at_least_as_many_attacks_as_were_tried_before() -> None:
    for name in classes():
        module = importlib.import_module(f"attacks_on_{name}")
        assert len(list(module.attacks(0))) >= module.BEFORE[0], name


def test_names_of_attacks_tell_them_apart() -> None:
    for name in classes():
        names = [
            attack.name
            for attack in importlib.import_module(f"attacks_on_{name}").attacks(0)
        ]
        assert len(set(names)) == len(names), name
