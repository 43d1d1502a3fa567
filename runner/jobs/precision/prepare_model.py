"""A model made ready for two precisions: functions inlined, types inferred, nodes named.

In a worker, but for what tells of a node why it is not searched.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import onnx
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, TypeProto, inliner, shape_inference

from runner.backends.quantize_model import weights_only
from runner.jobs.precision.convert_weights import take_in_limits
from runner.jobs.precision.layers import (
    Contrib,
    Formals,
    Layer,
    Pair,
    Schemas,
    TypedGraph,
    contrib_of,
    declared,
    in_either,
    levels,
    node_label,
    nodes_in_order,
    obstacle,
    schemas_of,
    takes_any,
)
from runner.model.files.parse_without_weights import WeightsWriter
from runner.model.graph import scopes
from runner.model.graph.edits import copy_of
from runner.model.passes.lift_constants import lower_constants
from runner.model.values import tensor_bytes
from runner.model.values.dtypes import BY_NUMBER

# Inlines the functions of a model, and tells of each node which function and which call it comes from.

_ORIGIN = "winnow.origin"
"""Under this key a node says where it comes from while functions are inlined."""


def inlined(model: ModelProto) -> tuple[ModelProto, dict[str, str]]:
    """Return the model without functions, and where nodes come from that were in one, by their first output.

    Such a node has another name than in its function: ``node n1 of function my.F, called by node c``. Raises whatever
    native code does.
    """
    made = copy_of(model)
    functions = {scopes.function_key(one): one for one in model.functions}

    def label(nodes: Iterable[NodeProto], caller: str) -> None:
        """Give each call a function of its own, whose nodes say where they come from."""
        for place, node in enumerate(nodes):
            called, name = functions.get(scopes.call_key(node)), f"node {node_label(node, place)}"
            if called is not None:
                own = made.functions.add()
                own.CopyFrom(called)
                own.name = node.op_type = f"{called.name}__{len(made.functions)}"
                function = f"{called.domain}.{called.name}" if called.domain else called.name
                label(own.node, f" of function {function}, called by {name}{caller}")
            elif caller:
                node.metadata_props.add(key=_ORIGIN, value=f"{name}{caller}")
            for body in scopes.subgraphs(node):
                label(body.node, caller)

    label(made.graph.node, "")
    made, origins = inliner.inline_local_functions(made), dict[str, str]()
    for node in scopes.all_nodes(made.graph.node):
        if node.metadata_props and node.metadata_props[-1].key == _ORIGIN:
            origins[next(name for name in node.output if name)] = node.metadata_props.pop().value
    return made, origins


# Element types of all tensors, also behind operators that ONNX does not infer: its own inference stops at those.

_MOST_ROUNDS = 32
"""ONNX's inference and ours take turns: each may need what the other found."""


def inferred(model: ModelProto, schemas: Schemas) -> ModelProto:
    """Return the model with the types of its tensors as value_info. Raises whatever native inference raises."""
    for _ in range(_MOST_ROUNDS):
        model = shape_inference.infer_shapes(model, check_type=False, strict_mode=False, data_prop=False)
        if not _declared_more(model.graph, {}, schemas):
            break
    return model


def _declared_more(graph: GraphProto, outer: Mapping[str, int], schemas: Schemas) -> bool:
    """Add what schemas say of tensors whose types are not known yet; whether anything was added."""
    types = {**outer, **declared(graph)}
    more = False
    for node in graph.node:
        formals = None if scopes.subgraphs(node) else schemas.of(node)
        for name, dtype in _made(node, formals, types) if formals else ():
            if name and not types.get(name):
                types[name], more = dtype, True
                graph.value_info.add(name=name).type.tensor_type.elem_type = dtype
        for body in scopes.subgraphs(node):
            more = _declared_more(body, types, schemas) or more
    return more


def _made(node: NodeProto, formals: Formals, types: Mapping[str, int]) -> Iterator[tuple[str, int]]:
    """Yield what a node makes with its types, as far as they follow from what it reads."""
    bound: dict[str, int] = {}
    for place, name in enumerate(node.input):
        formal = formals.of_input(place)
        if formal and types.get(name):
            bound.setdefault(formal.variable, types[name])
    for place, name in enumerate(node.output):
        formal = formals.of_output(place)
        # a heterogeneous variadic input and an output of the same number do not share a type
        if formal and "#" not in formal.variable and (dtype := formal.only or bound.get(formal.variable, 0)):
            yield name, dtype


