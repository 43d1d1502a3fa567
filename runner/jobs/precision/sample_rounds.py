"""The rounds of a precision search: an answer that fails on samples it has not seen is searched for on those as well.

Each round searches on some samples and holds others out. An answer that passes on those is handed over; else they
count as searched from then on, the search goes on from the answer, and new ones are held out, if there are any.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from runner.candidate import Sample
from runner.errors import CannotJudge
from runner.jobs.precision.held_out_samples import Division, Samples, Values
from runner.jobs.precision.question import Question
from runner.jobs.precision.report.margin import Worth
from runner.jobs.precision.subject import Precision
from runner.jobs.precision.trust import LOWEST
from runner.journal.open import Journals
from runner.journal.records import Entry
from runner.session.judge import Judge
from runner.session.reliability import IndistinctError
from runner.session.result import Ending
from runner.status import Status
from runner.text import counted
from runner.verdict import Verdict
from strategies.outcome import Answer, Outcome
from strategies.search import Done
from strategies.trial import Trial

log = logging.getLogger(__name__)

MOST_ROUNDS = 4
"""How often samples that were held out become searched ones; then it is said that the answer fails on new ones."""
MOST_ALONE = 32
"""Nodes that are lowered alone at most, to see whether the answer leaves out what fails by itself; and no more than the
search asked questions: a journal that knows their answers changes nothing."""

Ask = Callable[[Judge, "Trial | None", tuple[Values, ...], "Verdict | None"], Question]
"""Makes the question about a judge's subject: what has to be raised, or what besides an answer that does not suffice.

