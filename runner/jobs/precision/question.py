"""The question of a precision search: all high passes, all low fails; what is the least that has to be high?"""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace

from runner.errors import CannotJudge
from runner.jobs.precision.ort_load import Loads
from runner.jobs.precision.ort_loadable import Loading
from runner.jobs.precision.trust import LOWEST, Trust
from runner.run_folder import MIXED
from runner.schema.checker import Flaky
from runner.session.handover import HandOver
from runner.session.inquiry import Inquiry
from runner.session.judge import Judge
from runner.session.minimality import MOST_REFUSALS, MOST_ROUNDS, MOST_SURPRISES
from runner.session.recheck import Recheck
from runner.session.reliability import ANSWER, HEALTHY, REMOVAL, UNSURE, WHOLE, ContradictionError
from runner.session.result import Ending
from runner.session.stage import Standing
from runner.status import Status
from runner.text import counted
from runner.verdict import Verdict
from strategies.outcome import Answer, Outcome
from strategies.search import Claim, Done
from strategies.trial import Trial

log = logging.getLogger(__name__)

PROVEN_BY = 2
"""Equal verdicts on either end that prove a check steady which has no reason not to be."""


@dataclass(frozen=True)
class Words:
    """How messages call things: the low type, the high one, and how low precision comes about where that matters.

    ``stays_high``, ``stays_low``: how many nodes are not searched, and so are high, or low, in every trial.
    """

    low: str
    high: str
    emulation: str = ""
    stays_high: int = 0
    stays_low: int = 0


