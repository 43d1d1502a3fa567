"""What is handed over, min_good.onnx among it, and its re-check.

The re-check: the files that are handed over are checked themselves.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from runner.checkers.command_template import Tampered
from runner.engine.check_trials import Judge
from runner.engine.repeated_checks import SEARCH_ERROR, ContradictionError, Reliability, Ruling
from runner.engine.search_run import SearchRun
from runner.engine.sequential_testing import Count
from runner.engine.subject import Subject, cutting
from runner.engine.tally import HANDED_OVER
from runner.judgment import UsageError
from runner.model.files.candidate_store import Store
from runner.run_folder import MIN_GOOD, MIXED, REDUCED, WORKAROUND
from runner.schema.checker import Flaky
from runner.schema.root import ResultSettings
from runner.verdict import Invalid, Phase, Purpose, Verdict
from strategies.search import Answer, Outcome, Trial

# What is handed over: models that stand alone, in the run folder and where the user wants them besides.


@dataclass
class HandOver:
    """Writes the model of a trial under a name, ``reduced``, ``mixed`` or ``min_good``, and takes it away again.

    ``first``: false for further answers, which the user named no places for. ``at`` gives a path of the configuration,
    from where the user stands. Raises UsageError for a place that holds something else than a file.
    """

    settings: ResultSettings
    folder: Path
    at: Callable[[str], Path]
    store: Store
    first: bool = True
    _written: dict[str, list[Path]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for key in ("path", "min_good"):
            wanted = getattr(self.settings, key)
            if wanted and self.first and self.at(wanted).exists() and not self.at(wanted).is_file():
                # a device or a folder would be replaced by a model
                raise UsageError(f"result.{key}={wanted}: what is there is no file. Name a file, or one that is to be")

    def write(self, subject: Subject, trial: Trial, name: str) -> Path:
        """Write the model of a trial of ``subject`` to all its places; return the one in the run folder."""
        model = cutting(subject).cut(trial).model
        wanted = self.settings.min_good if name == MIN_GOOD else self.settings.path
        places = [self.folder / f"{name}.onnx", *([self.at(wanted)] if wanted and self.first else [])]
        self._written[name] = []
        self.folder.mkdir(parents=True, exist_ok=True)
        for place in places:
            self._written[name] += self.store.standalone(
                model,
                place,
                external_data=self._weights_of(name),
                threshold=self.settings.external_data_threshold,
                one_file=self.settings.external_data_one_file,
            )
        return places[0]

    def label(self, name: str) -> str:
        """Return what the check of that is called."""
        return f"{name}, as handed over"

    def beside(self, folder: Path) -> HandOver:
        """Return one for a further answer, in a folder of its own."""
        return HandOver(self.settings, folder, self.at, self.store, first=False)

    def withdraw(self, name: str) -> None:
        """Remove what was written under this name: it did not stand the test."""
        for path in self._written.pop(name, []):
            path.unlink(missing_ok=True)

    def _weights_of(self, name: str) -> str | None:
        """The file for weights, if there is to be one; two models in one folder must not share it."""
        wanted = self.settings.external_data
        return f"{name}.{wanted}" if wanted and name not in (REDUCED, MIXED, WORKAROUND) else wanted


MOST_MIN_GOOD = 3
"""How many passing candidates are re-checked before min_good is given up."""


@dataclass(frozen=True)
class Recheck:
    """Hands models over and checks them. ``hand_over``: None where nothing is handed over (a repeat).

    Where several are checked at once, so are the repeats of one, and the model that is likely to be handed over next.
    """

    hand_over: HandOver | None
    reliability: Reliability
    _written: dict[str, tuple[Judge, Trial, Path]] = field(default_factory=dict)
    _ahead: dict[tuple[str, int], Verdict] = field(default_factory=dict)

    def withdraw(self, *names: str) -> None:
        """Remove what was handed over under these names."""
        for name in names:
            self._forget(name)
            if before := self._written.pop(name, None):
                judge, _, path = before
                judge.artifacts.withdraw(path)
            if self.hand_over:
                self.hand_over.withdraw(name)

    def rule(
        self,
        judge: Judge,
        trial: Trial,
        name: str,
        times: int = 1,
        passing: tuple[SearchRun, Sequence[Trial]] | None = None,
    ) -> Ruling:
        """Write the files that are handed over, and check those: ``times`` at most, or until a flaky check is sure.

        ``passing``: what is handed over after it as min_good, the best first, and the search that it is from.

        They are checked once whatever a journal says: its verdicts are about the files of another run, or of this one
        before it was interrupted. Repeats of that are not paid for twice.
        """
        try:
            path = self._write(judge, trial, name)
            self._begin(judge, trial, name, path, times, passing)
            return self._rule(judge, trial, name, path, times)
        except Tampered:
            self.withdraw(name, MIN_GOOD)  # what lies there now may be anything
            raise

    def _write(self, judge: Judge, trial: Trial, name: str) -> Path:
        """Return the file of a trial under this name; min_good is not written again that was checked ahead."""
        assert self.hand_over
        before = self._written.get(name)
        if before and before[:2] == (judge, trial) and (name, HANDED_OVER) in self._ahead:
            return before[2]
        self._forget(name)
        path = self.hand_over.write(judge.subject, trial, name)
        self._written[name] = judge, trial, path
        return path

    def _forget(self, name: str) -> None:
        for key in [key for key in self._ahead if key[0] == name]:
            del self._ahead[key]

    def _begin(
        self,
        judge: Judge,
        trial: Trial,
        name: str,
        path: Path,
        times: int,
        passing: tuple[SearchRun, Sequence[Trial]] | None,
    ) -> None:
        """Check at once what is going to be checked in any case, as long as no verdict differs from what is expected.

        Of a check that is known to be flaky only verdicts tell how many it takes.
        """
        known = self.reliability
        if known.means.workers == 1 or known.rates or known.spent():
            return
        most = (
            1 if known.mode is Flaky.never else min(times, 1 + known.second.afforded(judge, trial, known.means.workers))
        )
        wanted = [(judge, trial, name, path, HANDED_OVER + attempt) for attempt in range(most)]
        if passing and passing[1]:
            other, first = passing[0].judge, passing[1][0]
            wanted.append((other, first, MIN_GOOD, self._write(other, first, MIN_GOOD), HANDED_OVER))
        wanted = [one for one in wanted if (one[2], one[4]) not in self._ahead]
        if len(wanted) > 1:
            judge.tally.due = len(wanted)
            made = known.means.together([partial(self._check_file, *one) for one in wanted])
            self._ahead.update(
                {(one[2], one[4]): verdict for one, verdict in zip(wanted, made, strict=True) if verdict}
            )

    def _rule(self, judge: Judge, trial: Trial, name: str, path: Path, times: int) -> Ruling:
        wanted = Answer.NO if name == MIN_GOOD else Answer.YES
        known, question, count = self.reliability, self.reliability.question, Count()
        rates = known.rates
        if name == REDUCED:
            rates = known.rates_of(judge, trial)
        afforded = 0 if known.mode is Flaky.never else known.second.afforded(judge, trial, known.means.workers)
        judge.tally.due = 1 + min(times - 1, afforded)
        for attempt in itertools.count(HANDED_OVER):
            verdict = self._ahead.pop((name, attempt), None) or self._check_file(judge, trial, name, path, attempt)
            assert verdict is not None, "only what is asked for ahead is given up"
            answer = question.answer(verdict)
            count = count.and_(question.fails(verdict))
            if rates:
                decided = known.decided(rates, count, min(known.max_wrong, SEARCH_ERROR))
                if decided or verdict.outcome is Outcome.UNRESOLVED:
                    return Ruling(decided or answer, verdict)
                if known.out_of_budget():  # what it rather is, by all that is known of it
                    seen = known.counted(judge.counted(trial))
                    together = Count(count.failed + seen.failed, count.passed + seen.passed)
                    rather = Answer.YES if rates.odds(together) > 0 else Answer.NO
                    return Ruling(question.of_failing(rather), verdict)
                continue
            never = known.mode is Flaky.never
            if answer is not wanted and not never and verdict.outcome is not Outcome.UNRESOLVED:
                raise ContradictionError(f"{self._label(name)}: {verdict.outcome.value}")
            if answer is wanted:
                known.second.agree(judge, trial, attempt)
            enough = never or count.total >= times or not self._afforded(judge, trial, name, attempt)
            if answer is not wanted or enough or known.out_of_budget():
                return Ruling(answer, verdict)
        raise AssertionError("attempts do not end")

    def _afforded(self, judge: Judge, trial: Trial, name: str, attempt: int) -> bool:
        """Whether one more repeat may be made, or was made with this one."""
        made = (name, attempt + 1) in self._ahead
        return made or self.reliability.second.afforded(judge, trial, self.reliability.means.workers) > 0

    def min_good(self, inquiry: SearchRun, passing: Sequence[Trial], rest: Trial) -> Trial | None:
        """Hand over the first of these trials that passes again; where a search met none, what the answer leaves."""
        if not passing:
            self.withdraw(MIN_GOOD)
            known = inquiry.judge.sure(rest, Phase.RECHECK, "the model without the answer") if rest else None
            passing = [rest] if known and known.outcome is Outcome.PASS else []
        for found in passing[:MOST_MIN_GOOD]:
            try:
                if self.rule(inquiry.judge, found, MIN_GOOD).verdict.outcome is Outcome.PASS:
                    return found
            except ContradictionError:
                self.withdraw(MIN_GOOD)
                raise
            self.withdraw(MIN_GOOD)
        return None

    def _label(self, name: str) -> str:
        assert self.hand_over
        return self.hand_over.label(name)

    def _check_file(
        self,
        judge: Judge,
        trial: Trial,
        name: str,
        path: Path,
        attempt: int,
        given_up: threading.Event | None = None,
    ) -> Verdict | None:
        label = self._label(name)
        # the first check is of the file just written, so it is made in any case; its repeats may be recorded ones
        if attempt > HANDED_OVER and (known := judge.recall(trial, attempt, Phase.RECHECK, label)):
            return known
        _, made = judge.make(trial, Phase.RECHECK, label)
        if isinstance(made, Invalid):  # a verdict from a journal, and values recorded otherwise this time
            return Verdict(Outcome.UNRESOLVED, reason=made.reason)
        made.discard()
        with judge.journal.claimed(trial, attempt):  # else another job's verdict could be taken for this one
            judge.journal.refresh()
            if judge.journal.get(trial, attempt):
                judge.journal.forget(trial, attempt)
            purpose = Purpose.DOUBT if self.reliability.rates and attempt > HANDED_OVER else Purpose.TRUST
            file = replace(made, model=path, temporary=False)
            return judge.check(file, purpose, attempt, own=False, given_up=given_up)


def nearest(passed: Iterable[Trial], failed: Iterable[Trial]) -> list[Trial]:
    """Return passing trials, not the empty one: first those that differ from a failing one by the fewest elements.

    Of those that differ by as many the smaller ones are first: what an answer is without one of its nodes stands before
    a large part of the model that lacks the answer's last node.
    """
    failing = [trial.bits for trial in failed]

    def order(trial: Trial) -> tuple[int, int, str]:
        bits = trial.bits
        return min(((bits ^ other).bit_count() for other in failing), default=0), len(trial), trial.ranges

    return sorted(filter(len, passed), key=order)
