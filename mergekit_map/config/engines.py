"""Schema of ``engine:``, which generates the answers of tasks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator
from typing_extensions import Self

EngineName = Literal["auto", "hf", "vllm"]
# Names of the engines that can measure a task.
CALLED: Mapping[str, str] = {"hf": "generate of transformers", "vllm": "vLLM"}

# Arguments of vLLM that only this program sets.
_OURS = ("worker_extension_cls", "pretrained", "model", "data_parallel_size")


class EngineSpec(BaseModel):
    """The engine that generates answers, and its arguments."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, use_attribute_docstrings=True
    )

    name: EngineName = "auto"
    """`hf`: `generate` of transformers; `vllm`: vLLM; `auto` chooses one of them and
    reports why."""
    args: dict[Annotated[str, Field(min_length=1)], Any] = Field(default={})
    """Arguments of vLLM, such as `tensor_parallel_size`, `max_model_len`,
    `gpu_memory_utilization` or `quantization`."""

    @model_validator(mode="after")
    def _args_of_vllm(self) -> Self:
        if self.args and self.name != "vllm":
            raise ValueError(
                f"'args' are what vLLM is opened with, not {self.name!r}; write 'name: "
                "vllm', or remove them"
            )
        if own := [key for key in _OURS if key in self.args]:
            raise ValueError(
                f"{own[0]!r} is not for 'args', as each merge is put into one engine; "
                "remove it"
            )
        return self


def _name_alone(engine: Any) -> Any:
    return {"name": engine} if isinstance(engine, str) else engine


Engine = Annotated[
    EngineSpec,
    BeforeValidator(_name_alone, json_schema_input_type=EngineSpec | EngineName),
]