class Question:
    """Asks, doubts and hands over.

    ``steady``: the check computes the same each time, unless the first verdicts prove otherwise. ``fails_low``: a
    verdict of a check that is part of this one, and that nothing raised has failed. ``loads``: how what is handed over
    loads in ONNX Runtime, once that was asked of ``loading``.
    """

    def __init__(
        self,
        judge: Judge,
        inquiry: Inquiry,
        handed: HandOver,
        doubt: Trust,
        words: Words,
        *,
        steady: bool = False,
        fails_low: Verdict | None = None,
        loading: Loading | None = None,
    ) -> None:
        self.judge = judge
        self.inquiry = inquiry
        self.handed = handed
        self.doubt = doubt
        self.doubt.spent = lambda: self.inquiry.exhausted
        self.words = words
        self.worst = fails_low
        self.loads: Loads | None = None
        self._loading = loading
        self._steady = steady and doubt.mode is Flaky.auto

    def preflight(self) -> Ending | None:
        """Check both ends; return an ending if there is nothing to search for. Raises CannotJudge."""
        whole = self.judge.subject.space.whole
        best = self._end(whole, f"everything in {self.words.high}", HEALTHY, settle=True)
        if best.outcome is not Outcome.PASS and self.doubt.rates is None:
            low = self.words.stays_low
            but = f" but {counted(low, 'node')} of strategy.include" if low else ""
            message = (
                f"even with everything in {self.words.high}{but} the check fails ({best.signature}): {best.reason}"
            )
            return Ending(Status.no_set_suffices, message, signature=best.signature)
        self._aim(best)
        if self.worst is None:
            self.worst = self._end(LOWEST, f"everything in {self.words.low}", WHOLE)
        if self.doubt.mode is Flaky.always and self.doubt.rates is None:
            self._measure(ContradictionError("checker.flaky=always"))
        if self._steady and self.doubt.rates is None:
            self.doubt.mode = Flaky.never
            log.info("the check is steady: it said the same of both ends again, and is not doubted any further")
        self.inquiry.note(whole, Answer.YES)
        return None

    @property
    def lowest_suffices(self) -> bool:
        """Whether nothing has to be raised."""
        return self.doubt.rates is None and self.worst is not None and self.doubt.answer(self.worst) is Answer.YES

    def search(self) -> tuple[Done, Trial]:
        """Search until an answer, and what proves it, stands the tests. Raises CannotJudge."""
        assert self.worst
        log.info("everything in %s %s", self.words.low, self._said_of(self.worst))
        whole = self.judge.subject.space.whole
        for _ in range(MOST_ROUNDS):
            try:
                done = self.inquiry.run()
                trial = done.trial if done.trial is not None else whole
                if self.inquiry.stopped and trial == whole:
                    return self._nearest(done, whole)
                if self.inquiry.stopped or self._stands(trial):
                    return done, trial
            except ContradictionError as surprise:
                self._measure(surprise)
            self.inquiry.begin_again()
        done = replace(self.inquiry.run(), claim=Claim.UNPROVEN)
        return done, done.trial if done.trial is not None else whole

    def hand_over(self, done: Done, trial: Trial, said: str = "") -> Ending | None:
        """Write the model of an answer and check that; None: the check has proved to be flaky by it.

        ``said``: what else there is to say. Raises CannotJudge.
        """
        signature = self.worst.signature if self.worst else None
        try:
            ruling = Recheck(self.handed, self.doubt).rule(self.judge, trial, MIXED, ANSWER)
        except ContradictionError as surprise:
            self._measure(surprise)
            self.inquiry.begin_again()
            return None
        count = counted(len(self.judge.subject.names(trial)), "node")
        standing = Standing(self.judge, trial)
        passes = ruling.verdict.outcome is Outcome.PASS if self.doubt.rates is None else ruling.answer is Answer.NO
        if not passes:
            message = f"the answer ({count}) passed once and did not when checked again ({ruling.verdict.reason})"
            return Ending(Status.could_not_judge, message, done, standing, signature=signature)
        budget = " (the budget was reached: fewer may do)" if self.inquiry.stopped else ""
        besides = f" besides {counted(self.words.stays_high, 'node')} that stay so" if self.words.stays_high else ""
        message = f"{count} in {self.words.high}{besides}, the rest in {self.words.low}, and the check passes{budget}"
        message += f"; {UNSURE}" if self.doubt.unsure and not self.inquiry.stopped else ""
        message += f"; {done.note}" if done.note else ""
        message += self._besides() + (f"; {said}" if said else "")
        message += f"; the check is flaky: {self.doubt}" if self.doubt.rates else ""
        return Ending(Status.found, message, done, standing, signature=signature)

    def hand_over_lowest(self, trial: Trial = LOWEST, said: str = "") -> Ending | None:
        """Hand over the model with nothing raised, and check that; None: the check has proved to be flaky by it.

        ``trial``: what is raised all the same, for it to load.
        """
        try:
            ruling = Recheck(self.handed, self.doubt).rule(self.judge, trial, MIXED)
        except ContradictionError as surprise:
            self.handed.withdraw(MIXED)
            self._measure(surprise)
            return None
        if ruling.verdict.outcome is not Outcome.PASS:
            self.handed.withdraw(MIXED)
            raise CannotJudge(
                f"everything in {self.words.low} passed once and did not when checked as handed over: "
                f"{ruling.verdict.reason}"
            )
        held = f" ({self.words.emulation})" if self.words.emulation else ""
        stays = self.words.stays_high
        but = f" but {counted(stays, 'node')} that {'stay' if stays > 1 else 'stays'} high unsearched" if stays else ""
        no = "no other node has" if stays else "no node has"
        message = f"everything{but} passes in {self.words.low}{held}: {no} to be in {self.words.high}"
        message += f"{self._besides()}; the model is {MIXED}.onnx"
        message += f"; {said}" if said else ""
        return Ending(Status.nothing_to_find, message, standing=Standing(self.judge, trial))

    def loadable(self, trial: Trial) -> Trial:
        """Return a trial with what has to be raised besides so that ONNX Runtime loads it, if the check passes so."""
        if self._loading is None:
            return trial
        wider, self.loads = self._loading.wider(trial)
        if wider == trial:
            return trial
        count = len(self.judge.subject.names(wider))
        ruling = self.doubt.rule(self.judge, wider, "re-check", f"{count} raised so that it loads", "trust")
        if ruling is not None and ruling.answer is Answer.YES:
            return wider
        self.loads = self._loading.asked(trial)
        return trial

    def _besides(self) -> str:
        added = len(self.loads.added) if self.loads else 0
        return f"; {counted(added, 'node')} raised so that ONNX Runtime loads the model" if added else ""

    def interrupted(self, exit_code: int) -> Ending:
        """How it stands where somebody stops it."""
        done = self.inquiry.search.stop()
        standing = None
        if done.trial is not None and done.trial != self.judge.subject.space.whole:
            self.handed.write(self.judge.subject, done.trial, MIXED)
            standing = Standing(self.judge, done.trial)
        message = "interrupted; the best so far was not checked again" if standing else "interrupted"
        return Ending(Status.interrupted, message, done, standing, code=exit_code)

    # ---- what is enough

    def _nearest(self, done: Done, whole: Trial) -> tuple[Done, Trial]:
        """Return the smallest set that passed, if only without the margin, where a budget ended the search early."""
        passed = [
            entry
            for entry in self.judge.journal.entries()
            if not entry.attempt and entry.verdict.outcome is Outcome.PASS and entry.trial.elements < whole.elements
        ]
        if self.doubt.rates is not None or not passed:
            return done, whole
        nearest = min(passed, key=lambda entry: len(entry.trial))
        share = self.doubt.share(nearest.verdict)
        beyond = share is not None and share > self.doubt.aim
        note = f"it takes {share:.2g} of the tolerance, where {self.doubt.aim:.2g} was aimed at" if beyond else ""
        return replace(done, trial=nearest.trial, note=note), nearest.trial

    def _aim(self, best: Verdict) -> None:
        """Aim at what can be reached: no set is nearer to what is right than everything raised."""
        least = self.doubt.share(best) or 0.0
        if least > self.doubt.aim:
            self.doubt.aim = (least + 1.0) / 2
            log.warning(
                "everything in %s takes %.2g of the tolerance already: %.2g of it is aimed at",
                self.words.high,
                least,
                self.doubt.aim,
            )

    def _said_of(self, verdict: Verdict) -> str:
        share = self.doubt.share(verdict)
        if verdict.outcome is not Outcome.PASS or share is None:
            return f"fails ({verdict.signature})"
        return f"passes with {share:.2g} of the tolerance, and {self.doubt.aim:.2g} is aimed at (strategy.margin)"

    # ---- doubt

    def _end(self, trial: Trial, label: str, times: int, *, settle: bool = False) -> Verdict:
        """Check one end, as often as it takes: what passes is repeated more often. Raises CannotJudge."""
        verdict = self.judge.verdict(trial, "pre-flight", label, "trust")
        assert verdict is not None, "only the search is stopped"
        if verdict.outcome is Outcome.UNRESOLVED:
            raise CannotJudge(f"{label} cannot be judged: {verdict.reason}")
        failing = self.doubt.fails(verdict)
        if settle and not failing:
            self.judge.checker.settle(verdict)
        times = PROVEN_BY if self._steady else times if failing else HEALTHY
        try:
            self.doubt.repeat(self.judge, trial, label, times, failing=failing)
        except ContradictionError as surprise:
            self._measure(surprise)
        again = self.judge.counted(trial)[:PROVEN_BY]
        self._steady = self._steady and len({self.doubt.share(one) for one in again}) == 1
        return verdict

    def _stands(self, found: Trial) -> bool:
        """Whether an answer and the refusals that prove it hold when they are tested harder."""
        refusals = list(self.inquiry.refusals(found))
        if self.doubt.rates is None:
            allowance = self.doubt.allowance(self.judge)
            doubtful = [*[*self.inquiry.surprises(found)][:MOST_SURPRISES], *refusals[:MOST_REFUSALS]]
            for trial in doubtful:
                if self.doubt.fails(self.judge.counted(trial)[0]):
                    label = f"{len(self.judge.subject.names(trial))} raised that failed"
                    self.doubt.repeat(self.judge, trial, label, REMOVAL, allowance, failing=True)
            return True
        error = self.doubt.max_wrong / (len(refusals) + 1)
        for trial, wanted in [(found, Answer.YES), *((trial, Answer.NO) for trial in refusals)]:
            label = f"{len(self.judge.subject.names(trial))} raised again"
            ruling = self.doubt.rule(self.judge, trial, "doubt", label, "trust", error=error)
            # the search hears of it when it begins again, from all verdicts there are by then
            if ruling is None or ruling.answer is not wanted:
                return False
        return True

    def _measure(self, surprise: ContradictionError) -> None:
        log.warning("%s: how reliable the check is will be measured", surprise)
        if self.doubt.rates is None:
            self.doubt.measure(self.judge, self.judge.subject.space.whole)
