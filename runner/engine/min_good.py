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
from runner.engine.repeated_checks import SEARCH_ERROR, ContradictionError, Count, Reliability, Ruling, contradiction
from runner.engine.subject import Subject, cutting
from runner.engine.tally import HANDED_OVER
from runner.exit_codes import UsageError
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
        weights = self.settings.external_data  # two models in one folder must not share it
        if weights and name not in (REDUCED, MIXED, WORKAROUND):
            weights = f"{name}.{weights}"
        self._written[name] = []
        self.folder.mkdir(parents=True, exist_ok=True)
        for place in places:
            self._written[name] += self.store.standalone(
                model,
                place,
                external_data=weights,
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


MOST_MIN_GOOD = 3
"""How many passing candidates are re-checked before min_good is given up."""


@dataclass(frozen=True)
class Recheck:
    """Hands models over and checks them. ``hand_over``: None where nothing is handed over (a repeat)."""

    hand_over: HandOver | None
    reliability: Reliability
    _written: dict[str, tuple[Judge, Path]] = field(default_factory=dict)

    def withdraw(self, *names: str) -> None:
        """Remove what was handed over under these names."""
        for name in names:
            if before := self._written.pop(name, None):
                judge, path = before
                judge.artifacts.withdraw(path)
            if self.hand_over:
                self.hand_over.withdraw(name)

    def rule(self, judge: Judge, trial: Trial, name: str, times: int = 1) -> Ruling:
        """Write the files that are handed over, and check those: ``times`` at most, or until a flaky check is sure.

        They are checked once whatever a journal says: its verdicts are about the files of another run, or of this one
        before it was interrupted. Repeats of that are not paid for twice, and made at once where several checks are.
        """
        assert self.hand_over
        try:
            path = self.hand_over.write(judge.subject, trial, name)
            self._written[name] = judge, path
            return self._rule(judge, trial, name, path, times)
        except Tampered:
            self.withdraw(name, MIN_GOOD)  # what lies there now may be anything
            raise

    def _rule(self, judge: Judge, trial: Trial, name: str, path: Path, times: int) -> Ruling:
        wanted = Answer.NO if name == MIN_GOOD else Answer.YES
        known, question, count = self.reliability, self.reliability.question, Count()
        rates, never, workers = known.rates, known.mode is Flaky.never, known.means.workers
        if name == REDUCED:
            rates = known.rates_of(judge, trial)
        ahead = min(times - 1, 0 if never else known.second.afforded(judge, trial, workers))
        judge.tally.due = 1 + ahead
        check = partial(self._check_file, judge, trial, name, path)
        made: list[Verdict | None] = []
        if workers > 1 and ahead and not rates and not known.spent():
            made = known.means.together([partial(check, HANDED_OVER + at) for at in range(1 + ahead)])
        for attempt in itertools.count(HANDED_OVER):
            verdict = made.pop(0) if made else check(attempt)
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
            if answer is not wanted and not never and verdict.outcome is not Outcome.UNRESOLVED:
                assert self.hand_over
                raise contradiction(self.hand_over.label(name), verdict)
            if answer is wanted:
                known.second.agree(judge, trial, attempt)
            more = made or known.second.afforded(judge, trial, workers)
            if answer is not wanted or never or count.total >= times or not more or known.out_of_budget():
                return Ruling(answer, verdict)
        raise AssertionError("attempts do not end")

    def min_good(self, judge: Judge, passing: Sequence[Trial], rest: Trial) -> Trial | None:
        """Hand over the first of these trials that passes again; where a search met none, what the answer leaves."""
        if not passing:
            self.withdraw(MIN_GOOD)
            known = judge.sure(rest, Phase.RECHECK, "the model without the answer") if rest else None
            passing = [rest] if known and known.outcome is Outcome.PASS else []
        for found in passing[:MOST_MIN_GOOD]:
            try:
                if self.rule(judge, found, MIN_GOOD).verdict.outcome is Outcome.PASS:
                    return found
            except ContradictionError:
                self.withdraw(MIN_GOOD)
                raise
            self.withdraw(MIN_GOOD)
        return None

    def _check_file(
        self,
        judge: Judge,
        trial: Trial,
        name: str,
        path: Path,
        attempt: int,
        given_up: threading.Event | None = None,
    ) -> Verdict | None:
        assert self.hand_over
        label = self.hand_over.label(name)
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
            file = judge.with_unseen(replace(made, model=path, temporary=False))
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
