"""An inquiry: one search over one subject, its questions answered by checks."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass, field, replace

from runner.checkers.interactive import Undo
from runner.session.judge import Judge
from runner.session.parallel import Crew
from runner.session.reliability import REMOVAL, REPEATED, Reliability, Ruling
from runner.workers.leases.leases import OutOfTime
from strategies.beyond import REFINING
from strategies.outcome import Answer, Outcome
from strategies.search import Ask, Claim, Done, Search
from strategies.trial import Trial

log = logging.getLogger(__name__)

SEARCHING = ("search", "refine", "cause", REPEATED)
"""The purposes whose checks ``budget.checks`` limits."""
MOST_ROUNDS = 10
"""How often the search of a flaky check starts again from what is known by then."""
MOST_REFUSALS, MOST_SURPRISES = 12, 3
"""How many refused removals, and sets around the answer that have not its outcome, are checked again."""
Start = Callable[[dict[Trial, Answer]], Search]
"""Makes a search that knows these answers."""


@dataclass(frozen=True)
class Budget:
    """When to stop early: checks that the search and a flaky check took, seconds since ``started``; None: never."""

    checks: int | None = None
    seconds: float | None = None
    started: float = field(default_factory=time.monotonic)


@dataclass(frozen=True)
class Means:
    """What all inquiries of a session work with. ``kill_checks`` ends the processes of running checks."""

    workers: int = 1
    budget: Budget = field(default_factory=Budget)
    kill_checks: Callable[[], None] = lambda: None


class Inquiry:
    """Asks, checks and tells until a search is done.

    ``purpose``: what its checks are counted as. ``most``: questions that may be answered at most.
    """

    def __init__(
        self,
        judge: Judge,
        reliability: Reliability,
        start: Start,
        means: Means,
        purpose: str = "search",
        most: float = math.inf,
    ) -> None:
        self.judge = judge
        self.reliability = reliability
        self.means = means
        self.purpose = purpose
        self.most = most
        self.stopped = False
        self.passed: set[Trial] = set()
        self._start = start
        self._told: dict[Trial, Answer] = {}
        self._paid: list[Trial] = []
        self.search = start({})
        judge.estimate = lambda: self.search.remaining

    def run(self) -> Done:
        """Return the end of the search; the best so far where a budget ended it (then it is ``stopped``)."""
        self.judge.estimate = lambda: self.search.remaining
        with Crew(self.means.workers, self._check, self.means.kill_checks) as crew:
            while not self.search.done:
                left = self._left()
                if self._out_of_time() or (left <= 0 and not crew.busy):
                    self.stopped = True
                    return self.search.stop()
                for ask in self.search.ask(self.means.workers):
                    if crew.free and len(crew.busy) < left and ask.trial not in crew.busy:
                        crew.start(ask)
                for ask, future in crew.finished():
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
        self.search = self._start(dict(self._told))

    def refusals(self, found: Trial) -> Iterator[Trial]:
        """The trials, one element smaller than ``found``, that do not fail: what proves it minimal."""
        for element in found:
            smaller = Trial(found.elements - {element})
            if smaller and self._told.get(smaller) is Answer.NO:
                yield smaller

    def surprises(self, found: Trial) -> Iterator[Trial]:
        """The trials that hold ``found`` and do not fail all the same."""
        for trial, answer in self._told.items():
            if answer is Answer.NO and found.elements < trial.elements:
                yield trial

    # ---- one question

    def _check(self, ask: Ask, given_up: threading.Event) -> Ruling | None:
        purpose = "refine" if ask.phase in REFINING and self.purpose == "search" else self.purpose
        return self.reliability.rule(
            self.judge, ask.trial, ask.phase, ask.label, purpose, given_up=given_up, spent=lambda: self.exhausted
        )

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
        self.search = self._start(dict(self._told))

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


def settled(inquiry: Inquiry, reliability: Reliability) -> Done:
    """Run a search until its answer, and what proves it, stands the tests.

    Raises ContradictionError where a check that was taken to be reliable contradicts itself.
    """
    for _ in range(MOST_ROUNDS):
        done = inquiry.run()
        if inquiry.stopped or done.trial is None or _stands(inquiry, reliability, done.trial):
            return done
        inquiry.begin_again()
    return replace(inquiry.run(), claim=Claim.UNPROVEN)


def _stands(inquiry: Inquiry, reliability: Reliability, answer: Trial) -> bool:
    """Whether an answer and the refusals that prove it hold when they are tested harder."""
    judge, question = inquiry.judge, reliability.question
    refusals = list(inquiry.refusals(answer))
    if reliability.rates is None:
        allowance, failing = reliability.allowance(judge), not question.wants_failure
        did = "failed" if failing else "passed"
        for trial in [*inquiry.surprises(answer)][:MOST_SURPRISES] + refusals[:MOST_REFUSALS]:
            if question.fails(judge.counted(trial)[0]) is failing:  # else it was not good enough
                label = f"{question.shown(judge.subject, trial)} that {did}"
                reliability.repeat(judge, trial, label, REMOVAL, allowance, failing=failing)
        return True
    error = reliability.max_wrong / (len(refusals) + 1)
    for trial, wanted in [(answer, Answer.YES), *((trial, Answer.NO) for trial in refusals)]:
        label = f"{question.shown(judge.subject, trial)} again"
        ruling = reliability.rule(judge, trial, "doubt", label, "trust", error=error)
        # the search hears of it when it begins again, from all verdicts there are by then
        if ruling is None or ruling.answer is not wanted:
            return False
    return True
