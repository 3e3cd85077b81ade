from __future__ import annotations

import sys

import pytest

from mergekit_map.stopping import Terminated, stoppable


def test_a_stop_that_compiled_code_cannot_raise_is_not_shown_and_errors_are(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with stoppable():
        for error in (KeyboardInterrupt("a"), Terminated("b"), ValueError("c")):
            sys.excepthook(type(error), error, None)
    assert capsys.readouterr().err == "ValueError: c\n"
