"""Checkpoints written by stock mergekit and loaded by transformers.

This includes mergekit's cache of LoRA adapters that are merged into their base models.
"""

from __future__ import annotations

import ctypes
import errno
import gc
import itertools
import logging
import re
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from unittest.mock import patch  # raises AttributeError where a part is no more

import torch
import transformers
from filelock import FileLock
from mergekit.architecture import ModelArchitecture, get_architecture_info
from mergekit.architecture.auto import infer_architecture_info
from mergekit.common import ModelReference
from mergekit.config import MergeConfiguration
from mergekit.io.tasks import LoaderCache
from mergekit.merge import run_merge
from mergekit.options import MergeOptions

from mergekit_map.config.yaml_file import MergeConfig
from mergekit_map.errors import MapError, MergeError, in_words
from mergekit_map.merging.devices import needs_all_gpus
from mergekit_map.models.facts import has_tokenizer, no_tekken
from mergekit_map.models.files import find_model, fingerprint, read_headers, read_json
from mergekit_map.models.references import models_with_adapter, referenced_models
from mergekit_map.utils.files import cache_home, partial_path, sha256, write_json


def with_adapter_cache(merge: MergeConfig, options: MergeOptions) -> MergeOptions:
    """Return options with a folder for merged adapters, where one is needed.

    mergekit identifies a merged adapter by its path alone. So the folder's name
    contains a digest of the adapters: training again leads to another folder.
    """
    adapters = sorted(models_with_adapter(merge))
    if not adapters or options.lora_merge_cache:
        return options
    name = sha256("".join(_identity(m, options) for m in adapters))[:16]
    folder = cache_home() / "adapters" / name
    return options.model_copy(update={"lora_merge_cache": str(folder)})


