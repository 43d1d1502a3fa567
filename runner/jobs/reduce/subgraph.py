"""Subject `subgraph`: the elements are nodes, and a trial is the nodes kept.

The candidate is exactly the kept nodes, in the file's order. What they read and do not produce is fed with the values
recorded from the reference run of the original; any set of nodes is a candidate, so no branch is frozen or folded
away.
"""

from __future__ import annotations

import hashlib
import math
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import onnx
from onnx import TensorProto

from runner.engine.check_trials import Judge
from runner.engine.subject import Kept, cut_candidate
from runner.model.files.candidate_store import Store, copy_for_check
from runner.model.graph import cut
from runner.model.graph.cut import Control, Cut, CutError, Form, Splice
from runner.model.graph.edits import copy_of
from runner.model.graph.graph_index import Graph
from runner.model.graph.hold_values import CONDITION, Telling, fenced, holding, stacked, telling
from runner.model.values import recorded
from runner.model.values.recorded import TensorFile, seeded
from runner.model.values.value_types import has_no_rank, structure_of, without_shape
from runner.reference.good_values import Taint
from runner.reference.load import Loaded
from runner.reference.recording import Recorded, for_one_check
from runner.report.diagnosis_sections import REFERENCE_TOO
from runner.schema.root import CutPolicy, CutSettings, OutputPolicy
from runner.verdict import Candidate, Invalid, Sample
from strategies.search import Closure, Space, Trial

# The values that go into a control, and those that should come out of it.


def samples_of(made: Control, known: Sequence[Mapping[str, TensorFile]], folder: Path) -> tuple[Sample, ...]:
    """Return a sample of a control for each one in ``known``; an input that is not known there gets a value made up."""
    folder.mkdir(parents=True, exist_ok=True)
    extra: dict[str, TensorFile] = {}
    for value in made.cut.model.graph.input:
        kind = value.type.tensor_type
        if kind.elem_type and not any(value.name in sample for sample in known):
            shape = tuple(dim.dim_value or 1 for dim in kind.shape.dim)
            path = folder / f"{len(extra)}.pb"
            extra[value.name] = recorded.seeded(value.name, kind.elem_type, shape, seed=1, path=path)
    held = {
        name: recorded.write(source, name, folder / f"held{place}.pb")
        for place, (name, source) in enumerate(made.given.items())
        if isinstance(source, TensorProto)
    }
    found = []
    for sample in known:
        feeds = {name: value for name in made.cut.inputs if (value := sample.get(name, extra.get(name)))}
        handed = {name: feeds[source] for name, source in made.given.items() if isinstance(source, str)}
        found.append(Sample(feeds, {**handed, **held}))
    return tuple(found)


LARGEST_CONSTANT = 4 << 20
"""Bytes up to which a data-independent value is written into a candidate; a larger one stays a graph input."""
THE_FILE = "the model file"
_MOST_SEEDED = 1 << 28  # elements: as many as take 2 GiB to draw


