"""LoRA adapters: where mergekit keeps them merged into their base models."""

from __future__ import annotations

import shutil
from pathlib import Path

from mergekit.common import ModelReference
from mergekit.io.tasks import LoaderCache
from mergekit.options import MergeOptions

from mergekit_map.config.yaml_file import MergeConfig
from mergekit_map.files import cache_home, partial_folder, sha256
from mergekit_map.models.references import models_with_adapter
from mergekit_map.models.sources import fingerprint


def with_adapter_cache(merge: MergeConfig, options: MergeOptions) -> MergeOptions:
    """Name a folder for merged adapters where the user does not and one is needed.

    mergekit knows a merged adapter by its path alone, so the folder carries the content
    of the adapters in its name: training again leads to another folder.
    """
    adapters = sorted(models_with_adapter(merge))
    if not adapters or options.lora_merge_cache:
        return options
    name = sha256("".join(_identity(m, options) for m in adapters))[:16]
    folder = cache_home() / "adapters" / name
    return options.model_copy(update={"lora_merge_cache": str(folder)})


def merge_adapters(merge: MergeConfig, options: MergeOptions) -> None:
    """Merge adapters into mergekit's cache before anything random is drawn.

    Merging one draws random numbers, so that a random method would choose other
    elements on a cold cache than on a warm one. mergekit trusts any folder it finds
    there, so a model gets its name in the cache when it is complete.
    """
    for reference in sorted(models_with_adapter(merge)):
        model = ModelReference.parse(reference)
        if model in LoaderCache().loaders:
            continue  # what is read from there needs no copy
        cache = Path(str(options.lora_merge_cache))
        cache.mkdir(parents=True, exist_ok=True)
        done = cache / f".{sha256(reference)[:16]}.done"
        identity = _identity(reference, options)
        if done.exists() and done.read_text() == identity:
            continue
        with partial_folder(cache / "adapter") as scratch:
            merged = model.merged(
                cache_dir=str(scratch),
                trust_remote_code=options.trust_remote_code,
                lora_merge_dtype=options.lora_merge_dtype,
            )
            made = Path(merged.model.path)
            shutil.rmtree(cache / made.name, ignore_errors=True)
            shutil.move(made, cache / made.name)
        done.write_text(identity)


def _identity(reference: str, options: MergeOptions) -> str:
    return f"{fingerprint(reference)} {options.lora_merge_dtype}\n"
