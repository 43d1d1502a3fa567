"""The session: pre-flight, search, refinement, control, re-check. It owns the order of things and nothing else."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from dataclasses import replace

from runner.jobs.reduce.cause.prover import Causes, Prover
from runner.jobs.reduce.preflight import Preflight, confirm_control, refuse, study, trusted
from runner.jobs.reduce.subgraph import THE_FILE
from runner.journal.journal import Journal
from runner.run_folder import REDUCED
from runner.schema.checker import Flaky
from runner.session.cause import Cause
from runner.session.handover import HandOver
from runner.session.inquiry import Inquiry, Means, ruled
from runner.session.judge import Judge
from runner.session.minimality import settled
from runner.session.recheck import Recheck
from runner.session.reliability import (
    HEALTHY,
    UNSURE,
    WHOLE,
    ContradictionError,
    Doubt,
    IndistinctError,
)
from runner.session.result import Ending
from runner.session.run_stages import HandedOver, Refined, Refining
from runner.session.stage import Refiner, Standing
from runner.status import Status
from runner.text import counted
from runner.verdict import Verdict, message_drift
from strategies.outcome import Answer, Outcome
from strategies.search import Done, Search, Step
from strategies.space import Space
from strategies.trial import Trial

log = logging.getLogger(__name__)


class Session:
    """One question put to one checker, from the first doubt to the verified answer."""

    def __init__(  # noqa: PLR0913 - all but the first two by name
        self,
        judge: Judge,
        search: Callable[[Space], Step],
        *,
        means: Means | None = None,
        doubt: Doubt | None = None,
        find_min_good: bool = True,
        hand_over: HandOver | None = None,
        refiner: Refiner | None = None,
        causes: Causes | None = None,
        opening: Preflight | None = None,
    ) -> None:
        """``hand_over``: None where nothing is (a repeat). ``refiner``: what is tried on an answer, None: nothing.

        ``causes``: how an answer is shown to be the cause, None: not at all. ``opening``: what is asked about the
        user's file and the check before the whole model, None: nothing.
        """
        self.judge = judge
        self.means = means or Means()
        self.doubt = doubt or Doubt(Flaky.never, 0.01)
        self.doubt.spent = self._spent
        self.find_min_good = find_min_good
        self.recheck = Recheck(hand_over, self.doubt)
        self.refiner = refiner
        self.causes = causes
        self.opening = opening
        self._step = search
        self._space = judge.subject.space
        self.inquiry = self._inquiry()

    # ---- reduce: the whole fails, the smallest set that still fails is wanted

    def preflight(self) -> Ending | None:
        """Check the file and the whole model; return an ending if there is nothing to search. Raises CannotJudge."""
        label = "the whole model"
        if self.opening:
            seen = self.opening.file(self.judge, self.doubt)
            if seen.outcome is Outcome.PASS and not self.opening.flaky:
                return _nothing_to_find(seen.reason)
            if seen.outcome is Outcome.UNRESOLVED:
                rewritten = trusted(self.judge, self._space.whole, "pre-flight", label)
                if rewritten.outcome is not Outcome.FAIL:
                    refuse(self.judge, seen, THE_FILE)
            self._adopt(self.opening.judged(self.judge))
        verdict = self._examine(label)
        if not self.judge.baseline:
            return _nothing_to_find(verdict.reason)
        if self.opening and verdict.outcome is not Outcome.FAIL and self.doubt.rates is None:
            self._adopt(self.opening.weakened(self.judge, self.doubt, verdict))
            verdict = self._examine(label)
            if verdict.outcome is not Outcome.FAIL and self.doubt.rates is None:
                refuse(self.judge, verdict, label)
        self.inquiry = self._inquiry()  # which end is looked for first depends on the failure
        self.inquiry.note(self._space.whole, Answer.YES)
        log.info("the whole model fails (%s); this is the failure under study", self.judge.baseline)
        return None

    def _adopt(self, judge: Judge) -> None:
        """Go on with other candidates: those that the check can judge, and that fail as the user's file does."""
        if judge is not self.judge:
            self.judge, self._space = judge, judge.subject.space
            self.inquiry = self._inquiry()

    def _examine(self, label: str) -> Verdict:
        """Check all that is searched, as often as it takes; how it fails is what is studied. Raises CannotJudge."""
        whole = self._space.whole
        try:
            verdict = trusted(self.judge, whole, "pre-flight", label)
            if verdict.outcome is Outcome.FAIL:
                if not self.judge.baseline:
                    study(self.judge, verdict, label)
            elif verdict.outcome is not Outcome.PASS and not self.judge.baseline:
                refuse(self.judge, verdict, label)
            if self.opening and self.opening.flaky:
                raise self.opening.flaky
            if self.doubt.mode is Flaky.always:
                raise ContradictionError("checker.flaky=always")
            failing = verdict.outcome is Outcome.FAIL
            times = HEALTHY if verdict.outcome is Outcome.PASS else WHOLE
            self.doubt.repeat(self.judge, whole, label, times, failing=failing)
        except ContradictionError as surprise:
            self._measure(surprise, label)
        return verdict

    def reduce(self) -> Ending:
        """Search, then doubt: control, re-check of the answer, min_good; again where the check proves to be flaky."""
        while True:
            try:
                return self._reduce()
            except ContradictionError as surprise:  # noqa: PERF203 - it happens once
                self._measure(surprise)
                self.recheck.withdraw(REDUCED)
                self.inquiry.begin_again()

    def beyond(
        self, excluded: frozenset[int], hand_over: HandOver | None, journal: Callable[[], Journal] | None = None
    ) -> Ending | None:
        """Find another answer without these elements, which good values replace; None if the rest passes.

        A flaky check is measured again: another failure has another rate. ``journal``: opens one for verdicts about
        another failure, if those of the checker depend on which one is studied. Raises CannotJudge, as the pre-flight
        does.
        """
        order = tuple(element for element in self.judge.subject.space.order if element not in excluded)
        if not order:
            return None
        self._space = replace(self.judge.subject.space, order=order)
        self.judge.baseline = None
        if self.judge.checker.reset() and journal:
            self.judge = self.judge.beside(self.judge.subject, journal())
        self.doubt = self.doubt.renewed()
        self.recheck = Recheck(hand_over, self.doubt)
        try:
            self._examine(f"the model without {len(excluded)} of its nodes")
        except IndistinctError as error:
            log.info("%s", error)  # it fails as often as what nothing sane fails
            return None
        if not self.judge.baseline:
            return None
        self.inquiry = self._inquiry()
        self.inquiry.note(self._space.whole, Answer.YES)
        return self.reduce()

    def _reduce(self) -> Ending:
        done = settled(self.inquiry, self.doubt)
        if self.opening:
            self.opening.refuse_the_file_alone(self.judge, done.trial)
        if not self.inquiry.passed and not (self.opening and self.opening.controlled):
            confirm_control(self.judge, self.opening, flaky=self.doubt.rates is not None)
        answer = self._answer(self.inquiry, done)
        cause, doubtful = None, answer.doubtful
        if self.causes and not self.inquiry.stopped and not doubtful:
            answer, cause = self._cause(self.causes, answer)
            doubtful = answer.doubtful
        if doubtful:
            return self._could_not_judge(answer, doubtful + self._cut_short())
        inquiry = next((one for one in reversed(answer.searched) if one.passed), self.inquiry)
        min_good = self.recheck.min_good(inquiry, answer.standing.size) if self.find_min_good else None
        message = f"{answer.shown} still fail{'s' * (answer.standing.size == 1)}"
        signature, studied = self.judge.baseline, self.judge.studied
        drift = message_drift(studied.message, answer.again.verdict, signature, studied.names) if signature else ""
        message += f"; {drift}" if drift else " the same way"
        if cause:
            message += f"; cause: {cause.said}"
        message += self._cut_short()
        if self.doubt.rates:
            message += f"; the check is flaky: {self.doubt}"
        return Ending(
            Status.found,
            message,
            answer.done,
            answer.standing,
            min_good,
            answer.again.verdict.signature or signature,
            main=answer.main,
            drift=drift,
            cause=cause,
        )

    def _cut_short(self) -> str:
        """Say what the budget ended too early."""
        if self.inquiry.stopped:
            return "; the budget was reached before the search ended"
        return f"; {UNSURE}" if self.doubt.unsure else ""

    def _could_not_judge(self, answer: HandedOver, message: str) -> Ending:
        return Ending(
            Status.could_not_judge,
            message,
            answer.done,
            answer.standing,
            signature=self.judge.baseline,
            main=answer.main,
        )

    def _answer(self, inquiry: Inquiry, done: Done) -> HandedOver:
        """Make what a search found as small as it gets in other ways, hand it over and check it again."""
        main = done.trial or self._space.whole
        refining = Refining(self.refiner, self.doubt, self.means, self.recheck, self._spent)
        return refining.hand_over(Refined(done, Standing(self.judge, main), inquiry))

    def _cause(self, causes: Causes, first: HandedOver) -> tuple[HandedOver, Cause]:
        """Find out whether the failure arises inside an answer; return the answer that stands then."""
        found: dict[Trial, tuple[Inquiry, Done]] = {}

        def search(order: tuple[int, ...], questions: int) -> Search | None:
            space = replace(self._space, order=order)
            label = "the model without what has good values"
            rest = ruled(self.doubt, self.judge, space.whole, "cause", label, "cause", self._spent)
            if rest is None or rest.answer is not Answer.YES:
                return None
            inquiry = self._inquiry(space, "cause", questions, causes.search)
            inquiry.note(space.whole, Answer.YES)
            done = settled(inquiry, self.doubt) if self.doubt.rates else inquiry.run()
            if done.trial and not inquiry.stopped:
                found[done.trial] = inquiry, done
            return inquiry.search

        prover = Prover(self.judge, self.doubt, causes, search, self.inquiry.answered, self._spent)
        cause = prover.prove(first.standing.top_level(self.judge.subject) or first.main)
        other = found.get(cause.answers[cause.main].answer)
        return self._answer(*other) if other else first, cause

    def _spent(self) -> bool:
        return self.inquiry.exhausted

    # ---- repeat: no question asked beforehand

    def repeat(self) -> Ending:
        """Go on until the search says enough."""
        done = self.inquiry.run()
        outcomes = self.judge.tally.outcomes
        counted = ", ".join(f"{count} {name}" for name, count in sorted(outcomes.items())) or "no iterations"
        return Ending(Status.found, f"{counted}" + (" (budget reached)" if self.inquiry.stopped else ""), done)

    def interrupted(self, exit_code: int) -> Ending:
        """How it stands where somebody stops it: the smallest set so far, if it is smaller than the whole."""
        done = self.inquiry.search.stop()
        best = done.trial if done.trial and done.trial != self._space.whole else None
        message = (
            f"interrupted; the best so far ({counted(len(best), 'node')}) was not checked again"
            if best
            else "interrupted"
        )
        standing = Standing(self.judge, best) if best else None
        return Ending(
            Status.interrupted, message, done, standing, signature=self.judge.baseline, main=best, code=exit_code
        )

    # ---- trust

    def _inquiry(
        self,
        space: Space | None = None,
        purpose: str = "search",
        most: float = math.inf,
        step: Callable[[Space], Step] | None = None,
    ) -> Inquiry:
        where, first = space or self._space, step or self._step

        def start(known: dict[Trial, Answer]) -> Search:
            return Search(where, first(where), known)

        return Inquiry(self.judge, self.doubt, start, self.means, purpose, most)

    def _measure(self, surprise: ContradictionError, label: str = "the whole model") -> None:
        """The check is flaky: find out how much. Raises CannotJudge."""
        log.warning("%s: how reliable the check is will be measured", surprise)

        def each_time(verdict: Verdict) -> None:
            if verdict.outcome is Outcome.FAIL and not self.judge.baseline:
                study(self.judge, verdict, label)

        if self.doubt.rates is None:
            self.doubt.measure(self.judge, self._space.whole, each_time, label)


def _nothing_to_find(why: str) -> Ending:
    said = f" ({why})" if why else ""
    return Ending(Status.nothing_to_find, f"the whole model passes the check{said}: there is nothing to reduce")
