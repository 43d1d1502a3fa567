"""The session: what is asked, of which judge, and what may be done with it: both ends, searches, single questions.

It is called, and calls nobody back: the order of a run is spelled out in `runner.jobs.run`.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from dataclasses import KW_ONLY, InitVar, dataclass, field, replace
from functools import partial
from pathlib import Path

from runner.checkers.checker import inner
from runner.checkers.interactive import Undo
from runner.engine.check_trials import CheckLimits, Judge, ParallelChecks
from runner.engine.min_good import HandOver, Recheck
from runner.engine.repeated_checks import (
    HEALTHY,
    UNSURE,
    ContradictionError,
    IndistinctError,
    Reliability,
    Ruling,
    refused_removals,
)
from runner.engine.session_question import NOTHING, CurrentAnswer, Inside, Question, SessionResult
from runner.engine.subject import Subject
from runner.engine.tally import kept_for_the_check
from runner.exit_codes import CannotJudge, Status
from runner.judgment import ERROR, TOLERANCES, Scale, measured
from runner.run_folder import MIN_GOOD
from runner.schema.checker import Flaky
from runner.text import counted
from runner.verdict import Phase, Purpose, Verdict
from runner.workers.gpu_leases import OutOfTime
from strategies.minimal import REFINING
from strategies.search import Answer, Ask, Claim, Done, Outcome, Search, Space, Step, Trial

log = logging.getLogger(__name__)

# One search over one subject, its questions answered by checks.

SEARCHING = tuple(one for one in Purpose if one is not Purpose.TRUST)
"""The purposes whose checks ``budget.checks`` limits."""
MOST_ROUNDS = 10
"""How often the search of a flaky check starts again from what is known by then."""


@dataclass(eq=False)
class SearchRun:
    """Asks, checks and tells until a search is done.

    ``purpose``: what its checks are counted as. ``most``: questions that may be answered at most.
    """

    judge: Judge
    reliability: Reliability
    space: Space
    first: Step
    means: CheckLimits
    purpose: Purpose = Purpose.SEARCH
    most: float = math.inf
    stopped: bool = False
    passed: set[Trial] = field(default_factory=set)
    _told: dict[Trial, Answer] = field(default_factory=dict)
    _paid: list[Trial] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.search = Search(self.space, self.first)
        self.judge.estimate = self._after

    def run(self) -> Done:
        """Return the end of the search; the best so far where a budget ended it (then it is ``stopped``)."""
        self.judge.estimate = self._after
        each: ParallelChecks[Ask, Ruling | None] = ParallelChecks(self.means.workers, self.means.kill_checks)
        with each as checks:
            while not self.search.done:
                left, late = self._left(), self._out_of_time()
                busy = {ask.trial for ask in checks.busy}
                more = self.answered + len(busy) < self.most
                for ask in () if late else self.search.ask(self.means.workers):
                    # what the journal knows costs nothing
                    free = checks.free and ask.trial not in busy
                    if free and (len(checks.busy) < left or (more and self.reliability.known(self.judge, ask.trial))):
                        checks.start(ask, self._check(ask))
                if late or not checks.busy:
                    self.stopped = True
                    return self.search.stop()
                for ask, future in checks.finished():
                    self._take(ask, future)
        assert self.search.done
        return self.search.done

    @property
    def exhausted(self) -> bool:
        """Whether the budget is spent."""
        return self._out_of_time() or self._left() <= 0

    def note(self, trial: Trial, answer: Answer) -> None:
        """Tell the search what is known from elsewhere."""
        self._told[trial] = answer
        self.search.tell(trial, answer)

    def begin_again(self) -> None:
        """Start anew from what the recorded verdicts amount to by now."""
        known = {trial: self.reliability.known(self.judge, trial) for trial in self._told}
        whole = self.search.space.whole
        self._told = {trial: answer for trial, answer in known.items() if answer} | {whole: Answer.YES}
        self.passed = {trial for trial in self.passed if self._told.get(trial) is Answer.NO}
        self.search = Search(self.space, self.first, self._told)

    # ---- one question

    def _after(self, trial: Trial, verdict: Verdict) -> int:
        """Return how many checks are left after a verdict; of a flaky check one verdict may be no answer."""
        flaky, answer = self.reliability.rates is not None, self.reliability.answer(verdict)
        step = self.search.next if flaky else self.search.after(trial, answer)
        return step.left if isinstance(step, Ask) else 0

    def _check(self, ask: Ask) -> Callable[[threading.Event], Ruling | None]:
        """Return the call that answers a question, once it is told when to give up."""
        refines = ask.phase == REFINING and self.purpose is Purpose.SEARCH
        purpose = Purpose.REFINE if refines else self.purpose
        asked = self.judge, ask.trial, ask.phase, ask.label, purpose
        return partial(self.reliability.rule, *asked, spent=lambda: self.exhausted)

    def _take(self, ask: Ask, future: Future[Ruling | None]) -> None:
        try:
            ruling = future.result()
        except Undo:
            self._undo()
            return
        except OutOfTime as error:  # as if the check had never been asked for
            if not self._out_of_time():
                raise
            log.warning("%s", error)
            return
        if ruling is None:
            return
        self._paid.append(ask.trial)
        if ruling.verdict.outcome is Outcome.PASS:
            self.passed.add(ask.trial)
        self.note(ask.trial, ruling.answer)

    def _undo(self) -> None:
        """Take the last answer back and start again from those before it."""
        if not self._paid:
            log.warning("nothing to undo")
            return
        trial = self._paid.pop()
        self.judge.journal.forget(trial, 0)
        self._told.pop(trial, None)
        self.passed.discard(trial)
        self.search = Search(self.space, self.first, self._told)

    @property
    def answered(self) -> int:
        """How many questions were answered, by a check or from a journal."""
        return len(self._paid)

    def _left(self) -> float:
        """How many checks the search may still pay for."""
        most, paid = self.means.budget.checks, self.judge.tally.paid
        checks = math.inf if most is None else most - sum(paid[purpose] for purpose in SEARCHING)
        return min(checks, self.most - self.answered)

    def _out_of_time(self) -> bool:
        seconds = self.means.budget.seconds
        return seconds is not None and time.monotonic() - self.means.budget.started >= seconds

    # ---- whether an answer stands

    def settle(self) -> Done:
        """Search until an answer, and what proves it, stands the tests.

        Raises ContradictionError where a check that was taken to be reliable contradicts itself.
        """
        for _ in range(MOST_ROUNDS):
            done = self.run()
            if self.stopped or done.trial is None or self._stands(done.trial):
                return done
            self.begin_again()
        return replace(self.run(), claim=Claim.UNPROVEN)

    def _stands(self, found: Trial) -> bool:
        """Whether an answer and the removals that were refused, which prove it, hold when they are tested harder."""
        judge, reliability, question = self.judge, self.reliability, self.reliability.question
        if reliability.rates is None:
            failing = not question.wants_failure
            again = []
            for trial, times in reliability.second.doubt(found, self._told).items():
                known = judge.counted(trial)
                if known and question.fails(known[0]) is failing:  # else it was not good enough
                    shown = question.shown(judge.subject, trial)
                    again.append((trial, f"{shown} that {'failed' if failing else 'passed'}", times))
            reliability.repeat_all(judge, again, failing=failing)
            return True
        refused = list(refused_removals(found, self._told).values())
        error = reliability.max_wrong / (len(refused) + 1)
        for trial, wanted in [(found, Answer.YES), *((trial, Answer.NO) for trial in refused)]:
            label = f"{question.shown(judge.subject, trial)} again"
            ruling = reliability.rule(judge, trial, Phase.REPEAT, label, error=error)
            # the search begins again from all recorded verdicts, this one included
            if ruling is None or ruling.answer is not wanted:
                return False
        return True


# What a session hands on: stages, answers, and how they are measured.


@dataclass(frozen=True)
class Stage:
    """A search over another subject, in which the answer is the whole.

    ``space``: all of it is the answer. ``first``: the step that the search begins with. ``known``: it is the same
    candidate as before, so that its failure is known. ``purpose``: what its checks are counted as. ``without``: judges
    a single trial, the answer with nothing left of what this stage searches; where that fails too, the failure is
    elsewhere. ``prove``: returns what is shown to be the cause in what the stage found, None: nothing is.
    """

    name: str
    label: str
    judge: Judge
    space: Space
    first: Step
    origin: tuple[str, ...]
    purpose: Purpose = Purpose.SEARCH
    known: bool = False
    without: Judge | None = None
    prove: Callable[[SearchRun, Done], tuple[SearchRun, Done, Inside] | None] | None = None


def refining(
    standing: CurrentAnswer, name: str, label: str, subject: Subject, space: Space, first: Step, *, known: bool = False
) -> Stage:
    """Return the stage that makes an answer smaller without looking for another one."""
    judge = standing.judge.stage(name, subject)
    return Stage(name, label, judge, space, first, standing.origin, Purpose.REFINE, known)


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
"""Equal verdicts on either end that prove a check steady which has no reason not to be (see `Session.steady`)."""


@dataclass(eq=False)
class Session:
    """One question put to one checker, from the pre-flight to the verified answer.

    ``step``: makes the first step of a search. ``hand_over``: None where nothing is (a repeat). ``steady``: the check
    computes the same each time, unless the first verdicts, or the answer's second one, prove otherwise. ``nothing``:
    the verdict of the empty trial, where PASS is wanted.
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
        self.steady = self.steady and (known.mode is Flaky.auto or known.steady)
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
        if self.steady and reliability.rates is None and not reliability.steady:
            reliability.mode, reliability.steady = Flaky.never, True
            log.info("the check computes the same each time, as far as was seen: it is taken as reliable")
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
            # no search follows: this is all that there is to repeat
            if failing is not should_fail or (self.steady and not self._says_twice(end, verdict)):
                times = PROVEN_BY if self.steady else HEALTHY
                self.reliability.repeat(self.judge, end, label, times, failing=failing)
        except ContradictionError as found:
            self._measure(found)
        if self.steady:
            self.steady = len({measured(one.metrics) for one in self.judge.counted(end)[:PROVEN_BY]}) == 1
        return verdict

    def _says_twice(self, end: Trial, verdict: Verdict) -> bool:
        """Whether one check of an end says as much as two.

        No error at all: its outputs are those that the reference computed. Or it fails on samples not seen, too.
        """
        other = self.judge.unseen.known(end) if self.judge.unseen else None
        fails = other is not None and other.outcome is verdict.outcome is Outcome.FAIL
        return fails or measured(verdict.metrics) == 0

    def differs(self, trial: Trial, again: Verdict) -> bool:
        """Whether a second check of a trial measured another number: then the check is not steady, and is repeated."""
        first = self.judge.journal.get(trial)
        if not self.steady or first is None or measured(first.metrics) == measured(again.metrics):
            return False
        log.warning("a repeated check measured another number, so checks are repeated")
        self.steady = self.reliability.steady = False
        self.reliability.mode = Flaky.auto
        return True

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
        return SearchRun(judge or self.judge, self.reliability, where, first, self.means, purpose, most)

    def _measure(self, surprise: ContradictionError) -> None:
        """The check is flaky: find out how much. Raises CannotJudge."""
        log.warning("%s: the check is flaky; its error rate is measured next", surprise)
        if self.reliability.rates is None:
            self.reliability.measure(self.judge, self.whole)
