"""A converted child and its parent: what the child's tensors should hold, as the parent tells.

The parent and the child run once each, partners are looked for, and then every node of the child runs on good values
(see ``teacher_forcing``): where its value tells of another partner, that one is taken, and they run again. A tensor
without a partner gets the value that its node makes of good ones. That value can be trusted if a tensor with a partner
which depends on it comes out right; if not, the culprit may be on either side of it, and there is no good value to cut
at. Users may say more with reference.map.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path

import numpy as np

from runner.exit_codes import UsageError
from runner.model.values import recorded
from runner.model.values.dtypes import FLOATS
from runner.model.values.recorded import TensorFile
from runner.model.values.tensor_bytes import beyond
from runner.reference.align import RESHAPING, Matching, to_be_cut
from runner.reference.fingerprints import Fingerprint, Weights, agree, distance, prints_of
from runner.reference.good_values import beside_mask, good_value
from runner.reference.quantized import as_floats
from runner.reference.recording import PACK, Narrow, weight_bytes
from runner.reference.teacher_forcing import (
    ForcedRun,
    Record,
    RecordedModel,
    Samples,
    doubtful,
    everywhere,
    forced,
    made_of,
    only,
    restored,
)
from runner.reference.tensor_pairs import FingerprintedGraph, How, Partner, reshaped
from runner.reference.undone import Undone
from runner.samples.declared_inputs import tensor, type_name

# Tensors of a converted model whose type loses digits that are needed, as its parent shows.
#
# A good value is rounded to the type of the child's tensor. Given the rounded value in place of its own, the parent may
# come out wrong too: then no node of the child is at fault, but the type is.

MOST_STEPS_UP = 12
"""Runs of the parent's nodes around what is wrong: each goes one node further up."""

_Asked = dict[str, dict[int, frozenset[str]]]
"""Tensors, the nodes that read them, and what may be wrong for that."""


def held_type(child: RecordedModel, name: str, dtype: int) -> int:
    """Return the type whose digits a tensor of this type has: after a Cast to a wider one, that before it."""
    graph = child.graph
    node = graph.producer(name)
    if node is None or node.op_type != "Cast" or node.domain or name not in child.values[0]:
        return dtype
    before = child.values[0].get(node.inputs[0])
    known = held_type(child, node.inputs[0], before.dtype) if before is not None else dtype
    own, other = FLOATS.get(dtype), FLOATS.get(known)
    return known if own and other and other.digits < own.digits else dtype


