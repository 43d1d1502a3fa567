"""A reduction: the smallest part of a model that still fails, what is tried on that answer, and what is reported."""

from __future__ import annotations

import itertools
import math
import shutil
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from sys import intern
from typing import TYPE_CHECKING

from runner.checkers.candidate_runs import BackendRunner
from runner.checkers.checker import inner
from runner.checkers.failure_text import last_line
from runner.checkers.tolerances import OTHERS, rules_of
from runner.engine.check_trials import Judge
from runner.engine.min_good import HandOver
from runner.engine.repeated_checks import Reliability
from runner.engine.session import HandedOver, Stage
from runner.engine.session_question import Cause, CurrentAnswer, SessionResult
from runner.engine.subject import Subject, cutting, kept
from runner.exit_codes import CannotJudge, Status
from runner.files import read_plain
from runner.jobs.inspect import refused_by_target
from runner.jobs.job import Job, compared_with, load_recorded
from runner.jobs.reduce.carried_constants import as_elements, make_elements, named, prove
from runner.jobs.reduce.cause_experiments import unless_made_up
from runner.jobs.reduce.check_controls import FORMS, QUESTION, Controls, closure
from runner.jobs.reduce.exact_values import Exact, Overflow, WhoIsRight
from runner.jobs.reduce.first_look import FirstLook
from runner.jobs.reduce.flipped_index import flipped, unless_flipped
from runner.jobs.reduce.nested_graphs import NestedStages
from runner.jobs.reduce.preflight import Preflight, TimeLimit, confirm_expected, file_of, ignore_harmless_nonfinite
from runner.jobs.reduce.prove_cause import Causes, of_the_first
from runner.jobs.reduce.refinements import MOST_QUESTIONS, Refinements, Shrinking, simplified
from runner.jobs.reduce.subgraph import Subgraph, subgraph
from runner.jobs.run import Pipeline
from runner.jobs.summary import seen
from runner.judgment import SHOWN, CauseStatus, Whose, milder
from runner.model.graph.graph_index import Graph
from runner.model.graph.low_precision import is_quantized
from runner.model.graph.scopes import all_nodes, initializers, names_of
from runner.model.nested.hoist import Body
from runner.reference.changed_weights import changed_weights
from runner.reference.fingerprints import Weights
from runner.reference.hints import HIDDEN_ROUNDING, ROUNDED
from runner.reference.input_pairs import PAIRED, as_override
from runner.reference.load import Loaded, refusal
from runner.reference.models import recorder, recording_backend
from runner.reference.parent import Inherited, InheritedBody
from runner.reference.quantized import read_otherwise
from runner.reference.recording import Recorder
from runner.reference.weighted_graph import WeightedGraph
from runner.reference.wiring import Wiring, changed_bodies
from runner.report.result_parts import ShownCause
from runner.report.short_answer import other_answers
from runner.report.summary import Summary
from runner.run_folder import MIN_GOOD, REDUCED
from runner.schema.checker import AutoChecker, BuildsChecker, CompareChecker, PythonChecker
from runner.schema.installed_choices import SEARCHES
from runner.schema.root import Settings
from runner.schema.strategy import Find, FirstEnd, ReduceSettings, chosen
from runner.text import counted, listed, one_line
from runner.verdict import FOR_A_BAD_ONE, Signature, fewer
from strategies.search import Claim, Closure, First, Options, Outcome, Space, Step, Trial

_LEAST_ERROR = 0.01
"""Tolerances: a smaller error is perhaps that of any conversion."""

if TYPE_CHECKING:
    from runner.report.bundle import ReducedModel

# The report of a reduction: what a session found, as fields of the summary and files of the bundle.


