"""Models that must stay as they are while merges of them are made and measured.

Where a file was replaced on the way, what is merged is of other models than those whose
measurements stand beside it, whatever the merge is called.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, TypeAlias

from mergekit_map.errors import MergeError
from mergekit_map.files import written_state
from mergekit_map.merging.space import MergeSpace
from mergekit_map.models.references import Reference, referenced_models
from mergekit_map.models.sources import find_model, fingerprint, fingerprinted
from mergekit_map.results.identity import Identity

_State: TypeAlias = tuple[int, ...]  # of a file, for the file system


class Unchanged:
    """Notices that models are not those of an identity.

    Their content is read once, where it was not read before; then their files are
    looked at, and read again where the file system says that they were written.
    """

    def __init__(self, space: MergeSpace, identity: Identity):
        models = referenced_models(space.template)
        digests: Any = identity["models"]
        self._digests = dict(zip(models, digests.values(), strict=True))
        self._states: dict[str, _State] = {}

    def check(self) -> None:
        """Look at the models.

        Raises:
            MergeError: one of them is another one now.
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
        """Name the files that are not as they were when they were read."""
        paths = [path for path in _places_of(reference) if Path(path).suffix]
        known = [path for path in paths if path in self._states]
        written = [p for p in known if self._states[p] != states.get(p)]
        return [Path(path).name for path in written] or ["other files"]


def _places_of(reference: str) -> Iterator[str]:
    """List what decides the content of a model: folders, files, and what is the newest.

    mergekit looks for the newest revision of a repository each time.
    """
    for part in Reference.parse(reference).parts:
        folder = find_model(str(part)).folder
        yield str(folder)
        yield from map(str, fingerprinted(folder))
        if not part.is_folder:
            yield str(folder.parents[1] / "refs" / (part.revision or "main"))


def _states(places: Iterable[str]) -> dict[str, _State]:
    return {place: written_state(place) for place in places}
