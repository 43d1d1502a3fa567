"""A reduction, and how it begins its search.

A reduction: the smallest part of a model that still fails, and what is tried on that answer.

The code of what comes after the search is loaded then: the first check need not wait for it.
"""

# ruff: noqa: PLC0415
from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from sys import intern
from typing import TYPE_CHECKING

from runner.checkers.candidate_runs import Side
from runner.checkers.checker import inner
from runner.engine.cause import Cause
from runner.engine.check_trials import Judge
from runner.engine.min_good import HandOver
from runner.engine.reliability import Reliability
from runner.engine.session import ProveCause, Session
from runner.engine.session_question import Ending
from runner.jobs.good_outputs import load_recorded
from runner.jobs.job import Job
from runner.jobs.reduce.check_controls import FORMS, QUESTION, Controls, closure
from runner.jobs.reduce.first_look import FirstLook
from runner.jobs.reduce.preflight import Preflight, confirm_expected, spare_harmless
from runner.jobs.reduce.subgraph import Subgraph
from runner.jobs.reduce.summary import answered, begins, files_of, with_rest
from runner.judgment import Status
from runner.model.graph.graph_index import Graph
from runner.model.graph.scopes import all_nodes, names_of
from runner.reference.load import Loaded
from runner.reference.models import recorder, recording_backend
from runner.reference.recording import Recorded, Recorder
from runner.report.summary import Summary
from runner.run_folder import REDUCED
from runner.schema.checker import AutoChecker, BuildsChecker
from runner.schema.installed_choices import SEARCHES
from runner.schema.root import Settings
from runner.schema.strategy import Find, FirstEnd, ReduceSettings, chosen
from runner.verdict import Signature
from strategies.search import First, Options, Step
from strategies.search_space import Closure, Space

if TYPE_CHECKING:
    from runner.engine.session import HandedOver
    from runner.jobs.reduce.refinements import Refinements
    from runner.jobs.reduce.shrink import Shrinking

# How a reduction begins its search, and which end of the failing window it looks for first.


def searching(
    strategy: ReduceSettings, wanted: FirstEnd, subject: Subgraph, judge: Judge, look: FirstLook | None = None
) -> Callable[[Space], Step]:
    """Return what makes the first step of the strategy's search, once the failure under study is known.

    ``look``: names elements that it asks about before all others.
    """

    def search(space: Space) -> Step:
        named = look.nodes if look and look.nodes and set(space.order).issuperset(look.nodes) else ()
        first = first_end(wanted, judge.studied.signature, partial(_good, subject))
        options = Options(extra_checks=strategy.extra_checks, first=first, named=named)
        # what follows a node is computed with it, so that a set fails for what follows: the latest start comes first
        by_place = space.closure is Closure.PLACE and "first" not in SEARCHES[strategy.search].reads
        return SEARCHES["reduce" if by_place else strategy.search].begin(space, options)

    return search


def first_end(wanted: FirstEnd, failure: Signature | None, good: Callable[[], bool]) -> First:
    """Return which end of the failing window is looked for first. ``good``: whether the model's outputs have values.

    A tolerance is meant for the model's own outputs, so a failure that may lie in values is looked for there first; it
    takes good values all the way to these outputs.
    """
    if wanted is not FirstEnd.auto:
        return First(wanted.value)
    return First.START if failure is not None and failure.about_values and good() else First.END


def _good(subject: Subgraph) -> bool:
    return bool(subject.recorded.values) and subject.recorded.healthy(subject.graph.outputs)


PATIENCE = 60.0
"""Seconds that the reference gets for an answer with other values: one may never end with these."""
NON_FINITE = (
    "; the reference's outputs hold NaN or Inf as well, and checker=auto lets the same ones pass: "
    "checker=finite takes any for a failure"
)


def run(settings: Settings, folder: Path, command: Sequence[str]) -> Summary:
    """Reduce a model and leave the result folder behind. Raises WinnowError where the question cannot be put at all."""
    with Job.opened(settings, folder, command) as job:
        return _reduce(job)