@dataclass
class NarrowTypes:
    """Asks the parent. ``weights``: the parent's; ``partners``, ``run``: of the child; ``passes``: see `Lineage`.

    ``folder``: makes one.
    """

    child: RecordedModel
    parent: RecordedModel
    weights: Weights
    partners: Mapping[str, Partner]
    run: ForcedRun
    record: Record
    passes: Callable[[TensorFile, TensorFile], bool]
    folder: Callable[[str], Path]

    def find(self, right: Collection[str], integers: Collection[str]) -> tuple[dict[str, Narrow], frozenset[str]]:
        """Return the tensors whose type has too few digits for their good value, and those that are off for that alone.

        The parent shows it: with rounded values and weights in place of its own it makes what the child's node makes.
        A value rounded there makes it wrong by itself; or one before, of which the parent computes all that follows.
        ``right``: tensors that come out right. ``integers``: those that hold steps of their partners' values.
        """
        graph, theirs, partners = self.child.graph, self.parent.graph, self.partners
        rounded = {name for name in partners if name not in integers and self._is_rounded(name)}
        wrong = {
            name: reads
            for node in graph.nodes
            if (reads := [read for read in dict.fromkeys(node.inputs) if read in rounded])
            for name in node.outputs
            if name in partners and name not in right and partners[name].tensor in theirs.producers
        }
        made = self._parent_makes({*chain(*wrong.values())}, wrong, weights=True) if wrong else ()
        explained = [name for name in wrong if self._same(name, self.run.made, made, wrong[name])]
        readers, at = dict[str, dict[int, frozenset[int]]](), graph.producers
        asked: _Asked = defaultdict(lambda: defaultdict(frozenset))
        for name in explained:
            for read in wrong[name]:
                asked[read][at[name]] |= {name}
        for _ in range(MOST_STEPS_UP):
            if not (together := _apart(asked)):
                break
            ends = {name for by in together.values() for name in chain(*by.values())}
            made = self._parent_makes(together, ends, computed=readers)
            for read, by in together.items():
                off = {
                    reader: frozenset(one for one in some if not self._same(one, self.run.good, made, [read]))
                    for reader, some in by.items()
                }
                known = readers.get(read, {})
                new = {
                    reader: known.get(reader, frozenset()) | {at[one] for one in some}
                    for reader, some in off.items()
                    if some
                }
                if new.items() <= known.items():
                    continue
                readers[read] = {**known, **new}
                for one in rounded.intersection(graph.nodes[at[read]].inputs):
                    asked[one][at[read]] |= frozenset().union(*off.values())
        found = {name: Narrow(type_name(self._type(name)), by) for name, by in readers.items()}
        by_that = [name for name in explained if any(at[name] in readers.get(read, ()) for read in wrong[name])]
        return found, frozenset(by_that)

    def _type(self, name: str) -> int:
        return held_type(self.child, name, self.run.good[0][name].dtype)

    def _is_rounded(self, name: str) -> bool:
        """Whether a float tensor has a partner in a wider type, whose values it holds rounded."""
        if name in self.run.unfit or name not in self.run.good[0] or name not in self.child.graph.producers:
            return False
        theirs = self.partners[name].tensor
        held = [FLOATS.get(values[theirs].dtype) for values in self.parent.values if theirs in values]
        own = FLOATS.get(self._type(name))
        return bool(own and held) and all(kind and own and kind.digits > own.digits for kind in held)

    def _parent_makes(
        self, names: Collection[str], ends: Iterable[str], *, computed: Collection[str] = (), weights: bool = False
    ) -> Samples:
        """Return what the parent's nodes make of its own values, but of the child's for these tensors.

        ``ends``: whose partners are wanted. ``computed``: tensors whose partners it computes. ``weights``: of what
        makes the ends they are rounded too.
        """
        theirs, partners = self.parent, self.partners
        own = {partners[name].tensor for name in computed} - {partners[name].tensor for name in names}
        given = {one.tensor for one in partners.values()} & theirs.graph.producers.keys()
        given = given & everywhere(theirs.values) - own
        makes, folder = [partners[name].tensor for name in ends], self.folder("narrow")
        kinds = {self._type(name) for name in names} if weights else set[int]()
        held = self._rounded_weights(makes, given, kinds.pop(), folder) if len(kinds) == 1 else {}
        wanted = only(forced(theirs.graph, {*given, *held}), makes)
        samples = []
        for at, (values, good) in enumerate(zip(theirs.values, self.run.good, strict=True)):
            known = {**values, **held}
            for place, name in enumerate(sorted(names)):
                value, path = values[partners[name].tensor], folder / f"{at}_{place}.pb"
                known[value.name] = good_value(good[name], value.name, value.dtype, value, path, reshaped=True).file
            samples.append({name: known[name] for name in wanted.graph.inputs if name in known})
        return made_of(self.record, wanted, theirs.store, folder / "run", tuple(samples))

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
                array, path = self.weights.array(name), folder / f"weight{len(found)}.pb"
                if array is not None and array.dtype == np.float32 and not beyond(array, dtype).any():
                    rounded = recorded.read(recorded.write(tensor(array, name, dtype), name, path))
                    found[name] = recorded.write(rounded.astype(array.dtype), name, path)
        return found

    def _same(self, name: str, mine: Samples, theirs: Samples, rounded: Collection[str]) -> bool:
        """Whether a tensor of the child passes against what the parent makes of its partner, in all samples.

        ``rounded``: tensors read there. Of a node that only hands such a tensor on, a Cast say, the parent has none.
        """
        partner, folder = self.partners[name], self.folder("same")
        handed = next((one for one in rounded if self.partners[one].tensor == partner.tensor), None)
        source, others = (partner.tensor, theirs) if handed is None else (handed, self.run.good)

        def passes(own: TensorFile, other: TensorFile, path: Path) -> bool:
            good = good_value(other, name, own.dtype, own, path, reshaped=partner.reshaped)
            return self.passes(own, good.file)

        return all(
            name in one and source in other and passes(one[name], other[source], folder / f"{at}.pb")
            for at, (one, other) in enumerate(zip(mine, others, strict=True))
        )


def _apart(asked: _Asked) -> _Asked:
    """Take out what one run tells apart, since no two tensors share what may be wrong."""
    together, seen = dict[str, dict[int, frozenset[str]]](), set[str]()
    for read in list(asked):
        ends = frozenset().union(*asked[read].values())
        if seen.isdisjoint(ends):
            together[read] = asked.pop(read)
        seen |= ends
    return together


