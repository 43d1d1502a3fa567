"""Regions of a quantized model, and the parent's nodes in their place, whatever form quantization has.

A quantized model and its parent (reference.model) share tensors: those of the one with a partner in the other. Between
shared tensors lies a region: nodes of the one model that do what nodes of the other do. Where low precision is in a
region of the quantized model, that region is an element of the search: raised, it is replaced by the parent's nodes
between the partners of the same tensors, with the parent's weights. So one rule covers Q/DQ pairs, MatMulNBits,
DynamicQuantizeLinear with MatMulInteger, QLinearConv, quantized attention, and whatever else computes the same.

Models of QLinear operators hold integers between their nodes, where the parent holds floats. The scale and zero point
of such a tensor stand beside it wherever it is read, so that a DequantizeLinear (`with_floats`) shows the float that it
stands for, a tensor like any other. Where that is raised, a QuantizeLinear makes the integers for readers that are low.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

from onnx import ModelProto, NodeProto, TensorProto, defs, helper
from onnx.numpy_helper import to_array

from runner.exit_codes import NotApplicable, UsageError
from runner.jobs.precision.layers import Layer
from runner.jobs.precision.mixer import Mixer
from runner.model.files.read_model import sort_nodes
from runner.model.graph import scopes
from runner.model.graph.cut import remove_dead_nodes, remove_stale_value_info, remove_unused_initializers
from runner.model.graph.edits import copy_of, set_messages
from runner.model.graph.graph_index import Graph, Node
from runner.model.graph.low_precision import (
    apart,
    dequantizing,
    is_quantization,
    is_quantized,
    kinds,
    others_than_pairs,
    pairs_of,
    quantized_nodes,
)
from runner.model.graph.scopes import NameSupply
from runner.model.values import tensor_bytes
from runner.model.values.dtypes import FLOATS
from runner.reference.align import QUANTIZED
from runner.reference.quantized import Array, all_readings
from runner.schema.root import Settings
from runner.schema.strategy import FloatType, PrecisionSettings, chosen

# The file, before anything runs; integers that stand for floats: those between QLinear operators.

GIVEN = "given.onnx"
"""In the model's store: its structure as the user gave it, where floats were added to it."""
_ASK_FLOAT16 = "strategy.low=float16 asks which nodes must not be float16"


def refuse_unknown(model: ModelProto, key: str) -> None:
    """Raise UsageError for nodes that are quantized in a form that is not known. ``key``: what a model is called."""
    functions = {scopes.function_key(function) for function in model.functions}
    nodes = [one for one in quantized_nodes(model) if scopes.call_key(one) not in functions]
    if strange := [one for one in nodes if scopes.domain_of(one.domain) not in ("", "com.microsoft")]:
        raise UsageError(
            f"{key} strategy.low=quantized: this form of quantization is not known: {kinds(strange)}. Known are the "
            f"operators of ONNX and of ONNX Runtime (com.microsoft); {_ASK_FLOAT16}"
        )


def examine(settings: Settings, structure: Path) -> None:
    """Look at a quantized model before anything runs, and add the floats that its integers stand for: `with_floats`.

    Raises NotApplicable where nothing is quantized, UsageError for forms of quantization that want a parent which is
    not there.
    """
    if chosen(settings.strategy, PrecisionSettings).low is not FloatType.quantized:
        return
    model, key = ModelProto.FromString(structure.read_bytes()), f"model={settings.model}"
    if not any(quantized_nodes(model)):
        raise NotApplicable(
            f"{key} strategy.low=quantized: no node of it is quantized, so there is nothing to raise; "
            "strategy.low=float16 asks the same of a model that is not"
        )
    others = others_than_pairs(model)
    if others and not settings.reference.model:
        raise UsageError(
            f"{key} strategy.low=quantized: to put float nodes back in place of {kinds(others)}, the model before "
            f"quantization is needed: --original PATH (reference.model=PATH); {_ASK_FLOAT16}"
        )
    made = with_floats(model) if others else None
    if made is not None:
        structure.with_name(GIVEN).write_bytes(structure.read_bytes())
        structure.write_bytes(made.SerializeToString())


