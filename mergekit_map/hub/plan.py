"""The plan of an upload: files, card, licence and repository; nothing is sent."""

from __future__ import annotations

import fnmatch
import tempfile
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from huggingface_hub import HfApi, ModelCard
from huggingface_hub.constants import HF_HUB_CACHE
from huggingface_hub.errors import HFValidationError
from huggingface_hub.utils import validate_repo_id  # type: ignore[attr-defined]

from mergekit_map.errors import ArtifactError, ConfigError
from mergekit_map.hub.card_text import (
    RECIPE_FILE,
    RUN_FOLDER,
    Publication,
    published_card,
    read_card,
)
from mergekit_map.hub.metadata import FOLDER as RESULTS
from mergekit_map.hub.metadata import (
    Licence,
    Licences,
    common_licence,
    parent_licences,
    read_licence,
)
from mergekit_map.hub.publish_scan import Private, refuse_leaks
from mergekit_map.hub.push import Target, check_card, find_target, hub_file, hub_licence
from mergekit_map.hub.sanitize import (
    Configs,
    PublicNames,
    models_of,
    parts_of,
    public_names,
)
from mergekit_map.hub.upload_files import PublicFile, checkpoint_files, run_files
from mergekit_map.results.recipe_rendering import documents
from mergekit_map.results.run_folder import RunFolder, open_run
from mergekit_map.utils.files import read_whole

_CARD = "README.md"
_MOST_BYTES = 1 << 20  # of a recipe
# Left by another checkpoint these would be loaded with the new one, or in its place.
_OUTDATED = (
    "*.safetensors",
    "*.safetensors.index.json",
    "pytorch_model*.bin",
    "pytorch_model.bin.index.json",
    "adapter_config.json",
    "adapter_model.*",
    "added_tokens.json",
    "chat_template.*",
    "generation_config.json",
    "merges.txt",
    "special_tokens_map.json",
    "tokenizer.*",
    "tokenizer_config.json",
    "vocab.*",
)
_OUTDATED_FOLDERS = ("additional_chat_templates", RESULTS)

# Asks for the licence of a merge whose parents differ.
AskLicence = Callable[[Licences], Licence]


@dataclass(frozen=True)
class PushOptions:
    """The options of a push."""

    repo: str
    private: bool | None = None  # None: unless the repository is there already
    licence: str | None = None
    parents: Mapping[str, str] = field(default_factory=dict)  # folder to Hub id


@dataclass(frozen=True)
class Plan:
    """The files to upload, and the repository."""

    target: Target
    private: bool  # what the repository will be
    files: Sequence[PublicFile]
    removed: Sequence[str]  # of the repository
    licence: Licence
    licences: Licences  # of the parents, by public name
    unnamed: Sequence[str]  # local parents that the card cannot link to
    warnings: Sequence[str]  # of the Hub, on the card

    @property
    def kept(self) -> int:
        """Count the other files of the repository, hidden ones excluded."""
        changed = {file.path for file in self.files} | set(self.removed)
        return len(self.target.files - changed - {".gitattributes"})

    @property
    def size(self) -> int:
        """Return the number of bytes of all files."""
        return sum(file.size for file in self.files)


def plan_push(
    folder: Path, run: Path | None, options: PushOptions, api: HfApi, ask: AskLicence
) -> Plan:
    """Collect files, card and licence of a checkpoint, and look up the repository.

    The folder of the search, ``run``, may be uploaded with it. The Hub is queried, not
    changed. The user is asked for the licence alone, if no other source has it.

    Raises:
        ArtifactError: a folder is not what it should be, or a file holds a local path
            or a token.
        ConfigError: the options do not go together with what is there.
        HubError: the Hub cannot be reached or refuses.
    """
    _refuse_bad_names([options.repo, *options.parents.values()])
    configs, card = _documents(folder / RECIPE_FILE), read_card(folder)
    if run is not None:
        _refuse_another_search(run, configs)
    names, private = _public_and_private(folder, run, configs, options.parents, api)
    files = checkpoint_files(folder, names) + (run_files(run, names) if run else [])
    refuse_leaks(files, private)
    target = find_target(api, options.repo)
    visibility = _visibility(target, options)
    licences = parent_licences(configs, names, lambda hub_id: hub_licence(api, hub_id))
    licence = _licence(options, card, licences, ask)
    paths = {file.path for file in files}
    searched = run is None and _is_same_merge(api, target, files)
    publication = Publication(
        repo=target.repo_id,
        folder=folder.resolve().name,
        licence=licence,
        licences=licences,
        configs=configs,
        names=names,
        renamed=bool(options.parents),
        with_search=run is not None or searched,
    )
    text = published_card(card, publication)
    finished = PublicFile(_CARD, text.encode())
    refuse_leaks([finished], private)
    warnings = check_card(api, text)
    stale = _OUTDATED_FOLDERS if searched else (*_OUTDATED_FOLDERS, RUN_FOLDER)
    return Plan(
        target=target,
        private=visibility,
        files=[finished, *(file for file in files if file.path != _CARD)],
        removed=sorted(f for f in target.files - paths if _is_outdated(f, stale)),
        licence=licence,
        licences=licences,
        unnamed=_unnamed(configs, names),
        warnings=warnings,
    )


