"""Refining: an answer is made smaller by one stage after the other, as long as its failure stays reliable.

A failure near a limit (a check that takes nearly as long as it may) is reliable on the answer of the search and may be
a matter of luck on a smaller one. Such a refinement is refused, and the answer before it stands. Two verdicts that
contradict each other in a stage may also mean that the check itself is flaky: the answer before it and the control are
repeated to tell these apart.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace

from runner.report.unresolved import kept_for_the_check
from runner.run_folder import REDUCED
from runner.session.inquiry import Inquiry, Means, ruled
from runner.session.minimality import settled
from runner.session.recheck import Recheck
from runner.session.reliability import (
    ANSWER,
    CONTROL,
    HEALTHY,
    MEASURED,
    ContradictionError,
    Doubt,
    Ruling,
)
from runner.session.stage import Refiner, Stage, Standing
from runner.text import counted
from strategies.outcome import Answer, Outcome
from strategies.search import Claim, Done
from strategies.trial import Trial

log = logging.getLogger(__name__)

TWICE = 2
"""How often a smaller answer is checked before anything is tried on it."""


@dataclass(frozen=True)
class Refined:
    """An answer. ``inquiry``: the search that led to it, None: what was left out is no node."""

    done: Done
    standing: Standing
    inquiry: Inquiry | None


@dataclass(frozen=True)
class HandedOver:
    """An answer as it is handed over.

    ``main``: its trial before it was refined. ``searched``: the inquiries that led to it. ``again``: its re-check.
    """

    done: Done
    standing: Standing
    main: Trial
    searched: tuple[Inquiry, ...]
    again: Ruling

    @property
    def shown(self) -> str:
        """How many nodes it has, in words."""
        return counted(self.standing.size, "node")

    @property
    def doubtful(self) -> str:
        """Why it is no answer after all; "" where it is one."""
        if self.again.answer is not Answer.YES:
            unknown = self.again.verdict.outcome is Outcome.UNRESOLVED
            did = "could not be judged" if unknown else "did not"
            told = f"the answer ({self.shown}) failed once and {did} when checked again ({self.again.verdict.reason})"
            return told + ("" if unknown else ": the check is not reliable")
        unfit = self.standing.judge.unfit(self.standing.trial)
        return kept_for_the_check(unfit, self.standing.size) if unfit else ""


@dataclass(frozen=True)
class Refining:
    """Tries stages and hands over what stands. ``exhausted``: whether the budget is spent."""

    refiner: Refiner | None
    doubt: Doubt
    means: Means
    recheck: Recheck
    exhausted: Callable[[], bool]

    def hand_over(self, first: Refined) -> HandedOver:
        """Refine an answer as far as its failure is reliable; the last one is handed over and checked again."""
        answers = self.run(first)
        while True:
            standing = answers[-1].standing
            try:
                again = self.recheck.rule(standing.judge, standing.trial, REDUCED, ANSWER)
            except ContradictionError as surprise:
                if len(answers) == 1:
                    raise
                self.refuse(surprise, answers[:-1])
            else:
                if again.answer is Answer.YES or len(answers) == 1:
                    searched = tuple(one.inquiry for one in answers if one.inquiry)
                    return HandedOver(answers[-1].done, standing, first.standing.trial, searched, again)
            self.recheck.withdraw(REDUCED)
            answers.pop()

    def run(self, first: Refined) -> list[Refined]:
        """Return the answers, each made from the one before it; the last one is the smallest."""
        answers = [first]
        while self.refiner and not self.exhausted() and (stage := self.refiner.next(answers[-1].standing)):
            try:
                smaller = self._tried(stage, answers[-1])
            except ContradictionError as surprise:
                self.refuse(surprise, answers)
                continue
            if smaller:
                answers.append(smaller)
        return answers

    def refuse(self, surprise: ContradictionError, answers: list[Refined]) -> None:
        """Say that the last of these answers stands. Raises ``surprise`` where the check itself proves to be flaky."""
        standing, first = answers[-1].standing, answers[0].standing.judge
        allowance = self.doubt.allowance(first)
        try:
            self.doubt.repeat(standing.judge, standing.trial, "the answer so far", MEASURED, allowance, failing=True)
            self.doubt.repeat(first, CONTROL, "a lone Identity", HEALTHY, allowance, failing=False)
        except ContradictionError:
            raise surprise from None
        log.warning("%s: its failure is not reliable, so the answer before it stands", surprise)

    def _tried(self, stage: Stage, before: Refined) -> Refined | None:
        without = self._without(stage)
        if without is Answer.YES:
            log.info("it fails with nothing left of %s just as well: the failure is elsewhere", stage.origin[-1])
            return None
        if not self._fails(stage):
            return None
        inquiry = Inquiry(stage.judge, self.doubt, stage.start, self.means, stage.purpose)
        inquiry.note(stage.whole, Answer.YES)
        found = settled(inquiry, self.doubt)
        smallest = found.trial
        if not smallest:
            return None
        if smallest != stage.whole or not stage.known:
            self.doubt.repeat(stage.judge, smallest, f"{stage.label}, again", TWICE, failing=True)
        if without is Answer.UNKNOWN and len(smallest) == 1 and found.claim is Claim.ONE_MINIMAL:
            found = replace(found, claim=Claim.UNPROVEN)
        standing = Standing(stage.judge, smallest, stage.origin)
        searched = stage.purpose == "search"
        return Refined(found if searched else before.done, standing, inquiry if searched else None)

    def _without(self, stage: Stage) -> Answer | None:
        """Whether an answer fails with nothing left of what a stage searches; None: no question."""
        judge = stage.without
        if judge is None:
            return None
        whole, label = judge.subject.space.whole, f"{stage.label}, emptied"
        ruling = ruled(self.doubt, judge, whole, stage.name, label, stage.purpose, self.exhausted)
        return ruling.answer if ruling else Answer.UNKNOWN

    def _fails(self, stage: Stage) -> bool:
        if stage.known:
            return True
        ruling = ruled(self.doubt, stage.judge, stage.whole, stage.name, stage.label, stage.purpose, self.exhausted)
        return ruling is not None and ruling.answer is Answer.YES
