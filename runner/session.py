"""The session: pre-flight, search, control, re-check. It owns the order of things and nothing else."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field, replace

from runner.candidate import Invalid
from runner.checkers.interactive import Undo
from runner.crew import Crew
from runner.errors import CannotJudge
from runner.handover import MIN_GOOD, REDUCED, HandOver
from runner.judge import Judge
from runner.verdict import Signature, Verdict
from strategies.outcome import Answer, Outcome, answer_of
from strategies.search import Ask, Done, Search
from strategies.trial import Trial

log = logging.getLogger(__name__)

CONTROL = Trial.of([])
"""The control: a lone Identity, which no sane check fails."""
MOST_MIN_GOOD = 3
"""How many passing candidates are re-checked before min_good is given up."""


@dataclass(frozen=True)
class Budget:
    """When to stop early: checks paid for by the search, seconds of wall time since ``started``; None: never."""

    checks: int | None = None
    seconds: float | None = None
    started: float = field(default_factory=time.monotonic)


@dataclass(frozen=True)
class Ending:
    """How a session ended. ``trial``: the answer; ``min_good``: the trial nearest to it that passes."""

    status: str
    exit_code: int
    message: str
    done: Done | None = None
    trial: Trial | None = None
    min_good: Trial | None = None
    signature: Signature | None = None
    remaining: int = 0


class Session:
    """One question put to one checker, from the first doubt to the verified answer."""

    def __init__(
        self,
        judge: Judge,
        start: Callable[[dict[Trial, Answer]], Search],
        *,
        workers: int = 1,
        budget: Budget | None = None,
        find_min_good: bool = True,
        hand_over: HandOver | None = None,
        kill_checks: Callable[[], None] = lambda: None,
    ) -> None:
        """``hand_over``: None where nothing is (a repeat). ``kill_checks`` ends the processes of running checks."""
        self.judge = judge
        self.workers = workers
        self.budget = budget or Budget()
        self.find_min_good = find_min_good
        self.hand_over = hand_over
        self._kill_checks = kill_checks
        self._start = start
        self._told: dict[Trial, Answer] = {}
        self._passed: set[Trial] = set()
        self._paid_in_search: list[Trial] = []
        self.search = start({})
        judge.estimate = lambda: self.search.remaining

    # ---- reduce: the whole fails, the smallest set that still fails is wanted

    def preflight(self) -> Ending | None:
        """Check the whole model; return an ending if there is nothing to search for. Raises CannotJudge."""
        whole = self.judge.subject.space.whole
        verdict = self._trust(whole, "pre-flight", "the whole model")
        if verdict.outcome is Outcome.PASS:
            return self._nothing_to_find()
        if verdict.outcome is not Outcome.FAIL or not verdict.signature:
            raise CannotJudge(
                "the whole model does not fail in a way that can be studied: "
                f"{verdict.outcome.value}, {verdict.reason}\ncheck: {self.judge.checker.describe()}"
            )
        self.judge.baseline = verdict.signature
        self.judge.checker.settle(verdict)
        self._note(whole, Answer.YES)
        log.info("the whole model fails (%s); this is the failure under study", verdict.signature)
        return None

    def reduce(self) -> Ending:
        """Search, then doubt: control, re-check of the answer, min_good."""
        stopped = self._run_search()
        done = self.search.stop() if stopped else self.search.done
        assert done is not None
        trial = done.trial or self.judge.subject.space.whole
        if not self._passed:
            self._control()
        again = self._recheck(trial, REDUCED)
        signature = self.judge.baseline
        if again.outcome is not Outcome.FAIL:
            return Ending(
                "could_not_judge",
                CannotJudge.exit_code,
                f"the answer ({_nodes(trial)}) failed once and did not when checked again ({again.reason}): "
                "the check is not reliable",
                done,
                trial,
                signature=signature,
            )
        min_good = self._min_good(trial) if self.find_min_good else None
        message = f"{_nodes(trial)} still fail{'s' * (len(trial) == 1)} the same way"
        return Ending("found", 0, message, done, trial, min_good, again.signature or signature)

    # ---- repeat: no question asked beforehand

    def repeat(self) -> Ending:
        """Go on until the search says enough."""
        stopped = self._run_search()
        done = self.search.stop() if stopped else self.search.done
        assert done is not None
        outcomes = self.judge.tally.outcomes
        counted = ", ".join(f"{count} {name}" for name, count in sorted(outcomes.items())) or "no iterations"
        return Ending("found", 0, f"{counted}" + (" (budget reached)" if stopped else ""), done)

    def interrupted(self, exit_code: int) -> Ending:
        """How it stands where somebody stops it: the smallest set so far, if it is smaller than the whole."""
        done = self.search.stop()
        best = done.trial if done.trial and done.trial != self.judge.subject.space.whole else None
        message = f"interrupted; the best so far ({_nodes(best)}) was not checked again" if best else "interrupted"
        return Ending("interrupted", exit_code, message, done, best, signature=self.judge.baseline)

    # ---- the loop

    def _run_search(self) -> bool:
        """Ask, check, tell until the search is done; return True if a budget ended it first."""
        with Crew(self.workers, self._check, self._kill_checks) as crew:
            while not self.search.done:
                left = self._left()
                if self._out_of_time() or (left <= 0 and not crew.busy):
                    return True
                for ask in self.search.ask(self.workers):
                    if crew.free and len(crew.busy) < left and ask.trial not in crew.busy:
                        crew.start(ask)
                for ask, future in crew.finished():
                    self._take(ask, future)
        return False

    def _check(self, ask: Ask, given_up: threading.Event) -> Verdict | None:
        return self.judge.verdict(ask.trial, ask.phase, ask.label, "search", given_up=given_up)

    def _take(self, ask: Ask, future: Future[Verdict | None]) -> None:
        try:
            verdict = future.result()
        except Undo:
            self._undo()
            return
        if verdict is None:
            return
        self._paid_in_search.append(ask.trial)
        if verdict.outcome is Outcome.PASS:
            self._passed.add(ask.trial)
        self._note(ask.trial, answer_of(verdict.outcome))

    def _note(self, trial: Trial, answer: Answer) -> None:
        self._told[trial] = answer
        self.search.tell(trial, answer)

    def _undo(self) -> None:
        """Take the last answer back and start again from those before it."""
        if not self._paid_in_search:
            log.warning("nothing to undo")
            return
        trial = self._paid_in_search.pop()
        self.judge.journal.forget(trial, 0)
        self._told.pop(trial, None)
        self._passed.discard(trial)
        self.search = self._start(dict(self._told))

    def _left(self) -> float:
        """How many checks the search may still pay for."""
        most = self.budget.checks
        return math.inf if most is None else most - self.judge.tally.paid["search"]

    def _out_of_time(self) -> bool:
        seconds = self.budget.seconds
        return seconds is not None and time.monotonic() - self.budget.started >= seconds

    # ---- trust

    def _trust(self, trial: Trial, phase: str, label: str) -> Verdict:
        while True:
            try:
                verdict = self.judge.verdict(trial, phase, label, "trust")
            except Undo:
                log.warning("nothing to undo")
                continue
            assert verdict is not None, "only the search is stopped"
            return verdict

    def _nothing_to_find(self) -> Ending:
        """The whole passes.

        If the user's own file fails all the same, it is our reading of it that hides the failure.
        """
        iteration, folder = self.judge.folder_for()
        original = self.judge.subject.original(folder, iteration)
        verdict = self.judge.check(original, "trust", record=False, own=False) if original else None
        if verdict and verdict.outcome is Outcome.FAIL:
            raise CannotJudge(
                f"the model file fails ({verdict.signature}), but not once its inputs have fixed shapes and the "
                "recorded values. Give the shapes it fails with (inputs.shapes='{name: [..]}') or its inputs "
                f"(inputs=files).\ncheck: {self.judge.checker.describe()}"
            )
        return Ending("nothing_to_find", 4, "the whole model passes the check: there is nothing to reduce")

    def _control(self) -> None:
        """Nothing ever passed: can this check tell good from bad at all? Raises CannotJudge."""
        verdict = self._trust(CONTROL, "control", "a lone Identity")
        if verdict.outcome is not Outcome.PASS:
            raise CannotJudge(
                "nothing passed this check, not even a model of one Identity node "
                f"({verdict.outcome.value}: {verdict.reason}): it cannot tell good from bad.\n"
                f"check: {self.judge.checker.describe()}"
            )

    def _recheck(self, trial: Trial, name: str) -> Verdict:
        """Write the files that are handed over, and check those."""
        assert self.hand_over
        known = self.judge.journal.get(trial, 1)
        path = self.hand_over.write(trial, name)
        if known:
            return self._trust_known(trial)
        iteration, folder = self.judge.folder_for()
        made = self.judge.subject.make(trial, folder, iteration, "re-check", f"{name}, as handed over")
        if isinstance(made, Invalid):  # a verdict from a journal, and values recorded otherwise this time
            return Verdict(Outcome.UNRESOLVED, reason=made.reason)
        self.judge.subject.discard(made)
        verdict = self.judge.check(replace(made, model=path), "trust", attempt=1, own=False)
        assert verdict is not None
        return verdict

    def _trust_known(self, trial: Trial) -> Verdict:
        verdict = self.judge.verdict(trial, "re-check", "as handed over", "trust", attempt=1)
        assert verdict is not None
        return verdict

    def _min_good(self, trial: Trial) -> Trial | None:
        """The largest passing trial smaller than the answer, else the smallest larger one; re-checked, never empty."""
        place = sorted(self._passed, key=lambda t: t.ranges)
        smaller = sorted((t for t in place if 0 < len(t) < len(trial)), key=len, reverse=True)
        larger = sorted((t for t in place if len(t) >= len(trial)), key=len)
        assert self.hand_over
        for found in (*smaller, *larger)[:MOST_MIN_GOOD]:
            if self._recheck(found, MIN_GOOD).outcome is Outcome.PASS:
                return found
            self.hand_over.withdraw(MIN_GOOD)
        return None


def _nodes(trial: Trial) -> str:
    return f"{len(trial)} node{'s' * (len(trial) != 1)}"
