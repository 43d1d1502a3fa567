"""Refinements of an answer, inputs and outputs that its failure does not need, and the search for all failures.

Refinements of an answer.

With values for its constants, without outputs that hide its failure, inside its nested graphs, trimmed of what it does
not need, with simpler values.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path

import onnx

from runner.candidate import Candidate, Invalid, Purpose, Sample
from runner.engine.session import Stage
from runner.engine.session_question import CurrentAnswer
from runner.engine.subject import cut_candidate, cutting
from runner.jobs.reduce.carried_constants import freezings
from runner.jobs.reduce.nested_graphs import NestedStages
from runner.jobs.reduce.shrink import Shrinking
from runner.jobs.reduce.shrunk_subject import SameAnswer, Shrunk
from runner.jobs.reduce.spliced_subject import InPlace
from runner.jobs.reduce.subgraph import Subgraph, same_in_all
from runner.journal.journal import context_digest
from runner.model.graph import scopes
from runner.model.graph.cut import Cut
from runner.model.graph.edits import copy_of, set_messages
from runner.model.graph.graph_index import Graph
from runner.schema.root import OutputPolicy
from strategies.minimal import claim, sweep
from strategies.outcome import Answer
from strategies.search import Ask, Done, Search, Step
from strategies.search_space import Closure, Space
from strategies.trial import Trial

# Subject `trimming`: the elements are outputs and inputs of an answer that its failure may not need.
#
# An output is left out only where another kept node reads what its node gives, or its node hands out another one: no
# node becomes dead by it. An input whose value nobody looks at (only its shape or type is read) can be a constant. The
# nodes stay as they are.

LARGEST_CONSTANT = 1 << 20
"""Bytes up to which an input's value is written into the model."""
NODES = 0
"""The element that stands for the nodes themselves; it always stays."""
_SHAPE_ONLY = {"Shape", "Size", "ConstantOfShape", "EyeLike", "RandomNormalLike", "RandomUniformLike"}
_TYPE_ONLY = {("CastLike", 1)}


