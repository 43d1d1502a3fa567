"""Subject `spliced`: a trial is a set of nodes, and its candidate the whole model with good values around that set.

It is judged at the model's own outputs, so that the model is asked, not a part of it: does the failure arise inside
the set?
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property
from pathlib import Path

import onnx

from runner.candidate import Candidate, Invalid, Sample
from runner.model.cut import Cut, CutError, cut
from runner.model.splice import Splice, depends_on, good_inputs, good_outputs, outside_reads
from runner.schema.inputs import CutPolicy
from runner.subjects.subgraph import Subgraph
from strategies.space import Space
from strategies.trial import Trial


class Good(str, Enum):
    """Where the good values go."""

    OUTPUTS = "outputs"
    """In place of what the nodes give: the failure is gone if it arises inside, or upstream of them alone."""
    INPUTS = "inputs"
    """In place of what they read from other nodes: the failure is still there if it arises inside, or beside them."""
    FIRST_INPUTS = "first inputs"
    """The same, but what they read and what depends on them stays as the model computes it."""


@dataclass(frozen=True)
class Spliced:
    """Splices good values into one model. ``base``: cuts the same model. ``alive``: see `runner.model.splice`."""

    base: Subgraph
    good: Good
    alive: bool = False
    _made: dict[Trial, Splice] = field(default_factory=dict)

    @cached_property
    def space(self) -> Space:
        """The model's top-level nodes."""
        return self.base.space

    def identity(self) -> dict[str, str]:
        """Return all that decides what a trial is: the model, where its good values go, what is shown besides."""
        return {**self.base.identity(), "good": self.good.value, "alive": str(self.alive)}

    def names(self, trial: Trial) -> tuple[str, ...]:
        """Return the names of the nodes that the good values surround."""
        return self.base.names(trial)

    def splice(self, trial: Trial) -> Splice:
        """Return the model, whose missing tensors are to be fed."""
        if trial not in self._made:
            graph, nodes = self.base.graph, trial.elements
            if self.good is Good.OUTPUTS:
                self._made[trial] = good_outputs(graph, nodes, alive=self.alive)
            else:
                fed = outside_reads(graph, nodes)
                if self.good is Good.FIRST_INPUTS:
                    after = depends_on(graph, nodes)
                    fed = tuple(name for name in fed if graph.producers[name] not in after)
                self._made[trial] = good_inputs(graph, nodes, fed, alive=self.alive)
        return self._made[trial]

    def make(self, trial: Trial, folder: Path, iteration: int, phase: str, label: str) -> Candidate | Invalid:
        """Write the candidate."""
        if self.base.cut_policy is CutPolicy.seeded:
            return Invalid("inputs.cut=seeded feeds values that are made up, not good ones")
        splice = self.splice(trial)
        try:
            made = self.cut(trial)
            for name in (*made.inputs, *made.constants):
                if why := self._unusable(splice.given.get(name, name)):
                    return Invalid(why)
            path = self.write(made, folder)
        except CutError as error:
            return Invalid(str(error))
        draws = bool(splice.graph.drawing)
        samples = self.samples(made, splice.given)
        return Candidate(path, folder, iteration, phase, label, trial, samples, nodes=self.names(trial), draws=draws)

    def cut(self, trial: Trial) -> Cut:
        """Return the candidate's model. Raises CutError."""
        splice = self.splice(trial)
        types, constants = dict(self.base.types_of_all), dict(self.base.constants)
        for alias, name in splice.given.items():
            if name in types:
                types[alias] = types[name]
            if name in constants:
                constants[alias] = onnx.TensorProto()
                constants[alias].CopyFrom(constants[name])
                constants[alias].name = alias
        return cut(
            splice.graph,
            range(len(splice.graph.nodes)),
            types=types,
            constants=constants,
            expose="own",
            largest=self.base.store.file_limit,
        )

    def samples(self, made: Cut, given: Mapping[str, str]) -> tuple[Sample, ...]:
        """Return, for each input sample, what a cut is fed and what its outputs should be."""
        return tuple(
            Sample(
                {name: values[tensor] for name in made.inputs if (tensor := given.get(name, name)) in values},
                {name: values[name] for name in made.outputs if name in values and self.base.is_told(name)},
            )
            for values in self.base.recorded.values
        )

    def write(self, made: Cut, folder: Path) -> Path:
        """Write a candidate's model."""
        return self.base.write(made, folder)

    def discard(self, candidate: Candidate) -> None:
        """Remove the candidate's model file."""
        self.base.discard(candidate)

    def _unusable(self, name: str) -> str:
        """Why a tensor has no good value that may be fed; "" where it has one in every sample."""
        if name in self.base.constants or name in self.base.graph.inputs:
            return ""
        if any(name not in values for values in self.base.recorded.values) or not self.base.recorded.values:
            return f"no good value of {name!r} is known"
        if name in self.base.recorded.unfit:
            return self.base.recorded.unfit[name]
        return f"the reference has a NaN or Inf in {name!r} as well" if self.base.is_spoilt(name) else ""
