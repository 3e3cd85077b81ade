"""Upper limits of numbers in the configuration, each with its reason."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, core_schema


@dataclass(frozen=True)
class AtMost:
    """An upper limit with its reason, which the error message states."""

    most: int
    why: str

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        return core_schema.no_info_after_validator_function(
            self._checked, handler(source)
        )

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        return {**handler(schema), "maximum": self.most}

    def _checked(self, number: float) -> float:
        if not number <= self.most:  # nor NaN
            raise ValueError(f"at most {self.most} is possible: {self.why}")
        return number


MERGES = AtMost(100_000, "at a merge a minute those are ten weeks already")
DOCUMENTS = AtMost(10**12, "no data set has as many")
A_LIFETIME = AtMost(10**6, "those are more than a hundred years")
TOKENS = AtMost(10**9, "more than any text that is read whole has")
ROW = AtMost(10**8, "no model reads as many tokens at once")
ROWS = AtMost(10**6, "no memory holds more rows than that")
EXAMPLES = AtMost(1000, "no prompt holds as many")
LAYERS = AtMost(10_000, "no model has as many")
POINTS = AtMost(10_000, "a front has some hundred points")
SEEDS = AtMost(2**32 - 1, "seeds of NumPy, which all libraries share, end there")
