"""The session: pre-flight, search, refinement, control, re-check. It owns the order of things and nothing else."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from runner.cause import Cause
from runner.controls import NEEDS
from runner.doubt import (
    ANSWER,
    CONTROL,
    HEALTHY,
    REMOVAL,
    WHOLE,
    ContradictionError,
    Doubt,
    IndistinctError,
    Ruling,
)
from runner.ending import Ending
from runner.errors import CannotJudge
from runner.handover import REDUCED, HandOver
from runner.inquiry import Inquiry, Means, ruled
from runner.journal import Journal
from runner.judge import Judge
from runner.preflight import Preflight, refuse, study, trusted
from runner.prover import Causes, Prover
from runner.recheck import Recheck
from runner.refining import Refined, Refining
from runner.schema.checker import Flaky
from runner.stage import Refiner, Standing
from runner.subjects.subgraph import THE_FILE
from runner.unknown import kept_for_the_check
from runner.verdict import Verdict, message_drift
from strategies.outcome import Answer, Outcome
from strategies.search import Claim, Done, Search, Step
from strategies.space import Space
from strategies.trial import Trial

log = logging.getLogger(__name__)

MOST_ROUNDS = 10
"""How often the search of a flaky check starts again from what is known by then."""
MOST_REFUSALS, MOST_SURPRISES = 12, 3
"""How many refused removals, and passing sets around the answer, are checked again."""


@dataclass(frozen=True)
class _Answer:
    """What a search found, handed over.

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
        size = self.standing.size
        return f"{size} node{'s' * (size != 1)}"


