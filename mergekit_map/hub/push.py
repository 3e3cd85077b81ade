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
from mergekit_map.hub.sanitize import PublicFile

_SHOWN = 300  # characters of what the Hub says
# What an answer of another form than the Hub's ends in.
_ODD = (LookupError, TypeError, AttributeError)
_AGAIN = "push again to go on; complete files are not uploaded again"
_ADVICE = {
    400: "the Hub refuses what was sent; repair it and push again",
    401: "the Hub does not know this login; log in again with: hf auth login "
    "(or set HF_TOKEN)",
    403: "this login may not do that; name a repository of your own, or log in with "
    "a token that may write to it",
    404: "there is no such repository; check the name, and that your login may see it",
    409: "somebody else changes this repository, or has just made it; look at it and "
    "push again",
    429: "too many requests; wait a while and push again",
}


@dataclass(frozen=True)
class Target:
    """A repository as it is before anything is uploaded."""

    repo_id: str  # with its owner
    url: str
    private: bool | None  # None where there is no such repository yet
    files: frozenset[str] = frozenset()
    commit: str | None = None  # the last one
    asked: bool = True  # whether the Hub was asked for it


def open_hub(endpoint: str | None = None) -> HfApi:
    """Open the Hub with the token of ``hf auth login`` or ``HF_TOKEN``."""
    token = get_token()
    if token is None:
        raise HubError(
            "no login to the Hub was found on this machine; log in with: hf auth login "
            "(or set HF_TOKEN)"
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


def hub_licence(api: HfApi, hub_id: str) -> Licence | None:
    """Return the licence of a repository; None where the Hub does not say."""
    with hub_errors(api, hub_id):
        try:
            data = api.model_info(hub_id).card_data
        except HfHubHTTPError as error:
            if error.response.status_code in {401, 403, 404}:
                return None
            raise
    return read_licence(vars(data) if data else {})


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
    """
    with hub_errors(api, target.repo_id), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # those of the card were shown before
        if target.private is None:
            api.create_repo(target.repo_id, private=private)
        added = [CommitOperationAdd(f.path, f.content) for f in files]
        api.preupload_lfs_files(target.repo_id, added)
        commit = api.create_commit(
            target.repo_id,
            [*added, *(CommitOperationDelete(path) for path in removed)],
            commit_message=message,
        )
    return None if commit.oid == target.commit else str(commit.commit_url)


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
        return "HF_HUB_OFFLINE forbids reaching the Hub; unset it and push again"
    text = (str(error).strip() or type(error).__name__).splitlines()[0][:_SHOWN]
    if isinstance(error, _ODD):
        text = f"{type(error).__name__}: {text}"
        return f"{what}: {endpoint} is not a Hub ({text}); check HF_ENDPOINT"
    if not isinstance(error, HfHubHTTPError):
        return f"{what}: the Hub at {endpoint} cannot be used: {text}; {_AGAIN}"
    status = error.response.status_code
    text = (error.server_message or text)[:_SHOWN]
    reason, _, advice = _ADVICE.get(status, f"the Hub fails; {_AGAIN}").partition("; ")
    return f"{what}: {reason} (HTTP {status}: {text}); {advice}"
