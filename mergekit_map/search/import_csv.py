"""Evaluations measured elsewhere, read from a CSV file.

A row is a merge. Its columns are the coefficients, and for each task the value in the
task's own units, its standard error and its number of items; an empty cell was not
measured. The front.csv of another run is such a file. Nothing can show that the merges
were those of the present configuration: the user asserts it by importing them.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from pydantic import TypeAdapter, ValidationError

from mergekit_map.config.problems import in_words
from mergekit_map.config.tasks import LONGEST_TASK
from mergekit_map.config.yaml_file import with_count
from mergekit_map.errors import ConfigError, nearest
from mergekit_map.results.log import Count, Evaluation, Key
from mergekit_map.results.records import Finite, Stderr
from mergekit_map.search.study import Study
from mergekit_map.utils.files import StrPath, read_whole

_MOST_BYTES = 1 << 26  # of a file: a million numbers
# What a line of the log takes for each part of a row.
_NUMBERS: Mapping[str, TypeAdapter[Any]] = {
    "coefficient": TypeAdapter(Finite),
    "value": TypeAdapter(Finite),
    "stderr": TypeAdapter(Stderr),
    "n": TypeAdapter(Count),
}
_PARTS = ("value", "stderr", "n")
# What follows the name of a task in a header, and what the column then holds; "" is
# for columns of front.csv that are not measurements.
_SUFFIXES = {
    "": "value",
    " measured value": "value",
    " measured stderr": "stderr",
    **{f" {part}": part for part in _PARTS},
    **{f" {made} {part}": "" for made in ("predicted", "foretold") for part in _PARTS},
    " engine": "",
}
_Column: TypeAlias = tuple[str, str]  # part, and the name of the coefficient or task


def read_imported(path: StrPath, study: Study) -> list[Evaluation]:
    """Read the evaluations of a CSV file, as measurements of this study.

    Raises:
        ConfigError: with all problems of the file, each with its line and column.
    """
    path = Path(path)
    (line, header), *rows = _rows(path)
    known = _known_columns(study)
    columns = [known.get(text, ("", text)) for text in header]
    _refuse(path, [f"{line}: {t}" for t in _header_problems(header, known, study)])
    problems: list[str] = []
    seen: dict[Key, tuple[int, Evaluation]] = {}
    for line, cells in rows:
        numbers, wrong = _read_row(header, columns, cells, study)
        problems += [f"{line}: {text}" for text in wrong]
        for e in () if wrong else _evaluations(numbers, study):
            first, same = seen.setdefault(e.key, (line, e))
            if same != e:
                problems.append(
                    f"{line}: {e.task}: line {first} has another result of the same "
                    f"merge, {same.value:g}; remove one of the two"
                )
    _refuse(path, problems)
    return [evaluation for _, evaluation in seen.values()]


def _rows(path: Path) -> list[tuple[int, list[str]]]:
    try:
        # Spreadsheets begin a file with a byte order mark.
        text = read_whole(path, _MOST_BYTES).decode("utf-8-sig")
        reader = csv.reader(io.StringIO(text, newline=""), strict=True)
        rows = [(reader.line_num, [c.strip() for c in row]) for row in reader]
    except FileNotFoundError:
        raise ConfigError(f"{path}: there is no such file; check the path") from None
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise ConfigError(
            f"{path}: cannot be read as CSV in UTF-8: {error}; save it as such"
        ) from None
    filled = [(line, row) for line, row in rows if any(row)]
    if len(filled) < 2:
        raise ConfigError(
            f"{path}: a line of column names and a line per merge are required, got "
            f"{len(filled)} in all"
        )
    return filled


def _known_columns(study: Study) -> dict[str, _Column]:
    columns = {name: ("", name) for name in ("point", "selected", "recommended")}
    for task in study.tasks:
        columns |= {task + suffix: (part, task) for suffix, part in _SUFFIXES.items()}
    # Last, as a task may have the name of a coefficient; it is then "TASK value".
    return columns | {name: ("coefficient", name) for name in study.bounds}


def _header_problems(
    header: Sequence[str], known: Mapping[str, _Column], study: Study
) -> Iterator[str]:
    found: dict[_Column, str] = {}
    for text in header:
        if text not in known:
            close = nearest(text[:LONGEST_TASK], [n for n in known if known[n][0]])
            yield f"{text}: there is no such column; {close}"
        elif known[text][0] and known[text] in found:
            what = (
                f"the column {found[known[text]]!r} says the same; remove one of them"
            )
            if known[text][0] == "coefficient" and text in study.tasks:
                what = f"is the coefficient; name the task's column '{text} value'"
            yield f"{text}: {what}"
        else:
            found[known[text]] = text
    for name in study.bounds:
        if ("coefficient", name) not in found:
            yield f"{name}: a column for every coefficient is required, add this one"
    if known.keys() >= set(header) and not any(part == "value" for part, _ in found):
        tasks = ", ".join(repr(f"{task} value") for task in study.tasks)
        yield f"a column for at least one task is required, of {tasks}"


def _read_row(
    header: Sequence[str],
    columns: Sequence[_Column],
    cells: Sequence[str],
    study: Study,
) -> tuple[dict[_Column, Any], list[str]]:
    """Return the numbers of a row, and what is wrong with it."""
    if len(cells) != len(header):
        what = f"{len(header)} cells are required as in the first line, got "
        return {}, [f"{what}{len(cells)}"]
    numbers: dict[_Column, Any] = {}
    problems = []
    for text, (part, name), cell in zip(header, columns, cells, strict=True):
        if not part or (not cell and part != "coefficient"):
            continue
        numbers[part, name] = number = _number(cell)
        try:
            numbers[part, name] = number = _NUMBERS[part].validate_python(number)
        except ValidationError as error:
            problems.append(f"{text}: {in_words(error.errors(include_url=False)[0])}")
            continue
        lower, upper = study.tasks[name].bounds if part == "value" else (number, number)
        if not lower <= number <= upper:
            problems.append(
                f"{text}: values of this task lie between {lower:g} and {upper:g}, got "
                f"{cell}; write it in the task's own units"
            )
    for part, name in numbers:
        if part in {"stderr", "n"} and ("value", name) not in numbers:
            what = f"there is no value that this is the {part} of; add it"
            problems.append(f"{name}: {what}")
    return numbers, problems


def _number(cell: str) -> float | str:
    """Return a cell as a number, or as it is where it is none."""
    try:
        return float(cell)
    except ValueError:
        return cell


def _evaluations(numbers: Mapping[_Column, Any], study: Study) -> Iterator[Evaluation]:
    for task in study.tasks:
        if ("value", task) in numbers:
            yield Evaluation(
                coefficients={n: numbers["coefficient", n] for n in study.bounds},
                task=task,
                role="imported",
                value=numbers["value", task],
                stderr=numbers.get(("stderr", task)),
                n=numbers.get(("n", task), 0),
                seconds=0.0,
                merge=study.merge,
                definition=study.definitions[task],
            )


def _refuse(path: Path, problems: Sequence[str]) -> None:
    if problems:
        raise with_count(path, [f"{path}:{problem}" for problem in problems])
