"""Under which licences the parents of a merge are, and in which languages they write.

As their cards say.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import yaml
from huggingface_hub import try_to_load_from_cache
from huggingface_hub.repocard import metadata_load

from mergekit_map.publish.public_names import Configs, PublicNames, parts_of


@dataclass(frozen=True)
class Licence:
    """A licence as the metadata of a card names it."""

    id: str  # one of the Hub's identifiers; "other" goes with name and link
    name: str | None = None
    link: str | None = field(default=None, compare=False)

    def metadata(self) -> dict[str, str | None]:
        """Write the licence as the metadata of a card has it."""
        return {
            "license": self.id,
            "license_name": self.name,
            "license_link": self.link,
        }

    def __str__(self) -> str:
        return f"{self.id} ({self.name})" if self.name else self.id


Licences: TypeAlias = Mapping[str, Licence | None]  # by model; None where unknown


def parent_licences(
    configs: Configs, names: PublicNames, lookup: Callable[[str], Licence | None]
) -> dict[str, Licence | None]:
    """Look up licences by public name: in folders, or by ``lookup`` of Hub ids."""
    found = {}
    for part in parts_of(configs):
        folder, hub_id = Path(part.partition("@")[0]), names.hub_id(part)
        own = _read_card(folder / "README.md") if folder.is_absolute() else None
        licence = read_licence(own)
        if licence is None and hub_id is not None:
            licence = lookup(hub_id)
        found[names.reference(part)] = licence
    return found


def common_licence(licences: Licences) -> Licence | None:
    """Give the licence that all parents are known to have; None where there is none."""
    first, *others = list(licences.values()) or [None]
    return first if all(other == first for other in others) else None


def read_licence(metadata: Mapping[str, Any] | None) -> Licence | None:
    """Read the metadata of a card; a list of several licences counts as unknown."""
    found = metadata or {}
    known = found.get("license")
    if isinstance(known, list) and len(known) == 1:
        known = known[0]
    if not isinstance(known, str):
        return None
    name, link = found.get("license_name"), str(found.get("license_link"))
    # A relative link leads to a file that only the parent's repository has.
    return Licence(known, name and str(name), link if "://" in link else None)


def cached_licence(hub_id: str) -> Licence | None:
    """Look into the Hub's cache on this machine; asks no server."""
    return read_licence(_cached(hub_id))


def cached_languages(configs: Configs, names: PublicNames) -> list[str]:
    """List the languages of the parents, as cards on this machine name them."""
    found: dict[str, None] = {}
    for part in parts_of(configs):
        folder, hub_id = Path(part.partition("@")[0]), names.hub_id(part)
        metadata = _read_card(folder / "README.md") if folder.is_absolute() else None
        if metadata is None and hub_id is not None:
            metadata = _cached(hub_id)
        known = (metadata or {}).get("language") or []
        listed = [known] if isinstance(known, str) else known
        found |= dict.fromkeys(word for word in listed if isinstance(word, str))
    return list(found)


def _cached(hub_id: str) -> Mapping[str, Any] | None:
    card = try_to_load_from_cache(hub_id, "README.md")
    return _read_card(Path(card)) if isinstance(card, str) else None


def _read_card(path: Path) -> Mapping[str, Any] | None:
    try:
        return metadata_load(path)
    except (OSError, ValueError, yaml.YAMLError):
        return None  # unknown, as where there is no card
