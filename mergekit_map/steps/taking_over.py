"""What earlier searches of a run folder measured of merges that the present one has.

A model that was added weighs nothing in all merges of the smaller search. Before their
measurements are taken over, mergekit writes such a merge with that model and without
it, and every file must be the same.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from mergekit_map.errors import ArtifactError
from mergekit_map.files import digest
from mergekit_map.merging.same_bytes import what_differs
from mergekit_map.merging.same_merges import (
    SameMerges,
    same_merges,
    stands_against,
)
from mergekit_map.merging.what_changed import changes_in_words
from mergekit_map.results.front import Front
from mergekit_map.results.identity import Identity
from mergekit_map.results.log import (
    ASSESSING,
    Evaluation,
    Key,
    Role,
    evaluation_key,
    measured_of,
    merge_key,
)
from mergekit_map.results.opened_log import EvaluationLog
from mergekit_map.results.records import read_record, write_record
from mergekit_map.results.run_folder import Identities, RunFolder
from mergekit_map.results.samples import copy_samples
from mergekit_map.steps.project import Project
from mergekit_map.study.measuring import matching
from mergekit_map.study.study import Reporter, Study
from mergekit_map.words import listed

# Whose measurements nobody misses in a search.
_APART: frozenset[Role] = frozenset({"baseline", "checkpoint", "holdout"})


def take_over(
    project: Project,
    study: Study,
    log: EvaluationLog,
    run: RunFolder,
    reporter: Reporter,
) -> None:
    """Take over what was measured of the same merges; say what is used and what not."""
    known = Identities(merges={})
    if run.identities.exists():
        known = read_record(run.identities, Identities, "list of earlier merges")
    merges = {**known.merges, study.merge: project.identity}
    write_record(run.identities, Identities(merges=merges))
    for merge in dict.fromkeys(e.merge for e in list(log)):
        earlier = _Earlier(project, study, log, run, reporter, merge)
        if merge == study.merge:
            unused = earlier.lines_but(matching(study, log))
            earlier.say_unused(unused, "the task definition changed")
            _say_box(study, log, run, reporter)
        else:
            earlier.take_over(known.merges.get(merge, {}))


def _say_box(
    study: Study, log: EvaluationLog, run: RunFolder, reporter: Reporter
) -> None:
    """Say which merges of another box are used, where there was one."""
    try:
        before = read_record(run.front, Front, "front").coefficients
    except ArtifactError:
        return
    if before.keys() != study.bounds.keys():
        return
    changed = [n for n in before if before[n] != study.bounds[n]]
    found = {e.key[0]: e.coefficients for e in matching(study, log) if _is_own(e)}
    if not changed or not found:
        return
    inside = int(study.contains(study.vectors(found.values())).sum())
    text = f"all {inside} merges that were measured in the earlier box are used"
    if inside < len(found):
        text = (
            f"of the {len(found)} merges that were measured in the earlier box the "
            f"{inside} inside the present one are used; the others are kept, not fitted"
        )
    reporter.notice(text)


def _is_own(e: Evaluation) -> bool:
    return e.role == "front" or e.role not in ASSESSING


@dataclass(frozen=True, eq=False)
class _Earlier:
    """What a log has of a merge configuration."""

    project: Project
    study: Study
    log: EvaluationLog
    run: RunFolder
    reporter: Reporter
    merge: str  # its fingerprint

    def take_over(self, identity: Identity) -> None:
        """Take over what is the same merge now, and say what is used and what not."""
        changed = f"{changes_in_words(identity, self.project.identity)} changed"
        shared = None
        if digest(identity) == self.merge:
            shared = same_merges(identity, self.project.identity)
        found = [] if shared is None else self._translated(shared)
        if shared is None or not found:
            self.say_unused(self.lines_but([]), changed)
            return
        new = self._not_taken(found)
        words = _Words.of(identity, self.project.identity)
        against = stands_against(shared, self.project.identity)
        if new and not against and shared.added:
            self.reporter.notice(
                f"{_counted(found)} are of {words.search}: merging one of them with "
                f"{words.added} at 0 and without it, to see whether they are the same"
            )
            against = what_differs(shared, self.project.space, self.project.options)
        if against:
            at_zero = f"at weight 0 {words.models} may still change the merge"
            self.say_unused(self.lines_but([]), f"{changed}, and {at_zero}: {against}")
            return
        for e, coefficients in new:
            self._take(e, coefficients, shared)
        self.reporter.notice(
            f"{_counted(found)} of {words.search} are used{words.why}; they count as "
            "evaluations and are not measured again"
        )
        if self.study.search.gradients and shared.added:
            self.reporter.notice(
                "measured again, for their derivatives (search.gradients): single "
                "models and base"
            )
        self.say_unused(self.lines_but([e for e, _ in found]), changed)

    def lines_but(self, used: Iterable[Evaluation]) -> list[Evaluation]:
        """List what a search of the present tasks would have used, but for some."""
        without = {id(e) for e in used}
        return [
            e
            for e in self.log
            if e.merge == self.merge
            and id(e) not in without
            and e.task in self.study.tasks
            and e.role not in _APART
        ]

    def say_unused(self, unused: Sequence[Evaluation], why: str) -> None:
        """Say what is left where it is."""
        if unused:
            self.reporter.notice(
                f"{len(unused)} measurements in {self.log.path} are kept but not used: "
                f"{why}; front and recipes will be those of the new search"
            )

    def _translated(
        self, shared: SameMerges
    ) -> list[tuple[Evaluation, dict[str, float]]]:
        """List what was measured of merges that there still are."""
        definitions = [self.study.definitions]
        if self.project.held_out is not None:
            definitions.append(self.project.held_out_study().definitions)
        lines = [
            e
            for known in definitions
            for e in measured_of(self.log, self.merge, known, shared.before)
            if e.error is None
        ]
        merges = [(e, shared.translate(e.coefficients)) for e in lines]
        former = {e.key[0] for e in lines if e.role == "anchor"}
        return [
            (e, merge)
            for e, merge in merges
            if merge is not None
            # A former soup was confirmed as such, and not because it was chosen.
            and (
                e.role != "holdout" or e.key[0] not in former or self._is_anchor(merge)
            )
        ]

    def _is_anchor(self, merge: Mapping[str, float]) -> bool:
        return merge_key(merge) in set(map(merge_key, self.study.anchors.values()))

    def _not_taken(
        self, found: Iterable[tuple[Evaluation, dict[str, float]]]
    ) -> list[tuple[Evaluation, dict[str, float]]]:
        """Leave out what was taken before, and what was measured here."""
        here = [e for e in self.log if e.merge == self.study.merge and e.error is None]
        own = {(e.key, e.definition) for e in here if e.taken != self.merge}
        taken = Counter(_mark(e, e.key) for e in here if e.taken == self.merge)
        new = []
        for e, merge in found:
            key = evaluation_key(merge, e.task)
            mark = _mark(e, key)
            if taken[mark]:
                taken[mark] -= 1
            elif (key, e.definition) not in own:
                new.append((e, merge))
        return new

    def _take(
        self, e: Evaluation, merge: Mapping[str, float], shared: SameMerges
    ) -> None:
        """Put a measurement into the log as one of the present merge."""
        folder = RunFolder.samples
        if e.role == "holdout":
            folder = RunFolder.held_out_samples
        here = folder(self.run, self.study.merge) / e.task
        copy_samples(folder(self.run, self.merge) / e.task, e.coefficients, here, merge)
        role = e.role
        if role == "anchor" and not self._is_anchor(merge):
            role = "design"  # such as the soup of fewer models
        self.log.append(
            replace(
                e,
                coefficients=merge,
                role=role,
                merge=self.study.merge,
                gradient=shared.translate_slopes(e.gradient),
                foretold=None,  # by other surrogates
                taken=self.merge,
            )
        )


@dataclass(frozen=True)
class _Words:
    """How an earlier configuration is told from the present one."""

    added: str
    removed: str

    @classmethod
    def of(cls, before: Identity, now: Identity) -> _Words:
        """Name the models that only one of two configurations has."""
        models: list[Any] = [before["models"], now["models"]]
        old, new = (
            [Path(name).name for name, of in one.items() if of not in other.values()]
            for one, other in (models, models[::-1])
        )
        return cls(*("" if not names else listed(names) for names in (new, old)))

    @property
    def models(self) -> str:
        """Name all of them."""
        return listed(filter(None, (self.added, self.removed)))

    @property
    def search(self) -> str:
        """Say which search it was."""
        if self.added and self.removed:
            return f"the search with {self.removed} in the place of {self.added}"
        if self.removed:
            return f"the search with {self.removed}"
        if self.added:
            return f"the search without {self.added}"
        return "the same models in other places"

    @property
    def why(self) -> str:
        """Say why they may be used."""
        if self.removed:
            return f", those where {self.removed} has weight 0, which changes no bit"
        if self.added:
            return f": with {self.added} at 0 the merges are the same, byte for byte"
        return ""


def _mark(e: Evaluation, key: Key) -> tuple[Any, ...]:
    return key, e.definition, e.n, e.value


def _counted(found: Sequence[tuple[Evaluation, Mapping[str, float]]]) -> str:
    merges = len({merge_key(merge) for _, merge in found})
    return (
        f"{len(found)} measurement{'s' * (len(found) != 1)} of {merges} "
        f"merge{'s' * (merges != 1)}"
    )
