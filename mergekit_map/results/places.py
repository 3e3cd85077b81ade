"""Where the models of a run folder lie now, as a command on this machine was told.

A run folder is data, and no path in it is followed because it stands there. So the file
is sealed with a key that never leaves the user's cache folder: what somebody else wrote
is not read.
"""

from __future__ import annotations

import hmac
import json
from collections.abc import Mapping
from pathlib import Path

from pydantic import Field

from mergekit_map.errors import ArtifactError
from mergekit_map.results.origin import seal
from mergekit_map.results.records import Line, Record, read_record, write_record
from mergekit_map.results.run_folder import RunFolder

_WHAT = "places"  # what is sealed; a configuration is sealed with a folder here


class Places(Record):
    """Where the paths of a configuration lead now."""

    models: dict[Line, Line] = Field(default_factory=dict)
    """Where models lie, by path as it is written."""
    directory: Line | None = None
    """Where relative paths start, if where the search was started is no more."""
    seal: Line | None = None
    """Tells the machine that wrote it that it did."""

    @property
    def there(self) -> dict[str, str]:
        """Leave out models that have moved again."""
        return {
            path: place
            for path, place in self.models.items()
            if Path(place).is_dir() or not Path(place).is_absolute()
        }


def known_places(run: RunFolder) -> Places:
    """Read the places that were found here before; none that another machine wrote."""
    if not run.places.exists():
        return Places()
    try:
        known = read_record(run.places, Places, "list of places of models")
    except ArtifactError:
        return Places()  # the command will ask again
    own = _sealed(known)
    if own is None or not hmac.compare_digest(own, known.seal or ""):
        return Places()
    return known


def keep_places(run: RunFolder, models: Mapping[str, str], directory: Path) -> None:
    """Keep where models lie, and where relative paths start, for the next command."""
    start = run.read_manifest().directory if run.manifest.exists() else str(directory)
    moved = None if Path(start).is_dir() else str(directory)
    places = Places(models=dict(models), directory=moved)
    if models or moved or run.places.exists():
        sealed = places.model_copy(update={"seal": _sealed(places)})
        write_record(run.places, sealed)


def first_folder(*folders: str | None) -> Path | None:
    """Take the first of some folders that is there; None for the working directory."""
    there = (Path(folder) for folder in folders if folder and Path(folder).is_dir())
    return next(there, None)


def _sealed(places: Places) -> str | None:
    content = places.model_dump(exclude={"seal"})
    return seal(json.dumps(content, sort_keys=True), _WHAT)
