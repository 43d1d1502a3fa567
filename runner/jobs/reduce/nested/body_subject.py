"""Subject `inside`: the elements are the nodes of one body of one owner, and a trial is the nodes kept there.

The owner and the rest of the model stay. What kept nodes read and removed ones gave is fed with what the body's nodes
hold once they are hoisted: of a Loop or Scan, in its first iteration.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from pathlib import Path

import onnx

from runner.candidate import Candidate, Invalid, Sample
from runner.jobs.reduce.control_samples import samples_of
from runner.jobs.reduce.subgraph import same_in_all
from runner.model.files.candidate_store import Store
from runner.model.graph.control_model import Form, control
from runner.model.graph.cut import Cut, Expose
from runner.model.graph.graph_index import is_sparse_constant
from runner.model.nested.bodies import Kind, is_constant
from runner.model.nested.body_index import Inner, Knowledge
from runner.model.nested.cut_body import cut_inside
from runner.model.values import recorded as values
from runner.model.values.recorded import TensorFile
from runner.reference.body_values import Descent, Level
from runner.reference.recorded_types import recorded_types
from runner.session.subject import Kept, cut_candidate, cutting
from strategies.search_space import Closure, Space
from strategies.trial import Trial


@dataclass
class Inside:
    """Cuts candidates out of one body of a small model.

    ``descent``: the body hoisted, in its first iteration, with the values of its tensors; ``descent.above`` is the
    model. ``trips``: how many iterations the reference makes, for each sample (of a Loop; see ``trip_counts``): a
    candidate in which the Loop's condition was cut makes as many. ``folder``: for values of our own. ``constant``:
    whether data-independent values are written into candidates. ``origin``: the answer that the model was made from.
    ``emptied``: nothing is left of the body, and what it handed out is fed. Then the one element is the owner, which
    stays: a failure that stays too does not need this body, it is the owner's own or another body's. ``fed``: the
    check reads values.
    """

    descent: Descent
    trips: tuple[int | None, ...]
    folder: Path
    closure: Closure = Closure.FREE
    expose: Expose = "sinks"
    constant: bool = True
    origin: str = ""
    emptied: bool = False
    fed: bool = True

    @property
    def level(self) -> Level:
        """The model that holds the owner."""
        return self.descent.above

    @cached_property
    def inner(self) -> Inner:
        """The body's elements."""
        return Inner.of(self.level.graph, self.descent.body)

    @cached_property
    def space(self) -> Space:
        """The body's own nodes, Constants excepted; an owner among them is one element."""
        if self.emptied:
            return Space((0,), ((),), self.closure)
        elements = self.inner.elements
        return Space(tuple(range(len(elements.nodes))), elements.parents, self.closure)

    def identity(self) -> dict[str, str]:
        """Return the model, what it was made from, which body is cut, and how."""
        return {
            "kind": "emptied" if self.emptied else "inside",
            "graph": self.level.graph.digest,
            "origin": self.origin,
            "body": self.descent.body.path,
            "trips": json.dumps(self.trips),
            "closure": self.closure.value,
            "outputs": self.expose,
            "constant": str(self.constant).lower(),
        }

    def names(self, trial: Trial) -> tuple[str, ...]:
        """Return the paths of the kept nodes; the owner's name where the body is emptied."""
        return (self.level.graph.nodes[self.descent.body.owner].name,) if self.emptied else self.inner.names(trial)

    def make(self, trial: Trial, folder: Path) -> Candidate | Invalid:
        """Write the candidate that keeps ``trial`` in the body."""
        if not trial:
            harmless = control(self.level.graph, self.level.all_types, Form(), {})
            fed = samples_of(harmless, self.values, self.folder / "control")
            return Candidate(self.store.write(harmless.cut.model, folder), folder, trial, fed, temporary=True)
        return cut_candidate(cutting(self), self.store, trial, folder, self._unusable, draws=self._draws)

    def cut(self, trial: Trial) -> Cut:
        """Keep ``trial`` in the body. Raises CutError where a value that must come from outside is not known."""
        keep = () if self.emptied else trial.elements
        return cut_inside(self.inner, keep, self._knowledge, self.expose, emptied=self.emptied)

    def kept(self, trial: Trial) -> Kept:
        """Return all nodes of the model around the body: they stay."""
        graph = self.level.graph
        return Kept(graph, Trial.of(range(len(graph.nodes))), inside=True)

    def samples(self, made: Cut) -> tuple[Sample, ...]:
        """Return, for each input sample, what a cut is fed and what its outputs should be.

        A Loop or Scan of which nodes were removed gives what nobody has recorded: of its outputs, and of what depends
        on them, nothing is said.
        """
        changed = self._changed(made)
        return tuple(
            Sample(
                {name: sample[name] for name in made.inputs if name in sample},
                {name: sample[name] for name in made.outputs if name in sample and name not in changed},
            )
            for sample in self.values
        )

    @property
    def store(self) -> Store:
        """The model's weights, which candidates share."""
        return self.level.store

    @cached_property
    def values(self) -> tuple[Mapping[str, TensorFile], ...]:
        """What is recorded: the level's tensors, and the body's under the names that they have in candidates."""
        found = []
        for at, (above, below) in enumerate(
            zip(self.level.recorded.values, self.descent.level.recorded.values, strict=True)
        ):
            sample = dict(above)
            for name, outer in self.inner.outer.items():
                value = below.get(self.descent.hoisted.names.get(name, name))
                if value is not None:
                    sample[outer] = sample[self.inner.shown[name]] = value
            if at < len(self._limits):
                sample[self._limit_name] = self._limits[at]
            found.append(sample)
        return tuple(found)

    @cached_property
    def _knowledge(self) -> Knowledge:
        below = self.descent.level.recorded.values
        now = self.descent.hoisted.names
        types = recorded_types(below)
        inner = {name: types[now[name]] for name in self.inner.outer if now.get(name) in types}
        fixed = {name for name in inner if now[name] in self.descent.level.graph.data_independent}
        agreed = {name: same_in_all([sample.get(now[name]) for sample in below]) for name in fixed if self.constant}
        return Knowledge(
            self.level.all_types,
            inner,
            {name: tensor for name, tensor in agreed.items() if tensor is not None},
            self._limit_name if self._limits else "",
            same_in_all(list(self._limits)),
        )

    @cached_property
    def _limit_name(self) -> str:
        return self.inner.supply().fresh(f"{self.descent.body.path}/iterations")

    @cached_property
    def _limits(self) -> tuple[TensorFile, ...]:
        """How often a Loop may run whose condition was cut, for each sample; once where nobody knows."""
        if self.descent.body.kind is not Kind.LOOP:
            return ()
        self.folder.mkdir(parents=True, exist_ok=True)
        name = self._limit_name
        return tuple(
            values.write(
                onnx.helper.make_tensor(name, onnx.TensorProto.INT64, [], [1 if count is None else count]),
                name,
                self.folder / f"iterations{at}.pb",
            )
            for at, count in enumerate(self.trips)
        )

    def _changed(self, made: Cut) -> frozenset[str]:
        """The tensors that may hold something else in a cut than what is recorded."""
        if self.descent.body.kind not in (Kind.LOOP, Kind.SCAN):
            return frozenset()
        shown = frozenset(self.inner.shown.values())  # not of the first iteration alone
        return shown if self._is_whole(made) else self.inner.followers | shown

    def _is_whole(self, made: Cut) -> bool:
        """Whether a cut of a Loop or Scan has all nodes of its body."""
        elements = (node for node in made.model.graph.node if not is_sparse_constant(node))
        owner = next(islice(elements, self.descent.body.owner, None))
        body = next(one.g for one in owner.attribute if one.name == self.descent.body.attribute)
        left = [(node.name, *node.output) for node in body.node if not is_constant(node)]
        mine = [(node.name, *node.output) for node in self.inner.elements.protos]
        return left[: len(mine)] == mine

    @cached_property
    def _draws(self) -> bool | None:
        """Whether a candidate draws random numbers; None: that depends on what is left of the owner."""
        graph = self.level.graph
        owner = graph.nodes[self.descent.body.owner].name
        return True if set(graph.drawing) - {owner} else None if owner in graph.drawing else False

    def _unusable(self, made: Cut) -> str | None:
        """Why a cut is no question: a value that it is fed is not there, or would itself explain a failure.

        A NaN would. An Inf would, unless the reference run ended finite all the same (the mask of an attention).
        """
        healthy = self.level.recorded.healthy(self.level.graph.outputs)
        for name in made.inputs if self.fed else ():
            if name in self.level.graph.input_order:
                continue
            if name in self.level.recorded.unfit:
                return self.level.recorded.unfit[name]
            for sample in self.values:
                value = sample.get(name)
                if value is None:
                    return f"no value is recorded of {name!r}"
                if not value.finite and (value.nan or not healthy):
                    return f"the value recorded for {name!r} is not finite"
        return None
