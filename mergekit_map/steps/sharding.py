"""One shard of a search: measures its share, for a search that puts all together."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from mergekit_map.errors import ConfigError
from mergekit_map.files import StrPath
from mergekit_map.measurement import Measurement, Part
from mergekit_map.pulse import stage
from mergekit_map.results.company import Company
from mergekit_map.results.early import Waiting
from mergekit_map.results.log import Evaluation
from mergekit_map.results.opened_log import EvaluationLog, open_log
from mergekit_map.results.records import write_record
from mergekit_map.results.run_folder import RunFolder
from mergekit_map.results.shard_logs import Shard, ShardLogs, locked, read_shard
from mergekit_map.steps.crew import Crew, Gang
from mergekit_map.steps.evaluate import MergeEvaluator
from mergekit_map.steps.hiring import hired
from mergekit_map.steps.project import Project, load_project
from mergekit_map.steps.search import underway
from mergekit_map.steps.searching import (
    hands_for,
    measured_front,
    project_for,
    started,
)
from mergekit_map.steps.taking_over import take_over
from mergekit_map.steps.telling import reporting
from mergekit_map.study.callbacks import Callback, Told, telling
from mergekit_map.study.importing import add_imported
from mergekit_map.study.shared_evaluator import Shared, SharedEvaluator
from mergekit_map.study.sharing import NoCompany, Sharing
from mergekit_map.study.study import Evaluator, Reporter, Study

_PATIENCE = 60.0  # seconds for which a shard may be reading the log of the search


@dataclass(frozen=True)
class ShardDone:
    """What a shard did."""

    run: Path
    shard: Shard
    measured: int  # by it, this time
    known: Mapping[Shard, int]  # measurements of each shard, all in all
    missing: Sequence[Shard]  # which have to measure before it can go on

    @property
    def finished(self) -> bool:
        """Tell whether all that the search asks for is measured."""
        return not self.missing


def search_shard(
    project: Project | StrPath,
    run: StrPath,
    shard: Shard | str,
    reporter: Reporter | None = None,
    imported: Sequence[Evaluation] = (),
    callbacks: Sequence[Callback] = (),
    workers: int | Gang | None = None,
) -> ShardDone:
    """Measure the share of one of several processes, such as ``"2/8"``.

    Those that run at the same time, and see the same run folder, share the search to
    its end. Who is alone ends after its share of what is known to be wanted. In both
    cases ``search_front`` then takes what all of them measured, measures what is
    missing, and finds the front that one process would have found. With ``workers``,
    so many processes measure the share, or those that are there.

    Raises:
        ArtifactError: the folder is something else's, or the same shard runs already.
        ConfigError: with all problems of the configuration, or there is no such shard.
        MapError: the models or tasks cannot be merged or measured.
    """
    if not isinstance(shard, Shard):
        shard = read_shard(shard)
    if not isinstance(project, Project):
        project = load_project(project)
    run = Path(run)
    with (
        reporting(reporter) as seen,
        telling(seen, callbacks) as told,
        hired(workers) as crew,
    ):
        project = project_for(run, project, told, imported)
        if project.nests_checkpoints:
            raise ConfigError(
                "a nested search that merges checkpoints pair by pair cannot be shared "
                "among shards; search without --shard"
            )
        return _share(project, run, shard, told, imported, crew)


def _share(
    project: Project,
    run: Path,
    shard: Shard,
    told: Told,
    imported: Sequence[Evaluation],
    crew: Crew | None,
) -> ShardDone:
    missing: Sequence[Shard] = ()
    opened = _opened_shard(project, run, shard, told, imported, crew)
    with opened as (study, log, evaluate):
        before = evaluate.shared.logs.count().get(shard, 0)
        try:
            measured_front(project, run, told, study, log, evaluate)
        except NoCompany as alone:
            missing = alone.missing
        evaluate.shared.logs.check()
        known = evaluate.shared.logs.count()
    return ShardDone(run, shard, known.get(shard, 0) - before, known, missing)


class _OfShard:
    """What a search evaluates by where it is one of several."""

    def __init__(self, inner: MergeEvaluator, shared: Shared, study: Study):
        self.shared, self._inner = shared, inner
        self._of = [SharedEvaluator(inner, shared, study.definitions)]
        self.answers, self.expect = self._of[0].answers, self._of[0].expect

    def __call__(
        self, coefficients: Mapping[str, float], task: str, part: Part | None = None
    ) -> Measurement:
        """Measure, or wait for who does."""
        return self._of[0](coefficients, task, part)

    def held_out(self, samples: Path, definitions: Mapping[str, str]) -> Evaluator:
        """Give what measures the same merges on what the search never sees."""
        inner = self._inner.held_out(samples, definitions)
        self._of.append(SharedEvaluator(inner, self.shared, definitions))
        return self._of[-1]

    def logged(self, evaluation: Evaluation) -> None:
        """Hear what had its turn."""
        for one in self._of:
            one.logged(evaluation)


@contextmanager
def _opened_shard(
    project: Project,
    run: Path,
    shard: Shard,
    told: Told,
    imported: Sequence[Evaluation],
    crew: Crew | None,
) -> Iterator[tuple[Study, EvaluationLog, _OfShard]]:
    folder = RunFolder(run)
    folder.claim()
    study = project.study()
    with locked(run, shard), ExitStack() as stack:
        with open_log(folder.log, _PATIENCE) as log_of_all:
            log = EvaluationLog(folder.log, list(log_of_all), in_memory=True)
            take_over(project, study, log, folder, told)
            if not (folder.plan.exists() or folder.manifest.exists()):
                # Whoever goes on measures the same merges, on the same kind of device.
                write_record(folder.plan, underway(project, study, folder))
        add_imported(study, log, imported, told.notice)
        told.start(started(project, study, run, log), study)
        company = stack.enter_context(Company(run, shard))
        logs = ShardLogs(run, shard)
        shared = Shared(logs, Sharing(shard, company, log), company, study.merge, stage)
        inner = MergeEvaluator(
            hands_for(project, crew),
            folder.samples(study.merge),
            study.definitions,
            Waiting(logs, study.merge, study.definitions),
        )
        evaluate = _OfShard(stack.enter_context(inner), shared, study)

        def logged(evaluation: Evaluation) -> None:
            evaluate.logged(evaluation)
            told.measured(evaluation)

        log.tell(logged)
        yield study, log, evaluate
