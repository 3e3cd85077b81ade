"""Reuse of measurements: of earlier searches in the run folder, and of a CSV file.

A measurement is known by what was measured: the digest of the merge's recipe, in which
models stand for their content and those of weight 0 are left out, and the fingerprint
of the task. One look-up finds it, wherever models lie and whatever others there are.

A row of a CSV file is a merge. Its columns are the coefficients, and for each task the
value in the task's own units, its standard error and its number of items; an empty cell
was not measured. Nothing can show that the merges were those of the present
configuration: the user asserts it by importing them.
"""

from __future__ import annotations

import csv
import io
import itertools
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, Field, ValidationError, create_model

from mergekit_map.config.problems import in_words
from mergekit_map.config.tasks import LONGEST_TASK
from mergekit_map.config.yaml_file import with_count
from mergekit_map.errors import ConfigError
from mergekit_map.results.log import Count, Evaluation, EvaluationLog, Key, Role
from mergekit_map.results.records import LARGEST, Finite, Stderr
from mergekit_map.results.samples import copy_samples
from mergekit_map.results.surrogates import MOST_MERGES, is_assessed, is_fitted
from mergekit_map.search.measure import matching
from mergekit_map.search.study import Study
from mergekit_map.utils.files import StrPath, read_whole
from mergekit_map.utils.progress import warn
from mergekit_map.utils.text import nearest

# Roles of measurements that a search does without.
_APART: frozenset[Role] = frozenset({"baseline", "checkpoint", "holdout"})
_MOST_BYTES = 1 << 24  # of a CSV file


def reuse_measurements(study: Study, log: EvaluationLog, changed: str) -> None:
    """Copy the measurements of the same merges into the log, as of this search.

    ``changed`` names the settings that differ from the search before.
    """
    copies = [pair for part in study.parts for pair in _copy_all(part, log)]
    if fitted := [copy for _, copy in copies if is_fitted(copy)]:
        n, merges = len({*map(_identity, fitted)}), len({e.key[0] for e in fitted})
        warn(
            f"{n} measurements of {merges} merges of an earlier search are fitted, "
            "too, and not repeated"
        )
    own = (e for part in study.parts for e in matching(part, log))
    used = {id(e) for e in (*own, *(original for original, _ in copies))}
    unused = [e for e in log if e.role not in _APART and id(e) not in used]
    present = {part.merge for part in study.parts}
    n_redefined = sum(e.merge in present for e in unused)
    tasks = "the tasks or their definitions"
    reasons = {tasks: n_redefined, changed: len(unused) - n_redefined}
    for reason, count in reasons.items():
        if count:
            warn(
                f"{count} measurements in {log.path} are kept but not used: {reason} "
                "changed; front and recipes will be those of the new search"
            )


def read_imported(path: StrPath, study: Study) -> list[Evaluation]:
    """Read the evaluations of a CSV file, or raise ConfigError with all problems."""
    path = Path(path)
    (number, header), *rows = _rows(path)
    # A task may have the name of a coefficient; its column is then "TASK value".
    tasks = study.tasks.keys() - study.bounds.keys()
    columns = [f"{text} value" if text in tasks else text for text in header]
    problems = [f"{number}: {text}" for text in _header_problems(columns, study)]
    row_type = _row_type(study)
    known: dict[Key, Evaluation] = {}
    for line, cells in () if problems else rows:
        if len(cells) != len(columns):
            problems.append(f"{line}: got {len(cells)} cells, not {len(columns)}")
            continue
        # Empty cells were not measured. Coefficients are required, and the value of a
        # task whose standard error is there.
        filled = {n: cell for n, cell in zip(columns, cells, strict=True) if cell}
        values = [f"{task} value" for task in study.tasks if f"{task} stderr" in filled]
        required = dict.fromkeys([*study.bounds, *values], "")
        try:
            row = row_type.model_validate(required | filled).model_dump(by_alias=True)
        except ValidationError as error:
            wrong = error.errors(include_url=False)
            problems += [f"{line}: {one['loc'][0]}: {in_words(one)}" for one in wrong]
            continue
        evaluations = {e.key: e for e in _evaluations(row, study)}
        if any(known.get(key, e) != e for key, e in evaluations.items()):
            text = "a line above has other values of this merge; remove one"
            problems.append(f"{line}: {text}")
        known |= evaluations
    if not (problems or known):
        problems.append(f"{number}: no row below has a value")
    if problems:
        raise with_count(path, [f"{path}:{problem}" for problem in problems])
    return [*known.values()]


def add_imported(
    study: Study, log: EvaluationLog, imported: Sequence[Evaluation]
) -> None:
    """Append imported evaluations to the log, and notify of what was added.

    Measurements made here stay; those of an earlier import are replaced.
    """
    if not imported:
        return
    # Read for the best device; a folder continues on that of its measurements.
    imported = [
        e.model_copy(
            update={
                "merge": study.merge,
                "definition": study.definitions[e.task],
                "recipe": study.recipe and study.recipe(e.coefficients),
            }
        )
        for e in imported
    ]
    known = {e.key: e for e in matching(study, log) if not e.failed}
    own = {key for key, e in known.items() if e.role != "imported"}
    fresh = [e for e in imported if e.key not in own and e != known.get(e.key)]
    for e in fresh:
        log.append(e)
    merges = {e.key[0]: e.coefficients for e in fresh}
    fixed = study.fixed.values()  # which are measured here
    others = study.vectors(c for c in merges.values() if c not in fixed)
    fitted = int(study.contains(others).sum())
    warn(
        f"{len(fresh)} measurements of {len(merges)} merges imported, taken for merges "
        f"of this configuration; {fitted} lie within the bounds and are fitted; "
        f"{len(imported) - len(fresh)} measurements were known, and those here are kept"
        f"; to take imports back, remove their lines from {log.path}"
    )


