"""The session: both ends, search, refinement by stages, cause, re-check.

The session: both ends, search, refinement, control, re-check. It owns the order of things and nothing else.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import KW_ONLY, InitVar, dataclass, field, replace
from pathlib import Path
from typing import Protocol

from runner.checkers.checker import inner
from runner.engine.cause import Cause, Inside, how_it_fails
from runner.engine.check_trials import Judge
from runner.engine.min_good import HandOver, Recheck, nearest
from runner.engine.reliability import (
    ANSWER,
    HEALTHY,
    MEASURED,
    UNSURE,
    ContradictionError,
    IndistinctError,
    Reliability,
    Ruling,
)
from runner.engine.repeated_checks import FREEZING, SHRINKING, kept_for_the_check
from runner.engine.search_run import Inquiry, Means
from runner.engine.session_question import NOTHING, NOTHING_SHOWN, Ending, Question, Standing
from runner.errors import CannotJudge
from runner.judgment import ERROR, TOLERANCES, Scale, Status, Whose, measured, milder
from runner.run_folder import MIN_GOOD
from runner.schema.checker import Flaky
from runner.text import counted
from runner.verdict import Verdict, message_drift
from runner.workers.leases import OutOfTime
from strategies.outcome import Answer, Outcome
from strategies.search import Claim, Done, Search, Step
from strategies.search_space import Closure, Space
from strategies.trial import Trial

# What a kind of run adds to a session: what comes before its search, stages that refine its answer, and its cause.


@dataclass(frozen=True)
class Stage:
    """A search over another subject, in which the answer is the whole.

    ``whole``: the answer, as a trial of the judge's subject. ``known``: it is the same candidate as before, so that its
    failure is known. ``purpose``: what its checks are counted as. ``without``: judges a single trial, the answer with
    nothing left of what this stage searches; where that fails too, the failure is elsewhere. ``prove``: shows what it
    found to be the cause.
    """

    name: str
    label: str
    judge: Judge
    start: Callable[[dict[Trial, Answer]], Search]
    origin: tuple[str, ...]
    whole: Trial
    purpose: str = "search"
    known: bool = False
    without: Judge | None = None
    prove: ProveInside | None = None


Refine = Callable[[Standing], "Stage | None"]
"""Returns the next stage to try on an answer; None: it is as small as it gets."""


class Opening(Protocol):
    """What is asked about the user's file, and the check, before the whole model."""

    def examine(self, session: Session) -> Verdict:
        """Return the verdict of the whole, once that is what is studied. Raises CannotJudge."""
        ...

    def confirm(self, session: Session, answer: Trial | None) -> None:
        """Raise CannotJudge for an answer that is none, or of a check that passes nothing."""
        ...


ProveCause = Callable[["Session", "HandedOver"], "tuple[HandedOver, Cause | None]"]
"""Finds out whether the failure arises inside an answer; returns the one that stands then, and what is known of it."""

ProveInside = Callable[["Session", "Inquiry", "Done"], "tuple[Inquiry, Done, Inside] | None"]
"""Finds out whether the failure arises in what a stage found; returns the answer that stands. None: none is shown."""


# Refining: an answer is made smaller by one stage after the other, as long as its failure stays reliable.
#
# A failure near a limit (a check that takes nearly as long as it may) is reliable on the answer of the search and may
# be a matter of luck on a smaller one. Such a refinement is refused, and the answer before it stands. Two verdicts
# that contradict each other in a stage may also mean that the check itself is flaky: the answer before it and the
# control are repeated to tell these apart.

log = logging.getLogger(__name__)

Key = tuple[Path, Trial]
"""The journal of an answer's verdicts, and its trial there."""


@dataclass(frozen=True)
class Refined:
    """An answer. ``inquiry``: the search that led to it, None: what was left out is no node.

    ``measures``: of one that was made simpler, how bad it is by the check, before that and now.
    """

    done: Done
    standing: Standing
    inquiry: Inquiry | None
    measures: tuple[float, float] | None = None

    @property
    def key(self) -> Key:
        """What it is, whichever stage made it."""
        return self.standing.judge.journal.path, self.standing.trial