@dataclass(frozen=True)
class Trimming(SameAnswer):
    """Trims the cut of ``trial`` of another subject."""

    @cached_property
    def whole(self) -> Cut:
        """The cut as it is."""
        return self.base.cut(self.trial)

    @cached_property
    def spare(self) -> tuple[str, ...]:
        """The tensors that are elements: first outputs, then inputs."""
        graph = self.whole.model.graph
        read = {name for node in graph.node for name in scopes.reads(node)}
        outputs = []
        for node in graph.node if self.base.closure is not Closure.DESCENDANTS else ():
            handed = [name for name in node.output if name in self.whole.outputs]
            free = [name for name in handed if name not in read]
            needed = not read.intersection(node.output)  # else another node keeps it alive
            outputs += [name for name in handed if name in read] + free[needed:]
        return (*outputs, *self._shape_only())

    def _shape_only(self) -> list[str]:
        if self.base.closure is Closure.ANCESTORS:
            return []
        graph = self.whole.model.graph
        looked_at = {
            name
            for node in graph.node
            for place, name in enumerate(node.input)
            if node.op_type not in _SHAPE_ONLY and (node.op_type, place) not in _TYPE_ONLY
        }
        nested = {name for node in graph.node for name in scopes.reads(node) if name not in node.input}
        return [name for name in self.whole.inputs if name not in looked_at | nested and self._value(name)]

    def _value(self, name: str) -> onnx.TensorProto | None:
        """The one small value that an input has in all samples."""
        return same_in_all([sample.feeds.get(name) for sample in self._samples], LARGEST_CONSTANT)

    @cached_property
    def _samples(self) -> tuple[Sample, ...]:
        return self.base.samples(self.whole)

    @cached_property
    def space(self) -> Space:
        """The nodes, and one element for each tensor that may go; the nodes are what all of these depend on."""
        size = len(self.spare) + 1
        return Space(tuple(range(size)), ((), *(((NODES,),) * (size - 1))), Closure.ANCESTORS)

    def identity(self) -> dict[str, str]:
        """Return what is trimmed, and the tensors that are the elements."""
        return {
            "kind": "trimming",
            "of": context_digest(self.base.identity()),
            "trial": self.trial.ranges,
            "spare": json.dumps(self.spare),
        }

    def make(self, trial: Trial, folder: Path) -> Candidate | Invalid:
        """Write the candidate without what ``trial`` leaves out."""
        if not trial:
            return self.base.make(trial, folder)
        return cut_candidate(self, self.store, trial, folder, lambda made: None)

    def cut(self, trial: Trial) -> Cut:
        """Return the cut without what ``trial`` leaves out."""
        gone = {name for place, name in enumerate(self.spare, 1) if place not in trial}
        model = copy_of(self.whole.model)
        graph = model.graph
        constants = [name for name in self.whole.inputs if name in gone]
        for name in constants:
            value = self._value(name)
            assert value is not None
            value.name = name
            graph.initializer.append(value)
        set_messages(graph.output, [value for value in graph.output if value.name not in gone])
        if model.ir_version >= 4:  # before that, an initializer is listed as an input
            set_messages(graph.input, [value for value in graph.input if value.name not in constants])
        inputs = tuple(name for name in self.whole.inputs if name not in constants)
        outputs = tuple(name for name in self.whole.outputs if name not in gone)
        return Cut(model, inputs, outputs, (*self.whole.constants, *constants))

    def samples(self, made: Cut) -> tuple[Sample, ...]:
        """Return the feeds and expected outputs that are left."""
        return tuple(
            Sample(
                {name: sample.feeds[name] for name in made.inputs if name in sample.feeds},
                {name: sample.expected[name] for name in made.outputs if name in sample.expected},
            )
            for sample in self._samples
        )

    def search(self, known: dict[Trial, Answer]) -> Search:
        """Everything that may go at once, else one after the other."""
        bare = Trial.of([NODES])

        def then(answer: Answer) -> Step:
            if answer is Answer.YES:
                return Done(bare, claim(bare, 0).claim)
            return sweep(self.space, self.space.whole, claim)

        first = Ask(bare, then, "trim", "the needed outputs and inputs alone", left=len(self.spare))
        return Search(self.space, first, known)


@dataclass
class Refinements:
    """What is tried on the answer of a reduction, in order."""

    trim: bool = True
    nested: NestedStages | None = None
    shrinking: Shrinking | None = None
    _at: CurrentAnswer | None = None
    _left: Iterator[Stage] = field(default_factory=lambda: iter(()))

    def next(self, standing: CurrentAnswer) -> Stage | None:
        """Return the next stage to try on an answer; None: it is as small as it gets."""
        if standing is not self._at:
            self._at, self._left = standing, self._stages(standing)
        return next(self._left, None)

    def _stages(self, standing: CurrentAnswer) -> Iterator[Stage]:
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

    def _sinks(self, standing: CurrentAnswer) -> Iterator[Stage]:
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
            purpose=Purpose.REFINE,
        )

    def _without_fence(self, standing: CurrentAnswer, subject: InPlace) -> Iterator[Stage]:
        if subject.fences:
            judge = standing.judge.stage("no fence", replace(subject, fences=False))
            done, whole = claim(standing.trial, 0), standing.trial
            start = partial(Search, subject.space, done)
            yield Stage("no fence", "without a fence", judge, start, standing.origin, whole, purpose=Purpose.REFINE)

    def _trim(self, standing: CurrentAnswer) -> Iterator[Stage]:
        subject = standing.judge.subject
        if not self.trim or isinstance(subject, Trimming | Shrunk):
            return
        trimming = Trimming(cutting(subject), standing.trial)
        if not trimming.spare:
            return
        judge = standing.judge.stage("trim", trimming)
        whole = trimming.space.whole
        yield Stage(
            "trim", "as it is", judge, trimming.search, standing.origin, whole, purpose=Purpose.REFINE, known=True
        )


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
