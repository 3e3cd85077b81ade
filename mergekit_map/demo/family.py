"""The demo's family: a base model, and two fine-tunes that pull it apart.

Trained once, from text that comes with Python, and kept in a cache folder.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from pathlib import Path

from safetensors import SafetensorError

from mergekit_map.demo.building import FamilySizes, build_family
from mergekit_map.demo.evaluation import write_choice_task
from mergekit_map.demo.training import Progress
from mergekit_map.errors import ArtifactError
from mergekit_map.files import cache_home, partial_folder

_MODELS = ("base", "code", "math")
_CHOICE_TASKS = ("code_choice", "math_choice")
_FILES = (
    *("code.jsonl", "code_choice.jsonl", "code_choice.yaml"),
    *("math.jsonl", "math_choice.jsonl", "math_choice.yaml"),
    "manifest.json",
)


@dataclass(frozen=True)
class Family:
    """A trained family; its paths are those of a folder with a manifest."""

    folder: Path

    def model(self, name: str) -> Path:
        """Locate the model folder ``base``, ``code`` or ``math``."""
        return self.folder / name

    def text(self, name: str) -> Path:
        """Locate the held-out text ``code`` or ``math``."""
        return self.folder / f"{name}.jsonl"

    def choice_task(self, name: str) -> Path:
        """Locate the lm-eval task ``code_choice`` or ``math_choice``."""
        return self.folder / f"{name}.yaml"


def family_folder(sizes: FamilySizes | None = None) -> Path:
    """Name the folder a family is kept in; another recipe has another folder."""
    recipe = (sizes or FamilySizes()).recipe
    return cache_home() / f"demo-family-{recipe}"


def train_family(
    folder: Path, progress: Progress, sizes: FamilySizes | None = None
) -> Family:
    """Train a family into ``folder``, or use the complete one that is there.

    ``progress`` is called with the name of a stage and the share of it that is done,
    about once a second.

    Raises:
        ArtifactError: ``folder`` holds something that is no family, or cannot be
            written for want of room, or Python came without the source of its library.
    """
    sizes = sizes or FamilySizes()
    folder = folder.expanduser().resolve()
    if not _is_complete(folder, sizes):
        _refuse_foreign(folder)
        try:
            _build_beside(folder, sizes, progress)
        except (OSError, SafetensorError) as error:
            raise ArtifactError(f"{folder} cannot be written: {error}") from None
    family = Family(folder)
    # After the rename, and on every use: the tasks name their data by full path, and
    # a cache may have been moved since.
    for name in _CHOICE_TASKS:
        write_choice_task(family.choice_task(name), folder / f"{name}.jsonl")
    return family


def _build_beside(folder: Path, sizes: FamilySizes, progress: Progress) -> None:
    folder.parent.mkdir(parents=True, exist_ok=True)
    with partial_folder(folder) as beside:
        built = beside / "family"
        built.mkdir()
        build_family(built, sizes, progress)
        # Another process may have finished the same one first, and be using it.
        if not _is_complete(folder, sizes):
            if folder.exists():
                shutil.rmtree(folder)
            built.rename(folder)


def _is_complete(folder: Path, sizes: FamilySizes) -> bool:
    try:
        manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return isinstance(manifest, dict) and manifest.get("recipe") == sizes.recipe


def _refuse_foreign(folder: Path) -> None:
    """Replace only what could be an interrupted or outdated family."""
    if not folder.exists():
        return
    if not folder.is_dir():
        raise ArtifactError(
            f"the demo needs a folder for its models, but {folder} is a file; "
            "name another place"
        )
    foreign = sorted({path.name for path in folder.iterdir()} - {*_MODELS, *_FILES})
    if foreign:
        raise ArtifactError(
            f"the demo would replace {folder} by its models, but the folder holds "
            f"{foreign[0]!r}, which is not the demo's; name a new or empty folder"
        )
