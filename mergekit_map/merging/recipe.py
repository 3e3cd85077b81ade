"""Recipes: merges as standard mergekit YAML, and the digests that identify them.

The module also describes the difference between two merges in words: their models,
method and settings.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mergekit.options import MergeOptions

from mergekit_map.config.yaml_file import MergeConfig, filled, map_references, yaml_text
from mergekit_map.merging.reference_points import linear_space, soup_weights
from mergekit_map.merging.space import MergeSpace
from mergekit_map.merging.validation import settings_of
from mergekit_map.models.files import fingerprint
from mergekit_map.models.references import models_with_adapter, references_in
from mergekit_map.results.front import Front
from mergekit_map.results.records import Identity
from mergekit_map.results.run_folder import RunFolder, recipe_comments
from mergekit_map.utils.files import digest, write_atomically
from mergekit_map.utils.text import listed

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

    def text(
        self, coefficients: Mapping[str, float], comments: Sequence[str], path: Path
    ) -> str:
        """Return a recipe as text, with the command that merges it from ``path``."""
        command = f"Merge it with: {self.command(path)}"
        return yaml_text(self.space.config(coefficients), [*comments, command])

    def of_point(self, front: Front, index: int, path: Path) -> str:
        """Return the recipe of a point of a front, to be written to ``path``."""
        comments = recipe_comments(front, index)
        return self.text(front.points[index].coefficients, comments, path)

    def texts(self, front: Front, folder: RunFolder) -> dict[int, str]:
        """Return the recipes of the points of a front, as its run folder has them."""
        indices = range(len(front.points))
        return {i: self.of_point(front, i, folder.recipe(i)) for i in indices}

    def write_soup(self, folder: RunFolder) -> None:
        """Write the recipe of the plain average of the parents."""
        recipes = Recipes(linear_space(self.space), self.options)
        comment = "The soup: the plain average of the models, without a search."
        path = folder.soup_recipe
        write_atomically(path, recipes.text(soup_weights(self.space), [comment], path))

    def command(self, recipe: Path) -> str:
        """Return the stock command that merges a recipe into OUT, bit for bit."""
        options, words = self.options, ["mergekit-yaml", str(recipe), "OUT"]
        if draws_random_numbers(self.space):
            words += ["--random-seed", str(options.random_seed)]
        if models_with_adapter(self.space.template):
            words += ["--lora-merge-cache", "CACHE"]
            if options.lora_merge_dtype:
                words += ["--lora-merge-dtype", options.lora_merge_dtype]
        if str(options.device) != "cpu":
            words += ["--device", str(options.device)]
        command = shlex.join([*words, *permissions(options)])
        # Merging an adapter draws random numbers, too.
        twice = {"--random-seed", "--lora-merge-cache"} <= {*words}
        return f"{command}  # twice: the first run fills CACHE" if twice else command


def permissions(options: MergeOptions) -> list[str]:
    """List the options without which mergekit would refuse the models."""
    flags = ("allow_crimes", "trust_remote_code", "unsafe_truncate_embeddings")
    return [f"--{f.replace('_', '-')}" for f in flags if getattr(options, f)]


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
        models={m: fingerprint(m) for m in dict.fromkeys(references_in(template))},
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
    content["configuration"] = _by_content(identity.configuration, models)
    return digest(content)


def recipe_digest(identity: Identity, coefficients: Mapping[str, float]) -> str:
    """Return a digest of what decides one merge: its recipe in a normal form.

    The digest contains the content of models, not their paths. Models of weight 0 are
    left out where the merge is the same, bit for bit, without them.
    """
    places, rest = identity.coefficients, identity.remainder
    config = filled(identity.configuration, places, rest, coefficients)
    if identity.dtype and config.get("base_model") and not config.keys() & _SHARED:
        config = _without_zeros(config, _most_in_order(identity))
    content = identity.content()
    apart = {"models", "coefficients", "remainder"}
    if not models_with_adapter(config):
        apart.add("lora_merge_dtype")
    kept = {key: content[key] for key in content.keys() - apart}
    return digest({**kept, "configuration": _by_content(config, identity.models)})


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
    new = [model for (model, was), found in pairs if was != found]
    if len(before.models) != len(now.models):  # places say nothing
        new = [m for m, f in now.models.items() if f not in before.models.values()]
    names = dict.fromkeys(Path(model).name for model in new)
    one, other = _numbered(before), _numbered(now)
    changed = [f"models ({', '.join(names)})"] if names else []
    changed += [key for key in {**one, **other} if one.get(key) != other.get(key)]
    return "the " + listed(changed or ["configuration"])


def _numbered(identity: Identity) -> dict[str, Any]:
    """Return the settings with models by their number, wherever they lie."""
    numbers = {model: str(index) for index, model in enumerate(identity.models)}
    configuration = _by_content(identity.configuration, numbers)
    settings = {**identity.content(), "configuration": configuration}
    return {key: settings[key] for key in settings if key != "models"}
