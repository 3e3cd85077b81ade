"""The plan of an upload, and the upload with the login of huggingface_hub.

A plan has the files, the card, the licence and the repository; nothing is sent before
``upload``. No token is shown.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from typing import Any

from huggingface_hub import (
    CommitOperationAdd,
    CommitOperationDelete,
    HfApi,
    constants,
    errors,
    get_token,
    utils,
)

from mergekit_map.config.yaml_file import (
    DAMAGES,
    MergeConfig,
    parse_recipe,
    read_yaml,
    yaml_text,
)
from mergekit_map.errors import ArtifactError, ConfigError, HubError
from mergekit_map.hub import card as cards
from mergekit_map.hub.sanitize import (
    RUN_FOLDER,
    VOCABULARIES,
    PublicFile,
    PublicNames,
    is_local,
    map_texts,
    public_names,
    refuse_leaks,
)
from mergekit_map.models.references import referenced_models
from mergekit_map.results.log import whole_lines
from mergekit_map.results.run_folder import RunFolder, open_run
from mergekit_map.utils.files import LARGEST_JSON, StrPath, read_whole

# Files that loaders read: left by another checkpoint they would be taken for the new.
_LOADED_FILES = (
    *("*.safetensors", "*.safetensors.index.json", "*config.json", "*.model"),
    *("adapter_model.*", "added_tokens.json", "chat_template.*", "merges.txt"),
    *("pytorch_model*", "special_tokens_map.json", "tokenizer.*", "vocab.*"),
    *("emoji.json", "*.tiktoken"),
)
_OTHER_FILES = (
    *("README.md", "mergekit_config.yml", "LICENSE*", "NOTICE*"),
    *("*.gguf", "*.png", "*.py"),
)
_TEMPLATES = "additional_chat_templates/"
_REPLACED_FOLDERS = (f"{RUN_FOLDER}/", ".eval_results/")  # of an earlier upload
# Keys of a checkpoint's JSON that say where a model came from, and nothing else.
_ORIGIN_KEYS = {
    *("_name_or_path", "name_or_path", "base_model_name_or_path"),
    *("special_tokens_map_file", "tokenizer_file", "vocab_file"),
}
_MAX_MESSAGE = 500  # characters of the Hub's
_MAX_RECIPE_BYTES = 1 << 24  # of hundreds of models it has some thousand


@dataclass(frozen=True)
class PushOptions:
    """The options of a push."""

    repo: str
    private: bool | None = None  # None: unless the repository is there already
    licence: str | None = None
    parents: Mapping[str, str] = field(default_factory=dict)  # folder to Hub id


@dataclass(frozen=True)
class Target:
    """A repository as it is before anything is uploaded."""

    repo_id: str  # with its owner
    url: str
    private: bool | None  # None where there is no such repository yet
    files: frozenset[str] = frozenset()
    commit: str | None = None  # the last one
    looked_up: bool = True  # whether the Hub was reached

    @property
    def state(self) -> str:
        """Return the start of a sentence, before ``private`` or ``public``."""
        if not self.looked_up:
            return "If the repository is new, it will be"
        if self.private is None:
            return "The repository is new and will be"
        return "The repository is there already and stays"


@dataclass(frozen=True)
class Plan:
    """The files to upload, and the repository."""

    target: Target
    private: bool  # what the repository will be
    card: str
    files: Sequence[PublicFile]
    left_out: Sequence[str]  # of the checkpoint's folder
    deleted: Sequence[str]  # of the repository
    licence: cards.Licence | None  # None where no source has it
    licences: cards.Licences  # of the parents, by public name


def open_hub(endpoint: str | None = None) -> HfApi:
    """Open the Hub with the token of ``hf auth login`` or ``HF_TOKEN``."""
    if (token := get_token()) is None:
        raise HubError(
            "no login to the Hub was found on this machine; log in with: hf auth login "
            "(or set HF_TOKEN)"
        )
    return HfApi(endpoint=endpoint, token=token)


def plan_push(
    folder: StrPath, run: StrPath | None, options: PushOptions, api: HfApi | None = None
) -> Plan:
    """Collect files, card and licence of a checkpoint, and look up the repository.

    The search in ``run`` may be uploaded with it. The Hub is queried, not changed;
    without ``api`` it is not reached.

    Raises:
        ArtifactError: a folder cannot be read, or a file holds a local path or token.
        ConfigError: the options do not go together with what is there.
        HubError: the Hub cannot be reached or refuses.
    """
    for name in (options.repo, *options.parents.values()):
        try:
            utils.validate_repo_id(name.partition("@")[0])  # type: ignore[attr-defined]
            if "/" not in name and name != options.repo:
                raise errors.HFValidationError(f"{name!r} names no owner")
        except errors.HFValidationError as error:
            raise ConfigError(f"{error}; write it as owner/name") from None
    folder = Path(folder)
    config = _read_recipe(folder / cards.RECIPE_FILE)
    card = cards.read_card(folder)
    search = None if run is None else open_run(Path(run))
    directory = "/" if search is None else search.read_manifest().directory
    names = public_names(referenced_models(config), options.parents, directory)
    files, left_out = _checkpoint_files(folder, config, names)
    if search is not None:
        files += _run_files(search, config, names)
    token = get_token() if api is None else str(api.token)
    refuse_leaks(files, names, token)
    with _hub_errors(api, options.repo):
        target = _find_target(api, options.repo)
        licences = cards.parent_licences(config, names, partial(_hub_licence, api))
    stated = card.data.get("license")
    own = cards.read_licence(vars(card.data))
    known = own if stated else cards.common_licence(licences)
    licence = cards.Licence(options.licence) if options.licence else known
    renamed = cards.renamed_card(card, folder.resolve().name, target.repo_id, licence)
    if options.parents:
        renamed = cards.with_parents(renamed, config, names)
    text = cards.with_search(renamed, uploaded=search is not None).content
    card_file = PublicFile(cards.CARD, text.encode())
    refuse_leaks([card_file], names, token)
    uploaded = [card_file, *(file for file in files if file.path != cards.CARD)]
    others = target.files - {file.path for file in uploaded}
    stale = (p for p in others if _is_loaded(p) or p.startswith(_REPLACED_FOLDERS))
    return Plan(
        target=target,
        private=_is_private(target, options),
        card=text,
        files=uploaded,
        left_out=left_out,
        deleted=sorted(stale),
        # Several, or "other" without a name, stay as the card has them.
        licence=licence or (cards.Licence(str(stated)) if stated else None),
        licences=licences,
    )


def upload(api: HfApi, plan: Plan, message: str) -> str | None:
    """Upload files as one commit, creating the repository where there is none.

    Files that the Hub has already are not uploaded again, so that an interrupted upload
    continues. Returns the address of the commit, None if nothing was new.
    """
    target, repo = plan.target, plan.target.repo_id
    operations: list[Any] = [CommitOperationAdd(f.path, f.content) for f in plan.files]
    operations += map(CommitOperationDelete, plan.deleted)
    with _hub_errors(api, repo), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # on metadata that a card may lack
        if target.private is None:
            api.create_repo(repo, private=plan.private)
        commit = api.create_commit(
            repo, operations, commit_message=message, parent_commit=target.commit
        )
    return None if commit.oid == target.commit else str(commit.commit_url)


def _read_recipe(path: Path) -> MergeConfig:
    try:
        config = parse_recipe(read_whole(path, _MAX_RECIPE_BYTES).decode("utf-8"))
        referenced_models(config)  # raises if they cannot be listed
    except (OSError, *DAMAGES) as error:
        raise _unreadable(path, error) from None
    return config


def _unreadable(path: Path, error: Exception) -> ArtifactError:
    return ArtifactError(f"{path} cannot be read: {error}; name a merged folder")


def _checkpoint_files(
    folder: Path, config: MergeConfig, names: PublicNames
) -> tuple[list[PublicFile], list[str]]:
    files: list[PublicFile] = []
    left_out: list[str] = []
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        name = path.relative_to(folder).as_posix()
        if "/." in f"/{name}":
            continue  # a hidden file, or one in a hidden folder
        if _is_loaded(name) or _matches(name, _OTHER_FILES):
            if path.is_symlink():
                raise ArtifactError(f"{path} is a link; put the file itself there")
            files.append(_public_file(name, path, config, names))
        else:
            left_out.append(name)
    return files, left_out


def _is_loaded(path: str) -> bool:
    return _matches(path, _LOADED_FILES) or path.startswith(_TEMPLATES)


def _matches(path: str, patterns: Sequence[str]) -> bool:
    at_top = "/" not in path and path.isprintable()
    return at_top and any(fnmatchcase(path, pattern) for pattern in patterns)


def _public_file(
    name: str, path: Path, config: MergeConfig, names: PublicNames
) -> PublicFile:
    """Return a file of a checkpoint, its names of models rewritten and nothing else.

    Any other text, such as a chat template, is part of what was measured.
    """
    if name == cards.RECIPE_FILE:
        return PublicFile(name, yaml_text(names.config(config)).encode())
    if path.suffix != ".json" or name in VOCABULARIES:
        return PublicFile(name, path)

    def public_origin(text: str, key: str) -> str:
        return names.reference(text) if key in _ORIGIN_KEYS and is_local(text) else text

    try:
        content = json.loads(read_whole(path, LARGEST_JSON))
        public = map_texts(content, public_origin)
    except (OSError, ValueError, RecursionError) as error:
        raise _unreadable(path, error) from None
    return PublicFile(name, path if public == content else _json(public, indent=2))


def _json(content: Any, indent: int | None = None) -> bytes:
    return f"{json.dumps(content, indent=indent, ensure_ascii=False)}\n".encode()


def _run_files(
    run: RunFolder, config: MergeConfig, names: PublicNames
) -> list[PublicFile]:
    """Return the public files of a search: no samples, which may hold texts of tasks.

    The front is one file, its chosen point the uploaded one.
    """
    front = run.read_front()
    recipes = enumerate(map(run.recipe, range(len(front.points))))
    same = [i for i, path in recipes if path.exists() and _read_recipe(path) == config]
    if not same:
        raise ArtifactError(
            f"{run.path} has no recipe of this merge, so it is not the folder of its "
            "search (or was searched again since); name another folder, or merge again"
        )
    content = front.model_dump(mode="json")
    if (uploaded := same[0]) != front.selected:
        reason = f"Point {uploaded} of {len(front.points)} is the uploaded one."
        content |= {"selected": uploaded, "select": {}, "reason": reason}
    public = {run.front.name: _json(names.content(content))}
    try:
        config = names.config(read_yaml(run.config).content)
        public[run.config.name] = yaml_text(config).encode()
        log = (_json(names.content(json.loads(line))) for line in whole_lines(run.log))
        public[run.log.name] = b"".join(log)
    except (OSError, *DAMAGES) as error:
        raise _unreadable(run.path, error) from None
    return [PublicFile(f"{RUN_FOLDER}/{name}", text) for name, text in public.items()]


def _is_private(target: Target, options: PushOptions) -> bool:
    """Return whether the repository is or becomes private; it is never changed."""
    if target.private is None:
        return options.private is not False
    if options.private not in {None, target.private}:
        state = "private, not public" if target.private else "public, not private"
        raise ConfigError(
            f"{target.url} is there already and {state}; change it in its settings, or "
            "name another one"
        )
    return target.private


def _find_target(api: HfApi | None, repo: str) -> Target:
    """Look up a repository, by default of the user's own namespace."""
    if api is None:
        return Target(repo, f"{constants.ENDPOINT}/{repo}", None, looked_up=False)
    user = api.whoami()["name"]
    repo_id = repo if "/" in repo else f"{user}/{repo}"
    url = f"{api.endpoint}/{repo_id}"
    try:
        info = api.model_info(repo_id)
    except errors.RepositoryNotFoundError:
        return Target(repo_id, url, None)
    files = frozenset(str(file.rfilename) for file in info.siblings or ())
    return Target(repo_id, url, bool(info.private), files, info.sha)