The values are those of the samples that are searched; the verdict says why nothing raised fails, if that is known.
"""


@dataclass(frozen=True)
class Found:
    """What a round found.

    ``done``: how the search ended, None: nothing has to be raised. ``failed``: why it fails on the samples ``held``
    out, None: it passes, or none was.
    """

    question: Question
    done: Done | None
    trial: Trial
    held: tuple[Sample, ...]
    failed: Verdict | None


class Rounds:
    """Answers a question about precision on samples, and on others.

    ``suspects``: the units that may fail when they alone are low, the likeliest first.
    """

    def __init__(
        self,
        judge: Judge,
        ask: Ask,
        journals: Journals,
        division: Division,
        samples: Samples,
        suspects: Sequence[int],
    ) -> None:
        self._judge = judge
        self._ask = ask
        self._journals = journals
        self._division = division
        self._samples = samples
        self._suspects = suspects
        self.known = Worth(reason=division.reason)
        self.question: Question | None = None
        self._before: Question | None = None

    def answer(self, *, plan: bool = False) -> Ending:
        """Return how it ends. Raises CannotJudge."""
        judge, values = self._judge, self._division
        held = self._samples.of(values.held)
        found: Found | None = None
        for number in range(1, MOST_ROUNDS + 1):
            base, failed = (found.trial, found.failed) if found else (None, None)
            question = self._ask(judge, base, values.searched, failed)
            self._before, self.question = self.question, question
            impossible = self._impossible(question)
            if impossible and found is None:
                return impossible
            if plan:
                remaining = question.inquiry.search.remaining
                return Ending(Status.planned, "stopped after the pre-flight, as asked", remaining=remaining)
            further = None if impossible else self._round(number, question, values, held)
            if further is None:
                assert found
                why = impossible.message if impossible else "the budget was reached"
                self.known.warn(f"what was held out cannot be searched on ({why})")
                self.question = found.question
                break
            found = further
            if found.failed is None or number == MOST_ROUNDS or found.question.inquiry.stopped:
                break
            why = f"{counted(len(held), 'sample')} that {'was' if len(held) == 1 else 'were'} held out"
            log.warning("the answer fails on %s (%s): it grows until it passes those too", why, found.failed.reason)
            subject = judge.subject
            assert isinstance(subject, Precision)
            judge = self._beside(replace(subject, samples=(*subject.samples, *held)), f"round {number + 1}")
            values = self._samples.further((*values.searched, *values.held))
            held = self._samples.of(values.held)
        assert found
        return self._concluded(found)

    def _round(self, number: int, question: Question, values: Division, held: tuple[Sample, ...]) -> Found | None:
        """Search on some samples and check what is found on others; None: a later round found nothing in its budget."""
        done: Done | None = None
        trial = LOWEST
        if not question.lowest_suffices:
            done, trial = question.search()
            if number > 1 and question.inquiry.stopped and trial == question.judge.subject.space.whole:
                return None
            if number == 1 and question.doubt.rates is None:
                question, done, trial = self._stable(question, values, done, trial)
                self.question = question
        trial = question.loadable(trial)
        self.known.rounds, self.known.searched, self.known.held = number, len(values.searched), len(held)
        self.known.kind, self.known.reason = values.kind, values.reason
        return Found(question, done, trial, held, self._fails(question, held, trial))

    def _concluded(self, found: Found) -> Ending:
        """Hand over what was found; where that shows that the check is flaky, it is searched for again."""
        while True:
            if found.failed is not None:
                why = found.failed.reason
                self.known.warn(f"the answer fails on samples that were held out ({why}); give more samples")
            ending = self._end(found.question, found.done, found.trial)
            if ending is not None:
                return ending
            # the check's rates are known from then on
            done, trial = found.question.search()
            trial = found.question.loadable(trial)
            found = replace(found, done=done, trial=trial, failed=self._fails(found.question, found.held, trial))

    @property
    def entries(self) -> tuple[Entry, ...]:
        """What was checked on the samples of the last round."""
        return self.question.judge.journal.entries() if self.question else ()

    def interrupted(self, exit_code: int) -> Ending:
        """How it stands where somebody stops it."""
        if self.question is None:
            return Ending(Status.interrupted, "interrupted", code=exit_code)
        ending = self.question.interrupted(exit_code)
        if ending.standing is None and self._before and (earlier := self._before.interrupted(exit_code)).standing:
            return replace(earlier, message=f"{earlier.message}, and fails on samples that were held out")
        return ending

    # ---- one round

    @staticmethod
    def _impossible(question: Question) -> Ending | None:
        """Return how it ends where there is nothing to search for, if so."""
        try:
            return question.preflight()
        except IndistinctError:
            raise
        except CannotJudge as error:
            return Ending(error.status, str(error))

    def _stable(self, question: Question, values: Division, done: Done, trial: Trial) -> tuple[Question, Done, Trial]:
        """Raise what fails when it alone is low as well: an answer that leaves it out passes by luck."""
        alone = tuple(self._failing_alone(question, trial))
        self.known.alone = alone
        if not alone:
            return question, done, trial
        names = question.judge.subject.names(Trial.of(alone))
        larger = self._ask(question.judge, Trial.of((*trial, *alone)), values.searched, question.worst)
        ending = larger.preflight()
        assert ending is None, "the ends were checked before"
        grown, found = larger.search()
        if larger.inquiry.stopped:
            self.known.warn(f"{self._named(names)} fail when they alone are low, and were left out for want of budget")
            return question, done, trial
        self.known.kept = True
        note = f"{self._named(names)} would do without, but fail when they alone are low: they are raised too"
        return larger, replace(grown, note=note), found

    @staticmethod
    def _named(names: Sequence[str]) -> str:
        return f"{counted(len(names), 'node')} ({', '.join(names[:3])}{', ...' if len(names) > 3 else ''})"

    def _failing_alone(self, question: Question, trial: Trial) -> list[int]:
        """Return the units that an answer leaves out and that fail when they alone are low."""
        whole = question.judge.subject.space.whole
        found = []
        out = [unit for unit in self._suspects if unit in whole.elements and unit not in trial.elements]
        most, spent = min(MOST_ALONE, len(question.inquiry.search.asked)), 0.0
        for unit in out[:most]:
            others = Trial(whole.elements - {unit})
            if not others or question.inquiry.exhausted or spent > question.doubt.allowance(question.judge):
                break
            verdict = question.judge.verdict(others, "stability", f"{unit} alone low", "trust")
            spent += verdict.seconds if verdict else 0.0
            if verdict is not None and verdict.outcome in (Outcome.FAIL, Outcome.DIFFERENT):
                found.append(unit)
        return found

    def _fails(self, question: Question, held: tuple[Sample, ...], trial: Trial) -> Verdict | None:
        """Return the verdict by which an answer fails on samples that were held out; None: it passes."""
        doubt, subject = question.doubt, question.judge.subject
        assert isinstance(subject, Precision)
        self._error("searched", question, question.judge, trial)
        self.known.passed = None
        if not held:
            self.known.error.pop("held_out", None)
            return None
        judge = self._beside(replace(subject, samples=held), "held out")
        ruling = doubt.rule(judge, trial, "held out", f"{counted(len(held), 'sample')} not searched", "trust")
        if ruling is None:  # the budget is spent: whether it passes is not known
            return None
        passes = ruling.verdict.outcome is Outcome.PASS if doubt.rates is None else ruling.answer is Answer.YES
        self.known.passed = passes
        if trial:
            judge.verdict(LOWEST, "held out", "nothing raised", "trust")
        self._error("held_out", question, judge, trial)
        return None if passes else ruling.verdict

    def _error(self, samples: str, question: Question, judge: Judge, trial: Trial) -> None:
        """Note the error of nothing raised, and of an answer, in units of the tolerance; nothing where none is told."""
        if not question.doubt.measured:
            return
        found = [judge.journal.get(one) for one in (LOWEST, trial)]
        before, after = (question.doubt.share(one) if one else None for one in found)
        if found[0] is None:  # of samples that were searched in turn the worst counts
            parts = [self.known.error[part]["before"] for part in ("searched", "held_out") if part in self.known.error]
            before = max(part for part in parts if part is not None) if parts and None not in parts else None
        self.known.error[samples] = {"before": before, "after": after}

    def _beside(self, subject: Precision, name: str) -> Judge:
        return self._judge.beside(subject, self._journals.stage(self._judge.journal, name, subject))

    def _end(self, question: Question, done: Done | None, trial: Trial) -> Ending | None:
        said = self.known.said
        return question.hand_over_lowest(trial, said) if done is None else question.hand_over(done, trial, said)
