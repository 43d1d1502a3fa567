"""Tensors of a converted model whose type loses digits that are needed, as its parent shows.

A good value is rounded to the type of the child's tensor. Given the rounded value in place of its own, the parent may
come out wrong too: then no node of the child is at fault, but the type is.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path

import numpy as np

from runner.model.values import recorded
from runner.model.values.dtypes import FLOATS
from runner.model.values.recorded import TensorFile
from runner.model.values.tensor_bytes import beyond
from runner.reference.fingerprints import Weights
from runner.reference.good_values import good_value
from runner.reference.recording import Narrow
from runner.reference.teacher_forcing import (
    ForcedRun,
    Record,
    RecordedModel,
    Samples,
    everywhere,
    forced,
    made_of,
    only,
)
from runner.reference.tensor_pairs import Partner
from runner.samples.declared_inputs import tensor, type_name

MOST_RUNS = 12
"""Runs of the parent's nodes around what is wrong: each goes one node further up."""

_Asked = dict[str, dict[int, frozenset[str]]]
"""Tensors, the nodes that read them, and what may be wrong for that."""


def held_type(child: RecordedModel, name: str, dtype: int) -> int:
    """Return the type whose digits a tensor of this type has: after a Cast to a wider one, that before it."""
    graph = child.graph
    node = graph.nodes[graph.producers[name]] if name in graph.producers else None
    if node is None or node.op_type != "Cast" or node.domain or name not in child.values[0]:
        return dtype
    before = child.values[0].get(node.inputs[0])
    known = held_type(child, node.inputs[0], before.dtype) if before is not None else dtype
    own, other = FLOATS.get(dtype), FLOATS.get(known)
    return known if own and other and other.digits < own.digits else dtype


@dataclass
class NarrowTypes:
    """Asks the parent. ``weights``: the parent's; ``partners``, ``run``: of the child; ``passes``: see `Lineage`."""

    child: RecordedModel
    parent: RecordedModel
    weights: Weights
    partners: Mapping[str, Partner]
    run: ForcedRun
    record: Record
    passes: Callable[[TensorFile, TensorFile], bool]
    folder: Path
    _runs: int = field(default=0, init=False)

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
        explained = [name for name in wrong if self._same(name, self.run.made, made)]
        readers, at = dict[str, dict[int, frozenset[int]]](), graph.producers
        asked: _Asked = defaultdict(lambda: defaultdict(frozenset))
        for name in explained:
            for read in wrong[name]:
                asked[read][at[name]] |= {name}
        for _ in range(MOST_RUNS):
            if not (together := _apart(asked)):
                break
            ends = {name for by in together.values() for name in chain(*by.values())}
            made = self._parent_makes(together, ends, computed=readers)
            for read, by in together.items():
                off = {
                    reader: frozenset(one for one in some if not self._same(one, self.run.good, made))
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
        makes, folder = [partners[name].tensor for name in ends], self._folder("narrow")
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

    def _same(self, name: str, mine: Samples, theirs: Samples) -> bool:
        """Whether a tensor of the child passes against what the parent makes of its partner, in all samples."""
        partner, folder = self.partners[name], self._folder("same")

        def passes(own: TensorFile, other: TensorFile, path: Path) -> bool:
            good = good_value(other, name, own.dtype, own, path, reshaped=partner.reshaped)
            return self.passes(own, good.file)

        return all(
            name in one and partner.tensor in other and passes(one[name], other[partner.tensor], folder / f"{at}.pb")
            for at, (one, other) in enumerate(zip(mine, theirs, strict=True))
        )

    def _folder(self, stem: str) -> Path:
        self._runs += 1
        folder = self.folder / f"{stem}{self._runs}"
        folder.mkdir(parents=True)
        return folder


def _apart(asked: _Asked) -> _Asked:
    """Take out what one run tells apart, since no two tensors share what may be wrong."""
    together, seen = dict[str, dict[int, frozenset[str]]](), set[str]()
    for read in list(asked):
        ends = frozenset().union(*asked[read].values())
        if seen.isdisjoint(ends):
            together[read] = asked.pop(read)
        seen |= ends
    return together