class Session:
    """One question put to one checker, from the first doubt to the verified answer."""

    def __init__(  # noqa: PLR0913 - all but the first two by name
        self,
        judge: Judge,
        search: Callable[[Space], Step],
        *,
        means: Means | None = None,
        doubt: Doubt | None = None,
        find_min_good: bool = True,
        hand_over: HandOver | None = None,
        refiner: Refiner | None = None,
        causes: Causes | None = None,
        opening: Preflight | None = None,
    ) -> None:
        """``hand_over``: None where nothing is (a repeat). ``refiner``: what is tried on an answer, None: nothing.

        ``causes``: how an answer is shown to be the cause, None: not at all. ``opening``: what is asked about the
        user's file and the check before the whole model, None: nothing.
        """
        self.judge = judge
        self.means = means or Means()
        self.doubt = doubt or Doubt(Flaky.never, 0.01)
        self.find_min_good = find_min_good
        self.recheck = Recheck(hand_over, self.doubt)
        self.refiner = refiner
        self.causes = causes
        self.opening = opening
        self._step = search
        self._space = judge.subject.space
        self.inquiry = self._inquiry()

    # ---- reduce: the whole fails, the smallest set that still fails is wanted

    def preflight(self) -> Ending | None:
        """Check the file and the whole model; return an ending if there is nothing to search. Raises CannotJudge."""
        label = "the whole model"
        if self.opening:
            seen = self.opening.file(self.judge, self.doubt)
            if seen.outcome is Outcome.PASS and not self.opening.flaky:
                return _nothing_to_find(seen.reason)
            if seen.outcome is Outcome.UNRESOLVED:
                rewritten = trusted(self.judge, self._space.whole, "pre-flight", label)
                if rewritten.outcome is not Outcome.FAIL:
                    refuse(self.judge, seen, THE_FILE)
            self._adopt(self.opening.judged(self.judge))
        verdict = self._examine(label)
        if not self.judge.baseline:
            return _nothing_to_find(verdict.reason)
        if self.opening and verdict.outcome is not Outcome.FAIL and self.doubt.rates is None:
            self._adopt(self.opening.weakened(self.judge, self.doubt, verdict))
            verdict = self._examine(label)
            if verdict.outcome is not Outcome.FAIL and self.doubt.rates is None:
                refuse(self.judge, verdict, label)
        self.inquiry = self._inquiry()  # which end is looked for first depends on the failure
        self.inquiry.note(self._space.whole, Answer.YES)
        log.info("the whole model fails (%s); this is the failure under study", self.judge.baseline)
        return None

    def _adopt(self, judge: Judge) -> None:
        """Go on with other candidates: those that the check can judge, and that fail as the user's file does."""
        if judge is not self.judge:
            self.judge, self._space = judge, judge.subject.space
            self.inquiry = self._inquiry()

    def _examine(self, label: str) -> Verdict:
        """Check all that is searched, as often as it takes; how it fails is what is studied. Raises CannotJudge."""
        whole = self._space.whole
        try:
            verdict = trusted(self.judge, whole, "pre-flight", label)
            if verdict.outcome is Outcome.FAIL:
                if not self.judge.baseline:
                    study(self.judge, verdict, label)
            elif verdict.outcome is not Outcome.PASS and not self.judge.baseline:
                refuse(self.judge, verdict, label)
            if self.opening and self.opening.flaky:
                raise self.opening.flaky
            if self.doubt.mode is Flaky.always:
                raise ContradictionError("checker.flaky=always")
            failing = verdict.outcome is Outcome.FAIL
            times = HEALTHY if verdict.outcome is Outcome.PASS else WHOLE
            self.doubt.repeat(self.judge, whole, label, times, failing=failing)
        except ContradictionError as surprise:
            self._measure(surprise, label)
        return verdict

    def reduce(self) -> Ending:
        """Search, then doubt: control, re-check of the answer, min_good; again where the check proves to be flaky."""
        while True:
            try:
                return self._reduce()
            except ContradictionError as surprise:  # noqa: PERF203 - it happens once
                self._measure(surprise)
                self.recheck.withdraw(REDUCED)
                self.inquiry.begin_again()

    def beyond(
        self, excluded: frozenset[int], hand_over: HandOver | None, journal: Callable[[], Journal] | None = None
    ) -> Ending | None:
        """Find another answer without these elements, which good values replace; None if the rest passes.

        A flaky check is measured again: another failure has another rate. ``journal``: opens one for verdicts about
        another failure, if those of the checker depend on which one is studied. Raises CannotJudge, as the pre-flight
        does.
        """
        order = tuple(element for element in self.judge.subject.space.order if element not in excluded)
        if not order:
            return None
        self._space = replace(self.judge.subject.space, order=order)
        self.judge.baseline = None
        if self.judge.checker.reset() and journal:
            self.judge = self.judge.beside(self.judge.subject, journal())
        self.doubt = self.doubt.renewed()
        self.recheck = Recheck(hand_over, self.doubt)
        try:
            self._examine(f"the model without {len(excluded)} of its nodes")
        except IndistinctError as error:
            log.info("%s", error)  # it fails as often as what nothing sane fails
            return None
        if not self.judge.baseline:
            return None
        self.inquiry = self._inquiry()
        self.inquiry.note(self._space.whole, Answer.YES)
        return self.reduce()

    def _reduce(self) -> Ending:
        done = self._found(self.inquiry)
        if self.opening:
            self.opening.refuse_the_file_alone(self.judge, done.trial)
        if not self.inquiry.passed and not (self.opening and self.opening.controlled):
            self._control()
        answer = self._answer(self.inquiry, done)
        cause, doubtful = None, self._doubtful(answer)
        if self.causes and not self.inquiry.stopped and not doubtful:
            answer, cause = self._cause(self.causes, answer)
            doubtful = self._doubtful(answer)
        if doubtful:
            return self._could_not_judge(answer, doubtful)
        inquiry = next((one for one in reversed(answer.searched) if one.passed), self.inquiry)
        min_good = self.recheck.min_good(inquiry, answer.standing.size) if self.find_min_good else None
        message = f"{answer.shown} still fail{'s' * (answer.standing.size == 1)}"
        signature, studied = self.judge.baseline, self.judge.studied
        drift = message_drift(studied.message, answer.again.verdict, signature, studied.names) if signature else ""
        message += f"; {drift}" if drift else " the same way"
        if cause:
            message += f"; cause: {cause.said}"
        if self.inquiry.stopped:
            message += "; the budget was reached before the search ended"
        if self.doubt.rates:
            message += f"; the check is flaky: {self.doubt}"
        return Ending(
            "found",
            0,
            message,
            answer.done,
            answer.standing,
            min_good,
            answer.again.verdict.signature or signature,
            main=answer.main,
            drift=drift,
            cause=cause,
        )

    def _doubtful(self, answer: _Answer) -> str:
        """Return why an answer cannot be handed over; "" where it can."""
        if answer.again.answer is not Answer.YES:
            reason = answer.again.verdict.reason
            unknown = answer.again.verdict.outcome is Outcome.UNRESOLVED
            did = "could not be judged" if unknown else "did not"
            told = f"the answer ({answer.shown}) failed once and {did} when checked again ({reason})"
            return told + ("" if unknown else ": the check is not reliable")
        unfit = answer.standing.judge.unfit(answer.standing.trial)
        return kept_for_the_check(unfit, answer.standing.size) if unfit else ""

    def _could_not_judge(self, answer: _Answer, message: str) -> Ending:
        return Ending(
            "could_not_judge",
            CannotJudge.exit_code,
            message,
            answer.done,
            answer.standing,
            signature=self.judge.baseline,
            main=answer.main,
        )

    def _answer(self, inquiry: Inquiry, done: Done) -> _Answer:
        """Make what a search found as small as it gets in other ways, hand it over and check it again."""
        main = done.trial or self._space.whole
        refined, again = self._refined(Refined(done, Standing(self.judge, main), inquiry))
        searched = tuple(one.inquiry for one in refined if one.inquiry)
        return _Answer(refined[-1].done, refined[-1].standing, main, searched, again)

    def _cause(self, causes: Causes, first: _Answer) -> tuple[_Answer, Cause]:
        """Find out whether the failure arises inside an answer; return the answer that stands then."""
        found: dict[Trial, tuple[Inquiry, Done]] = {}

        def search(order: tuple[int, ...], questions: int) -> Search | None:
            space = replace(self._space, order=order)
            label = "the model without what has good values"
            rest = ruled(self.doubt, self.judge, space.whole, "cause", label, "cause", self._spent)
            if rest is None or rest.answer is not Answer.YES:
                return None
            inquiry = self._inquiry(space, "cause", questions, causes.search)
            inquiry.note(space.whole, Answer.YES)
            done = self._found(inquiry) if self.doubt.rates else inquiry.run()
            if done.trial and not inquiry.stopped:
                found[done.trial] = inquiry, done
            return inquiry.search

        prover = Prover(self.judge, self.doubt, causes, search, self.inquiry.answered, self._spent)
        cause = prover.prove(first.standing.top_level(self.judge.subject) or first.main)
        other = found.get(cause.answers[cause.main].answer)
        return self._answer(*other) if other else first, cause

    def _spent(self) -> bool:
        return self.inquiry.exhausted

    def _found(self, inquiry: Inquiry) -> Done:
        """Run a search until its answer, and what proves it, stands the tests."""
        for _ in range(MOST_ROUNDS):
            done = inquiry.run()
            if inquiry.stopped or done.trial is None or self._stands(inquiry, done.trial):
                return done
            inquiry.begin_again()
        return replace(done, claim=Claim.UNPROVEN)

    def _stands(self, inquiry: Inquiry, found: Trial) -> bool:
        """Whether an answer and the refusals that prove it hold when they are tested harder."""
        refusals = list(inquiry.refusals(found))
        if self.doubt.rates is None:
            allowance = self.doubt.allowance(inquiry.judge)
            for trial in [*inquiry.surprises(found)][:MOST_SURPRISES] + refusals[:MOST_REFUSALS]:
                self.doubt.repeat(
                    inquiry.judge, trial, f"{_nodes(trial)} that passed", REMOVAL, allowance, failing=False
                )
            return True
        error = self.doubt.max_wrong / (len(refusals) + 1)
        for trial, wanted in [(found, Answer.YES), *((trial, Answer.NO) for trial in refusals)]:
            ruling = self.doubt.rule(inquiry.judge, trial, "doubt", f"{_nodes(trial)} again", "trust", error=error)
            if ruling is None or ruling.answer is not wanted:
                return False
        return True

    def _refined(self, first: Refined) -> tuple[list[Refined], Ruling]:
        """Return an answer and what was made of it, as far as its failure is reliable; the last one is handed over."""
        refining = Refining(self.refiner, self.doubt, self.means, self._found, lambda: self.inquiry.exhausted)
        answers = refining.run(first)
        while True:
            standing = answers[-1].standing
            try:
                again = self.recheck.rule(standing.judge, standing.trial, REDUCED, ANSWER)
            except ContradictionError as surprise:
                if len(answers) == 1:
                    raise
                refining.refuse(surprise, answers[:-1])
            else:
                if again.answer is Answer.YES or len(answers) == 1:
                    return answers, again
            self.recheck.withdraw(REDUCED)
            answers.pop()

    # ---- repeat: no question asked beforehand

    def repeat(self) -> Ending:
        """Go on until the search says enough."""
        done = self.inquiry.run()
        outcomes = self.judge.tally.outcomes
        counted = ", ".join(f"{count} {name}" for name, count in sorted(outcomes.items())) or "no iterations"
        return Ending("found", 0, f"{counted}" + (" (budget reached)" if self.inquiry.stopped else ""), done)

    def interrupted(self, exit_code: int) -> Ending:
        """How it stands where somebody stops it: the smallest set so far, if it is smaller than the whole."""
        done = self.inquiry.search.stop()
        best = done.trial if done.trial and done.trial != self._space.whole else None
        message = f"interrupted; the best so far ({_nodes(best)}) was not checked again" if best else "interrupted"
        standing = Standing(self.judge, best) if best else None
        return Ending("interrupted", exit_code, message, done, standing, signature=self.judge.baseline, main=best)

    # ---- trust

    def _inquiry(
        self,
        space: Space | None = None,
        purpose: str = "search",
        most: float = math.inf,
        step: Callable[[Space], Step] | None = None,
    ) -> Inquiry:
        where, first = space or self._space, step or self._step

        def start(known: dict[Trial, Answer]) -> Search:
            return Search(where, first(where), known)

        return Inquiry(self.judge, self.doubt, start, self.means, purpose, most)

    def _measure(self, surprise: ContradictionError, label: str = "the whole model") -> None:
        """The check is flaky: find out how much. Raises CannotJudge."""
        log.warning("%s: how reliable the check is will be measured", surprise)

        def each_time(verdict: Verdict) -> None:
            if verdict.outcome is Outcome.FAIL and not self.judge.baseline:
                study(self.judge, verdict, label)

        if self.doubt.rates is None:
            self.doubt.measure(self.judge, self._space.whole, each_time, label)

    def _control(self) -> None:
        """Nothing ever passed: can this check tell good from bad at all? Raises CannotJudge."""
        verdict = trusted(self.judge, CONTROL, "control", "a lone Identity")
        if self.opening and self.opening.controls and verdict.outcome is Outcome.UNRESOLVED:
            return  # no answer where it cannot judge: the pre-flight has said so
        if verdict.outcome is not Outcome.PASS and self.doubt.rates is None:
            raise CannotJudge(
                "nothing passed this check, not even a model of one Identity node "
                f"({verdict.outcome.value}: {verdict.reason}): it cannot tell good from bad.\n{NEEDS}\n"
                f"check: {self.judge.checker.describe()}"
            )


def _nothing_to_find(why: str) -> Ending:
    said = f" ({why})" if why else ""
    return Ending("nothing_to_find", 4, f"the whole model passes the check{said}: there is nothing to reduce")


def _nodes(trial: Trial) -> str:
    return f"{len(trial)} node{'s' * (len(trial) != 1)}"
