"""Refining: an answer is made smaller by one stage after the other, as long as its failure stays reliable.

A failure near a limit (a check that takes nearly as long as it may) is reliable on the answer of the search and may be
a matter of luck on a smaller one. Such a refinement is refused, and the answer before it stands. Two verdicts that
contradict each other in a stage may also mean that the check itself is flaky: the answer before it and the control are
repeated to tell these apart.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from runner.checkers.wrapping_checker import inner
from runner.judgment import ERROR, TOLERANCES, Scale, measured, milder
from runner.report.unresolved import kept_for_the_check
from runner.session.inquiry import Inquiry
from runner.session.judge import Judge
from runner.session.question import NOTHING
from runner.session.reliability import ANSWER, HEALTHY, MEASURED, ContradictionError, Ruling
from runner.session.stage import Stage, Standing
from runner.session.trust.check_counts import FREEZING, SHRINKING
from runner.text import counted
from runner.verdict import Verdict
from strategies.outcome import Answer, Outcome
from strategies.search import Claim, Done
from strategies.trial import Trial

if TYPE_CHECKING:
    from runner.session.session import Session

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
