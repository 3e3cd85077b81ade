"""Merges that two configurations have in common: further models weigh nothing there.

A weight of 0 adds zeros to a sum. Where a method does nothing else with a model, the
merge without that model is the same, bit for bit; what was measured of one was measured
of the other.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from mergekit_map.config.yaml_file import KeyPath, MergeConfig
from mergekit_map.merging.space import put
from mergekit_map.models.references import MODEL_KEYS
from mergekit_map.results.identity import Identity

# Methods that only add up what weights multiply, with signs elected from these sums.
_SUMS = {"task_arithmetic", "ties", "breadcrumbs", "breadcrumbs_ties", "linear"}
# torch adds so few rows one after the other, wherever the zeros among them are.
_IN_ORDER = 4
_APART = {"models", "coefficients", "remainder", "configuration"}
# What may come from any of the models, and not only from the base model.
_SHARED = ("tokenizer", "tokenizer_source", "chat_template")


# What reading a record that somebody has changed may end in.
_DAMAGES = (LookupError, TypeError, ValueError, AttributeError, AssertionError)


class _DiffersError(Exception):
    """The two configurations differ in more than models that may weigh nothing."""


@dataclass(frozen=True)
class _Hole:
    """A place that a coefficient fills; without a name, what they leave of 1."""

    name: str | None


@dataclass(eq=False)
class SameMerges:
    """How the merges of an earlier configuration are merges of the present one."""

    names: Sequence[str]  # of the present coefficients, in order
    before: Sequence[str]  # of the earlier ones
    pairs: list[tuple[str | None, str | None]] = field(default_factory=list)
    added: list[str | None] = field(default_factory=list)  # weighs nothing now
    removed: list[str | None] = field(default_factory=list)  # must have weighed nothing
    dropped: list[KeyPath] = field(default_factory=list)  # entries of what was added

    def translate(self, coefficients: Mapping[str, float]) -> dict[str, float] | None:
        """Give the present coefficients of an earlier merge; None where it has none."""
        values: dict[str | None, float] = dict(coefficients.items())
        values[None] = _rest(coefficients[name] for name in self.before)
        if any(values[name] != 0 for name in self.removed):
            return None
        found: dict[str | None, float] = dict.fromkeys(self.added, 0.0)
        for old, new in self.pairs:
            if found.setdefault(new, values[old]) != values[old]:
                return None
        named = {name: found[name] for name in self.names if name in found}
        if len(named) < len(self.names):
            return None
        if None in found and found[None] != _rest(named.values()):
            return None
        return named

    def translate_slopes(
        self, slopes: Mapping[str, float] | None
    ) -> dict[str, float] | None:
        """Give derivatives by the present coefficients; None if some are not known."""
        if slopes is None or self.added:
            return None
        found = {new: slopes[old] for old, new in self.pairs if old is not None}
        named = {name: found[name] for name in self.names if name in found}
        return named if len(named) == len(self.names) else None

    def without(self, config: MergeConfig) -> MergeConfig:
        """Leave the models out of a present merge that the earlier one did not have."""
        config = copy.deepcopy(dict(config))
        for *place, index in sorted(self.dropped, reverse=True, key=_by_number):
            entries: Any = config
            for part in place:
                entries = entries[part]
            del entries[index]
        return config


def _by_number(place: KeyPath) -> tuple[str, ...]:
    """Sort indices as numbers, beside keys."""
    return tuple(f"{part:08}" if isinstance(part, int) else part for part in place)


def same_merges(before: Identity, now: Identity) -> SameMerges | None:
    """Find the merges that two identities have in common; None where there are none."""
    try:
        return _compared(before, now)
    except (_DiffersError, *_DAMAGES):
        return None


def only_places_differ(before: Identity, now: Identity) -> bool:
    """Tell whether two identities are of one merge, whose models lie elsewhere now."""
    shared = same_merges(before, now)
    return (
        shared is not None
        and before.keys() == now.keys()
        and not (shared.added or shared.removed)
        and shared.before == shared.names
        and all(old == new for old, new in shared.pairs)
    )


def stands_against(shared: SameMerges, now: Identity) -> str:
    """Say why a model of weight 0 may leave traces in a merge; empty if it does not.

    Where models were added this is for mergekit to show, by writing both merges.
    """
    method = str(now["method"])
    if not (shared.added or shared.removed):
        return ""
    if "seed" in now:
        return (
            f"{method} draws at random, and a further model moves what is drawn for "
            "the others"
        )
    if method not in _SUMS:
        return f"{method} does more with a model than to add it up by its weight"
    if shared.removed:
        return _unproven(now, len(shared.before) + 1)
    return ""


def _unproven(now: Identity, n_models: int) -> str:
    """Say why the merge with a model that is gone need not be that without it."""
    configuration = now["configuration"]
    assert isinstance(configuration, dict)
    if n_models > _IN_ORDER:
        return f"sums of more than {_IN_ORDER} models may be added in another order"
    if now["dtype"] is None or configuration.get("base_model") is None:
        return "without dtype and base_model these come from any of the models"
    if given := [key for key in _SHARED if key in configuration]:
        return f"{given[0]} may draw on every model"
    return ""


def _compared(before: Identity, now: Identity) -> SameMerges:
    for key in (before.keys() & now.keys()) - _APART:
        if before[key] != now[key]:
            raise _DiffersError(key)
    names = [_coefficients(identity) for identity in (before, now)]
    shared = SameMerges(names=[*names[1]], before=[*names[0]])
    models: list[Any] = [before["models"], now["models"]]
    _Comparison(shared, *models).compare(_with_holes(before), _with_holes(now), ())
    return shared


@dataclass(frozen=True, eq=False)
class _Comparison:
    """Walks through two configurations at once."""

    shared: SameMerges
    before: Mapping[str, str]  # fingerprints of models
    now: Mapping[str, str]

    def compare(self, old: Any, new: Any, place: KeyPath) -> None:
        """Note what is searched in both, and which models only one of them has."""
        match old, new:
            case _Hole(), _Hole():
                self.shared.pairs.append((old.name, new.name))
            case dict(), dict():
                if old.keys() != new.keys():
                    raise _DiffersError(place)
                for key, value in new.items():
                    if not (key in MODEL_KEYS and self._same_model(old[key], value)):
                        self.compare(old[key], value, (*place, key))
            case list(), list():
                if _are_models(old) and _are_models(new):
                    old, kept = self._aligned(old, new, place)
                else:
                    kept = list(enumerate(new))
                for one, (index, other) in zip(old, kept, strict=True):
                    self.compare(one, other, (*place, index))
            case _:
                if old != new:
                    raise _DiffersError(place)

    def _same_model(self, old: Any, new: Any) -> bool:
        return (
            isinstance(old, str)
            and isinstance(new, str)
            and old in self.before
            and self.before[old] == self.now.get(new)
        )

    def _aligned(
        self, old: list[Any], new: list[Any], place: KeyPath
    ) -> tuple[list[Any], list[tuple[int, Any]]]:
        """Give the entries that both have, and set aside those of one alone."""
        former = {self.before[str(entry["model"])]: entry for entry in old}
        present = {self.now[str(entry["model"])]: entry for entry in new}
        if len(former) < len(old) or len(present) < len(new):
            raise _DiffersError(place)
        for model, entry in former.items():
            if model not in present:
                self.shared.removed += _weight_of(entry)
        kept = []
        for index, (model, entry) in enumerate(present.items()):
            if model in former:
                kept.append((index, entry))
            else:
                self.shared.added += _weight_of(entry)
                self.shared.dropped.append((*place, index))
        both = [model for model in former if model in present]
        if both != [model for model in present if model in former]:
            raise _DiffersError(place)  # sums depend on their order
        return [former[model] for model in both], kept


def _are_models(items: list[Any]) -> bool:
    return all(isinstance(item, dict) and "model" in item for item in items)


def _weight_of(entry: MergeConfig) -> list[str | None]:
    """Name the coefficients that an entry weighs by; all of its weight must be such."""
    weight = (entry.get("parameters") or {}).get("weight")
    leaves = list(_leaves(weight))
    if not leaves or not all(isinstance(leaf, _Hole) for leaf in leaves):
        raise _DiffersError(str(entry["model"]))
    return [leaf.name for leaf in leaves]


def _leaves(weight: Any) -> Iterator[Any]:
    if isinstance(weight, list):
        for item in weight:
            yield from _leaves(item)
    elif isinstance(weight, dict):
        yield from _leaves(weight.get("value"))
    else:
        yield weight


def _with_holes(identity: Identity) -> MergeConfig:
    """Mark the places of what is searched in the configuration of an identity."""
    config = copy.deepcopy(identity["configuration"])
    for name, places in _coefficients(identity).items():
        for place in places:
            put(config, place, _Hole(name))
    remainder: Any = identity["remainder"]
    for place in remainder:
        put(config, place, _Hole(None))
    assert isinstance(config, dict)
    return config


def _coefficients(identity: Identity) -> Mapping[str, Sequence[KeyPath]]:
    found: Any = identity["coefficients"]
    return dict(found)


def _rest(values: Any) -> float:
    """Take values off 1 one after the other, as the merge space does."""
    rest = 1.0
    for value in values:
        rest -= value
    return rest
