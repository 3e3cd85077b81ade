"""Import of evaluations measured elsewhere, from a CSV file to the log of a search.

A row is a merge. Its columns are the coefficients, and for each task the value in the
task's own units, its standard error and its number of items; an empty cell was not
measured. The front.csv of another run is such a file. Nothing can show that the merges
were those of the present configuration: the user asserts it by importing them.
"""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from mergekit_map.errors import ConfigError, nearest
from mergekit_map.results.log import Evaluation, EvaluationLog, Key, merge_key
from mergekit_map.results.records import LARGEST
from mergekit_map.search.measure import matching
from mergekit_map.search.study import Study
from mergekit_map.types import Metric
from mergekit_map.utils.files import StrPath, read_whole

_SHOWN = 20  # problems of a file; a wrong column can make one per row
_MOST_BYTES = 1 << 26  # of a file: a million numbers
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
# Such that no square of a sum overflows, and no weight that anybody merges by.
_LARGEST = {"coefficient": 1e9, "value": LARGEST, "stderr": LARGEST, "n": 1e15}

_LONG = 60  # characters of a cell that are shown
_COEFFICIENT = "coefficient"
# What follows the name of a task in a header, and what the column then holds; "" is
# for columns of front.csv that are not measurements.
_PARTS = {
    "": "value",
    " value": "value",
    " measured value": "value",
    " stderr": "stderr",
    " measured stderr": "stderr",
    " n": "n",
    " predicted value": "",
    " predicted stderr": "",
    " foretold value": "",
    " foretold stderr": "",
    " engine": "",
}


def read_imported(path: StrPath, study: Study) -> list[Evaluation]:
    """Read the evaluations of a CSV file, as measurements of this study.

    Raises:
        ConfigError: with all problems of the file, each with its line and column.
    """
    path = Path(path)
    (line, header), *rows = _rows(path)
    columns, problems = _read_header(header, line, study)
    _raise(path, problems)
    seen: dict[Key, tuple[int, Evaluation]] = {}
    for line, cells in rows:
        found, wrong = _read_row(cells, line, columns, study)
        problems += wrong
        for evaluation in found:
            first, known = seen.setdefault(evaluation.key, (line, evaluation))
            if known != evaluation:
                text = (
                    f"line {first} has another result of the same merge, "
                    f"{known.value:g}; remove one of the two"
                )
                problems.append(_Problem(line, evaluation.task, text))
    _raise(path, problems)
    return [evaluation for _, evaluation in seen.values()]


@dataclass(frozen=True)
class _Problem:
    line: int
    column: str
    text: str


@dataclass(frozen=True)
class _Column:
    header: str
    part: str  # coefficient, value, stderr, n, or "" for what is not read
    name: str  # of the coefficient or the task


def _rows(path: Path) -> list[tuple[int, list[str]]]:
    try:
        # Spreadsheets begin a file with a byte order mark.
        text = read_whole(path, _MOST_BYTES).decode("utf-8-sig")
        reader = csv.reader(io.StringIO(text, newline=""), strict=True)
        rows = [(reader.line_num, [c.strip() for c in row]) for row in reader]
    except FileNotFoundError:
        raise ConfigError(f"{path}: there is no such file; check the path") from None
    except OSError as error:
        raise ConfigError(
            f"{path}: cannot be read: {error}; name a file of CSV in UTF-8"
        ) from None
    except (UnicodeDecodeError, csv.Error) as error:
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
    unread = ("point", "selected", "recommended")
    columns = {name: _Column(name, "", name) for name in unread}
    for task in study.tasks:
        for suffix, part in _PARTS.items():
            columns[task + suffix] = _Column(task + suffix, part, task)
    # Last, as a task may have the name of a coefficient; it is then "TASK value".
    for name in study.bounds:
        columns[name] = _Column(name, _COEFFICIENT, name)
    return columns


