"""Upload to the Hub with huggingface_hub and its login; no token is shown.

Every function raises HubError where the Hub cannot be reached, or refuses.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from huggingface_hub import (
    CommitOperationAdd,
    CommitOperationDelete,
    HfApi,
    get_session,
    get_token,
)
from huggingface_hub.errors import (  # type: ignore[attr-defined]
    HfHubHTTPError,
    HTTPError,  # of httpx or httpx2, whichever it uses
    OfflineModeIsEnabled,
    RepositoryNotFoundError,
)
from huggingface_hub.utils import hf_raise_for_status  # type: ignore[attr-defined]

from mergekit_map.errors import ArtifactError, HubError
from mergekit_map.hub.metadata import Licence, read_licence
from mergekit_map.hub.upload_files import PublicFile

_MOST_BYTES = 1 << 20  # of a small file
_SHOWN = 300  # characters of what the Hub says
# What comes of an answer of another form than the Hub's.
_ODD = (LookupError, TypeError, AttributeError)
_AGAIN = "; push again to go on, what was uploaded whole is not uploaded again"

_REASONS = {
    400: ("the Hub refuses what was sent", "; repair it and push again"),
    401: (
        "the Hub does not know this login",
        "; log in again with: hf auth login (or set HF_TOKEN)",
    ),
    403: (
        "this login may not do that",
        "; name a repository of your own, or log in with a token that may write to it",
    ),
    404: (
        "there is no such repository",
        "; check the name, and that your login may see it",
    ),
    409: (
        "somebody else changes this repository, or has just made it",
        "; look at it and push again",
    ),
    429: ("too many requests", "; wait a while and push again"),
}


@dataclass(frozen=True)
class Target:
    """A repository as it is before anything is uploaded."""

    repo_id: str  # with its owner
    url: str
    private: bool | None  # None where there is no such repository yet
    files: frozenset[str] = frozenset()
    commit: str | None = None  # the last one


def open_hub(endpoint: str | None = None) -> HfApi:
    """Open the Hub with the token of ``hf auth login`` or ``HF_TOKEN``."""
    token = get_token()
    if token is None:
        raise HubError(
            "the Hub wants to know who uploads, and no login was found on this "
            "machine; log in with: hf auth login (or set HF_TOKEN)"
        )
    return HfApi(endpoint=endpoint, token=token)


def find_target(api: HfApi, repo: str) -> Target:
    """Look up a repository, by default of the user's own namespace."""
    with hub_errors(api, repo):
        me = api.whoami()["name"]
        repo_id = repo if "/" in repo else f"{me}/{repo}"
        url = f"{api.endpoint}/{repo_id}"
        try:
            info = api.model_info(repo_id)
        except RepositoryNotFoundError:
            return Target(repo_id, url, None)
        names = frozenset(str(file.rfilename) for file in info.siblings or ())
    return Target(repo_id, url, bool(info.private), names, info.sha)


def hub_file(api: HfApi, target: Target, path: str) -> bytes | None:
    """Fetch a small file of a repository; None where it has none."""
    if path not in target.files:
        return None
    url = f"{target.url}/resolve/{target.commit or 'main'}/{path}"
    with hub_errors(api, target.repo_id):
        headers = {"authorization": f"Bearer {api.token}"}
        with get_session().stream("GET", url, headers=headers) as answer:
            hf_raise_for_status(answer)
            content = b""
            for part in answer.iter_bytes():
                content += part
                if len(content) > _MOST_BYTES:
                    raise ValueError(f"{path} is larger than {_MOST_BYTES:,} bytes")
        return content


def hub_licence(api: HfApi, hub_id: str) -> Licence | None:
    """Ask the Hub for the licence of a repository; None where it does not say."""
    with hub_errors(api, hub_id):
        try:
            data = api.model_info(hub_id).card_data
        except HfHubHTTPError as error:
            if error.response.status_code in {401, 403, 404}:
                return None
            raise
    return read_licence(data.__dict__ if data else None)


def check_card(api: HfApi, card: str) -> list[str]:
    """Validate the metadata of a card on the Hub; returns its warnings."""
    with hub_errors(api, "the model card"):
        answer = get_session().post(
            f"{api.endpoint}/api/validate-yaml",
            json={"content": card, "repoType": "model"},
            headers={"authorization": f"Bearer {api.token}"},
        )
        if answer.status_code != 400:
            hf_raise_for_status(answer)
        found = answer.json()
        errors, warned = (
            [str(one.get("message")) for one in found.get(kind, ())]
            for kind in ("errors", "warnings")
        )
    if errors or answer.status_code == 400:
        raise ArtifactError(
            "the Hub refuses the metadata of the model card, so nothing was uploaded: "
            f"{'; '.join(errors) or 'it does not say why'}; repair README.md, or give "
            "another --license"
        )
    return warned


def upload(
    api: HfApi,
    target: Target,
    files: Sequence[PublicFile],
    removed: Sequence[str],
    message: str,
    *,
    private: bool,
) -> str | None:
    """Upload files as one commit, creating the repository where there is none.

    Files that the Hub has already are not uploaded again, so that an interrupted upload
    continues. Returns the address of the commit, None if nothing was new.

    Raises:
        ArtifactError: a file was written since it was listed.
    """
    with hub_errors(api, target.repo_id), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # those of the card were shown before
        if target.private is None:
            api.create_repo(target.repo_id, private=private)
        added = [CommitOperationAdd(f.path, f.content) for f in files]
        api.preupload_lfs_files(target.repo_id, added)
        _refuse_changed(files)
        commit = api.create_commit(
            target.repo_id,
            [*added, *(CommitOperationDelete(path) for path in removed)],
            commit_message=message,
        )
    return None if commit.oid == target.commit else str(commit.commit_url)


def _refuse_changed(files: Sequence[PublicFile]) -> None:
    if changed := [file.path for file in files if file.changed]:
        raise ArtifactError(
            f"{', '.join(changed)} changed after this program had looked at it, so "
            "nothing of this was published; wait for who writes it, and push again"
        )


@contextmanager
def hub_errors(api: HfApi, what: str) -> Iterator[None]:
    """Convert errors of the Hub to HubError with advice; OSErrors of files stay."""
    try:
        yield
    except (HTTPError, OSError, RuntimeError, ValueError, *_ODD) as error:
        cause = _cause(error)
        if isinstance(cause, OSError) and cause.filename is not None:
            raise cause from None
        text = _explain(cause, what, str(api.endpoint))
        if isinstance(api.token, str):
            text = text.replace(api.token, "[token]")
        raise HubError(text) from None


def _cause(error: BaseException) -> BaseException:
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, HTTPError | OSError):
        cause = cause.__cause__
    return cause or error


def _explain(error: BaseException, what: str, endpoint: str) -> str:
    if isinstance(error, OfflineModeIsEnabled):
        return "HF_HUB_OFFLINE forbids to reach the Hub; unset it and push again"
    first_line = (str(error).strip() or type(error).__name__).splitlines()[0][:_SHOWN]
    if isinstance(error, _ODD):
        odd = f"{type(error).__name__}: {first_line}"
        return (
            f"{what}: what answers at {endpoint} is no Hub ({odd}); look at HF_ENDPOINT"
        )
    if not isinstance(error, HfHubHTTPError):
        return f"{what}: the Hub at {endpoint} cannot be used: {first_line}{_AGAIN}"
    status = error.response.status_code
    said = (error.server_message or first_line)[:_SHOWN]
    reason, advice = _REASONS.get(status, ("the Hub fails", _AGAIN))
    return f"{what}: {reason} (HTTP {status}: {said}){advice}"
