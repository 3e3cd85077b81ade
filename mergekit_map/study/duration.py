"""How long a search takes with some workers, from what one merge takes.

    loading + sum over rounds of (writing + slowest share of measuring + planning)

Merges of one round do not wait for each other; where they are fewer than the workers,
as in a search that refines, each is shared out by its tasks and by their pieces.
"""

from __future__ import annotations

import heapq
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from mergekit_map.measurement import Measurement
from mergekit_map.results.log import Evaluation
from mergekit_map.study.bayesian import N_ROUND
from mergekit_map.study.fitting import fit_surrogates
from mergekit_map.study.forecast import forecast, n_confirming, share_asked
from mergekit_map.study.grouping import first_candidates
from mergekit_map.study.planning import next_round
from mergekit_map.study.study import Study

WORKERS = (1, 8, 64)


@dataclass(frozen=True)
class Parts:
    """What the parts of a search take, in seconds."""

    loading: float  # of the models: workers do it side by side
    writing: float  # of one merge
    planning: float  # of one round
    tasks: Mapping[str, float]  # on all documents of each, by one worker
    pieces: Mapping[str, int]  # that workers can share of each
    documents: Mapping[str, int]


@dataclass(frozen=True)
class Duration:
    """How long a search takes with so many workers, in seconds."""

    workers: int
    seconds: float  # the sum of these:
    loading: float
    writing: float
    measuring: float
    planning: float
    bound: str  # what most of it is


@dataclass(frozen=True)
class _Round:
    """Merges that are measured on a share of the documents of each task."""

    merges: int
    shares: Mapping[str, float]


def durations(
    study: Study, parts: Parts, merges: int, workers: Sequence[int] = WORKERS
) -> tuple[Duration, ...]:
    """Say how long a search of so many merges takes; nothing where pairs are searched.

    Raises:
        DesignError: fewer evaluations than anchors, or than a surrogate needs.
    """
    if study.search.strategy == "nested":
        return ()
    rounds = _rounds(study, parts, merges)
    return tuple(_duration(rounds, parts, count) for count in workers)


def time_planning(study: Study, measured: Mapping[str, Measurement]) -> float:
    """Time a plan for a next merge, from made-up values near those of one merge."""
    if not study.search.refines:
        return 0.0
    planned = next_round(study, [], [])
    known = [
        Evaluation(
            coefficients=merge,
            task=task,
            role="design",
            value=found.value * (1 + 0.01 * sum(c * c for c in merge.values())),
            stderr=found.stderr,
            n=found.n,
            seconds=0.0,
            merge=study.merge,
            definition=study.definitions[task],
        )
        for _, merge in planned
        for task, found in measured.items()
    ]
    for _ in range(2):  # the first time has libraries to import
        started = time.perf_counter()
        surrogates = fit_surrogates(study, known)
        next_round(study, [planned], known, surrogates)
        taken = time.perf_counter() - started
    return taken


def _rounds(study: Study, parts: Parts, merges: int) -> list[_Round]:
    whole = dict.fromkeys(study.tasks, 1.0)
    share = {t: share_asked(study, t, parts.documents[t]) for t in study.tasks}
    first = len(next_round(study, [], []))
    if study.in_part:
        # What is asked of a merge depends on what others answered.
        anchors = min(len(first_candidates(study)), first)
        later = merges - anchors + study.search.remeasure
        ends = [_Round(1, whole)] * (1 + len(study.tasks))
        rounds = [_Round(anchors, whole), *[_Round(1, share)] * later, *ends]
    else:
        if study.search.strategy == "bayesian":
            later, left = divmod(merges - first, N_ROUND)
            sizes = [first, *[N_ROUND] * later, *[left] * bool(left)]
        elif study.search.refines:
            sizes = [first, *[1] * (merges - first)]
        else:
            sizes = [merges]
        sizes += [1] * forecast(study, checkpoints=False).front
        rounds = [_Round(size, whole) for size in sizes]
    if apart := n_confirming(study):
        held_out = study.search.holdout or 0.0
        rounds.append(_Round(apart, dict.fromkeys(whole, held_out / (1 - held_out))))
    return rounds


def _duration(rounds: Sequence[_Round], parts: Parts, workers: int) -> Duration:
    writing = measuring = 0.0
    known: dict[tuple[float, ...], float] = {}
    for this in rounds:
        each = {t: share * parts.tasks[t] for t, share in this.shares.items()}
        full, rest = divmod(this.merges, workers)
        writing += (full + bool(rest)) * parts.writing
        measuring += full * sum(each.values())
        if rest:
            key = (workers // rest, *each.values())
            if key not in known:
                known[key] = _slowest(each, parts.pieces, workers // rest)
            measuring += known[key]
    planning = len(rounds) * parts.planning
    taken = {
        "loading the models": parts.loading,
        "writing merges": writing,
        "planning": planning,
        _measuring(parts, workers): measuring,
    }
    most = max(taken, key=lambda what: taken[what])
    total = sum(taken.values())
    return Duration(workers, total, parts.loading, writing, measuring, planning, most)


def _measuring(parts: Parts, workers: int) -> str:
    """Say what measuring waits for: all of it, or what cannot be shared further."""
    longest = {task: s / parts.pieces[task] for task, s in parts.tasks.items()}
    slowest = max(longest, key=lambda task: longest[task])
    if longest[slowest] <= sum(parts.tasks.values()) / workers:
        return "measuring"
    if parts.pieces[slowest] == 1:
        return f"{slowest}, which is one piece"
    return f"the pieces of {slowest}"


def _slowest(
    tasks: Mapping[str, float], pieces: Mapping[str, int], workers: int
) -> float:
    """Share out the pieces of a merge, the longest first; gives the latest end."""
    if workers == 1:
        return sum(tasks.values())
    work = [s / pieces[task] for task, s in tasks.items() for _ in range(pieces[task])]
    ends = [0.0] * workers
    for seconds in sorted(work, reverse=True):
        heapq.heapreplace(ends, ends[0] + seconds)
    return max(ends)