def _reduce(job: Job) -> Summary:
    settings = job.settings
    strategy = chosen(settings.strategy, ReduceSettings)
    kept = closure(settings)
    loaded = load_recorded(job)
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
        fed=job.checker.wants_feeds and not isinstance(settings.checker, BuildsChecker),
    )
    carries = subject.carries and kept is Closure.FREE
    subject = replace(subject, carried=loaded.graph.constants if carries else frozenset())

    # min_good may be as large as the model, and its check needs memory as well
    let_go = loaded.recorded.let_go
    handed = HandOver(settings.result, job.folder, job.tools.at, loaded.store, before_good=let_go)
    with job.judge(subject, loaded, "nodes", meanwhile=subject.prepare) as judge:
        judge.studied.names = frozenset(
            names_of(loaded.graph.model).union(intern(node.name) for node in all_nodes(loaded.graph.model.graph.node))
        )
        job.drop_stale_results()
        look = FirstLook()
        unknown: list[str] = []
        refined = cache(lambda: refinements(job, loaded, subject, judge, unknown))
        opening = Preflight(Controls.of(job.checker, settings))
        session = Session(
            judge,
            searching(strategy, strategy.first, subject, judge, look),
            means=job.means,
            question=QUESTION,
            reliability=job.reliability(),
            find_min_good=settings.result.find_min_good,
            hand_over=handed,
            refine=lambda standing: refined().next(standing),
            prove_cause=causes(job, judge, subject, look),
            opening=opening,
        )
        ending = job.ended(session, lambda: _question(job, session, judge, loaded, look))
        loaded = replace(loaded, warnings=(*loaded.warnings, *opening.warnings))
        ending = job.stopped(ending, handed, REDUCED)

        def told(ending: Ending, reliability: Reliability, folder: Path = job.folder) -> Summary:
            summary = answered(job.summary(judge, ending, loaded, reliability), ending, subject, folder)
            more = (*begins(ending, session.judge.subject), *dict.fromkeys(unknown), *_flipped(session, ending))
            warnings = (*summary.warnings, *look.above(ending.cause, subject), *more)
            return replace(summary, first_look=look.said, warnings=warnings)

        def conclude(ending: Ending, folder: Path) -> Summary:
            summary = replace(told(ending, session.reliability, folder), first_look="")  # it was of the whole model
            job.bundle(summary, files_of(ending), folder)
            return summary

        reliability = session.reliability  # that of the first answer: for another one it is measured anew
        summary = told(ending, reliability)
        if strategy.find is Find.all and ending.status is Status.found:
            from runner.jobs.reduce.refinements import further

            rest = further(session, handed, subject, partial(job.ended, session), conclude, ending)
            summary = with_rest(told(ending, reliability), summary, rest)
        job.bundle(summary, files_of(ending))
    return summary


def _flipped(session: Session, ending: Ending) -> Iterator[str]:
    """Say which index flips within rounding, where the cause does not."""
    from runner.jobs.reduce.exact_values import flipped

    note = flipped(session.judge, ending.main) if ending.main else ""
    if note and not (ending.cause and ending.cause.reason == note):
        yield note


def _question(job: Job, session: Session, judge: Judge, loaded: Loaded, look: FirstLook) -> Ending:
    settings = job.settings
    ending = session.preflight()
    if ending:
        held = [sample[name] for sample in loaded.recorded.values for name in loaded.graph.outputs if name in sample]
        meant = isinstance(settings.checker, AutoChecker) and not all(value.finite for value in held)
        return replace(ending, message=ending.message + NON_FINITE) if meant else ending
    checker = inner(job.checker)
    confirm_expected(job, loaded, session.judge)
    spare_harmless(job, loaded, session.judge)  # its subject is as the pre-flight left it
    if settings.plan:
        return session.planned()
    from runner.jobs.reduce.carried_constants import make_elements

    make_elements(session, compares=checker.name in ("auto", "compare") and settings.target.holds_inner_values)
    strategy = chosen(settings.strategy, ReduceSettings)
    free = closure(settings) is Closure.FREE and session.judge.subject.space.closure is not Closure.PLACE
    if strategy.look_inside and free and "look_inside" in SEARCHES[strategy.search].reads:
        look.take(session, checker, shows_inside=settings.target.holds_inner_values)
    return session.reduce()


