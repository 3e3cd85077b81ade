"""Whether a run folder was written here: code that a stranger's names is not run.

The manifest of a search is sealed with a key that never leaves the user's cache folder.
A folder whose seal does not fit its configuration came from somewhere else, or was
changed since.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import os
import secrets
from collections.abc import Mapping
from pathlib import Path

from mergekit_map.config.engine_specs import EngineSpec
from mergekit_map.config.specs import BackendSpec
from mergekit_map.config.task_specs import LmEvalTask, PerplexityTask, TaskSpec
from mergekit_map.errors import ArtifactError
from mergekit_map.files import cache_home, partial_file
from mergekit_map.results.log import LOCK_NAME
from mergekit_map.results.records import read_record
from mergekit_map.results.run_folder import Manifest, RunFolder


def seal(config: str, directory: str) -> str | None:
    """Sign a configuration and where its paths start; None where no key can be kept."""
    try:
        key = _key()
    except OSError:
        return None
    text = f"{len(config)} {config}{directory}"
    return hmac.new(key, text.encode(), hashlib.sha256).hexdigest()


def refuse_foreign_code(
    config: Path,
    text: str,
    tasks: Mapping[str, TaskSpec],
    backend: BackendSpec | None,
    engine: EngineSpec | None = None,
) -> None:
    """Refuse the configuration of a stranger's run folder if it names code.

    Raises:
        ArtifactError: with what would run.
    """
    folder = RunFolder(config.parent)
    own = (spec.engine for spec in tasks.values() if isinstance(spec, LmEvalTask))
    args = [key for spec in (engine, *own) if spec is not None for key in spec.args]
    code = [f"task {name!r}" for name, spec in tasks.items() if _names_code(spec)]
    code += ["the backend"] if backend is not None else []
    code += [f"what vLLM is opened with ({', '.join(args)})"] if args else []
    is_run = folder.manifest.exists() or (folder.path / LOCK_NAME).exists()
    if code and is_run and not _is_sealed(folder, text):
        raise ArtifactError(
            f"{folder.path} was not written on this machine, and its configuration "
            f"names code that would run here: {', '.join(code)}; look at {config}, and "
            "if you trust it, say so with --trust-run"
        )


def _names_code(task: TaskSpec) -> bool:
    if isinstance(task, LmEvalTask):  # a file of them may hold functions, templates
        is_file = Path(task.lm_eval).suffix in {".yaml", ".yml"}
        return is_file or task.confirm_run_unsafe_code
    return not isinstance(task, PerplexityTask)


def _is_sealed(folder: RunFolder, text: str) -> bool:
    if not folder.manifest.exists():
        return False
    known = read_record(folder.manifest, Manifest, "finished search")
    own = seal(text, known.directory)
    return own is not None and hmac.compare_digest(own, known.seal or "")


def _key() -> bytes:
    path = cache_home() / "seal.key"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        with partial_file(path) as partial:  # its owner's alone
            partial.write_bytes(secrets.token_bytes(32))
            with contextlib.suppress(FileExistsError):
                os.link(partial, path)
    return path.read_bytes()
