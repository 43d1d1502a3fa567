"""The one pipeline: the order of a run, top to bottom.

Load, pre-flight, search, refine, prove, hand over, report. A kind of run (`runner.jobs.reduce.run`, say) loads what it
is about, makes a `Pipeline` for it and reports its ending; what stands between is spelled out here. The engine below is
a set of things that are called and that call nobody back: one check (`Judge.verdict`), one search (`SearchRun.settle`),
one test of how reliable a check is (`Reliability`), one re-check of what is handed over (`Recheck`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from runner.engine.check_trials import Judge
from runner.engine.min_good import HandOver, nearest
from runner.engine.repeated_checks import ANSWER, HEALTHY, MEASURED, ContradictionError
from runner.engine.session import HandedOver, Refined, SearchRun, Session, Stage, harms, scale_of
from runner.engine.session_question import NOTHING, Cause, CurrentAnswer, SessionResult, how_it_fails, nothing_shown
from runner.exit_codes import Status
from runner.judgment import Whose, milder
from runner.reference.models import check_map
from runner.report.summary import Summary
from runner.run_folder import MIN_GOOD
from runner.schema.installed_choices import imported
from runner.schema.root import Settings
from runner.verdict import Phase, Purpose, message_drift
from strategies.search import Answer, Claim, Closure, Done, Outcome, Trial

log = logging.getLogger(__name__)

Implementation = Callable[[Settings, Path, Sequence[str]], Summary]
"""Runs a job of one kind: its settings, its folder, and what the user typed."""


def implementation(settings: Settings) -> Implementation:
    """Return what runs the job that the settings ask for. Raises UsageError where it cannot be imported."""
    strategy = settings.strategy
    found: Implementation = imported(f"strategy={strategy.name}", strategy.implementation)
    return found


def run(settings: Settings, folder: Path, command: Sequence[str]) -> Summary:
    """Run one job and leave its result folder behind. Raises WinnowError where the question cannot be put at all.

    ``command``: what the user typed.
    """
    check_map(settings)
    return implementation(settings)(settings, folder.absolute(), command)


class Pipeline(Session):
    """A search for the smallest set that has the wanted outcome, and all that comes before and after it.

    What a kind of run adds are the methods that it overrides: `begins`, `ready`, `confirm`, `refine`, `prove`. Each
    returns a value, and is called here alone.
    """

    # ---- the order

    def answer(self, *, plan: bool = False) -> SessionResult:
        """Return how a run ends that has its model: it is asked for, or found, or there is nothing to find.

        ``plan``: stop after the pre-flight. Raises CannotJudge.
        """
        if nothing_to_find := self.begins():
            return nothing_to_find
        if plan:
            return self.planned()
        self.ready()
        return self.reduce()

    def reduce(self) -> SessionResult:
        """Search, refine, hand over and prove; again where the check proves to be flaky. Raises CannotJudge."""
        while True:
            try:
                done = self.search()
                if self.inquiry.stopped and self.question.wants_failure and done.trial in (None, self.whole):
                    return SessionResult(Status.could_not_judge, nothing_shown("fail"), done)
                self.confirm(done.trial)
                answer, cause = self.finish(self.inquiry, done), None
                if not self.inquiry.stopped:
                    answer, cause = self.prove(answer)
                return self.concluded(answer, cause)
            except ContradictionError as surprise:  # noqa: PERF203 - it happens once
                self.begin_again(surprise)

    def beyond(self, excluded: frozenset[int], hand_over: HandOver | None) -> SessionResult | None:
        """Find another answer without these elements, which good values replace; None if the rest passes."""
        return self.reduce() if self.leave_out(excluded, hand_over) else None

    # ---- what a kind of run adds

    def begins(self) -> SessionResult | None:
        """The pre-flight: return how the run ends where there is nothing to search. Raises CannotJudge."""
        return self.preflight()

    def ready(self) -> None:
        """Make the search ready, once the whole has the wanted outcome."""

    def confirm(self, answer: Trial | None) -> None:
        """Raise CannotJudge for an answer that is none, or of a check that passes nothing. None: it is the whole."""
        if not self.inquiry.passed:
            self.confirm_nothing(unjudged=self.reliability.rates is not None)

    def refine(self, standing: CurrentAnswer) -> Stage | None:
        """Return the next stage to try on an answer; None: it is as small as it gets."""
        return None

    def prove(self, first: HandedOver) -> tuple[HandedOver, Cause | None]:
        """Return the answer that stands once its cause was looked for, and what is known of that; None: not asked."""
        return first, None

    # ---- refining: an answer is made smaller by one stage after the other, as long as its failure stays reliable
    #
    # A failure near a limit (a check that takes nearly as long as it may) is reliable on the answer of the search and
    # may be a matter of luck on a smaller one. Such a refinement is refused, and the answer before it stands. Two
    # verdicts that contradict each other in a stage may also mean that the check itself is flaky: the answer before it
    # and the control are repeated to tell these apart.

    def finish(self, inquiry: SearchRun, done: Done) -> HandedOver:
        """Refine what a search found as far as its failure is reliable, hand the last answer over and check it again.

        Raises ContradictionError where that shows the check to be flaky.
        """
        main = self.whole if done.trial is None else done.trial
        answers, refused = [Refined(done, CurrentAnswer(inquiry.judge, main), inquiry)], set[tuple[Path, Trial]]()
        name = self.question.name
        while True:
            if done.claim is not Claim.TOGETHER:
                self._refine(answers, refused)
            last, standing = answers[-1], answers[-1].standing
            try:
                again = self.recheck.rule(standing.judge, standing.trial, name, ANSWER)
            except ContradictionError as surprise:
                if len(answers) == 1:
                    raise
                refused.add(answers.pop().key)
                refused |= self._refuse(surprise, answers)
            else:
                if again.answer is Answer.YES or len(answers) == 1:
                    searched = tuple(one.inquiry for one in answers if one.inquiry)
                    return HandedOver(last.done, standing, main, searched, again, last.measures)
                refused.add(answers.pop().key)
            self.recheck.withdraw(name)

    def _refine(self, answers: list[Refined], refused: set[tuple[Path, Trial]]) -> None:
        """Add answers, each made from the one before it; the last one is the smallest.

        ``refused``: what is no answer. Whatever it was made of is asked for its stages again, which the journal
        answers: what was made in one step may be made in part.
        """
        while not self.spent() and (stage := self.refine(answers[-1].standing)):
            if self.spent():  # by a check that says what may be tried
                return
            try:
                smaller = self._tried(stage, answers[-1])
            except ContradictionError as surprise:
                refused |= self._refuse(surprise, answers)
                continue
            if smaller and smaller.key not in refused:
                answers.append(smaller)

    def _tried(self, stage: Stage, before: Refined) -> Refined | None:
        """Return what a stage makes of an answer; None: nothing that stands."""
        without = None
        if stage.without:
            emptied = stage.without.subject.space.whole
            without = self._asked(stage, stage.without, emptied, f"{stage.label}, emptied")
        if without is Answer.YES:
            log.info("%s is not part of the failure: without it the model fails too", stage.origin[-1])
            return None
        if not stage.known and self._asked(stage, stage.judge, stage.space.whole, stage.label) is not Answer.YES:
            return None
        reliability = self.reliability
        inquiry = SearchRun(stage.judge, reliability, stage.space, stage.first, self.means, stage.purpose)
        inquiry.note(stage.space.whole, Answer.YES)
        searched = stage.purpose is Purpose.SEARCH
        # of any other stage nothing is claimed that what it was refused would prove
        found = inquiry.settle() if searched or reliability.rates else inquiry.run()
        inside = None if searched else before.standing.inside
        if stage.prove and found.trial and not inquiry.stopped:
            shown = stage.prove(inquiry, found)
            if shown is None:
                return None
            inquiry, found, inside = shown
        smallest = found.trial
        if not smallest:
            return None
        scale, simpler = scale_of(self.judge), stage.name in (Phase.FREEZE, Phase.SHRINK)
        measures = harms(stage.judge, smallest, before.standing, scale) if simpler else None
        if measures and milder(measures[1], measures[0]):  # rounding, say, where there was a fault
            log.info("%s: not used, since the failure became much milder and may be another one", stage.label)
            return None
        if without is Answer.UNKNOWN and len(smallest) == 1 and found.claim is Claim.ONE_MINIMAL:
            found = replace(found, claim=Claim.UNPROVEN)
        standing = CurrentAnswer(stage.judge, smallest, stage.origin, inside)
        reliability.second.follow(before.standing.trial, smallest)
        if measures and before.measures:
            measures = before.measures[0], measures[1]
        return Refined(found if searched else before.done, standing, inquiry if searched else None, measures)

    def _asked(self, stage: Stage, judge: Judge, trial: Trial, label: str) -> Answer:
        ruling = self.ruled(judge, trial, stage.name, label, stage.purpose)
        return ruling.answer if ruling else Answer.UNKNOWN

    def _refuse(self, surprise: ContradictionError, answers: list[Refined]) -> set[tuple[Path, Trial]]:
        """Leave those of these answers whose failure is reliable, and return the others: the last one then stands.

        None but the first is known to be: the others failed once. Raises ``surprise`` where not even that one's is, or
        the control's: the check itself is flaky.
        """
        first, reliability = answers[0].standing.judge, self.reliability
        again, nothing, allowance = "the answer so far", self.question.nothing, reliability.allowance(first)
        refused = set[tuple[Path, Trial]]()
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
        log.warning("%s: its failure is not reliable, so the previous answer is kept", surprise)
        return refused

    # ---- the end

    def concluded(self, answer: HandedOver, cause: Cause | None) -> SessionResult:
        """Return how it ends with an answer that was handed over, and hand min_good over beside it."""
        studied, signature = self.judge.studied, self.judge.studied.signature
        ending = SessionResult(Status.found, "", answer.done, answer.standing, signature=signature, main=answer.main)
        if doubtful := answer.doubtful:
            self.recheck.withdraw(MIN_GOOD)
            contradicts = not answer.fails and answer.again.verdict.outcome is not Outcome.UNRESOLVED
            whose = Whose.CHECK if contradicts else None
            return replace(ending, status=Status.could_not_judge, message=doubtful + self.cut_short, whose=whose)
        free = self.find_min_good and self.space.closure is Closure.FREE
        rest = Trial(self.whole.elements - answer.main.elements) if free else NOTHING
        inquiry, passing = self.passing(answer.searched)
        min_good = self.recheck.min_good(inquiry.judge, passing, rest)
        verdict = answer.again.verdict
        drift = message_drift(studied.message, verdict, signature, studied.names) if signature else ""
        message = how_it_fails(answer.standing.size, drift, cause) + self.cut_short + self.flakiness
        signature = verdict.signature or signature
        told = replace(ending, message=message, min_good=min_good, signature=signature, drift=drift, cause=cause)
        lacks = cause.lacks if cause else ()
        return replace(told, lacks=lacks, measures=answer.measures, status=cause.ending if cause else Status.found)

    def passing(self, searched: Sequence[SearchRun]) -> tuple[SearchRun, list[Trial]]:
        """Return a search, and what it asked (not only looked at ahead) that passed: for min_good, the best first."""
        inquiry = next((one for one in reversed(searched) if one.passed), self.inquiry)
        told = {inquiry.search.space.whole: Answer.YES, **dict(inquiry.search.asked)} if self.find_min_good else {}
        return inquiry, nearest(inquiry.passed & told.keys(), (one for one in told if told[one] is Answer.YES))
