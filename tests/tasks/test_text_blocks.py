"""Long texts: their first tokens are those of the whole."""

from __future__ import annotations

import random

import pytest
import torch
from tiny_tokenizer import WORDS, make_tokenizer

from mergekit_map.tasks import perplexity
from mergekit_map.tasks.perplexity import make_blocks


@pytest.mark.parametrize("end", ["", " ", "é", "\n\n"])
def test_the_blocks_of_the_beginning_are_those_of_the_whole(
    monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    words = random.Random(0).choices([*WORDS, "größer", "🦙", "x" * 40], k=20_000)
    text, tokenizer = f"{end} ".join(words), make_tokenizer([])
    made = make_blocks([text, "one"], tokenizer, length=64, max_tokens=5000)
    monkeypatch.setattr(perplexity, "_SHORT", 2 * len(text))

    whole = make_blocks([text, "one"], tokenizer, length=64, max_tokens=5000)

    assert torch.equal(made.inputs, whole.inputs)
    assert torch.equal(made.targets, whole.targets)


def test_of_a_long_text_only_the_beginning_is_cut_into_tokens() -> None:
    seen = []
    tokenizer = make_tokenizer([])

    class Counting:
        bos_token_id = 0

        def __call__(self, text: str, **options: bool) -> dict[str, list[int]]:
            seen.append(len(text))
            found: dict[str, list[int]] = tokenizer(text, **options)
            return found

    make_blocks(["one two " * 10**6], Counting(), length=64, max_tokens=1000)

    assert sum(seen) < 10**5
