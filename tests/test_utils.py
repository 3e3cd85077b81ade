from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from mergekit_map.errors import ArtifactError, InvalidTask, MapError
from mergekit_map.utils.files import digest, sha256, write_atomically
from mergekit_map.utils.text import printable, redact


def test_a_digest_knows_the_content_and_not_the_order_of_its_keys() -> None:
    assert digest({"a": 1, "b": [2.5]}) == digest({"b": [2.5], "a": 1})
    assert digest({"a": 1}) == sha256('{"a": 1}')[:16] != digest({"a": 2})


def test_what_is_no_file_is_not_replaced_by_one(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")

    with pytest.raises(ArtifactError, match=r"pipe is a folder, a pipe or a device"):
        write_atomically(tmp_path / "pipe", "content")

    assert stat.S_ISFIFO((tmp_path / "pipe").stat().st_mode)


SECRET = "not-Like/a+token 77"


@pytest.mark.parametrize("name", ["HF_TOKEN", "AWS_SECRET_ACCESS_KEY"])
def test_no_error_and_no_output_holds_a_token_of_the_environment(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    assert redact(f"by {SECRET}.") == f"by {SECRET}."

    monkeypatch.setenv(name, SECRET)

    assert str(MapError(f"no {SECRET}")) == "no ***"
    assert repr(InvalidTask((), f"no {SECRET}")) == "InvalidTask('no ***')"
    assert printable(f"no {SECRET}\x1b\n") == "no ***\\x1b\n"
    assert printable(f"no {'x' * 5000}, y") == f"no {'x' * 100}... y"
    assert printable("Oui\xa0!\u202e") == "Oui\xa0!\\u202e"  # turns no letters round


def test_what_is_no_token_by_its_name_length_or_form_stays(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TOKENIZERS_PARALLELISM", SECRET)
    monkeypatch.setenv("SHORT_TOKEN", "no")

    assert redact(f"no {SECRET}") == f"no {SECRET}"
    assert redact(f"https://u:{('hf_' + 'Ab1' * 11)}@hub") == "https://u:***@hub"
    for text in ("hf_hub_download and hf_xet", "runs/hf_checkpoint7b.yml"):
        assert redact(text) == text
