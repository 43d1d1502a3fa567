"""The mixed model of an answer: it is to load in a plain ONNX Runtime, and is checked as it is handed over."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace

from runner.errors import CannotJudge
from runner.jobs.precision.ort_load_fixes import Loading
from runner.jobs.precision.ort_load_result import Loads
from runner.jobs.precision.question import Raising
from runner.judgment import Status
from runner.run_folder import MIXED
from runner.session.question import NOTHING
from runner.session.reliability import ANSWER, UNSURE, ContradictionError
from runner.session.result import Ending
from runner.session.session import Session
from runner.session.stage import Standing
from runner.text import counted
from strategies.outcome import Answer
from strategies.search import Done
from strategies.trial import Trial

log = logging.getLogger(__name__)


@dataclass
class Mixing:
    """A search for what has to be raised, and the model that comes of it.

    ``loading``: says how models load in ONNX Runtime, None: nobody asks. ``loads``: how the one that is handed over
    does, once that was asked.
    """

    session: Session
    question: Raising
    loading: Loading | None = None
    loads: Loads | None = None

    def search(self) -> tuple[Done | None, Trial]:
        """Search until an answer stands the tests; None: nothing has to be raised. Raises CannotJudge."""
        session, reliability = self.session, self.session.reliability
        assert session.nothing
        if reliability.rates is None and reliability.answer(session.nothing) is Answer.YES:
            return None, NOTHING
        log.info("%s %s", self.question.nothing, self.question.margin.described(session.nothing))
        done = session.search()
        if session.inquiry.stopped and done.trial in (None, session.whole) and reliability.rates is None:
            done = self.question.margin.nearest(session.judge, done)
        return done, session.whole if done.trial is None else done.trial

    def loadable(self, trial: Trial) -> Trial:
        """Return a trial with what has to be raised besides so that ONNX Runtime loads it, if the check passes so."""
        if self.loading is None:
            return trial
        wider, self.loads = self.loading.wider(trial)
        if wider == trial:
            return trial
        judge = self.session.judge
        label = f"{self.question.shown(judge.subject, wider)} so that it loads"
        ruling = self.session.reliability.rule(judge, wider, "re-check", label, "trust")
        if ruling is not None and ruling.answer is Answer.YES:
            return wider
        self.loads = self.loading.asked(trial)
        return trial

    def hand_over(self, done: Done | None, trial: Trial, said: str = "") -> Ending | None:
        """Write the model of an answer and check that; None: the check has proved to be flaky by it.

        ``done``: None where nothing has to be raised, but what it takes to load. ``said``: what else there is to say.
        Raises CannotJudge.
        """
        session, question = self.session, self.question
        try:
            ruling = session.recheck.rule(session.judge, trial, MIXED, ANSWER if done else 1)
        except ContradictionError as surprise:
            session.begin_again(surprise)
            return None
        passes, why = ruling.answer is Answer.YES, ruling.verdict.reason
        standing = Standing(session.judge, trial)
        added = len(self.loads.added) if self.loads else 0
        loads = f"; {counted(added, 'node')} raised so that ONNX Runtime loads the model" if added else ""
        said = f"; {said}" if said else ""
        if done is None:
            if passes:
                message = f"{self._lowest}{loads}; the model is {MIXED}.onnx{said}"
                return Ending(Status.nothing_to_find, message, standing=standing)
            session.recheck.withdraw(MIXED)
            raise CannotJudge(f"{question.nothing} passed once and did not when checked as handed over: {why}")
        count = counted(standing.size, "node")
        signature = session.nothing.signature if session.nothing else None
        ending = Ending(Status.found, "", done, standing, signature=signature)
        if not passes:
            message = f"the answer ({count}) passed once and did not when checked again ({why})"
            return replace(ending, status=Status.could_not_judge, message=message)
        budget = " (the budget was reached: fewer may do)" if session.inquiry.stopped else ""
        stays = question.stays_high
        besides = f" besides {counted(stays, 'node')} that {'stay' if stays > 1 else 'stays'} so" if stays else ""
        message = f"{count} in {question.high}{besides}, the rest in {question.low}, and the check passes{budget}"
        message += f"; {UNSURE}" if session.reliability.unsure and not session.inquiry.stopped else ""
        message += f"; {done.note}" if done.note else ""
        return replace(ending, message=f"{message}{loads}{said}{session.flakiness}")

    @property
    def _lowest(self) -> str:
        """Say that nothing has to be raised."""
        question, stays = self.question, self.question.stays_high
        held = f" ({question.emulation})" if question.emulation else ""
        if not stays:
            return f"everything passes in {question.low}{held}: no node has to be in {question.high}"
        kept = f"{counted(stays, 'node')}, which {'stay' if stays > 1 else 'stays'} in {question.high} unsearched"
        return f"all but {kept}, can be in {question.low}{held}: no other node has to be in {question.high}"
