"""Subject `spliced`: a trial is a set of nodes that stay as they are; all others give good values.

The candidate is the whole model, judged at its own outputs, so that the model is asked, not a part of it: does the
failure arise in the nodes that stay?
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path

from onnx import TensorProto

from runner.candidate import Candidate, Invalid, Sample
from runner.engine.subject import Kept
from runner.jobs.reduce.subgraph import SameNodes, Subgraph
from runner.model.graph.cut import Cut, CutError, Splice, cut, depends_on, splice
from runner.model.graph.edits import copy_of
from runner.model.graph.hold_values import CONDITION, fenced, holding
from runner.model.graph.identity_model import takes_identity
from runner.model.values.recorded import TensorFile, seeded
from runner.report.cause_section import REFERENCE_TOO
from runner.schema.root import CutPolicy
from strategies.search_space import Closure
from strategies.trial import Trial


@dataclass(frozen=True)
class Spliced(SameNodes):
    """Splices good values into one model.

    ``base``: cuts the same model. ``alive``: see `splice_good_values`. ``parts``: have fences around them (`fences`).
    ``held``: the good values of the first sample are in the candidate, whose inputs and outputs are the model's own
    (`hold_values`).
    """

    alive: bool = False
    parts: tuple[Trial, ...] = ()
    held: bool = False
    _made: dict[Trial, Splice] = field(default_factory=dict)

    def identity(self) -> dict[str, str]:
        """Return all that decides what a trial is: how the model is cut, and what is shown besides its outputs."""
        fences = {"fences": " | ".join(part.ranges for part in self.parts)} if self.parts else {}
        held = {"held": "True"} if self.held else {}
        return {**self.base.identity(), "kind": "spliced", "alive": str(self.alive), **fences, **held}

    def kept(self, trial: Trial) -> Kept:
        """Return the nodes of ``trial``."""
        return self.base.kept(trial)

    def splice(self, trial: Trial) -> Splice:
        """Return the model, whose missing tensors are to be fed."""
        if trial not in self._made:
            gone = frozenset(self.space.order) - trial.elements
            self._made.clear()  # one only: the same trial is asked for several times in a row
            self._made[trial] = splice(
                self.base.graph, gone, alive=self.alive, good=self._can_hand_out, carried=self.base.carried
            )
        return self._made[trial]

    def make(self, trial: Trial, folder: Path) -> Candidate | Invalid:
        """Write the candidate."""
        if self.base.cut_policy is CutPolicy.seeded:
            return Invalid("cut.policy=seeded feeds made-up values, not good ones")
        given = self.splice(trial).given
        try:
            made = self.cut(trial)
            read = made.inputs[:-1] if self.parts and not self.held else made.inputs
            for name in (*read, *made.constants):
                if why := self._unusable(given.get(name, name)):
                    return Invalid(why)
            path = self.base.store.write(made.model, folder, nests=made.nests)
        except CutError as error:  # nothing is left where no output has a good value
            return Invalid(
                next(filter(None, map(self._unusable, self.base.graph.outputs if not trial else ())), str(error))
            )
        draws = not frozenset(self.base.graph.drawing).isdisjoint(self.names(trial))
        samples = self.samples(made, trial)
        return Candidate(path, folder, trial, samples, nodes=self.names(trial), draws=draws, temporary=True)

    def cut(self, trial: Trial) -> Cut:
        """Return the candidate's model. Raises CutError."""
        made = self.splice(trial)
        types, constants = dict(self.base.types_of_all), dict(self.base.constants)
        for alias, name in made.given.items():
            if name in types:
                types[alias] = types[name]
            if name in constants:
                constants[alias] = copy_of(constants[name])
                constants[alias].name = alias
        candidate = cut(
            self.base.graph,
            made.keep,
            types=types,
            constants=constants,
            expose="own",
            largest=self.base.store.file_limit,
            front=made.front,
            shown=made.shown,
            carried=self.base.carried,
        )
        if self.parts:
            candidate = fenced(candidate, self.base.graph, self.parts, self.base.types_of_all)
        return self._holding(candidate, made.given) if self.held else candidate

    def _holding(self, made: Cut, given: Mapping[str, str]) -> Cut:
        condition, values = made.inputs[-1] if self.parts else "", {}
        for alias in made.inputs[: -1 if self.parts else None]:
            name = given.get(alias, alias)
            if why := self._unusable(name):
                raise CutError(why)
            known = self.base.recorded.values[0].get(name) if self.base.recorded.values else None
            if known is None or known.structure is not None:
                raise CutError(f"{name!r} has no value that a model can hold")
            values[alias] = self.base.store.hold({name: TensorProto.FromString(known.content())})[name]
        return holding(made, self.base.graph, values, condition)

    def samples(self, made: Cut, trial: Trial) -> tuple[Sample, ...]:
        """Return, for each input sample, what a candidate is fed and what its outputs should be."""
        given = self.splice(trial).given
        fenced_off = self.parts and not self.held
        more = {made.inputs[-1]: self._condition(made.inputs[-1])} if fenced_off else {}
        return tuple(
            Sample(
                {name: values[tensor] for name in made.inputs if (tensor := given.get(name, name)) in values} | more,
                {name: values[name] for name in made.outputs if name in values and self.base.has_reference(name)},
            )
            for values in self.base.recorded.values[: 1 if self.held else None]
        )

    def _condition(self, name: str) -> TensorFile:
        self.base.folder.mkdir(parents=True, exist_ok=True)
        return seeded(name, TensorProto.BOOL, (), path=self.base.folder / f"{CONDITION}.pb")

    def _can_hand_out(self, name: str) -> bool:
        found = self.base.types_of_all.get(name)
        return not self._unusable(name) and found is not None and takes_identity(self.base.graph, found)

    def _unusable(self, name: str) -> str:
        """Why a tensor has no good value that may be fed; "" where it has one in every sample."""
        if name in self.base.constants or name in self.base.graph.inputs:
            return ""
        if any(name not in values for values in self.base.recorded.values) or not self.base.recorded.values:
            return f"no good value of {name!r} is known"
        if name in self.base.recorded.unfit:
            return self.base.recorded.unfit[name]
        return f"{REFERENCE_TOO} {name!r} too, so no good value is known for it" if self.base.is_bad_feed(name) else ""


