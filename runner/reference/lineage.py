"""A converted child and its parent: what the child's tensors should hold, as the parent tells.

The parent and the child run once each, partners are looked for, and then every node of the child runs on good values
(see ``teacher_forcing``): where its value tells of another partner, that one is taken, and they run again. A tensor
without a partner gets the value that its node makes of good ones. That value can be trusted if a tensor with a partner
which depends on it comes out right; if not, the culprit may be on either side of it, and there is no good value to cut
at. Users may say more with reference.map.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from pathlib import Path

import numpy as np
from onnx import ModelProto, ValueInfoProto

from runner.judgment import UsageError
from runner.model.files.candidate_store import Store
from runner.model.graph.graph_index import Graph
from runner.model.values import recorded
from runner.model.values.dtypes import FLOATS
from runner.model.values.recorded import TensorFile
from runner.model.values.tensor_bytes import beyond
from runner.reference.align import Matching
from runner.reference.fingerprints import Weights, agree, print_of, prints_of
from runner.reference.good_values import good_value, scales
from runner.reference.quantized import Reading, as_floats, readings
from runner.reference.recording import PACK, Narrow, Recorded
from runner.reference.tensor_pairs import SCALING, FingerprintedGraph, How, Partner, reshaped, unscaled
from runner.samples.declared_inputs import tensor, type_name

# A model of which every node is given good values: what it then makes says whether it is right, whatever is upstream.
#
# Tensors with a good value become inputs of the model, and what their nodes make gets another name. One run of that
# model shows all nodes side by side (teacher forcing, after Williams and Zipser, 1989). What comes out right then
# says, too, which tensors without a partner hold what can be trusted.


@dataclass(frozen=True, eq=False)
class Forced:
    """``made``: what a tensor with a good value is called where its own node makes it, by its name."""

    graph: Graph
    made: dict[str, str]


def forced(graph: Graph, given: Collection[str]) -> Forced:
    """Return the model with the tensors ``given`` as inputs, initializers too."""
    model = ModelProto()
    model.CopyFrom(graph.model)
    mark = "/made"
    taken = {*graph.producers, *graph.inputs, *graph.initializers}
    while any(f"{name}{mark}" in taken for name in given):
        mark += "_"
    made = {name: f"{name}{mark}" for name in graph.producers if name in given}
    for node in model.graph.node:
        node.output[:] = [made.get(name, name) for name in node.output]
    model.graph.input.extend(ValueInfoProto(name=name) for name in made)
    weights = {name for name in graph.initializers if name in given}
    if weights:
        own = [one for one in model.graph.initializer if one.name not in weights]
        del model.graph.initializer[:]
        model.graph.initializer.extend(own)
        model.graph.input.extend(ValueInfoProto(name=name) for name in weights - {*graph.overridable})
    kept = [value for value in model.graph.value_info if value.name not in made]
    del model.graph.value_info[:]
    model.graph.value_info.extend(kept)
    outputs = [value for value in model.graph.output if value.name not in made]
    del model.graph.output[:]
    model.graph.output.extend(outputs)
    return Forced(Graph.of(model), made)


def doubtful(graph: Graph, partnered: Collection[str], right: Collection[str]) -> tuple[str, ...]:
    """Return the tensors without a partner on which something wrong depends and nothing that is right, in order.

    ``partnered``: the tensors with a partner. ``right``: those of them that come out right on good values.
    """
    fine: set[str] = set()
    bad: set[str] = set()
    for node in reversed(graph.nodes):
        for name in node.outputs:
            if name in partnered:
                continue
            outs = [out for index in graph.readers.get(name, ()) for out in graph.nodes[index].outputs]
            if any(out in right or out in fine for out in outs):
                fine.add(name)
            elif any(out in partnered or out in bad for out in outs):
                bad.add(name)
    return tuple(name for node in graph.nodes for name in node.outputs if name in bad)


def restored(
    graph: Graph,
    name: str,
    good: Sequence[Mapping[str, TensorFile]],
    made: Sequence[Mapping[str, TensorFile]],
    weights: Weights,
) -> bool:
    """Whether ``name`` is what a node that quantizes makes of a good value, which its scale and zero point give back.

    False where that cannot be said: another operator, no good value before it.
    """
    proto = graph.protos[graph.producers[name]]
    told = readings(proto, {}, weights.array).get(name, []) if proto.op_type == "QuantizeLinear" else []
    if not told and proto.op_type != "DynamicQuantizeLinear":
        return False
    for before, after in zip(good, made, strict=True):
        if proto.input[0] not in before or not after.keys() >= {*proto.output}:
            return False
        steps, *beside = (recorded.read(after[one]) for one in proto.output)
        reading = Reading(*beside) if beside else told[0]
        back, kind = reading.floats(steps), FLOATS.get(after[proto.output[0]].dtype)
        rounding = 2.0**-kind.digits if kind else 0.0  # of 8 bits it is more than what tells two tensors apart
        if not agree(print_of([back]), print_of([recorded.read(before[proto.input[0]])]), rounding):
            return False
    return True


MOST_RUNS = 12
"""How often the child's nodes run on good values: each time what they make may tell of further partners."""
MOST_OPENED = 8
"""Runs in which the tensors after added nodes are left to the model: each time one more after each of them."""
MOST_MISNAMED, LEAST_MISNAMED = 0.3, 3
"""Share and number of partners by name that may be wrong on good values before no name counts any more."""

