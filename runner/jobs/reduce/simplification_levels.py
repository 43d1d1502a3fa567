"""Subject `shrunk`: the elements are levels of parts of an answer (see `levels`); its nodes stay.

What a candidate's outputs should be is what the reference makes of it. Where the reference ran the answer, it has to
run the candidate too, and what was finite has to stay so: a failure that the new values bring about is another one.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

from onnx import ModelProto, TypeProto

from runner.checkers.candidate_runs import BackendRunner
from runner.engine.subject import Cutting, Kept, cut_candidate
from runner.exit_codes import NotTried
from runner.journal.journal import context_digest
from runner.model.files.candidate_store import Store
from runner.model.graph import scopes
from runner.model.graph.cut import Cut, CutError
from runner.model.graph.edits import copy_of
from runner.model.values.recorded import TensorFile
from runner.model.values.value_types import has_no_rank
from runner.reference.recording import recorded_types
from runner.verdict import Candidate, Invalid, Phase, Sample
from strategies.group_testing import by_rank
from strategies.search import Answer, Ask, Claim, Closure, Done, Look, Space, Step, Trial, limited

# Levels: how far each part of an answer is simplified, as a space of trials, and the search for the lowest ones.
#
# A part stands on one of its levels: 0 is the simplest, the top one is the part as it is. A part's level is how many
# of its elements a trial keeps, each of which depends on the one below it.

NODES = 0
"""The element that stands for the nodes themselves; it always stays."""


@dataclass(frozen=True)
class Levels:
    """``tops``: the highest level of each part, at least 1. ``what``: the parts are, in the plural."""

    tops: tuple[int, ...]
    what: str = "parts"

    @cached_property
    def space(self) -> Space:
        """The nodes, and for each part as many elements as its top level."""
        parents: list[tuple[int, ...]] = [()]
        for elements in self._elements:
            parents += [(NODES,), *((element,) for element in elements[:-1])]
        return Space(tuple(range(len(parents))), tuple(parents), Closure.ANCESTORS)

    def trial(self, levels: Sequence[int]) -> Trial:
        """Return the trial in which the parts stand on these levels."""
        kept = (element for own, level in zip(self._elements, levels, strict=True) for element in own[:level])
        return Trial.of([NODES, *kept])

    def of(self, trial: Trial) -> tuple[int, ...]:
        """Return the level of each part in a trial."""
        return tuple(sum(element in trial for element in own) for own in self._elements)

    def first(self, most: int) -> Step:
        """Return the first step of a search for low levels: of all parts at once, else of those that can do with it.

        ``most``: questions it asks.
        """

        def best(asked: tuple[tuple[Trial, Answer], ...]) -> Step:
            yes = [trial for trial, answer in asked if answer is Answer.YES]
            return Done(min(yes, key=len, default=self.space.whole), Claim.BUDGET)

        # where all parts have two levels, level 1 is the answer itself
        return limited(self._together(int(max(self.tops, default=0) > 1)), most, lambda _, done: done or Look(best))

    @cached_property
    def _elements(self) -> tuple[range, ...]:
        starts = [NODES + 1]
        for top in self.tops:
            starts.append(starts[-1] + top)
        return tuple(range(start, start + top) for start, top in zip(starts, self.tops, strict=False))

    def _together(self, level: int) -> Step:
        """Ask about all parts on level 1, which the failure is likelier to survive, then on level 0."""

        def then(answer: Answer) -> Step:
            if answer is Answer.YES and levels != self.tops:
                return Done(self.trial(levels), Claim.SMALLEST_SEEN)
            return self._together(0) if level else self._apart()

        levels = tuple(min(level, top) for top in self.tops)
        return Ask(self.trial(levels), then, Phase.SHRINK, f"{self.what}: all on level {level}", left=1 + level)

    def _apart(self) -> Step:
        """Find what the failure needs above level 1, or level 0 where level 1 is the part as it is."""
        low = self.trial([min(1, top - 1) for top in self.tops])
        higher = sorted((element - own[0], element) for own in self._elements for element in own if element not in low)

        def found(needed: tuple[int, ...]) -> Step:
            return Done(self.space.close(needed), Claim.SMALLEST_SEEN)

        ranking = tuple(element for _, element in higher)
        return _yes_or_no(by_rank(self.space, tuple(low), ranking, found, none=False))


def _yes_or_no(step: Step) -> Step:
    """Take what nobody can answer for a NO: what the reference does not run is no simpler answer."""
    if not isinstance(step, Ask):
        return step
    then = step.then
    return replace(step, then=lambda answer: _yes_or_no(then(answer if answer is Answer.YES else Answer.NO)))


Feeds = tuple[Mapping[str, TensorFile], ...]


@dataclass(frozen=True)
class Whole:
    """The answer as it is: its model, and what each sample feeds it and expects of it."""

    model: ModelProto
    samples: tuple[Sample, ...]

    @property
    def feeds(self) -> Feeds:
        """What each sample feeds it."""
        return tuple(sample.feeds for sample in self.samples)

    @property
    def is_flat(self) -> bool:
        """Whether no graph is nested in a node, and there is no function."""
        return not self.model.functions and not any(map(scopes.subgraphs, self.model.graph.node))

    def fed(self, folder: Path, change: Callable[[str, TensorFile, Path], tuple[str, TensorFile]]) -> Feeds:
        """Return what each sample feeds it, as ``change`` makes it: another name, or a value written to the path."""
        folder.mkdir(parents=True, exist_ok=True)
        return tuple(
            dict(change(*one, folder / f"{number}_{place}.pb") for place, one in enumerate(feeds.items()))
            for number, feeds in enumerate(self.feeds)
        )


@dataclass(frozen=True)
class Simpler:
    """A way to simplify an answer. ``name``: what it simplifies, of which ``levels`` are the levels.

    ``apply``: returns the model on some levels, a new one. ``feeds``: what it is fed on these, with new values in a
    folder. Both raise CutError where there is none.
    """

    levels: Levels
    apply: Callable[[tuple[int, ...]], ModelProto]
    feeds: Callable[[tuple[int, ...], Path], Feeds]

    @property
    def name(self) -> str:
        """What it simplifies."""
        return self.levels.what


@dataclass(frozen=True)
class ShrunkCut(Cut):
    """A cut with what it is fed."""

    samples: tuple[Sample, ...] = ()


@dataclass(frozen=True)
class Ran:
    """What the reference made of a candidate. ``unfit``: why that is no question."""

    samples: tuple[Sample, ...]
    unfit: str = ""


@dataclass(frozen=True)
class SameAnswer:
    """A subject whose candidates all have the nodes of ``trial``, an answer of the subject ``base``."""

    base: Cutting
    trial: Trial

    @property
    def closure(self) -> Closure:
        """Which inputs and outputs of the model stay."""
        return self.base.closure

    @property
    def store(self) -> Store:
        """The store of the weights."""
        return self.base.store

    def names(self, trial: Trial) -> tuple[str, ...]:
        """Return the names of the nodes, as in the original."""
        return self.base.names(self.trial)

    def kept(self, trial: Trial) -> Kept:
        """Return the nodes of the answer."""
        return self.base.kept(self.trial)


@dataclass(frozen=True)
class Shrunk(SameAnswer):
    """Simplifies the cut of ``trial`` of another subject.

    ``number``: of the pass. ``reference``: runs candidates. ``folder``: for values.
    """

    whole: Whole
    simpler: Simpler
    number: int
    reference: BackendRunner
    folder: Path
    _made: dict[Trial, Ran] = field(default_factory=dict)
    _lock: threading.RLock = field(default_factory=threading.RLock, compare=False, repr=False)

    @cached_property
    def space(self) -> Space:
        """The levels of all parts."""
        return self.simpler.levels.space

    def identity(self) -> dict[str, str]:
        """Return what is simplified, and how."""
        return {
            "kind": "shrunk",
            "what": self.simpler.name,
            "of": context_digest(self.base.identity()),
            "trial": self.trial.ranges,
            "levels": json.dumps(self.simpler.levels.tops),
        }

    def make(self, trial: Trial, folder: Path) -> Candidate | Invalid:
        """Write the candidate whose parts stand on the levels of ``trial``."""
        return cut_candidate(self, self.store, trial, folder, lambda made: self._made[trial].unfit)

    def cut(self, trial: Trial) -> ShrunkCut:
        """Return the model on the levels of ``trial``. Raises CutError where there is none."""
        with self._lock:  # repeats of one candidate are made at once
            levels = self.simpler.levels.of(trial)
            model = self.simpler.apply(levels)
            if trial not in self._made:  # a check may read what it is fed while another of the same is made
                whole, folder = trial == self.space.whole, self.folder / f"{self.simpler.name}-{trial.key}"
                ran = None if whole else self._ran(trial, model, self.simpler.feeds(levels, folder))
                self._made[trial] = ran or Ran(self.whole.samples)
            samples = self._made[trial].samples
        _declare(model, samples)
        inputs, outputs = ([value.name for value in values] for values in (model.graph.input, model.graph.output))
        return ShrunkCut(model, tuple(inputs), tuple(outputs), (), samples=samples)

    def unfit(self, trial: Trial) -> str:
        """Return why a candidate is no question; "" where it is one."""
        try:
            self.cut(trial)
        except CutError as error:
            return str(error)
        return self._made[trial].unfit

    def samples(self, made: Cut) -> tuple[Sample, ...]:
        """Return what a cut is fed, and what the reference makes of that."""
        assert isinstance(made, ShrunkCut)
        return made.samples

    def _ran(self, trial: Trial, model: ModelProto, feeds: Feeds) -> Ran:
        """Run a candidate on the reference, if that ran the answer."""
        before = self.whole.samples[: len(feeds)]
        unjudged = tuple(Sample(fed) for fed in feeds)
        if not any(sample.expected for sample in before):
            return Ran(unjudged)
        folder = self.folder / trial.key
        path = self.store.write(copy_of(model), folder)
        try:
            ran = self.reference.run(path, feeds, folder)
        except NotTried as error:
            return Ran(unjudged, str(error))
        finally:
            path.unlink(missing_ok=True)
        if not ran.outputs:
            return Ran(unjudged, f"the reference does not run it: {ran.message or ran.invalid}")
        for old, new in zip(before, ran.outputs, strict=True):
            for name, value in old.expected.items():
                if name not in new or (value.finite and not new[name].finite):
                    return Ran(unjudged, f"the reference gives no finite {name!r}")
        expected = [{name: new[name] for name in old.expected} for old, new in zip(before, ran.outputs, strict=True)]
        return Ran(tuple(Sample(fed, good) for fed, good in zip(feeds, expected, strict=True)))


def _declare(model: ModelProto, samples: tuple[Sample, ...]) -> None:
    """Give outputs that are declared without a shape, or with another one, that which the reference saw."""
    known = recorded_types([sample.expected for sample in samples])
    for value in model.graph.output:
        if value.name in known and (has_no_rank(value.type) or not _agree(value.type, known[value.name])):
            value.type.CopyFrom(known[value.name])


def _agree(declared: TypeProto, seen: TypeProto) -> bool:
    """Whether no size that is declared is another one than was seen."""
    mine, theirs = ([dim.dim_value for dim in one.tensor_type.shape.dim] for one in (declared, seen))
    return len(mine) == len(theirs) and all(not a or not b or a == b for a, b in zip(mine, theirs, strict=True))
