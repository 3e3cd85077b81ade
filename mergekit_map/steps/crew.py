"""Measurements given out to workers, in pieces, and put together again.

There is no barrier: whoever is free takes what comes next. A worker stays with the
merge that it has made as long as there is something to measure of it, then takes one
that nobody is at, and helps the others in the end, by pieces that become the smaller
the less is left.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Protocol

import torch

from mergekit_map.errors import EvaluationError, MergeError
from mergekit_map.measurement import Measurement
from mergekit_map.pulse import remark, stage, step
from mergekit_map.steps.jobs import Job, Member
from mergekit_map.steps.processes import Died
from mergekit_map.steps.project import Project
from mergekit_map.steps.serving import (
    Answer,
    Count,
    Join,
    Open,
    Request,
    Some,
    opening,
)
from mergekit_map.steps.worker import Arrived, Work

_DEATHS = 2  # of workers at the same work, or before they had opened the models
_SHARES = 2  # for each worker, of what is left
_LEAST_SECONDS = 0.02  # of work that is worth a message


class Gang(Protocol):
    """Workers somewhere, each of which answers one request after the other."""

    @property
    def count(self) -> int:
        """Say how many there are."""
        ...

    def send(self, index: int, request: Request) -> None:
        """Ask one of them, who does nothing else now."""
        ...

    def hear(self, seconds: float | None = None) -> tuple[int, Any] | None:
        """Wait for an ``Answer``, or a ``Died``, and say whose it is.

        After some seconds, if it is said how many, it gives None. What is neither is
        the sign that a worker can be asked something.
        """
        ...

    def restart(self, index: int) -> None:
        """Put another one in the place of one that died."""
        ...


class Crew:
    """Measures merges of a project by workers, who open its models when it is wanted.

    Args:
        gang: The workers; who made them ends them.
        members: What is known of them, one by one.
    """

    def __init__(self, gang: Gang, members: list[Member]):
        self._gang, self._members = gang, members
        self._opening: Open | None = None
        self._project: Project | None = None
        self._jobs: dict[Work, Job] = {}  # in the order in which they are asked for
        self._counts: dict[tuple[str, bool], int] = {}  # of all documents, by task
        self._pace: dict[tuple[str, bool], float] = {}  # seconds of a piece
        self._broken: BaseException | None = None  # why no models can be opened

    def work_for(self, project: Project) -> Crew:
        """Measure merges of this project from now on."""
        self._forget()
        self._project, self._opening, self._broken = project, None, None
        return self

    def close(self) -> None:
        """Take what is there, and give out no more."""
        for job in self._jobs.values():
            job.undealt = []
        while (heard := self._gang.hear(0)) is not None:
            self._take(*heard)
        self._forget()

    def expect(self, ahead: Sequence[Work], arrived: Arrived) -> None:
        """Work on what will be asked next, in this order; what is begun is ended."""
        jobs = {work: self._jobs.pop(work, Job(work)) for work in ahead}
        begun = {w: j for w, j in self._jobs.items() if j.busy or j.over or j.found}
        for job in jobs.values():
            job.arrived = arrived
        self._jobs = {**jobs, **begun}
        while (heard := self._gang.hear(0)) is not None:
            self._take(*heard)
        self._deal()

    def measure(self, work: Work) -> Measurement:
        """Give what was measured, as soon as it is there.

        Raises:
            EvaluationError: two workers died at it.
            MergeError: a worker died twice before the models were open.
            MapError: what a process by itself would raise.
        """
        job = self._jobs.pop(work, None) or Job(work)
        job.arrived = None
        self._jobs = {work: job, **self._jobs}
        if not self._is_open:
            with stage(f"opening the models in {self._gang.count} workers"):
                self._go_on(lambda: job.over or self._is_open)
        self._go_on(lambda: job.over)
        self._jobs.pop(work, None)
        if job.error is not None:
            raise job.error
        assert job.result is not None
        return job.result

    def _go_on(self, until: Callable[[], bool]) -> None:
        self._deal()
        while not until():
            if self._broken is not None:
                raise self._broken
            heard = self._gang.hear()
            assert heard is not None  # it waits as long as it takes
            self._take(*heard)
            self._deal()

    @property
    def _is_open(self) -> bool:
        return any(member.is_open for member in self._members)

    def _forget(self) -> None:
        for job in self._jobs.values():
            job.arrived = None
        self._jobs, self._counts, self._pace = {}, {}, {}
        for member in self._members:
            member.is_open, member.merge, member.deaths = False, None, 0
            member.job = None  # what it is at is for nobody

    def _take(self, index: int, heard: object) -> None:
        """Take what was heard of a worker."""
        member = self._members[index]
        request, member.request = member.request, None
        job, member.job = member.job, None
        if job is not None:
            job.busy -= 1
        if isinstance(heard, Died):
            self._bury(index, job, request, heard)
            return
        member.free = True
        if not isinstance(heard, Answer):
            return  # it has started
        for text in heard.noticed:
            remark(text)
        if isinstance(request, Open) and request is self._opening:
            member.is_open, member.deaths = heard.error is None, 0
            self._broken = self._broken or heard.error
        elif job is not None and request is not None:
            self._take_answer(member, job, request, heard)
            if job.result is not None and job.arrived is not None:
                del self._jobs[job.work]
                job.arrived(job.work, job.result)

    def _take_answer(
        self, member: Member, job: Job, request: Request, answer: Answer
    ) -> None:
        if answer.error is not None:
            job.fail(answer.error)
        if job.over:
            return
        job.seconds += answer.seconds
        kind = job.work.task, job.work.held_out
        match request:
            case Count(work):
                job.divide(answer.value)
                if work.documents is None:
                    self._counts[kind] = answer.value
            case Some(_, first, end, joined):
                if joined:
                    job.result = replace(answer.value, seconds=job.seconds)
                else:
                    pieces = range(first, end)
                    job.found.update(zip(pieces, answer.value, strict=True))
                if not member.wrote or kind not in self._pace:
                    self._pace[kind] = answer.seconds / (end - first)
                if job.arrived is None:
                    step(len(job.found), job.count or 0)
            case Join():
                job.result = replace(answer.value, seconds=job.seconds)

    def _bury(
        self, index: int, job: Job | None, request: Request | None, died: Died
    ) -> None:
        """Put another worker in the place of one that died, and its work back."""
        member = self._members[index]
        if not member.is_open and not isinstance(request, Count | Some | Join):
            self._lose(index, member, request, died)
        self._members[index] = Member(deaths=member.deaths)
        self._gang.restart(index)
        if job is None or job.over:
            return
        job.deaths += 1
        if isinstance(request, Some):
            job.undealt.insert(0, (request.first, request.end))
        if job.deaths == _DEATHS:
            job.fail(
                EvaluationError(
                    f"task {job.work.task!r}: the worker that measured it {died.how}, "
                    "and so did a second one; if memory is short, take fewer workers "
                    "or lower batch_size"
                )
            )

    def _lose(
        self, index: int, member: Member, request: Request | None, died: Died
    ) -> None:
        """Count a death before the models were opened."""
        member.deaths += 1
        if member.deaths == _DEATHS:
            doing = "it started" if request is None else "it opened the models"
            self._broken = MergeError(  # which is no failure of one measurement
                f"worker {index + 1} of {self._gang.count} {died.how} twice while "
                f"{doing}; take fewer workers if memory is short, else none, which "
                "shows why it dies; what was measured is kept"
            )

    def _deal(self) -> None:
        """Give everybody who is free something to do."""
        if not any(not job.over for job in self._jobs.values()):
            return
        for index, member in enumerate(self._members):
            if not member.free:
                continue
            if not member.is_open:
                self._ask(index, self._open_request())
            elif (chosen := self._choose(member)) is not None:
                job, request = chosen
                job.busy += 1
                member.job = job
                if isinstance(request, Some):
                    member.wrote = member.merge != job.work.merge
                    member.merge = job.work.merge
                self._ask(index, request)

    def _ask(self, index: int, request: Request) -> None:
        self._members[index].free, self._members[index].request = False, request
        self._gang.send(index, request)

    def _open_request(self) -> Open:
        if self._opening is None:
            assert self._project is not None
            threads = max(1, torch.get_num_threads() // self._gang.count)
            self._opening = opening(self._project, threads)
        return self._opening

    def _choose(self, member: Member) -> tuple[Job, Request] | None:
        """Choose what a free worker does next."""
        jobs = [job for job in self._jobs.values() if not job.over]
        for job in jobs:
            if job.waits_for_joining:
                return job, Join(job.work, [v for _, v in sorted(job.found.items())])
        open_jobs = [job for job in jobs if job.left]
        if not open_jobs:
            return None
        job = self._next_job(member, open_jobs)
        work = job.work
        if job.count is None and work.documents is None:
            known = self._counts.get((work.task, work.held_out))
            if known is not None:
                job.divide(known)
        if job.count is None:
            return job, Count(work)
        left = sum(map(self._cost, open_jobs))
        share = left / (_SHARES * self._gang.count) if self._gang.count > 1 else left
        pace = self._cost(job) / job.left
        first, end = job.take(max(1, round(max(share, _LEAST_SECONDS) / pace)))
        return job, Some(work, first, end, join=end - first == job.count)

    def _next_job(self, member: Member, jobs: Sequence[Job]) -> Job:
        own = [job for job in jobs if job.work.merge == member.merge]
        if not own:
            made = {other.merge for other in self._members if other.job is not None}
            fresh = [job for job in jobs if job.work.merge not in made]
            own = [j for j in jobs if fresh and j.work.merge == fresh[0].work.merge]
        return max(own or jobs, key=self._cost)

    def _cost(self, job: Job) -> float:
        """Say how many seconds are left of it, as a guess at first."""
        whole = 1 / (job.count or 1)
        return job.left * self._pace.get((job.work.task, job.work.held_out), whole)