@dataclass
class Subgraph:
    """Cuts candidates out of one model.

    ``types``: what shape inference knows about tensors that were not recorded. ``file``: the user's own model.
    ``taint``: which non-finite values belong to the failure, once that is known. ``control``: what the control
    shares with the model. ``declared``: the model's own inputs and outputs have the types that the file declares,
    not the recorded ones, and tensors at cuts no shape where the file leaves the rank of an input open.
    ``as_file``: the whole model is the user's file itself. ``origin``: what the graph was made from, where it is
    none of the model's own (a body of an answer, hoisted): its recorded values come from there. ``carried``: nodes
    that are no elements and come along with whatever reads them (see `Graph.constants`). ``fed``: the check reads
    values; for one that reads none no value is a bad one. ``unshown``: tensors that no candidate hands out: they are
    infinite on purpose, or the check looks up the right value of each output, and has none of these.
    ``given``: of a graph that is a part of the model, so that nothing is shown by what its outputs hold, the inputs
    that are no input of the model. ``iteration``: which one of a Loop or Scan the graph is, in words.
    """

    graph: Graph
    store: Store
    recorded: Recorded
    types: Mapping[str, onnx.TypeProto]
    file: Path
    folder: Path
    closure: Closure = Closure.FREE
    cut_policy: CutPolicy = CutPolicy.auto
    outputs: OutputPolicy = OutputPolicy.frontier
    taint: Taint | None = None
    origin: str = ""
    iteration: str = ""
    control: Form = field(default_factory=Form)
    declared: bool = False
    as_file: bool = False
    carried: frozenset[int] = frozenset()
    fed: bool = True
    unshown: frozenset[str] = frozenset()
    given: frozenset[str] | None = None
    _seeded: dict[str, TensorFile] = field(default_factory=dict)
    _reading: threading.Lock = field(default_factory=threading.Lock, init=False, repr=False, compare=False)

    @classmethod
    def of_loaded(cls, loaded: Loaded, folder: Path, settings: CutSettings) -> Subgraph:
        """Return what cuts a model that was loaded. ``folder``: of the run."""
        given = loaded.graph, loaded.store, loaded.recorded, loaded.types, loaded.studied, folder / "values"
        return cls(*given, cut_policy=settings.policy, outputs=settings.outputs)

    @cached_property
    def space(self) -> Space:
        """The model's top-level nodes, but Constant nodes and those that are carried."""
        order, parents = range(len(self.graph.nodes)), self.graph.parents
        if self.carried:
            parents = tuple(tuple(one for one in above if one not in self.carried) for above in parents)
        return Space(tuple(index for index in order if index not in self.carried), parents, self.closure)

    def identity(self) -> dict[str, str]:
        """Return the graph, what it was made from, and how trials are cut out of it."""
        return {
            "kind": "subgraph",
            "graph": self.graph.digest,
            "origin": self.origin,
            "closure": self.closure.value,
            "cut": self.cut_policy.value,
            "outputs": self.outputs.value,
            "control": str(self.control),
            "declared": str(self.declared),
            "as_file": str(self.as_file),
            "carried": Trial(self.carried).ranges,
            **({"unshown": " ".join(sorted(self.unshown))} if self.unshown else {}),
        }

    def names(self, trial: Trial) -> tuple[str, ...]:
        """Return the names of the kept nodes, as in the original."""
        return tuple(map(self.graph.names.__getitem__, trial))

    def make(self, trial: Trial, folder: Path) -> Candidate | Invalid:
        """Write the candidate that keeps ``trial``."""
        if not trial:
            return self._control(folder)
        if self.as_file and trial == self.space.whole:
            return self.original(folder)
        draws = bool(self._drawing) and not self._drawing.isdisjoint(self.names(trial))
        made = cut_candidate(self, self.store, trial, folder, partial(self._unusable, trial), draws=draws)
        left = 0 if isinstance(made, Invalid) else len(self.recorded.values) - len(made.samples)
        return replace(made, left_out=left) if left and isinstance(made, Candidate) else made

    def cut(self, trial: Trial) -> Cut:
        """Cut the nodes of ``trial`` out of the model. Raises CutError if an outside value has no known type."""
        # with the inputs kept, the earliest failing output is wanted, not the values on the way to it
        outputs = OutputPolicy.sinks if self.closure is Closure.ANCESTORS else self.outputs
        made = cut.cut(
            self.graph,
            trial.elements,
            types=self.types_of_all,
            constants=self.constants,
            expose=outputs.value,
            keep_inputs=self.closure is Closure.ANCESTORS,
            carried=self.carried,
        )
        if self.unshown.isdisjoint(made.outputs):
            return made
        lacks = not all(map(self.has_reference, made.outputs))
        why = ["of which the right value is not known: it has no partner"] if lacks else []
        return cut.with_outputs(made, {*made.outputs} - self.unshown, *why)

    def _control(self, folder: Path) -> Candidate:
        values = self.recorded.values
        held = {name: same_in_all([sample.get(name) for sample in values[:1]]) for name in self.graph.outputs}
        # a NaN that the reference computes as well is what a check may look for, and no model with it is harmless
        known = {name: one for name, one in held.items() if one is not None}
        good = {name: one for name, one in known.items() if values[0][name].finite or self._meant(name)}
        made = cut.control(self.graph, self.types_of_all, self.control, good)
        samples = samples_of(made, values, self.folder / "control")
        return Candidate(self.store.write(made.cut.model, folder), folder, Trial.of([]), samples, temporary=True)

    @property
    def apart(self) -> Subgraph:
        """What cuts nodes out alone, so that each of a cut is the model's own."""
        return self

    def kept(self, trial: Trial) -> Kept:
        """Return the nodes of ``trial``, which are elements of the graph."""
        return Kept(self.graph, trial, carried=self.carried)

    def original(self, folder: Path) -> Candidate:
        """Return the user's file as it is (a copy, where that is the same model), with the values of its inputs."""
        file, draws = copy_for_check(self.file, folder), bool(self._drawing)
        copied = file != self.file
        return Candidate(file, folder, self.space.whole, self.whole_samples, draws=draws, ours=False, temporary=copied)

    @cached_property
    def told_apart(self) -> Telling | None:
        """What tells the samples apart, if a model can hold the good values of all; None: it can of the first only."""
        known = self.recorded.values
        kinds = [{name: (one.shape, one.dtype, one.structure) for name, one in sample.items()} for sample in known]
        if any(kind != kinds[0] for kind in kinds) or any(
            one[2] is not None for kind in kinds for one in kind.values()
        ):
            return None
        read = (name for name in self.graph.inputs if known and name in known[0])
        return telling(self.graph, {name: [recorded.read(one[name]) for one in known] for name in read})

    @property
    def held_samples(self) -> tuple[Mapping[str, TensorFile], ...]:
        """The samples whose good values a model can hold together."""
        return self.recorded.values[: None if self.told_apart else 1]

    @property
    def whole_samples(self) -> tuple[Sample, ...]:
        """What the whole model is fed, and what its outputs should be, for each input sample."""
        known = list(filter(self.has_reference, self.graph.outputs))
        return tuple(Sample.of(one, self.graph.inputs, known) for one in self.recorded.values)

    def samples(self, made: Cut) -> tuple[Sample, ...]:
        """Return, for each input sample, what a cut is fed and what its outputs should be.

        Raises CutError for a value that was not recorded and is too large to make up.
        """
        types = {value.name: value.type for value in made.model.graph.input}
        return tuple(
            Sample(
                for_one_check(
                    {name: tensor for name in made.inputs if (tensor := self._feed(name, types[name], values))}
                ),
                for_one_check(
                    {name: values[name] for name in made.outputs if name in values and self.has_reference(name)}
                ),
            )
            for values in self.judging(made)
        )

    def judging(self, made: Cut) -> tuple[Mapping[str, TensorFile], ...]:
        """Return the values of the samples that judge a cut: of which nothing fed would itself explain a failure."""
        fed = [name for name in made.inputs if self.fed and self._is_judged(name) and not self._meant(name)]
        every = self.recorded.values
        return tuple(one for one in every if all(one[name].finite for name in fed if name in one))

    def _is_judged(self, name: str) -> bool:
        return name not in self.graph.inputs or name in (self.given or ())

    def _feed(self, name: str, declared: onnx.TypeProto, values: Mapping[str, TensorFile]) -> TensorFile | None:
        """The value to feed: recorded, or seeded where the policy says so or nothing was recorded."""
        if name in values and (self.cut_policy is not CutPolicy.seeded or name in self.graph.inputs):
            return values[name]
        if name in self._seeded:
            return self._seeded[name]
        tensor_type = declared.tensor_type
        if not tensor_type.elem_type:
            return None
        shape = tuple(dim.dim_value or 1 for dim in tensor_type.shape.dim)
        if math.prod(shape) > _MOST_SEEDED:  # a damaged file may say anything
            if not self.fed:
                return None
            raise CutError(f"nothing is recorded for {name!r}, and {list(shape)} is too large to make up a value")
        self.folder.mkdir(parents=True, exist_ok=True)
        place = self.folder / f"seeded-{hashlib.sha256(name.encode()).hexdigest()[:16]}.pb"
        self._seeded[name] = seeded(name, tensor_type.elem_type, shape, seed=1, path=place)
        return self._seeded[name]

    def has_reference(self, name: str) -> bool:
        """Return whether the reference has a value of a tensor.

        A reference model has it for those with a partner, files with expected outputs for the outputs in them.
        """
        partners = self.recorded.partners
        return name not in self.recorded.unjudged and (partners is None or name in partners)

    def unjudgeable(self, without: frozenset[int]) -> frozenset[int]:
        """Return the elements that cannot be judged once these are gone: they get a NaN or Inf, from them or on.

        Fed to a candidate, it would itself explain a failure. A value beyond the type would be an Inf.
        """
        gone = set(without)
        for node in self.graph.nodes:
            read = {name for name in node.inputs if self.graph.producers.get(name) in gone} - self.constants.keys()
            if any(self.is_bad_feed(name) or self.recorded.why_unfit(name, (node.index,)) for name in read):
                gone.add(node.index)
        return frozenset(gone) - without

    def is_bad_feed(self, name: str) -> bool:
        """Return whether a value that is fed would itself explain a failure."""
        held = [values[name] for values in self.recorded.values if name in values]
        return self.fed and any(not tensor.finite for tensor in held) and not self._meant(name)

    def _unusable(self, trial: Trial, made: Cut) -> str:
        """Why a cut is no question: a fed value would itself explain the failure, or was not recorded right.

        A NaN or Inf that is meant would not: the -Inf of an attention's mask, a NaN that the model looks for and
        replaces. What needs digits that a tensor's type loses fails by them, wherever it stands: it stays together.
        """
        if self.recorded.values and not self.judging(made):
            bad = (name for name in made.inputs if self._is_judged(name) and self.is_bad_feed(name))
            return f"the value recorded for {next(bad)!r} is not finite"
        used = (*(made.inputs if self.fed else ()), *made.constants)
        narrow = self.recorded.narrow if self.fed else {}
        apart = (name for name, one in narrow.items() if one.parts(self.graph.producers[name], trial.elements))
        why = (self.recorded.why_unfit(name, trial.elements) for name in (*used, *apart))
        return next(filter(None, why), "")

    def _meant(self, name: str) -> bool:
        """Whether a NaN or Inf is meant: it does not reach the failing outputs, or the reference run ended finite."""
        return name in self.taint.harmless if self.taint else self._healthy

    @cached_property
    def _drawing(self) -> frozenset[str]:
        return frozenset(self.graph.drawing)

    @cached_property
    def _healthy(self) -> bool:
        return self.recorded.healthy(self.graph.outputs)

    @property
    def declared_otherwise(self) -> bool:
        """Whether the file declares other types of the model's inputs and outputs than are recorded."""
        declared, names = replace(self, declared=True), (*self.graph.inputs, *self.graph.outputs)
        return any(declared.types_of_all.get(name) != self.types_of_all.get(name) for name in names)

    @cached_property
    def types_of_all(self) -> dict[str, onnx.TypeProto]:
        """The types of tensors: as declared, inferred, recorded, the last one that is known."""
        declared, known = self.graph.value_types, {**self.types, **self.recorded.types}
        if self.declared:
            if any(name in declared and has_no_rank(declared[name]) for name in self.graph.inputs):
                # what a runtime cannot infer inside the model must not be known at a cut either
                known = {name: without_shape(found) for name, found in known.items()}
            for name in (*self.graph.inputs, *self.graph.outputs):
                if name in declared and structure_of(declared[name]):
                    known.pop(name, None)
        return {**declared, **known}

    @property
    def constants(self) -> dict[str, onnx.TensorProto]:
        """Values that become constants.

        Those that no data reaches, if all samples agree (or all, or none, if the user says so).
        """
        with self._reading:  # several candidates are made at once
            return self._constants

    @property
    def carries(self) -> bool:
        """Whether the cut policy has nodes come along that compute constants."""
        return self.cut_policy is CutPolicy.auto

    @cached_property
    def _constants(self) -> dict[str, onnx.TensorProto]:
        if self.cut_policy is CutPolicy.input:
            return {}
        values = self.recorded.values
        every = set(values[0]).difference(self.graph.inputs) if values else set()
        names = every if self.cut_policy is CutPolicy.constant else every & self.graph.data_independent
        names -= {name for index in self.carried for name in self.graph.nodes[index].outputs}
        found = ((name, same_in_all([sample.get(name) for sample in values])) for name in sorted(names))
        return {name: tensor for name, tensor in found if tensor}


