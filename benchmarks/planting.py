"""A node test case of the onnx package, planted in the middle of a small network that computes its inputs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, TypeProto, helper, numpy_helper

T = TensorProto
FLOATS = (T.FLOAT, T.DOUBLE)
# what one Cast makes of a float or an int64 without a loss -> the opset from which it does
_CAST = {
    "FLOAT16": 6, "BFLOAT16": 13, "FLOAT8E4M3FN": 19, "FLOAT8E4M3FNUZ": 19, "FLOAT8E5M2": 19, "FLOAT8E5M2FNUZ": 19,
    "INT8": 6, "INT16": 6, "INT32": 6, "UINT8": 6, "UINT16": 6, "BOOL": 6, "INT4": 21, "UINT4": 21, "FLOAT4E2M1": 23,
    "FLOAT8E8M0": 24, "INT2": 25, "UINT2": 25,
}  # fmt: skip
CAST = {getattr(T, name): opset for name, opset in _CAST.items() if hasattr(T, name)}
NETWORK_OPSET = 17


class Route(Enum):
    """How the values of a case get into the planted nodes."""

    COMPUTED = "computed"
    """Case value + 0 * (something of an activation), in the value's type or a wider one."""
    CHOSEN = "chosen"
    """Gathered out of a constant, element by element, at indices that an activation says; so for every type."""
    FED = "fed"
    """They are inputs of the network."""


@dataclass
class Planted:
    """The network. ``nodes``: the first outputs of the planted nodes. ``values``: what they are to read, by name."""

    model: ModelProto
    feeds: dict[str, Any]
    nodes: tuple[str, ...]
    values: dict[str, Any]


@dataclass
class Network:
    """A network while it is being made; all names of its own start with ``net/``."""

    opset: int
    ir_version: int
    nodes: list[NodeProto] = field(default_factory=list)
    initializers: list[TensorProto] = field(default_factory=list)
    inputs: list[Any] = field(default_factory=list)
    outputs: list[Any] = field(default_factory=list)
    feeds: dict[str, Any] = field(default_factory=dict)

    def add(self, op: str, inputs: Sequence[str], output: str = "", **attributes: Any) -> str:
        """Add a node and return its output."""
        output = output or f"net/{op}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, inputs, [output], **attributes))
        return output

    def constant(self, value: Any) -> str:
        """Add an initializer and return its name."""
        tensor = TensorProto()
        tensor.CopyFrom(value if isinstance(value, TensorProto) else numpy_helper.from_array(np.asarray(value)))
        tensor.name = f"net/constant_{len(self.initializers)}"
        self.initializers.append(tensor)
        return tensor.name

    def feed(self, name: str, declared: TypeProto, value: Any) -> str:
        """Add an input with its value and return its name."""
        self.inputs.append(helper.make_value_info(name, declared))
        self.feeds[name] = value
        return name


def plant(case: Any, route: Route, *, tail: bool = True) -> Planted:
    """Return the network around the nodes of ``case``; ``tail``: what they compute goes on into it."""
    model = case.model
    opset = next((entry.version for entry in model.opset_import if not entry.domain), None)
    network = Network(opset or NETWORK_OPSET, model.ir_version)
    rng = np.random.default_rng(0)

    def weights(*shape: int) -> str:
        return network.constant((rng.standard_normal(shape) / 4).astype(np.float32))

    image = rng.random((1, 3, 8, 8), np.float32)
    x = network.feed("net/x", helper.make_tensor_type_proto(T.FLOAT, image.shape), image)
    for channels, before in ((4, 3), (4, 4)):
        x = network.add("Conv", [x, weights(channels, before, 3, 3)], kernel_shape=[3, 3], pads=[1, 1, 1, 1])
        # runtimes have no older Relu than that of opset 6
        x = network.add("Relu", [x]) if network.opset >= 6 else network.add("MaxPool", [x], kernel_shape=[1, 1])
    x = network.add("Flatten", [network.add("GlobalAveragePool", [x])])
    x = network.add("Softmax", [network.add("MatMul", [x, weights(4, 4)])])
    # a softmax is positive, so this is -0.0: adding it changes no number, not even 0.0
    mean = network.add("ReduceMean", [x], keepdims=0)
    zero = network.add("Mul", [mean, network.constant(np.float32(-0.0))]) if network.opset >= 7 else ""

    given = {value.name: value.type for value in model.graph.input}
    values = dict(zip(given, case.data_sets[0][0], strict=True))
    for name, declared in given.items():
        _lead(network, route, zero, name, declared, values[name])
    network.nodes.extend(model.graph.node)
    network.initializers.extend(model.graph.initializer)

    for value in model.graph.output:
        number = _number(network, value) if tail else None
        if number is None:
            network.outputs.append(value)
        else:
            x = network.add("Add", [x, number])
    x = network.add("Softmax", [network.add("MatMul", [x, weights(4, 4)])], "net/y")
    network.outputs.append(helper.make_tensor_value_info(x, T.FLOAT, [1, 4]))
    # a Constant is data, no node
    elements = [node for node in model.graph.node if node.op_type != "Constant"]
    first = tuple(next(name for name in node.output if name) for node in elements)
    return Planted(_model(network, model), network.feeds, first, values)