def _read_header(
    header: Sequence[str], line: int, study: Study
) -> tuple[list[_Column], list[_Problem]]:
    known = _known_columns(study)
    problems = []
    columns: list[_Column] = []
    for text in header:
        column = known.get(text)
        if column is None:
            readable = [c.header for c in known.values() if c.part]
            what = f"there is no such column; {nearest(text[:_LONG], readable)}"
            problems.append(_Problem(line, _short(text), what))
            continue
        for other in columns:
            if column.part and (other.part, other.name) == (column.part, column.name):
                problems.append(_Problem(line, text, _twice(column, other, study)))
        columns.append(column)
    parts = {(column.part, column.name) for column in columns}
    for name in study.bounds:
        if (_COEFFICIENT, name) not in parts:
            what = "a column for every coefficient is required, this one is missing"
            problems.append(_Problem(line, name, what))
    if not problems and not any(part == "value" for part, _ in parts):
        tasks = ", ".join(repr(task) for task in study.tasks)
        what = f"a column for at least one task is required; the tasks are {tasks}"
        problems.append(_Problem(line, "", what))
    return columns, problems


def _twice(column: _Column, other: _Column, study: Study) -> str:
    if column.part == _COEFFICIENT and column.name in study.tasks:
        return f"is the coefficient; name the task's column '{column.name} value'"
    return f"the column {other.header!r} says the same; remove one of them"


def _read_row(
    cells: Sequence[str], line: int, columns: Sequence[_Column], study: Study
) -> tuple[list[Evaluation], list[_Problem]]:
    if len(cells) != len(columns):
        what = f"{len(columns)} cells are required as in the first line, got "
        return [], [_Problem(line, "", f"{what}{len(cells)}")]
    numbers: dict[tuple[str, str], float] = {}
    problems = []
    for column, text in zip(columns, cells, strict=True):
        if not column.part or (not text and column.part != _COEFFICIENT):
            continue
        try:
            number = _read_cell(text, column, study.tasks)
        except ValueError as error:
            problems.append(_Problem(line, column.header, str(error)))
        else:
            numbers[column.part, column.name] = number
    if problems:
        return [], problems
    for part, name in numbers:
        if part in {"stderr", "n"} and ("value", name) not in numbers:
            what = f"there is no value that this is the {part} of; add it"
            problems.append(_Problem(line, name, what))
    return list(_evaluations(numbers, study)), problems


def _read_cell(text: str, column: _Column, tasks: Mapping[str, Metric]) -> float:
    """Read one number.

    Raises:
        ValueError: with what was required and got.
    """
    # More than JSON and spreadsheets write is no number: 1_000, or digits of others.
    number = float(text) if _NUMBER.fullmatch(text) else math.nan
    if not math.isfinite(number):
        empty = "" if column.part == _COEFFICIENT else ", or an empty cell,"
        raise ValueError(f"a finite number{empty} is required, got {_short(text)!r}")
    if abs(number) > _LARGEST[column.part]:
        raise ValueError(
            f"a number of at most {_LARGEST[column.part]:g} is required, got {number:g}"
        )
    if column.part == "stderr" and number < 0:
        raise ValueError(f"a standard error is 0 or more, got {text}")
    if column.part == "n" and (number < 0 or number != int(number)):
        raise ValueError(f"a whole number of items is required, got {text}")
    if column.part == "value":
        lower, upper = tasks[column.name].bounds
        if not lower <= number <= upper:
            raise ValueError(
                f"values of this task lie between {lower:g} and {upper:g}, got {text}; "
                "write it in the task's own units"
            )
    return number


def _short(text: str) -> str:
    return text if len(text) <= _LONG else f"{text[:_LONG]} ..."


def _evaluations(
    numbers: Mapping[tuple[str, str], float], study: Study
) -> Iterator[Evaluation]:
    for task in study.tasks:
        if ("value", task) in numbers:
            yield Evaluation(
                coefficients={n: numbers[_COEFFICIENT, n] for n in study.bounds},
                task=task,
                role="imported",
                value=numbers["value", task],
                stderr=numbers.get(("stderr", task)),
                n=int(numbers.get(("n", task), 0)),
                seconds=0.0,
                merge=study.merge,
                definition=study.definitions[task],
            )


