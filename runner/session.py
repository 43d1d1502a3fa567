"""The session: pre-flight, search, refinement, control, re-check. It owns the order of things and nothing else."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from runner.cause import Cause
from runner.checkers.interactive import Undo
from runner.doubt import ANSWER, CONTROL, HEALTHY, REMOVAL, WHOLE, ContradictionError, Doubt, IndistinctError
from runner.ending import Ending
from runner.errors import CannotJudge
from runner.handover import REDUCED, HandOver
from runner.inquiry import Inquiry, Means
from runner.judge import Judge
from runner.prover import Causes, Prover
from runner.recheck import Recheck
from runner.schema.checker import Flaky
from runner.stage import Refiner, Stage, Standing
from runner.verdict import Verdict
from strategies.outcome import Answer, Outcome
from strategies.search import Claim, Done, Search, Step
from strategies.space import Space
from strategies.trial import Trial

log = logging.getLogger(__name__)

MOST_ROUNDS = 10
"""How often the search of a flaky check starts again from what is known by then."""
ORIGINAL = 999
"""The attempt that is about the user's file as it is."""
MOST_REFUSALS, MOST_SURPRISES = 12, 3
"""How many refused removals, and passing sets around the answer, are checked again."""


@dataclass(frozen=True)
class _Answer:
    """What a search found. ``main``: its trial before it was refined. ``searched``: the inquiries that led to it."""

    done: Done
    standing: Standing
    main: Trial
    searched: tuple[Inquiry, ...]