def answered(summary: Summary, ending: SessionResult, judge: Judge, subject: Subgraph, folder: Path) -> Summary:
    """Return the summary with what was found.

    What was counted of the failure is that of the nodes as they are in the model, before anything was made simpler.
    """
    if not ending.standing:
        return summary
    standing = ending.standing
    names = standing.judge.subject.names(standing.trial)
    nested = tuple(name for name in names if any(name.startswith(f"{path}/") for path in standing.origin))
    main = names
    if ending.main:
        main = subject.names(Trial(exactly(ending).elements | named(standing, subject)))
    shrunk = told_once(simplified(standing.judge.subject, standing.trial))
    return replace(
        summary,
        message=summary.message + (f"; reduced.onnx has {shrunk} than the model" if shrunk else ""),
        nodes_after=standing.size,
        seen=_counted(summary.seen, ending, judge) if shrunk else summary.seen,
        culprits=tuple(
            name
            for name in main
            if name in names or standing.owner_kept or any(path.startswith(f"{name}.") for path in standing.origin)
        ),
        nested=nested,
        iteration=getattr(cutting(standing.judge.subject), "iteration", ""),
        model="reduced.onnx" if (folder / "reduced.onnx").exists() else None,
        min_good="min_good.onnx" if ending.min_good else None,
        warnings=(*summary.warnings, *grosser(ending.measures), *_fewer(standing, subject)),
    )


def _counted(handed: str, ending: SessionResult, judge: Judge) -> str:
    """Return how many elements of the user's model are NaN or Inf; else ``handed``, with what it was counted in."""
    before = judge.journal.get(ending.main, 0) if ending.main else None
    failed = before is not None and before.outcome is Outcome.FAIL
    own = seen(before.metrics, handed_over=False) if before and failed else ""
    return own or (f"{handed}, in {REDUCED}.onnx" if handed else "")


def exactly(ending: SessionResult) -> Trial:
    """Return what is named: the answer, or what of it was shown to be the cause; the rest makes that show."""
    assert ending.main
    cause = ending.cause
    shown = cause.answers[cause.main].answer if cause and cause.causes else ending.main
    return shown if shown.elements < ending.main.elements else ending.main


def begins(ending: SessionResult, subject: Subject) -> tuple[str, ...]:
    """Say where a failure begins in an answer that holds all that follows, as the check needs the model's outputs."""
    answer, minimal = ending.main, ending.done is not None and ending.done.claim is Claim.ONE_MINIMAL
    if not answer or not minimal or subject.space.closure is not Closure.DESCENDANTS:
        return ()
    parents = subject.space.parents
    first = Trial(frozenset(index for index in answer if answer.elements.isdisjoint(parents[index])))
    if len(first) == len(answer):
        return ()
    each = "its output" if len(first) == 1 else "the output of any of these"
    said = (
        f"the failure begins in {listed(subject.names(first))}: with a good value for {each} the rest passes. "
        f"{counted(len(answer) - len(first), 'node')} that follow are in the answer because the check needs the "
        "model's own outputs; a check that compares with {references} gets a smaller answer"
    )
    return (said,)


def _fewer(standing: CurrentAnswer, subject: Subgraph) -> tuple[str, ...]:
    """Say how many samples do not judge the answer: what is fed of theirs would itself explain a failure."""
    if (every := len(subject.recorded.values)) < 2:
        return ()
    own = cutting(standing.judge.subject)
    judging = len(own.samples(own.cut(standing.trial)))
    return (f"the answer: {fewer(every - judging, judging)}",) if judging < every else ()


def grosser(measures: tuple[float, float] | None) -> tuple[str, ...]:
    """Say that an answer fails much worse since it was made simpler: the two may fail for reasons of one kind."""
    if measures is None or measures[0] <= 0 or not milder(*measures):
        return ()
    before, now = measures
    said = (
        f"by the check's measure reduced.onnx fails by {now:.3g}, and failed by {before:.3g} before it was made "
        "simpler: this may be another failure of the same kind. strategy.shrink=false leaves the model as it was"
    )
    return (said,)


