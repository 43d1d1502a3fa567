"""Second verdicts: how many checks are repeated as long as none contradicts itself, and what their agreement shows.

They are asked for where a few wrong verdicts could make a wrong answer. That an answer fails is checked again as it is
handed over, and two more times. Each removal that proves it minimal is checked again: of a single element there is none
to doubt, and a failure that was missed makes an answer too large.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from runner.session.judge import Judge
from runner.session.trust.check_counts import HANDED_OVER, REPEATS
from runner.session.trust.sequential_test import WRONG, power
from runner.text import counted, percent
from strategies.outcome import Answer
from strategies.trial import Trial

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
        taken = tally.spent.get(REPEATS, 0.0)
        with self._lock:
            repeats = [one for one in self.agreed if one[2] % HANDED_OVER]  # by whichever run
        made, own = len(repeats), (judge.journal.path, trial.key)
        of_answer = sum(one[:2] == own and one[2] > HANDED_OVER for one in repeats)
        in_time = int((seconds - taken) / each) if each else MOST_REFUSALS
        return max((WEAK if trial in self.weak else LEAST) - of_answer, min(int(checks) - made, in_time), 0)

    @property
    def power(self) -> float:
        """With what probability a check that is wrong 3 times in 10 would have been noticed."""
        return power(len(self.agreed))

    def tell(self) -> None:
        """Say with what probability a check that did not contradict itself would have been noticed, where one was."""
        if not self.agreed:
            return
        log.info(
            "%s agreed with the first: a check that is wrong %g times in 10 would have been noticed with %s",
            *(counted(len(self.agreed), "second verdict"), WRONG * 10, percent(self.power)),
        )


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