def merge_adapters(merge: MergeConfig, options: MergeOptions) -> None:
    """Merge adapters into mergekit's cache before anything random is drawn.

    Merging an adapter draws random numbers: without this, a random method would choose
    other elements with an empty cache than with a full one. mergekit trusts every
    folder that it finds there, so a model gets its final name only when it is complete.
    """
    for reference in sorted(models_with_adapter(merge)):
        cache = Path(str(options.lora_merge_cache))
        cache.mkdir(parents=True, exist_ok=True)
        done = cache / f".{sha256(reference)[:16]}.done"
        identity = _identity(reference, options)
        with FileLock(done.with_suffix(".lock")):  # workers begin at once
            if done.exists() and done.read_text() == identity:
                continue
            with partial_path(cache / "adapter") as scratch:
                scratch.mkdir()
                merged = ModelReference.parse(reference).merged(
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


_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
# mergekit leaves out, without a word, what a checkpoint calls otherwise.
_OTHER_NAMES = (
    "mergekit and transformers name the tensors of these models differently; load each "
    "model with transformers, save it with save_pretrained(FOLDER, "
    "save_original_format=False), and merge the folders; if their names are alike, "
    "mergekit cannot merge all tensors of this architecture"
)


# The vocabularies of two processes are ordered otherwise; a union takes their order.
_GET_VOCAB = transformers.TokenizersBackend.get_vocab
_VOCABULARY_BY_ID = patch(
    "transformers.TokenizersBackend.get_vocab",
    lambda self: dict(sorted(_GET_VOCAB(self).items(), key=lambda item: item[1])),
)


def write_checkpoint(config: MergeConfig, folder: Path, options: MergeOptions) -> None:
    """Merge into ``folder`` with mergekit, as ``mergekit-yaml`` does.

    The model card is our own: mergekit's looks relative paths up on the Hub. One device
    merges: several draw other random numbers. Without a base the first model gives the
    configuration and the tokenizer: mergekit lists models in the order of a set, which
    differs between processes. Errors of mergekit and of the disk become a MergeError.
    """
    models = [*map(ModelReference.parse, referenced_models(config))]
    ordered = patch.object(MergeConfiguration, "referenced_models", lambda _: models)
    with _translate_errors(folder), ordered, _VOCABULARY_BY_ID, no_tekken():
        merge_adapters(config, options)
        # mergekit's planner changes the configuration it is given.
        merge = MergeConfiguration.model_validate(dict(config))
        donor = find_model(str((merge.base_model or models[0]).model), here=True).folder
        # A tokenizer was measured with, if there is one.
        copied = options.copy_tokenizer or has_tokenizer(donor)
        needed = {"write_model_card": False, "multi_gpu": False}
        options = options.model_copy(update={**needed, "copy_tokenizer": copied})
        _sort_tensors(get_architecture_info(merge, options))
        run_merge(merge, str(folder), options)
    resized = bool(config.get("tokenizer") or config.get("tokenizer_source"))
    _correct_config(folder, options, resized=resized)
    # mergekit leaves out how text is generated, beside a tokenizer of its own, how
    # images are read, and the code that a configuration names.
    code = donor.glob("*.py") if options.trust_remote_code else ()
    images = donor.glob("*processor_config.json")
    for file in (*donor.glob("generation_config.json"), *images, *code):
        if not (folder / file.name).exists():
            shutil.copy(file, folder)


def _correct_config(folder: Path, options: MergeOptions, *, resized: bool) -> None:
    """Take code that was not measured out of ``config.json``, and name an own head.

    Of a ``resized`` vocabulary, mergekit writes the size beside the nested settings.
    mergekit copies the configuration of the base. Where that ties head and embeddings,
    some libraries would take the head of the merge, and others its embeddings.
    """
    path, trust = folder / "config.json", options.trust_remote_code
    copied = read_json(path)
    config = {k: copied[k] for k in copied if trust or k != "auto_map"}
    tensors = itertools.chain(*map(read_headers, folder.glob("*.safetensors")))
    if "lm_head.weight" in tensors:
        full = transformers.AutoConfig.from_pretrained(folder, trust_remote_code=trust)
        if getattr(full, "tie_word_embeddings", False):
            config["tie_word_embeddings"] = False
    if resized and config.get("text_config") and "vocab_size" in config:
        text = {**config["text_config"], "vocab_size": config["vocab_size"]}
        config["text_config"] = text
    if config != copied:
        write_json(path, config)


def _sort_tensors(architecture: ModelArchitecture) -> None:
    """Sort the tensors of an architecture that mergekit found out, in its cache.

    They come from sets: each process would draw random numbers in another order.
    """
    found = architecture.modules.values() if not architecture.architectures else ()
    for module in found:
        known: Any = module.architecture  # as ``infer_architecture_info`` makes it
        templates = known.definition.layer_templates.weights
        for weights in (known.definition.pre_weights, templates):
            weights.sort(key=lambda weight: weight.name)


@contextmanager
def _translate_errors(folder: Path) -> Iterator[None]:
    """Turn mergekit's errors into ours, and free what mergekit keeps."""
    logged: list[BaseException] = []  # of the system, which mergekit does not raise

    def keep(record: logging.LogRecord) -> bool:
        error = record.exc_info[1] if record.exc_info else None
        if error is None or _system_error(error) is None:
            return True
        logged.append(error)
        return False

    logger = logging.getLogger(run_merge.__module__)
    logger.addFilter(keep)
    try:
        yield
        if logged:
            raise logged[0]
    except MapError:
        raise
    except Exception as error:  # mergekit's, or of a library that it uses
        advice = "try the same models with mergekit-yaml"
        if _system_error(error) in _FULL:
            advice = "free some space there"
        raise MergeError(
            f"mergekit cannot write this merge to {folder}: {in_words(error)}; {advice}"
        ) from error
    finally:
        logger.removeFilter(keep)
        # mergekit keeps the files of every model open, and would not see new ones.
        LoaderCache().loaders.clear()
        infer_architecture_info.cache_clear()
        release_memory()  # its tasks refer to one another, and to the last tensors


def _system_error(error: BaseException) -> int | None:
    """Return a system error's number, from the text of safetensors' errors, or None."""
    number = re.search(r"\(os error (\d+)\)", str(error))
    return int(number[1]) if number else getattr(error, "errno", None)


def load_checkpoint(
    folder: Path, options: MergeOptions
) -> tuple[transformers.PreTrainedModel, transformers.PreTrainedTokenizerBase | None]:
    """Load a merged model for evaluation, and the tokenizer of a language model."""
    trust: dict[str, Any] = {"trust_remote_code": options.trust_remote_code}
    if not (files := [*folder.glob("*.safetensors"), *folder.glob("*.bin")]):
        raise MergeError(f"mergekit merged none of the tensors: {_OTHER_NAMES}")
    size = sum(file.stat().st_size for file in files)
    is_split = needs_all_gpus(size, str(options.device))
    try:
        loader = _loader(transformers.AutoConfig.from_pretrained(folder, **trust))
        model, report = loader.from_pretrained(
            folder,
            dtype="auto",
            output_loading_info=True,
            device_map="auto" if is_split else None,
            **trust,
        )
        tokenizer = None
        if loader is transformers.AutoModelForCausalLM:
            tokenizer = transformers.AutoTokenizer.from_pretrained(folder, **trust)
    except Exception as error:  # tokenizers raise no kind of their own
        text = f"transformers cannot load the merged model: {error}"
        raise MergeError(text) from error
    # Transformers would fill what is missing at random.
    if strange := sorted({*report["missing_keys"], *report["unexpected_keys"]}):
        raise MergeError(
            f"{len(strange)} tensors, {strange[0]} among them, are in the merged "
            "checkpoint only or in the loaded model only, so what is measured would "
            f"not be what is shipped: {_OTHER_NAMES}"
        )
    if not is_split:
        model.to(options.device)
    model.train(mode=False).requires_grad_(requires_grad=False)
    return model, tokenizer


def _loader(config: transformers.PretrainedConfig) -> Any:
    kind, names = type(config), config.architectures or []
    is_known = kind in transformers.MODEL_MAPPING
    if kind in transformers.MODEL_FOR_CAUSAL_LM_MAPPING or not is_known:
        return transformers.AutoModelForCausalLM
    if any(name.endswith("ForImageClassification") for name in names):
        return transformers.AutoModelForImageClassification
    return transformers.AutoModel


def release_memory() -> None:
    """Collect cycles and return the allocator's free memory to the system.

    glibc keeps freed blocks of up to 32 MB in its heap. After a merge these add up to a
    good part of the model, scattered between the tensors that stay.
    """
    gc.collect()
    torch.cuda.empty_cache()
    if sys.platform.startswith("linux"):
        with suppress(AttributeError):  # another C library, which has no such call
            ctypes.CDLL(None).malloc_trim(0)
