"""Plant small faults in the numeric part, one at a time, and see which no test notices.

    .venv/bin/python benchmarks/mutants.py --sample 100

A fault is a changed comparison, constant, sign, operator or choice of extremes, a
condition turned round, or a line ``x = f(x)`` left out; also of constants of a module,
which mutmut leaves alone (it looks into functions only, knows no samples, and first
runs the whole suite). It is planted in a copy. Tests are those of the room and of the
rooms in ``TESTS``, without the slow ones, in a process forked from one that has
imported what is heavy. What was tried is kept in a file, by which the same command goes
on; a file whose source has changed is tried again. An equivalent mutant survives
rightly: a survivor is to be looked at, not to be counted.
"""

from __future__ import annotations

import argparse
import ast
import copy
import importlib
import json
import multiprocessing
import os
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from hashlib import sha256
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SOURCES = (
    "mergekit_map/search/*.py",
    "mergekit_map/study/*.py",
    "mergekit_map/results/verdicts.py",
    "mergekit_map/results/choosing.py",
    "mergekit_map/compare/indicators.py",
    "mergekit_map/compare/scores.py",
    "mergekit_map/compare/contest.py",
)
TESTS = {  # by room, beside those of the module itself
    "search": ("tests/search", "tests/study"),
    "study": ("tests/study", "tests/compare/test_contest.py"),
    "results": ("tests/results", "tests/steps/test_select.py", "tests/study"),
    "compare": ("tests/compare",),
}
HEAVY = ("torch", "transformers", "scipy.optimize", "sklearn", "pymoo", "mergekit")
SWAPPED = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.Pow: ast.Mult,
    ast.And: ast.Or,
    ast.Or: ast.And,
}
OPPOSITES = [("min", "max"), ("argmin", "argmax"), ("any", "all")]
OPPOSITES += [("minimum", "maximum"), ("floor", "ceil"), ("nanmin", "nanmax")]
RENAMED = dict(OPPOSITES) | {second: first for first, second in OPPOSITES}


@dataclass(frozen=True)
class Mutant:
    """A fault: some characters of a file, and what stands there instead."""

    file: str
    source: str  # digest of the file without the fault
    line: int
    start: int
    end: int
    before: str
    after: str
    text: str  # of the line

    def planted(self, text: str) -> str:
        """Put the fault into the text of its file."""
        return text[: self.start] + self.after + text[self.end :]

    def __str__(self) -> str:
        """Say where it is, as compilers do."""
        before, after = (" ".join(t.split()) for t in (self.before, self.after))
        return f"{self.file}:{self.line}: {before} -> {after}  |  {self.text}"


def mutants_of(file: str, text: str) -> Iterator[Mutant]:
    """List the faults of a file, from the top."""
    starts, digest = _line_starts(text), sha256(text.encode()).hexdigest()[:16]
    raw, rows = text.encode(), text.splitlines()
    for node in _numeric(ast.parse(text)):
        # Columns are bytes of UTF-8.
        places = (node.lineno, node.col_offset), (node.end_lineno, node.end_col_offset)
        start, end = (
            len(raw[: starts[line - 1] + column].decode()) for line, column in places
        )
        for after in _changed(node):
            code, row = text[start:end], rows[node.lineno - 1].strip()
            yield Mutant(file, digest, node.lineno, start, end, code, after, row)


def _line_starts(text: str) -> list[int]:
    starts = [0]
    for line in text.encode().splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    return starts


def _numeric(node: ast.AST) -> Iterator[ast.AST]:
    """Walk what is computed: no annotations, no sentences, no errors raised.

    A condition comes wrapped, as what may be turned round.
    """
    if isinstance(node, ast.Raise | ast.JoinedStr | ast.Import | ast.ImportFrom):
        return
    if isinstance(node, ast.stmt | ast.expr):
        yield node
    if isinstance(node, ast.If | ast.IfExp):
        yield ast.copy_location(ast.Await(node.test), node.test)  # a wrapping, no more
    for name, field in ast.iter_fields(node):
        if name in {"annotation", "returns", "decorator_list"}:
            continue
        for child in field if isinstance(field, list) else [field]:
            if isinstance(child, ast.AST):
                yield from _numeric(child)


def _changed(node: ast.AST) -> Iterator[str]:
    """Write what may stand in the place of a piece of code."""
    match node:
        case ast.Compare(ops=[op]) if type(op) in SWAPPED:
            yield _with(node, ops=[SWAPPED[type(op)]()])
        case ast.BinOp(op=op) | ast.BoolOp(op=op) if type(op) in SWAPPED:
            yield _with(node, op=SWAPPED[type(op)]())
        case ast.UnaryOp(op=ast.USub() | ast.Not(), operand=operand):
            yield f"({ast.unparse(operand)})"
        case ast.Constant(value=bool(value)):
            yield repr(not value)
        case ast.Constant(value=int(value)):
            yield repr(value + 1)
        case ast.Constant(value=float(value)):
            yield repr(value * 2 if value else 1.0)
        case ast.Name(id="min" | "max" | "any" | "all" as name):
            yield RENAMED[name]
        case ast.Attribute(attr=name) if name in RENAMED:
            yield _with(node, attr=RENAMED[name])
        case ast.Await(value=test):
            yield f"not ({ast.unparse(test)})"
        case ast.Assign(targets=[ast.Name(id=name)], value=value):
            names = {n.id for n in ast.walk(value) if isinstance(n, ast.Name)}
            if name in names:
                yield "pass"
        case ast.AugAssign():
            yield "pass"


