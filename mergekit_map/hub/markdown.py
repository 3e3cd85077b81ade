"""Markdown for a model card: sections, tables, blocks of code and the usage example.

All text is escaped, so that nothing in it is markup.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from mergekit_map.results.front import Front


def section(heading: str, body: str) -> str:
    """Return a section with its heading."""
    return f"## {heading}\n\n{body}\n"


def escaped(text: str) -> str:
    """Escape a text for one line of Markdown."""
    line = " ".join(text.split())
    line = line.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    # An underscore within a word is no markup.
    return re.sub(r"([\\`*\[\]|#~$!])|(?<![^\W_])_|_(?![^\W_])", r"\\\g<0>", line)


def fenced(text: str, language: str) -> str:
    """Return a block of code. A line of YAML cannot begin with its end."""
    return f"```{language}\n{text}```"


def written_table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table: names to the left, numbers to the right."""
    rule = ["---", *("---:" for _ in header[1:])]
    cells = [[escaped(cell) for cell in row] for row in (header, *rows)]
    lines = [cells[0], rule, *cells[1:]]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def task_heading(front: Front, task: str) -> str:
    """Name a task, its unit, and which values are better."""
    return f"{task} ({', '.join(front.tasks[task].facts)})"


_LOADING = """\
from transformers import AutoModelForCausalLM, AutoTokenizer

{name}
tokenizer = AutoTokenizer.from_pretrained(name)
model = AutoModelForCausalLM.from_pretrained(name, dtype="auto")
"""
_CHATTING = """\
messages = [{"role": "user", "content": "Hello!"}]
inputs = tokenizer.apply_chat_template(
    messages, add_generation_prompt=True, return_tensors="pt", return_dict=True
)
"""
_WRITING = """\
inputs = tokenizer("Once upon a time", return_tensors="pt")
"""
_ANSWERING = """\
answer = model.generate(**inputs, max_new_tokens=200)
print(tokenizer.decode(answer[0], skip_special_tokens=True))
"""


def usage_section(folder: Path, name: str) -> str:
    """Return an example that loads a causal model with transformers and generates."""
    start = _CHATTING if has_chat_template(folder) else _WRITING
    loading = _LOADING.replace("{name}", _named(name))
    return f"```python\n{loading}\n{start}{_ANSWERING}```"


def renamed_usage(text: str, name: str) -> str:
    """Rename the model in the example, in a card or a section of it."""
    pattern = re.compile(r'^name = ".*"$(?=\ntokenizer = )', re.MULTILINE)
    return pattern.sub(lambda _: _named(name), text)


def has_chat_template(folder: Path) -> bool:
    """Whether the tokenizer of a checkpoint has a chat template."""
    if (folder / "chat_template.jinja").exists():
        return True
    try:
        text = (folder / "tokenizer_config.json").read_text(encoding="utf-8")
        config: Mapping[str, Any] = json.loads(text)
        return bool(config.get("chat_template"))
    except (OSError, ValueError, AttributeError):
        return False


def _named(name: str) -> str:
    # JSON quotes whatever a name may hold, and Python reads JSON.
    return f"name = {json.dumps(name, ensure_ascii=False)}"
