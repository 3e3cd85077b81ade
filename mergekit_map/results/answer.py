"""The answer of a search: what terminal, report, card and ``--json`` begin with.

One sentence that decides, one table of gains, and the findings behind it, most
important first. Everything that says a number takes it from here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from mergekit_map.results.findings import (
    called,
    difference,
    findings_in_words,
    merge_name,
    wider_bounds,
)
from mergekit_map.results.front import Front, Reading
from mergekit_map.results.gains import (
    BEST_PARENT,
    Gains,
    Improvement,
    Verdict,
    gains,
    held_out_gains,
)
from mergekit_map.results.limits import MISSED, Request, limits_in_words
from mergekit_map.results.selection import MERGE, advice, beats_somewhere
from mergekit_map.types import BASE, NATS, SOUP, perplexity
from mergekit_map.utils.text import listed

VERDICTS: Mapping[Verdict, str] = {
    "better": "better",
    "worse": "worse",
    "noise": "no significant difference",
    "unknown": "no known standard error",
}
_NAMED = 4  # tasks that are named one by one
HEADINGS = ("task", "model", "value", "gain kept", "chosen merge vs this model")
_SHOWN = 3  # findings on the screen; the others are details


@dataclass(frozen=True)
class Answer:
    """The findings of a search, in the order of importance."""

    advice: str  # MERGE, or the label of the reference point to use instead
    headline: str  # the sentence that decides
    table: Sequence[tuple[str, ...]]  # rows below ``headings``
    sample: str  # on which documents the gains were measured
    findings: tuple[str, ...]  # those that change a decision
    details: tuple[str, ...] = ()  # the others, for the report and ``-v``
    wider_bounds: str = ""  # of another search, as ``--bounds`` takes them
    headings: tuple[str, ...] = HEADINGS  # of the table


def answer(front: Front) -> Answer:
    """Compose the answer of a front with its chosen point."""
    found, advised = gains(front), advice(front)
    decisive, details = findings_in_words(front)
    return Answer(
        advice=advised,
        headline=headline(front, found, advised),
        table=gain_table(front, found),
        sample=sample(front, found),
        findings=tuple(decisive[:_SHOWN]),
        details=(
            *decisive[_SHOWN:],
            front.reason,
            *_in_search(front),
            *perplexities(front, found),
            *details,
        ),
        wider_bounds=wider_bounds(front),
    )


def gain_table(front: Front, found: Gains) -> list[tuple[str, ...]]:
    """Compare the chosen merge with base, soup and best parent, task by task."""
    rows: list[tuple[str, ...]] = []
    for task, about in front.tasks.items():
        rivals = [tasks[task] for tasks in found.rivals.values() if task in tasks]
        own = value_in_words(found.readings[task])
        if found.sources[task] == "predicted":
            own = f"predicted {own}"
        name = f"{task} ({', '.join(about.facts)})"
        kept = share_in_words(found.kept[task])
        rows.append((name, "chosen merge", own, kept, ""))
        for rival in rivals:
            value = value_in_words(rival.reading)
            kept = share_in_words(found.share(task, rival.reading.value))
            compared = comparison(rival)
            if found.sources[task] == "predicted":
                compared = compared.replace("merge ", "merge predicted ", 1)
            rows.append(("", rival.other, value, kept, compared))
    return rows


def comparison(rival: Improvement) -> str:
    """Write how the chosen merge compares: ``merge better by 0.085 ± 0.012``."""
    if rival.amount == 0:
        return f"the same ± {rival.stderr:.2g}" if rival.stderr else "the same"
    amount = difference(rival.amount, rival.stderr)
    text = f"merge {'better' if rival.amount > 0 else 'worse'} by {amount[1:]}"
    doubts = {"noise": ", not significant", "unknown": ", standard error not known"}
    return text + doubts.get(rival.verdict, "")


def _in_search(front: Front) -> Iterator[str]:
    """Write the gains on the documents of the search, where others were held out."""
    texts = [
        f"{difference(one.amount, one.stderr)} on {gain.task} over {called(one.other)}"
        for gain in held_out_gains(front)
        if (one := gain.searched) is not None
    ]
    if texts:
        yield f"In the search, the gain was {listed(texts)}."


def headline(front: Front, found: Gains, advised: str) -> str:
    """Return the sentence that decides: use this merge, or another model instead."""
    if advised != MERGE:
        name = called(advised) if advised in {BASE, SOUP} else f"the model {advised}"
        verb = "keep" if advised == BASE else "use"
        return f"{_not_beaten(front, advised, name)}: {verb} {name}."
    limits = limits_in_words(front)
    missed = limits.startswith(MISSED)
    clauses = [
        limits if missed else "",
        _kept(found) or _against(found, BASE),
        _against(found, SOUP),
        "" if BASE in found.rivals else _against(found, BEST_PARENT),
        "" if missed else limits,
    ]
    first, *others = [*filter(None, clauses)] or [
        "was chosen; no reference point was measured"
    ]
    text = "; ".join([first, *(f"it {clause}" for clause in others)])
    return f"{merge_name(front, front.chosen, start=True)} {text}."


def _not_beaten(front: Front, advised: str, name: str) -> str:
    if front.select.index is not None:
        if merge_name(front, front.chosen) == called(advised):
            return f"The chosen merge is {name} itself"
        return (
            f"{merge_name(front, front.chosen, start=True)} is not better than {name}"
        )
    counted, select = Request.of(front).task_weights(), front.select
    within = " within the limits" if select.require else ""
    text = f"no merge{within} beats {name}"
    if beats_somewhere(front, advised, counted):
        total = "weighted sum" if select.prefer else "sum"
        text = (
            f"no merge{within} has a significantly larger {total} of gains than {name}"
        )
    if len(counted) == len(front.tasks):
        return f"N{text[1:]} here"
    alone = "alone counts" if len(counted) == 1 else "alone count"
    return f"On {listed(counted)}, which {alone}, {text}"


def _tasks(names: Sequence[str]) -> str:
    if not names or len(names) > _NAMED:
        return f"{len(names)} tasks"
    return listed(names)


def _kept(found: Gains) -> str:
    """Write which shares of the parents' gains the chosen merge keeps."""
    best, worse = found.over(BEST_PARENT), found.where(BASE, "worse")
    shares = {t: k for t, k in found.kept.items() if k is not None and t not in worse}
    if not shares:
        return ""
    is_, keeps, unsure = "is", "keeps", found.where(BASE, "noise")
    if "predicted" in found.sources.values():
        is_, keeps, unsure = "is predicted to be", "is predicted to keep", []
    texts: list[str] = []
    for task, share in shares.items():
        parent = best[task].other
        gain = "the gain" if parent == task else f"{parent}'s gain"
        part = "no significant part" if task in unsure else share_in_words(share)
        texts.append(f"{part} of {gain} on {task}")
    kept = f"{keeps} {listed(texts)}"
    if len(shares) > _NAMED:
        low, high = (end(shares, key=shares.__getitem__) for end in (min, max))
        ends = (f"{share_in_words(shares[task])} ({task})" for task in (low, high))
        kept = f"{keeps} {' to '.join(ends)} of the best parents' gains"
    return f"{is_} worse than the base on {_tasks(worse)}; it {kept}" if worse else kept