EXACT = 2.0**-9
"""Part of the largest number by which a tensor may be off that shows what it is made of to be right."""
MOST_RUNS = 12
"""How often the child's nodes run on good values: each time what they make may tell of further partners."""
_MOVES = RESHAPING | {"Transpose"}
"""Operators that make nothing wrong of a right value, unless they move its elements otherwise."""
MOST_READ = 4 << 30
"""Bytes of weights that runs may read which ask what is undone later."""
LEAST_MISNAMED = 2
"""Nodes that are wrong on good values before partners are looked for without names as well."""
_AS_MANY = 0.9
"""Part of the tensors with a partner by names that have one without, if that is to count."""


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
    _read: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        mine, theirs = self.child.graph, self.parent.graph
        held = prints_of(self.parent.values, [*theirs.inputs, *theirs.producers])
        self._elder = FingerprintedGraph(theirs, held, Weights(theirs, self.parent.store))
        told = as_floats(mine, Weights(mine, self.child.store).array)
        self._readings = told.readings
        free = prints_of(self.child.values, [*mine.inputs, *mine.producers], told.readings)
        weights = Weights(mine, self.child.store, told.readings)
        self._younger = FingerprintedGraph(told.graph, free, weights)
        self._loose = reshaped(self._younger, self._elder)
        self._named = True
        self._alone = self._told_alone = frozenset(name for name, partner in self.told.items() if partner is None)

    def descend(self) -> ParentValues:
        """Find partners and good values: with names or, but for those of outputs, without.

        An exporter may number names anew, and a tensor may have another one's name. Then nodes that are right seem
        wrong where partners by name meet others. So what leaves fewer nodes wrong, and fewer tensors undone, counts.
        Raises UsageError if no output of the child has a partner.
        """
        first = self._first()
        if cut := to_be_cut(self._younger, self._elder, first):
            self._younger = replace(self._younger, cut=cut)
            first = self._first()
        named = self._descended(first)
        off = len(named.wrong) + len(self._alone - self._told_alone)
        if off < LEAST_MISNAMED:
            return named
        self._named, self._alone = False, self._told_alone
        ends = {name: one for name in self.child.graph.outputs if (one := first.get(name)) and one.how is How.name}
        unnamed = self._first(ends)
        if _told(unnamed) == _told(first) or not self._knows_an_output(unnamed):
            return named
        free = self._descended(unnamed)
        as_many = len(free.partners) >= _AS_MANY * len(named.partners)
        return free if as_many and len(free.wrong) + len(self._alone - self._told_alone) < off else named

    def _knows_an_output(self, partners: Mapping[str, Partner]) -> bool:
        known = {one.how for name, one in partners.items() if name in self.child.graph.producers}
        by_place = self._loose and known == {How.position}
        return any(name in partners for name in self.child.graph.outputs) and not by_place

    def _descended(self, partners: dict[str, Partner]) -> ParentValues:
        if not self._knows_an_output(partners):
            raise self._strangers()
        run = self._force(partners)
        for _ in range(MOST_RUNS):
            revised = self._matching(self._now(run), partners).find()
            if _told(revised) == _told(partners):
                undone = self._undone(partners, run)
                if not undone:
                    break
                self._alone |= undone
                revised = {name: one for name, one in partners.items() if name not in undone}
            partners = revised
            run = self._force(partners)
        for _ in range(MOST_RUNS):
            moved = {**partners, **self._before_moves(partners, run)}
            again = self._force(moved) if moved != partners else run
            if again is run or len(self._right(moved, again)) < len(self._right(partners, run)):
                break
            partners, run = moved, again
        return self._descent(partners, run)

    # ---- partners

    def _before_moves(self, partners: Mapping[str, Partner], run: ForcedRun) -> dict[str, Partner]:
        """Return the partners of what nodes read that only move elements, and still come out wrong.

        Such a node makes nothing wrong of right values. What it reads was paired by its numbers, which are those of an
        earlier tensor of the parent, where the child leaves something out before the node.
        """
        right, found, graph = self._right(partners, run), dict[str, Partner](), self.child.graph
        for node in graph.nodes:
            made = partners.get(node.outputs[0]) if node.op_type in _MOVES else None
            other = self._elder.graph.producer(made.tensor) if made else None
            known = partners.get(node.inputs[0]) if node.inputs else None
            if other is None or known is None or other.op_type != node.op_type or node.outputs[0] in right:
                continue
            name, theirs = node.inputs[0], other.inputs[0]
            alone = len(graph.readers[name]) == 1 and name not in graph.output_set
            mine, good = self._younger.prints.get(name), self._elder.prints.get(theirs)
            left_out = known.tensor != theirs and self._elder.depends(theirs, known.tensor)
            if left_out and alone and known.how in (How.value, How.position) and mine and good:
                found |= {name: Partner(theirs, How.position)} if mine.shapes == good.shapes else {}
        return found

    def _first(self, ends: Mapping[str, Partner] | None = None) -> dict[str, Partner]:
        """Return the partners that the map, names, structure and one run of each model tell. ``ends``: of outputs."""
        known = {name: Partner(partner, How.map) for name, partner in self.told.items() if partner is not None}
        known = {**(ends or {}), **known}
        for partner, name in self.inputs.items():
            known.setdefault(name, Partner(partner, How.name if name == partner else How.position))
        first = self._matching(self._younger, known)
        first.find()
        first.place_outputs()
        return dict(first.find())

    def _matching(self, child: FingerprintedGraph, partners: Mapping[str, Partner]) -> Matching:
        return Matching(child, self._elder, dict(partners), self._alone, self._loose, named=self._named)

    def _undone(self, partners: Mapping[str, Partner], run: ForcedRun) -> frozenset[str]:
        """Return the tensors that hold something else than their partners, which is undone later."""
        graph = self.child.graph
        free = {name for name in graph.producers if name in partners and partners[name].how is not How.map}
        free -= graph.output_set | run.unfit.keys()
        right = self._right(partners, run)
        return Undone(graph, partners, free, right, lambda opened, ends: self._left_to_itself(opened, ends, run)).find()

    def _left_to_itself(
        self, opened: Collection[str], ends: Collection[str], run: ForcedRun
    ) -> tuple[frozenset[str], frozenset[str]]:
        """Return those of the ends that come out right if some tensors are left to what the child makes, and nearer.

        Right is what passes and is as near to its good value as on good ones, or so much nearer as no rounding is.
        """
        given = tuple({name: one for name, one in sample.items() if name not in opened} for sample in run.good)
        asked = only(forced(self.child.graph, everywhere(given)), ends)
        self._read += weight_bytes(asked.graph, range(len(asked.graph.nodes)))
        if self._read > MOST_READ:
            return frozenset(), frozenset()
        feeds = tuple({name: sample[name] for name in asked.graph.inputs if name in sample} for sample in given)
        made = made_of(self.record, asked, self.child.store, self._folder("opened"), feeds)
        known = {name for name in ends if all(name in sample for sample in made)}
        fed, now, good = (prints_of(one, known, self._readings) for one in (run.made, made, run.good))
        was, passes = self._right(known, run), self._right(known, replace(run, made=made))
        before, after = ({name: _off(one[name], good[name]) for name in known & now.keys()} for one in (fed, now))
        near = {name for name, off in after.items() if off <= max(EXACT, before[name] * (2 if name in was else 0.25))}
        half = {name for name, off in after.items() if name not in was and off <= before[name] / 2}
        fine = passes & (near | (known - after.keys()))
        return fine, frozenset(half) - fine

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
            for name in doubtful(graph, held, right & self._exact(right, run))
            if not restored(graph, name, run.good, run.made, self._younger.weights)
        }
        sides = self.child, self.parent, self._elder.weights
        types = NarrowTypes(*sides, held, run, self.record, self.passes, self._folder)
        narrow, explained = types.find(right, self._readings)
        reasons = dict(run.unfit)
        right |= explained
        for name in graph.producers:
            if name in held:
                continue
            if any(name not in sample for sample in run.made):
                reasons[name] = f"no good value is known for {name!r}: it has no partner in reference.model"
            elif name in doubts:
                others = "the values after it differ from those of their partners"
                reasons[name] = f"no good value is known for {name!r}: it has no partner, and {others}"
        both = tuple({**made, **good} for made, good in zip(run.made, run.good, strict=True))
        wrong = tuple(
            node.name for node in graph.nodes if any(name in held and name not in right for name in node.outputs)
        )
        alone = tuple(name for name in graph.producers if name not in held)
        return ParentValues(both, held, reasons, alone, wrong, frozenset(self._readings), narrow)

    def _right(self, partners: Collection[str], run: ForcedRun) -> frozenset[str]:
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

    def _exact(self, names: Collection[str], run: ForcedRun) -> frozenset[str]:
        """Return those of some tensors that differ from their good values by no more than floats of 16 bits round off.

        A check may allow more. What is before such a tensor, and has no partner, then holds that error, and is not
        right: what reads it would be blamed for it.
        """
        made, good = (prints_of(one, names, self._readings) for one in (run.made, run.good))
        return frozenset(name for name in names if name not in made or distance(made[name], good[name]) <= EXACT)

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


def _off(mine: Fingerprint, good: Fingerprint) -> float:
    """Return how far two prints are apart, beside a mask."""
    left = beside_mask(good.numbers)
    if left is not None and mine.numbers.shape == good.numbers.shape:
        mine, good = (replace(one, numbers=one.numbers[left]) for one in (mine, good))
    return distance(mine, good)


def _told(partners: Mapping[str, Partner]) -> dict[str, str]:
    return {name: one.tensor for name, one in partners.items()}