def _hub_licence(api: HfApi | None, hub_id: str) -> cards.Licence | None:
    try:
        data = None if api is None else api.model_info(hub_id).card_data
    except errors.HfHubHTTPError:
        return None
    return cards.read_licence(vars(data) if data else {})


@contextmanager
def _hub_errors(api: HfApi | None, repo: str) -> Iterator[None]:
    """Convert errors of the Hub to HubError; OSErrors of files stay."""
    network = (errors.HTTPError, OSError)  # type: ignore[attr-defined]
    # huggingface_hub raises these if the server is no Hub.
    unexpected = (RuntimeError, ValueError, LookupError, TypeError, AttributeError)
    try:
        yield
    except (*network, *unexpected) as error:
        if api is None or (isinstance(error, OSError) and error.filename is not None):
            raise
        text = " ".join(str(error).split()) or type(error).__name__
        if isinstance(error, errors.HfHubHTTPError) and error.server_message:
            text = f"{error.response.status_code}: {error.server_message}"
        text = text.replace(str(api.token), "[token]")[:_MAX_MESSAGE]
        raise HubError(
            f"{repo}: the Hub at {api.endpoint} cannot be used or refuses ({text}); "
            "check the login (hf auth login, with a token that may write), name and "
            "network, and push again to go on"
        ) from None