def _with(node: ast.AST, **fields: object) -> str:
    changed = copy.copy(node)
    for name, value in fields.items():
        setattr(changed, name, value)
    return ast.unparse(changed)


def all_mutants() -> list[Mutant]:
    """List the faults of all sources."""
    files = sorted(path for pattern in SOURCES for path in ROOT.glob(pattern))
    return [
        mutant
        for path in files
        for mutant in mutants_of(path.relative_to(ROOT).as_posix(), path.read_text())
    ]


def tests_of(file: str) -> list[str]:
    """List the tests for a file, its own first."""
    room, name = Path(file).parts[-2:]
    own = ROOT / "tests" / room / f"test_{name}"
    first = [own.relative_to(ROOT).as_posix()] if own.exists() else []
    return first + [test for test in TESTS[room] if test not in first]


def outcome(tests: list[str], place: Path, limit: float) -> str:
    """Run tests in a copy: passed, failed, or out of time."""
    process = multiprocessing.get_context("fork").Process(
        target=_run, args=(tests, place)
    )
    process.start()
    process.join(limit)
    if process.is_alive():
        process.kill()
        process.join()
        return "out of time"
    return "passed" if process.exitcode == 0 else "failed"


def _run(tests: list[str], place: Path) -> None:
    os.chdir(place)
    sys.path.insert(0, str(place))
    for stream in (1, 2):
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream)
    import pytest

    options = ["-x", "-q", "-n0", "-p", "no:cacheprovider", "-m", "not slow"]
    options += ["-W", "ignore:Module already imported"]  # by the process before
    code = pytest.main([*options, *tests])
    import mergekit_map

    inside = Path(mergekit_map.__file__).is_relative_to(place)
    os._exit(int(code) if inside else 99)


def try_all(mutants: list[Mutant], place: Path, kept: Path, limit: float) -> None:
    """Plant one after the other, and keep what became of it."""
    for room in sorted({Path(mutant.file).parts[-2] for mutant in mutants}):
        started = time.monotonic()
        if (found := outcome(list(TESTS[room]), place, limit)) != "passed":
            raise SystemExit(f"without any fault the tests of {room} have {found}")
        print(f"{room}: {time.monotonic() - started:.0f} s without a fault", flush=True)
    for number, mutant in enumerate(mutants, start=1):
        file = place / mutant.file
        text = file.read_text()
        file.write_text(mutant.planted(text))
        found = outcome(tests_of(mutant.file), place, limit)
        file.write_text(text)
        with kept.open("a") as log:
            log.write(json.dumps({**asdict(mutant), "outcome": found}) + "\n")
        word = "SURVIVED" if found == "passed" else found
        print(f"{number}/{len(mutants)} {word}: {mutant}", flush=True)


def read_outcomes(kept: Path) -> dict[Mutant, str]:
    """Read what became of the faults that were tried, the last time each."""
    lines = kept.read_text().splitlines() if kept.exists() else []
    records = [json.loads(line) for line in lines]
    return {Mutant(**r): found for r in records for found in [r.pop("outcome")]}


def main() -> None:
    """Try a sample, and print all survivors."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sample", type=int, default=100, help="how many faults")
    parser.add_argument("--seed", type=int, default=0, help="which of them")
    parser.add_argument(
        "--only", default="", help="files whose names have this in them"
    )
    parser.add_argument("--limit", type=float, default=300, help="seconds for each")
    parser.add_argument("--again", action="store_true", help="try survivors again")
    parser.add_argument("--kept", type=Path, default=ROOT / "build" / "mutants.jsonl")
    options = parser.parse_args()

    every = [m for m in all_mutants() if options.only in m.file]
    sample = random.Random(options.seed).sample(every, len(every))[: options.sample]
    known = read_outcomes(options.kept)
    done = {m for m, found in known.items() if not options.again or found != "passed"}
    todo = [m for m in sample if m not in done]
    print(f"{len(sample)} of {len(every)} faults, {len(todo)} to be tried")
    options.kept.parent.mkdir(parents=True, exist_ok=True)
    sys.dont_write_bytecode = True  # a fault may be as long as what was there
    os.environ["OMP_NUM_THREADS"] = "1"
    for name in HEAVY:
        importlib.import_module(name)
    with tempfile.TemporaryDirectory() as scratch:
        place = Path(scratch, "copy")
        skipped = shutil.ignore_patterns("__pycache__", ".*", "build", "*.egg-info")
        shutil.copytree(ROOT, place, ignore=skipped)
        try_all(todo, place, options.kept, options.limit)
    known = read_outcomes(options.kept)
    print("", *sorted(str(m) for m in sample if known[m] == "passed"), sep="\n")
    print(dict(Counter(known[m] for m in sample)))


if __name__ == "__main__":
    main()