Samples = tuple[Mapping[str, TensorFile], ...]
Record = Callable[[Graph, Store, Path, Sequence[Mapping[str, TensorFile]]], Recorded]
"""Runs a graph with weights of a store, all tensors shown; what it writes goes into the folder."""


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

    def _misnamed(self, partners: Mapping[str, Partner], run: _Forced) -> bool:
        """Whether names mislead: numbers, say, that an exporter gave anew. A culprit makes no such difference.

        What is far from its namesake and near no other tensor is computed coarsely (4 bits), and has its partner.
        """
        now = self._now(run)
        shown = now.prints.keys() & run.made[0].keys()
        by_name = {name: one for name, one in partners.items() if one.how is How.name and name in shown}
        named = {name: one for name, one in by_name.items() if one.tensor in self._elder.prints}
        far = [name for name, one in named.items() if not self._alike(now, name, one)]
        wrong = sum(bool(self._elder.by_value.near(now.prints[name])) for name in far)
        return wrong >= LEAST_MISNAMED and wrong > MOST_MISNAMED * len(named)

    def _matching(self, child: FingerprintedGraph, partners: Mapping[str, Partner]) -> Matching:
        return Matching(child, self._elder, dict(partners), self._alone, self._loose, named=self._named)

    def _between_added(self, partners: Mapping[str, Partner], run: _Forced) -> frozenset[str]:
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

    def _scaled_before(self, partners: Mapping[str, Partner], run: _Forced) -> frozenset[str]:
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

    def _now(self, run: _Forced) -> FingerprintedGraph:
        """Return the child as it runs on good values."""
        prints = {**self._younger.prints, **prints_of(run.made, self.child.graph.producers, self._readings)}
        return replace(self._younger, prints=prints)

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
        weights: dict[str, TensorFile | None] = {}
        samples = []
        for at, ran in enumerate(self.child.values):
            sample = {name: value for name, value in ran.items() if name in graph.inputs}
            for place, (name, partner) in enumerate(partners.items()):
                value = self._value(partner.tensor, at, folder, weights) if name in graph.producers else None
                own = ran.get(name)
                if value is not None and (not partner.reshaped or own is not None):
                    dtype, path = self._dtype(name, value), folder / f"{at}_{place}.pb"
                    readings, narrow = self._readings.get(name, ()), self._held(name, dtype)
                    if narrow != dtype:
                        once = good_value(value, name, narrow, own, path, reshaped=partner.reshaped)
                        value = value if once.unfit else once.file
                    one = good_value(value, name, dtype, own, path, reshaped=partner.reshaped, readings=readings)
                    sample[name] = recorded.pack(one.file, folder / f"{at}.pack", PACK)
                    unfit |= {name: one.unfit} if one.unfit else {}
            samples.append(sample)
        good = tuple(samples)
        one_of_each = forced(graph, self._everywhere(good))
        return _Forced(good, unfit, self._made(one_of_each, self.child.store, folder / "run", good))

    def _made(self, one_of_each: Forced, store: Store, folder: Path, good: Samples) -> Samples:
        """Return what the nodes of a model make of good values, by the tensor's own name."""
        found = self.record(one_of_each.graph, store, folder, good).values
        graph = one_of_each.graph
        names = {own: name for name, own in one_of_each.made.items()}
        return tuple({names.get(own, own): sample[own] for own in graph.producers if own in sample} for sample in found)

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

    def _descent(self, partners: Mapping[str, Partner], run: _Forced) -> ParentValues:
        graph = self.child.graph
        held = {name: one for name, one in partners.items() if name in self._everywhere(run.good)}
        right = self._right(held, run)
        doubts = {
            name
            for name in doubtful(graph, held, right)
            if not restored(graph, name, run.good, run.made, self._younger.weights)
        }
        narrow, explained = self._too_narrow(held, run, right)
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

    def _too_narrow(
        self, partners: Mapping[str, Partner], run: _Forced, right: frozenset[str]
    ) -> tuple[dict[str, Narrow], frozenset[str]]:
        """Return the tensors whose type is too narrow for their good value, and those that are off for that alone.

        The parent shows it: with rounded values and weights in place of its own it makes what the child's node makes.
        A value rounded there makes it wrong by itself; or one before, of which the parent computes all that follows.
        """
        graph, theirs = self.child.graph, self.parent.graph
        wrong = {
            name: reads
            for node in graph.nodes
            if (reads := [read for read in dict.fromkeys(node.inputs) if self._is_rounded(read, partners, run)])
            for name in node.outputs
            if name in partners and name not in right and partners[name].tensor in theirs.producers
        }
        made = self._parent_makes({*chain(*wrong.values())}, partners, run, weights_of=wrong) if wrong else ()
        explained = [name for name in wrong if self._same(name, partners, run.made, made)]
        readers, at = dict[str, dict[int, frozenset[int]]](), graph.producers
        asked: _Asked = defaultdict(lambda: defaultdict(frozenset))
        for name in explained:
            for read in wrong[name]:
                asked[read][at[name]] |= {name}
        for _ in range(MOST_RUNS):
            together = _apart(asked)
            made = self._parent_makes(together, partners, run, computed=readers) if together else ()
            for read, by in together.items():
                off = {
                    reader: frozenset(one for one in ends if not self._same(one, partners, run.good, made))
                    for reader, ends in by.items()
                }
                known = readers.get(read, {})
                new = {
                    reader: known.get(reader, frozenset()) | {at[one] for one in ends}
                    for reader, ends in off.items()
                    if ends
                }
                if new.items() <= known.items():
                    continue
                readers[read] = {**known, **new}
                for one in graph.nodes[at[read]].inputs:
                    if self._is_rounded(one, partners, run):
                        asked[one][at[read]] |= frozenset().union(*off.values())
        found = {name: Narrow(type_name(self._held(name, run.good[0][name].dtype)), by) for name, by in readers.items()}
        by_that = [name for name in explained if any(at[name] in readers.get(read, ()) for read in wrong[name])]
        return found, frozenset(by_that)

    def _is_rounded(self, name: str, partners: Mapping[str, Partner], run: _Forced) -> bool:
        """Whether a float tensor has a partner in a wider type, whose values it holds rounded."""
        one = partners.get(name)
        if one is None or name in self._readings or name in run.unfit or name not in run.good[0]:
            return False
        held = [FLOATS.get(values[one.tensor].dtype) for values in self.parent.values if one.tensor in values]
        own = FLOATS.get(self._held(name, run.good[0][name].dtype))
        computed = name in self.child.graph.producers
        return bool(own and computed and held) and all(kind and own and kind.digits > own.digits for kind in held)

    def _held(self, name: str, dtype: int) -> int:
        """Return the type whose digits a tensor of this type has: after a Cast to a wider one, that before it."""
        graph = self.child.graph
        node = graph.nodes[graph.producers[name]] if name in graph.producers else None
        if node is None or node.op_type != "Cast" or node.domain or name not in self.child.values[0]:
            return dtype
        before = self.child.values[0].get(node.inputs[0])
        known = self._held(node.inputs[0], before.dtype) if before is not None else dtype
        own, other = FLOATS.get(dtype), FLOATS.get(known)
        return known if own and other and other.digits < own.digits else dtype

    def _parent_makes(
        self,
        names: Collection[str],
        partners: Mapping[str, Partner],
        run: _Forced,
        *,
        computed: Collection[str] = (),
        weights_of: Collection[str] = (),
    ) -> Samples:
        """Return what the parent's nodes make of its own values, but of the child's for these tensors.

        ``computed``: tensors whose partners it computes. ``weights_of``: of what makes these they are rounded too.
        """
        theirs = self.parent
        own = {partners[name].tensor for name in computed} - {partners[name].tensor for name in names}
        given = {one.tensor for one in partners.values()} & theirs.graph.producers.keys()
        given = given & self._everywhere(theirs.values) - own
        folder, samples = self._folder("narrow"), []
        kinds = {self._held(name, run.good[0][name].dtype) for name in names}
        makes = [partners[name].tensor for name in weights_of] if len(kinds) == 1 else []
        held = self._rounded_weights(makes, given, kinds.pop(), folder) if makes else {}
        for at, (values, good) in enumerate(zip(theirs.values, run.good, strict=True)):
            sample = {name: values[name] for name in (*theirs.graph.inputs, *given) if name in values} | held
            for place, name in enumerate(sorted(names)):
                tensor = partners[name].tensor
                value, path = values[tensor], folder / f"{at}_{place}.pb"
                sample[tensor] = good_value(good[name], tensor, value.dtype, value, path, reshaped=True).file
            samples.append(sample)
        return self._made(forced(theirs.graph, {*given, *held}), theirs.store, folder / "run", tuple(samples))

    def _rounded_weights(
        self, makes: Sequence[str], given: Collection[str], dtype: int, folder: Path
    ) -> dict[str, TensorFile]:
        """Return the weights that the parent makes tensors of, from given ones on, rounded to the child's type."""
        graph, waiting, seen, found = self.parent.graph, [*makes], set[str](), dict[str, TensorFile]()
        while waiting:
            node = graph.nodes[graph.producers[waiting.pop()]]
            new = {*node.inputs} - seen
            seen |= new
            waiting += [name for name in new if name in graph.producers and name not in given]
            for name in new & graph.initializers.keys():
                array, path = self._elder.weights.array(name), folder / f"weight{len(found)}.pb"
                if array is not None and array.dtype == np.float32 and not beyond(array, dtype).any():
                    rounded = recorded.read(recorded.write(tensor(array, name, dtype), name, path))
                    found[name] = recorded.write(rounded.astype(array.dtype), name, path)
        return found

    def _same(self, name: str, partners: Mapping[str, Partner], mine: Samples, theirs: Samples) -> bool:
        """Whether a tensor of the child passes against what the parent makes of its partner, in all samples."""
        tensor, folder = partners[name].tensor, self._folder("same")
        return all(
            name in one
            and tensor in other
            and self.passes(
                one[name],
                good_value(
                    other[tensor],
                    name,
                    one[name].dtype,
                    one[name],
                    folder / f"{at}.pb",
                    reshaped=partners[name].reshaped,
                ).file,
            )
            for at, (one, other) in enumerate(zip(mine, theirs, strict=True))
        )

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


_Asked = dict[str, dict[int, frozenset[str]]]
"""Tensors, the nodes that read them, and what may be wrong for that."""


def _apart(asked: _Asked) -> _Asked:
    """Take out what one run tells apart, since no two tensors share what may be wrong."""
    together, seen = dict[str, dict[int, frozenset[str]]](), set[str]()
    for read in list(asked):
        ends = frozenset().union(*asked[read].values())
        if seen.isdisjoint(ends):
            together[read] = asked.pop(read)
        seen |= ends
    return together
