"""Which verdicts are repeated, what their agreement shows, and what is made of those that differ.

A check is taken to be reliable until two verdicts on the same candidate differ. To notice that, the verdicts on which
an answer rests are repeated, as `SecondVerdicts` says. A model that passes ends a run without a search: it is repeated
for some seconds.

Once a check is known to be flaky, its rates are measured (on the end that should fail, and on the one that should not)
and every answer of the search is a sequential test of its own; the answer that is handed over, and each removal that
proves it, is tested until all of them together are wrong more rarely than ``max_wrong``. Wrong intermediate answers
cost extra checks; they do not affect that bound.
"""

from __future__ import annotations

import logging
import math
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from runner.engine.check_trials import CheckLimits, Expected, Judge
from runner.engine.session_question import NOTHING, Question, study
from runner.engine.tally import HANDED_OVER
from runner.exit_codes import CannotJudge
from runner.schema.checker import Flaky
from runner.text import counted
from runner.verdict import Phase, Purpose, Verdict
from strategies.search import Answer, Outcome, Trial

# The sequential test for flaky checks: a trial is repeated until its answer is as sure as is asked.
#
# A failing set fails at a rate (``hit``), a sound one at another (``false_alarm``). After Wald, "Sequential tests of
# statistical hypotheses" (1945): with each repeat the odds between the two rates change by the likelihood ratio of what
# was seen, and the test ends when the odds are further from even than the error allows. That takes the fewest repeats
# on average of all tests with these errors.

CONFIDENCE = 1.28
"""Standard deviations by which measured rates are drawn together (a one-sided 90 %): they come from few repeats."""
LEAST_RATE, MOST_RATE = 0.002, 0.998
"""No rate is taken to be 0 or 1: one surprise must not decide for ever."""
WRONG = 0.3
"""How often a check is wrong of which is said with what probability it would have been noticed."""


@dataclass(frozen=True)
class Count:
    """How often one trial failed and how often it did not."""

    failed: int = 0
    passed: int = 0

    @property
    def total(self) -> int:
        """All repeats."""
        return self.failed + self.passed

    @property
    def rate(self) -> float:
        """The share that failed (0 where nothing was tried)."""
        return self.failed / self.total if self.total else 0.0

    def and_(self, failed: bool) -> Count:
        """One more repeat."""
        return Count(self.failed + failed, self.passed + (not failed))

    def interval(self) -> tuple[float, float]:
        """Where the true rate lies, each end with 90 % confidence."""
        return wilson(self.failed, self.total, CONFIDENCE)


