"""A model made ready for two precisions: functions inlined, types inferred, nodes named, weights converted.

In a worker, but for what tells of a node why it is not searched.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, helper, inliner, shape_inference

from runner.backends.quantize_model import weights_only
from runner.jobs.precision.layers import (
    Formals,
    Schemas,
    contrib_of,
    declared,
    node_label,
    schemas_of,
)
from runner.model.files.candidate_store import Store
from runner.model.files.parse_without_weights import WeightsWriter
from runner.model.graph import scopes
from runner.model.graph.edits import copy_of
from runner.model.graph.graph_index import initializers_of
from runner.model.graph.low_precision import is_quantization
from runner.model.passes.lift_constants import lower_constants
from runner.model.values import tensor_bytes
from runner.model.values.dtypes import FLOATS
from runner.reference.quantized import readings

# Weights in the other type of a pair, made once a run: in a worker, into a file beside the others.
#
# A raised layer gets the parent's where they are what is stored here, else what that amounts to. For a low one a finite
# value beyond the range of the type becomes the largest that it has (a mask of -3.4e38 goes on being a mask, where an
# infinity would make a NaN of a row that is masked whole); what is too small becomes zero. Both are counted. A number
# that stands alone and is too small becomes the least that the type has: it is there so that something is not zero (the
# epsilon of a norm).

OTHERS = "weights.other.bin"
"""The file of large weights in the other type."""
_INSIDE = 1024
_AGREEING = 0.98
"""The share of values by which a weight is known; the rest may have been rounded in another way."""


def convert_weights(args: Mapping[str, Any]) -> dict[str, Any]:
    """Write the weights of the structure at ``args["model"]`` (in its store's folder) in the other type of a pair.

    ``low`` and ``high``: its element types, one where only Q/DQ pairs make the difference. ``parent``: another
    structure, or null. ``quantized``: what DequantizeLinear nodes make of constants, by NUMBER/NAME, with the parent's
    initializers that each may be; these become high. ``out``: a ModelProto file whose initializers are the results,
    named ``NUMBER/NAME`` after their graph; large ones lie in `OTHERS` in that folder.

    Returns ``clamped``, ``flushed`` and ``lifted`` (single numbers that were too small) of those that became low:
    {name: how many values}. And the names of those ``taken`` from the parent, of ``strangers``, whose parent has
    something else, and of those that stay ``rounded``, sorted by graph.
    """
    path, low, high = Path(args["model"]), int(args["low"]), int(args["high"])
    model, parent = ModelProto.FromString(path.read_bytes()), Path(args["parent"]) if args["parent"] else None
    theirs = _constants(ModelProto.FromString(parent.read_bytes())) if parent else {}
    constants, found, others = _constants(model), ModelProto(), {low: high, high: low} if low != high else {}
    lost: dict[str, Counter[str]] = {"clamped": Counter(), "flushed": Counter(), "lifted": Counter()}
    told: dict[str, list[str]] = {"taken": [], "strangers": [], "rounded": []}

    def restored(number: int, graph: GraphProto) -> Iterator[tuple[str, Any]]:
        """Yield what is better than what the low type holds: the parent's values, or what a constant stands for."""
        makers = {name: node for node in graph.node for name in node.output}
        keys = {name: key for name in makers if (key := f"{number}/{name}") in args["quantized"]}
        low_ones = [one.name for one in graph.initializer if one.data_type == low in others and one.name in theirs]
        partners = {**{name: [name] for name in low_ones}, **{name: args["quantized"][keys[name]] for name in keys}}
        for name in sorted(partners):
            stored, names = _stored(makers.get(name), constants, name, path.parent), dict.fromkeys(partners[name])
            given = [theirs[one] for one in names if one in theirs and stored.fits(theirs[one])]
            arrays = (Store(parent.parent).array(one) for one in given) if parent else ()
            agreeing = (one for array in arrays for one in (array, array.T) if stored.may_be(one))
            values = next(agreeing, None)
            if values is not None:
                told["taken"].append(name)
            elif given:
                told["strangers"].append(name)
            if values is None and name in keys:
                told["rounded"].append(name)
                values = stored.values
            if values is not None:
                yield name, values

    with WeightsWriter(path.parent / OTHERS) as writer:
        for number, graph in enumerate(scopes.graphs_below(model.graph)):
            done = set[str]()
            for name, values in restored(number, graph):
                done.add(name)
                other = found.graph.initializer.add(name=f"{number}/{name}", data_type=high, dims=values.shape)
                _put(other, convert(np.ascontiguousarray(values), high)[0].tobytes(), writer)
            for tensor in graph.initializer:
                if tensor.data_type not in others or tensor.name in done:
                    continue
                target, dims = others[tensor.data_type], tensor.dims
                other = found.graph.initializer.add(name=f"{number}/{tensor.name}", data_type=target, dims=dims)
                counts = _convert(tensor, other, path.parent, writer)
                small = "lifted" if tensor_bytes.elements(dims) == 1 else "flushed"
                for what, count in zip(("clamped", small), counts if target == low else (0, 0), strict=True):
                    lost[what].update({tensor.name: count} if count else {})
    Path(args["out"]).write_bytes(found.SerializeToString())
    return {**lost, **told}


def _put(tensor: TensorProto, content: bytes, writer: WeightsWriter) -> None:
    """Give a tensor its content, which lies outside if it is large."""
    if len(content) < _INSIDE:
        tensor_bytes.set_raw(tensor, content)
    else:
        tensor_bytes.set_reference(tensor, OTHERS, writer.add([content], len(content)), len(content))


def _convert(tensor: TensorProto, other: TensorProto, folder: Path, writer: WeightsWriter) -> tuple[int, int]:
    """Convert a tensor to the type of the other one, piece by piece; return what `convert` counts."""
    counts, store, external = np.zeros(2, np.int64), Store(folder), tensor_bytes.is_external(tensor)
    alone = tensor_bytes.elements(tensor.dims) == 1

    def pieces() -> Any:
        for piece in store.region(tensor)[1] if external else [tensor_bytes.raw_bytes(tensor) or b""]:
            values = np.frombuffer(piece, helper.tensor_dtype_to_np_dtype(tensor.data_type))
            converted, count = convert(values, other.data_type, alone=alone)
            counts[:] += count
            yield converted.tobytes()

    length = tensor_bytes.byte_size(other.data_type, tensor.dims) or 0
    if external:
        location, offset, _ = tensor_bytes.reference(tensor)
        region = (folder / location, offset, length)
        tensor_bytes.set_reference(other, OTHERS, writer.add(pieces(), length, None, region), length)
    else:
        tensor_bytes.set_raw(other, b"".join(pieces()))
    return int(counts[0]), int(counts[1])


def convert(values: Any, target: int, *, alone: bool = False) -> tuple[Any, tuple[int, int]]:
    """Return float values in another type, and how many were too large for it and how many too small.

    ``alone``: they are all of a tensor, one number, which does not become zero.
    """
    dtype = helper.tensor_dtype_to_np_dtype(target)
    wide = np.asarray(values).astype(np.float64 if np.asarray(values).dtype == np.float64 else np.float32)
    largest = FLOATS[target].largest
    with np.errstate(over="ignore", invalid="ignore"):
        beyond = np.isfinite(wide) & (np.abs(wide) > largest)
        made = np.where(beyond, np.copysign(largest, wide), wide).astype(dtype)
    lost = (wide != 0) & (made.astype(np.float32) == 0)
    if alone:
        made = np.where(lost, np.copysign(FLOATS[target].least, wide), made).astype(dtype)
    return made, (int(beyond.sum()), int(lost.sum()))


def take_in_limits(model: ModelProto, folder: Path) -> None:
    """Store in the model, in place, by what its QuantizeLinear nodes scale: what they limit a tensor to is asked often.

    Scales of many channels lie outside otherwise.
    """
    wanted = {
        name
        for node in scopes.all_nodes(model.graph.node)
        if is_quantization(node) and node.op_type == "QuantizeLinear"
        for name in node.input[1:]
    }
    for tensor in scopes.initializers(model):
        if tensor.name in wanted and tensor_bytes.is_external(tensor):
            tensor_bytes.set_raw(tensor, b"".join(Store(folder).region(tensor)[1]))


@dataclass(frozen=True)
class _Stored:
    """A weight as it is stored. ``steps``: by how much storing may have moved each value; ``edge``: saturated ones."""

    values: Any
    steps: Any
    edge: Any

    def fits(self, other: Any) -> bool:
        """Whether an initializer is of floats, and of this shape or its reverse."""
        dims, is_float = [*self.values.shape], getattr(other, "data_type", 0) in (TensorProto.FLOAT, TensorProto.DOUBLE)
        return is_float and [*other.dims] in (dims, dims[::-1])

    def may_be(self, other: Any) -> bool:
        """Whether storing ``other`` gives this, but for a few values."""
        if other.shape != self.values.shape:
            return False
        if not other.size:
            return True
        with np.errstate(all="ignore"):
            near = np.abs(other.astype(np.float64) - self.values) <= self.steps
        return float(np.mean(near | self.edge)) >= _AGREEING


def _stored(maker: NodeProto | None, constants: Mapping[str, Any], name: str, folder: Path) -> _Stored:
    """Return a weight of fewer digits, or what a DequantizeLinear makes of a constant."""

    def held(name: str) -> Any:
        return Store(folder).array(constants[name])

    if maker is None:
        values, kind = held(name).astype(np.float32), FLOATS[constants[name].data_type]
        # of fp16, and of bfloat16: one unit in the last place, and what is below the least number
        steps = np.abs(values).astype(np.float64) * 2.0 ** (1 - kind.digits) + 1.2e-7
        return _Stored(values, steps, np.abs(values) >= kind.largest)
    integers = held(maker.input[0])
    (told,), wide = readings(maker, {}, held)[maker.input[0]], integers.astype(np.float64)
    small = FLOATS.get(constants[maker.input[0]].data_type)  # a float too: one unit in the last place
    units = 1.0 if small is None else np.maximum(np.abs(wide) * 2.0 ** (1 - small.digits), small.least)
    steps = np.abs(told.floats(np.ones_like(wide)) - told.floats(np.zeros_like(wide))) * units * 0.75
    return _Stored(told.floats(wide).astype(np.float32), steps, (wide == wide.min()) | (wide == wide.max()))


def _constants(model: ModelProto) -> dict[str, Any]:
    """Return the initializers of all graphs by name; the outermost of a name."""
    found: dict[str, Any] = {}
    for graph in scopes.graphs_below(model.graph):
        found = {**initializers_of(graph), **found}
    return found


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
        if formal and types.get(name) and not formal.free:
            bound.setdefault(formal.variable, types[name])
    for place, name in enumerate(node.output):
        formal = formals.of_output(place)
        if formal and not formal.free and (dtype := formal.only or bound.get(formal.variable, 0)):
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
    return {"warning": "; ".join(warnings), "inlined": origins}


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
