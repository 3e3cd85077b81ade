"""Reuse of measurements: of earlier searches in the run folder, and of a CSV file.

A measurement is known by what was measured: the digest of the merge's recipe, in which
models stand for their content and those of weight 0 are left out, and the fingerprint
of the task. So one look-up finds it, for any paths of the models and any other models
in the search.

A row of a CSV file is a merge. Its columns are the coefficients, and for each task the
value in the task's own units, its standard error and its number of items; an empty cell
was not measured. The front.csv of another run is such a file. Nothing can show that the
merges were those of the present configuration: the user asserts it by importing them.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from pydantic import TypeAdapter, ValidationError

from mergekit_map.config.problems import in_words
from mergekit_map.config.tasks import LONGEST_TASK
from mergekit_map.config.yaml_file import with_count
from mergekit_map.errors import ConfigError, nearest
from mergekit_map.results.log import (
    Count,
    Evaluation,
    EvaluationLog,
    Key,
    Role,
    merge_key,
)
from mergekit_map.results.records import Finite, Stderr
from mergekit_map.results.run_folder import RunFolder
from mergekit_map.results.samples import copy_samples
from mergekit_map.search.measure import matching
from mergekit_map.search.study import Study
from mergekit_map.utils.files import StrPath, read_whole
from mergekit_map.utils.progress import warn

# Whose measurements nobody misses in a search.
_APART: frozenset[Role] = frozenset({"baseline", "checkpoint", "holdout"})
_MOST_BYTES = 1 << 26  # of a CSV file: a million numbers
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


def reuse_measurements(
    study: Study, log: EvaluationLog, run: RunFolder, changed: str
) -> None:
    """Copy the measurements of the same merges into the log, as of this search.

    ``changed`` names the settings that differ from the search before.
    """
    found = [pair for part in study.parts for pair in _copied(part, log, run)]
    if found:
        merges = len({new.key[0] for _, new in found})
        warn(
            f"{len(found)} measurements of {merges} merges of an earlier search are "
            "fitted, too, and not repeated"
        )
    known = (e for part in study.parts for e in matching(part, log))
    used = {id(e) for e in (*known, *(e for e, _ in found))}
    _report_unused(study, log, used, changed)


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


def add_imported(
    study: Study, log: EvaluationLog, imported: Sequence[Evaluation]
) -> None:
    """Append imported evaluations to the log, and notify of what was added.

    Measurements made here stay; those of an earlier import are replaced.
    """
    if not imported:
        return
    known = {e.key: e for e in matching(study, log) if not e.failed}
    fresh = [
        e
        for e in imported
        if (here := known.get(e.key)) is None
        or (
            here.role == "imported"
            and (here.value, here.stderr, here.n) != (e.value, e.stderr, e.n)
        )
    ]
    for e in fresh:
        log.append(e)
    merges = {e.key[0]: e.coefficients for e in fresh}
    fitted = int(study.contains(study.vectors(merges.values())).sum())
    warn(
        f"{len(fresh)} measurements of {len(merges)} merges imported, taken for merges "
        f"of this configuration; {fitted} lie within the bounds and are fitted; "
        f"{len(imported) - len(fresh)} measurements were known, and those here are kept"
    )


def _copied(
    study: Study, log: EvaluationLog, run: RunFolder
) -> list[tuple[Evaluation, Evaluation]]:
    """Copy measurements, and return them with their copies."""
    others = [e for e in log if e.merge != study.merge and e.role not in _APART]
    pairs = [(e, _translated(study, e)) for e in others if e.error is None]
    found = [(e, new) for e, new in pairs if new is not None]
    here = [e for e in log if e.merge == study.merge and e.error is None]
    own = {(e.key, e.definition) for e in here if e.taken is None}
    taken = {_mark(e.key, e) for e in here}
    for e, new in found:
        if (new.key, e.definition) in own or _mark(new.key, e) in taken:
            continue
        taken.add(_mark(new.key, e))
        source, target = run.samples(e.merge) / e.task, run.samples(study.merge)
        copy_samples(source, e.coefficients, target / e.task, new.coefficients)
        log.append(new)
    return found


def _translated(study: Study, e: Evaluation) -> Evaluation | None:
    """Return a measurement as one of this search; None where it has no such merge.

    A model that only one of the searches has weighs 0. Coefficients whose models were
    renamed are matched by their order.
    """
    if e.definition != study.definitions.get(e.task) or study.recipe is None:
        return None
    by_name = {name: e.coefficients.get(name, 0.0) for name in study.bounds}
    by_order = dict(zip(study.bounds, e.coefficients.values(), strict=False))
    for merge in (by_name, by_order):
        if len(merge) == len(study.bounds) and study.recipe(merge) == e.recipe:
            anchors = map(merge_key, study.fixed.values())
            former = e.role == "anchor" and merge_key(merge) not in anchors
            changes = {
                "coefficients": merge,
                "role": "design" if former else e.role,
                "merge": study.merge,
                "foretold": None,  # by other surrogates
                "taken": e.merge,
            }
            return e.model_copy(update=changes)
    return None


def _mark(key: Key, e: Evaluation) -> tuple[Any, ...]:
    return key, e.definition, e.n, e.value


def _report_unused(
    study: Study, log: EvaluationLog, used: Collection[int], changed: str
) -> None:
    known = (e for e in log if e.task in study.tasks and e.role not in _APART)
    unused = [e for e in known if id(e) not in used]
    redefined = sum(e.merge == study.merge for e in unused)
    reasons = {"the task definition": redefined, changed: len(unused) - redefined}
    for reason, count in reasons.items():
        if count:
            warn(
                f"{count} measurements in {log.path} are kept but not used: {reason} "
                "changed; front and recipes will be those of the new search"
            )


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