@dataclass
class InPlace(Subgraph):
    """Subject `subgraph` for a check that takes the whole model only: nodes fail in their place, none is cut out.

    A trial's candidate is the whole model, in which these nodes and what depends on them are computed, behind a fence;
    all else has good values, which the candidate holds. So it has the model's own inputs and outputs. ``fences``: there
    is one, which keeps apart a wrong fusion and a part of it.
    """

    fences: bool = True

    @staticmethod
    def of(base: Subgraph) -> InPlace:
        """Return one for the same model."""
        known = {one.name: getattr(base, one.name) for one in fields(base) if one.init}
        return InPlace(**{**known, "closure": Closure.PLACE})

    def identity(self) -> dict[str, str]:
        """Return the graph, and what a candidate holds besides the nodes of a trial."""
        return {**super().identity(), "fences": str(self.fences)}

    def make(self, trial: Trial, folder: Path) -> Candidate | Invalid:
        """Write the candidate of ``trial``; that of the empty one hands out good values."""
        if self.as_file and trial == self.space.whole:
            return self.original(folder)
        computed, splices = self._splices(trial)
        made = splices.make(computed, folder)
        return made if isinstance(made, Invalid) else replace(made, trial=trial, nodes=self.names(trial))

    def cut(self, trial: Trial) -> Cut:
        """Return the candidate's model. Raises CutError."""
        computed, splices = self._splices(trial)
        return splices.cut(computed)

    def samples(self, made: Cut) -> tuple[Sample, ...]:
        """Return what a candidate is fed, and what its outputs should be: the same for each."""
        return Spliced(self, held=True).samples(made, self.space.whole)

    def _splices(self, trial: Trial) -> tuple[Trial, Spliced]:
        """Return what is computed, and what makes the candidate of it."""
        computed = Trial(depends_on(self.graph, trial.elements))
        return computed, Spliced(self, parts=(trial,) if self.fences and computed != trial else (), held=True)
