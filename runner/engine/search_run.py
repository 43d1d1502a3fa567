"""An inquiry: one search over one subject, its questions answered by checks."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from functools import partial

from runner.checkers.interactive import Undo
from runner.engine.check_trials import CheckLimits, Judge, ParallelChecks
from runner.engine.repeated_checks import Reliability, Ruling, refused_removals
from runner.verdict import Phase, Purpose, Verdict
from runner.workers.gpu_leases import OutOfTime
from strategies.minimal import REFINING
from strategies.search import Answer, Ask, Claim, Done, Outcome, Search, Trial

log = logging.getLogger(__name__)

SEARCHING = tuple(one for one in Purpose if one is not Purpose.TRUST)
"""The purposes whose checks ``budget.checks`` limits."""
MOST_ROUNDS = 10
"""How often the search of a flaky check starts again from what is known by then."""
Start = Callable[[dict[Trial, Answer]], Search]
"""Makes a search that knows these answers."""


@dataclass(eq=False)
class SearchRun:
    """Asks, checks and tells until a search is done.

    ``purpose``: what its checks are counted as. ``most``: questions that may be answered at most.
    """

    judge: Judge
    reliability: Reliability
    start: Start
    means: CheckLimits
    purpose: Purpose = Purpose.SEARCH
    most: float = math.inf
    stopped: bool = False
    passed: set[Trial] = field(default_factory=set)
    _told: dict[Trial, Answer] = field(default_factory=dict)
    _paid: list[Trial] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.search = self.start({})
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
        self.search = self.start(dict(self._told))

    # ---- one question

    def _after(self, trial: Trial, verdict: Verdict) -> Ask | Done:
        """Return what the search asks after a verdict, or its end; of a flaky check one verdict may be no answer."""
        if self.reliability.rates is not None:
            return self.search.next
        return self.search.after(trial, self.reliability.answer(verdict))

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
        self.search = self.start(dict(self._told))

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
