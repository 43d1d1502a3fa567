"""A search, step by step, and the procedures that are chosen by name.

A search: a deterministic line of questions that any number of workers can help to answer.

An algorithm is written as plain continuation-passing functions: a step is either a question (`Ask`) that holds what
comes after each answer, or the end (`Done`). Steps are immutable, so the driver can look ahead along *both* answers
of a question: that is all there is to speculation, and it is the reason why parallel workers cannot change a result.
"""

from __future__ import annotations

import heapq
from collections import ChainMap
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from itertools import count
from typing import TypeAlias

from strategies.outcome import Answer
from strategies.search_space import Space
from strategies.trial import Trial

LOOK_AHEAD = 64
"""How many questions ahead the driver looks for each trial that it is asked for."""


Asked: TypeAlias = "tuple[Trial, Answer, Asked] | None"
"""The questions of one line and their answers, the last first: (trial, answer, what came before)."""


class Claim(str, Enum):
    """How minimal an answer is."""

    ONE_MINIMAL = "1-minimal"
    """Proven: each single removal was tried on the answer itself, and does not fail."""
    UNPROVEN = "1-minimal except for unanswered removals"
    """As above, but some removals could not be judged."""
    WINDOW = "window"
    """A contiguous piece: the earliest end and the latest start that fail."""
    RANKED = "ranked"
    """The shortest prefix of a ranking: error adds up over many elements, and no small set was found."""
    SMALLEST_SEEN = "smallest seen"
    """The smallest of the sets that were tried and have the property; nothing is proven of its elements."""
    GROWN = "grown"
    """An answer to a smaller question, and what comes next in a ranking until it has the property as well."""
    BUDGET = "budget reached"
    """The search was stopped; the best set so far."""
    COUNTED = "counted"
    """A repeat: nothing is minimized."""


@dataclass(frozen=True)
class Ask:
    """A question.

    ``then`` gives the step that follows an answer. ``likely`` is the prior probability of YES (it steers speculation
    only).
    ``left`` estimates the questions still to come, this one included.
    """

    trial: Trial
    then: Callable[[Answer], Step]
    phase: str
    label: str = ""
    likely: float = 0.5
    left: int = 1


@dataclass(frozen=True)
class Done:
    """The end of a search: the trial found (None: nothing), how minimal it is, and how many questions stayed open.

    ``note``: what else was tried, for a person.
    """

    trial: Trial | None
    claim: Claim
    unanswered: int = 0
    note: str = ""


@dataclass(frozen=True)
class Look:
    """A look back: ``then`` gets all questions of this line so far, oldest first, with their answers."""

    then: Callable[[tuple[tuple[Trial, Answer], ...]], Step]


Step: TypeAlias = Ask | Done | Look


def limited(step: Step, questions: int, then: Callable[[int, Done | None], Step]) -> Step:
    """Follow ``step`` for so many questions at most.

    ``then`` gets how many are left and the end, or None where the questions did not suffice.
    """
    if isinstance(step, Done):
        return then(questions, step)
    if isinstance(step, Look):
        look = step.then
        return Look(lambda asked: limited(look(asked), questions, then))
    if questions < 1:
        return then(0, None)
    ask = step.then
    return replace(step, then=lambda answer: limited(ask(answer), questions - 1, then), left=min(step.left, questions))


