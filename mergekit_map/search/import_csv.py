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
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

from mergekit_map.errors import ConfigError, nearest
from mergekit_map.results.log import Evaluation, EvaluationLog, Key, merge_key
from mergekit_map.results.records import LARGEST
from mergekit_map.search.measure import matching
from mergekit_map.search.study import Study
from mergekit_map.types import Metric
from mergekit_map.utils.files import StrPath, read_whole

_SHOWN = 20  # problems of a file; a wrong column can make one per row
_MOST_BYTES = 1 << 26  # of a file: a million numbers
_MOST_ITEMS = 2**53  # that a float holds exactly
_LONG = 60  # characters of a cell that are shown
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
    problems = [f"{line}: {text}" for text in _header_problems(header, study)]
    _refuse(path, problems)
    seen: dict[Key, tuple[int, Evaluation]] = {}
    for line, cells in rows:
        numbers, wrong = _read_row(header, cells, study)
        problems += [f"{line}: {text}" for text in wrong]
        for e in () if wrong else _evaluations(numbers, study):
            first, known = seen.setdefault(e.key, (line, e))
            if known != e:
                problems.append(
                    f"{line}: {e.task}: line {first} has another result of the same "
                    f"merge, {known.value:g}; remove one of the two"
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


def _header_problems(header: Sequence[str], study: Study) -> Iterator[str]:
    known = _known_columns(study)
    found: dict[_Column, str] = {}
    for text in header:
        part, name = column = known.get(text, ("unknown", text))
        if part == "unknown":
            close = nearest(text[:_LONG], [name for name in known if known[name][0]])
            yield f"{_short(text)}: there is no such column; {close}"
        elif column in found and part == "coefficient" and name in study.tasks:
            yield f"{text}: is the coefficient; name the task's column '{name} value'"
        elif column in found and part:
            other = found[column]
            yield f"{text}: the column {other!r} says the same; remove one of them"
        found[column] = text
    for name in study.bounds:
        if ("coefficient", name) not in found:
            yield (
                f"{name}: a column for every coefficient is required, this one is "
                "missing"
            )
    if not any(part in {"value", "unknown"} for part, _ in found):
        tasks = ", ".join(map(repr, study.tasks))
        yield f"a column for at least one task is required; the tasks are {tasks}"


def _read_row(
    header: Sequence[str], cells: Sequence[str], study: Study
) -> tuple[dict[_Column, float], list[str]]:
    """Return the numbers of a row, and what is wrong with it."""
    if len(cells) != len(header):
        what = f"{len(header)} cells are required as in the first line, got "
        return {}, [f"{what}{len(cells)}"]
    known = _known_columns(study)
    numbers: dict[_Column, float] = {}
    problems = []
    for text, cell in zip(header, cells, strict=True):
        part, name = known[text]
        if not part or (not cell and part != "coefficient"):
            continue
        try:
            numbers[part, name] = number = float(cell)
        except ValueError:
            number = math.nan
        if wrong := _wrong_number(number, cell, part, study.tasks.get(name)):
            problems.append(f"{text}: {wrong}")
    for part, name in numbers:
        if part in {"stderr", "n"} and ("value", name) not in numbers:
            what = f"there is no value that this is the {part} of; add it"
            problems.append(f"{name}: {what}")
    return numbers, problems


def _wrong_number(
    number: float, cell: str, part: str, metric: Metric | None
) -> str | None:
    if not math.isfinite(number):
        empty = "" if part == "coefficient" else ", or an empty cell,"
        return f"a finite number{empty} is required, got {_short(cell)!r}"
    if abs(number) > LARGEST:
        return f"a number of at most {LARGEST:g} is required, got {number:g}"
    if part == "stderr" and number < 0:
        return f"a standard error is 0 or more, got {cell}"
    if part == "n" and not (0 <= number <= _MOST_ITEMS and number.is_integer()):
        return f"a whole number of items is required, got {cell}"
    lower, upper = metric.bounds if metric and part == "value" else (number, number)
    if not lower <= number <= upper:
        return (
            f"values of this task lie between {lower:g} and {upper:g}, got {cell}; "
            "write it in the task's own units"
        )
    return None


def _short(text: str) -> str:
    return text if len(text) <= _LONG else f"{text[:_LONG]} ..."


def _evaluations(
    numbers: Mapping[_Column, float], study: Study
) -> Iterator[Evaluation]:
    for task in study.tasks:
        if ("value", task) in numbers:
            yield Evaluation(
                coefficients={n: numbers["coefficient", n] for n in study.bounds},
                task=task,
                role="imported",
                value=numbers["value", task],
                stderr=numbers.get(("stderr", task)),
                n=int(numbers.get(("n", task), 0)),
                seconds=0.0,
                merge=study.merge,
                definition=study.definitions[task],
            )


def _refuse(path: Path, problems: Sequence[str]) -> None:
    if not problems:
        return
    shown = [f"{path}:{problem}" for problem in problems[:_SHOWN]]
    if len(problems) > _SHOWN:
        shown.append(f"and {len(problems) - _SHOWN} more")
    count = f"{len(problems)} problem{'s' if len(problems) > 1 else ''}"
    raise ConfigError("\n".join([f"{count} in {path}:", *shown]))


def add_imported(
    study: Study,
    log: EvaluationLog,
    imported: Sequence[Evaluation],
    notice: Callable[[str], None],
) -> None:
    """Append imported evaluations to the log, and notify of what was added.

    Measurements made here stay; those of an earlier import are replaced.
    """
    if not imported:
        return
    known = {e.key: e for e in matching(study, log) if not e.failed}
    fresh = []
    for e in imported:
        here = known.get(e.key)
        if here is None or (
            here.role == "imported"
            and (here.value, here.stderr, here.n) != (e.value, e.stderr, e.n)
        ):
            fresh.append(e)
            log.append(e)
    notice(_summary(fresh, len(imported), sum(e.key in known for e in fresh)))
    for e in imported:
        here = known.get(e.key, e)
        if here.role != "imported" and here.value != e.value:
            weights = ", ".join(f"{k}={v:g}" for k, v in e.coefficients.items())
            notice(
                f"{e.task} at {weights} was measured here, so its {here.value:g} is "
                f"kept, and not the {e.value:g} of the import"
            )
    for text in _remarks(study, fresh):
        notice(text)


def _summary(fresh: Sequence[Evaluation], given: int, replaced: int) -> str:
    if not fresh:
        return f"of the {given} measurements to import none is new"
    merges = len({e.key[0] for e in fresh})
    text = (
        f"{len(fresh)} measurements of {merges} merges imported, taken for merges of "
        "this configuration: they count as evaluations and are not measured again, "
        "but for points of the front"
    )
    return f"{text}; of an earlier import they replace {replaced}" if replaced else text


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