@dataclass(frozen=True)
class HandedOver:
    """An answer as it is handed over.

    ``main``: its trial before it was refined. ``searched``: the inquiries that led to it. ``again``: its re-check.
    ``measures``: see `Refined`.
    """

    done: Done
    standing: Standing
    main: Trial
    searched: tuple[Inquiry, ...]
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
            told = f"the answer ({self.shown}) failed once and {did} when checked again ({self.again.verdict.reason})"
            return told + ("" if unknown else ": the check is not reliable")
        unfit = self.standing.judge.unfit(self.standing.trial)
        return kept_for_the_check(unfit, self.standing.size) if unfit else ""


@dataclass(frozen=True)
class Refining:
    """Tries stages on an answer of a session, and hands over what stands."""

    session: Session

    def hand_over(self, first: Refined) -> HandedOver:
        """Refine an answer as far as its failure is reliable; the last one is handed over and checked again."""
        answers, refused = [first], set[Key]()
        recheck, name = self.session.recheck, self.session.question.name
        while True:
            self.run(answers, refused)
            standing = answers[-1].standing
            try:
                searched = tuple(one.inquiry for one in answers if one.inquiry)
                again = recheck.rule(standing.judge, standing.trial, name, ANSWER, self.session.passing(searched))
            except ContradictionError as surprise:
                if len(answers) == 1:
                    raise
                refused.add(answers.pop().key)
                refused |= self.refuse(surprise, answers)
            else:
                if again.answer is Answer.YES or len(answers) == 1:
                    last = answers[-1]
                    return HandedOver(last.done, standing, first.standing.trial, searched, again, last.measures)
                refused.add(answers.pop().key)
            recheck.withdraw(name)

    def run(self, answers: list[Refined], refused: set[Key]) -> None:
        """Add answers, each made from the one before it; the last one is the smallest.

        ``refused``: what is no answer. Whatever it was made of is asked for its stages again, which the journal
        answers: what was made in one step may be made in part.
        """
        refine, spent = self.session.refine, self.session.spent
        while refine and not spent() and (stage := refine(answers[-1].standing)):
            if spent():  # by a check that says what may be tried
                return
            try:
                smaller = self._tried(stage, answers[-1])
            except ContradictionError as surprise:
                refused |= self.refuse(surprise, answers)
                continue
            if smaller and smaller.key not in refused:
                answers.append(smaller)

    def refuse(self, surprise: ContradictionError, answers: list[Refined]) -> set[Key]:
        """Leave those of these answers whose failure is reliable, and return the others: the last one then stands.

        None but the first is known to be: the others failed once. Raises ``surprise`` where not even that one's is, or
        the control's: the check itself is flaky.
        """
        first, reliability = answers[0].standing.judge, self.session.reliability
        again, nothing, allowance = "the answer so far", self.session.question.nothing, reliability.allowance(first)
        refused = set[Key]()
        while True:
            standing = answers[-1].standing
            try:
                reliability.repeat(standing.judge, standing.trial, again, MEASURED, allowance, failing=True)
                break
            except ContradictionError:
                if len(answers) == 1:
                    raise surprise from None
                refused.add(answers.pop().key)
        try:
            reliability.repeat(first, NOTHING, nothing, HEALTHY, allowance, failing=False)
        except ContradictionError:
            raise surprise from None
        log.warning("%s: its failure is not reliable, so the answer before it stands", surprise)
        return refused

    def _tried(self, stage: Stage, before: Refined) -> Refined | None:
        without = None
        if stage.without:
            emptied = stage.without.subject.space.whole
            without = self._answer(stage, stage.without, emptied, f"{stage.label}, emptied")
        if without is Answer.YES:
            log.info("it fails with nothing left of %s just as well: the failure is elsewhere", stage.origin[-1])
            return None
        if not stage.known and self._answer(stage, stage.judge, stage.whole, stage.label) is not Answer.YES:
            return None
        reliability = self.session.reliability
        inquiry = Inquiry(stage.judge, reliability, stage.start, self.session.means, stage.purpose)
        inquiry.note(stage.whole, Answer.YES)
        searched = stage.purpose == "search"
        # of any other stage nothing is claimed that what it was refused would prove
        found = inquiry.settle() if searched or reliability.rates else inquiry.run()
        inside = None if searched else before.standing.inside
        if stage.prove and found.trial and not inquiry.stopped:
            shown = stage.prove(self.session, inquiry, found)
            if shown is None:
                return None
            inquiry, found, inside = shown
        smallest = found.trial
        if not smallest:
            return None
        scale, simpler = scale_of(self.session.judge), stage.name in (FREEZING, SHRINKING)
        measures = _harms(stage.judge, smallest, before.standing, scale) if simpler else None
        if measures and milder(measures[1], measures[0]):  # rounding, say, where there was a fault
            log.info(
                "%s: the failure is much milder than before, perhaps another one: nothing of it stands", stage.label
            )
            return None
        if without is Answer.UNKNOWN and len(smallest) == 1 and found.claim is Claim.ONE_MINIMAL:
            found = replace(found, claim=Claim.UNPROVEN)
        standing = Standing(stage.judge, smallest, stage.origin, inside)
        reliability.second.follow(before.standing.trial, smallest)
        if measures and before.measures:
            measures = before.measures[0], measures[1]
        return Refined(found if searched else before.done, standing, inquiry if searched else None, measures)

    def _answer(self, stage: Stage, judge: Judge, trial: Trial, label: str) -> Answer:
        ruling = self.session.ruled(judge, trial, stage.name, label, stage.purpose)
        return ruling.answer if ruling else Answer.UNKNOWN


