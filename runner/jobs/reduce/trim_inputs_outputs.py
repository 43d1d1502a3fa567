"""Subject `trimming`: the elements are outputs and inputs of an answer that its failure may not need.

An output is left out only where another kept node reads what its node gives, or its node hands out another one: no node
becomes dead by it. An input whose value nobody looks at (only its shape or type is read) can be a constant. The nodes
stay as they are.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import onnx

from runner.candidate import Candidate, Invalid, Sample
from runner.jobs.reduce.subgraph import same_in_all
from runner.journal.journal import context_digest
from runner.model.files.candidate_store import Store
from runner.model.graph import scopes
from runner.model.graph.cut import Cut
from runner.model.graph.protobuf_edits import copy_of, set_messages
from runner.session.subject import Cutting, Kept, cut_candidate
from strategies.one_at_a_time import claim, sweep
from strategies.outcome import Answer
from strategies.search import Ask, Done, Search, Step
from strategies.search_space import Closure, Space
from strategies.trial import Trial

LARGEST_CONSTANT = 1 << 20
"""Bytes up to which an input's value is written into the model."""
NODES = 0
"""The element that stands for the nodes themselves; it always stays."""
_SHAPE_ONLY = {"Shape", "Size", "ConstantOfShape", "EyeLike", "RandomNormalLike", "RandomUniformLike"}
_TYPE_ONLY = {("CastLike", 1)}


@dataclass(frozen=True)
class Trimming:
    """Trims the cut of ``trial`` of another subject."""

    base: Cutting
    trial: Trial

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

    @property
    def closure(self) -> Closure:
        """Which inputs and outputs of the model stay."""
        return self.base.closure

    @property
    def store(self) -> Store:
        """The store of the weights."""
        return self.base.store

    def identity(self) -> dict[str, str]:
        """Return what is trimmed, and the tensors that are the elements."""
        return {
            "kind": "trimming",
            "of": context_digest(self.base.identity()),
            "trial": self.trial.ranges,
            "spare": json.dumps(self.spare),
        }

    def names(self, trial: Trial) -> tuple[str, ...]:
        """Return the names of the nodes."""
        return self.base.names(self.trial)

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

    def kept(self, trial: Trial) -> Kept:
        """Return the nodes of what is trimmed: they stay."""
        return self.base.kept(self.trial)

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
