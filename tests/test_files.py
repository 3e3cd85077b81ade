from __future__ import annotations

import math
import os
import stat
from pathlib import Path
from types import MappingProxyType

import pytest

from mergekit_map.errors import ArtifactError
from mergekit_map.utils.files import digest, json_line, sha256, write_atomically


def test_a_digest_knows_the_content_and_not_the_order_of_its_keys() -> None:
    assert digest({"a": 1, "b": [2.5]}) == digest({"b": [2.5], "a": 1})
    assert digest({"a": 1}) == sha256('{"a": 1}')[:16] != digest({"a": 2})


def test_json_on_a_line_has_null_for_what_is_not_finite() -> None:
    numbers = {"a": [1.5, math.nan, (math.inf, 0.1)], "b": MappingProxyType({"c": 1})}

    assert json_line(numbers) == '{"a": [1.5, null, [null, 0.1]], "b": {"c": 1}}'
    assert json_line({"a": (0.1, "é", None)}) == '{"a": [0.1, "\\u00e9", null]}'


def test_what_is_no_file_is_not_replaced_by_one(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")

    with pytest.raises(ArtifactError, match=r"pipe is a folder, a pipe or a device"):
        write_atomically(tmp_path / "pipe", "content")

    assert stat.S_ISFIFO((tmp_path / "pipe").stat().st_mode)