def prepare(args: Mapping[str, Any]) -> dict[str, Any]:
    """Write the structure at ``args["model"]`` to ``args["out"]``, functions inlined, with the types of all tensors.

    ``contrib``: what is known of operators that ONNX does not define. Of the weights outside only scales of quantized
    tensors are read. Returns ``warning``: what could not be done, empty if nothing failed, and ``inlined``: where nodes
    come from that were in a function, by their first output.
    """
    path = Path(args["model"])
    model = ModelProto.FromString(path.read_bytes())
    warnings = []
    origins: dict[str, str] = {}
    if model.functions:
        try:
            model, origins = inlined(model)
        except Exception as error:  # noqa: BLE001 - whatever native code raises
            warnings.append(f"functions could not be inlined ({error}): what calls them keeps its type")
    for graph in scopes.graphs_below(model.graph):
        lower_constants(graph, max(model.ir_version, 4))
    take_in_limits(model, path.parent)
    try:
        model = inferred(model, schemas_of(model, contrib_of(args.get("contrib", ()))))
    except Exception as error:  # noqa: BLE001 - whatever native inference raises
        warnings.append(f"ONNX shape inference failed ({error}): nodes of unknown types keep theirs")
    Path(args["out"]).write_bytes(model.SerializeToString())
    graphs = sum(1 for _ in scopes.graphs_below(model.graph))
    return {"warning": "; ".join(warnings), "graphs": graphs, "inlined": origins}


# All float nodes of a model, and why some of them cannot be searched (no low kind of the operator, unknown types).


@dataclass(frozen=True)
class FloatNode:
    """A node that reads or makes floats of the pair.

    ``index``: of its layer; None: its type is the same whatever is raised. ``number``: of its graph. ``high``: whether
    it stays in the high type, where it is no layer; ``why``: it is no layer.
    """

    path: str
    number: int
    node: NodeProto
    index: int | None
    high: bool
    why: str

    @property
    def op(self) -> str:
        """The operator, with the domain of one that is not ONNX's."""
        domain = scopes.domain_of(self.node.domain)
        return f"{domain}.{self.node.op_type}" if domain else self.node.op_type

    def is_high(self, raised: frozenset[int]) -> bool:
        """Whether it is in the high type where these layers are raised."""
        return self.high if self.index is None else self.index in raised


def float_nodes(
    model: ModelProto, types: Mapping[str, TypeProto], pair: Pair, layers: tuple[Layer, ...], contrib: Contrib
) -> tuple[FloatNode, ...]:
    """Return the float nodes of all graphs, in executable order.

    A Cast from one type of the pair to the other is none, nor is what takes floats of any type without computing with
    them: Shape, Size, and a Cast to another kind.
    """
    schemas, numbers = schemas_of(model, contrib), {layer.key: index for index, layer in enumerate(layers)}

    def float_node(level: TypedGraph, place: int, node: NodeProto) -> FloatNode | None:
        index = numbers.get((level.number, place))
        kinds = {level.types.get(name, -1) for name in (*node.input, *node.output) if name}
        unknown = any(name and name not in level.types for name in node.output)  # it may make floats
        is_float = unknown or bool(kinds & {pair.low, pair.high})
        if index is None and (takes_any(node, level.types, pair) or not is_float):
            return None
        why = "" if index is not None else obstacle(node, level.types, schemas, pair) or beside
        own = in_either(node, level.types, schemas, pair) or kinds
        high = pair.high in own or pair.low not in own
        return FloatNode(level.prefix + node_label(node, place), level.number, node, index, high, why)

    low, high = (BY_NUMBER[dtype].numpy_name for dtype in (pair.low, pair.high))
    beside = f"it is in {high} beside others that are in {low} as they are"
    every = nodes_in_order(levels(model, types))
    return tuple(found for one in every if (found := float_node(*one)) is not None)