def told_once(passes: Sequence[str]) -> str:
    """Return in words what passes did; a later one may have done again, with what is left, what one before it did."""
    return " and ".join(dict.fromkeys(name.removesuffix(" in these") for name in passes))


def files_of(ending: SessionResult) -> ReducedModel | None:
    """Return what the bundle shows of an answer."""
    if not ending.standing:
        return None
    from runner.report.bundle import ReducedModel  # noqa: PLC0415 - the first check need not wait for it

    subject = cutting(ending.standing.judge.subject)
    cut = subject.cut(ending.standing.trial)
    return ReducedModel(cut.model, subject.samples(cut))


# How a reduction begins its search, and which end of the failing window it looks for first.


def searching(
    strategy: ReduceSettings, wanted: FirstEnd, subject: Subgraph, judge: Judge, look: FirstLook | None = None
) -> Callable[[Space], Step]:
    """Return what makes the first step of the strategy's search, once the failure under study is known.

    ``look``: names elements that it asks about before all others.
    """

    def search(space: Space) -> Step:
        named = look.nodes if look and look.nodes and set(space.order).issuperset(look.nodes) else ()
        good = bool(subject.recorded.values) and subject.recorded.healthy(subject.graph.outputs)
        first = first_end(wanted, judge.studied.signature, good=good)
        options = Options(extra_checks=strategy.extra_checks, first=first, named=named)
        # what follows a node is computed with it, so that a set fails for what follows: the latest start comes first
        by_place = space.closure is Closure.PLACE and "first" not in SEARCHES[strategy.search].reads
        return SEARCHES["reduce" if by_place else strategy.search].begin(space, options)

    return search


def first_end(wanted: FirstEnd, failure: Signature | None, *, good: bool) -> First:
    """Return which end of the failing window is looked for first. ``good``: whether the model's outputs have values.

    A tolerance is meant for the model's own outputs, so a failure that may lie in values is looked for there first; it
    takes good values all the way to these outputs.
    """
    if wanted is not FirstEnd.auto:
        return First(wanted.value)
    return First.START if failure is not None and failure.about_values and good else First.END


_MOST_PRINTED = 100
"""Characters of what a check printed."""
PATIENCE = 60.0
"""Seconds that the reference gets for an answer with other values: one may never end with these."""


def run(settings: Settings, folder: Path, command: Sequence[str]) -> Summary:
    """Reduce a model and leave the result folder behind. Raises WinnowError where the question cannot be put at all."""
    with Job.opened(settings, folder, command) as job:
        settings, strategy = job.settings, chosen(job.settings.strategy, ReduceSettings)
        if refused := refused_by_target(job):
            return refused
        loaded = load_recorded(job)
        subject = _subject(job, loaded)
        handed = HandOver(settings.result, job.folder, job.tools.at, loaded.store)
        with job.judge(subject, loaded, "nodes") as judge:
            model, look = loaded.graph.model, FirstLook()
            inner_names = (intern(node.name) for node in all_nodes(model.graph.node))
            judge.studied.names = frozenset(names_of(model).union(inner_names))
            job.drop_stale_results()
            reduction = Reduction(
                judge,
                searching(strategy, strategy.first, subject, judge, look),
                means=job.means,
                question=QUESTION,
                reliability=job.reliability(),
                find_min_good=settings.result.find_min_good,
                hand_over=handed,
                job=job,
                loaded=loaded,
                subject=subject,
                look=look,
            )
            ending = job.ended(reduction.interrupted, partial(reduction.answer, plan=settings.plan))
            ending = job.stopped(ending, handed, REDUCED)
            summary = reduction.told(ending, judge)
            if strategy.find is Find.all and ending.status is Status.found:
                summary = reduction.with_others(summary, ending, judge, handed)
            job.bundle(summary, files_of(ending))
    return summary


