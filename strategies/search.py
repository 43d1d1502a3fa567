"""What a search is made of: outcomes and answers, trials and their space, steps, and procedures chosen by name.

An algorithm is written as plain continuation-passing functions: a step is either a question (`Ask`) that holds what
comes after each answer, or the end (`Done`). Steps are immutable, so the driver can look ahead along *both* answers
of a question: that is all there is to speculation, and it is the reason why parallel workers cannot change a result.
"""

from __future__ import annotations

import hashlib
import heapq
import sys
from bisect import bisect_left
from collections import ChainMap
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from functools import cached_property, lru_cache
from itertools import chain, count, groupby
from typing import TypeAlias

# Outcomes of a check, and the answers that a search gets for them.


class Outcome(str, Enum):
    """The four things that a check can find.

    ``DIFFERENT`` is a failure, but not the one under study; ``UNRESOLVED`` is no answer at all
    (an invalid candidate, a non-finite feed, a broken check).
    """

    PASS = "pass"  # noqa: S105 - not a password
    FAIL = "fail"
    DIFFERENT = "different"
    UNRESOLVED = "unresolved"


class Answer(str, Enum):
    """What a search is told: does the trial have the property that is looked for?"""

    YES = "yes"
    NO = "no"
    UNKNOWN = "unknown"


def answer_of(outcome: Outcome, wanted: Outcome = Outcome.FAIL) -> Answer:
    """Translate an outcome for a search that looks for ``wanted`` (FAIL to reduce, PASS to raise precision).

    A DIFFERENT failure answers "no" and not "unknown": the failure under study did not show.
    """
    if outcome is Outcome.UNRESOLVED:
        return Answer.UNKNOWN
    return Answer.YES if outcome is wanted else Answer.NO


# A trial: which elements are chosen. Equal sets are equal trials.

HELD = 2
"""Sets that are kept beside their text, of those used last: one of 60,000 elements takes 4 MB."""


class Trial:
    """A set of element ids (positions in the subject's ordered list of elements); it does not change.

    A search remembers every set that was tried, and each may hold thousands of elements. So one that was written down
    (``ranges``) is kept as that text only, and read back where its elements are asked for.
    """

    __slots__ = ("_elements", "_hash", "_key", "_ranges", "_size")

    def __init__(self, elements: frozenset[int]) -> None:
        self._elements: frozenset[int] | None = elements
        self._hash = hash(elements)
        self._size = len(elements)
        self._ranges: str | None = None
        self._key: str | None = None

    @staticmethod
    def of(elements: Iterable[int]) -> Trial:
        """Return the trial of these elements."""
        return Trial(frozenset(elements))

    @property
    def elements(self) -> frozenset[int]:
        """The set."""
        held = self._elements  # another thread may be writing it down
        return _read(self._ranges or "") if held is None else held

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[int]:
        if self._ranges is None:
            return iter(sorted(self.elements))
        return chain.from_iterable(range(first, last + 1) for first, last in _runs(self._ranges))

    def __contains__(self, element: object) -> bool:
        return element in self.elements

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Trial):
            return NotImplemented
        if self is other or self._hash != other._hash:
            return self is other
        if self._ranges is not None and other._ranges is not None:
            return self._ranges == other._ranges
        return self.elements == other.elements

    def __repr__(self) -> str:
        return f"Trial({self.ranges})"

    @property
    def ranges(self) -> str:
        """The set as text, runs folded: ``0-3,7,9-12``. The same set always gives the same text."""
        if self._ranges is None:
            self._ranges = _written(self.elements)
            self._elements = None
        return self._ranges

    @property
    def bits(self) -> int:
        """The set as a number with a bit for each element: how much two of many sets differ is told at once."""
        return sum((1 << last + 1) - (1 << first) for first, last in _runs(self.ranges))

    @property
    def key(self) -> str:
        """A short stable digest of the set, fit for file names and the journal."""
        if self._key is None:
            self._key = hashlib.sha256(self.ranges.encode()).hexdigest()[:24]
        return self._key

    @staticmethod
    def parse(ranges: str) -> Trial:
        """Read the text that ``ranges`` wrote."""
        return Trial(_read(ranges))


def size_of(ranges: str) -> int:
    """Return how many elements the text that ``ranges`` wrote stands for; the set itself is not made."""
    return sum(last + 1 - first for first, last in _runs(ranges))


def _written(elements: frozenset[int]) -> str:
    runs = []
    for _, run in groupby(enumerate(sorted(elements)), key=lambda pair: pair[1] - pair[0]):
        ids = [element for _, element in run]
        runs.append(str(ids[0]) if len(ids) == 1 else f"{ids[0]}-{ids[-1]}")
    return ",".join(runs)


