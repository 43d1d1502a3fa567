"""A converted child and its parent: what the child's tensors should hold, as the parent tells.

The parent and the child run once each, partners are looked for, and then every node of the child runs on good values
(see ``teacher_forcing``): where its value tells of another partner, that one is taken, and they run again. A tensor
without a partner gets the value that its node makes of good ones. That value can be trusted if a tensor with a partner
which depends on it comes out right; if not, the culprit may be on either side of it, and there is no good value to cut
at. Users may say more with reference.map.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from runner.errors import UsageError
from runner.model.files.candidate_store import Store
from runner.model.graph.graph_index import Graph
from runner.model.values import recorded
from runner.model.values.recorded import TensorFile
from runner.reference.good_values import good_value
from runner.reference.lineage.align import Matching
from runner.reference.lineage.fingerprints import Weights, agree, prints_of
from runner.reference.lineage.pairs import FingerprintedGraph, How, Partner, reshaped
from runner.reference.lineage.teacher_forcing import doubtful, forced, restored
from runner.reference.recording import Recorded

MOST_RUNS = 12
"""How often the child's nodes run on good values: each time what they make may tell of further partners."""
MOST_MISNAMED, LEAST_MISNAMED = 0.3, 4
"""Share and number of partners by name that may be wrong on good values before no name counts any more."""

Samples = tuple[Mapping[str, TensorFile], ...]
Record = Callable[[Graph, Path, Sequence[Mapping[str, TensorFile]]], Recorded]
"""Runs a graph of the child, all tensors shown; what it writes goes into the folder."""


@dataclass(frozen=True, eq=False)
class RecordedModel:
    """A model and what its tensors held when it ran as a whole."""

    graph: Graph
    store: Store
    values: Samples


@dataclass(frozen=True)
class ParentValues:
    """What the parent tells of the child.

    ``values``: good values by tensor, one mapping a sample. ``partners``: the tensors that have one. ``unfit``: why a
    value must not be fed, by tensor. ``alone``: what nodes make that has no partner. ``wrong``: nodes of
    the child that are not right on good values, in the reference's runtime.
    """

    values: Samples
    partners: Mapping[str, Partner]
    unfit: Mapping[str, str]
    alone: tuple[str, ...] = ()
    wrong: tuple[str, ...] = ()

    def counted(self) -> dict[str, int]:
        """Return how many tensors found their partner by what; those without one under ``none``."""
        counts = Counter(one.how.value for one in self.partners.values())
        return {**{how.value: counts[how.value] for how in How}, "none": len(self.alone)}


@dataclass(frozen=True, eq=False)
class _Forced:
    """One run of the child on good values.

    ``good``: these. ``unfit``: those of them that must not be fed. ``made``: what each node makes of them.
    """

    good: Samples
    unfit: Mapping[str, str]
    made: Samples