def with_floats(model: ModelProto) -> ModelProto | None:
    """Return the model with a DequantizeLinear behind each tensor of integers that stands for a float; None: no such.

    Left out are those that have one, and those that a QuantizeLinear makes: their float is before that.
    """
    known = integers_of(model)
    more = {name: one for name, one in known.items() if one.shown is None}
    if not more:
        return None
    made, supply = copy_of(model), NameSupply(scopes.names_of(model))
    places = {name: place for place, node in enumerate(model.graph.node) for name in node.output}
    for name in sorted(more, key=places.__getitem__, reverse=True):
        one = more[name]
        float_name = supply.fresh(f"{name}_float")
        node = helper.make_node("DequantizeLinear", [name, one.scale, one.zero], [float_name], name=float_name)
        made.graph.node.insert(places[name] + 1, node)
    return made


@dataclass(frozen=True)
class Integers:
    """A tensor of integers that stands for floats. ``shown``: what a DequantizeLinear makes of it, None: there is none.

    ``scale``, ``zero``: initializers.
    """

    name: str
    scale: str
    zero: str
    shown: str | None = None


def integers_of(model: ModelProto) -> dict[str, Integers]:
    """Return the tensors of integers that stand for floats and that no QuantizeLinear makes, by name.

    Those that only move elements (MaxPool, Reshape) hand on what is said of them.
    """
    nodes, found = model.graph.node, dict[str, Integers]()
    constants = {tensor.name: tensor for tensor in model.graph.initializer if not tensor_bytes.is_external(tensor)}
    makers = {name: node.op_type for node in nodes for name in node.output}
    floats = (node for node in reversed(nodes) if is_quantization(node) and node.op_type == "DequantizeLinear")
    shown = {node.input[0]: node.output[0] for node in floats}

    def held(name: str) -> Array | None:
        return to_array(constants[name]) if name in constants else None

    for name, (told, *_) in all_readings(Graph.of(model), held).items():
        made = makers.get(name, "QuantizeLinear") not in ("QuantizeLinear", "DynamicQuantizeLinear")
        if made and told.scale.size == 1 and all(told.names):
            found[name] = Integers(name, *told.names, shown.get(name))
    return found


# Regions: what lies between tensors that both models have.


@dataclass(frozen=True)
class Region:
    """Nodes of the quantized model, and the parent's that do the same.

    ``makes``: what it makes, each tensor with the parent's. ``place``: of the last node of the quantized model.
    ``nodes``: the names of those that are low, or between Q/DQ pairs. ``layer``: it as an element of a search.
    ``parent``: indices of the parent's nodes, ``main``: of that with most weights. ``weights``: how many numbers the
    parent's weights in it have. ``only_weights``: what it reads is not quantized.
    """

    makes: Mapping[str, str]
    place: int
    nodes: tuple[str, ...]
    layer: Layer
    parent: frozenset[int]
    main: int
    weights: int
    only_weights: bool


