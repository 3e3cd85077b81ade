"""What callers in Python hear who bring no callbacks."""

from __future__ import annotations

import logging

import pytest
import transformers

from mergekit_map.utils.progress import warn
from mergekit_map.workflows.callbacks import reporting


def test_a_notice_is_a_warning_of_the_log(caplog: pytest.LogCaptureFixture) -> None:
    with reporting(None), caplog.at_level(logging.WARNING):
        warn("3 measurements failed")

    assert [r.getMessage() for r in caplog.records] == ["3 measurements failed"]
    assert caplog.records[0].name.startswith("mergekit_map")


def test_bars_of_the_model_libraries_come_back_afterwards(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bars = transformers.utils.logging
    monkeypatch.setattr(bars, "_tqdm_active", True)

    def stop() -> None:
        with reporting(None):
            assert not bars.is_progress_bar_enabled()
            raise ValueError("stopped")

    with pytest.raises(ValueError, match="stopped"):
        stop()

    assert bars.is_progress_bar_enabled()
