"""The question of a precision search: all high passes, all low fails; what is the least that has to be high?"""

from __future__ import annotations

import logging
from dataclasses import replace

from runner.doubt import ANSWER, HEALTHY, REMOVAL, WHOLE, ContradictionError
from runner.ending import Ending
from runner.errors import CannotJudge
from runner.handover import MIXED, HandOver
from runner.inquiry import Inquiry
from runner.judge import Judge
from runner.listing import counted
from runner.loadable import Loadable
from runner.loads import Loads
from runner.minimality import MOST_REFUSALS, MOST_ROUNDS, MOST_SURPRISES
from runner.recheck import Recheck
from runner.schema.checker import Flaky
from runner.stage import Standing
from runner.trust import LOWEST, Trust
from runner.verdict import Verdict
from strategies.outcome import Answer, Outcome
from strategies.search import Claim, Done
from strategies.trial import Trial

log = logging.getLogger(__name__)


class Question:
    """Asks, doubts and hands over. ``names``: of the low type and of the high one.

    ``loads``: how what is handed over loads in ONNX Runtime, once that was asked of ``loadable``.
    """

    def __init__(
        self,
        judge: Judge,
        inquiry: Inquiry,
        handed: HandOver,
        doubt: Trust,
        names: tuple[str, str],
        loadable: Loadable | None = None,
    ) -> None:
        self.judge = judge
        self.inquiry = inquiry
        self.handed = handed
        self.doubt = doubt
        self.low, self.high = names
        self.loadable = loadable
        self.loads: Loads | None = None
        self._worst: Verdict | None = None

    def preflight(self) -> Ending | None:
        """Check both ends; return an ending if there is nothing to search for. Raises CannotJudge."""
        whole = self.judge.subject.space.whole
        best = self._end(whole, f"everything in {self.high}", HEALTHY, settle=True)
        if best.outcome is not Outcome.PASS and self.doubt.rates is None:
            message = f"even with everything in {self.high} the check fails ({best.signature}): {best.reason}"
            return Ending("no_set_suffices", 5, message, signature=best.signature)
        self._worst = worst = self._end(LOWEST, f"everything in {self.low}", WHOLE)
        if self.doubt.mode is Flaky.always and self.doubt.rates is None:
            self._measure(ContradictionError("checker.flaky=always"))
        if worst.outcome is Outcome.PASS and self.doubt.rates is None:
            lowest = self._lowest_handed_over()
            if lowest is not None:
                message = f"everything passes in {self.low}: no node has to be in {self.high}{self._besides()}"
                message += f"; the model is {MIXED}.onnx"
                return Ending("nothing_to_find", 4, message, standing=Standing(self.judge, lowest))
        log.info("everything in %s fails (%s)", self.low, worst.signature)
        self.inquiry.note(whole, Answer.YES)
        return None

    def answer(self) -> Ending:
        """Search until an answer, and what proves it, stands the tests; hand it over. Raises CannotJudge."""
        for _ in range(MOST_ROUNDS):
            try:
                done = self.inquiry.run()
                trial = done.trial if done.trial is not None else self.judge.subject.space.whole
                if self.inquiry.stopped or self._stands(trial):
                    return self._handed_over(done, trial)
            except ContradictionError as surprise:
                self._measure(surprise)
            self.inquiry.begin_again()
        done = replace(self.inquiry.run(), claim=Claim.UNPROVEN)
        return self._handed_over(done, done.trial or self.judge.subject.space.whole)

    def _handed_over(self, done: Done, trial: Trial) -> Ending:
        trial = self._loadable(trial)
        signature = self._worst.signature if self._worst else None
        ruling = Recheck(self.handed, self.doubt).rule(self.judge, trial, MIXED, ANSWER)
        count = counted(len(trial), "node")
        standing = Standing(self.judge, trial)
        passes = ruling.verdict.outcome is Outcome.PASS if self.doubt.rates is None else ruling.answer is Answer.NO
        if not passes:
            message = f"the answer ({count}) passed once and did not when checked again ({ruling.verdict.reason})"
            return Ending("could_not_judge", CannotJudge.exit_code, message, done, standing, signature=signature)
        budget = " (the budget was reached: fewer may do)" if self.inquiry.stopped else ""
        message = f"{count} in {self.high}, the rest in {self.low}, and the check passes{budget}"
        message += f"; {done.note}" if done.note else ""
        message += self._besides()
        message += f"; the check is flaky: {self.doubt}" if self.doubt.rates else ""
        return Ending("found", 0, message, done, standing, signature=signature)

    def _loadable(self, trial: Trial) -> Trial:
        """Return a trial with what has to be raised besides so that ONNX Runtime loads it, if the check passes so."""
        if self.loadable is None:
            return trial
        self.loads = self.loadable.raised(trial.elements)
        if self.loads.added:
            wider = Trial(self.loads.raised)
            ruling = self.doubt.rule(self.judge, wider, "re-check", f"{len(wider)} raised so that it loads", "trust")
            if ruling is None or ruling.answer is not Answer.YES:
                self.loads = self.loadable.asked(trial.elements)
        return Trial(self.loads.raised)

    def _besides(self) -> str:
        added = len(self.loads.added) if self.loads else 0
        return f"; {counted(added, 'node')} raised so that ONNX Runtime loads the model" if added else ""

    def _lowest_handed_over(self) -> Trial | None:
        """Hand over the model with nothing raised, and check that; None: the check has proved to be flaky by it."""
        lowest = self._loadable(LOWEST)
        try:
            ruling = Recheck(self.handed, self.doubt).rule(self.judge, lowest, MIXED)
        except ContradictionError as surprise:
            self.handed.withdraw(MIXED)
            self._measure(surprise)
            return None
        if ruling.verdict.outcome is not Outcome.PASS:
            self.handed.withdraw(MIXED)
            raise CannotJudge(
                f"everything in {self.low} passed once and did not when checked as handed over: {ruling.verdict.reason}"
            )
        return lowest

    def interrupted(self, exit_code: int) -> Ending:
        """How it stands where somebody stops it."""
        done = self.inquiry.search.stop()
        standing = None
        if done.trial is not None and done.trial != self.judge.subject.space.whole:
            self.handed.write(self.judge.subject, done.trial, MIXED)
            standing = Standing(self.judge, done.trial)
        message = "interrupted; the best so far was not checked again" if standing else "interrupted"
        return Ending("interrupted", exit_code, message, done, standing)

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
        try:
            self.doubt.repeat(self.judge, trial, label, times if failing else HEALTHY, failing=failing)
        except ContradictionError as surprise:
            self._measure(surprise)
        return verdict

    def _stands(self, found: Trial) -> bool:
        """Whether an answer and the refusals that prove it hold when they are tested harder."""
        refusals = list(self.inquiry.refusals(found))
        if self.doubt.rates is None:
            allowance = self.doubt.allowance(self.judge)
            doubtful = [*[*self.inquiry.surprises(found)][:MOST_SURPRISES], *refusals[:MOST_REFUSALS]]
            for trial in doubtful:
                if self.doubt.fails(self.judge.counted(trial)[0]):
                    label = f"{len(trial)} raised that failed"
                    self.doubt.repeat(self.judge, trial, label, REMOVAL, allowance, failing=True)
            return True
        error = self.doubt.max_wrong / (len(refusals) + 1)
        for trial, wanted in [(found, Answer.YES), *((trial, Answer.NO) for trial in refusals)]:
            label = f"{len(trial)} raised again"
            ruling = self.doubt.rule(self.judge, trial, "doubt", label, "trust", error=error)
            if ruling is None:
                return False
            self.inquiry.note(trial, ruling.answer)
            if ruling.answer is not wanted:
                return False
        return True

    def _measure(self, surprise: ContradictionError) -> None:
        log.warning("%s: how reliable the check is will be measured", surprise)
        if self.doubt.rates is None:
            self.doubt.measure(self.judge, self.judge.subject.space.whole)
