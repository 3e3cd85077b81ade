"""What differs between two merges, in words: their models, method, settings."""

from __future__ import annotations

from pathlib import Path

from mergekit_map.models.references import map_references
from mergekit_map.results.identity import Identity


def changes_in_words(before: Identity, now: Identity) -> str:
    """Say what differs between two identities of a merge."""
    changed = _differing(_numbered(before), _numbered(now))
    match before.get("models"), now.get("models"):
        case dict() as former, dict() as present if "models" in changed:
            others = _other_models(former, present)
            names = dict.fromkeys(Path(name).name for name in others)
            changed[changed.index("models")] = f"models ({', '.join(names)})"
    return "the " + ", ".join(changed or ["configuration"])


def _numbered(identity: Identity) -> Identity:
    """Number the models in a configuration, wherever they lie."""
    match identity:
        case {"configuration": dict() as configuration, "models": dict() as models}:
            numbers = {model: str(index) for index, model in enumerate(models)}
            numbered = map_references(configuration, lambda m: numbers.get(m, m))
            return {**identity, "configuration": dict(numbered)}
    return identity


def _other_models(former: Identity, present: Identity) -> list[str]:
    """List the models whose files differ; those alone, if all lie elsewhere."""
    if len(former) == len(present):
        pairs = list(zip(former, present, strict=True))
        changed = [pair for pair in pairs if former[pair[0]] != present[pair[1]]]
        if changed:
            return [name for pair in changed for name in pair]
    return _differing(former, present)


def _differing(before: Identity, now: Identity) -> list[str]:
    return [key for key in {**before, **now} if before.get(key) != now.get(key)]