@dataclass
class Regions:
    """Finds the regions of a quantized model in which something is low.

    ``model``: with floats for its integers, see `with_floats`. ``types``: element types of its tensors. ``shared``: the
    parent's tensor by the model's. ``lost``: nodes that are low and in no region that can be raised.
    """

    model: ModelProto
    types: Mapping[str, int]
    parent: Graph
    partners: Mapping[str, str]
    parent_types: Mapping[str, int]

    def __post_init__(self) -> None:
        graph = self.model.graph
        self._places = {name: place for place, node in enumerate(graph.node) for name in node.output if name}
        self._reads = [scopes.reads(node) for node in graph.node]
        self._pairs = pairs_of(graph)[0]
        self._constant = Graph.of(self.model).data_independent
        self._low = [any(is_quantized(one, self.types) for one in scopes.all_nodes([node])) for node in graph.node]
        self.integers = integers_of(self.model)
        self.partners = {**self.partners, **dict(self._named_integers())}
        self._opsets = {scopes.domain_of(one.domain): one.version for one in self.model.opset_import}
        self.shared = self._shared()
        while (misled := self._circle()) is not None:
            del self.shared[misled]
        regions = [one for one in map(self._region, self._groups()) if one is not None]
        self.found = tuple(self._named(regions))
        covered = {at for one in self.found for name in one.makes for at in self._cone(name)[0]}
        theirs = {name: _kind(node) for node in self.parent.protos for name in node.output}
        lost = [node for at, node in enumerate(graph.node) if self._low[at] and at not in covered]
        if self.found:  # what the parent has as well is no loss
            lost = [node for node in lost if theirs.get(self.partners.get(node.output[0], "")) != _kind(node)]
        added = {one.shown for one in self.integers.values()}
        self.lost = tuple(node for node in lost if not added & {*node.output})

    @cached_property
    def back(self) -> dict[str, str]:
        """The model's tensor by the parent's."""
        return {theirs: mine for mine, theirs in self.shared.items()}

    @property
    def changes_levels(self) -> bool:
        """Whether what is raised has the weights that it had: each MatMulNBits gets another accuracy level alone."""
        nodes, theirs = self.model.graph.node, self.parent.protos
        both = ([nodes[at.layer.key[1]], theirs[at.main]] for at in self.found)
        bits = ([[one.i for one in node.attribute if one.name == "bits"] for node in pair] for pair in both)
        return {theirs[at.main].op_type for at in self.found} == {"MatMulNBits"} and all(a == b for a, b in bits)

    # ---- tensors that both models have

    def _named_integers(self) -> Iterator[tuple[str, str]]:
        """Yield the floats that integers stand for, each with the parent's tensor of the name that these tell.

        A quantizer leaves out a Relu or a Clip: the integers end there.
        """
        for one in self.integers.values():
            name = one.name.removesuffix(QUANTIZED)
            if one.shown is None or one.shown in self.parent.producers or name not in self.parent.producers:
                continue
            readers = [self.parent.nodes[at] for at in self.parent.readers.get(name, ())]
            limits = len(readers) == 1 and readers[0].op_type in ("Relu", "Clip")
            after = readers[0].outputs[0] if limits else name
            yield one.shown, name if {after, f"{after}{QUANTIZED}"} & self._places.keys() else after

    def _shared(self) -> dict[str, str]:
        """Return the parent's tensor by the model's: of several that are one, the first, before it is quantized."""
        graph, found, taken = self.model.graph, dict[str, str](), set[str]()
        fed = [value.name for value in graph.input]
        inside = {*self.parent.producers, *self.parent.inputs}
        for name in (*fed, *(name for node in graph.node for name in node.output)):
            theirs = self.partners.get(name, "")
            one, other = self.types.get(name), self.parent_types.get(theirs)
            alike = one is not None and (one == other or (one in FLOATS and other in FLOATS))
            if theirs not in inside or theirs in taken or not alike:
                continue
            if name != theirs and theirs in self._places and self.partners.get(theirs) == theirs:
                continue  # by value alone: the tensor before a bias that is small, say
            if self.before_pairs(name) in found or self.before_pairs(name) in fed:
                continue  # its float is known before it was quantized
            if name in self._constant and one in FLOATS:
                continue  # a weight: the parent has its own
            found[name] = theirs
            taken.add(theirs)
        return found

    def before_pairs(self, name: str) -> str:
        """Return what a tensor is that was quantized and back; "" for any other tensor."""
        pair = self._pairs.get(name)
        return (pair.source if pair else None) or ""

    def _circle(self) -> str | None:
        """Return a shared tensor by which a node, raised or not, would depend on itself; None: there is none."""
        self.__dict__.pop("back", None)
        # sorted, so that of several circles the same is found in each process
        above = {name: sorted({*self._cone(name)[1], *self._theirs(self.shared[name])[1]}) for name in self.shared}
        try:
            TopologicalSorter(above).prepare()
        except CycleError as error:
            circle: list[str] = error.args[1]
            return min(circle, key=lambda name: (name == self.shared[name], self._places.get(name, 0)))
        return None

    # ---- nodes between them

    def _cone(self, name: str) -> tuple[set[int], set[str]]:
        """Return the nodes that make a tensor of shared ones, and these."""

        def end(read: str) -> str | None:
            one = self.integers.get(read)
            known = (read, *([one.shown] if one and one.shown and one.shown != name else []))
            return next((one for one in known if one in self.shared), None)

        return _above(name, self._places, self._reads.__getitem__, end)

    def _theirs(self, name: str) -> tuple[set[int], set[str]]:
        """Return the parent's nodes that make a tensor of shared ones, and these, as the model calls them."""
        return _above(name, self.parent.producers, lambda at: self.parent.nodes[at].inputs, self.back.get)

    def _groups(self) -> list[dict[str, str]]:
        """Return the shared tensors of each node, each with the parent's; graph outputs that a pair quantizes too."""
        groups: dict[int, dict[str, str]] = {}
        shown = {one.shown: name for name, one in self.integers.items() if one.shown}
        for name, theirs in self.shared.items():
            at = self._places.get(shown.get(name, name))
            if at is not None and theirs in self.parent.producers:
                groups.setdefault(at, {})[name] = theirs
        for value in self.model.graph.output:
            at = self._places.get(self.before_pairs(value.name), -1)
            if at in groups and self.partners.get(value.name) in self.parent.producers:
                groups[at][value.name] = self.partners[value.name]
        return [groups[at] for at in sorted(groups)]

    def _region(self, makes: dict[str, str]) -> Region | None:
        """Return the region that makes these; None where nothing is low in it, or the parent's nodes do not fit."""
        nodes, ends, above = set[int](), set[str](), set[int]()
        for name, theirs in makes.items():
            (mine, before), (other, more) = self._cone(name), self._theirs(theirs)
            nodes, ends, above = nodes | mine, ends | before | more, above | other
        protos = self.model.graph.node
        theirs_do = {_kind(self.parent.protos[at]) for at in above}
        owners = {at for at in nodes if [*scopes.subgraphs(protos[at])]}  # low for what is in their graphs
        low = [at for at in sorted(nodes) if self._low[at] and (at in owners or _kind(protos[at]) not in theirs_do)]
        if not low or not above or not all(self._fits(self.parent.protos[at]) for at in above):
            return None
        main, weights = self._main(above)
        own = [at for at in sorted(nodes) if not is_quantization(protos[at])] or low
        kind = [at for at in own if self._low[at] and protos[at].op_type != "DynamicQuantizeLinear"]
        named = (protos[at] for at in kind or own)
        names = (one.name for one in named if not is_quantization(one) and not self._constant.issuperset(one.output))
        reads = tuple(sorted(ends - makes.keys(), key=lambda name: self._places.get(name, -1)))
        writes = tuple(name for name in makes if name in self.shared)
        layer = Layer(main.name, (0, (kind or own[-1:])[0]), main.op_type, reads, writes, False)
        only = all(self._constant.issuperset(protos[at].output) or _reads_floats(protos[at]) for at in low)
        return Region(makes, max(nodes), tuple(names), layer, frozenset(above), main.index, weights, only)

    def _main(self, nodes: Collection[int]) -> tuple[Node, int]:
        """Return the parent's node with most weights, the last where none has any; and how many numbers all have."""
        sizes = dict.fromkeys(sorted(nodes), 0)
        for at in sizes:
            for name in self.parent.nodes[at].inputs:
                tensor = self.parent.initializers.get(name)
                if isinstance(tensor, TensorProto) and tensor.data_type in FLOATS:
                    sizes[at] += tensor_bytes.elements(tensor.dims)
        return self.parent.nodes[max(sizes, key=lambda at: (sizes[at], at))], sum(sizes.values())

    def _fits(self, node: NodeProto) -> bool:
        """Whether a node of the parent means the same in the opset of the model: as far as its schema tells."""
        domain = scopes.domain_of(node.domain)
        theirs = {scopes.domain_of(one.domain): one.version for one in self.parent.model.opset_import}.get(domain, 0)
        mine = self._opsets.get(domain, theirs)
        if mine == theirs or not defs.has(node.op_type, domain):
            return True
        schema = defs.get_schema(node.op_type, mine, domain)
        known = schema.since_version == defs.get_schema(node.op_type, theirs, domain).since_version
        fits = all(attribute.name in schema.attributes for attribute in node.attribute)
        return known or (fits and schema.min_input <= len(node.input) <= schema.max_input)

    def _named(self, regions: Sequence[Region]) -> Iterator[Region]:
        """Yield the regions, each with a name of its own."""
        counts = Counter(one.layer.path for one in regions)
        for one in regions:
            path = one.layer.path if counts[one.layer.path] == 1 else f"{one.layer.path} ({one.layer.writes[0]})"
            yield replace(one, layer=replace(one.layer, path=path))


