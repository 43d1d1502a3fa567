"""A converted child and its parent: what the child's tensors should hold, as the parent tells.

The parent and the child run once each, partners are looked for, and then every node of the child runs on good values
(see ``teacher_forcing``): where its value tells of another partner, that one is taken, and they run again. A tensor
without a partner gets the value that its node makes of good ones. That value can be trusted if a tensor with a partner
which depends on it comes out right; if not, the culprit may be on either side of it, and there is no good value to cut
at. Users may say more with reference.map.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from runner.judgment import UsageError
from runner.model.values import recorded
from runner.model.values.recorded import TensorFile
from runner.reference.align import Matching
from runner.reference.fingerprints import Weights, agree, prints_of
from runner.reference.good_values import good_value, scales
from runner.reference.narrow_types import NarrowTypes, held_type
from runner.reference.quantized import as_floats
from runner.reference.recording import PACK, Narrow
from runner.reference.teacher_forcing import (
    ForcedRun,
    Record,
    RecordedModel,
    Samples,
    doubtful,
    everywhere,
    forced,
    made_of,
    restored,
)
from runner.reference.tensor_pairs import (
    SCALING,
    FingerprintedGraph,
    How,
    Partner,
    operator,
    reshaped,
    unscaled,
)

MOST_RUNS = 12
"""How often the child's nodes run on good values: each time what they make may tell of further partners."""
MOST_OPENED = 8
"""Runs in which the tensors after added nodes are left to the model: each time one more after each of them."""
LEAST_MISNAMED = 3
"""Partners by name that are wrong for sure before no name counts any more."""