class Session:
    """One question put to one checker, from the first doubt to the verified answer."""

    def __init__(
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
    ) -> None:
        """``hand_over``: None where nothing is (a repeat). ``refiner``: what is tried on an answer, None: nothing.

        ``causes``: how an answer is shown to be the cause, None: not at all.
        """
        self.judge = judge
        self.means = means or Means()
        self.doubt = doubt or Doubt(Flaky.never, 0.01)
        self.find_min_good = find_min_good
        self.recheck = Recheck(hand_over, self.doubt)
        self.refiner = refiner
        self.causes = causes
        self._step = search
        self._space = judge.subject.space
        self.inquiry = self._inquiry()

    # ---- reduce: the whole fails, the smallest set that still fails is wanted

    def preflight(self) -> Ending | None:
        """Check the whole model; return an ending if there is nothing to search for. Raises CannotJudge."""
        verdict = self._examine("the whole model")
        if not self.judge.baseline:
            return self._nothing_to_find(verdict.reason)
        self.inquiry = self._inquiry()  # which end is looked for first depends on the failure
        self.inquiry.note(self._space.whole, Answer.YES)
        log.info("the whole model fails (%s); this is the failure under study", self.judge.baseline)
        return None

    def _examine(self, label: str) -> Verdict:
        """Check all that is searched, as often as it takes; how it fails is what is studied. Raises CannotJudge."""
        whole = self._space.whole
        try:
            verdict = self._trust(whole, "pre-flight", label)
            if verdict.outcome is Outcome.FAIL:
                self._study(verdict, label)
            elif verdict.outcome is not Outcome.PASS:
                self._refuse(verdict, label)
            if self.doubt.mode is Flaky.always:
                raise ContradictionError("checker.flaky=always")
            failing = verdict.outcome is Outcome.FAIL
            self.doubt.repeat(self.judge, whole, label, WHOLE if failing else HEALTHY, failing=failing)
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

    def beyond(self, excluded: frozenset[int], hand_over: HandOver | None) -> Ending | None:
        """Find another answer without these elements, which good values replace; None if the rest passes.

        A flaky check is measured again: another failure has another rate. Raises CannotJudge, as the pre-flight does.
        """
        order = tuple(element for element in self.judge.subject.space.order if element not in excluded)
        if not order:
            return None
        self._space = replace(self.judge.subject.space, order=order)
        self.judge.baseline = None
        self.judge.checker.reset()
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
        answer = self._answer(self.inquiry, self._found(self.inquiry))
        if not self.inquiry.passed:
            self._control()
        cause = None
        if self.causes and not self.inquiry.stopped:
            answer, cause = self._cause(self.causes, answer)
        standing, signature = answer.standing, self.judge.baseline
        again = self.recheck.rule(standing.judge, standing.trial, REDUCED, ANSWER)
        size = standing.size
        shown = f"{size} node{'s' * (size != 1)}"
        if again.answer is not Answer.YES:
            return Ending(
                "could_not_judge",
                CannotJudge.exit_code,
                f"the answer ({shown}) failed once and did not when checked again "
                f"({again.verdict.reason}): the check is not reliable",
                answer.done,
                standing,
                signature=signature,
                main=answer.main,
            )
        inquiry = next((one for one in reversed(answer.searched) if one.passed), self.inquiry)
        min_good = self.recheck.min_good(inquiry, size) if self.find_min_good else None
        message = f"{shown} still fail{'s' * (size == 1)} the same way"
        if cause:
            message += f"; cause: {cause.said}"
        if self.inquiry.stopped:
            message += "; the budget was reached before the search ended"
        if self.doubt.rates:
            message += f"; the check is flaky: {self.doubt}"
        signature = again.verdict.signature or signature
        return Ending("found", 0, message, answer.done, standing, min_good, signature, main=answer.main, cause=cause)

    def _answer(self, inquiry: Inquiry, done: Done) -> _Answer:
        """Make what a search found as small as it gets in other ways."""
        searched, main = [inquiry], done.trial or self._space.whole
        done, standing = self._refined(done, Standing(self.judge, main), searched)
        return _Answer(done, standing, main, tuple(searched))

    def _cause(self, causes: Causes, first: _Answer) -> tuple[_Answer, Cause]:
        """Find out whether the failure arises inside an answer; return the answer that stands then."""
        found: dict[Trial, tuple[Inquiry, Done]] = {}

        def search(order: tuple[int, ...], questions: int) -> Search | None:
            space = replace(self._space, order=order)
            label = "the model without what has good values"
            rest = self.doubt.rule(self.judge, space.whole, "cause", label, "cause", spent=self._spent)
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

    def _refined(self, done: Done, standing: Standing, searched: list[Inquiry]) -> tuple[Done, Standing]:
        """Try what may make the answer smaller in other ways; ``searched`` gets the inquiries that led further."""
        while self.refiner and not self.inquiry.exhausted and (stage := self.refiner.next(standing)):
            without = self._without(stage)
            if without is Answer.YES:
                log.info("it fails with nothing left of %s just as well: the failure is elsewhere", stage.origin[-1])
            elif self._fails(stage):
                inquiry = Inquiry(stage.judge, self.doubt, stage.start, self.means, stage.purpose)
                inquiry.note(stage.whole, Answer.YES)
                found = self._found(inquiry)
                if found.trial:
                    standing = Standing(stage.judge, found.trial, stage.origin)
                    if without is Answer.UNKNOWN and len(found.trial) == 1 and found.claim is Claim.ONE_MINIMAL:
                        found = replace(found, claim=Claim.UNPROVEN)
                    done = found if stage.purpose == "search" else done
                    searched += [inquiry] if stage.purpose == "search" else []
        return done, standing

    def _without(self, stage: Stage) -> Answer | None:
        """Whether an answer fails with nothing left of what a stage searches; None: no question."""
        judge = stage.without
        if judge is None:
            return None
        whole, label = judge.subject.space.whole, f"{stage.label}, emptied"
        ruling = self.doubt.rule(judge, whole, stage.name, label, stage.purpose, spent=self._spent)
        return ruling.answer if ruling else Answer.UNKNOWN

    def _fails(self, stage: Stage) -> bool:
        if stage.known:
            return True
        ruling = self.doubt.rule(stage.judge, stage.whole, stage.name, stage.label, stage.purpose, spent=self._spent)
        return ruling is not None and ruling.answer is Answer.YES

    def _spent(self) -> bool:
        return self.inquiry.exhausted

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

    def _study(self, verdict: Verdict, label: str) -> None:
        if not verdict.signature:
            self._refuse(verdict, label)
        self.judge.baseline = verdict.signature
        self.judge.checker.settle(verdict)

    def _refuse(self, verdict: Verdict, label: str) -> None:
        raise CannotJudge(
            f"{label} does not fail in a way that can be studied: "
            f"{verdict.outcome.value}, {verdict.reason}\ncheck: {self.judge.checker.describe()}"
        )

    def _measure(self, surprise: ContradictionError, label: str = "the whole model") -> None:
        """The check is flaky: find out how much. Raises CannotJudge."""
        log.warning("%s: how reliable the check is will be measured", surprise)

        def each_time(verdict: Verdict) -> None:
            if verdict.outcome is Outcome.FAIL and not self.judge.baseline:
                self._study(verdict, label)

        if self.doubt.rates is None:
            self.doubt.measure(self.judge, self._space.whole, each_time, label)

    def _trust(self, trial: Trial, phase: str, label: str) -> Verdict:
        while True:
            try:
                verdict = self.judge.verdict(trial, phase, label, "trust")
            except Undo:
                log.warning("nothing to undo")
                continue
            assert verdict is not None, "only the search is stopped"
            return verdict

    def _nothing_to_find(self, why: str) -> Ending:
        """The whole passes.

        If the user's own file fails all the same, it is our reading of it that hides the failure.
        """
        verdict = self.judge.recall(self._space.whole, ORIGINAL, "pre-flight", "the file as it is")
        if verdict is None:
            iteration, folder = self.judge.folder_for()
            original = self.judge.subject.original(folder, iteration)
            verdict = self.judge.check(original, "trust", ORIGINAL, own=False) if original else None
        if verdict and verdict.outcome is Outcome.FAIL:
            raise CannotJudge(
                f"the model file fails ({verdict.signature}), but not once its inputs have fixed shapes and the "
                "recorded values. Give the shapes it fails with (inputs.shapes='{name: [..]}') or its inputs "
                f"(inputs=files).\ncheck: {self.judge.checker.describe()}"
            )
        said = f" ({why})" if why else ""
        return Ending("nothing_to_find", 4, f"the whole model passes the check{said}: there is nothing to reduce")

    def _control(self) -> None:
        """Nothing ever passed: can this check tell good from bad at all? Raises CannotJudge."""
        verdict = self._trust(CONTROL, "control", "a lone Identity")
        if verdict.outcome is not Outcome.PASS and self.doubt.rates is None:
            raise CannotJudge(
                "nothing passed this check, not even a model of one Identity node "
                f"({verdict.outcome.value}: {verdict.reason}): it cannot tell good from bad.\n"
                f"check: {self.judge.checker.describe()}"
            )


def _nodes(trial: Trial) -> str:
    return f"{len(trial)} node{'s' * (len(trial) != 1)}"