def _above(
    name: str, makers: Mapping[str, int], reads: Callable[[int], Iterable[str]], end: Callable[[str], str | None]
) -> tuple[set[int], set[str]]:
    """Return the nodes that make a tensor, up to those that have an end, and these ends."""
    nodes, ends, waiting = set[int](), set[str](), [name]
    while waiting:
        at = makers.get(waiting.pop())
        if at is None or at in nodes:
            continue
        nodes.add(at)
        for read in reads(at):
            known = end(read)
            if known is None:
                waiting.append(read)
            else:
                ends.add(known)
    return nodes, ends


def _reads_floats(node: NodeProto) -> bool:
    """Whether a quantized node computes with its weights in floats, and with what it reads as it is."""
    levels = (one.i for one in node.attribute if one.name == "accuracy_level")
    return node.op_type in ("MatMulNBits", "GatherBlockQuantized", "MatMulBnb4", "MatMulFpQ4") and 4 not in levels


def _kind(node: NodeProto) -> tuple[str, ...]:
    """Return what a node does, as far as two nodes of one operator may be raised for it: how MatMulNBits computes."""
    how = [f"{one.name}={one.i}" for one in node.attribute if one.name in ("bits", "accuracy_level") and one.i]
    return node.op_type, *(sorted(how) if node.op_type == "MatMulNBits" else ())


