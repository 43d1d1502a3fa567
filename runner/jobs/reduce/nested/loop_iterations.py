"""Subject `iterations`: the elements are the iterations of a Loop or Scan, and a trial is the first ones of them.

The candidate is the owner alone, which stops after these. What goes wrong in one iteration is carried into all that
follow, so the first that fails is found by bisection.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import count as counting
from pathlib import Path

from runner.candidate import Candidate, Invalid, Sample
from runner.model.graph.cut import CutError, cut
from runner.model.graph.graph_index import Graph
from runner.model.nested.bodies import Body, HoistError
from runner.model.nested.limited_loop_model import COUNT
from runner.reference.body_values import Level, RecorderOf, run_alone, shortened
from runner.reference.recorded_types import recorded_types
from runner.session.subject import Kept
from strategies.bisect import bisect
from strategies.outcome import Answer
from strategies.search import Ask, Claim, Done, Search, Step
from strategies.search_space import Closure, Space
from strategies.trial import Trial


@dataclass(frozen=True)
class Iterations:
    """``level``: the model that holds the owner. ``count``: of iterations. ``origin``: what the model was made from."""

    level: Level
    body: Body
    count: int
    record: RecorderOf
    folder: Path
    origin: str
    _numbers: Iterator[int] = field(default_factory=counting)

    @cached_property
    def space(self) -> Space:
        """The iterations, each of which needs the ones before it."""
        order = range(self.count)
        return Space(tuple(order), tuple((at - 1,) if at else () for at in order), Closure.ANCESTORS)

    def search(self, known: Mapping[Trial, Answer]) -> Search:
        """Look for the first that fails; where it is the very first, whose nodes do not fail, the owner does."""
        first = Trial.of([0])

        def then(answer: Answer) -> Step:
            return Done(first, Claim.WINDOW) if answer is Answer.YES else bisect(self.space)

        return Search(self.space, Ask(first, then, "earliest end", "1 iteration"), known)

    def identity(self) -> dict[str, str]:
        """Return the model, what it was made from, and which body is run."""
        return {"kind": "iterations", "graph": self.level.graph.digest, "origin": self.origin, "body": self.body.path}

    def names(self, trial: Trial) -> tuple[str, ...]:
        """Return the number of each iteration."""
        return tuple(f"{self.body.path}, iteration {at}" for at in trial)

    def kept(self, trial: Trial) -> Kept:
        """Return the owner."""
        return Kept(self.level.graph, Trial.of([self.body.owner]))

    def make(self, trial: Trial, folder: Path) -> Candidate | Invalid:
        """Write the owner that makes these iterations."""
        place = self.folder / str(next(self._numbers))
        place.mkdir(parents=True)
        try:
            model, parts = shortened(self.level, self.body, len(trial), place, stacked=True)
            values = run_alone(self.level, model, self.record, place / "values", parts)
            graph = Graph.of(model)
            types = {**self.level.all_types, **recorded_types(values)}
            made = cut(graph, range(len(graph.nodes)), types=types, constants={})
        except (CutError, HoistError) as error:
            return Invalid(str(error))
        samples = tuple(
            Sample(
                {name: one[name] for name in made.inputs if name in one},
                {name: one[name] for name in made.outputs if name in one and name != COUNT},
            )
            for one in values
        )
        path = self.level.store.write(made.model, folder)
        return Candidate(path, folder, trial, samples, nodes=self.names(trial), temporary=True)
