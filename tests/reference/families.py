"""A parent, its converted children, and bugs to plant in them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

from tests.model.models import model_of

WIDTH, BLOCKS, CLASSES = 16, 3, 10


def parent(path: Path, batch: int | str = 2) -> Path:
    """Convolutions with normalization, a residual, and a transformer's attention and feed-forward, three times over."""
    generator = np.random.default_rng(7)
    nodes: list[NodeProto] = []
    weights: list[TensorProto] = []

    def weight(name: str, *shape: int, scale: float = 0.3) -> str:
        array = generator.normal(0, scale, shape).astype(np.float32)
        weights.append(numpy_helper.from_array(array, name))
        return name

    def constant(name: str, value: object, dtype: type) -> str:
        weights.append(numpy_helper.from_array(np.array(value, dtype), name))
        return name

    def add(operator: str, inputs: Iterable[str], output: str, **attributes: object) -> str:
        nodes.append(helper.make_node(operator, list(inputs), [output], name=f"/{output}", **attributes))
        return output

    at = "image"
    for block in range(2):
        channels = 3 if block == 0 else WIDTH
        at = add("Conv", [at, weight(f"k{block}", WIDTH, channels, 3, 3), weight(f"kb{block}", WIDTH)],
                 f"conv{block}", pads=[1, 1, 1, 1])  # fmt: skip
        one = np.abs(generator.normal(1, 0.1, WIDTH)).astype(np.float32)
        weights.append(numpy_helper.from_array(one, f"variance{block}"))
        scales = [weight(f"{what}{block}", WIDTH) for what in ("gain", "bias", "mean")]
        at = add("BatchNormalization", [at, *scales, f"variance{block}"], f"norm{block}", epsilon=1e-5)
        at = add("Relu", [at], f"relu{block}")
    at = add("Reshape", [at, constant("flat", [0, WIDTH, -1], np.int64)], "tokens_t")
    at = add("Transpose", [at], "tokens", perm=[0, 2, 1])
    for block in range(BLOCKS):
        normal = layer_norm(add, weight, constant, at, f"b{block}_a")
        parts = [
            add("MatMul", [normal, weight(f"w_{part}{block}", WIDTH, WIDTH)], f"b{block}_{part}") for part in "qkv"
        ]
        turned = add("Transpose", [parts[1]], f"b{block}_kt", perm=[0, 2, 1])
        scores = add("MatMul", [parts[0], turned], f"b{block}_scores")
        scaled = add("Div", [scores, constant(f"root{block}", 4.0, np.float32)], f"b{block}_scaled")
        chosen = add("Softmax", [scaled], f"b{block}_softmax", axis=-1)
        mixed = add("MatMul", [chosen, parts[2]], f"b{block}_mixed")
        at = add("Add", [at, add("MatMul", [mixed, weight(f"w_o{block}", WIDTH, WIDTH)], f"b{block}_o")], f"b{block}_r")
        normal = layer_norm(add, weight, constant, at, f"b{block}_f")
        up = add("Add", [add("MatMul", [normal, weight(f"w_u{block}", WIDTH, 32)], f"b{block}_up"),
                         weight(f"c_u{block}", 32)], f"b{block}_upb")  # fmt: skip
        curved = gelu(add, constant, up, f"b{block}")
        down = add("MatMul", [curved, weight(f"w_d{block}", 32, WIDTH)], f"b{block}_down")
        at = add("Add", [at, down], f"b{block}_out")
    pooled = add("ReduceMean", [at], "pooled", axes=[1], keepdims=0)
    add("Gemm", [pooled, weight("w_head", WIDTH, CLASSES), weight("c_head", CLASSES)], "logits")
    model = model_of(
        nodes,
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, [batch, 3, 6, 6])],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, [batch, CLASSES])],
        weights,
    )
    onnx.checker.check_model(model)
    onnx.save(model, path)
    return path


def layer_norm(
    add: Callable[..., str], weight: Callable[..., str], constant: Callable[..., str], at: str, tag: str
) -> str:
    """A layer normalization in small pieces, as exporters write it."""
    mean = add("ReduceMean", [at], f"{tag}_mean", axes=[-1])
    centered = add("Sub", [at, mean], f"{tag}_centered")
    square = add("Pow", [centered, constant(f"{tag}_two", 2.0, np.float32)], f"{tag}_square")
    variance = add("ReduceMean", [square], f"{tag}_variance", axes=[-1])
    safe = add("Add", [variance, constant(f"{tag}_epsilon", 1e-5, np.float32)], f"{tag}_safe")
    root = add("Sqrt", [safe], f"{tag}_root")
    unit = add("Div", [centered, root], f"{tag}_unit")
    scaled = add("Mul", [unit, weight(f"{tag}_gain", WIDTH, scale=1.0)], f"{tag}_scaled")
    return add("Add", [scaled, weight(f"{tag}_shift", WIDTH)], f"{tag}_ln")


def gelu(add: Callable[..., str], constant: Callable[..., str], at: str, tag: str) -> str:
    """The error function's GELU in small pieces."""
    inner = add("Div", [at, constant(f"{tag}_sqrt2", 2.0**0.5, np.float32)], f"{tag}_gd")
    erf = add("Add", [add("Erf", [inner], f"{tag}_ge"), constant(f"{tag}_one", 1.0, np.float32)], f"{tag}_ga")
    return add("Mul", [add("Mul", [at, erf], f"{tag}_gm"), constant(f"{tag}_half", 0.5, np.float32)], f"{tag}_gelu")


def fused(source: Path, path: Path, level: str = "basic") -> Path:
    """What ONNX Runtime's optimizer makes of a model."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = {
        "basic": onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC,
        "extended": onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED,
    }[level]
    options.optimized_model_filepath = str(path)
    options.log_severity_level = 4
    onnxruntime.InferenceSession(str(source), options, providers=["CPUExecutionProvider"])
    return path


def renamed(model: ModelProto, ends: bool = True) -> tuple[ModelProto, dict[str, str]]:
    """All names gone: nodes n0.., tensors t0... ``ends``: those of inputs and outputs too. Also: new name by old."""
    result = ModelProto()
    result.CopyFrom(model)
    graph = result.graph
    kept = set() if ends else {value.name for value in (*graph.input, *graph.output)}
    names: dict[str, str] = {}

    def new(name: str) -> str:
        if not name or name in kept:
            return name
        return names.setdefault(name, f"t{len(names)}")

    for value in (*graph.input, *graph.initializer):
        value.name = new(value.name)
    for number, node in enumerate(graph.node):
        node.name = f"n{number}"
        node.input[:] = [new(name) for name in node.input]
        node.output[:] = [new(name) for name in node.output]
    for value in graph.output:
        value.name = new(value.name)
    del graph.value_info[:]
    return result, names


# ---- bugs


def maker(model: ModelProto, output: str) -> NodeProto:
    """The node that makes a tensor."""
    return next(node for node in model.graph.node if output in node.output)


def set_weight(model: ModelProto, name: str, change: Callable[[np.ndarray], np.ndarray]) -> None:
    """Change an initializer."""
    tensor = next(one for one in model.graph.initializer if one.name == name)
    array = numpy_helper.to_array(tensor)
    tensor.CopyFrom(numpy_helper.from_array(np.array(change(array.copy()), array.dtype, order="C"), name))


def set_attribute(node: NodeProto, name: str, value: object) -> None:
    """Change an attribute."""
    kept = [attribute for attribute in node.attribute if attribute.name != name]
    del node.attribute[:]
    node.attribute.extend([*kept, helper.make_attribute(name, value)])
