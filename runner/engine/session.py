"""The session: what is asked, of which judge, and what may be done with it: both ends, searches, single questions.

It is called, and calls nobody back: the order of a run is spelled out in `runner.jobs.run`.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable
from dataclasses import KW_ONLY, InitVar, dataclass, field, replace
from functools import partial
from pathlib import Path

from runner.checkers.checker import inner
from runner.engine.check_trials import CheckLimits, Judge
from runner.engine.min_good import HandOver, Recheck
from runner.engine.repeated_checks import HEALTHY, UNSURE, ContradictionError, IndistinctError, Reliability, Ruling
from runner.engine.search_run import SearchRun
from runner.engine.session_question import NOTHING, CurrentAnswer, Inside, Question, SessionResult
from runner.engine.subject import Subject
from runner.engine.tally import kept_for_the_check
from runner.judgment import ERROR, TOLERANCES, CannotJudge, Scale, Status, measured
from runner.run_folder import MIN_GOOD
from runner.schema.checker import Flaky
from runner.text import counted
from runner.verdict import Phase, Purpose, Verdict
from runner.workers.gpu_leases import OutOfTime
from strategies.search import Answer, Done, Outcome, Search, Space, Step, Trial

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Stage:
    """A search over another subject, in which the answer is the whole.

    ``whole``: the answer, as a trial of the judge's subject. ``known``: it is the same candidate as before, so that its
    failure is known. ``purpose``: what its checks are counted as. ``without``: judges a single trial, the answer with
    nothing left of what this stage searches; where that fails too, the failure is elsewhere. ``prove``: returns what is
    shown to be the cause in what the stage found, None: nothing is.
    """

    name: str
    label: str
    judge: Judge
    start: Callable[[dict[Trial, Answer]], Search]
    origin: tuple[str, ...]
    whole: Trial
    purpose: Purpose = Purpose.SEARCH
    known: bool = False
    without: Judge | None = None
    prove: Callable[[SearchRun, Done], tuple[SearchRun, Done, Inside] | None] | None = None


def refining(
    standing: CurrentAnswer, name: str, label: str, subject: Subject, space: Space, first: Step, *, known: bool = False
) -> Stage:
    """Return the stage that makes an answer smaller without looking for another one."""
    start, judge = partial(Search, space, first), standing.judge.stage(name, subject)
    return Stage(name, label, judge, start, standing.origin, space.whole, Purpose.REFINE, known)


@dataclass(frozen=True)
class Refined:
    """An answer. ``inquiry``: the search that led to it, None: what was left out is no node.

    ``measures``: of one that was made simpler, how bad it is by the check, before that and now.
    """

    done: Done
    standing: CurrentAnswer
    inquiry: SearchRun | None
    measures: tuple[float, float] | None = None

    @property
    def key(self) -> tuple[Path, Trial]:
        """What it is, whichever stage made it: the journal of its verdicts, and its trial there."""
        return self.standing.judge.journal.path, self.standing.trial


@dataclass(frozen=True)
class HandedOver:
    """An answer as it is handed over.

    ``main``: its trial before it was refined. ``searched``: the inquiries that led to it. ``again``: its re-check.
    ``measures``: see `Refined`.
    """

    done: Done
    standing: CurrentAnswer
    main: Trial
    searched: tuple[SearchRun, ...]
    again: Ruling
    measures: tuple[float, float] | None

    @property
    def shown(self) -> str:
        """How many nodes it has, in words."""
        return counted(self.standing.size, "node")

    @property
    def fails(self) -> bool:
        """Whether it failed when it was checked again."""
        return self.again.answer is Answer.YES

    @property
    def doubtful(self) -> str:
        """Why it is no answer after all; "" where it is one."""
        if not self.fails:
            unknown = self.again.verdict.outcome is Outcome.UNRESOLVED
            did = "could not be judged" if unknown else "did not"
            why = self.again.verdict.reason
            told = f"the answer ({self.shown}) failed once, and {did} when it was checked again ({why})"
            return told + ("" if unknown else ": the check is not reliable")
        unfit = self.standing.judge.unfit(self.standing.trial)
        return kept_for_the_check(unfit, self.standing.size) if unfit else ""


def scale_of(judge: Judge, good: Iterable[float] = ()) -> Scale:
    """Return how a measure is read: an accuracy from the best in ``good``, or else of a harmless model that passed."""
    checker = inner(judge.checker)
    if not getattr(checker, "higher_is_better", False):
        return TOLERANCES if getattr(checker, "in_tolerances", False) else ERROR
    harmless = _sizes(one for one in judge.counted(NOTHING) if one.outcome is Outcome.PASS)
    return Scale(max(good, default=max(harmless, default=None)), higher_is_better=True)


def harms(judge: Judge, smaller: Trial, before: CurrentAnswer, scale: Scale) -> tuple[float, float] | None:
    """Return how bad a failure was, and how bad that of a smaller answer is; None where that is not measured."""
    if scale.good is None:
        return None
    then, now = map(_sizes, (before.judge.counted(before.trial), judge.counted(smaller)))
    return (max(map(scale.harm, then)), max(map(scale.harm, now))) if then and now else None


def _sizes(verdicts: Iterable[Verdict]) -> list[float]:
    return [size for one in verdicts if (size := measured(one.metrics)) is not None]


PROVEN_BY = 2
"""Equal verdicts on either end that prove a check steady which has no reason not to be."""


@dataclass(eq=False)
class Session:
    """One question put to one checker, from the pre-flight to the verified answer.

    ``step``: makes the first step of a search. ``hand_over``: None where nothing is (a repeat). ``steady``: the check
    computes the same each time, unless the first verdicts prove otherwise. ``nothing``: the verdict of the empty trial,
    where PASS is wanted.
    """

    judge: Judge
    step: Callable[[Space], Step]
    _: KW_ONLY
    question: Question = field(default_factory=Question)
    means: CheckLimits = field(default_factory=CheckLimits)
    reliability: Reliability = field(default_factory=lambda: Reliability(Flaky.never, 0.01))
    find_min_good: bool = True
    hand_over: InitVar[HandOver | None] = None
    steady: bool = False
    nothing: Verdict | None = None

    def __post_init__(self, hand_over: HandOver | None) -> None:
        known = self.reliability
        known.question, known.spent, known.means = self.question, self.spent, self.means
        self.recheck = Recheck(hand_over, known)
        self.steady = self.steady and known.mode is Flaky.auto
        self.space = self.judge.subject.space
        self.inquiry = self.inquire()

    # ---- both ends

    def preflight(self) -> SessionResult | None:
        """Check the ends; return an ending if there is nothing to search. Raises CannotJudge."""
        return self.begin(self.examine())

    def begin(self, verdict: Verdict) -> SessionResult | None:
        """Begin the search with the verdict of the whole; return an ending if there is nothing to search."""
        question, reliability = self.question, self.reliability
        if verdict.outcome is not question.wanted and reliability.rates is None:
            return question.no_answer(verdict)
        question.begin(self.judge, verdict)
        if not question.wants_failure:
            self.nothing = self.nothing or self.examine(NOTHING)
            # where nothing has to be raised there is no failure, and so no rate of it
            fails = self.nothing.outcome is not question.wanted
            if fails and reliability.mode is Flaky.always and reliability.rates is None:
                self._measure(ContradictionError("checker.flaky=always"))
        if self.steady and reliability.rates is None:
            reliability.mode = Flaky.never
            log.info("the check is reliable: a model that failed fails again, and one that passed passes again")
        self.open_search()
        return None

    def open_search(self) -> None:
        """Begin the search anew: where it begins depends on the failure, and on what is known of it."""
        self.inquiry = self.inquire()
        self.inquiry.note(self.whole, Answer.YES)

    def adopt(self, judge: Judge, inquiry: SearchRun | None = None) -> None:
        """Go on with other candidates: those that the check can judge, and that fail as the user's file does.

        ``inquiry``: the search that goes on, None: a new one.
        """
        if judge is not self.judge:
            self.judge, self.space = judge, judge.subject.space
            self.inquiry = self.inquire()
        self.inquiry = inquiry or self.inquiry

    def examine(self, end: Trial | None = None, surprise: ContradictionError | None = None) -> Verdict:
        """Check all that is searched, or an end, as often as it takes; how it fails is studied. Raises CannotJudge.

        ``surprise``: what has shown already that the check is flaky.
        """
        end = self.whole if end is None else end
        label = self.question.whole if end else self.question.nothing
        if self.question.wants_failure and self.reliability.mode is Flaky.always:
            surprise = surprise or ContradictionError("checker.flaky=always")
        verdict = self.judge.sure(end, Phase.PREFLIGHT, label)
        failing = self.question.fails(verdict)
        try:
            self.question.examined(self.judge, verdict, label)
            if surprise:
                raise surprise
            should_fail = bool(end) is self.question.wants_failure
            if self.steady or failing is not should_fail:  # no search follows: this is all that there is to repeat
                times = PROVEN_BY if self.steady else HEALTHY
                self.reliability.repeat(self.judge, end, label, times, failing=failing)
        except ContradictionError as found:
            self._measure(found)
        if self.steady:
            self.steady = len({measured(one.metrics) for one in self.judge.counted(end)[:PROVEN_BY]}) == 1
        return verdict

    def confirm_nothing(self, *, unjudged: bool = False) -> None:
        """Check that nothing passes: can this check tell good from bad at all? Raises CannotJudge.

        ``unjudged``: it need not answer; that it cannot was said before.
        """
        verdict = self.judge.sure(NOTHING, Phase.CONTROL, self.question.nothing)
        unclear = verdict.outcome is Outcome.UNRESOLVED
        fails = verdict.outcome is not Outcome.PASS and self.reliability.rates is None  # of a flaky check rates tell
        if not unjudged if unclear else fails:
            what, so = self.question.nothing_fails
            raise CannotJudge(f"{what} ({verdict.said}): {so}\ncheck: {self.judge.checker.describe()}")

    # ---- the answer

    def search(self) -> Done:
        """Search until an answer, and what proves it, stands the tests. Raises CannotJudge."""
        while True:
            try:
                return self.inquiry.settle()
            except ContradictionError as surprise:  # noqa: PERF203 - it happens once
                self.begin_again(surprise)

    def begin_again(self, surprise: ContradictionError) -> None:
        """Start anew: the check has proved to be flaky. Raises CannotJudge."""
        self.recheck.withdraw(self.question.name, MIN_GOOD)
        self._measure(surprise)
        self.inquiry.begin_again()

    def ruled(
        self, judge: Judge, trial: Trial, phase: str, label: str, purpose: Purpose | None = None
    ) -> Ruling | None:
        """Decide on a trial that no search asks for; None where the budget is spent before it is sure."""
        try:
            return self.reliability.rule(judge, trial, phase, label, purpose, spent=self.spent)
        except OutOfTime as error:
            if not self.spent():
                raise
            log.warning("%s", error)
            return None

    def leave_out(self, excluded: frozenset[int], hand_over: HandOver | None) -> bool:
        """Begin a search without these elements, which good values replace; return whether the rest fails at all.

        A flaky check is measured again: another failure has another rate. A check whose verdicts depend on which
        failure is studied gets another journal. Raises CannotJudge.
        """
        order = tuple(element for element in self.judge.subject.space.order if element not in excluded)
        if not order:
            return False
        self.space = replace(self.judge.subject.space, order=order)
        self.question = replace(self.question, whole=f"the model without {len(excluded)} of its nodes")
        self.judge.studied.signature = None
        if self.judge.checker.reset() and (journals := self.judge.journals):
            self.judge = self.judge.beside(self.judge.subject, journals.further(self.judge.journal, Trial(excluded)))
        self.reliability = self.reliability.renewed(self.question)
        self.recheck = Recheck(hand_over, self.reliability)
        try:
            self.examine()
        except IndistinctError as error:
            log.info("%s", error)  # it fails as often as what nothing sane fails
            return False
        if not self.judge.studied.signature:
            return False
        self.open_search()
        return True

    @property
    def cut_short(self) -> str:
        """What the budget ended too early."""
        if self.inquiry.stopped:
            return "; the budget was reached before the search ended"
        return f"; {UNSURE}" if self.reliability.unsure else ""

    @property
    def flakiness(self) -> str:
        """What a message says of a flaky check; "" of any other."""
        return f"; the check is flaky: {self.reliability}" if self.reliability.rates else ""

    def spent(self) -> bool:
        """Whether the budget is."""
        return self.inquiry.exhausted

    @property
    def whole(self) -> Trial:
        """All that is searched."""
        return self.space.whole

    def planned(self) -> SessionResult:
        """Return how it ends where only the pre-flight is asked for."""
        return SessionResult(
            Status.planned, "stopped before the search, as asked", remaining=self.inquiry.search.remaining
        )

    def repeat(self) -> SessionResult:
        """Go on until the search says enough. Where no iteration had an answer, nothing is known."""
        done, outcomes = self.inquiry.run(), self.judge.tally.outcomes
        known = [name for name in outcomes if name != Outcome.UNRESOLVED.value]
        status = Status.found if known else Status.could_not_judge
        ways = ", ".join(f"{count} {name}" for name, count in sorted(outcomes.items()))
        said = f"{counted(sum(outcomes.values()), 'check')}: {ways}" if ways else "no iterations"
        return SessionResult(status, said + (" (budget reached)" if self.inquiry.stopped else ""), done)

    def interrupted(self, exit_code: int) -> SessionResult:
        """How it stands where somebody stops it: the smallest set so far, if it is smaller than the whole."""
        done = self.inquiry.search.stop()
        best = done.trial if done.trial != self.whole else None
        standing = CurrentAnswer(self.judge, best) if best is not None else None
        shown = f"the best so far ({counted(standing.size, 'node')}) was not checked again" if standing else ""
        failure = self.judge.studied.signature
        return SessionResult(Status.interrupted, shown, done, standing, signature=failure, main=best, code=exit_code)

    # ---- parts

    def inquire(
        self,
        order: tuple[int, ...] | None = None,
        purpose: Purpose = Purpose.SEARCH,
        most: float = math.inf,
        step: Callable[[Space], Step] | None = None,
        judge: Judge | None = None,
    ) -> SearchRun:
        """Return a search for an answer, or among some elements only; see `SearchRun`. ``judge``: None: the run's."""
        where = self.space if order is None else replace(self.space, order=order)
        first = (step or self.step)(where)
        return SearchRun(
            judge or self.judge, self.reliability, lambda known: Search(where, first, known), self.means, purpose, most
        )

    def _measure(self, surprise: ContradictionError) -> None:
        """The check is flaky: find out how much. Raises CannotJudge."""
        log.warning("%s, so the check's reliability is measured", surprise)
        if self.reliability.rates is None:
            self.reliability.measure(self.judge, self.whole)
