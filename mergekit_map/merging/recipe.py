"""Recipes: merges as standard mergekit YAML, and the digests that identify them.

Merges of merges are recipes, too: some equal one merge, others take several stages. The
module also describes the difference between two merges in words: their models, method
and settings.
"""

from __future__ import annotations

import copy
import math
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mergekit.options import MergeOptions

from mergekit_map.config.problems import Problem
from mergekit_map.config.schema import SearchSpec
from mergekit_map.config.yaml_file import KeyPath, MergeConfig, filled, yaml_text
from mergekit_map.merging.methods import elects_signs
from mergekit_map.merging.space import MergeSpace
from mergekit_map.merging.validation import method_spec, settings_of
from mergekit_map.models.files import fingerprint
from mergekit_map.models.references import (
    map_references,
    models_with_adapter,
    referenced_models,
)
from mergekit_map.results.front import Front
from mergekit_map.results.records import Identity
from mergekit_map.results.run_folder import RunFolder, recipe_comments
from mergekit_map.utils.files import digest
from mergekit_map.utils.text import printable

# Methods that only add up what weights multiply, with signs elected from these sums.
_SUMS = {"task_arithmetic", "ties", "breadcrumbs", "breadcrumbs_ties"}
# Methods that draw no random numbers, so that their merges are the same for every seed.
_DETERMINISTIC = _SUMS | {"linear", "multislerp", "nuslerp"}
# torch adds so few rows one after the other, wherever the zeros among them are.
_IN_ORDER = 4
# What may come from any of the models, and not only from the base model.
_SHARED = {"tokenizer", "tokenizer_source", "chat_template"}


@dataclass(frozen=True, eq=False)
class Recipes:
    """Writes the merges of a front as configurations of mergekit."""

    space: MergeSpace
    options: MergeOptions
    stages: Sequence[MergeConfig] = ()  # what is merged before, each with a name
    folder: Path | None = None  # where that lies, if there are stages

    def text(
        self,
        coefficients: Mapping[str, float],
        comments: Sequence[str] = (),
        path: Path | None = None,
    ) -> str:
        """Return a recipe as text, for ``mergekit-multi`` where there are stages.

        The last comment is the command that merges it from ``path``.
        """
        config = self.space.config(coefficients)
        if self.folder is not None:
            config = by_stage_name(config, self.folder)
        if path is not None:
            command = printable(self.command(path, "OUT"))
            comments = [*comments, f"Merge it with: {command}"]
        return yaml_text([*self.stages, config], comments)

    def of_point(self, front: Front, index: int, path: Path) -> str:
        """Return the recipe of a point of a front, to be written to ``path``."""
        comments = recipe_comments(front, index)
        return self.text(front.points[index].coefficients, comments, path)

    def texts(self, front: Front, folder: RunFolder) -> dict[int, str]:
        """Return the recipes of the points of a front, as its run folder has them."""
        indices = range(len(front.points))
        return {i: self.of_point(front, i, folder.recipe(i)) for i in indices}

    def command(self, recipe: Path, out: str) -> str:
        """Return the stock command that writes a recipe's checkpoint, bit for bit.

        For a random method with adapters this holds from its second run with the same
        ``--lora-merge-cache``: merging an adapter draws random numbers, too. mergekit
        uses the checkpoints of stages that are there already.
        """
        words = ["mergekit-yaml", str(recipe), out]
        if self.folder is not None:
            stages = ["--intermediate-dir", str(self.folder), "--out-path", out]
            words = ["mergekit-multi", str(recipe), *stages]
        return shlex.join([*words, *_merge_options(self.space, self.options)])


def _merge_options(space: MergeSpace, options: MergeOptions) -> list[str]:
    words = []
    if draws_random_numbers(space):
        words += ["--random-seed", str(options.random_seed)]
    if models_with_adapter(space.template):
        words += ["--lora-merge-cache", "CACHE"]  # filled, if the method is random
        if options.lora_merge_dtype:
            words += ["--lora-merge-dtype", options.lora_merge_dtype]
    if str(options.device) != "cpu":
        words += ["--device", str(options.device)]
    flags = {
        "--allow-crimes": options.allow_crimes,
        "--trust-remote-code": options.trust_remote_code,
    }
    return [*words, *(flag for flag, given in flags.items() if given)]


