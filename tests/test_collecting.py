"""Python looks for cycles again once what is read is read, whatever came of it."""

from __future__ import annotations

import gc

import pytest

from mergekit_map.collecting import collecting_later


def test_cycles_are_looked_for_again_afterwards() -> None:
    with collecting_later():
        assert not gc.isenabled()
    assert gc.isenabled()

    with pytest.raises(ValueError, match="damaged"), collecting_later():
        raise ValueError("damaged")
    assert gc.isenabled()


def test_who_does_not_look_for_cycles_does_not_do_so_afterwards_either() -> None:
    gc.disable()
    try:
        with collecting_later():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()
