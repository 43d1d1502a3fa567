"""One job: everything that a run needs is put together here, run, and reported."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TypeVar

from runner.artifacts import stale
from runner.artifacts.disk_space import FULL
from runner.artifacts.sort import Artifacts
from runner.candidate import Sample
from runner.checkers.around import inner
from runner.checkers.audited import Audited
from runner.checkers.checker import Checker, Tools
from runner.checkers.interactive import InteractiveCheck
from runner.checkers.registry import build as build_checker
from runner.checkers.runtime import RuntimeCheck
from runner.errors import UsageError, WinnowError
from runner.jobs import context as contexts
from runner.jobs.precision import run as raising
from runner.jobs.precision.subject import Precision
from runner.jobs.reduce import run as reduction
from runner.jobs.reduce.closure import closure, used
from runner.jobs.reduce.controls import FORMS
from runner.jobs.reduce.find_all import Further
from runner.jobs.reduce.report import answered, files_of, with_rest
from runner.jobs.reduce.searches import searching
from runner.jobs.reduce.subgraph import Subgraph
from runner.jobs.repeat.command import Command
from runner.jobs.summary import account, pass_rate
from runner.jobs.tactics import compare, isolate
from runner.jobs.tactics import repeat as tactic_runs
from runner.journal.open import Journals
from runner.loading.load import Loaded, clean_up, load, record_target
from runner.loading.parent import check_map
from runner.model.graph.rename import names_of
from runner.model.graph.scopes import all_nodes
from runner.reference.nonfinite import taint_of_all
from runner.report.bundle import write_bundle
from runner.report.progress import LogObserver, observer
from runner.report.summary import Summary
from runner.run_folder import REDUCED
from runner.schema.backend import TensorRtBackend
from runner.schema.checker import AutoChecker, Flaky
from runner.schema.root import Settings
from runner.schema.strategy import Find, FirstEnd, ReduceSettings, RepeatSettings, SubjectKind, chosen
from runner.session.handover import HandOver
from runner.session.inquiry import Budget, Means
from runner.session.judge import Judge
from runner.session.reliability import Doubt
from runner.session.result import Ending
from runner.session.session import Session
from runner.session.subject import Subject
from runner.verdict import Verdict
from runner.workers.guardian import Guardian
from runner.workers.leases.leases import Leases
from runner.workers.pool import Pool
from strategies.outcome import Outcome
from strategies.repeat import repeat
from strategies.trial import Trial

log = logging.getLogger(__name__)

INTERRUPTED = 130
BEST = "interrupted; "
"""How the message of a session begins that somebody stopped."""
NON_FINITE = (
    "; the reference's outputs hold NaN or Inf as well, and checker=auto lets the same ones pass: "
    "checker=finite takes any for a failure"
)

E = TypeVar("E", bound="Ending | None")


@dataclass(frozen=True)
class Job:
    """What all steps of a job share. ``command``: what the user typed."""

    settings: Settings
    folder: Path
    command: tuple[str, ...]
    pool: Pool
    tools: Tools
    checker: Checker
    started: float

    @property
    def journals(self) -> Journals:
        """Where its verdicts go."""
        return Journals(self.settings, self.folder, self.tools.at)


def run(settings: Settings, run_folder: Path, command: Sequence[str]) -> Summary:
    """Run one job and leave its result folder behind. Raises WinnowError where the question cannot be put at all."""
    started = time.monotonic()
    run_folder = run_folder.absolute()
    check_map(settings)
    if settings.strategy.subject is SubjectKind.recorded:
        return compare.compare(settings, run_folder, command)
    settings = raising.rounding(settings)
    with ExitStack() as stack:
        guardian = stack.enter_context(Guardian())
        leases = Leases.of(settings.workers, run_folder)
        seconds = settings.budget.seconds
        deadline = math.inf if seconds is None else started + seconds
        pool = stack.enter_context(Pool(run_folder / "workers", guardian, leases, deadline))
        tools = Tools(pool, guardian, run_folder, Path.cwd())
        checker = build_checker(settings, tools)
        job = Job(settings, run_folder, tuple(command), pool, tools, checker, started)
        stack.callback(clean_up, run_folder)
        if settings.strategy.subject is SubjectKind.command:
            return _repeat(job)
        if settings.strategy.subject is SubjectKind.precision:
            return raising.run(job, isolate.Parts(_judge, _account, _ended, _means, _doubt))
        if settings.strategy.subject in (SubjectKind.engine, SubjectKind.tactics):
            return tactic_runs.run(job, isolate.Parts(_judge, _account, _ended, _means, _doubt))
        return _reduce(job)


# ---- the two shapes of a job


def _reduce(job: Job) -> Summary:
    settings = job.settings
    strategy = chosen(settings.strategy, ReduceSettings)
    kept = closure(settings)
    loaded = load(settings, job.pool, job.folder)
    subject = Subgraph(
        loaded.graph,
        loaded.store,
        loaded.recorded,
        loaded.types,
        loaded.studied,
        job.folder / "values",
        kept,
        settings.cut.policy,
        settings.cut.outputs,
        control=FORMS[kept][0],
    )

    audited: Audited | None = None
    if settings.audit:
        audited = Audited(job.checker, settings, job.tools, loaded.store.structure, drawing=bool(loaded.graph.drawing))
        job = replace(job, checker=audited)
    handed = HandOver(settings.result, job.folder, job.tools.at, loaded.store)
    with _judge(job, subject, loaded) as judge:
        judge.studied.names = frozenset(
            {*names_of(loaded.graph.model), *(node.name for node in all_nodes(list(loaded.graph.model.graph.node)))}
        )
        stale.drop(job.folder, used(settings, job.tools.at))
        opening = reduction.opening(job, judge)
        session = Session(
            judge,
            searching(strategy, strategy.first, subject, judge),
            means=_means(job),
            doubt=_doubt(job),
            find_min_good=settings.result.find_min_good,
            hand_over=handed,
            refiner=reduction.refinements(job, loaded, searching(strategy, FirstEnd.end, subject, judge)),
            causes=reduction.causes(job, judge, subject),
            opening=opening,
        )
        ending = _ended(session, lambda: _question(job, session, judge, loaded))
        loaded = replace(loaded, warnings=(*loaded.warnings, *opening.warnings))
        if ending.status == "interrupted" or (ending.status == UsageError.status and ending.standing):
            ending = replace(ending, message=f"{ending.message}; go on with resume={job.folder}")
            if ending.standing:
                handed.write(ending.standing.judge.subject, ending.standing.trial, REDUCED)
        if audited:
            loaded = replace(loaded, warnings=(*loaded.warnings, audited.summary))

        def told(ending: Ending, doubt: Doubt, folder: Path = job.folder) -> Summary:
            return answered(_account(job, judge, ending, loaded, doubt), ending, subject, folder)

        def conclude(ending: Ending, folder: Path) -> Summary:
            summary = told(ending, session.doubt, folder)
            write_bundle(job.settings, folder, summary, job.tools.cwd, job.command, files_of(ending), job.pool)
            return summary

        doubt = session.doubt
        summary = told(ending, doubt)
        if strategy.find is Find.all and ending.status == "found":
            journal = partial(job.journals.further, judge.journal)
            rest = Further(session, handed, subject, partial(_ended, session), conclude, journal).find(ending)
            summary = with_rest(told(ending, doubt), summary, rest)
        write_bundle(job.settings, job.folder, summary, job.tools.cwd, job.command, files_of(ending), job.pool)
    return summary


def _question(job: Job, session: Session, judge: Judge, loaded: Loaded) -> Ending:
    settings = job.settings
    ending = session.preflight()
    if ending:
        held = [sample[name] for sample in loaded.recorded.values for name in loaded.graph.outputs if name in sample]
        meant = isinstance(settings.checker, AutoChecker) and not all(value.finite for value in held)
        return replace(ending, message=ending.message + NON_FINITE) if meant else ending
    checker = inner(job.checker)
    non_finite = judge.baseline is not None and judge.baseline.kind in ("nan", "inf")
    # an engine has no values of inner tensors to look at
    if non_finite and isinstance(checker, RuntimeCheck) and not isinstance(settings.target, TensorRtBackend):
        found = taint_of_all(loaded.graph, record_target(settings, job.pool, loaded, job.folder))
        subject = session.judge.subject  # as the pre-flight left it
        if found.tainted and isinstance(subject, Subgraph):
            subject.taint = found
            checker.spare(found.harmless)
    if settings.plan:
        return Ending(
            "planned", 0, "stopped after the pre-flight, as asked", remaining=session.inquiry.search.remaining
        )
    return session.reduce()


def _repeat(job: Job) -> Summary:
    settings = job.settings
    sanitize = settings.sanitize
    if sanitize.fold or sanitize.shapes or sanitize.cleanup:
        raise UsageError(
            "sanitize: strategy=repeat checks your own file as it is. Leave sanitize out, or sanitize the file before"
        )
    model = Path(settings.model).expanduser().absolute() if settings.model else None
    loaded = load(settings, job.pool, job.folder, record=False) if model and job.checker.wants_feeds else None
    samples = tuple(Sample(sample) for sample in loaded.recorded.values) if loaded else ()
    subject = Command(model, samples)
    until = chosen(settings.strategy, RepeatSettings).until

    with _judge(job, subject, loaded) as judge:
        session = Session(judge, lambda space: repeat(until), means=_means(job))
        ending = _ended(session, session.repeat)
        summary = _account(job, judge, ending, loaded)
        summary = replace(summary, statistics=pass_rate(judge.tally.outcomes))
        write_bundle(job.settings, job.folder, summary, job.tools.cwd, job.command, None)
    return summary


def _ended(session: Session, question: Callable[[], E]) -> E | Ending:
    """Turn what stops a session into an ending of it, so that what was found is still reported."""
    try:
        return question()
    except UsageError as error:
        # of what the search has found so far nothing is lost: it stands as where somebody stops it
        best = session.interrupted(error.exit_code)
        said = f"{error}\n{best.message.removeprefix(BEST)}" if best.standing else str(error)
        return replace(best, status=error.status, message=said)
    except WinnowError as error:
        return Ending(error.status, error.exit_code, str(error))
    except OSError as error:
        if error.errno not in FULL:
            raise
        full = session.judge.room.none(f"{error.strerror}: {error.filename or session.judge.folder.parent}")
        return Ending(full.status, full.exit_code, str(full))
    except KeyboardInterrupt as error:  # a termination says its own exit code
        return session.interrupted(getattr(error, "exit_code", INTERRUPTED))


# ---- parts


@contextmanager
def _judge(job: Job, subject: Subject, loaded: Loaded | None) -> Iterator[Judge]:
    settings = job.settings
    context = contexts.context(settings, job.checker, job.pool, loaded, subject)
    for change in contexts.drifted(settings, context):
        log.warning("not as recorded: %s", change)
    journal = job.journals.main(context)
    artifacts = Artifacts(settings.artifacts, job.folder, job.tools.cwd)
    nouns = {SubjectKind.precision: "raised", SubjectKind.engine: "builds", SubjectKind.tactics: "tactics"}
    noun = nouns.get(settings.strategy.subject, "nodes" if loaded else "iterations")
    # a live view would swallow the question that is put to a person
    asked = isinstance(inner(job.checker), InteractiveCheck)
    watcher = LogObserver(noun) if asked else observer(noun=noun)

    def report(iteration: int, phase: str, label: str, trial: Trial, verdict: Verdict, left: int | None) -> None:
        reason = verdict.reason if verdict.outcome is Outcome.UNRESOLVED else ""
        # an element of a precision search may be several nodes
        kept = len(subject.names(trial)) if isinstance(subject, Precision) else len(trial)
        watcher.checked(iteration, phase, label, verdict.outcome.value, verdict.seconds, kept, left, reason)

    try:
        watcher.started(settings.strategy.name)
        yield Judge(
            subject, job.checker, journal, artifacts, job.folder / "checks", report, settings.checker.same_failure
        )
    finally:
        watcher.finished()


def _account(job: Job, judge: Judge, ending: Ending, loaded: Loaded | None, doubt: Doubt | None = None) -> Summary:
    return account(job.settings, job.checker, job.pool, judge, ending, loaded, job.started, doubt)


def _means(job: Job) -> Means:
    """What checks may cost, and how many run at once; a person answers one question at a time."""
    budget = Budget(job.settings.budget.checks, job.settings.budget.seconds, job.started)
    workers = 1 if isinstance(job.checker, InteractiveCheck) else job.settings.workers.count
    return Means(workers, budget, job.tools.guardian.kill)


def _doubt(job: Job) -> Doubt:
    """How the check is doubted; a person is asked each question once."""
    settings = job.settings.checker
    return Doubt(Flaky.never if isinstance(job.checker, InteractiveCheck) else settings.flaky, settings.max_wrong)
