"""The public files of a checkpoint and of a run folder.

Files with paths of this machine are rewritten in memory; all others are read where they
are, so that weights are never copied. In a checkpoint only the names of models are
rewritten: any other text, such as a chat template, is part of what was measured.
"""

from __future__ import annotations

import itertools
import json
import re
import shlex
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any, TypeAlias

from mergekit_map.config.yaml_file import read_yaml, yaml_text
from mergekit_map.errors import ArtifactError
from mergekit_map.hub.card_text import RUN_FOLDER
from mergekit_map.hub.metadata import FOLDER as RESULTS
from mergekit_map.hub.sanitize import PublicNames, is_local
from mergekit_map.results.recipe_rendering import DAMAGES, plain_documents
from mergekit_map.results.records import STATE
from mergekit_map.utils.files import written_state

# Of a run folder. Samples are left out: some metrics keep the texts of their benchmark
# there. So are checkpoints that were merged on the way.
_OF_A_SEARCH = (
    "config.yml",
    "evaluations.jsonl",
    "surrogates.json",
    "front.json",
    "front.csv",
    "*.png",
    "recipe.yml",
    "recipes/*.yml",
    "report.html",
    "manifest.json",
)
_PAIRS = ("nested/pair-*/", f"{STATE}/nested/pair-*/")  # those of earlier versions
_PLACES = tuple(f"{at}{state}" for at in ("", *_PAIRS) for state in ("", f"{STATE}/"))
_OF_A_RUN = (
    *(f"{place}{pattern}" for place in _PLACES for pattern in _OF_A_SEARCH),
    *(f"{place[:-1]}.yml" for place in _PAIRS),
    "compare/*.md",
    "compare/*.csv",
    "compare/*.json",
)

# Tokens may look like paths, and are no texts of ours to change.
VOCABULARIES = {
    "tokenizer.json",
    "vocab.json",
    "vocab.txt",
    "merges.txt",
    "added_tokens.json",
    "tokenizer.model",
}
# Keys of a checkpoint's JSON that say where a model came from, and nothing else.
_ORIGINS = {"_name_or_path", "name_or_path", "base_model_name_or_path"}
_COMMAND = "# Merge it with: "  # how recipes introduce it

_Rewrite: TypeAlias = Callable[[str, PublicNames, Path], str]


@dataclass(frozen=True)
class PublicFile:
    """A file of an upload."""

    path: str  # in the repository
    content: Path | bytes  # where it lies, or what it says once it is rewritten
    state: tuple[int, ...] | None = None  # when it was listed, if it must stay so

    @property
    def size(self) -> int:
        """Return the number of bytes."""
        if isinstance(self.content, bytes):
            return len(self.content)
        return self.content.stat().st_size

    @property
    def rewritten(self) -> bool:
        """Whether it differs from the file on this machine."""
        return isinstance(self.content, bytes)

    @property
    def changed(self) -> bool:
        """Whether it was written since it was listed."""
        if self.state is None or isinstance(self.content, bytes):
            return False
        return written_state(self.content) != self.state

    def unchanging(self) -> PublicFile:
        """Return this file with its state, to detect later changes."""
        if isinstance(self.content, bytes):
            return self
        return replace(self, state=written_state(self.content))


def checkpoint_files(folder: Path, names: PublicNames) -> list[PublicFile]:
    """List the files of a checkpoint: no hidden ones but results."""
    files = _public_files(folder, folder.rglob("*"), names, _OF_A_CHECKPOINT)
    return [file.unchanging() for file in files]


def run_files(run: Path, names: PublicNames) -> list[PublicFile]:
    """List the files of a run folder that describe its search to others."""
    found = {path for pattern in _OF_A_RUN for path in run.glob(pattern)}
    files = _public_files(run, found, names, _REWRITERS)
    # What is drawn cannot be rewritten, and names a model as the front does.
    paths = [PurePosixPath(file.path) for file in files if file.rewritten]
    folders = {path.parent for path in paths if path.name == "front.json"}
    return [
        replace(file, path=f"{RUN_FOLDER}/{file.path}")
        for file in files
        if not (
            file.path.endswith(".png") and PurePosixPath(file.path).parent in folders
        )
    ]