def _against(found: Gains, label: str) -> str:
    if all(one.stderr == 0 for one in found.over(label).values()):
        return ""  # it was not measured, or is the chosen merge itself
    tasks = {verdict: found.where(label, verdict) for verdict in VERDICTS}
    on = {verdict: _tasks(there) for verdict, there in tasks.items() if there}
    sure = [f"{v} than the {label} on {on[v]}" for v in ("better", "worse") if v in on]
    rest = [f"{VERDICTS[v]} on {on[v]}" for v in ("noise", "unknown") if v in on]
    predicted = "predicted" in found.sources.values()
    if sure:
        text = f"is {'predicted to be ' if predicted else ''}{' and '.join(sure)}"
    elif predicted:
        return f"must be measured to tell whether it is better than the {label}"
    elif "unknown" not in on:
        return f"shows {VERDICTS['noise']} from the {label}"
    else:
        text = f"differs from the {label}"
    return f"{text}, with {' and '.join(rest)}" if rest else text


def sample(front: Front, found: Gains) -> str:
    """Return on which documents the gains were measured."""
    sources, holdout = found.sources, front.holdout
    if "predicted" in sources.values():
        return (
            "The values of this merge are predicted; `mergekit-map merge` measures it."
        )
    searched = "Measured on the documents of the search"
    if holdout is None:
        if front.differences:
            counts = {task: of.items for task, of in front.differences.items()}
            searched = f"{searched} ({_counted(front, counts)})"
        return f"{searched}: gains may look better than they are."
    tasks = [task for task, source in sources.items() if source == "held-out"]
    if not tasks:
        return f"{searched}; merging it measures the held-out ones."
    counts = {task: holdout.documents.get(task, 0) for task in tasks}
    text = f"Measured on held-out documents ({_counted(front, counts)})"
    compared = held_out_gains(front)
    better = any(gain.held_out.verdict == "better" for gain in compared)
    agree = better and all(gain.confirmed for gain in compared)
    text += ". The gains agree with those of the search." if agree else "."
    if rest := [task for task in sources if task not in tasks]:
        text += f" Values of {listed(rest)} are from the documents of the search."
    if holdout.choices > 1:
        text += (
            f" {holdout.choices} merges have been measured on the held-out documents: "
            "if you take the best of them, its gains look a little too good."
        )
    return text


def advice_on_sample(front: Front) -> str:
    """Return how whoever searches checks gains on other documents; "" if they are.

    Only tasks with documents can be.
    """
    alone = {*front.tasks} - {*front.differences}
    measured = front.chosen.is_measured(*front.tasks)
    if front.holdout or front.unfinished or alone or not measured:
        return ""
    return "To check them on other documents, search with `--holdout 0.3`."


def _counted(front: Front, counts: Mapping[str, int]) -> str:
    """Write how many documents tasks have: ``fr: 20 blocks of text``."""
    texts = [front.tasks[task].unit == NATS for task in counts]
    return ", ".join(
        f"{task}: {count} blocks of text" if is_text else f"{task}: {count} documents"
        for is_text, (task, count) in zip(texts, counts.items(), strict=True)
    )


def share_in_words(share: float | None) -> str:
    """Write ``84 %``; a dash where no parent gains anything."""
    return "-" if share is None else f"{round(100 * share) + 0} %"


def value_in_words(reading: Reading) -> str:
    """Write a value with four digits, without its standard error.

    Differences have others, as merges answer the same documents.
    """
    if reading.value is None:
        return "-"
    some = "" if reading.documents is None else f" ({reading.documents} documents)"
    return f"{reading.value:#.4g}".rstrip(".") + some


def perplexities(front: Front, found: Gains) -> Iterator[str]:
    """Write the losses of the chosen merge as perplexities."""
    texts = [
        f"{perplexity(reading.value)} on {task}"
        for task, reading in found.readings.items()
        if front.tasks[task].unit == NATS and reading.value is not None
    ]
    if texts:
        yield f"As a perplexity the chosen merge has {listed(texts)}."