# The parent's MatMuls with weights of 8 bits, for models with weights of fewer.

_EIGHT_BITS = "weights.int8.bin"
_USUAL = {"bits": 4, "block_size": 32, "accuracy_level": 0}


def eight_bits(args: Mapping[str, Any]) -> dict[str, Any]:
    """Write the MatMuls of the structure at ``args["parent"]`` with weights of 8 bits, as ONNX Runtime quantizes them.

    ``model``: a structure with weights of fewer bits, whose block size and accuracy level are used. ``out``: a
    ModelProto file with these nodes and initializers alone; large ones lie in a file beside ``model``. Returns
    ``made``: False if no weight of the model has fewer than 8 bits; nothing is written then.
    """
    path, few = Path(args["model"]), Counter[tuple[int, int]]()
    model = ModelProto.FromString(path.read_bytes())
    for node in model.graph.node:
        bits, *how = ({**_USUAL, **{one.name: one.i for one in node.attribute}}[key] for key in _USUAL)
        few[tuple(how)] += node.op_type == "MatMulNBits" and bits < 8
    four = {TensorProto.INT4, TensorProto.UINT4}
    if not few.total() and not any(tensor.data_type in four for tensor in model.graph.initializer):
        return {"made": False}
    (block_size, level), _ = few.most_common(1)[0]
    parent, made = onnx.load(args["parent"]), ModelProto()
    products = {node.output[0] for node in parent.graph.node if node.op_type == "MatMul"}
    found = weights_only(parent, 8, block_size=block_size, accuracy_level=level).graph
    nodes = [node for node in found.node if node.op_type == "MatMulNBits" and node.output[0] in products]
    wanted = {name for node in nodes for name in node.input[1:] if name}
    with WeightsWriter(path.parent / _EIGHT_BITS) as writer:
        for tensor in found.initializer:
            if tensor.name in wanted:
                wanted.remove(tensor.name)  # of two nodes that read one weight, the tool writes both
                content, named = tensor_bytes.raw_bytes(tensor) or b"", f"{tensor.name}_int8"
                other = made.graph.initializer.add(name=named, data_type=tensor.data_type, dims=tensor.dims)
                tensor_bytes.set_reference(other, _EIGHT_BITS, writer.add([content], len(content)), len(content))
    for node in nodes:
        node.input[1:] = [name and f"{name}_int8" for name in node.input[1:]]
    made.graph.node.extend(nodes)
    Path(args["out"]).write_bytes(made.SerializeToString())
    return {"made": True}


# A float model as ONNX Runtime's quantizers want it.

_LARGE = 1 << 30


def name_nodes(args: Mapping[str, Any]) -> dict[str, Any]:
    """Write the model at ``args["model"]`` to ``args["out"]`` with a name for each node, and no two with one name.

    ``level``: true: each MatMulNBits with accuracy_level=4 gets 1. Constants become initializers: ONNX Runtime's tools
    quantize those only. Returns ``named``: False if the model is so as it is; nothing is written then. In a worker.
    """
    path, out = Path(args["model"]), Path(args["out"])
    model = onnx.load(path, load_external_data=False)
    changed = False
    for graph in scopes.graphs_below(model.graph):
        changed = lower_constants(graph, max(model.ir_version, 4)) > 0 or changed
    model.ir_version = max(model.ir_version, 4)
    counts = Counter(node.name for graph in scopes.graphs_below(model.graph) for node in graph.node)
    for graph in scopes.graphs_below(model.graph):
        for place, node in enumerate(graph.node):
            if not node.name or counts[node.name] > 1:
                node.name, changed = node_label(NodeProto(output=node.output, op_type=node.op_type), place), True
            for one in node.attribute if args["level"] and node.op_type == "MatMulNBits" else ():
                if one.name == "accuracy_level" and one.i == 4:
                    one.i, changed = 1, True
    if changed:
        onnx.load_external_data_for_model(model, str(path.parent))
        out.with_name(f"{out.name}.data").unlink(missing_ok=True)
        large = sum(len(one.raw_data) for one in model.graph.initializer) > _LARGE
        onnx.save(model, out, save_as_external_data=large, location=f"{out.name}.data")
    return {"named": changed}
