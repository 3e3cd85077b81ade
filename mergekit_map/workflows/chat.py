"""Chat with a merge that is not on disk, from its recipe.

Merges are made as the search made them: in memory, or as a checkpoint in a temporary
folder.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import torch
import transformers
from mergekit.options import MergeOptions

from mergekit_map.errors import EvaluationError
from mergekit_map.evaluation.merges import merged_on_disk
from mergekit_map.evaluation.project import finished_project
from mergekit_map.merging.checkpoint import load_checkpoint
from mergekit_map.merging.in_memory import resident_merge
from mergekit_map.utils.shutdown import check_interrupt

_MOST_TOKENS = 512  # of an answer
# Of the user or the assistant: role and content, as chat templates have them.
Message: TypeAlias = Mapping[str, str]


@dataclass(frozen=True, eq=False)
class ChatModel:
    """A merge that answers."""

    model: transformers.PreTrainedModel
    tokenizer: Any

    @property
    def chats(self) -> bool:
        """Whether the model has a chat template; otherwise it continues a text."""
        return bool(self.tokenizer.chat_template)

    def answer(self, said: Sequence[Message], emit: Callable[[str], None]) -> str:
        """Emit the words of the next message, and return it."""
        inputs = self._encode(said).to(self.model.device)
        length = inputs["input_ids"].shape[1]
        config = self.model.config.get_text_config()
        longest = getattr(config, "max_position_embeddings", None)
        room = _MOST_TOKENS if longest is None else min(_MOST_TOKENS, longest - length)
        if room < 1:
            raise EvaluationError(
                f"what was said has {length} tokens, and the model has {longest} "
                "positions; begin anew: an empty line"
            )
        streamer = _Streamer(self.tokenizer, emit)
        generate: Any = self.model.generate
        with torch.inference_mode():
            generate(**inputs, max_new_tokens=room, streamer=streamer)
        return streamer.text

    def _encode(self, said: Sequence[Message]) -> Any:
        if self.chats:
            return self.tokenizer.apply_chat_template(
                list(said),
                add_generation_prompt=True,
                return_tensors="pt",
                return_dict=True,
            )
        start = {"user": "\n", "assistant": ""}
        text = "".join(start[one["role"]] + one["content"] for one in said)
        return self.tokenizer(text.lstrip("\n"), return_tensors="pt")


class _Streamer(transformers.TextStreamer):
    def __init__(self, tokenizer: Any, emit: Callable[[str], None]) -> None:
        super().__init__(tokenizer, skip_prompt=True, skip_special_tokens=True)
        self._emit, self.text = emit, ""

    def on_finalized_text(self, text: str, stream_end: bool = False) -> None:  # noqa: ARG002, FBT001, FBT002
        """Pass on words that are final; called for each token."""
        check_interrupt()
        self.text += text
        self._emit(text)


# Merges at coefficients; the model of the merge before becomes invalid.
ChatModels: TypeAlias = Callable[[Mapping[str, float]], ChatModel]


@contextmanager
def open_chat(run: Path, options: MergeOptions, **models: Any) -> Iterator[ChatModels]:
    """Open the models of a finished search; MergeError where they have changed."""
    project = finished_project(run, options, **models)
    if project.spec.merge == "memory":
        place = project.spec.task_vectors
        with resident_merge(project.space, project.options, place) as merge:

            def in_memory(coefficients: Mapping[str, float]) -> ChatModel:
                merge.write(coefficients)
                return _chat_model(merge.model, merge.tokenizer)

            yield in_memory
        return

    def on_disk(coefficients: Mapping[str, float]) -> ChatModel:
        with merged_on_disk(project, coefficients) as folder:
            return _chat_model(*load_checkpoint(folder, project.options))

    yield on_disk


def _chat_model(model: transformers.PreTrainedModel, tokenizer: Any) -> ChatModel:
    if tokenizer is None:
        raise EvaluationError(
            "the models of this search are no language models, so there is nothing to "
            "talk with"
        )
    return ChatModel(model, tokenizer)
