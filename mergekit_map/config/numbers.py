"""Numbers of the ``map:`` block with rules of their own: bounds and limits."""

from __future__ import annotations

import math
import re
from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from mergekit_map.config.tasks import Float, rising

Bounds = tuple[Float, Float]

_FARTHEST = 1000  # of weights: task vectors are long before noise
_NARROWEST = 1e-6  # of boxes: points nearer to each other are one merge


def searchable(bounds: Bounds) -> None:
    """Refuse bounds without room for a design."""
    rising(bounds)
    if max(map(abs, bounds)) > _FARTHEST:
        raise ValueError(
            f"weights from -{_FARTHEST} to {_FARTHEST} can be searched, beyond them a "
            f"merge is noise; got {list(bounds)}"
        )
    if bounds[1] - bounds[0] < _NARROWEST:
        raise ValueError(
            f"bounds must be {_NARROWEST:.0e} apart at least, or all merges are one; "
            f"give the model this weight instead, got {list(bounds)}"
        )


def share_of(limit: float | str) -> float | None:
    """Return ``95%``, a share of a gain, as 0.95; None for a number."""
    return float(limit.rstrip("%")) / 100 if isinstance(limit, str) else None


def _is_finite(number: float) -> bool:
    try:
        return math.isfinite(number)
    except OverflowError:  # a whole number that no float is near
        return False


_LARGEST_SHARE = 1000.0  # 100000%
_SHARE = r"^\d*[1-9]\d*(\.\d+)?%$|^\d*\.\d*[1-9]\d*%$"  # above 0%


def _number_or_share(limit: Any) -> Any:
    if isinstance(limit, str) and re.fullmatch(_SHARE, limit):
        if (share_of(limit) or 0.0) <= _LARGEST_SHARE:
            return limit
    elif type(limit) in {int, float} and _is_finite(limit):
        return limit
    raise ValueError(
        "a limit is a finite number in the task's own units, or a share above 0% of "
        f"the best single model's gain over the base, such as 95%; got {limit!r:.60}"
    )


Limit = Annotated[
    float | Annotated[str, Field(pattern=_SHARE)], BeforeValidator(_number_or_share)
]
