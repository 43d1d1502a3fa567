"""Six failures of a new user, small enough to be triaged in a test: models, and what is typed about them.

Each returns the words behind the program's name, typed in the folder of its files.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
from onnx import NodeProto, TensorProto, helper, numpy_helper

from tests.harness import ROOT
from tests.jobs import models

_IMAGE, _ROW = [1, 3, 8, 8], [4, 16]
_SAMPLES, _CLASSES = 200, 4


def saved(
    path: Path,
    nodes: Sequence[NodeProto],
    weights: dict[str, np.ndarray],
    shapes: tuple[list[int], list[int]],
    ends: tuple[str, str] = ("x", "y"),
    opset: int = 17,
) -> None:
    """Save a model of one input and one output, in float32."""
    values = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in zip(ends, shapes, strict=True)
    ]
    tensors = [numpy_helper.from_array(value, name) for name, value in weights.items()]
    graph = helper.make_graph(nodes, "g", values[:1], values[1:], tensors)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    onnx.save(model, str(path))


def transformer(_: Path) -> tuple[str, ...]:
    """A transformer in float16 that overflows where every operator rounds."""
    return (str(ROOT / "examples" / "overflow.onnx"),)


def folded(folder: Path) -> tuple[str, ...]:
    """A CNN of which a BatchNormalization was folded into its Conv with the wrong sign of its mean."""
    draw = np.random.default_rng(0)
    before, after = [], []
    weights, child = {}, {}
    at = "x"
    for number in range(1, 4):
        kernel = (0.3 * draw.standard_normal((3, 3, 3, 3))).astype(np.float32)
        scale, shift = (np.ones(3) + 0.2 * draw.standard_normal((2, 3))).astype(np.float32)
        mean, variance = draw.standard_normal(3).astype(np.float32), np.ones(3, np.float32)
        weights |= {
            f"conv{number}.weight": kernel,
            f"bn{number}.weight": scale,
            f"bn{number}.bias": shift,
            f"bn{number}.mean": mean,
            f"bn{number}.variance": variance,
        }
        sign = 1 if number == 2 else -1
        child |= {
            f"conv{number}.weight_folded": kernel * scale[:, None, None, None],
            f"conv{number}.bias_folded": shift + sign * mean * scale,
        }
        names = [f"bn{number}.{one}" for one in ("weight", "bias", "mean", "variance")]
        before += [
            helper.make_node("Conv", [at, f"conv{number}.weight"], [f"c{number}"], f"conv{number}", pads=[1] * 4),
            helper.make_node("BatchNormalization", [f"c{number}", *names], [f"b{number}"], f"bn{number}", epsilon=0.0),
            helper.make_node("Relu", [f"b{number}"], [f"r{number}" if number < 3 else "y"], f"relu{number}"),
        ]
        folded_names = [f"conv{number}.weight_folded", f"conv{number}.bias_folded"]
        after += [
            helper.make_node("Conv", [at, *folded_names], [f"b{number}"], f"conv{number}", pads=[1] * 4),
            helper.make_node("Relu", [f"b{number}"], [f"r{number}" if number < 3 else "y"], f"relu{number}"),
        ]
        at = f"r{number}"
    saved(folder / "cnn.onnx", before, weights, (_IMAGE, _IMAGE))
    saved(folder / "folded.onnx", after, child, (_IMAGE, _IMAGE))
    return ("folded.onnx", "reference.model=cnn.onnx")


def new_opset(folder: Path) -> tuple[str, ...]:
    """A model of an opset that no runtime knows."""
    saved(folder / "net.onnx", [helper.make_node("Relu", ["x"], ["y"], "relu")], {}, (_ROW, _ROW), opset=99)
    return ("net.onnx",)


def loop(folder: Path) -> tuple[str, ...]:
    """A Loop whose body takes the logarithm of what falls below zero in its third iteration."""
    text = """g (float[4,16] x) => (float[4,16] y) {
        [abs] a = Abs(x) [shift] start = Add(a, five)
        [loop] last = Loop(times, true, start) <body = body
            (int64 i, bool go, float[4,16] v) => (bool go_on, float[4,16] w) {
                [keep] go_on = Identity(go) [sub] less = Sub(v, one) [log] l = Log(less) [add] w = Add(l, one) }>
        [sin] y = Sin(last) }"""
    held = {"one": np.float32(1), "five": np.float32(5), "times": np.array(5, np.int64), "true": np.array(True)}
    models.saved(folder / "net.onnx", text, **held)
    return ("net.onnx",)


def transposed(folder: Path) -> tuple[str, ...]:
    """A conversion that renamed half of the tensors, and transposed one weight."""
    draw = np.random.default_rng(1)
    mats = [(draw.standard_normal((16, 16)) / 4).astype(np.float32) for _ in range(4)]
    for name, child in (("original.onnx", False), ("converted.onnx", True)):
        nodes, weights, at = [], {}, "x"
        for number, values in enumerate(mats, 1):
            new = child and number % 2 == 0
            called = f"/layer{number}/o/mm" if child else f"layer{number}"
            weight = f"onnx::MatMul_{number}" if new else f"layer{number}.weight"
            weights[weight] = np.ascontiguousarray(values.T) if new and number == 2 else values
            made = f"t{number}" if new else f"layer{number}.out"
            out = "y" if number == 4 else f"{made}.act"
            nodes += [
                helper.make_node("MatMul", [at, weight], [made], f"{called}/MatMul"),
                helper.make_node("Tanh", [made], [out], f"{called}/Tanh"),
            ]
            at = out
        saved(folder / name, nodes, weights, (_ROW, _ROW))
    return ("converted.onnx", "reference.model=original.onnx")


ACCURACY = """
import numpy as np
import onnxruntime

