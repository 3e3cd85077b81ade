import os
from pathlib import Path

import pytest

from mergekit_map.errors import InvalidTask, MapError
from mergekit_map.masking import masked
from mergekit_map.words import printable

SECRET = "not-Like/a+token 77"


@pytest.fixture(autouse=True)
def _nobody(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    monkeypatch.delenv("HF_TOKEN_PATH", raising=False)


@pytest.mark.parametrize(
    "name",
    ["HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "OPENAI_API_KEY", "AWS_SECRET_ACCESS_KEY"],
)
def test_the_value_of_a_variable_that_holds_a_token_is_masked(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    assert masked(f"by {SECRET}.") == f"by {SECRET}."

    monkeypatch.setenv(name, SECRET)

    assert masked(f"by {SECRET}.") == "by ***."


def test_the_value_of_another_variable_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOKENIZERS_PARALLELISM", SECRET)
    monkeypatch.setenv("SHORT_TOKEN", "no")

    assert masked(f"no {SECRET}") == f"no {SECRET}"


@pytest.mark.parametrize("name", ["token", "stored_tokens"])
def test_what_a_login_keeps_is_masked(tmp_path: Path, name: str) -> None:
    content = SECRET if name == "token" else f"[mine]\nhf_token = {SECRET}\n"
    (tmp_path / name).write_text(content)

    assert masked(f"by {SECRET}") == "by ***"


def test_a_token_file_that_never_ends_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    os.mkfifo(tmp_path / "token")
    assert masked("a word") == "a word"

    monkeypatch.setenv("HF_TOKEN_PATH", "/dev/zero")
    assert masked("a word") == "a word"


@pytest.mark.parametrize(
    "token",
    ["hf_" + "Ab1" * 11, "sk-proj-" + "x1_" * 9, "ghp_" + "Ab1" * 12],
)
def test_what_looks_like_a_token_is_masked(token: str) -> None:
    assert masked(f"https://u:{token}@hub") == "https://u:***@hub"
    assert masked("hf_hub_download and hf_xet") == "hf_hub_download and hf_xet"


def test_errors_and_what_is_shown_hold_no_token(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HF_TOKEN", SECRET)

    assert str(MapError(f"no {SECRET}")) == "no ***"
    assert repr(InvalidTask((), f"no {SECRET}")) == "InvalidTask('no ***')"
    assert printable(f"no {SECRET}\n") == "no ***\n"
