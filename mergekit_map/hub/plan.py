"""The plan of an upload: files, card, licence and repository; nothing is sent."""

from __future__ import annotations

import fnmatch
import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from huggingface_hub import HfApi, ModelCard, constants, get_token
from huggingface_hub.errors import HFValidationError
from huggingface_hub.utils import validate_repo_id  # type: ignore[attr-defined]

from mergekit_map.config.yaml_file import read_yaml, yaml_text
from mergekit_map.errors import ArtifactError, ConfigError
from mergekit_map.hub.card import (
    CARD,
    RECIPE_FILE,
    Publication,
    public_recipe,
    published_card,
    read_card,
)
from mergekit_map.hub.metadata import (
    Licence,
    Licences,
    common_licence,
    parent_licences,
    read_licence,
)
from mergekit_map.hub.push import Target, check_card, find_target, hub_licence
from mergekit_map.hub.sanitize import (
    RUN_FOLDER,
    VOCABULARIES,
    Configs,
    PublicFile,
    PublicNames,
    is_local,
    models_of,
    parts_of,
    public_names,
    refuse_leaks,
)
from mergekit_map.results.recipe_rendering import DAMAGES, documents
from mergekit_map.results.run_folder import RunFolder, open_run
from mergekit_map.utils.files import read_whole