def _model(network: Network, source: ModelProto) -> ModelProto:
    if network.ir_version < 4:  # initializers have to be inputs as well
        network.inputs += [helper.make_tensor_value_info(t.name, t.data_type, t.dims) for t in network.initializers]
    graph = helper.make_graph(network.nodes, "planted", network.inputs, network.outputs, network.initializers)
    graph.value_info.extend(source.graph.value_info)
    model = helper.make_model(graph, functions=source.functions, ir_version=source.ir_version)
    del model.opset_import[:]
    model.opset_import.extend(source.opset_import)
    if all(entry.domain for entry in model.opset_import):
        old = source.ir_version < 8
        model.opset_import.add(domain="", version={3: 7, 7: 13}.get(source.ir_version, NETWORK_OPSET) if old else 17)
    return model


def _lead(network: Network, route: Route, zero: str, name: str, declared: TypeProto, value: Any) -> None:
    """Make ``value`` an activation of that name."""
    kind = declared.WhichOneof("value")
    if route is Route.FED and kind != "tensor_type":
        network.feed(name, declared, value)
    elif kind == "optional_type":
        inner = declared.optional_type.elem_type
        if value is None:
            network.add("Optional", [], name, type=inner)
        else:
            _lead(network, route, zero, f"net/{name}", inner, value)
            network.add("Optional", [f"net/{name}"], name)
    elif kind == "sequence_type":
        inner = declared.sequence_type.elem_type
        parts = [f"net/{name}/{at}" for at in range(len(value))]
        for part, item in zip(parts, value, strict=True):
            _lead(network, route, zero, part, inner, item)
        if parts:
            network.add("SequenceConstruct", parts, name)
        else:
            network.add("SequenceEmpty", [], name, dtype=inner.tensor_type.elem_type)
    else:
        _lead_tensor(network, route, zero, name, declared, _tensor(value, declared.tensor_type.elem_type))


def _lead_tensor(
    network: Network, route: Route, zero: str, name: str, declared: TypeProto, tensor: TensorProto
) -> None:
    dtype = tensor.data_type
    if route is Route.FED or network.opset < 7:
        network.feed(name, declared, tensor)
    elif dtype == T.INT64 and len(tensor.dims) <= 1:
        # a shape, axes, an index: in networks these mostly depend on no data
        network.add("Identity", [network.constant(tensor)], name)
    elif route is Route.COMPUTED and dtype in (*FLOATS, T.INT64):
        same = zero if dtype == T.FLOAT else network.add("Cast", [zero], to=dtype)
        network.add("Add", [network.constant(tensor), same], name)
    elif route is Route.COMPUTED and network.opset >= CAST.get(dtype, 99):
        array = numpy_helper.to_array(tensor)
        # an int32 may have more digits than a float32
        wide = np.int64 if array.dtype.kind in "iub" else np.float32
        same = zero if wide is np.float32 else network.add("Cast", [zero], to=T.INT64)
        network.add("Cast", [network.add("Add", [network.constant(array.astype(wide)), same])], name, to=dtype)
    else:
        # one element an index: of strings ONNX Runtime's Gather takes only the first of several
        places = network.constant(np.arange(np.prod(tensor.dims, dtype=np.int64)).reshape(tuple(tensor.dims)))
        places = network.add("Add", [places, network.add("Cast", [zero], to=T.INT64)])
        flat = TensorProto()
        flat.CopyFrom(tensor)
        del flat.dims[:]
        flat.dims.append(int(np.prod(tensor.dims, dtype=np.int64)))
        network.add("Gather", [network.constant(flat), places], name)


def _number(network: Network, value: Any) -> str | None:
    """Lead what a planted node computes on: a scalar made of it, finite whatever it is. None: its type cannot be."""
    kind = value.type.WhichOneof("value")
    if kind == "sequence_type":
        return network.add("Cast", [network.add("SequenceLength", [value.name])], to=T.FLOAT)
    if kind == "optional_type":
        return network.add("Cast", [network.add("OptionalHasElement", [value.name])], to=T.FLOAT)
    dtype = value.type.tensor_type.elem_type
    if network.opset < 7 or dtype in (T.STRING, T.COMPLEX64, T.COMPLEX128):
        return None
    wide = value.name if dtype == T.FLOAT else network.add("Cast", [value.name], to=T.FLOAT)
    above = network.add("Greater", [wide, network.constant(np.float32(0))])
    return network.add("ReduceSum", [network.add("Cast", [above], to=T.FLOAT)], keepdims=0)


def _tensor(value: Any, dtype: int) -> TensorProto:
    """``value`` as a tensor of this type; data sets hold some types as another that is wide enough."""
    if isinstance(value, TensorProto):
        return value
    array = np.asarray(value)
    if dtype == T.STRING:
        tensor = TensorProto(data_type=dtype, dims=array.shape)
        tensor.string_data.extend(
            item if isinstance(item, bytes) else str(item).encode() for item in array.ravel().tolist()
        )
        return tensor
    return numpy_helper.from_array(array.astype(helper.tensor_dtype_to_np_dtype(dtype), copy=False))


def routes() -> Iterator[tuple[Route, bool]]:
    """The ways to plant a case, the most real one first."""
    yield Route.COMPUTED, True
    yield Route.CHOSEN, True
    yield Route.CHOSEN, False
    yield Route.FED, True
    yield Route.FED, False
