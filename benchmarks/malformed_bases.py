"""The sound models that `benchmarks.malformed` breaks: one for each thing that a model file can hold."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, helper, numpy_helper

# the file with the weights of the model that has them outside
WEIGHTS = "weights.bin"


@dataclass(frozen=True)
class Base:
    """A sound model, and the files that lie beside it."""

    name: str
    model: ModelProto
    beside: Mapping[str, bytes] = field(default_factory=dict)


def bases() -> dict[str, Base]:
    """Return the sound models by name, always the same ones."""
    made = [_convolution(), _attention(), _control_flow(), _external(), _quantized(), _functions()]
    return {base.name: base for base in made}


def value(name: str, shape: list[int | str], dtype: int = TensorProto.FLOAT) -> object:
    return helper.make_tensor_value_info(name, dtype, shape)


def _weight(name: str, *shape: int) -> TensorProto:
    count = int(np.prod(shape))
    return numpy_helper.from_array(np.linspace(-0.5, 0.5, count, dtype=np.float32).reshape(shape), name)


def _constant(name: str, values: object, dtype: type = np.int64) -> TensorProto:
    return numpy_helper.from_array(np.asarray(values, dtype), name)


def _model(graph: GraphProto, functions: tuple[object, ...] = (), domains: tuple[str, ...] = ()) -> ModelProto:
    imports = [helper.make_opsetid("", 17), *(helper.make_opsetid(domain, 1) for domain in domains)]
    return helper.make_model(graph, opset_imports=imports, ir_version=8, functions=list(functions))


def _node(kind: str, inputs: str, outputs: str, **attributes: object) -> NodeProto:
    """A node; names in ``inputs`` and ``outputs`` are parted by blanks, and `-` is an omitted one."""
    names = [["" if name == "-" else name for name in text.split()] for text in (inputs, outputs)]
    return helper.make_node(kind, *names, name=f"/{kind}_{names[1][0]}", **attributes)


def _convolution() -> Base:
    nodes = [
        _node("Conv", "image w1 b1", "c1", kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
        _node("BatchNormalization", "c1 scale b1 mean var", "n1", epsilon=1e-5),
        _node("Relu", "n1", "r1"),
        _node("MaxPool", "r1", "p1", kernel_shape=[2, 2], strides=[2, 2]),
        _node("GlobalAveragePool", "p1", "g1"),
        _node("Flatten", "g1", "f1", axis=1),
        _node("Gemm", "f1 w2 b2", "scores", transB=1),
    ]
    weights = [_weight("w1", 4, 3, 3, 3), *(_weight(name, 4) for name in ("b1", "scale", "mean"))]
    weights += [_constant("var", [1, 1, 1, 1], np.float32), _weight("w2", 5, 4), _weight("b2", 5)]
    inputs, outputs = [value("image", ["N", 3, 8, 8])], [value("scores", ["N", 5])]
    return Base("conv", _model(helper.make_graph(nodes, "conv", inputs, outputs, weights)))


def _attention() -> Base:
    shape = helper.make_node("Constant", [], ["shape"], value=_constant("", [1, 4, 2, 4]))
    root = helper.make_node("Constant", [], ["root"], value_float=2.0)
    nodes = [
        shape,
        root,
        *(_node("MatMul", f"x w{name}", name) for name in "qkv"),
        *(_node("Reshape", f"{name} shape", f"{name}4") for name in "qkv"),
        *(_node("Transpose", f"{name}4", f"{name}t", perm=perm) for name, perm in _PERMUTATIONS.items()),
        _node("MatMul", "qt kt", "raw"),
        _node("Div", "raw root", "scaled"),
        _node("Softmax", "scaled", "weighted", axis=-1),
        _node("MatMul", "weighted vt", "mixed"),
        _node("Transpose", "mixed", "back", perm=[0, 2, 1, 3]),
        _node("Reshape", "back flat", "joined"),
        _node("Add", "joined x", "sum"),
        _node("LayerNormalization", "sum gamma beta", "y", axis=-1),
    ]
    weights = [*(_weight(f"w{name}", 8, 8) for name in "qkv"), _weight("gamma", 8), _weight("beta", 8)]
    weights.append(_constant("flat", [1, 4, 8]))
    graph = helper.make_graph(nodes, "attention", [value("x", [1, 4, 8])], [value("y", [1, 4, 8])], weights)
    return Base("attention", _model(graph))


_PERMUTATIONS = {"q": [0, 2, 1, 3], "k": [0, 2, 3, 1], "v": [0, 2, 1, 3]}


def _control_flow() -> Base:
    then = helper.make_graph([_node("Mul", "x two", "then_out")], "then", [], [value("then_out", [3])])
    other = helper.make_graph([_node("Sub", "x two", "else_out")], "else", [], [value("else_out", [3])])
    body = helper.make_graph(
        [_node("Add", "state two", "next"), _node("Identity", "go", "go_on"), _node("Neg", "next", "row")],
        "body",
        [value("at", [], TensorProto.INT64), value("go", [], TensorProto.BOOL), value("state", [3])],
        [value("go_on", [], TensorProto.BOOL), value("next", [3]), value("row", [3])],
    )
    step = helper.make_graph(
        [_node("Add", "held one_row", "held_out"), _node("Abs", "held_out", "seen")],
        "step",
        [value("held", [3]), value("one_row", [3])],
        [value("held_out", [3]), value("seen", [3])],
    )
    nodes = [
        _node("ReduceSum", "x", "total", keepdims=0),
        _node("Greater", "total zero", "positive"),
        _node("If", "positive", "chosen", then_branch=then, else_branch=other),
        _node("Loop", "trips yes chosen", "last rows", body=body),
        _node("Scan", "last rows", "held_last all", body=step, num_scan_inputs=1),
        _node("Concat", "held_last last", "y", axis=0),
    ]
    weights = [_constant("two", 2, np.float32), _constant("zero", 0, np.float32), _constant("trips", 4)]
    weights.append(_constant("yes", True, np.bool_))
    outputs = [value("y", [6]), value("all", [4, 3])]
    return Base("control", _model(helper.make_graph(nodes, "control", [value("x", [3])], outputs, weights)))


def _external() -> Base:
    nodes = [_node("MatMul", "x w1", "h"), _node("Relu", "h", "r"), _node("MatMul", "r w2", "y")]
    weights, content = [], b""
    for name in ("w1", "w2"):
        inside = _weight(name, 8, 8)
        weights.append(outside(name, [8, 8], WEIGHTS, offset=len(content), length=len(inside.raw_data)))
        content += inside.raw_data
    graph = helper.make_graph(nodes, "external", [value("x", [2, 8])], [value("y", [2, 8])], weights)
    return Base("external", _model(graph), {WEIGHTS: content})


def outside(
    name: str, dims: list[int], location: str, dtype: int = TensorProto.FLOAT, **entries: object
) -> TensorProto:
    """A tensor whose elements lie in the file ``location``."""
    made = TensorProto(name=name, data_type=dtype, dims=dims, data_location=TensorProto.EXTERNAL)
    for key, text in {"location": location, **entries}.items():
        made.external_data.add(key=key, value=str(text))
    return made


def _quantized() -> Base:
    nodes = [
        _node("QuantizeLinear", "x xs xz", "xq"),
        _node("DequantizeLinear", "xq xs xz", "xd"),
        _node("DequantizeLinear", "wq ws wz", "wd", axis=0),
        _node("Conv", "xd wd", "c", kernel_shape=[1, 1]),
        _node("Relu", "c", "r"),
        _node("QuantizeLinear", "r xs xz", "rq"),
        _node("DequantizeLinear", "rq xs xz", "y"),
    ]
    weights = [
        _constant("xs", 0.02, np.float32),
        _constant("xz", 0, np.int8),
        _constant("wq", np.arange(-6, 6).reshape(4, 3, 1, 1), np.int8),
        _constant("ws", [0.1, 0.2, 0.3, 0.4], np.float32),
        _constant("wz", [0, 0, 0, 0], np.int8),
    ]
    inputs, outputs = [value("x", [1, 3, 4, 4])], [value("y", [1, 4, 4, 4])]
    return Base("quantized", _model(helper.make_graph(nodes, "quantized", inputs, outputs, weights)))


def _functions() -> Base:
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("local", 1)]
    leaky = helper.make_node("LeakyRelu", ["a"], ["b"], name="leak")
    attribute = leaky.attribute.add(name="alpha", ref_attr_name="slope")
    attribute.type = 1
    inner = helper.make_function("local", "Leak", ["a"], ["b"], [leaky], imports, attributes=["slope"])
    call = helper.make_node("Leak", ["s"], ["t"], domain="local", slope=0.1)
    outer = helper.make_function("local", "Block", ["p", "q"], ["t"], [_node("MatMul", "p q", "s"), call], imports)
    nodes = [
        helper.make_node("Block", ["x", "w1"], ["h"], domain="local", name="first"),
        helper.make_node("Block", ["h", "w2"], ["y"], domain="local", name="second"),
    ]
    weights = [_weight("w1", 4, 4), _weight("w2", 4, 4)]
    graph = helper.make_graph(nodes, "functions", [value("x", [2, 4])], [value("y", [2, 4])], weights)
    return Base("functions", _model(graph, (inner, outer), ("local",)))