def subgraph(judge: Judge) -> Subgraph:
    """Return what cuts the candidates of a judge that asks about sets of nodes of the model."""
    assert isinstance(judge.subject, Subgraph)
    return judge.subject


@dataclass(frozen=True)
class SameNodes:
    """A subject whose elements are those of ``base``: it makes something else of a trial."""

    base: Subgraph

    @property
    def space(self) -> Space:
        """The elements of the model."""
        return self.base.space

    def names(self, trial: Trial) -> tuple[str, ...]:
        """Return the names of the nodes of ``trial``."""
        return self.base.names(trial)


def same_in_all(tensors: Sequence[TensorFile | None]) -> onnx.TensorProto | None:
    """Return the one tensor that all samples have; None where they differ, or it takes more than LARGEST_CONSTANT."""
    known = [one for one in tensors if one and one.structure is None and one.size <= LARGEST_CONSTANT]
    found = [one.content() for one in known]
    if not found or len(found) != len(tensors) or any(one != found[0] for one in found[1:]):
        return None
    return onnx.TensorProto.FromString(found[0])


# Subject `spliced`: a trial is a set of nodes that stay as they are; all others give good values.
#
# The candidate is the whole model, judged at its own outputs, so that the model is asked, not a part of it: does the
# failure arise in the nodes that stay?


