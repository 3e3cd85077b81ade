from __future__ import annotations

import pytest

from mergekit_map.errors import InvalidTask, MapError
from mergekit_map.utils.text import printable, redact

SECRET = "not-Like/a+token 77"


@pytest.mark.parametrize(
    "name",
    ["HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "OPENAI_API_KEY", "AWS_SECRET_ACCESS_KEY"],
)
def test_no_error_and_no_output_holds_a_token_of_the_environment(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    assert redact(f"by {SECRET}.") == f"by {SECRET}."

    monkeypatch.setenv(name, SECRET)

    assert str(MapError(f"no {SECRET}")) == "no ***"
    assert repr(InvalidTask((), f"no {SECRET}")) == "InvalidTask('no ***')"
    assert printable(f"no {SECRET}\x1b\n") == "no ***\\x1b\n"
    assert printable(f"no {'x' * 5000}, y") == f"no {'x' * 100}... y"


def test_other_variables_and_short_values_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOKENIZERS_PARALLELISM", SECRET)
    monkeypatch.setenv("SHORT_TOKEN", "no")

    assert redact(f"no {SECRET}") == f"no {SECRET}"


def test_a_token_of_the_hub_is_masked_by_its_form() -> None:
    token = "hf_" + "Ab1" * 11

    assert redact(f"https://u:{token}@hub") == "https://u:***@hub"
    assert redact("hf_hub_download and hf_xet") == "hf_hub_download and hf_xet"