def draws_random_numbers(space: MergeSpace) -> bool:
    """Whether the merge depends on mergekit's ``--random-seed``."""
    return space.template["merge_method"] not in _DETERMINISTIC


def merge_identity(space: MergeSpace, options: MergeOptions) -> Identity:
    """Return all settings that decide the result of a merge with coefficients.

    Two runs may share measurements only if these are equal, wherever the models lie.
    """
    template = dict(space.template)
    given: dict[str, Any] = {"method": template.pop("merge_method")}
    given |= {key: template.pop(key, None) for key in ("dtype", "out_dtype")}
    if draws_random_numbers(space):
        given["seed"] = options.random_seed
    if models_with_adapter(template):
        given["lora_merge_dtype"] = options.lora_merge_dtype
    return Identity(
        models={m: fingerprint(m) for m in referenced_models(template)},
        coefficients={c.name: [list(p) for p in c.places] for c in space.coefficients},
        remainder=[list(place) for place in space.remainder],
        configuration=template,
        device=str(options.device),
        **given,
    )


def space_digest(identity: Identity) -> str:
    """Return a digest of what decides a search's merges, wherever its models lie."""
    content = identity.content()
    models = content.pop("models", {})
    return digest(
        content | {"configuration": _by_content(identity.configuration, models)}
    )


def recipe_digest(identity: Identity, coefficients: Mapping[str, float]) -> str:
    """Return a digest of what decides one merge: its recipe in a normal form.

    The digest contains the content of models, not their paths. Models of weight 0 are
    left out where the merge is the same, bit for bit, without them.
    """
    places, rest = identity.coefficients, identity.remainder
    config = filled(identity.configuration, places, rest, coefficients)
    recipe = _by_content(config, identity.models)
    if identity.dtype and recipe.get("base_model") and not recipe.keys() & _SHARED:
        recipe = _without_zeros(recipe, _most_in_order(identity))
    content = identity.content()
    apart = {"models", "coefficients", "remainder"}
    kept = {key: content[key] for key in content.keys() - apart}
    return digest({**kept, "configuration": recipe})


def _by_content(config: MergeConfig, models: Mapping[str, str]) -> dict[str, Any]:
    """Return a configuration with the digests of models in place of their paths."""
    return dict(map_references(config, lambda m: models.get(m, m)))


def _most_in_order(identity: Identity) -> float:
    """Return how many models a method adds up such that one of weight 0 is as none."""
    parameters = identity.configuration.get("parameters")
    if identity.method == "linear" and parameters == {"normalize": False}:
        return math.inf  # one after the other, however many
    return _IN_ORDER if identity.method in _SUMS else 0


def _without_zeros(content: Any, most: float) -> Any:
    """Remove the models of weight 0 from lists of at most so many models."""
    if isinstance(content, dict):
        return {key: _without_zeros(value, most) for key, value in content.items()}
    if not isinstance(content, list):
        return content
    entries = [_without_zeros(item, most) for item in content]
    models = [isinstance(e, dict) and "model" in e for e in entries]
    if not all(models) or len(entries) > most:
        return entries
    return [e for e in entries if {*settings_of(e, "weight")} != {0}]


def changes_in_words(before: Identity, now: Identity) -> str:
    """Describe the differences between two identities of a merge."""
    pairs = zip(before.models.items(), now.models.values(), strict=False)
    names = dict.fromkeys(Path(m).name for (m, was), found in pairs if was != found)
    one, other = _numbered(before), _numbered(now)
    changed = [f"models ({', '.join(names)})"] if names else []
    changed += [key for key in {**one, **other} if one.get(key) != other.get(key)]
    return "the " + ", ".join(changed or ["configuration"])