@dataclass(frozen=True)
class Spliced(SameNodes):
    """Splices good values into one model.

    ``base``: cuts the same model. ``alive``: see `splice_good_values`. ``parts``: have fences around them (`fences`).
    ``held``: the good values are in the candidate, whose inputs and outputs are the model's own (`hold_values`).
    ``fits``: no value is fed that loses digits which its readers need.
    """

    alive: bool = False
    parts: tuple[Trial, ...] = ()
    held: bool = False
    fits: bool = False

    def identity(self) -> dict[str, str]:
        """Return all that decides what a trial is: how the model is cut, and what is shown besides its outputs."""
        fences = {"fences": " | ".join(part.ranges for part in self.parts)} if self.parts else {}
        several = f"{len(self.base.held_samples)} samples" if self.base.told_apart else "True"
        held = ({"held": several} if self.held else {}) | ({"fits": "True"} if self.fits else {})
        return {**self.base.identity(), "kind": "spliced", "alive": str(self.alive), **fences, **held}

    def kept(self, trial: Trial) -> Kept:
        """Return the nodes of ``trial``."""
        return self.base.kept(trial)

    def splice(self, trial: Trial) -> Splice:
        """Return the model, whose missing tensors are to be fed."""
        base, gone = self.base, frozenset(self.space.order) - trial.elements
        return cut.splice(base.graph, gone, alive=self.alive, good=self._can_hand_out, carried=base.carried)

    def make(self, trial: Trial, folder: Path) -> Candidate | Invalid:
        """Write the candidate."""
        if self.base.cut_policy is CutPolicy.seeded:
            return Invalid("cut.policy=seeded feeds made-up values, not good ones")
        given = self.splice(trial).given
        try:
            made = self.cut(trial)
            read = made.inputs[:-1] if self.parts and not self.held else made.inputs
            for name in (*read, *made.constants):
                if why := self._unusable(given.get(name, name), trial):
                    return Invalid(why)
            path = self.base.store.write(made.model, folder)
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
        candidate = cut.cut(
            self.base.graph,
            made.keep,
            types=types,
            constants=constants,
            expose="own",
            front=made.front,
            shown=made.shown,
            carried=self.base.carried,
        )
        if self.parts:
            candidate = fenced(candidate, self.base.graph, self.parts, self.base.types_of_all)
        return self._holding(candidate, made.given, trial) if self.held else candidate

    def _holding(self, made: Cut, given: Mapping[str, str], trial: Trial) -> Cut:
        condition, values = made.inputs[-1] if self.parts else "", {}
        for alias in made.inputs[: -1 if self.parts else None]:
            name = given.get(alias, alias)
            if why := self._unusable(name, trial):
                raise CutError(why)
            known = [one[name] for one in self.base.held_samples if name in one]
            if len(known) < max(1, len(self.base.held_samples)) or any(one.structure is not None for one in known):
                raise CutError(f"{name!r} has no value that a model can hold")
            values[alias] = stacked([TensorProto.FromString(one.content()) for one in known])
        return holding(made, self.base.graph, values, condition, self.base.told_apart)

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
            for values in (self.base.held_samples if self.held else self.base.recorded.values)
        )

    def _condition(self, name: str) -> TensorFile:
        self.base.folder.mkdir(parents=True, exist_ok=True)
        return seeded(name, TensorProto.BOOL, (), path=self.base.folder / f"{CONDITION}.pb")

    def _can_hand_out(self, name: str) -> bool:
        found = self.base.types_of_all.get(name)
        return not self._unusable(name) and found is not None and cut.takes(self.base.graph, "Identity", found)

    def _unusable(self, name: str, trial: Trial | None = None) -> str:
        """Why a tensor has no good value that may be fed to a trial; "" where it has one in every sample."""
        if name in self.base.graph.inputs:
            return ""
        known = [name in values for values in self.base.recorded.values]
        if name not in self.base.constants and not (known and all(known)):
            return f"no good value of {name!r} is known"
        if why := self.base.recorded.why_unfit(name, trial.elements if trial and self.fits else ()):
            return why
        return f"{REFERENCE_TOO} {name!r} too, so no good value is known for it" if self.base.is_bad_feed(name) else ""