def _subject(job: Job, loaded: Loaded) -> Subgraph:
    """Return what cuts candidates out of a model."""
    settings, kept = job.settings, closure(job.settings)
    subject = Subgraph.of_loaded(loaded, job.folder, settings.cut)
    carries = subject.carries and kept is Closure.FREE
    unknown = itertools.filterfalse(subject.has_reference, loaded.graph.producers) if compared_with(job.checker) else ()
    carried = loaded.graph.constants if carries else frozenset()
    fed = job.checker.wants_feeds and not isinstance(settings.checker, BuildsChecker)
    subject = replace(subject, closure=kept, control=FORMS[kept][0], fed=fed)
    return replace(subject, carried=carried, unshown=frozenset(unknown))


@dataclass(eq=False)
class Reduction(Pipeline):
    """What a reduction adds to the order of a run.

    ``subject``: what cuts the model, before anything is known of how it fails. ``unknown``: what has to be said of
    bodies that are not looked into. ``parents``: what another model tells of a graph and of each body in the open, by
    the names of its nodes. ``opening``: the pre-flight, which collects what a reader should know.
    """

    _: KW_ONLY
    job: Job
    loaded: Loaded
    subject: Subgraph
    look: FirstLook
    unknown: list[str] = field(default_factory=list)
    parents: dict[tuple[str, ...], Inherited] = field(default_factory=dict)

    def __post_init__(self, hand_over: HandOver | None) -> None:
        super().__post_init__(hand_over)
        settings, recorded, inherited = self.job.settings, self.loaded.recorded, self.loaded.inherited
        if inherited:
            self.parents[self.loaded.graph.names] = inherited
        refused = partial(refusal, settings, self.job.checker, self.loaded, self.job.folder)
        seconds = 0.0 if recorded.unrunnable else recorded.seconds
        limit = TimeLimit(settings.checker.timeout, seconds, self.job.checker_with)
        controls = Controls.of(self.job.checker, settings, inherited.samples if inherited else ())
        self.opening = Preflight(limit, controls, refused=refused)
        self.strategy = chosen(settings.strategy, ReduceSettings)

    def begins(self) -> SessionResult | None:
        """Check the file, the controls and the whole model."""
        job, loaded = self.job, self.loaded
        seen = self.opening.examine(self)
        failure, above = self.judge.studied.signature, loaded.inherited
        if above and above.better and failure and failure.stage in ("compare", "check") and failure.about_values:
            said = next(one for one in above.warnings if one.startswith(PAIRED))
            raise CannotJudge(f"no fault is shown: {said}", as_override(above.better))
        if ending := self.begin(seen):
            return ending
        confirm_expected(job, loaded, self.judge)
        rtol = rules_of(job.settings.checker).rtol[OTHERS]
        self.opening.say_rounding(self.judge, loaded.recorded, loaded.graph.outputs, rtol)
        ignore_harmless_nonfinite(job, loaded, self.judge)  # its subject is as the pre-flight left it
        return None

    def ready(self) -> None:
        """Make elements of constants that may be the failure, and look inside the model where that tells something."""
        settings, checker, strategy = self.job.settings, inner(self.job.checker), self.strategy
        make_elements(self, compares=checker.name in ("auto", "compare") and settings.target.holds_inner_values)
        free = closure(settings) is Closure.FREE and self.judge.subject.space.closure is not Closure.PLACE
        if strategy.look_inside and free and "look_inside" in SEARCHES[strategy.search].reads:
            self.look.take(self, checker, shows_inside=settings.target.holds_inner_values)

    def confirm(self, answer: Trial | None) -> None:
        """Raise CannotJudge where nothing passes, or where the file fails and nothing does that was rewritten."""
        self.opening.confirm(self, answer)

    @cached_property
    def _quantized(self) -> frozenset[str]:
        """The names of the nodes that are quantized, or have such nodes inside."""
        graph = self.loaded.graph
        types = {tensor.name: tensor.data_type for tensor in initializers(graph.model)}
        pairs = zip(graph.nodes, graph.protos, strict=True)
        return frozenset(
            node.name for node, proto in pairs if any(is_quantized(one, types) for one in all_nodes([proto]))
        )

    @cached_property
    def _refinements(self) -> Refinements:
        """What is tried on an answer; a refused first or last node is kept for the sake of what the user keeps."""
        strategy = self.strategy
        inside = strategy.inside and closure(self.job.settings) is Closure.FREE
        shrinking = self._shrinking() if strategy.shrink else None
        return Refinements(strategy.trim, self._nested() if inside else None, shrinking)

    def _nested(self) -> NestedStages:
        """What looks inside nested graphs."""
        job, loaded, strategy, settings = self.job, self.loaded, self.strategy, self.job.settings

        def record(graph: Graph, folder: Path) -> Recorder:
            return recorder(settings, recording_backend(settings), graph, loaded.store, job.pool, folder)

        def partner(graph: Graph, body: Body, placed: bool) -> InheritedBody:
            def tell(opened: Graph, told: Inherited) -> None:
                self.parents[opened.names] = told

            above = self.parents[graph.names]
            return InheritedBody.of(settings, above, graph, body, loaded.store, job.pool, placed=placed, tell=tell)

        search, further = (self._searching(end) for end in (strategy.first, FirstEnd.auto))
        every = strategy.find is Find.all
        known = Causes(further, strategy.cause_checks, every=every) if strategy.find is not Find.one else None
        return NestedStages(record, job.folder / "values" / "inside", search, self, partner, known, self.unknown)

    def _shrinking(self) -> Shrinking | None:
        """How an answer is simplified.

        None where another model says what is right, of which there is none for other values, and where a person is
        asked.
        """
        job, settings, checker = self.job, self.job.settings, self.job.settings.checker
        if self.loaded.recorded.partners is not None or checker.asks_a_person:
            return None
        seconds = min(settings.inputs.timeout, PATIENCE)
        side = BackendRunner("reference", recording_backend(settings), job.tools, seconds, settings.workers.memory_mb)
        most = self.strategy.shrink_checks
        return Shrinking(
            side,
            job.folder / "values" / "shrink",
            MOST_QUESTIONS if most is None else most,
            job.means,
            self.subject,
            own=checker.runs_own_code,
            fed=job.checker.wants_feeds,
        )

    def _searching(self, first: FirstEnd) -> Callable[[Space], Step]:
        return searching(self.strategy, first, self.subject, self.judge)

    def refine(self, standing: CurrentAnswer) -> Stage | None:
        """Return what makes an answer smaller in other ways."""
        return self._refinements.next(standing)

    def prove(self, first: HandedOver) -> tuple[HandedOver, Cause | None]:
        """Show the answer, or another one, to be the cause; a person is asked no more questions than the search has.

        If it is not, the end that misled the search, where the user chose one, is not looked for first again. Where all
        answers are wanted, the first stays, and is told of if it is the cause.
        """
        every, beyond = self.strategy.find is Find.all, len(self.space.order) < len(self.judge.subject.space.order)
        if self.strategy.find is Find.one or (every and beyond):
            return first, None
        exact, most = Exact.of(self.job, self.subject.store), self.strategy.cause_checks
        search, overflow, above = self._searching(FirstEnd.auto), Overflow(exact, most).shown, self.loaded.inherited
        wiring = Wiring(self.loaded.graph, above.parent.graph, above.partners) if above else None
        causes = Causes(search, most, self.look.places, overflow, every=every, wiring=wiring)
        handed, cause = (first, of_the_first(causes, self, first)) if every else prove(causes, self, first)
        who = WhoIsRight(exact, self.job.settings.reference.model is not None)
        cause = cause and unless_made_up(who.judged(self, cause), handed.standing, self.loaded.taken)
        return handed, unless_flipped(self.judge, cause, handed.main)

    def with_others(self, first: Summary, ending: SessionResult, judge: Judge, handed: HandOver) -> Summary:
        """Find the answers after the first, and return the summary of all: what the first one is, and what all cost.

        A search that broke off ends as what broke it off does: some answers may not have been found.
        """
        known = self.reliability  # that of the first answer: for another one it is measured anew
        others, said, broken = self._others(ending, judge, handed)
        found = (first, *others) if others else ()
        counted = f"; {len(found)} answers in all; besides this one: {other_answers(found)}" if found else ""
        summary = self.told(ending, judge, known)
        summary = replace(summary, answers=found, message=f"{summary.message}{counted}; {said}")
        return replace(summary, status=broken.status, exit_code=broken.exit_code) if broken else summary

    def _others(
        self, ending: SessionResult, judge: Judge, handed: HandOver
    ) -> tuple[list[Summary], str, SessionResult | None]:
        """Find answers until the rest passes; good values replace the nodes of those before.

        Return them, how it went on from the last one, and what broke it off.
        """
        subject, excluded, answers = self.subject, frozenset[int](), list[Summary]()
        while True:
            assert ending.main
            assert ending.standing
            own = named(ending.standing, subject)
            excluded |= ending.main.elements | own
            if own & subgraph(self.judge).carried:  # good values stand for it from now on
                self.adopt(as_elements(self.judge, own))
            if self.inquiry.exhausted:
                return answers, "the budget was reached: what else fails was not looked for", None
            unjudgeable = subject.unjudgeable(excluded)
            folder = handed.folder / "answers" / str(len(answers) + 2)
            hands = handed.beside(folder)
            found = self.job.ended(self.interrupted, partial(self.beyond, excluded | unjudgeable, hands))
            if found is None:
                names = [subject.graph.nodes[index].name for index in sorted(unjudgeable)]
                but = (
                    f", except for nodes that only get NaN or Inf and were not judged: {listed(names)}" if names else ""
                )
                return answers, f"the rest of the model passes{but}", None
            if found.status is not Status.found:
                hands.withdraw(REDUCED)
                hands.withdraw(MIN_GOOD)
                shutil.rmtree(folder, ignore_errors=True)
                stopped = found.status is Status.interrupted
                why = "interrupted" if stopped else found.message
                return answers, f"the search for more was stopped: {why}", found
            ending = found
            folder.mkdir(parents=True, exist_ok=True)
            # the first look was of the whole model
            summary = replace(self.told(ending, judge, folder=folder), first_look="")
            self.job.bundle(summary, files_of(ending), folder)
            answers.append(summary)

    # ---- the report

    def told(
        self, ending: SessionResult, judge: Judge, reliability: Reliability | None = None, folder: Path | None = None
    ) -> Summary:
        """Return what is reported of an ending. ``judge``: of the run; ``folder``: of an answer, None: the run's."""
        job, cause = self.job, ending.cause
        loaded = replace(self.loaded, warnings=(*self.loaded.warnings, *self.opening.warnings))
        summary = job.summary(judge, ending, loaded, reliability or self.reliability)
        summary = answered(summary, ending, self.judge, self.subject, folder or job.folder)
        flips = flipped(self.judge, ending.main) if ending.main else ""
        more, unknown = begins(ending, self.judge.subject), dict.fromkeys(self.unknown)
        more += (flips,) if flips and not (cause and cause.reason == flips) else ()  # which the cause says as well
        elsewhere = () if self.strategy.find is Find.all else self.look.above(cause, self.subject)
        warnings = (*unknown, *summary.warnings, *elsewhere, *more)
        if summary.cause and not summary.cause.inside:
            why = [one for one in unknown if one.startswith(tuple(f"{name}." for name in summary.culprits))]
            inside = ShownCause(CauseStatus.UNTESTED.value, "; ".join(why)) if why else None
            summary = replace(summary, cause=replace(summary.cause, inside=inside))
        own = ending.standing and kept(ending.standing.judge.subject, ending.standing.trial)
        graph = own.graph if own and own.graph.names in self.parents else loaded.graph  # that of a body in the open
        above = self.parents.get(graph.names)
        if summary.cause and cause and cause.whose is Whose.CONVERSION and above:
            elder = above.parent
            mine = WeightedGraph(graph, Weights(graph, loaded.store))
            theirs = WeightedGraph(elder.graph, Weights(elder.graph, elder.store))
            names = {*summary.culprits, *summary.nested}
            weights = changed_weights(mine, theirs, above.origins, names)
            weights = weights or tuple(read_otherwise(graph, mine.weights.array, names))
            if not weights and cause.status in SHOWN:
                weights = Wiring(graph, elder.graph, above.partners).told(names)
                weights = weights or changed_bodies(mine, theirs, above.origins, names)
            summary = replace(summary, cause=replace(summary.cause, weights=weights))
            if not weights and names & self._quantized:  # a check of the user's may fail for more than it costs
                whose = Whose.UNKNOWN if job.settings.checker.runs_own_code else Whose.QUANTIZATION
                summary = replace(summary, whose=whose.value)
        summary = replace(summary, first_look=self.look.said, warnings=warnings)
        passes = summary.status == Status.nothing_to_find and not summary.lacks
        if summary.status == Status.nothing_to_find and loaded.recorded.wrong and job.settings.checker.runs_own_code:
            summary = self._let_pass(summary, ending)
        elif passes and loaded.recorded.wrong:
            summary = self._within(summary)
        known = loaded.recorded.partners
        unjudged = [name for name in loaded.graph.outputs if passes and known is not None and name not in known]
        if unjudged:
            of = "its outputs that have a partner in the original pass the check"
            summary = replace(
                summary, message=f"{of}; {listed(unjudged)} was not judged: give its partner (reference.map)"
            )
        hidden = passes and any(HIDDEN_ROUNDING in one for one in loaded.warnings)
        return replace(summary, lacks=(ROUNDED,)) if hidden else summary

    def _let_pass(self, summary: Summary, ending: SessionResult) -> Summary:
        """Say of a model that passes a check of the user's what it computes otherwise, and what the check printed."""
        own, wrong = file_of(self.judge), self.loaded.recorded.wrong
        logs = [self.job.folder / one.log for one in own.counted(own.subject.space.whole) if one.log]
        said = last_line(read_plain(logs[0]).decode("utf-8", "replace")) if logs and logs[0].is_file() else ""
        printed = f' and printed "{one_line(said, _MOST_PRINTED)}"' if said else ""
        bad = "return False" if isinstance(self.job.settings.checker, PythonChecker) else "exit with 1"
        other = f"something else than the original is computed in {listed(wrong)}. Your check passes the model{printed}"
        return replace(summary, message=f"{ending.message}; but {other}: does it {bad} {FOR_A_BAD_ONE}", lacks=())

    def _within(self, summary: Summary) -> Summary:
        """Say of a model that passes what it computes otherwise than its original, and by which tolerance it fails."""
        wrong, error = self.loaded.recorded.wrong, self.loaded.recorded.error
        makes = "makes" if len(wrong) == 1 else "make"
        other = f"what {listed(wrong)} {makes} differs from the original's, but the outputs agree"
        said = f"{summary.message}; {other}"
        lacks: tuple[str, ...] = ()
        if isinstance(self.job.settings.checker, AutoChecker | CompareChecker) and _LEAST_ERROR < error <= 1:
            rtol = rules_of(self.job.settings.checker).rtol[OTHERS] * 10.0 ** (math.ceil(math.log10(error)) - 1)
            lacks = (f"checker.rtol={rtol:.3g}",)
        return replace(summary, message=said, lacks=lacks)
