"""Every number that a page quotes as measured is one of a kept result."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from decimal import ROUND_HALF_UP, Decimal

import pytest
from figures import RESULTS, kept_table
from pages import ROOT, text

UNITS = (
    "%|times|seconds?|minutes?|hours?|[MG]B|[kMB] parameters|evaluations|merges|"
    "families"
)
NUMBER = re.compile(rf"(?<![\w.])\d[\d.]*(?: to \d+)? ?(?:(?:{UNITS})(?!\w))")
PAGES = ("README.md", "docs/comparing.md", "docs/strategies.md", "docs/scale.md")

_WITH_OPPONENTS = 13  # cells of a row of the contest
_WORDS = ("none", "one", "two", "three", "four", "five", "six", "seven")

# What has a number and a unit, and is no measurement: settings of the code, choices of
# a user, definitions.
SAID = {
    "README.md": (
        "`law=95%` keeps 95 % of what the best parent gains",
        "select my-model.run --require law=95%",
    ),
    "docs/comparing.md": (
        "50 % is a tie",
        "the paper's 200 to 1000 merges",
        "search of 6, 9 and 12 merges",
    ),
    "docs/strategies.md": (
        "missed by more than 12 % of a task's range",
        "at most 0.5 % of a task's range",
        "within 3 % of the box",
        "the up to 6 merges of step 5",
        "(N+1)(N+2)/2 merges",
        "up to 10 times the default number",
        "`evaluations` merges (20 by default)",
    ),
    "docs/scale.md": (
        "8 evaluations and up to 6 of the front",
        "A text by default has 65536 tokens, 32 times more",
        "models of 10 M parameters",
        "A search of up to 30 evaluations",
        "8 B parameters, likelihoods against stock lm-eval",
    ),
}


def lost(family: str, documents: int, digits: str) -> Decimal:
    """Return by how many per cent of the hypervolume a front is worse for a subset."""
    rows = kept_table("documents.md", "family")
    whole, subset = (
        next(Decimal(r[5].split()[0]) for r in rows if r[:2] == [family, measured])
        for measured in ("all", str(documents))
    )
    return (100 * (whole - subset)).quantize(Decimal(digits), ROUND_HALF_UP)


def subsets() -> str:
    worst = max(lost("docs2", documents, "0.01") for documents in (16, 32, 64))
    return (
        f"16 to 64 of 128 blocks of text cost at most {worst} % of a front's "
        "hypervolume"
    )


def questions() -> str:
    most, less = lost("acc2_200", 64, "1"), lost("acc2_200", 32, "1")
    assert less == lost("acc2_200", 16, "1")
    return f"64 cost {most} % and fewer cost {less} %"


def covered() -> str:
    _, *rows = kept_table("documents_unbiased.md", "documents")
    shares = [float(cell) for row in rows for cell in row[4:6]]
    least, most = (round(100 * end) for end in (min(shares), max(shares)))
    return f"95 % intervals of either covered what they are of in {least} to {most} %"


def contest() -> str:
    """Count families where BoTorch had the better front after 16 merges."""
    parts = (RESULTS / "contest_fits.md").read_text(encoding="utf-8").split("\n## ")[2:]
    ahead: dict[str, bool] = {}
    for part in parts:
        lines = [line for line in part.splitlines() if line.startswith("| ours | 10 |")]
        cells = [[cell.strip(" *") for cell in row.split("|")[1:-1]] for row in lines]
        for row in cells:
            if len(row) == _WITH_OPPONENTS and row[-1]:
                ours, theirs = (float(cell.split()[0]) for cell in (row[3], row[-1]))
                ahead[part.split("\n")[0]] = theirs > ours
    losses = [better for name, better in ahead.items() if not name.startswith("acc")]
    assert ahead["acc2_30"]
    assert ahead["acc2_50"]
    return (
        f"After 16 merges qLogNEHVI of BoTorch has measured a better front on "
        f"{_WORDS[sum(losses)]} of the {_WORDS[len(losses)]} families of losses that "
        "it searched, and on accuracies of 30 and 50 questions"
    )


def workers() -> str:
    rows = {row[0]: row[1:] for row in kept_table("workers.md", "search")}
    alone, two, threads = (
        round(float(rows[way][0]))
        for way in (
            "one process of one thread",
            "two workers of one thread",
            "one process of two threads",
        )
    )
    share = rows["two workers of one thread"][1]
    return (
        f"{alone} seconds by one process of one thread, {two} seconds by two workers "
        f"({share}), {threads} seconds by one process of two threads"
    )


# What is quoted as measured, from what was kept.
QUOTED: dict[str, tuple[Callable[[], str], ...]] = {
    "docs/strategies.md": (
        *(subsets, questions, covered),
        contest,
    ),
    "docs/scale.md": (workers,),
}


def prose(page: str) -> str:
    """Give a page without tables that are made, blocks and commands, on one line.

    Those of the README stay: its demo ends as one did.
    """
    found = re.sub(r"<!-- made: .*?<!-- end -->", "", text(page), flags=re.S)
    found = re.sub(r"^```yaml\n.*?^```", "", found, flags=re.M | re.S)
    if page == "README.md":
        found = found.replace(demo_block(), "")
    return " ".join(found.split())


def demo_block() -> str:
    """Give how the README says that the demo ends."""
    found = re.search(r"^```text\n(.*?)^```", text("README.md"), re.M | re.S)
    assert found is not None
    return found[1]


@pytest.mark.parametrize("page", PAGES)
def test_every_number_with_a_unit_is_quoted_from_a_result_or_is_no_measurement(
    page: str,
) -> None:
    rest = prose(page)

    for phrase in (*(quote() for quote in QUOTED.get(page, ())), *SAID.get(page, ())):
        assert phrase in rest, f"{page} does not say: {phrase}"
        rest = rest.replace(phrase, "")

    unknown = [
        rest[max(0, m.start() - 50) : m.end() + 30] for m in NUMBER.finditer(rest)
    ]
    assert unknown == []


def test_the_demo_ended_as_the_readme_says() -> None:
    kept = json.loads((ROOT / "docs" / "results" / "demo.json").read_text())

    # What + and ± mean is left out there.
    legend = re.compile(r"^\+ is how far .*?\n\n", re.M | re.S)
    assert demo_block() == legend.sub("", kept["end"])