@dataclass(frozen=True)
class ParentValues:
    """What the parent tells of the child.

    ``values``: good values by tensor, one mapping a sample. ``partners``: the tensors that have one. ``unfit``: why a
    value must not be fed, by tensor. ``alone``: what nodes make that has no partner. ``wrong``: nodes of
    the child that are not right on good values, in the reference's runtime. ``integers``: tensors that hold steps of
    what their partners hold. ``narrow``: the tensors whose type loses digits that their readers need.
    """

    values: Samples
    partners: Mapping[str, Partner]
    unfit: Mapping[str, str]
    alone: tuple[str, ...] = ()
    wrong: tuple[str, ...] = ()
    integers: frozenset[str] = frozenset()
    narrow: Mapping[str, Narrow] = field(default_factory=dict)


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
        told = as_floats(mine, Weights(mine, self.child.store).array)
        self._readings = told.readings
        free = prints_of(self.child.values, [*mine.inputs, *mine.producers], told.readings)
        weights = Weights(mine, self.child.store, told.readings)
        steps = [name for name in mine.producers if name in told.readings]
        self._younger = FingerprintedGraph(told.graph, free, weights, steps)
        self._loose = reshaped(self._younger, self._elder)
        self._named = True
        self._alone = frozenset(name for name, partner in self.told.items() if partner is None)

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
                between = self._between_added(partners, run) or self._scaled_before(partners, run)
                if not between:
                    break
                self._alone |= between
                revised = {name: one for name, one in partners.items() if name not in between}
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

    def _misnamed(self, partners: Mapping[str, Partner], run: ForcedRun) -> bool:
        """Whether names mislead: numbers, say, that an exporter gave anew. A culprit makes no such difference.

        A tensor that is near another one, which its own operator makes, and whose namesake another operator makes, has
        no right to its name. Names that differ feed nodes wrong values, so the child's own run counts as well.
        """
        runs = (self._now(run), self._younger)
        wrong = 0
        for name in runs[0].prints.keys() & run.made[0].keys():
            one, kind = partners.get(name), _kind_of(self._younger, name)
            if one and one.how is How.name and one.tensor in self._elder.prints:
                far = kind != _kind_of(self._elder, one.tensor) and not any(self._alike(now, name, one) for now in runs)
                near = [self._elder.by_value.near(now.prints[name]) for now in runs if far and name in now.prints]
                wrong += any(
                    kind == _kind_of(self._elder, other) for like in near for _, names in like for other in names
                )
        return wrong >= LEAST_MISNAMED

    def _matching(self, child: FingerprintedGraph, partners: Mapping[str, Partner]) -> Matching:
        return Matching(child, self._elder, dict(partners), self._alone, self._loose, named=self._named)

    def _between_added(self, partners: Mapping[str, Partner], run: ForcedRun) -> frozenset[str]:
        """Return the tensors from one added node to the next, whose partners no value speaks for.

        Structure gives an added node the partner of what it reads, as if it did nothing. If it does something, either
        it is wrong, or a later added node undoes it (a scale, divided out again), and then no tensor between the two
        has a partner. So these are left to what the model makes of the values before, until another such node.
        """
        added = self._added(partners, self._now(run))
        opened, closing, found = set(added), set[str](), set[str]()
        for _ in range(MOST_OPENED if len(added) > 1 else 0):
            fed = {name: one for name, one in partners.items() if name not in opened or name in closing}
            now = self._now(self._force(fed))
            since: dict[str, frozenset[str]] = {}  # the tensors after the last added node, this one too, by tensor
            wrong: set[str] = set()
            closing, found = set(), set()
            for node in self.child.graph.nodes:
                before = frozenset[str]().union(*(since.get(name, ()) for name in node.inputs))
                for name in node.outputs:
                    one = partners.get(name)
                    held = now.prints.get(name) if before and one is None else None
                    if before and (name in added or (held and self._elder.by_value.near(held))):
                        closing.add(name)
                        found |= before
                    elif name in added or (before and (one is None or name in opened)):
                        since[name] = before | {name}
                    elif before and one and one.how is not How.map and not self._alike(now, name, one):
                        wrong.add(name)
            if not wrong:
                break
            opened |= wrong
        if not found and len(added) > 1:  # a fault hides where it is undone: none of these partners is known
            order = [name for node in self.child.graph.nodes for name in node.outputs]
            places = [at for at, name in enumerate(order) if name in added]
            found = {name for name in order[places[0] : places[-1]] if self._younger.depends(name, order[places[0]])}
            found.add(order[places[0]])
        return frozenset(name for name in found if name in partners and partners[name].how is not How.map)

    def _scaled_before(self, partners: Mapping[str, Partner], run: ForcedRun) -> frozenset[str]:
        """Return the tensors from one that the child scales up to where only the parent does: they are no partners."""
        graph, depends = self.child.graph, self._younger.depends
        ends = unscaled(graph, self._elder, partners) & graph.producers.keys()
        free = [name for name in partners if name in graph.producers and partners[name].how is not How.map]
        before = [name for name in free if any(name == end or depends(end, name) for end in ends)]
        first = [name for name in before if all(map(partial(scales, name), run.made, run.good))]
        return frozenset(name for name in before if any(name == one or depends(name, one) for one in first))

    def _added(self, partners: Mapping[str, Partner], now: FingerprintedGraph) -> frozenset[str]:
        """Return the tensors with the partner of what their node reads, though it makes something else of that."""
        root = self._elder.root
        return frozenset(
            name
            for node in self.child.graph.nodes
            if not now.hands_on(node)
            for name in node.outputs
            if (one := partners.get(name)) and one.how is not How.map and not one.reshaped
            if any(read in partners and root(partners[read].tensor) == root(one.tensor) for read in node.inputs)
            or (
                node.op_type in SCALING and (maker := self._elder.producer(one.tensor)) and maker.op_type not in SCALING
            )
            if not self._alike(now, name, one)
        )

    def _now(self, run: ForcedRun) -> FingerprintedGraph:
        """Return the child as it runs on good values."""
        prints = {**self._younger.prints, **prints_of(run.made, self.child.graph.producers, self._readings)}
        return replace(self._younger, prints=prints)

    def _alike(self, now: FingerprintedGraph, name: str, partner: Partner) -> bool:
        mine, theirs = now.prints.get(name), self._elder.prints.get(partner.tensor)
        if mine is None or theirs is None:
            return False
        return agree(replace(mine, shapes=theirs.shapes) if partner.reshaped else mine, theirs)

    # ---- values

    def _force(self, partners: Mapping[str, Partner]) -> ForcedRun:
        """Run the child on the values of the partners."""
        graph, folder = self.child.graph, self._folder("forced")
        unfit: dict[str, str] = {}
        weights: dict[str, TensorFile | None] = {}
        samples = []
        for at, ran in enumerate(self.child.values):
            sample = {name: value for name, value in ran.items() if name in graph.inputs}
            for place, (name, partner) in enumerate(partners.items()):
                value = self._value(partner.tensor, at, folder, weights) if name in graph.producers else None
                own = ran.get(name)
                if value is not None and (not partner.reshaped or own is not None):
                    dtype, path = self._dtype(name, value), folder / f"{at}_{place}.pb"
                    readings, narrow = self._readings.get(name, ()), held_type(self.child, name, dtype)
                    if narrow != dtype and name not in graph.outputs:  # which are judged as they are
                        once = good_value(value, name, narrow, own, path, reshaped=partner.reshaped)
                        value = value if once.unfit else once.file
                    one = good_value(value, name, dtype, own, path, reshaped=partner.reshaped, readings=readings)
                    sample[name] = recorded.pack(one.file, folder / f"{at}.pack", PACK)
                    unfit |= {name: one.unfit} if one.unfit else {}
            samples.append(sample)
        good = tuple(samples)
        one_of_each = forced(graph, everywhere(good))
        return ForcedRun(good, unfit, made_of(self.record, one_of_each, self.child.store, folder / "run", good))

    def _value(self, name: str, at: int, folder: Path, weights: dict[str, TensorFile | None]) -> TensorFile | None:
        """Return what a tensor of the parent holds in a sample; a weight is written into ``folder`` once."""
        if name in self.parent.values[at]:
            return self.parent.values[at][name]
        if name not in weights:
            array, path = self._elder.weights.array(name), folder / f"weight{len(weights)}.pb"
            weights[name] = None if array is None else recorded.write(array, name, path)
        return weights[name]

    def _dtype(self, name: str, theirs: TensorFile) -> int:
        """Return the child's type of a tensor: as it ran, as it is declared, or as the parent has it."""
        for sample in self.child.values:
            if name in sample:
                return sample[name].dtype
        declared = self.child.graph.value_types.get(name)
        known = declared.tensor_type.elem_type if declared is not None else 0
        return known or theirs.dtype

    def _descent(self, partners: Mapping[str, Partner], run: ForcedRun) -> ParentValues:
        graph = self.child.graph
        held = {name: one for name, one in partners.items() if name in everywhere(run.good)}
        right = self._right(held, run)
        doubts = {
            name
            for name in doubtful(graph, held, right)
            if not restored(graph, name, run.good, run.made, self._younger.weights)
        }
        sides = self.child, self.parent, self._elder.weights
        types = NarrowTypes(*sides, held, run, self.record, self.passes, self.folder / "narrow")
        narrow, explained = types.find(right, self._readings)
        reasons = dict(run.unfit)
        right |= explained
        for name in graph.producers:
            if name in held:
                continue
            if any(name not in sample for sample in run.made):
                reasons[name] = f"no good value is known for {name!r}: it has no partner in reference.model"
            elif name in doubts:
                reasons[name] = (
                    f"no good value is known for {name!r}: it has no partner, and the values after it are wrong"
                )
        both = tuple({**made, **good} for made, good in zip(run.made, run.good, strict=True))
        wrong = tuple(
            node.name for node in graph.nodes if any(name in held and name not in right for name in node.outputs)
        )
        alone = tuple(name for name in graph.producers if name not in held)
        return ParentValues(both, held, reasons, alone, wrong, frozenset(self._readings), narrow)

    def _right(self, partners: Mapping[str, Partner], run: ForcedRun) -> frozenset[str]:
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


def _kind_of(side: FingerprintedGraph, name: str) -> str:
    """Return the operator that makes a tensor; "": none does."""
    node = side.producer(name)
    return operator(node) if node else ""


def _told(partners: Mapping[str, Partner]) -> dict[str, str]:
    return {name: one.tensor for name, one in partners.items()}