_MOST_BYTES = 1 << 20  # of a recipe
# Files that loaders read: left by another checkpoint they would be taken for the new.
_LOADED = (
    "*.safetensors",
    "*.safetensors.index.json",
    "*config.json",
    "*.model",
    "adapter_model.*",
    "added_tokens.json",
    "chat_template.*",
    "merges.txt",
    "pytorch_model*.bin",
    "pytorch_model.bin.index.json",
    "special_tokens_map.json",
    "tokenizer.*",
    "vocab.*",
)
_BESIDE = (CARD, RECIPE_FILE, "LICENSE*", "NOTICE*", "*.gguf", "*.png", "*.py")
_TEMPLATES = "additional_chat_templates"
# Of earlier uploads, and of another merge.
_OUTDATED_FOLDERS = (_TEMPLATES, RUN_FOLDER, ".eval_results")
# Keys of a checkpoint's JSON that say where a model came from, and nothing else.
_ORIGINS = {"_name_or_path", "name_or_path", "base_model_name_or_path"}

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
    card: str
    files: Sequence[PublicFile]
    left_out: Sequence[str]  # of the checkpoint's folder
    removed: Sequence[str]  # of the repository
    licence: Licence | None  # None where nobody was asked
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
    folder: Path,
    run: Path | None,
    options: PushOptions,
    api: HfApi | None,
    ask: AskLicence | None,
) -> Plan:
    """Collect files, card and licence of a checkpoint, and look up the repository.

    The search in ``run`` may be uploaded with it. The Hub is queried, not changed;
    without ``api`` it is not reached. ``ask`` is called for the licence alone, if no
    other source has it.

    Raises:
        ArtifactError: a folder is not what it should be, or a file holds a local path
            or a token.
        ConfigError: the options do not go together with what is there.
        HubError: the Hub cannot be reached or refuses.
    """
    _refuse_bad_names([options.repo, *options.parents.values()])
    configs, card = _documents(folder / RECIPE_FILE), read_card(folder)
    search = None if run is None else open_run(run)
    directory = "/" if search is None else search.read_manifest().directory
    names = public_names(models_of(configs), options.parents, directory)
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    found = {path.relative_to(folder).as_posix(): path for path in paths}
    allowed = {name: path for name, path in found.items() if _is_allowed(name)}
    files = [_public_file(*item, configs, names) for item in allowed.items()]
    if search is not None:
        files += _run_files(search, configs, names)
    token = get_token() if api is None else api.token
    secret = token if isinstance(token, str) else None
    refuse_leaks(files, names, secret)
    if api is None:
        url = f"{constants.ENDPOINT}/{options.repo}"
        target = Target(options.repo, url, None, asked=False)
        licences = parent_licences(configs, names)
    else:
        target = find_target(api, options.repo)
        ours = api  # for the lambda
        licences = parent_licences(configs, names, lambda one: hub_licence(ours, one))
    visibility = _visibility(target, options)
    licence = _licence(options, card, licences)
    if licence is None and ask is not None:
        licence = ask(licences)
    publication = Publication(
        repo=target.repo_id,
        folder=folder.resolve().name,
        licence=licence,
        licences=licences,
        configs=configs,
        names=names,
        renamed=bool(options.parents),
        with_search=run is not None,
    )
    text = published_card(card, publication)
    finished = PublicFile(CARD, text.encode())
    refuse_leaks([finished], names, secret)
    files = [finished, *(file for file in files if file.path != CARD)]
    uploaded = {file.path for file in files}
    return Plan(
        target=target,
        private=visibility,
        card=text,
        files=files,
        left_out=[n for n in found if n not in allowed and "/." not in f"/{n}"],
        removed=sorted(filter(_is_outdated, target.files - uploaded)),
        licence=licence,
        licences=licences,
        unnamed=_unnamed(configs, names),
        warnings=[] if api is None else check_card(api, text),
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
        return documents(read_whole(path, _MOST_BYTES).decode())
    except (OSError, ValueError) as error:
        raise _unreadable(path, error) from None


def _unreadable(path: Path, error: Exception) -> ArtifactError:
    return ArtifactError(f"{path} cannot be read: {error}; merge or search again")


def _is_loaded(path: str) -> bool:
    folder, inside, _ = path.partition("/")
    if inside:
        return folder == _TEMPLATES
    return any(fnmatch.fnmatchcase(path, pattern) for pattern in _LOADED)


def _is_allowed(path: str) -> bool:
    beside = any(fnmatch.fnmatchcase(path, pattern) for pattern in _BESIDE)
    loaded = _is_loaded(path) or (beside and "/" not in path)
    return loaded and path.isprintable() and "/." not in f"/{path}"


def _is_outdated(path: str) -> bool:
    return _is_loaded(path) or path.partition("/")[0] in _OUTDATED_FOLDERS


def _public_file(
    name: str, path: Path, configs: Configs, names: PublicNames
) -> PublicFile:
    """Return a file of a checkpoint, its names of models rewritten and nothing else.

    Any other text, such as a chat template, is part of what was measured.
    """
    if name == RECIPE_FILE:
        return PublicFile(name, public_recipe(configs, names).encode())
    if path.suffix != ".json" or name in VOCABULARIES:
        return PublicFile(name, path)
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise _unreadable(path, error) from None
    public = _with_origins(names, content)
    if public == content:
        return PublicFile(name, path)
    return PublicFile(name, _json(public, indent=2))


def _with_origins(names: PublicNames, part: Any) -> Any:
    if isinstance(part, Mapping):
        return {
            key: names.reference(value)
            if key in _ORIGINS and isinstance(value, str) and is_local(value)
            else _with_origins(names, value)
            for key, value in part.items()
        }
    return [_with_origins(names, v) for v in part] if isinstance(part, list) else part


def _json(content: Any, indent: int | None = None) -> bytes:
    return f"{json.dumps(content, indent=indent, ensure_ascii=False)}\n".encode()


def _run_files(
    run: RunFolder, configs: Configs, names: PublicNames
) -> Iterator[PublicFile]:
    """Write the public files of a search: no samples, which may hold texts of tasks.

    The front is one file, its chosen point the uploaded one.
    """
    front = run.read_front()
    recipes = map(run.recipe, range(len(front.points)))
    merged = [i for i, path in enumerate(recipes) if _is_recipe(path, configs)]
    if not merged:
        raise ArtifactError(
            f"{run.path} has no recipe of this merge, so it is not the folder of its "
            "search (or was searched again since); name another folder, or merge again"
        )
    content = front.model_dump(mode="json")
    if front.selected != merged[0]:
        reason = f"Point {merged[0]} of {len(front.points)} is the uploaded one."
        content |= {"selected": merged[0], "select": {}, "reason": reason}
    for point in content["points"]:
        point.pop("recipe", None)  # its weights are the recipe
    try:
        for path, public in {
            run.config: _public_config(run.config, names),
            run.log: b"".join(_public_lines(run.log, names)),
            run.front: _json(names.content(content)),
        }.items():
            yield PublicFile(f"{RUN_FOLDER}/{path.name}", public)
    except (OSError, *DAMAGES) as error:
        raise _unreadable(run.path, error) from None


def _is_recipe(path: Path, configs: Configs) -> bool:
    return path.exists() and _documents(path) == configs


def _public_lines(path: Path, names: PublicNames) -> Iterator[bytes]:
    with path.open(encoding="utf-8") as lines:
        for line in filter(str.strip, lines):
            yield _json(names.content(json.loads(line)))


def _public_config(path: Path, names: PublicNames) -> bytes:
    """Rewrite a configuration, without its comments; files keep their names alone."""
    public = names.config(read_yaml(path).content)
    for task in (public.get("map") or {}).get("tasks", {}).values():
        text = task.get("perplexity")
        if isinstance(text, dict) and text.get("file"):
            text["file"] = Path(text["file"]).name
        elif isinstance(text, str):
            task["perplexity"] = Path(text).name
        if Path(str(task.get("lm_eval", ""))).suffix in {".yaml", ".yml"}:
            task["lm_eval"] = Path(task["lm_eval"]).name
    return yaml_text([public]).encode()


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
    options: PushOptions, card: ModelCard, licences: Licences
) -> Licence | None:
    if options.licence is not None:
        return Licence(options.licence)
    return read_licence(vars(card.data)) or common_licence(licences)


def _unnamed(configs: Configs, names: PublicNames) -> list[str]:
    """List parents without a Hub id as --parent takes them, by path where it must."""
    local = [p.partition("@")[0] for p in parts_of(configs) if not names.hub_id(p)]
    called = Counter(Path(path).name for path in {*names.folders, *names.hub_ids})
    paths = list(dict.fromkeys(local))
    return [p if called[Path(p).name] > 1 else Path(p).name for p in paths]
