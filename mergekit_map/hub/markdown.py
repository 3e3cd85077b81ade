"""Markdown for a model card; all text is escaped, so that nothing in it is markup."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from mergekit_map.utils.files import read_json_or_nothing

_LOADING = """\
from transformers import pipeline

{name}
generate = pipeline("text-generation", name, dtype="auto")
print(generate({prompt}, max_new_tokens=200))
"""
_PROMPT = '"YOUR PROMPT"'


def section(heading: str, body: str) -> str:
    """Return a section with its heading."""
    return f"## {heading}\n\n{body}\n"


def folded(summary: str, body: str) -> str:
    """Return a text that a click unfolds."""
    return f"<details><summary>{summary}</summary>\n\n{body}\n\n</details>"


def escaped(text: str) -> str:
    """Escape a text for one line of Markdown."""
    line = " ".join(text.split())
    line = line.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    # An underscore within a word is no markup.
    return re.sub(r"([\\`*\[\]|#~$!])|(?<![^\W_])_|_(?![^\W_])", r"\\\g<0>", line)


def fenced(text: str, language: str) -> str:
    """Return a block of code. A line of YAML cannot begin with its end."""
    return f"```{language}\n{text}```"


def bullets(texts: Iterable[str]) -> str:
    """Return a list of texts, which are Markdown."""
    return "\n".join(f"- {text}" for text in texts)


def table(header: Sequence[str], rows: Iterable[Iterable[str]]) -> str:
    """Return a table: two columns of names to the left, the others to the right."""
    rule = ["---", "---", *("---:" for _ in header[2:])]
    cells = [[escaped(cell) for cell in row] for row in (header, *rows)]
    lines = [cells[0], rule, *cells[1:]]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def usage(folder: Path, name: str) -> str:
    """Return an example that loads a causal model with transformers and generates."""
    chat = f'[{{"role": "user", "content": {_PROMPT}}}]'
    prompt = chat if has_chat_template(folder) else _PROMPT
    code = _LOADING.replace("{prompt}", prompt).replace("{name}", _named(name))
    return fenced(code, "python")


def renamed_usage(text: str, name: str) -> str:
    """Rename the model in the example of a card."""
    pattern = re.compile(r'^name = ".*"$(?=\n(?:generate|tokenizer) = )', re.MULTILINE)
    return pattern.sub(lambda _: _named(name), text)


def has_chat_template(folder: Path) -> bool:
    """Whether the tokenizer of a checkpoint has a chat template."""
    config = read_json_or_nothing(folder / "tokenizer_config.json")
    known = config.get("chat_template")
    return bool(known) or (folder / "chat_template.jinja").exists()


def _named(name: str) -> str:
    # JSON quotes whatever a name may hold, and Python reads JSON.
    return f"name = {json.dumps(name, ensure_ascii=False)}"
