"""What is gained, as the command line shows it: whole at every width."""

from __future__ import annotations

import re
from collections.abc import Sequence

import pytest
from fronts import CODE, MATH, Row, make_front
from rich.console import Console

from mergekit_map.cli.gain_table import show_gains
from mergekit_map.results.front import Front

LONG = [
    "french_reading_comprehension_choice",
    "gsm8k_cot_zeroshot_flexible_extract",
    "de",
    "humaneval_instruct_pass_at_1",
    "mmlu_pro",
    "ifeval_prompt_level_strict",
    "es_loss",
    "truthfulqa_mc2",
]
PARENT = "Meta-Llama-3-8B-french-instruct-v2"


def front_of(tasks: Sequence[str], *, measured: bool = True) -> Front:
    def row(better: float) -> Row:
        return [
            (0.6 + better * (i + 1) / 40, 0.01 + i / 100)
            if i % 2
            # Of a loss less is more.
            else (2.5 - better * (i + 1) / 10, 0.02)
            for i in range(len(tasks))
        ]

    anchors = {"base": row(0), PARENT: row(1.5), "other": row(-1), "soup": row(0.5)}
    known = row(1) if measured else [(None, None)] * len(tasks)
    about = {name: MATH if i % 2 else CODE for i, name in enumerate(tasks)}
    return make_front([(row(1), known)], anchors, tasks=about)


def shown(front: Front, width: int, **how: bool) -> str:
    console = Console(width=width, **how)  # type: ignore[arg-type]
    with console.capture() as capture:
        show_gains(front, console)
    return capture.get()


def together(text: str) -> str:
    """Join what was folded."""
    return re.sub(r"\s+", "", text)


@pytest.mark.parametrize("width", [60, 80, 120])
@pytest.mark.parametrize("count", [1, 3, 8])
def test_no_number_is_cut_at_any_width(width: int, count: int) -> None:
    output = shown(front_of(LONG[:count]), width)

    lines = output.splitlines()
    assert max(map(len, lines)) <= width
    assert "…" not in output
    numbers = re.findall(r"[+-]\d\.\d+ ± \d\.\d+ (?:better|worse|noise)", output)
    assert len(numbers) == 3 * count  # base, soup and best parent
    assert output.count("67 %") >= count
    values = [front_of(LONG[:count]).chosen.measured[task] for task in LONG[:count]]
    assert all(str(value) in output for value in values)
    # Names may be folded, between numbers of the same line.
    letters = set(together(output))
    assert {*together("".join(LONG[:count]))} <= letters


def test_a_row_is_a_merge_where_that_fits_and_a_task_where_it_does_not() -> None:
    across = shown(front_of(LONG[2:4]), 80).splitlines()
    down = shown(front_of(LONG), 120).splitlines()
    stacked = shown(front_of(LONG), 60).splitlines()

    assert any(line.split()[:2] == ["gain", "kept"] for line in across)
    assert any("uniform soup" in line and "best parent" in line for line in down)
    assert sum(line.startswith("  uniform soup") for line in stacked) == len(LONG)