# Putting the parent's nodes in the place of regions.


@dataclass
class RegionMixer(Mixer):
    """Makes models in which the raised regions are the parent's nodes. ``given``: the model as the user gave it.

    ``regions``: all; the layers are theirs. ``brought``: the parent's initializers, in the model's store.
    """

    regions: Regions = field(kw_only=True)
    brought: Mapping[str, TensorProto] = field(default_factory=dict)

    @property
    def found(self) -> tuple[Region, ...]:
        """The regions that are low."""
        return self.regions.found

    def mixed(self, raised: frozenset[int]) -> ModelProto:
        """Return the model in which the regions with these indices are the parent's nodes."""
        made, _ = self._spliced(raised)
        supply = NameSupply(scopes.names_of(made))
        set_messages(made.graph.node, apart(made.graph.node, self.model.graph, supply))
        read = {name for node in made.graph.node for name in scopes.reads(node)}
        remove_dead_nodes(made.graph)
        remove_unused_initializers(made.graph, read)
        remove_stale_value_info(made.graph)
        return made

    def measured(self) -> tuple[ModelProto, list[list[object]]]:
        """Return the model with all raised and what was low still there, which reads what is raised.

        And [[index of the region, 0, what it makes, what its low nodes make in its place]].
        """
        made, low = self._spliced(self.everything)
        return made, [[index, 0, name, low[name]] for index, one in enumerate(self.found) for name in one.makes]

    def _spliced(self, raised: frozenset[int]) -> tuple[ModelProto, dict[str, str]]:
        made = copy_of(self.model)
        splice = _Splice(self, made)
        for index in sorted(raised):
            splice.retire(self.found[index])
        for index in sorted(raised):
            splice.put(self.found[index])
        splice.finish()
        return made, splice.retired