def wilson(hits: int, n: int, z: float) -> tuple[float, float]:
    """Return where the true rate of hits lies, after Wilson (1927); ``z``: the normal quantile of the confidence."""
    if not n:
        return 0.0, 1.0
    rate = hits / n
    center = (rate + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * math.sqrt(rate * (1 - rate) / n + z * z / (4 * n * n))
    return max(0.0, center - half), min(1.0, center + half)


@dataclass(frozen=True)
class Rates:
    """Rates of failing: of a set that has the failure under study, and of one that has not."""

    hit: float
    false_alarm: float

    @staticmethod
    def measured(whole: Count, control: Count) -> Rates | None:
        """What repeats of the whole model and of the control allow to assume; None if they cannot be told apart.

        Each rate is moved towards the other by its uncertainty, so that errors of measurement make the test longer
        and not wrong.
        """
        hit = min(max(whole.interval()[0], LEAST_RATE), MOST_RATE)
        false_alarm = min(max(control.interval()[1], LEAST_RATE), MOST_RATE)
        return Rates(hit, false_alarm) if hit > false_alarm + 0.05 or hit > 2 * false_alarm else None

    def odds(self, count: Count) -> float:
        """The logarithm of the odds that what was counted is a failing set (even beforehand)."""
        up = math.log(self.hit / self.false_alarm)
        down = math.log((1 - self.hit) / (1 - self.false_alarm))
        return count.failed * up + count.passed * down

    def decide(self, count: Count, error: float) -> Answer | None:
        """YES or NO once the probability of being wrong is below ``error``; None: repeat."""
        odds = self.odds(count)
        bound = math.log((1 - error) / error)
        if odds >= bound:
            return Answer.YES
        return Answer.NO if odds <= -bound else None


# Second verdicts: how many checks are repeated as long as none contradicts itself, and what their agreement shows.
#
# They are asked for where a few wrong verdicts could make a wrong answer. That an answer fails is checked again as it
# is handed over, and two more times. Each removal that proves it minimal is checked again: of a single element there
# is none to doubt, and a failure that was missed makes an answer too large.

log = logging.getLogger(__name__)

LEAST, WEAK, SHARE = 2, 5, 0.25
"""So many repeats of an answer (of one that is shown by few: see `doubtful`), or this part of the search, if more."""
SHOWN, FEWEST, MOST = 6, 2, 3
"""So many verdicts show that an answer needs an element: trials of the search, and 2 or 3 repeats of its removal."""
MOST_REFUSALS, MOST_SURPRISES = 12, 3
"""How many removals, and sets that hold the answer and have not its outcome, are checked again at most."""


@dataclass
class SecondVerdicts:
    """Those that said the same as the first. Safe for threads.

    ``agreed``: (journal, trial, attempt). ``weak``: answers of which few trials show that an element is needed.
    """

    agreed: set[tuple[Path, str, int]] = field(default_factory=set)
    weak: set[Trial] = field(default_factory=set)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def agree(self, judge: Judge, trial: Trial, attempt: int) -> None:
        """Note that a verdict on a trial is no other than the first one."""
        if attempt:
            with self._lock:
                self.agreed.add((judge.journal.path, trial.key, attempt))

    def doubt(self, found: Trial, told: Mapping[Trial, Answer]) -> dict[Trial, int]:
        """Return what is `doubtful` about an answer; it is weak where a removal is checked as often as any."""
        again = doubtful(found, told)
        self.weak |= {found} if 1 + MOST in again.values() else set()
        return again

    def follow(self, before: Trial, smaller: Trial) -> None:
        """Note that an answer was made from another one: it is weak where that one is."""
        self.weak |= {smaller} if before in self.weak else set()

    def afforded(self, judge: Judge, trial: Trial, workers: int) -> int:
        """Return how many more repeats an answer may have now, if all of them agree.

        ``workers``: checks that the search made at once, most of which it turned out not to need.
        """
        tally = judge.tally
        each = tally.seconds / max(1, sum(tally.paid.values()))
        checks, seconds = (SHARE * one / workers for one in tally.searched)
        taken = tally.spent.get(Phase.REPEAT.counted, 0.0)
        with self._lock:
            repeats = [one for one in self.agreed if one[2] % HANDED_OVER]  # by whichever run
        made, own = len(repeats), (judge.journal.path, trial.key)
        of_answer = sum(one[:2] == own and one[2] > HANDED_OVER for one in repeats)
        in_time = int((seconds - taken) / each) if each else MOST_REFUSALS
        return max((WEAK if trial in self.weak else LEAST) - of_answer, min(int(checks) - made, in_time), 0)

    @property
    def power(self) -> float:
        """With what probability a check that is wrong 3 times in 10 would have been noticed."""
        return 1 - (1 - WRONG) ** len(self.agreed)

    def tell(self) -> None:
        """Say how many repeated checks there were, where none contradicted the first."""
        if self.agreed:
            log.info("%s gave the same result", counted(len(self.agreed), "repeated check"))


def doubtful(found: Trial, told: Mapping[Trial, Answer]) -> dict[Trial, int]:
    """Return which trials without the wanted outcome are checked again, and how often in all.

    Those that hold the whole answer: one of the two is wrong, or the failure comes and goes with the cut. And each
    removal, the oftener the fewer other trials show the same: that hold the rest of the answer, and not that element.
    An element that is not needed is shown by few, since the search ends where a failure was missed.
    """
    around, shown = [], Counter[int]()
    for trial, answer in told.items():
        lacks = found.elements - trial.elements if answer is Answer.NO else found.elements
        if not lacks:
            around.append(trial)
        elif len(lacks) == 1:
            shown.update(lacks)
    removals = refused_removals(found, told)
    least = sorted(removals, key=shown.__getitem__)[:MOST_REFUSALS]
    repeats = {removals[one]: 1 + min(max(SHOWN - shown[one], FEWEST), MOST) for one in least}
    return dict.fromkeys(around[:MOST_SURPRISES], 2) | repeats


def refused_removals(found: Trial, told: Mapping[Trial, Answer]) -> dict[int, Trial]:
    """Return what was refused that lacks a single element of ``found``, by that element, ascending.

    It is looked for among the answers: all removals from a set of thousands would take gigabytes.
    """
    smaller = (trial for trial, answer in told.items() if answer is Answer.NO and 0 < len(trial) == len(found) - 1)
    lacking = ((found.elements - trial.elements, trial) for trial in smaller)
    return dict(sorted((next(iter(lacks)), trial) for lacks, trial in lacking if len(lacks) == 1))


WHOLE, HEALTHY, ANSWER = 3, 10, 8
"""How often a file of which little is known, one that passes, and the answer are checked in all at most."""
SECONDS = 15.0
"""Seconds that repeats may take where there is no search, or where something did; beyond that, a part of all checks."""
MEASURED, MOST_MEASURED = 20, 60
"""Repeats of the whole model and of the control that measure rates; more where the two cannot be told apart."""
SEARCH_ERROR = 0.02
"""The error that one answer of a search may have: the final tests find it out."""
MOST_REPEATS = 400
"""Repeats of one candidate after which it counts as unknown."""
UNSURE = "the budget was reached before the answer was repeated often enough to be sure"
"""What is said of an answer whose repeats the budget ended."""


class ContradictionError(Exception):
    """Two verdicts on one candidate differ: the check is flaky, and nothing that rests on single verdicts holds."""


def contradiction(label: str, now: Verdict) -> ContradictionError:
    """Return what to raise for a candidate whose verdict was another before."""
    return ContradictionError(f"a repeated check of {label} now gives {now.outcome.value}")


class IndistinctError(CannotJudge):
    """A flaky check fails as often on the end that should not fail as on the other one."""


@dataclass(frozen=True)
class Ruling:
    """What a candidate is taken for, after one check or several; ``verdict``: one that says so."""

    answer: Answer
    verdict: Verdict


@dataclass(eq=False)
class Reliability:
    """Decides on candidates by one check or by many. Safe for threads once rates are measured.

    ``mode``: see `Flaky`. ``max_wrong``: the probability of a wrong answer that a run of a flaky check may have.
    ``question``: what is asked; a session sets it. ``whole``: how often the end failed that should, ``control``: the
    one that should not. ``repeats``: checks beyond the first that answers took; ``most``: checks of the longest.
    ``spent``: whether the run's budget is; then nothing is repeated, and ``unsure`` is set where that matters.
    ``second``: the second verdicts that said the same as the first. ``means``: what checks several at once.
    ``steady``: its mode is `Flaky.never` since the first verdicts have shown that.
    """

    mode: Flaky
    max_wrong: float
    question: Question = field(default_factory=Question)
    rates: Rates | None = None
    whole: Count = field(default_factory=Count)
    control: Count = field(default_factory=Count)
    repeats: int = 0
    most: int = 0
    spent: Callable[[], bool] = lambda: False
    unsure: bool = False
    second: SecondVerdicts = field(default_factory=SecondVerdicts)
    means: CheckLimits = field(default_factory=CheckLimits)
    steady: bool = False
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def renewed(self, question: Question) -> Reliability:
        """Return what is known about another failure of the same check: one that is flaky is measured anew."""
        mode = Flaky.always if self.rates else self.mode
        return Reliability(mode, self.max_wrong, question, spent=self.spent, second=self.second, means=self.means)

    def out_of_budget(self) -> bool:
        """Whether a repeat that is due cannot be paid for; it is remembered."""
        spent = self.spent()
        self.unsure = self.unsure or spent
        return spent

    # ---- one candidate

    def rule(
        self,
        judge: Judge,
        trial: Trial,
        phase: str,
        label: str,
        purpose: Purpose | None = None,
        given_up: threading.Event | None = None,
        *,
        error: float = SEARCH_ERROR,
        spent: Callable[[], bool] = lambda: False,
    ) -> Ruling | None:
        """Decide on a trial; None: it was given up meanwhile, or the budget was ``spent`` before it was sure."""
        verdicts = list(judge.counted(trial)) if self.rates else []
        if not verdicts:
            if spent() and not judge.counted(trial):  # what the journal knows costs nothing
                return None
            verdict = judge.verdict(trial, phase, label, purpose, given_up=given_up)
            if verdict is None:
                return None
            verdicts = [verdict]
        if self.rates is None or verdicts[0].outcome is Outcome.UNRESOLVED:
            return Ruling(self.answer(verdicts[0]), verdicts[0])
        error = min(error, self.max_wrong)
        purpose = purpose or Phase.of(phase).purpose
        purpose = Purpose.DOUBT if purpose is Purpose.TRUST else purpose
        while (answer := self.decided(self.rates, self.counted(verdicts), error)) is None:
            if len(verdicts) >= MOST_REPEATS:
                answer = Answer.UNKNOWN
                break
            if spent() or (purpose is Purpose.DOUBT and self.out_of_budget()):
                return None
            again = judge.verdict(trial, phase, label, purpose, attempt=len(verdicts), given_up=given_up)
            if again is None:
                return None
            verdicts.append(again)
        with self._lock:
            self.repeats += len(verdicts) - 1
            self.most = max(self.most, len(verdicts))
        fitting = [one for one in verdicts if self.question.answer(one) is answer]
        return Ruling(answer, (fitting or verdicts)[0])

    def known(self, judge: Judge, trial: Trial) -> Answer | None:
        """Return what the recorded verdicts on a trial amount to, if they suffice."""
        verdicts = judge.counted(trial)
        if not verdicts:
            return None
        if self.rates is None or verdicts[0].outcome is Outcome.UNRESOLVED:
            return self.answer(verdicts[0])
        return self.decided(self.rates, self.counted(verdicts), min(SEARCH_ERROR, self.max_wrong))

    def answer(self, verdict: Verdict) -> Answer:
        """Return what one verdict of a reliable check says: a wanted outcome has to be good enough as well."""
        answer = self.question.answer(verdict)
        return answer if answer is not Answer.YES or self.question.enough(verdict) else Answer.NO

    def decided(self, rates: Rates, count: Count, error: float) -> Answer | None:
        """Return what verdicts amount to once that is wrong more rarely than ``error``; None: repeat."""
        failing = rates.decide(count, error)
        return failing and self.question.of_failing(failing)

    def counted(self, verdicts: Iterable[Verdict]) -> Count:
        """Count verdicts on one trial."""
        failed = [self.question.fails(verdict) for verdict in verdicts]
        return Count(sum(failed), len(failed) - sum(failed))

    def rates_of(self, judge: Judge, trial: Trial) -> Rates | None:
        """Return the rates, that of failing measured again with what is known of a trial that fails, too.

        Twenty repeats of the whole model may show a rate that is too high: then a failing set looks like one that does
        not fail.
        """
        if self.rates is None:
            return None
        seen = self.counted(judge.counted(trial))
        together = Count(self.whole.failed + seen.failed, self.whole.passed + seen.passed)
        return Rates.measured(together, self.control) or self.rates

    # ---- noticing

    def repeat(
        self, judge: Judge, trial: Trial, label: str, times: int, allowance: float = SECONDS, *, failing: bool
    ) -> None:
        """Check a trial again, ``times`` in all, as long as ``allowance`` seconds last.

        Raises ContradictionError as soon as it fails (``failing=False``) or does not.
        """
        if self.mode is Flaky.never or self.rates is not None:
            return
        known = judge.counted(trial)
        for attempt in range(times):
            each = judge.tally.seconds / max(1, sum(judge.tally.paid.values()))
            if attempt < len(known):
                verdict = known[attempt]
            elif judge.tally.spent.get(Phase.REPEAT.counted, 0.0) + each > allowance or self.out_of_budget():
                return
            else:
                if allowance < math.inf:  # else whoever repeats several has announced them
                    judge.tally.due = times - attempt
                verdict = judge.sure(trial, Phase.REPEAT, label, attempt=attempt)
            if verdict.outcome is not Outcome.UNRESOLVED:
                if self.question.fails(verdict) is not failing:
                    raise contradiction(label, verdict)
                self.second.agree(judge, trial, attempt)

    def repeat_all(self, judge: Judge, again: Sequence[tuple[Trial, str, int]], *, failing: bool) -> None:
        """Check trials again, each so many times in all, as many at once as there are workers; else as `repeat`."""
        if self.mode is not Flaky.never and self.rates is None and not self.spent():
            judge.tally.due = sum(times - len(judge.counted(trial)) for trial, _, times in again)
            self.means.ahead(
                [
                    Expected(judge, trial, Phase.REPEAT, label, attempt=attempt)
                    for trial, label, times in again
                    for attempt in range(len(judge.counted(trial)), times)
                ]
            )
        for trial, label, times in again:
            self.repeat(judge, trial, label, times, math.inf, failing=failing)

    def allowance(self, judge: Judge) -> float:
        """Seconds that what has to be found out may take by now, once something did contradict itself."""
        return max(SECONDS, judge.tally.seconds / 4)

    # ---- knowing

    def measure(self, judge: Judge, whole: Trial) -> None:
        """Measure both rates, unless a whole that should fail never does.

        Raises IndistinctError where they are too much alike.
        """
        judge.studied.flaky = True
        failing, sound = self.question.ends(whole)
        for repeats in (MEASURED, MOST_MEASURED):
            self.whole = self._measured(judge, *failing, repeats)
            if self.question.wants_failure and not self.whole.failed and not self.unsure:
                return
            self.control = self._measured(judge, *sound, repeats)
            self.rates = Rates.measured(self.whole, self.control)
            if self.rates or self.unsure:
                break
        if not self.rates:
            raise IndistinctError(
                f"the check is flaky, too much to tell a model that fails from one that does not: {self}"
                f"{self.too_few}.\ncheck: {judge.checker.describe()}"
            )
        log.warning("the check is flaky: %s; each candidate is checked as often as needed", self)

    def _measured(self, judge: Judge, end: Trial, label: str, repeats: int) -> Count:
        for attempt in range(len(judge.counted(end)), repeats):
            if self.out_of_budget():
                break
            phase = Phase.PREFLIGHT if end else Phase.CONTROL
            judge.tally.due = repeats - attempt
            judge.sure(end, phase, f"{label}, {attempt + 1} of {repeats}", Purpose.DOUBT, attempt)
        if end and self.question.wants_failure and not judge.studied.signature:
            failed = (verdict for verdict in judge.counted(end) if verdict.outcome is Outcome.FAIL)
            if verdict := next(failed, None):
                study(judge, verdict, label)
        # counted only now: which failures count depends on the first one
        return self.counted(judge.counted(end))

    @property
    def too_few(self) -> str:
        """What to say where rates could not be measured for lack of a budget; "" where that is not why."""
        took = f"it takes {MEASURED} to {MOST_MEASURED} checks of each"
        return f"; the budget was reached while that was measured: {took}" if self.unsure else ""

    def __str__(self) -> str:
        (_, failing), (_, sound) = self.question.ends(NOTHING)
        return (
            f"{failing} fails {self.whole.rate:.0%} of the time ({self.whole.failed} of {self.whole.total}), "
            f"{sound} {self.control.rate:.0%} ({self.control.failed} of {self.control.total})"
        )
