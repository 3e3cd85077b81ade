"""The key of a recorded merge, and a check that models stay unchanged.

The key digests all that decides the tensors. The check runs while merges are made and
measured: where a file of a model is replaced during a search, its merges no longer
belong to the measurements before.
"""

from __future__ import annotations

import functools
import importlib.metadata
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, TypeAlias

import torch
from mergekit.options import MergeOptions

from mergekit_map.errors import MergeError
from mergekit_map.merging.methods import builtin_method
from mergekit_map.merging.recipe import draws_random_numbers
from mergekit_map.merging.space import MergeSpace
from mergekit_map.merging.tensor_files import layout
from mergekit_map.merging.validation import method_spec
from mergekit_map.models.files import find_model, fingerprint, fingerprinted
from mergekit_map.models.references import (
    NO_MODELS,
    Reference,
    map_references,
    models_with_adapter,
    referenced_models,
)
from mergekit_map.results.records import Identity
from mergekit_map.utils.files import digest, sha256_of_file, written_state

_FORMAT = 1  # of the folder
_PACKAGES = ("mergekit", "torch", "transformers", "safetensors", "peft")


def recording_key(space: MergeSpace, options: MergeOptions) -> str:
    """Return a digest of the content of a merge and of the code that makes it."""
    models: dict[str, int] = {}
    template = dict(
        map_references(
            space.template,
            lambda m: m if m in NO_MODELS else str(models.setdefault(m, len(models))),
        )
    )
    method = builtin_method(template.pop("merge_method"))
    return digest(
        {
            "format": [_FORMAT, _own_code(), layout()],
            "versions": {name: importlib.metadata.version(name) for name in _PACKAGES},
            "method": method,
            "configuration": template,
            "models": [fingerprint(model) for model in models],
            # Terms are added in this order.
            "coefficients": [[c.name, c.places] for c in space.coefficients],
            "remainder": space.remainder,
            "machine": _machine(space, options),
            "options": _options(space, options),
        }
    )


@functools.cache
def _own_code() -> str:
    """Return a digest of the code that prepares tensors, which releases may change."""
    files = sorted(Path(__file__).parent.glob("*.py"))
    return digest([[path.name, sha256_of_file(path)] for path in files])


def _machine(space: MergeSpace, options: MergeOptions) -> list[Any]:
    device = torch.device(str(options.device))
    machine: list[Any] = [str(device), torch.backends.cpu.get_cpu_capability()]
    if device.type == "cuda":
        machine.append(torch.cuda.get_device_name(device))
    # Threads add up in another order, where a norm is kept.
    if "rescale" in {p.name for p in method_spec(space.template).shared_parameters}:
        machine.append(torch.get_num_threads())
    return machine


def _options(space: MergeSpace, options: MergeOptions) -> dict[str, Any]:
    names = [
        "allow_crimes",
        "copy_tokenizer",
        "low_cpu_memory",
        "read_to_gpu",
        "trust_remote_code",
        "unsafe_truncate_embeddings",
    ]
    if draws_random_numbers(space):
        names.append("random_seed")
    if models_with_adapter(space.template):
        names.append("lora_merge_dtype")
    given = options.model_dump(mode="json")
    return {name: given[name] for name in names}


_State: TypeAlias = tuple[int, ...]  # of a file, for the file system


class Unchanged:
    """Checks that the models are still those of an identity.

    Their content is read once, if it was not read before. Later checks look at the
    state of their files, and read again only those that the file system reports as
    written.
    """

    def __init__(self, space: MergeSpace, identity: Identity):
        models = referenced_models(space.template)
        digests: Any = identity["models"]
        self._digests = dict(zip(models, digests.values(), strict=True))
        self._states: dict[str, _State] = {}

    def check(self) -> None:
        """Check the models.

        Raises:
            MergeError: one of them has changed.
        """
        if self._states and _states(self._states) == self._states:
            return
        states = _states(self._places())
        changed = [
            f"{reference} ({', '.join(self._written_in(reference, states))})"
            for reference, digest in self._digests.items()
            if fingerprint(reference) != digest
        ]
        if changed:
            raise MergeError(
                f"{' and '.join(changed)} changed while merges of it were measured, so "
                "that others would stand beside them under the same name; put back "
                "what changed, or search again, which measures the new model apart"
            )
        self._states = states

    def _places(self) -> Iterator[str]:
        for reference in self._digests:
            yield from _places_of(reference)

    def _written_in(self, reference: str, states: dict[str, _State]) -> list[str]:
        """Return the names of files that changed since they were read."""
        paths = [path for path in _places_of(reference) if Path(path).suffix]
        known = [path for path in paths if path in self._states]
        written = [p for p in known if self._states[p] != states.get(p)]
        return [Path(path).name for path in written] or ["other files"]


def _places_of(reference: str) -> Iterator[str]:
    """List what decides the content of a model: folders, files, latest revisions.

    mergekit looks up the latest revision of a repository each time.
    """
    for part in Reference.parse(reference).parts:
        folder = find_model(str(part)).folder
        yield str(folder)
        yield from map(str, fingerprinted(folder))
        if not part.is_folder:
            yield str(folder.parents[1] / "refs" / (part.revision or "main"))


def _states(places: Iterable[str]) -> dict[str, _State]:
    return {place: written_state(place) for place in places}