def _copy_all(study: Study, log: EvaluationLog) -> list[tuple[Evaluation, Evaluation]]:
    """Copy measurements of other searches, and return them with their copies."""
    others = [e for e in log if e.merge != study.merge and e.role not in _APART]
    pairs = [(e, _translated(study, e)) for e in others if e.error is None]
    copies = [(e, copy) for e, copy in pairs if copy is not None]
    known = {_identity(e) for e in log if e.merge == study.merge and e.error is None}
    latest = {_identity(c): (e, c) for e, c in copies if _identity(c) not in known}
    for e, copy in latest.values():
        source = log.folder.samples(e.merge) / e.task
        target = log.folder.samples(study.merge) / e.task
        copy_samples(source, e, target, copy.coefficients)
        log.append(copy)
    return copies


def _translated(study: Study, e: Evaluation) -> Evaluation | None:
    """Return a measurement as one of this search; None where it has no such merge.

    A model that only one of the searches has weighs 0. Coefficients whose models were
    renamed are matched by their order.
    """
    if e.definition != study.definitions.get(e.task) or study.recipe is None:
        return None
    by_name = {name: e.coefficients.get(name, 0.0) for name in study.bounds}
    in_order = itertools.chain(e.coefficients.values(), itertools.repeat(0.0))
    by_order = dict(zip(study.bounds, in_order, strict=False))
    for merge in (by_name, by_order):
        if study.recipe(merge) == e.recipe:
            # Other surrogates have foretold it. What only judged is not fitted.
            taken = None if is_assessed(e) else e.merge
            changes = {"merge": study.merge, "foretold": None, "taken": taken}
            return e.model_copy(update={"coefficients": merge, **changes})
    return None


def _identity(e: Evaluation) -> tuple[Any, ...]:
    return e.key, e.definition, e.n


def _rows(path: Path) -> list[tuple[int, list[str]]]:
    try:
        # Spreadsheets begin a file with a byte order mark.
        text = read_whole(path, _MOST_BYTES).decode("utf-8-sig")
        reader = csv.reader(io.StringIO(text, newline=""), strict=True)
        rows = [(reader.line_num, [c.strip() for c in row]) for row in reader]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise ConfigError(
            f"{path}: cannot be read as CSV in UTF-8: {error}; check the path, or save "
            "it as such"
        ) from None
    filled = [(line, row) for line, row in rows if any(row)]
    most = MOST_MERGES // 2  # and as many may be measured
    if not 2 <= len(filled) <= most + 1:
        raise ConfigError(
            f"{path}: a line of column names and a line per merge are required, at "
            f"most {most + 1}, got {len(filled)} in all"
        )
    return filled


def _header_problems(columns: Sequence[str], study: Study) -> Iterator[str]:
    known = [str(field.alias) for field in _row_type(study).model_fields.values()]
    for name, count in Counter(columns).items():
        if name not in known:
            close = nearest(name[:LONGEST_TASK], [*study.tasks, *known])
            yield f"{name or 'a nameless one'}: there is no such column; {close}"
        if count > 1:
            value = f"; the task's is {name} value" if name in study.tasks else ""
            yield f"{name}: several columns hold it; remove all but one{value}"
    if not {f"{task} value" for task in study.tasks} & {*columns}:
        yield (
            "a column 'TASK value' is required, for one task or more; columns are "
            "separated by commas, and decimals by points"
        )
    for name in study.bounds:
        if name not in columns:
            yield f"{name}: a column for every coefficient is required, add this one"


def _row_type(study: Study) -> type[BaseModel]:
    """Return the form of a row, with columns as the aliases of its fields."""
    columns: dict[str, tuple[Any, Any]] = {}
    for task, metric in study.tasks.items():
        least, most = metric.bounds
        value = Annotated[Finite, Field(ge=max(least, -LARGEST), le=min(most, LARGEST))]
        error = Annotated[Stderr, Field(le=min(most - least, LARGEST))]
        columns |= {
            f"{task} value": (value | None, None),
            f"{task} stderr": (error | None, None),
            f"{task} n": (Count, 0),
        }
    columns |= dict.fromkeys(study.bounds, (Finite, ...))
    fields: dict[str, Any] = {
        f"column_{i}": (kind, Field(default, alias=name))
        for i, (name, (kind, default)) in enumerate(columns.items())
    }
    return create_model("_Row", **fields)


def _evaluations(row: Mapping[str, Any], study: Study) -> Iterator[Evaluation]:
    for task in study.tasks:
        if row[f"{task} value"] is not None:
            yield Evaluation(
                coefficients={name: row[name] for name in study.bounds},
                task=task,
                role="imported",
                value=row[f"{task} value"],
                stderr=row[f"{task} stderr"] or None,  # 0, as lm-eval has of 20 of 20
                n=row[f"{task} n"],
                seconds=0.0,
                merge=study.merge,
                definition=study.definitions[task],
            )