def _numbered(identity: Identity) -> dict[str, Any]:
    """Return the settings with models by their number, wherever they lie."""
    numbers = {model: str(index) for index, model in enumerate(identity.models)}
    configuration = _by_content(identity.configuration, numbers)
    settings = {**identity.content(), "configuration": configuration}
    return {key: settings[key] for key in settings if key != "models"}


def nests_checkpoints(space: MergeSpace, search: SearchSpec) -> bool:
    """Whether a search merges checkpoints pair by pair."""
    return search.strategy == "nested" and not is_linear(space)


def is_linear(space: MergeSpace) -> bool:
    """Whether merges are sums of the models, each times its weight.

    A merge of merges then equals one merge, with products of weights.
    """
    name = space.template["merge_method"]
    sums = elects_signs(name) is False or name == "linear"
    # Weights that sum to 1 are their own normalisation.
    return sums and (bool(space.remainder) or not _normalizes(space.template))


def _normalizes(template: MergeConfig) -> bool:
    found = [*settings_of(template, "normalize")]
    if "normalize" not in (template.get("parameters") or {}):
        shared = method_spec(template).shared_parameters
        found += [p.default for p in shared if p.name == "normalize"]
    return any(value is not False for value in found)


def staging_problems(space: MergeSpace) -> list[Problem]:
    """List the reasons why a merge cannot be made two checkpoints at a time."""
    template = space.template
    text = (
        f"with {template['merge_method']!r} a merge of merges is no merge of the "
        "models, so nested merges two checkpoints at a time, which takes a plain list "
        "of 'models:' with one searched weight for each, no shares of a whole, and the "
        "tokenizer of the base model or the union; or use strategy map, or a method "
        "that elects no signs, such as dare_linear"
    )
    return [Problem(key, text) for key in _in_the_way(space)][:1]


def _in_the_way(space: MergeSpace) -> Iterator[KeyPath]:
    """Yield the places that keep checkpoints from being merged in pairs."""
    template = space.template
    yield from ((key,) for key in ("slices", "modules") if key in template)
    if space.remainder:
        yield ("merge_method",)
    places = {place: c for c in space.coefficients for place in c.places}
    for index, entry in enumerate(template.get("models") or ()):
        coefficient = places.get(("models", index, "parameters", "weight"))
        base = str(entry["model"]) == str(template.get("base_model"))
        if not base and (coefficient is None or len(coefficient.places) > 1):
            yield ("models", index)
    shared = (None, "base", "union", {"source": "base"}, {"source": "union"})
    for key in ("tokenizer", "tokenizer_source"):
        if template.get(key) not in shared:
            yield (key,)


def pair_merge(space: MergeSpace, labels: Sequence[str], merged: Path) -> MergeConfig:
    """Return the configuration of a merge of two groups, without their weights.

    Args:
        space: The merge of all models, without ``staging_problems``.
        labels: Of the two: a coefficient of the space, or the name of a stage.
        merged: The folder that holds the checkpoints of stages.
    """
    template = copy.deepcopy(dict(space.template))
    places = {c.name: c.places[0][1] for c in space.coefficients}
    entries = template["models"]
    models = [e for i, e in enumerate(entries) if i not in places.values()]
    for label in labels:
        if label in places:
            models.append(entries[places[label]])
            continue
        models.append({"model": str(merged / label)})
        # Its task vectors have been sparsified before they were merged.
        if "density" in {p.name for p in method_spec(template).input_parameters}:
            models[-1]["parameters"] = {"density": 1.0}
    return {**template, "models": models}


def by_stage_name(config: MergeConfig, merged: Path) -> MergeConfig:
    """Replace paths in a folder by the names of stages, as ``mergekit-multi`` does."""
    named = copy.deepcopy(dict(config))
    for entry in named["models"]:
        if Path(str(entry["model"])).parent == merged:
            entry["model"] = Path(str(entry["model"])).name
    return named
