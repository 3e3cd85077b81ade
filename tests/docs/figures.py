"""Tables of the pages whose numbers are counted, or copied from kept results."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from pages import ROOT

from mergekit_map.compare.opponents import OPPONENTS
from mergekit_map.config.schema import SearchSpec, SelectSpec
from mergekit_map.search.budget import forecast
from mergekit_map.search.planning import default_evaluations, design
from mergekit_map.search.study import Study
from mergekit_map.types import Metric

RESULTS = ROOT / "benchmarks" / "results"


def default_merges() -> str:
    """Write how many merges a search begins with and measures at most, by default."""
    rows = [
        (str(d), str(len(design(_study(d)))), str(default_evaluations(d)))
        for d in (1, 2, 3, 4, 6, 8)
    ]
    return _markdown(["coefficients", "merges at first", "merges at most"], rows)


def nested_measurements() -> str:
    """Write what nested and plain searches measure, by as many models as tasks."""
    rows = []
    for n in (3, 4, 6, 8):
        studies = [_study(n, strategy) for strategy in ("map", "nested")]
        merges = [forecast(study, checkpoints=False).expected for study in studies]
        rows.append([str(n), *map(str, merges)])
    return _markdown(["models", "one search, at most", "nested"], rows)


def _study(n: int, strategy: str = "map") -> Study:
    """Search n models, measured on as many tasks."""
    names = [f"m{i}" for i in range(n)]
    zero = dict.fromkeys(names, 0.0)
    return Study(
        bounds=dict.fromkeys(names, (0.0, 1.0)),
        anchors={
            "base": zero,
            **{name: {**zero, name: 1.0} for name in names},
            "soup": dict.fromkeys(names, 1 / n),
        },
        tasks=dict.fromkeys(names, Metric(True, 0.0, 1.0)),
        definitions=dict.fromkeys(names, ""),
        merge="",
        search=SearchSpec.model_validate({"strategy": strategy}),
        select=SelectSpec(),
    )


def opponents() -> str:
    """List the opponents, in the order of the command's help."""
    return ", ".join(f"`{name}`" for name in OPPONENTS) + "\n"


def kept(result: str, corner: str, columns: int | None = None) -> Callable[[], str]:
    """Copy a table that was kept, or its first columns, by its first heading."""

    def copy() -> str:
        text = (RESULTS / result).read_text(encoding="utf-8")
        pattern = rf"^\| ?{re.escape(corner)} ?\|.*?(?=\n\n|\Z)"
        found = re.search(pattern, text, re.M | re.S)
        assert found is not None, f"{result} has no table that begins with {corner!r}"
        lines = [line.strip("|").split("|") for line in found[0].splitlines()]
        header, _, *rows = [[cell.strip() for cell in line[:columns]] for line in lines]
        return _markdown(header, rows)

    return copy


def _markdown(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    rule = [" --- "] + [" ---: "] * (len(header) - 1)
    lines = [header, *rows]
    head, *body = [f"| {' | '.join(line)} |" for line in lines]
    return "\n".join([head, f"|{'|'.join(rule)}|", *body]) + "\n"


FIGURES: dict[str, Callable[[], str]] = {
    "contest-matches": kept("../../docs/results/contest.md", "models"),
    "default-evaluations": default_merges,
    "nested-measurements": nested_measurements,
    "opponents": opponents,
    "scale-parameters": kept("scale.md", "parameters"),
    "scale-tasks": kept("scale.md", "tasks"),
    "scale-models": kept("scale.md", "models"),
    "workers": kept("workers.md", "search", columns=3),
    "scale-side": kept("scale.md", "side by side"),
}
