"""A good configuration with things of it changed at random, by the JSON Schema.

Each is refused in words that say where, or it truly can be searched.

    python benchmarks/fuzzing/table.py mutated_configurations --most 20000
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import json
import os
import resource
import time
import warnings
from collections.abc import Iterator
from pathlib import Path

from attack import Attack, held
from click.testing import CliRunner
from good_configuration import asked, family, index_of_tasks
from hypothesis import HealthCheck, given, seed, settings
from schema_grammar import texts

BEFORE = (300, 3)
QUICK = 300
ORDINARY, ALL = 300, 20_000
_AT_ONCE = 250  # drawn together
_SEARCHED = 10  # one of so many that are accepted is searched
_SECONDS, _MEGABYTES = 20, 200

_accepted = itertools.count(1)


def attacks(number: int) -> Iterator[Attack]:
    """Give mutations, as many as are asked for with ``HARDENING_MUTATIONS``."""
    count = int(os.environ.get("HARDENING_MUTATIONS", ORDINARY))
    starts = range(0, count, _AT_ONCE)
    drawn = itertools.chain.from_iterable(_drawn(number + start) for start in starts)
    for index, text in enumerate(itertools.islice(drawn, count)):
        yield Attack(f"{index}", functools.partial(judged, text))


def judged(text: str, folder: Path) -> str:
    """Say what is wrong with how a configuration is inspected, in this process."""
    from mergekit_map.cli import main

    index_of_tasks()
    (folder / "merge.yml").write_text(text, encoding="utf-8", errors="surrogatepass")
    (folder / "own.py").write_text("def measure(model, tokenizer):\n    return 0.5\n")
    home = {"MERGEKIT_MAP_HOME": str(family() / "home")}
    began, before = time.monotonic(), _megabytes()
    with contextlib.chdir(folder), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        result = CliRunner(env=home).invoke(main, ["inspect", "merge.yml", "--json"])
    spent, grown = time.monotonic() - began, _megabytes() - before
    problem = _problem(result.exit_code, result.stdout, result.stderr)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        problem = f"{type(result.exception).__name__}: {result.exception}"
    if spent > _SECONDS or grown > _MEGABYTES:
        problem = f"it took {spent:.0f} s and {grown:.0f} MB"
    if not problem and result.exit_code == 0 and next(_accepted) % _SEARCHED == 0:
        problem = _searched(folder, json.loads(result.stdout))
    return f"{problem}\n{text}" if problem else ""


def _problem(code: int, out: str, err: str) -> str:
    """Say what is wrong with an answer."""
    if code == 0:
        return ""
    if code != 2:
        return f"exit {code}: {err[-500:]}"
    if not out.startswith("{"):
        said = err[err.find("error: ") :] if "error: " in err else ""
        return "" if "merge.yml:" in said else f"no place: {err[-500:]}"
    inspected = json.loads(out)
    found = [
        *((p["place"], p["message"]) for p in inspected["problems"]),
        *(
            (model["place"], str(finding))
            for model in inspected["models"]
            for finding in model["findings"]
            if finding["severity"] == "error"
        ),
    ]
    if not found:
        return "refused without a problem"
    lost = [place for place, _ in found if not place.startswith("merge.yml")]
    long = [message for _, message in found if len(message) > 2500]
    return f"no place: {lost}" if lost else f"long: {long}"[:300] if long else ""


def _searched(folder: Path, inspected: dict[str, object]) -> str:
    plan = inspected["plan"]
    assert isinstance(plan, dict)
    if plan["measurements"] > 200:
        return ""  # it would take too long here
    problem = held(asked(folder, "search", "merge.yml", "RUN", seconds=100), seconds=99)
    return f"accepted, but not searched: {problem}" if problem else ""


def _megabytes() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def _drawn(number: int) -> list[str]:
    """Draw texts with hypothesis, without trying anything of them."""
    found: list[str] = []

    @seed(number)
    @settings(
        max_examples=_AT_ONCE,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(texts())
    def draw(text: str) -> None:
        found.append(text)

    draw()
    return found
