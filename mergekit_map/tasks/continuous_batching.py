"""Generation by transformers' continuous batching: ``generate_batch``.

It gives the greedy answers of ``generate``, without padding: requests join and leave
the batch as they are ready. It knows no stop strings, so answers are cut afterwards.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from lm_eval.models.huggingface import HFLM
from lm_eval.models.utils import (
    handle_stop_sequences,
    normalize_gen_kwargs,
    postprocess_generated_text,
)
from transformers import GenerationConfig

from mergekit_map.errors import EvaluationError
from mergekit_map.pulse import step
from mergekit_map.tasks.fingerprint import fingerprint
from mergekit_map.tasks.generations import Answer

_PAGE = 32  # tokens for which room is made at a time
_MOST_TOKENS = 512  # of a batch on a CPU, which has nothing to tell how many fit


def answers_in_batches(lm: HFLM) -> Answer:
    """Give what answers in the place of the model's ``generate_until``.

    Raises:
        EvaluationError: transformers has no continuous batching, or a request draws.
    """
    if not hasattr(lm.model, "generate_batch"):
        raise EvaluationError(
            "this version of transformers has no generate_batch; write 'engine: hf'"
        )

    def generate_until(requests: Sequence[Any], **_: Any) -> list[str]:
        groups: dict[str, list[int]] = {}
        for place, request in enumerate(requests):
            groups.setdefault(fingerprint(request.args[1]), []).append(place)
        answers = [""] * len(requests)
        done = 0
        for places in groups.values():
            options = requests[places[0]].args[1]
            prompts = [requests[place].args[0] for place in places]
            texts = _answer(lm, prompts, options)
            for place, text in zip(places, texts, strict=True):
                answers[place] = text
            done += len(places)
            step(done, len(requests))
        return answers

    return generate_until


def _answer(lm: HFLM, prompts: Sequence[str], options: Mapping[str, Any]) -> list[str]:
    """Have prompts answered that share their options."""
    kwargs = dict(normalize_gen_kwargs(dict(options), lm.max_gen_toks))
    eos = lm.tok_decode(lm.eot_token_id, skip_special_tokens=False)
    until = handle_stop_sequences(kwargs.pop("until", None), eos=eos)
    most = int(kwargs.pop("max_gen_toks"))
    if kwargs.pop("do_sample", False) or kwargs.pop("temperature", 0.0):
        raise EvaluationError(
            "generate_batch is for greedy answers, and this task draws them; write "
            "'engine: hf' for it"
        )
    room = lm.max_length - most
    if room <= 0:
        raise EvaluationError(
            f"the task lets the model write {most} tokens, and it takes "
            f"{lm.max_length} in all; set max_gen_toks in the task"
        )
    encoded = [lm.tok_encode(prompt)[-room:] for prompt in prompts]
    written = _generate(lm, encoded, most, kwargs)
    return [
        postprocess_generated_text(lm.tok_decode(tokens), until, None)
        for tokens in written
    ]


def _generate(
    lm: HFLM, prompts: Sequence[Sequence[int]], most: int, options: Mapping[str, Any]
) -> list[list[int]]:
    from transformers import ContinuousBatchingConfig

    settings: dict[str, Any] = {
        # Blocks of an earlier merge must not be taken for those of this one, and no
        # kernel be fetched that computes otherwise.
        "allow_block_sharing": False,
        "auto_switch_to_flash": False,
    }
    if lm.device.type == "cpu":
        longest = max(map(len, prompts)) + most
        blocks = 8 * -(-longest // _PAGE)
        settings |= {
            "page_size": _PAGE,
            "num_blocks": blocks,
            "max_batch_tokens": max(_MOST_TOKENS, longest),
            "use_cuda_graph": False,
        }
    config = GenerationConfig(  # type: ignore[no-untyped-call]
        max_new_tokens=most,
        do_sample=False,
        eos_token_id=lm.model.generation_config.eos_token_id,
        pad_token_id=lm.tokenizer.pad_token_id,
        **options,
    )
    with torch.no_grad():
        outputs = lm.model.generate_batch(
            [list(prompt) for prompt in prompts],
            generation_config=config,
            continuous_batching_config=ContinuousBatchingConfig(**settings),
            progress_bar=False,
        )
    found = [list(output.generated_tokens) for output in outputs.values()]
    if len(found) != len(prompts):
        raise EvaluationError(
            f"generate_batch answered {len(found)} of {len(prompts)} prompts; write "
            "'engine: hf'"
        )
    return found