@lru_cache(maxsize=HELD)
def _read(ranges: str) -> frozenset[int]:
    elements: set[int] = set()
    for first, last in _runs(ranges):
        elements.update(range(first, last + 1))
    return frozenset(elements)


def _runs(ranges: str) -> Iterator[tuple[int, int]]:
    for part in ranges.split(",") if ranges else []:
        first, _, last = part.partition("-")
        yield int(first), int(last or first)


class Closure(str, Enum):
    """Which sets may be tried."""

    FREE = "free"
    """Any set."""
    ANCESTORS = "ancestors"
    """A set holds whatever its elements depend on (the inputs of a model stay)."""
    DESCENDANTS = "descendants"
    """A set holds whatever depends on its elements (the outputs of a model stay)."""
    PLACE = "place"
    """Any set, and what depends on it is there in any case: where a failure begins only the latest start tells."""


@dataclass(frozen=True)
class Space:
    """An ordered list of elements with structure.

    ``order``: element ids, a topological order of ``parents``. ``parents[i]``: the elements that element ``i``
    depends on (empty: no structure known).
    """

    order: tuple[int, ...]
    parents: tuple[tuple[int, ...], ...] = ()
    closure: Closure = Closure.FREE

    @cached_property
    def position(self) -> dict[int, int]:
        """Where each element stands in the order."""
        return {element: place for place, element in enumerate(self.order)}

    @cached_property
    def children(self) -> tuple[tuple[int, ...], ...]:
        """The elements that depend on each element."""
        found: list[list[int]] = [[] for _ in self.parents]
        for child, parents in enumerate(self.parents):
            for parent in parents:
                found[parent].append(child)
        return tuple(tuple(children) for children in found)

    @property
    def any_set(self) -> bool:
        """Whether any set may be tried."""
        return self.closure in (Closure.FREE, Closure.PLACE) or not self.parents

    @property
    def whole(self) -> Trial:
        """All elements."""
        return Trial.of(self.order)

    def close(self, elements: Iterable[int]) -> Trial:
        """The smallest allowed trial that holds ``elements``."""
        if self.any_set:
            return Trial.of(elements)
        edges = self.parents if self.closure is Closure.ANCESTORS else self.children
        seen = set(elements)
        stack = list(seen)
        while stack:
            for element in edges[stack.pop()]:
                if element not in seen:
                    seen.add(element)
                    stack.append(element)
        return Trial.of(seen)

    def removable(self, trial: Trial) -> tuple[int, ...]:
        """The elements whose single removal leaves an allowed trial, last in the order first."""
        inside = trial.elements
        elements = sorted(inside, key=self.position.__getitem__, reverse=True)
        if self.any_set:
            return tuple(elements)
        edges = self.children if self.closure is Closure.ANCESTORS else self.parents
        return tuple(e for e in elements if not any(other in inside for other in edges[e]))

    def by_distance(self, origins: Collection[int], within: Collection[int]) -> tuple[int, ...]:
        """``within`` without ``origins``, nearest to them first along edges inside ``within``.

        A step up costs two steps down: what runtimes fuse is matched from a root downwards, so the culprits of one
        failure tend to lie below the first of them. Elements that cannot be reached come last. Of those that are as
        far, what stands closer to one of ``origins`` in the order comes first.
        """
        inside = set(within) | set(origins)
        distance = dict.fromkeys(origins, 0)
        heap = [(0, element) for element in sorted(origins)]
        while heap and self.parents:
            so_far, element = heapq.heappop(heap)
            if so_far > distance[element]:
                continue
            steps = ((self.children[element], 1), (self.parents[element], 2))
            for other, cost in ((other, cost) for others, cost in steps for other in others):
                if other in inside and so_far + cost < distance.get(other, sys.maxsize):
                    distance[other] = so_far + cost
                    heapq.heappush(heap, (so_far + cost, other))
        places = sorted(self.position[element] for element in origins)

        def gap(place: int) -> int:
            after = bisect_left(places, place)
            return min((abs(place - other) for other in places[max(after - 1, 0) : after + 1]), default=0)

        rest = sorted(inside - set(origins), key=self.position.__getitem__)
        return tuple(sorted(rest, key=lambda e: (distance.get(e, sys.maxsize), gap(self.position[e]))))


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
    TOGETHER = "one fault together"
    """Nodes that are to blame as a whole: each may fail alone, and none is at fault by itself."""
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