def refinements(job: Job, loaded: Loaded, subject: Subgraph, judge: Judge, unknown: list[str]) -> Refinements:
    """What is tried on an answer; a refused first or last node is kept for the sake of what the user keeps."""
    from runner.jobs.reduce.nested_graphs import NestedStages
    from runner.jobs.reduce.prove_cause import Causes
    from runner.jobs.reduce.refinements import Refinements

    settings = job.settings

    def record(graph: Graph, folder: Path) -> Recorder:
        return recorder(settings, recording_backend(settings), graph, loaded.store, job.pool, folder)

    parents = {subject.graph.names: loaded.inherited}

    def inherit(graph: Graph, owner: str, hoisted: Graph, folder: Path) -> Recorded:
        from runner.reference.parent import inherit_inside

        above = parents[graph.names]
        assert above
        parents[hoisted.names] = found = inherit_inside(settings, above, owner, hoisted, loaded.store, job.pool, folder)
        return found.recorded

    strategy = chosen(settings.strategy, ReduceSettings)
    inside = strategy.inside and closure(settings) is Closure.FREE
    nested = None
    if inside:
        search, further = (searching(strategy, end, subject, judge) for end in (strategy.first, FirstEnd.auto))
        known = Causes(further, strategy.cause_checks) if strategy.find is Find.cause else None
        nested = NestedStages(record, job.folder / "values" / "inside", search, inherit, known, unknown)
    return Refinements(strategy.trim, nested, _shrinking(job, loaded, subject) if strategy.shrink else None)


def _shrinking(job: Job, loaded: Loaded, subject: Subgraph) -> Shrinking | None:
    """How an answer is simplified.

    None where another model says what is right, of which there is none for other values, and where a person is asked.
    """
    settings, checker = job.settings, job.settings.checker
    if loaded.recorded.partners is not None or checker.asks_a_person:
        return None
    from runner.jobs.reduce.shrink import MOST_QUESTIONS, Shrinking

    seconds = min(settings.inputs.timeout, PATIENCE)
    side = Side("reference", recording_backend(settings), job.tools, seconds, settings.workers.memory_mb)
    most = chosen(settings.strategy, ReduceSettings).shrink_checks
    return Shrinking(
        side,
        job.folder / "values" / "shrink",
        MOST_QUESTIONS if most is None else most,
        job.means,
        subject,
        own=checker.runs_own_code,
        fed=job.checker.wants_feeds,
    )


def causes(job: Job, judge: Judge, subject: Subgraph, look: FirstLook) -> ProveCause | None:
    """How an answer is shown to be the cause; a person is asked no more questions than the search has.

    If it is not, the end that misled the search, where the user chose one, is not looked for first again.
    """
    strategy = chosen(job.settings.strategy, ReduceSettings)
    if strategy.find is not Find.cause:
        return None

    search = searching(strategy, FirstEnd.auto, subject, judge)

    def prove(session: Session, first: HandedOver) -> tuple[HandedOver, Cause | None]:
        from runner.jobs.reduce.carried_constants import prove as proven
        from runner.jobs.reduce.exact_values import Exact, WhoIsRight, unless_flipped
        from runner.jobs.reduce.overflow import Overflow
        from runner.jobs.reduce.prove_cause import Causes

        exact = Exact.of(job, subject.store)
        causes = Causes(search, strategy.cause_checks, look.places, Overflow(exact, strategy.cause_checks).shown)
        handed, cause = proven(causes, session, first)
        judge = WhoIsRight(exact, job.settings.reference.model is not None)
        return handed, unless_flipped(session.judge, cause and judge.judged(session, cause), handed.main)

    return prove