@dataclass
class InPlace(Subgraph):
    """Subject `subgraph` for a check that takes the whole model only: nodes fail in their place, none is cut out.

    A trial's candidate is the whole model, in which these nodes and what depends on them are computed, behind a fence;
    all else has good values, which the candidate holds. So it has the model's own inputs and outputs. ``fences``: there
    is one, which keeps apart a wrong fusion and a part of it. ``healed``: faults that are known, with good outputs.
    """

    fences: bool = True
    healed: frozenset[int] = frozenset()

    @property
    def apart(self) -> Subgraph:
        """Cuts the same nodes out of the model."""
        return Subgraph(**{**_known(self), "closure": Closure.FREE})

    @staticmethod
    def of(base: Subgraph) -> InPlace:
        """Return one for the same model."""
        return InPlace(**{**_known(base), "closure": Closure.PLACE})

    def identity(self) -> dict[str, str]:
        """Return the graph, and what a candidate holds besides the nodes of a trial."""
        healed = {"healed": Trial(self.healed).ranges} if self.healed else {}
        return {**super().identity(), "fences": str(self.fences), **healed}

    def make(self, trial: Trial, folder: Path) -> Candidate | Invalid:
        """Write the candidate of ``trial``; that of the empty one hands out good values."""
        if self.as_file and trial == self.space.whole:
            return self.original(folder)
        if why := self._inside_a_piece(trial):
            return Invalid(why)
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

    def _inside_a_piece(self, trial: Trial) -> str:
        """Why some nodes cannot be told from what reads them; "" where they can.

        What they give has no partner, so whether they or their readers are wrong could not be shown.
        """
        given = (name for index in trial for name in self.graph.nodes[index].outputs)
        unknown = (name for name in given if name in self.recorded.unfit and not self.has_reference(name))
        ends = (name for name in unknown if not trial.elements.issuperset(self.graph.readers.get(name, ())))
        return next((self.recorded.unfit[name] for name in ends), "")

    def _splices(self, trial: Trial) -> tuple[Trial, Spliced]:
        """Return what is computed, and what makes the candidate of it."""
        computed = Trial(cut.depends_on(self.graph, trial.elements, self.healed))
        return computed, Spliced(
            self, parts=(trial,) if self.fences and computed != trial else (), held=True, fits=True
        )


def _known(subject: Subgraph) -> dict[str, Any]:
    return {one.name: getattr(subject, one.name) for one in fields(Subgraph) if one.init}
