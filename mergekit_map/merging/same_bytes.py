"""Whether mergekit writes the same files with models of weight 0 and without them."""

from __future__ import annotations

from mergekit.options import MergeOptions

from mergekit_map.config.yaml_file import MergeConfig
from mergekit_map.files import scratch_folder, sha256_of_file
from mergekit_map.merging.checkpoint import write_checkpoint
from mergekit_map.merging.recipe import stock_config
from mergekit_map.merging.same_merges import SameMerges
from mergekit_map.merging.space import MergeSpace
from mergekit_map.words import listed

# What mergekit writes beside a merge: a card and the configuration itself.
_DESCRIPTIONS = {"README.md", "mergekit_config.yml"}
# Weights without a pattern: were anything added in another order, some bit would show.
_GOLDEN = 0.6180339887498949


def what_differs(shared: SameMerges, space: MergeSpace, options: MergeOptions) -> str:
    """Write a merge with the models that were added, at 0, and without them; compare.

    Returns what is another one, in words, or nothing. Neither merge is kept, and only
    one is on the disk at a time.

    Raises:
        MergeError: mergekit refuses the models or the configuration.
    """
    weights = {
        name: 0.1 + 0.8 * (index * _GOLDEN % 1)
        for index, name in enumerate(shared.before, start=1)
    }
    merge = shared.translate(weights)
    if merge is None:
        return "what is left of 1 is another weight"
    config = stock_config(space, merge)
    one, other = (_written(each, options) for each in (config, shared.without(config)))
    names = sorted(one.keys() | other.keys())
    differing = [name for name in names if one.get(name) != other.get(name)]
    return f"mergekit writes another {listed(differing)}" if differing else ""


def _written(config: MergeConfig, options: MergeOptions) -> dict[str, str]:
    with scratch_folder() as scratch:
        folder = scratch / "model"
        write_checkpoint(config, folder, options)
        return {
            path.name: sha256_of_file(path)
            for path in folder.iterdir()
            if path.is_file() and path.name not in _DESCRIPTIONS
        }
