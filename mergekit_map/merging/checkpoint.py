"""Checkpoints: stock mergekit writes them, here they appear whole or not at all."""

from __future__ import annotations

import logging
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import transformers
from mergekit.config import MergeConfiguration
from mergekit.io.tasks import LoaderCache
from mergekit.merge import run_merge
from mergekit.options import MergeOptions

from mergekit_map.errors import ArtifactError, MergeError
from mergekit_map.merging.adapters import merge_adapters
from mergekit_map.merging.memory import release_memory

LOG = logging.getLogger(__name__)


def write_checkpoint(
    config: Mapping[str, Any], folder: Path, options: MergeOptions
) -> None:
    """Merge into ``folder`` with mergekit, as ``mergekit-yaml`` does.

    The card is not mergekit's: that one asks the Hub about relative paths.

    Raises:
        MergeError: mergekit refuses the models or the configuration.
    """
    options = options.model_copy(update={"write_model_card": False})
    try:
        merge_adapters(config, options)
        # mergekit's planner changes the configuration it is given.
        run_merge(MergeConfiguration.model_validate(dict(config)), str(folder), options)
    except (RuntimeError, ValueError, KeyError, AssertionError, OSError) as error:
        raise MergeError(
            f"mergekit cannot carry out this merge: {error}; try the same models with "
            "mergekit-yaml"
        ) from error
    finally:
        # mergekit keeps the files of every model open, and would not see new ones.
        LoaderCache().loaders.clear()
        release_memory()  # its tasks refer to one another, and to the last tensors


def refuse_existing(target: Path) -> None:
    """Raise ArtifactError if there is something where output should go."""
    if target.exists():
        raise ArtifactError(
            f"{target} exists already and is left as it is; name another folder, or "
            "remove this one"
        )


@contextmanager
def whole_folder(target: Path) -> Iterator[Path]:
    """Yield a sibling folder that takes the name of ``target`` when all went well.

    Raises:
        ArtifactError: ``target`` exists, or cannot be created.
    """
    refuse_existing(target)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        partial = Path(
            tempfile.mkdtemp(
                prefix=f".{target.name}.", suffix=".partial", dir=target.parent
            )
        )
    except OSError as error:
        raise ArtifactError(
            f"{target} cannot be written: {error}; name a folder you may write to"
        ) from None
    try:
        yield partial
        partial.chmod(0o755)  # mkdtemp makes folders that nobody else can read
        partial.rename(target)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def load_checkpoint(
    folder: Path, options: MergeOptions
) -> tuple[transformers.PreTrainedModel, transformers.PreTrainedTokenizerBase]:
    """Load a merged model and its tokenizer for evaluation, in the saved dtype.

    Raises:
        MergeError: transformers cannot load what was merged.
    """
    try:
        model = transformers.AutoModelForCausalLM.from_pretrained(
            folder, dtype="auto", trust_remote_code=options.trust_remote_code
        )
        tokenizer = transformers.AutoTokenizer.from_pretrained(
            folder, trust_remote_code=options.trust_remote_code
        )
    except (OSError, ValueError, KeyError, RuntimeError) as error:
        raise MergeError(
            f"transformers cannot load the merged model as a causal language model: "
            f"{error}"
        ) from error
    model.to(options.device)
    model.train(mode=False).requires_grad_(requires_grad=False)
    if model.config.tie_word_embeddings and not model.all_tied_weights_keys:
        # The merge gave the tied tensors different values, so transformers keeps them
        # apart; lm-eval would tie them again, and measure another model.
        model.config.tie_word_embeddings = False
    return model, tokenizer
