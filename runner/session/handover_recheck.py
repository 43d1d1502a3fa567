"""The re-check: the files that are handed over are checked themselves."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from pathlib import Path

from runner.candidate import Invalid
from runner.report.check_counts import HANDED_OVER
from runner.run_folder import MIN_GOOD, REDUCED
from runner.schema.checker import Flaky
from runner.session.file_integrity import Tampered
from runner.session.handover import HandOver
from runner.session.inquiry import Inquiry
from runner.session.judge import Judge
from runner.session.reliability import REPEATED, SEARCH_ERROR, ContradictionError, Reliability, Ruling
from runner.verdict import Verdict
from strategies.outcome import Answer, Outcome
from strategies.sequential_test import Count
from strategies.trial import Trial

MOST_MIN_GOOD = 3
"""How many passing candidates are re-checked before min_good is given up."""


@dataclass(frozen=True)
class Recheck:
    """Hands models over and checks them. ``hand_over``: None where nothing is handed over (a repeat)."""

    hand_over: HandOver | None
    reliability: Reliability

    def withdraw(self, name: str) -> None:
        """Remove what was handed over under this name."""
        if self.hand_over:
            self.hand_over.withdraw(name)

    def rule(self, judge: Judge, trial: Trial, name: str, times: int = 1) -> Ruling:
        """Write the files that are handed over, and check those: ``times`` at most, or until a flaky check is sure.

        They are checked once whatever a journal says: its verdicts are about the files of another run, or of this one
        before it was interrupted. Repeats of that are not paid for twice.
        """
        assert self.hand_over
        path = self.hand_over.write(judge.subject, trial, name)
        try:
            return self._rule(judge, trial, name, path, times)
        except Tampered:
            self.withdraw(name)  # what lies there now may be anything
            raise

    def _rule(self, judge: Judge, trial: Trial, name: str, path: Path, times: int) -> Ruling:
        wanted = Answer.NO if name == MIN_GOOD else Answer.YES
        question, rates, count = self.reliability.question, self.reliability.rates, Count()
        if name == REDUCED:
            rates = self.reliability.rates_of(judge, trial)
        for attempt in itertools.count(HANDED_OVER):
            verdict = self._check_file(judge, trial, name, path, attempt)
            answer = question.answer(verdict)
            count = count.and_(question.fails(verdict))
            if rates:
                decided = self.reliability.decided(rates, count, min(self.reliability.max_wrong, SEARCH_ERROR))
                if decided or verdict.outcome is Outcome.UNRESOLVED:
                    return Ruling(decided or answer, verdict)
                if self.reliability.out_of_budget():  # what it rather is, by all that is known of it
                    known = self.reliability.counted(judge.counted(trial))
                    together = Count(count.failed + known.failed, count.passed + known.passed)
                    rather = Answer.YES if rates.odds(together) > 0 else Answer.NO
                    return Ruling(question.of_failing(rather), verdict)
                continue
            never = self.reliability.mode is Flaky.never
            if answer is not wanted and not never and verdict.outcome is not Outcome.UNRESOLVED:
                raise ContradictionError(f"{name}: {verdict.outcome.value} as handed over")
            if answer is wanted:
                self.reliability.agree(judge, trial, attempt)
            enough = never or count.total >= times or not self.reliability.affords(judge)
            if answer is not wanted or enough or self.reliability.out_of_budget():
                return Ruling(answer, verdict)
        raise AssertionError("attempts do not end")

    def min_good(self, inquiry: Inquiry, size: int) -> Trial | None:
        """The largest passing trial smaller than an answer, else the smallest larger one; re-checked, never empty."""
        place = sorted(inquiry.passed, key=lambda t: t.ranges)
        smaller = sorted((t for t in place if 0 < len(t) < size), key=len, reverse=True)
        larger = sorted((t for t in place if len(t) >= size), key=len)
        for found in (*smaller, *larger)[:MOST_MIN_GOOD]:
            try:
                if self.rule(inquiry.judge, found, MIN_GOOD).verdict.outcome is Outcome.PASS:
                    return found
            except ContradictionError:
                self.withdraw(MIN_GOOD)
                raise
            self.withdraw(MIN_GOOD)
        return None

    def _check_file(self, judge: Judge, trial: Trial, name: str, path: Path, attempt: int) -> Verdict:
        label = f"{name}, as handed over"
        # the first check is of the file just written, so it is made in any case; its repeats may be recorded ones
        if attempt > HANDED_OVER and (known := judge.recall(trial, attempt, "re-check", label)):
            return known
        _, made = judge.make(trial, "re-check", label)
        if isinstance(made, Invalid):  # a verdict from a journal, and values recorded otherwise this time
            return Verdict(Outcome.UNRESOLVED, reason=made.reason)
        made.discard()
        with judge.journal.claimed(trial, attempt):  # else another job's verdict could be taken for this one
            judge.journal.refresh()
            if judge.journal.get(trial, attempt):
                judge.journal.forget(trial, attempt)
            purpose = REPEATED if self.reliability.rates and attempt > HANDED_OVER else "trust"
            verdict = judge.check(replace(made, model=path, temporary=False), purpose, attempt, own=False)
        assert verdict is not None, "only the search is given up"
        return verdict