def scale_of(judge: Judge, good: Iterable[float] = ()) -> Scale:
    """Return how a measure is read: an accuracy from the best in ``good``, or else of a harmless model that passed."""
    checker = inner(judge.checker)
    if not getattr(checker, "higher_is_better", False):
        return TOLERANCES if getattr(checker, "in_tolerances", False) else ERROR
    harmless = _sizes(one for one in judge.counted(NOTHING) if one.outcome is Outcome.PASS)
    return Scale(max(good, default=max(harmless, default=None)), higher_is_better=True)


def _harms(judge: Judge, smaller: Trial, before: Standing, scale: Scale) -> tuple[float, float] | None:
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

    ``step``: makes the first step of a search. ``hand_over``: None where nothing is (a repeat). ``refine``: what is
    tried on an answer, None: nothing. ``prove_cause``: shows an answer to be the cause, None: nobody asks.
    ``opening``: what comes before the whole, None: nothing. ``steady``: the check computes the same each time, unless
    the first verdicts prove otherwise. ``nothing``: the verdict of the empty trial, where PASS is wanted.
    """

    judge: Judge
    step: Callable[[Space], Step]
    _: KW_ONLY
    question: Question = field(default_factory=Question)
    means: Means = field(default_factory=Means)
    reliability: Reliability = field(default_factory=lambda: Reliability(Flaky.never, 0.01))
    find_min_good: bool = True
    hand_over: InitVar[HandOver | None] = None
    refine: Refine | None = None
    prove_cause: ProveCause | None = None
    opening: Opening | None = None
    steady: bool = False
    nothing: Verdict | None = None

    def __post_init__(self, hand_over: HandOver | None) -> None:
        known = self.reliability
        known.question, known.spent, known.workers = self.question, self.spent, self.means.at_once
        self.recheck = Recheck(hand_over, known)
        self.steady = self.steady and known.mode is Flaky.auto
        self._space = self.judge.subject.space
        self.inquiry = self.inquire()

    # ---- both ends

    def preflight(self) -> Ending | None:
        """Check the ends; return an ending if there is nothing to search. Raises CannotJudge."""
        question, reliability = self.question, self.reliability
        verdict = self.opening.examine(self) if self.opening else self.examine()
        if verdict.outcome is not question.wanted and reliability.rates is None:
            return question.no_answer(verdict)
        question.begin(self.judge, verdict)
        if not question.wants_failure:
            self.nothing = self.nothing or self.examine(NOTHING)
        if reliability.mode is Flaky.always and reliability.rates is None:
            self._measure(ContradictionError("checker.flaky=always"))
        if self.steady and reliability.rates is None:
            reliability.mode = Flaky.never
            log.info("the check is steady: it said the same of both ends again, and is not doubted any further")
        self.open_search()
        return None

    def open_search(self) -> None:
        """Begin the search anew: where it begins depends on the failure, and on what is known of it."""
        self.inquiry = self.inquire()
        self.inquiry.note(self.whole, Answer.YES)

    def adopt(self, judge: Judge) -> None:
        """Go on with other candidates: those that the check can judge, and that fail as the user's file does."""
        if judge is not self.judge:
            self.judge, self._space = judge, judge.subject.space
            self.inquiry = self.inquire()

    def examine(self, end: Trial | None = None, surprise: ContradictionError | None = None) -> Verdict:
        """Check all that is searched, or an end, as often as it takes; how it fails is studied. Raises CannotJudge.

        ``surprise``: what has shown already that the check is flaky.
        """
        end = self.whole if end is None else end
        label = self.question.whole if end else self.question.nothing
        if self.question.wants_failure and self.reliability.mode is Flaky.always:
            surprise = surprise or ContradictionError("checker.flaky=always")
        verdict = self.judge.sure(end, "pre-flight", label)
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
        verdict = self.judge.sure(NOTHING, "control", self.question.nothing)
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

    def ruled(self, judge: Judge, trial: Trial, phase: str, label: str, purpose: str) -> Ruling | None:
        """Decide on a trial that no search asks for; None where the budget is spent before it is sure."""
        try:
            return self.reliability.rule(judge, trial, phase, label, purpose, spent=self.spent)
        except OutOfTime as error:
            if not self.spent():
                raise
            log.warning("%s", error)
            return None

    def finish(self, inquiry: Inquiry, done: Done) -> HandedOver:
        """Make what a search found as small as it gets in other ways, hand it over and check it again.

        Raises ContradictionError where that shows the check to be flaky.
        """
        main = self.whole if done.trial is None else done.trial
        return Refining(self).hand_over(Refined(done, Standing(self.judge, main), inquiry))

    def reduce(self) -> Ending:
        """Search, then control, re-check of the answer and min_good; again where the check proves to be flaky."""
        while True:
            try:
                return self._reduce(self.search())
            except ContradictionError as surprise:  # noqa: PERF203 - it happens once
                self.begin_again(surprise)

    def _reduce(self, done: Done) -> Ending:
        if self.inquiry.stopped and self.question.wants_failure and done.trial in (None, self.whole):
            return Ending(Status.could_not_judge, NOTHING_SHOWN, done)
        if self.opening:
            self.opening.confirm(self, done.trial)
        elif not self.inquiry.passed:
            self.confirm_nothing(unjudged=self.reliability.rates is not None)
        answer, cause = self.finish(self.inquiry, done), None
        if self.prove_cause and not self.inquiry.stopped:
            answer, cause = self.prove_cause(self, answer)
        studied = self.judge.studied
        signature = studied.signature
        ending = Ending(Status.found, "", answer.done, answer.standing, signature=signature, main=answer.main)
        if doubtful := answer.doubtful:
            self.recheck.withdraw(MIN_GOOD)
            contradicts = not answer.fails and answer.again.verdict.outcome is not Outcome.UNRESOLVED
            whose = Whose.CHECK if contradicts else None
            return replace(ending, status=Status.could_not_judge, message=doubtful + self.cut_short, whose=whose)
        free = self.find_min_good and self._space.closure is Closure.FREE
        rest = Trial(self.whole.elements - answer.main.elements) if free else NOTHING
        min_good = self.recheck.min_good(*self.passing(answer.searched), rest)
        verdict = answer.again.verdict
        drift = message_drift(studied.message, verdict, signature, studied.names) if signature else ""
        inside = not answer.standing.origin or answer.standing.proven_inside
        message = how_it_fails(answer.standing.size, drift, cause, inside=inside) + self.cut_short + self.flakiness
        signature = verdict.signature or signature
        told = replace(ending, message=message, min_good=min_good, signature=signature, drift=drift, cause=cause)
        return replace(told, measures=answer.measures, status=cause.ending if cause else Status.found)

    def passing(self, searched: Sequence[Inquiry]) -> tuple[Inquiry, list[Trial]]:
        """Return a search, and what it asked (not only looked at ahead) that passed: for min_good, the best first."""
        inquiry = next((one for one in reversed(searched) if one.passed), self.inquiry)
        told = {inquiry.search.space.whole: Answer.YES, **dict(inquiry.search.asked)} if self.find_min_good else {}
        return inquiry, nearest(inquiry.passed & told.keys(), (one for one in told if told[one] is Answer.YES))

    def beyond(self, excluded: frozenset[int], hand_over: HandOver | None) -> Ending | None:
        """Find another answer without these elements, which good values replace; None if the rest passes.

        A flaky check is measured again: another failure has another rate. A check whose verdicts depend on which
        failure is studied gets another journal. Raises CannotJudge.
        """
        order = tuple(element for element in self.judge.subject.space.order if element not in excluded)
        if not order:
            return None
        self._space = replace(self.judge.subject.space, order=order)
        self.question = replace(self.question, whole=f"the model without {len(excluded)} of its nodes")
        self.judge.studied.signature = None
        if self.judge.checker.reset():
            self.judge = self.judge.further(Trial(excluded))
        self.reliability = self.reliability.renewed(self.question)
        self.recheck = Recheck(hand_over, self.reliability)
        try:
            self.examine()
        except IndistinctError as error:
            log.info("%s", error)  # it fails as often as what nothing sane fails
            return None
        if not self.judge.studied.signature:
            return None
        self.open_search()
        return self.reduce()

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
        return self._space.whole

    def planned(self) -> Ending:
        """Return how it ends where only the pre-flight is asked for."""
        return Ending(Status.planned, "stopped after the pre-flight, as asked", remaining=self.inquiry.search.remaining)

    def repeat(self) -> Ending:
        """Go on until the search says enough. Where no iteration had an answer, nothing is known."""
        done, outcomes = self.inquiry.run(), self.judge.tally.outcomes
        known = [name for name in outcomes if name != Outcome.UNRESOLVED.value]
        status = Status.found if known else Status.could_not_judge
        counted = ", ".join(f"{count} {name}" for name, count in sorted(outcomes.items())) or "no iterations"
        return Ending(status, counted + (" (budget reached)" if self.inquiry.stopped else ""), done)

    def interrupted(self, exit_code: int) -> Ending:
        """How it stands where somebody stops it: the smallest set so far, if it is smaller than the whole."""
        done = self.inquiry.search.stop()
        best = done.trial if done.trial != self.whole else None
        standing = Standing(self.judge, best) if best is not None else None
        shown = f"; the best so far ({counted(standing.size, 'node')}) was not checked again" if standing else ""
        failure = self.judge.studied.signature
        return Ending(
            Status.interrupted, f"interrupted{shown}", done, standing, signature=failure, main=best, code=exit_code
        )

    # ---- parts

    def inquire(
        self,
        order: tuple[int, ...] | None = None,
        purpose: str = "search",
        most: float = math.inf,
        step: Callable[[Space], Step] | None = None,
    ) -> Inquiry:
        """Return a search for an answer, or among some elements only; see `Inquiry`."""
        where = self._space if order is None else replace(self._space, order=order)
        first = (step or self.step)(where)
        return Inquiry(
            self.judge, self.reliability, lambda known: Search(where, first, known), self.means, purpose, most
        )

    def _measure(self, surprise: ContradictionError) -> None:
        """The check is flaky: find out how much. Raises CannotJudge."""
        log.warning("%s: how reliable the check is will be measured", surprise)
        if self.reliability.rates is None:
            self.reliability.measure(self.judge, self.whole)