def _raise(path: Path, problems: Sequence[_Problem]) -> None:
    if not problems:
        return
    reports = [
        ": ".join(filter(None, (f"{path}:{p.line}", p.column, p.text)))
        for p in problems[:_SHOWN]
    ]
    if len(problems) > _SHOWN:
        reports.append(f"and {len(problems) - _SHOWN} more")
    count = f"{len(problems)} problem{'s' if len(problems) > 1 else ''}"
    raise ConfigError("\n".join([f"{count} in {path}:", *reports]))


def add_imported(
    study: Study,
    log: EvaluationLog,
    imported: Sequence[Evaluation],
    notice: Callable[[str], None],
) -> None:
    """Append imported evaluations to the log; return what was added.

    Measurements made here stay; those of an earlier import are replaced.
    """
    if not imported:
        return
    known = {e.key: e for e in matching(study, log) if not e.failed}
    measured = {key: e for key, e in known.items() if e.role != "imported"}
    fresh = [
        e for e in imported if e.key not in measured and not _same(known.get(e.key), e)
    ]
    for evaluation in fresh:
        log.append(evaluation)
    notice(_summary(fresh, len(imported), sum(e.key in known for e in fresh)))
    for text in _contradictions(imported, measured):
        notice(text)
    for text in _remarks(study, fresh):
        notice(text)


def _same(known: Evaluation | None, imported: Evaluation) -> bool:
    if known is None:
        return False
    before, now = ((e.value, e.stderr, e.n) for e in (known, imported))
    return before == now


def _summary(fresh: Sequence[Evaluation], given: int, replaced: int) -> str:
    if not fresh:
        return f"of the {given} measurements to import none is new"
    merges = len({e.key[0] for e in fresh})
    text = (
        f"{len(fresh)} measurement{_s(len(fresh))} of {merges} merge{_s(merges)} "
        "imported, taken for merges of this configuration: they count as evaluations "
        "and are not measured again, but for points of the front"
    )
    return f"{text}; of an earlier import they replace {replaced}" if replaced else text


def _s(count: int) -> str:
    return "" if count == 1 else "s"


def _contradictions(
    imported: Iterable[Evaluation], measured: Mapping[Key, Evaluation]
) -> Iterator[str]:
    for e in imported:
        here = measured.get(e.key)
        if here is not None and here.value != e.value:
            weights = ", ".join(f"{k}={v:g}" for k, v in e.coefficients.items())
            yield (
                f"{e.task} at {weights} was measured here, so its {here.value:g} is "
                f"kept, and not the {e.value:g} of the import"
            )


def _remarks(study: Study, fresh: Sequence[Evaluation]) -> Iterator[str]:
    anchors = {merge_key(c) for c in study.fixed.values()}
    merges = {e.key[0]: e.coefficients for e in fresh if e.key[0] not in anchors}
    outside = int((~study.contains(study.vectors(merges.values()))).sum())
    if outside:
        yield f"{outside} imported merges lie outside the bounds and are not fitted"
    rough = _tasks(e for e in fresh if e.stderr is None)
    if rough:
        yield f"imported without standard errors, so all merges weigh alike: {rough}"
    slopes = _tasks(e for e in fresh if study.tasks[e.task].differentiable)
    if study.search.gradients and slopes:
        yield f"measured again, for their derivatives (search.gradients): {slopes}"
    if fresh and (study.search.strategy != "map" or study.search.design == "grid"):
        chooser = "grid" if study.search.strategy == "map" else study.search.strategy
        yield (
            f"{chooser} chooses its own merges, so that imported ones save only the "
            "evaluations of these very merges"
        )


def _tasks(evaluations: Iterable[Evaluation]) -> str:
    return ", ".join(dict.fromkeys(e.task for e in evaluations))