class _Splice:
    """One model while nodes of the parent are put into it. ``retired``: the new name of what is low, by the old one."""

    def __init__(self, mixer: RegionMixer, model: ModelProto) -> None:
        self._regions, self._model, self._brought, self._instead = mixer.regions, model, mixer.brought, mixer.instead
        self._parent = self._regions.parent
        self._shown = {one.shown: one for one in self._regions.integers.values() if one.shown}
        self._supply = NameSupply(scopes.names_of(model))
        self._labels = NameSupply(node.name for node in model.graph.node)
        self._orders: list[float] = [float(place) for place in range(len(model.graph.node))]
        self._nodes = list(model.graph.node)
        self._places = {name: at for at, node in enumerate(self._nodes) for name in node.output}
        self._typed = {value.name for value in (*model.graph.value_info, *model.graph.output)}
        self._names: dict[str, str] = {}  # what is at hand of the parent's tensors
        self._values: dict[str, str] = {}  # and of what integers stand for
        self._at = 0.0
        self.retired: dict[str, str] = {}

    def retire(self, region: Region) -> None:
        """Give what the region makes other names: these will be the parent's."""
        places = self._places
        for name in region.makes:
            self._rename(places[name], name)
            one = self._shown.get(name)
            if one is None:
                continue
            self._rename(places[one.name], one.name)
            low = self._nodes[places[name]]
            low.input[0] = self.retired[one.name]
            back = helper.make_node("QuantizeLinear", [name, one.scale, one.zero], [one.name], name=one.name)
            self._add(back, places[name] + 0.5)

    def _rename(self, place: int, name: str) -> None:
        self.retired[name] = self._supply.fresh(f"{name}_low")
        node = self._nodes[place]
        node.output[:] = [self.retired[name] if one == name else one for one in node.output]

    def put(self, region: Region) -> None:
        """Add the parent's nodes of a region, which make what it made."""
        self._at = region.place + 0.25
        done: dict[str, str] = {}
        for name, theirs in region.makes.items():
            if theirs in done:
                self._add(helper.make_node("Identity", [done[theirs]], [name], name=name), self._at)
                continue
            done[theirs] = name
            mine, other = self._regions.types.get(name), self._regions.parent_types.get(theirs)
            made = name if mine == other else self._supply.fresh(f"{name}_parent")
            self._build(self._parent.producers[theirs], {theirs: made})
            if made != name:
                self._add(helper.make_node("Cast", [made], [name], name=f"{name}_cast", to=mine), self._at)

    def _build(self, at: int, outputs: Mapping[str, str]) -> None:
        """Add a node of the parent, with what it needs; ``outputs``: what some of its outputs are to be called."""
        proto = self._parent.protos[at]
        node = copy_of(self._instead.get(proto.output[0], proto))
        names = {name: self._bring(name) for name in scopes.reads(node)}
        for name in node.output:
            if name:
                names[name] = outputs.get(name) or self._supply.fresh(name)
                self._names.setdefault(name, names[name])
                self._declare(names[name], name)
        scopes.rename_node(node, names, self._supply)
        node.name = self._labels.fresh(self._parent.nodes[at].name)
        self._add(node, self._at)

    def _bring(self, theirs: str) -> str:
        """Return what a tensor of the parent is called here; what is not there is added."""
        mine = self._regions.back.get(theirs)
        if theirs in self._names and mine is None:
            return self._names[theirs]
        if mine is not None:
            integers = self._shown.get(mine) if mine not in self.retired else None
            return self._cast(self._floats(integers, mine) if integers else mine, theirs, self._regions.types.get(mine))
        if theirs in self._brought:
            tensor = copy_of(self._brought[theirs])
            tensor.name = self._names[theirs] = self._supply.fresh(theirs)
            self._model.graph.initializer.append(tensor)
            return str(tensor.name)
        if theirs in self._parent.carried:
            node = copy_of(self._parent.carried[theirs][1])
            node.output[0] = self._names[theirs] = self._supply.fresh(theirs)
            self._add(node, -1.0)
        elif theirs in self._parent.producers:
            self._build(self._parent.producers[theirs], {})
        return self._names.get(theirs, theirs)

    def _floats(self, integers: Integers, mine: str) -> str:
        """Return what integers stand for, without a DequantizeLinear.

        ONNX Runtime quantizes what stands between one and a QuantizeLinear, weights included.
        """
        if mine not in self._values:
            read = integers.name, integers.scale, integers.zero
            made = dequantizing(read, self._regions.types.get(mine, 0), mine, self._supply)
            for node in made:
                self._add(node, self._at)
            self._values[mine] = made[-1].output[0]
        return self._values[mine]

    def _cast(self, mine: str, theirs: str, dtype: int | None) -> str:
        """Return a shared tensor, which has this type, in the type that the parent has."""
        wanted = self._regions.parent_types.get(theirs)
        if dtype == wanted:
            return mine
        if theirs not in self._names:
            self._names[theirs] = self._supply.fresh(f"{mine}_wide")
            cast = helper.make_node("Cast", [mine], [self._names[theirs]], name=self._names[theirs], to=wanted)
            self._add(cast, self._at)
        return self._names[theirs]

    def _declare(self, name: str, theirs: str) -> None:
        dtype = self._regions.parent_types.get(theirs)
        if dtype and name not in self._typed:
            self._typed.add(name)
            self._model.graph.value_info.add(name=name).type.tensor_type.elem_type = dtype

    def _add(self, node: NodeProto, order: float) -> None:
        self._nodes.append(node)
        self._orders.append(order)

    def finish(self) -> None:
        """Put all nodes in an executable order, as near to the one there was as can be."""
        graph, parent = self._model.graph, self._parent.model
        order = sorted(range(len(self._nodes)), key=self._orders.__getitem__)
        set_messages(graph.node, [self._nodes[at] for at in order])
        sort_nodes(graph, [scopes.reads(node) for node in graph.node])
        labels = set[str]()
        for node in graph.node:
            node.name = self._labels.fresh(node.name) if node.name in labels else node.name
            labels |= {node.name} - {""}
        domains = {scopes.domain_of(one.domain) for one in self._model.opset_import}
        self._model.opset_import.extend(
            one for one in parent.opset_import if scopes.domain_of(one.domain) not in domains
        )
        known = {scopes.function_key(function) for function in self._model.functions}
        self._model.functions.extend(one for one in parent.functions if scopes.function_key(one) not in known)