@dataclass
class Lineage:
    """Works out what a child's tensors should hold.

    ``told``: the user's map. ``inputs``: the child's input by the parent's. ``passes``: whether a value passes the
    check against a good one.
    """

    child: RecordedModel
    parent: RecordedModel
    told: Mapping[str, str | None]
    inputs: Mapping[str, str]
    record: Record
    passes: Callable[[TensorFile, TensorFile], bool]
    folder: Path
    _runs: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        mine, theirs = self.child.graph, self.parent.graph
        held = prints_of(self.parent.values, [*theirs.inputs, *theirs.producers])
        self._elder = FingerprintedGraph(theirs, held, Weights(theirs, self.parent.store))
        free = prints_of(self.child.values, [*mine.inputs, *mine.producers])
        self._younger = FingerprintedGraph(mine, free, Weights(mine, self.child.store))
        self._loose = reshaped(self._younger, self._elder)
        self._named = True

    def descend(self) -> ParentValues:
        """Find partners and good values. Raises UsageError if no output of the child has a partner."""
        partners = self._first()
        known = {one.how for name, one in partners.items() if name in self.child.graph.producers}
        if not any(name in partners for name in self.child.graph.outputs) or (self._loose and known == {How.position}):
            raise self._strangers()
        run = self._force(partners)
        if self._misnamed(partners, run):
            self._named = False
            partners = self._first()
            run = self._force(partners)
        for _ in range(MOST_RUNS):
            revised = self._matching(self._now(run), partners).find()
            if _told(revised) == _told(partners):
                break
            partners = revised
            run = self._force(partners)
        return self._descent(partners, run)

    # ---- partners

    def _first(self) -> dict[str, Partner]:
        """Return the partners that the map, names, structure and one run of each model tell."""
        known = {name: Partner(partner, How.map) for name, partner in self.told.items() if partner is not None}
        for partner, name in self.inputs.items():
            known.setdefault(name, Partner(partner, How.name if name == partner else How.position))
        first = self._matching(self._younger, known)
        first.find()
        first.place_outputs()
        return dict(first.find())

    def _misnamed(self, partners: Mapping[str, Partner], run: _Forced) -> bool:
        """Whether names mislead: numbers, say, that an exporter gave anew. A culprit makes no such difference."""
        now = self._now(run)
        named = {name: one for name, one in partners.items() if one.how is How.name and name in run.made[0]}
        wrong = sum(not self._alike(now, name, one) for name, one in named.items())
        return wrong >= LEAST_MISNAMED and wrong > MOST_MISNAMED * len(named)

    def _matching(self, child: FingerprintedGraph, partners: Mapping[str, Partner]) -> Matching:
        alone = frozenset(name for name, partner in self.told.items() if partner is None)
        return Matching(child, self._elder, dict(partners), alone, self._loose, named=self._named)

    def _now(self, run: _Forced) -> FingerprintedGraph:
        """Return the child as it runs on good values."""
        prints = {**self._younger.prints, **prints_of(run.made, self.child.graph.producers)}
        return FingerprintedGraph(self.child.graph, prints, self._younger.weights)

    def _alike(self, now: FingerprintedGraph, name: str, partner: Partner) -> bool:
        mine, theirs = now.prints.get(name), self._elder.prints.get(partner.tensor)
        if mine is None or theirs is None:
            return False
        return agree(replace(mine, shapes=theirs.shapes) if partner.reshaped else mine, theirs)

    # ---- values

    def _force(self, partners: Mapping[str, Partner]) -> _Forced:
        """Run the child on the values of the partners."""
        graph, folder = self.child.graph, self._folder("forced")
        unfit: dict[str, str] = {}
        samples = []
        for at, ran in enumerate(self.child.values):
            sample = {name: value for name, value in ran.items() if name in graph.inputs}
            for place, (name, partner) in enumerate(partners.items()):
                value = self._value(partner.tensor, at, folder) if name in graph.producers else None
                own = ran.get(name)
                if value is not None and (not partner.reshaped or own is not None):
                    dtype, path = self._dtype(name, value), folder / f"{at}_{place}.pb"
                    one = good_value(value, name, dtype, own, path, reshaped=partner.reshaped)
                    sample[name] = one.file
                    unfit |= {name: one.unfit} if one.unfit else {}
            samples.append(sample)
        good = tuple(samples)
        one_of_each = forced(graph, self._everywhere(good))
        found = self.record(one_of_each.graph, folder / "run", good).values
        names = {name: one_of_each.made.get(name, name) for name in graph.producers}
        made = tuple({name: sample[own] for name, own in names.items() if own in sample} for sample in found)
        return _Forced(good, unfit, made)

    def _value(self, name: str, at: int, folder: Path) -> TensorFile | None:
        """Return what a tensor of the parent holds in a sample; a weight is written into ``folder``."""
        if name in self.parent.values[at]:
            return self.parent.values[at][name]
        array = self._elder.weights.array(name)
        self._runs += 1
        return None if array is None else recorded.write(array, name, folder / f"weight{self._runs}.pb")

    def _dtype(self, name: str, theirs: TensorFile) -> int:
        """Return the child's type of a tensor: as it ran, as it is declared, or as the parent has it."""
        for sample in self.child.values:
            if name in sample:
                return sample[name].dtype
        declared = self.child.graph.value_types.get(name)
        known = declared.tensor_type.elem_type if declared is not None else 0
        return known or theirs.dtype

    def _descent(self, partners: Mapping[str, Partner], run: _Forced) -> ParentValues:
        graph = self.child.graph
        held = {name: one for name, one in partners.items() if name in self._everywhere(run.good)}
        right = self._right(held, run)
        doubts = {
            name
            for name in doubtful(graph, held, right)
            if not restored(graph, name, run.good, run.made, self._younger.weights)
        }
        reasons = dict(run.unfit)
        for name in graph.producers:
            if name in held:
                continue
            if any(name not in sample for sample in run.made):
                reasons[name] = f"there is no good value for {name!r}: it has no partner in reference.model"
            elif name in doubts:
                reasons[name] = f"what {name!r} should be is not known: it has no partner, and what follows is wrong"
        both = tuple({**made, **good} for made, good in zip(run.made, run.good, strict=True))
        wrong = tuple(
            node.name for node in graph.nodes if any(name in held and name not in right for name in node.outputs)
        )
        return ParentValues(both, held, reasons, tuple(name for name in graph.producers if name not in held), wrong)

    def _right(self, partners: Mapping[str, Partner], run: _Forced) -> frozenset[str]:
        """Return the tensors that come out right on good values, in all samples."""
        return frozenset(
            name
            for name in partners
            if name not in self.child.graph.producers
            or all(
                name in made and name in good and self.passes(made[name], good[name])
                for made, good in zip(run.made, run.good, strict=True)
            )
        )

    def _everywhere(self, samples: Samples) -> frozenset[str]:
        return frozenset(samples[0]).intersection(*samples[1:]) if samples else frozenset()

    def _folder(self, stem: str) -> Path:
        self._runs += 1
        folder = self.folder / f"{stem}{self._runs}"
        folder.mkdir(parents=True)
        return folder

    def _strangers(self) -> UsageError:
        return UsageError(
            f"reference.model: none of the model's outputs ({', '.join(self.child.graph.outputs)}) has a partner among "
            f"its tensors; its outputs are {', '.join(self.parent.graph.outputs)}. If they are related, say how: "
            "reference.map='{output of the model: tensor of reference.model}'"
        )


def _told(partners: Mapping[str, Partner]) -> dict[str, str]:
    return {name: one.tensor for name, one in partners.items()}