class Search:
    """Drives a line of questions: `ask` for trials, `tell` answers in any order, until `done`."""

    def __init__(self, space: Space, first: Step, known: Mapping[Trial, Answer] | None = None) -> None:
        self.space = space
        self._answers: dict[Trial, Answer] = dict(known or {})
        self._step = first
        self._asked: Asked = None
        self._advance()

    @property
    def done(self) -> Done | None:
        """The end, once it is reached."""
        return self._step if isinstance(self._step, Done) else None

    @property
    def next(self) -> Ask | Done:
        """The next question, or the end."""
        assert not isinstance(self._step, Look)
        return self._step

    @property
    def remaining(self) -> int:
        """An estimate of the checks still needed on one worker."""
        return self._step.left if isinstance(self._step, Ask) else 0

    def after(self, trial: Trial, answer: Answer) -> Ask | Done:
        """Return the next question, or the end, once this answer is told."""
        step, _ = self._resolve(self._step, self._asked, ChainMap({trial: answer}, self._answers))
        return step

    @property
    def best(self) -> Trial | None:
        """The smallest trial known to have the property; among equals the one that stands first in the order."""
        if self.done and self.done.trial:
            return self.done.trial
        having = [trial for trial, answer in self._answers.items() if answer is Answer.YES]
        least = min(map(len, having), default=0)
        found = (trial for trial in having if len(trial) == least)
        place = self.space.position
        return min(found, key=lambda trial: sorted(place.get(e, e) for e in trial.elements), default=None)

    def ask(self, n: int = 1) -> tuple[Ask, ...]:
        """Up to ``n`` questions worth answering now, best first.

        The next one, then those that are likeliest to come after it.
        """
        if n < 1:
            raise ValueError(f"n={n}: ask for at least one trial")
        found: dict[Trial, Ask] = {}
        order = count()
        frontier: list[tuple[float, int, Step, Asked]] = [(-1.0, next(order), self._step, self._asked)]
        for _ in range(1 if n == 1 else LOOK_AHEAD * n):
            if not frontier or len(found) == n:
                break
            weight, _, step, asked = heapq.heappop(frontier)
            step, asked = self._resolve(step, asked)
            if isinstance(step, Done):
                continue
            found.setdefault(step.trial, step)
            if n > 1:
                for answer, chance in ((Answer.YES, step.likely), (Answer.NO, 1 - step.likely)):
                    line = (step.trial, answer, asked)
                    heapq.heappush(frontier, (weight * chance, next(order), step.then(answer), line))
        return tuple(found.values())

    def tell(self, trial: Trial, answer: Answer) -> None:
        """Record an answer; the same trial may not be answered twice in different ways."""
        if self._answers.setdefault(trial, answer) is not answer:
            raise ValueError(f"trial {trial.ranges!r} was answered {self._answers[trial].value}, now {answer.value}")
        self._advance()

    def stop(self) -> Done:
        """End here (a budget is spent): the best so far."""
        if not self.done:
            self._step = Done(self.best, Claim.BUDGET)
        assert isinstance(self._step, Done)
        return self._step

    @property
    def asked(self) -> tuple[tuple[Trial, Answer], ...]:
        """The questions that led here, oldest first, with their answers; not what was only looked at ahead."""
        return _unrolled(self._asked)

    def _advance(self) -> None:
        self._step, self._asked = self._resolve(self._step, self._asked)

    def _resolve(
        self, step: Step, asked: Asked, answers: Mapping[Trial, Answer] | None = None
    ) -> tuple[Ask | Done, Asked]:
        """Follow a step over all questions whose answers are known.

        Nothing at all never fails: the empty trial is NO.
        """
        answers = self._answers if answers is None else answers
        while not isinstance(step, Done):
            if isinstance(step, Look):
                step = step.then(_unrolled(asked))
                continue
            answer = answers.get(step.trial) if step.trial else Answer.NO
            if answer is None:
                return step, asked
            asked = (step.trial, answer, asked)
            step = step.then(answer)
        return step, asked


def _unrolled(asked: Asked) -> tuple[tuple[Trial, Answer], ...]:
    found = []
    while asked:
        trial, answer, asked = asked
        found.append((trial, answer))
    return tuple(reversed(found))


# A search that is chosen by name: what it is for, how it begins, and what it can be told.
#
# Each module of this package declares its own beside the implementation; `strategies.registry` finds them.


@dataclass(frozen=True)
class Prior:
    """What is known before the first question.

    ``suspects``: elements that ranges say have to be raised. ``ranking``: all elements, the likeliest first. ``kinds``:
    elements that play the same part in a model, in each of its blocks.
    """

    suspects: tuple[int, ...] = ()
    ranking: tuple[int, ...] = ()
    kinds: tuple[tuple[int, ...], ...] = ()


class First(str, Enum):
    """Which end of the window is looked for first."""

    END = "end"
    """The earliest end: candidates start at the model's inputs."""
    START = "start"
    """The latest start: candidates are judged at the model's own outputs. Only where any set may be tried."""


class Task(str, Enum):
    """What a search is for. A subject says for which of them it can be searched."""

    SUBSET = "subset"
    """A small set of elements with a property that the whole has and nothing has not."""
    RAISE = "raise"
    """The same, where a ranking is known beforehand, or only a prefix or a suffix is wanted."""
    REPEAT = "repeat"
    """No set at all: one check again and again."""
    HISTORY = "history"
    """One element of an ordered history at a time."""


@dataclass(frozen=True)
class Options:
    """What searches can be told; each reads what it names.

    ``extra_checks``: see `beyond`; None: as many as may help. ``first``: which end of a window is looked for first.
    ``named``: elements that are asked about before all others.
    ``reverse``: a suffix and not a prefix. ``prior``: what is known beforehand. ``until``: see `repeat`.
    ``start``: the element that is known to have the property; ``exhaustive``: ask all others;
    ``label``: what checks call an element; ``coarse``: elements that are searched before those between; see `nearest`.
    """

    extra_checks: int | None = None
    first: First | None = None
    named: tuple[int, ...] = ()
    reverse: bool = False
    prior: Prior | None = None
    until: str = "bad"
    start: int = 0
    exhaustive: bool = False
    coarse: tuple[int, ...] = ()
    label: Callable[[int], str] = str


@dataclass(frozen=True)
class Procedure:
    """``begin`` gives the first step. ``reads``: the settings of a strategy that make a difference to it."""

    name: str
    task: Task
    begin: Callable[[Space, Options], Step]
    reads: tuple[str, ...] = ()