data = np.load({data!r})


def check(model, inputs, expected):
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(str(model), options)
    made = session.run(["y"], {{"x": data["x"]}})[0]
    return float((made.argmax(axis=1) == data["label"]).mean())
"""


def quantized(folder: Path) -> tuple[str, ...]:
    """A classifier in int8, one activation of which has a scale that is 60 times too small; judged by its accuracy."""
    draw = np.random.default_rng(2)
    first, second = (draw.standard_normal(shape).astype(np.float32) for shape in ((16, 16), (16, _CLASSES)))
    x = draw.standard_normal((_SAMPLES, 16)).astype(np.float32)
    weights, hidden = {"w1": first, "w2": second}, np.maximum(x @ first, 0)
    ends = f"g (float[{_SAMPLES},16] x) => (float[{_SAMPLES},{_CLASSES}] y)"
    plain = "[fc1] h = MatMul(x, w1) [relu1] r = Relu(h) [fc2] y = MatMul(r, w2)"
    models.saved(folder / "float.onnx", f"{ends} {{ {plain} }}", **weights)
    limits = {name: np.abs(values).max() for name, values in weights.items()}
    limits |= {"x": np.abs(x).max(), "r": hidden.max() / 60}
    held = {f"{name}_scale": np.float32(limit / 127) for name, limit in limits.items()}
    held |= {f"{name}_zero": np.int8(0) for name in limits}
    for name, values in weights.items():
        held[f"{name}_quantized"] = np.clip(np.rint(values / (limits[name] / 127)), -127, 127).astype(np.int8)

    def pair(name: str) -> str:
        low, with_scale = f"{name}_quantized", f"{name}_scale, {name}_zero"
        made = f"[{name}_QuantizeLinear] {low} = QuantizeLinear({name}, {with_scale}) " * (name not in weights)
        return f"{made}[{name}_DequantizeLinear] {name}_d = DequantizeLinear({low}, {with_scale})"

    nodes = f"""{pair("w1")} {pair("w2")} {pair("x")} [fc1] h = MatMul(x_d, w1_d) [relu1] r = Relu(h)
        {pair("r")} [fc2] y = MatMul(r_d, w2_d)"""
    models.saved(folder / "int8.onnx", f"{ends} {{ {nodes} }}", **held)
    np.savez(folder / "data.npz", x=x, label=(hidden @ second).argmax(axis=1))
    np.savez(folder / "x.npz", x=x)
    (folder / "acc.py").write_text(ACCURACY.format(data=str(folder / "data.npz")))
    return (
        *("int8.onnx", "reference.model=float.onnx", "checker=python", "checker.file=acc.py"),
        *("checker.max_drop=2%", "inputs=files", "inputs.path=x.npz"),
    )


TASKS = {one.__name__: one for one in (transformer, folded, new_opset, loop, transposed, quantized)}