def _public_files(
    folder: Path,
    paths: Iterable[Path],
    names: PublicNames,
    rewriters: Mapping[str, _Rewrite],
) -> list[PublicFile]:
    inside = ((path, path.relative_to(folder)) for path in sorted(paths))
    return [
        _public(path, short.as_posix(), names, rewriters)
        for path, short in inside
        if path.is_file()
        and str(short).isprintable()  # as all that this program writes is
        and not any(map(_is_hidden, short.parts))
    ]


def _is_hidden(name: str) -> bool:
    return name.startswith(".") and name not in {RESULTS, STATE}


def _public(
    path: Path, target: str, names: PublicNames, rewriters: Mapping[str, _Rewrite]
) -> PublicFile:
    rewrite = rewriters.get(path.suffix)
    if rewrite is None or path.name in VOCABULARIES:
        return PublicFile(target, path)
    try:
        text = path.read_text(encoding="utf-8")
        rewritten = rewrite(text, names, path)
    except (OSError, *DAMAGES) as error:
        raise ArtifactError(
            f"{path} cannot be read: {error}; merge or search again, or remove it"
        ) from None
    return PublicFile(target, path if rewritten == text else rewritten.encode())


def _with_origins(names: PublicNames, part: Any) -> Any:
    if isinstance(part, Mapping):
        return {
            key: names.reference(value)
            if key in _ORIGINS and isinstance(value, str) and is_local(value)
            else _with_origins(names, value)
            for key, value in part.items()
        }
    return [_with_origins(names, v) for v in part] if isinstance(part, list) else part


def _public_json(text: str, rename: Callable[[Any], Any]) -> str:
    """Return the public JSON, with its bytes unchanged where possible."""
    content = json.loads(text)
    public = rename(content)
    if public == content:
        return text
    indent = re.match(r"[\[{]\n( +)", text)
    width = len(indent[1]) if indent else None
    return json.dumps(public, indent=width, ensure_ascii=text.isascii()) + "\n"


def _public_lines(text: str, names: PublicNames, _: Path) -> str:
    lines = [_public_json(line, names.content) for line in text.splitlines() if line]
    return "".join(f"{line.rstrip()}\n" for line in lines)


def _public_yaml(text: str, names: PublicNames, path: Path) -> str:
    """Rewrite a configuration where needed; the comments on top stay."""
    lines = text.splitlines()
    comments = list(itertools.takewhile(lambda line: line.startswith("#"), lines))
    in_folder = path.parent.name == "recipes"
    recipe = f"recipes/{path.name}" if in_folder else path.name
    lines = [_public_comment(line, names, recipe) for line in comments]
    # Who writes a configuration may let aliases stand for what is said twice.
    own = path.name == "config.yml"
    configs = [read_yaml(path).content] if own else plain_documents(text)
    public = [_public_config(config, names) for config in configs]
    if (lines, public, names.text(text)) == (comments, configs, text):
        return text
    return "".join(f"{line}\n" for line in lines) + yaml_text(public)


def _public_comment(line: str, names: PublicNames, recipe: str) -> str:
    if not line.startswith(_COMMAND):
        return names.text(line)
    program, _, *rest = shlex.split(line.removeprefix(_COMMAND))
    words = [Path(word).name if is_local(word) else word for word in rest]
    return f"{_COMMAND}{shlex.join([program, recipe, *words])}"


def _public_config(config: Any, names: PublicNames) -> Any:
    public = names.config(config)
    block = public.get("map") if isinstance(public, Mapping) else None
    for task in (block or {}).get("tasks", {}).values():
        text = task.get("perplexity")
        if isinstance(text, dict) and text.get("file"):
            text["file"] = Path(text["file"]).name
        elif isinstance(text, str):
            task["perplexity"] = Path(text).name
        if Path(str(task.get("lm_eval", ""))).suffix in {".yaml", ".yml"}:
            task["lm_eval"] = Path(task["lm_eval"]).name
    return public


_REWRITERS: Mapping[str, _Rewrite] = {
    ".json": lambda text, names, _: _public_json(text, names.content),
    ".jsonl": _public_lines,
    ".yml": _public_yaml,
    ".yaml": _public_yaml,
    ".csv": lambda text, names, _: names.text(text),
    ".html": lambda text, names, _: names.text(text),
    ".md": lambda text, names, _: names.text(text),
}
_OF_A_CHECKPOINT: Mapping[str, _Rewrite] = {
    **_REWRITERS,
    ".json": lambda text, names, _: _public_json(text, partial(_with_origins, names)),
}
