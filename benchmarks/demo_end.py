"""Keep how the demo ends, as the README shows it.

    python benchmarks/demo_end.py

Runs ``mergekit-map demo`` in a folder of its own and keeps what it prints, and what
made it, in ``docs/results/demo.json`` and ``demo.md``.
"""

from __future__ import annotations

import datetime
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from paper.kept import INDEX, index, machine, versions

from mergekit_map.utils.files import write_atomically, write_json

RESULTS = Path(__file__).resolve().parents[1] / "docs" / "results"
_COMMAND = "from mergekit_map.cli.main import main; main()"
_COLUMNS = "100"  # of the terminal


def main() -> None:
    """Run the demo and keep its end."""
    with tempfile.TemporaryDirectory() as folder:
        printed = subprocess.run(
            [sys.executable, "-c", _COMMAND, "demo"],
            cwd=folder,
            env={**os.environ, "COLUMNS": _COLUMNS},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
    content = {
        "end": _plain(printed),
        "date": datetime.datetime.now(datetime.timezone.utc).date().isoformat(),
        "machine": machine(),
        "versions": versions(),
    }
    RESULTS.mkdir(parents=True, exist_ok=True)
    write_json(RESULTS / "demo.json", content)
    write_atomically(RESULTS / "demo.md", _page(content))
    write_atomically(RESULTS / INDEX, index(RESULTS))
    print(_page(content))


def _plain(printed: str) -> str:
    """Remove spaces at the ends of lines."""
    return "\n".join(line.rstrip() for line in printed.splitlines()).strip() + "\n"


def _page(content: dict[str, object]) -> str:
    return (
        "# How the demo ends\n\n"
        f"```text\n{content['end']}```\n\n"
        f"    python benchmarks/demo_end.py\n\n"
        f"{content['date']}, {content['machine']}.\n"
    )


if __name__ == "__main__":
    main()
