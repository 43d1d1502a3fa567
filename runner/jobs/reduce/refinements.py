"""Refinements of an answer.

With values for its constants, without outputs that hide its failure, inside its nested graphs, trimmed of what it does
not need, with simpler values.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import partial

from runner.jobs.reduce.carried_constants import freezings
from runner.jobs.reduce.cause.spliced_subject import InPlace
from runner.jobs.reduce.nested.nested_stages import NestedStages
from runner.jobs.reduce.shrink.passes import Shrinking
from runner.jobs.reduce.shrink.shrunk_subject import Shrunk
from runner.jobs.reduce.subgraph import Subgraph
from runner.jobs.reduce.trim_inputs_outputs import Trimming
from runner.model.graph.graph_index import Graph
from runner.schema.cut import OutputPolicy
from runner.session.stage import Stage, Standing
from runner.session.subject import cutting
from strategies.one_at_a_time import claim, sweep
from strategies.search import Search
from strategies.search_space import Closure
from strategies.trial import Trial


@dataclass
class Refinements:
    """What is tried on the answer of a reduction, in order."""

    trim: bool = True
    nested: NestedStages | None = None
    shrinking: Shrinking | None = None
    _at: Standing | None = None
    _left: Iterator[Stage] = field(default_factory=lambda: iter(()))

    def next(self, standing: Standing) -> Stage | None:
        """Return the next stage to try on an answer; None: it is as small as it gets."""
        if standing is not self._at:
            self._at, self._left = standing, self._stages(standing)
        return next(self._left, None)

    def _stages(self, standing: Standing) -> Iterator[Stage]:
        if isinstance(standing.judge.subject, InPlace):  # all others make models with other inputs and outputs
            yield from self._without_fence(standing, standing.judge.subject)
            return
        yield from freezings(standing)
        yield from self._sinks(standing)
        if self.nested:
            yield from self.nested.stages(standing)
        yield from self._trim(standing)
        if self.shrinking:
            yield from self.shrinking.stages(standing)

    def _sinks(self, standing: Standing) -> Iterator[Stage]:
        """Nodes that may be needed only because without them a tensor becomes an output, which stops a fusion."""
        subject = standing.judge.subject
        if not isinstance(subject, Subgraph) or subject.outputs is not OutputPolicy.frontier:
            return
        hiding = hidden_by(subject.graph, standing.trial)
        if subject.closure is not Closure.FREE or not hiding:
            return
        other = replace(subject, outputs=OutputPolicy.sinks)
        space = replace(other.space, order=tuple(standing.trial))
        first = sweep(space, space.whole, claim, settled=standing.trial.elements - hiding)
        yield Stage(
            "sinks",
            "only the last values are outputs",
            standing.judge.stage("sinks", other),
            lambda known: Search(space, first, known),
            standing.origin,
            standing.trial,
            purpose="refine",
        )

    def _without_fence(self, standing: Standing, subject: InPlace) -> Iterator[Stage]:
        if subject.fences:
            judge = standing.judge.stage("no fence", replace(subject, fences=False))
            done, whole = claim(standing.trial, 0), standing.trial
            start = partial(Search, subject.space, done)
            yield Stage("no fence", "without a fence", judge, start, standing.origin, whole, purpose="refine")

    def _trim(self, standing: Standing) -> Iterator[Stage]:
        subject = standing.judge.subject
        if not self.trim or isinstance(subject, Trimming | Shrunk):
            return
        trimming = Trimming(cutting(subject), standing.trial)
        if not trimming.spare:
            return
        judge = standing.judge.stage("trim", trimming)
        whole = trimming.space.whole
        yield Stage("trim", "as it is", judge, trimming.search, standing.origin, whole, purpose="refine", known=True)


def hidden_by(graph: Graph, trial: Trial) -> frozenset[int]:
    """The nodes of a trial that share a tensor with another kept node and nobody else: without one it is an output."""
    found = set()
    for index in trial:
        for name in graph.nodes[index].outputs:
            readers = graph.readers.get(name, ())
            inside = [reader for reader in readers if reader in trial]
            if len(inside) > 1 and len(inside) == len(readers) and name not in graph.output_set:
                found.update(inside)
    return frozenset(found)
