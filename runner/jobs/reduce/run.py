"""What stands around the search of a reduction: what comes before it, and what is tried on its answer."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from runner.checkers.audited import Audited
from runner.jobs.reduce.cause.prover import Causes
from runner.jobs.reduce.closure import closure
from runner.jobs.reduce.controls import Controls
from runner.jobs.reduce.nested.stages import NestedStages
from runner.jobs.reduce.preflight import Preflight
from runner.jobs.reduce.refinements import Refinements
from runner.jobs.reduce.searches import searching
from runner.jobs.reduce.subgraph import Subgraph
from runner.journal.journal import Journal
from runner.loading.load import Loaded
from runner.loading.models import recorder, recording_backend
from runner.model.graph.index import Graph
from runner.reference.recording import Recorder
from runner.schema.strategy import Find, FirstEnd
from runner.session.judge import Judge
from runner.session.subject import Subject
from strategies.search import Step
from strategies.space import Closure, Space

if TYPE_CHECKING:
    from runner.jobs.job import Job


def opening(job: Job, judge: Judge) -> Preflight:
    """Return what is asked about the user's file and the check before the whole model."""

    def stage(name: str, subject: Subject) -> Journal:
        return job.journals.stage(judge.journal, name, subject)

    checker = job.checker.checker if isinstance(job.checker, Audited) else job.checker
    return Preflight(stage, Controls.of(checker, job.settings, stage))


def refinements(job: Job, loaded: Loaded, search: Callable[[Space], Step]) -> Refinements:
    """What is tried on an answer; a refused first or last node is kept for the sake of what the user keeps."""
    settings = job.settings

    def record(graph: Graph, folder: Path) -> Recorder:
        return recorder(settings, recording_backend(settings), graph, loaded.store, job.pool, folder)

    inside = settings.strategy.inside and closure(settings) is Closure.FREE
    descents = NestedStages(job.journals.stage, record, job.folder / "values" / "inside", search) if inside else None
    return Refinements(job.journals.stage, settings.strategy.trim, descents)


def causes(job: Job, judge: Judge, subject: Subgraph) -> Causes | None:
    """How an answer is shown to be the cause; a person is asked no more questions than the search has.

    If it is not, the end that misled the search, where the user chose one, is not looked for first again.
    """
    strategy = job.settings.strategy
    if strategy.find is not Find.cause:
        return None

    search = searching(strategy, FirstEnd.auto, subject, judge)
    return Causes(job.journals.stage, search, strategy.cause_checks)