def _refuse_bad_names(names: Sequence[str]) -> None:
    for name in names:
        try:
            validate_repo_id(name.partition("@")[0])
        except HFValidationError as error:
            raise ConfigError(
                f"{name!r} cannot be a repository of the Hub: {error}; write it as "
                "owner/name"
            ) from None


def _documents(path: Path) -> list[dict[str, Any]]:
    try:
        configs = documents(read_whole(path, _MOST_BYTES).decode())
    except (OSError, ValueError) as error:
        raise ArtifactError(
            f"{path} cannot be read: {error}; name a folder that mergekit-map wrote"
        ) from None
    return configs


def _refuse_another_search(run: Path, configs: Configs) -> None:
    open_run(run).read_manifest()
    if not any(_documents(path) == configs for path in run.glob("recipes/*.yml")):
        raise ArtifactError(
            f"{run} has no recipe of this merge, so it is not the folder of its search "
            "(or was searched again since); name another folder, or merge again"
        )


def _public_and_private(
    folder: Path,
    run: Path | None,
    configs: Configs,
    parents: Mapping[str, str],
    api: HfApi,
) -> tuple[PublicNames, Private]:
    models, directory = models_of(configs), "/"
    moved: Mapping[str, str] = {}
    if run is not None:
        whole = RunFolder(run)
        folders = [whole, *whole.finished_pairs()]
        found = [folder.read_manifest() for folder in folders]
        moved = _moved(found[0].models, models)
        models += [m for known in found for m in known.models if m not in moved]
        directory = found[0].directory
    own = [str(path.resolve()) for path in (folder, run) if path is not None]
    home = str(Path.home())
    places = [*own, str(Path.cwd()), home, str(Path(HF_HUB_CACHE)), directory]
    # Texts of errors name temporary files.
    others = [*places, tempfile.gettempdir()]
    names = public_names(models, parents, others, directory).with_moved(moved)
    return names, Private(
        token=api.token if isinstance(api.token, str) else None,
        models=[*names.folders, *names.hub_ids, *own],
        places=places,
        home=home,
    )


def _moved(searched: Sequence[str], merged: Sequence[str]) -> dict[str, str]:
    """Map the models of a search to where the merge found them, if elsewhere."""
    if len(searched) != len(merged):
        return {}
    pairs = zip(searched, merged, strict=True)
    return {old: new for old, new in pairs if old not in merged}


def _visibility(target: Target, options: PushOptions) -> bool:
    """Return whether the repository is or becomes private; it is never changed."""
    if target.private is None:
        return options.private is not False
    if options.private in {None, target.private}:
        return target.private
    seen = "only its owners see it" if target.private else "everybody can see it"
    asked = "private" if options.private else "public"
    raise ConfigError(
        f"{target.url} is there already and {seen}, but a {asked} one was asked for; "
        f"make it {asked} in its settings, or name another one"
    )


def _licence(
    options: PushOptions, card: ModelCard, licences: Licences, ask: AskLicence
) -> Licence:
    if options.licence is not None:
        return Licence(options.licence)
    known = read_licence(card.data.__dict__) or common_licence(licences)
    return known or ask(licences)


def _is_same_merge(api: HfApi, target: Target, files: Sequence[PublicFile]) -> bool:
    """Whether a repository has the search for the merge that is pushed."""
    if not any(path.startswith(f"{RUN_FOLDER}/") for path in target.files):
        return False
    (recipe,) = (file.content for file in files if file.path == RECIPE_FILE)
    new = recipe if isinstance(recipe, bytes) else recipe.read_bytes()
    old = hub_file(api, target, RECIPE_FILE)
    try:
        return old is not None and documents(old.decode()) == documents(new.decode())
    except ValueError:
        return False


def _is_outdated(path: str, folders: Sequence[str]) -> bool:
    folder, inside, _ = path.partition("/")
    if inside:
        return folder in folders
    return any(fnmatch.fnmatchcase(path, pattern) for pattern in _OUTDATED)


def _unnamed(configs: Configs, names: PublicNames) -> list[str]:
    """List parents without a Hub id as --parent takes them, by path where it must."""
    local = [p.partition("@")[0] for p in parts_of(configs) if not names.hub_id(p)]
    paths = list(dict.fromkeys(local))
    called = Counter(Path(path).name for path in {*names.folders, *names.hub_ids})
    return [p if called[Path(p).name] > 1 else Path(p).name for p in paths]
