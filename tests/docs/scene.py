"""A folder in which the commands of the docs run: small models, values and checks under the names that pages use."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import onnx
from onnx import NodeProto, TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from tests.harness import ROOT
from tests.jobs.optimizer_defect import defective
from tests.jobs.precision.test_quantized_forms import blocks, dynamic, operators, small_floats

CHECK = '''"""Fails while the model holds a node "div" (its name is looked for in the bytes of the file)."""
import sys

sys.exit(b"div" in open(sys.argv[1], "rb").read())
'''


def network(path: Path, nodes: Sequence[NodeProto], weights: Mapping[str, np.ndarray]) -> Path:
    """Write a model that makes y of x."""
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 4]) for name in ("x", "y")]
    stored = [numpy_helper.from_array(array, name) for name, array in weights.items()]
    graph = helper.make_graph(nodes, "net", ends[:1], ends[1:], stored)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), str(path))
    return path


def chain(path: Path, *, biased: float = 0.0, scale: float = 1.0) -> Path:
    """Write two blocks of a small network; ``biased``: what its converted child has too much in one weight."""
    rng = np.random.default_rng(7)
    weights = {f"w{at}": rng.standard_normal((4, 4)).astype(np.float32) for at in range(2)}
    weights["w1"] = (weights["w1"] * scale + biased).astype(np.float32)
    nodes = []
    for at, read, written in ((0, "x", "h"), (1, "h", "y")):
        scope = f"/layer.{at + 2}"
        nodes += [
            helper.make_node("MatMul", [read, f"w{at}"], [f"{scope}/product"], name=f"{scope}/MatMul"),
            helper.make_node("Tanh", [f"{scope}/product"], [written], name=f"{scope}/Tanh"),
        ]
    return network(path, nodes, weights)


def overflowing(path: Path) -> Path:
    """Write a network whose values inside leave float16's range."""
    kinds = [
        ("Mul", "x", "k", "big"),
        ("Mul", "big", "big", "square"),
        ("Mul", "square", "m", "down"),
        ("Add", "down", "x", "y"),
    ]
    nodes = [helper.make_node(kind, reads, [written], name=f"/{written}/{kind}") for kind, *reads, written in kinds]
    return network(path, nodes, {name: np.array(value, np.float32) for name, value in (("k", 1e3), ("m", 1e-6))})


def negative(path: Path) -> Path:
    """Write the network with the logarithm of a number below zero behind it."""
    model = onnx.load(str(chain(path)))
    model.graph.node[-1].output[0] = "t"
    model.graph.node.append(helper.make_node("Sub", ["t", "two"], ["low"], name="/head/Sub"))
    model.graph.node.append(helper.make_node("Log", ["low"], ["y"], name="/head/Log"))
    model.graph.initializer.append(numpy_helper.from_array(np.array(2, np.float32), "two"))
    onnx.save(model, str(path))
    return path


def tactics(path: Path, tactic: int) -> None:
    """Write what a build of TensorRT recorded: the tactic of its one layer."""
    choice = {"layer": "conv", "key": f"0x{7:032x}", "tactic": f"0x{tactic:x}", "kernel": "k", "ms": 0.1, "nodes": []}
    head = {"format": "winnow.tactics", "version": 1, "model": None, "library": "tensorrt 10.9.0.34", "iteration": 0}
    path.parent.mkdir()
    path.write_text(json.dumps({**head, "built": True, "pinned": False, "choices": [choice], "cache": None}))


def quantized(path: Path) -> Path:
    """Write the network with its input quantized far too coarsely."""
    model = onnx.load(str(chain(path)))
    stored = {"s": np.array(0.9, np.float32), "z": np.array(0, np.int8)}
    model.graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in stored.items())
    pair = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"], name="/q/QuantizeLinear"),
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["d"], name="/q/DequantizeLinear"),
    ]
    model.graph.node[0].input[0] = "d"
    for at, node in enumerate(pair):
        model.graph.node.insert(at, node)
    onnx.save(model, str(path))
    return path


def prepare(folder: Path) -> Path:
    """Fill a folder with all that the docs name."""
    defective(folder / "net.onnx", behind="Exp")
    for name in ("a.onnx", "b.onnx", "reduced.onnx", "failures/one.onnx", "failures/two.onnx"):
        (folder / name).parent.mkdir(exist_ok=True)
        shutil.copy(folder / "net.onnx", folder / name)
    for name in ("good.onnx", "original.onnx"):
        chain(folder / name)
    for name in ("converted.onnx", "half.onnx", "wrong.onnx"):
        chain(folder / name, biased=0.5)
    for name in ("int8.onnx", "net_int8.onnx"):
        quantized(folder / name)
    for name, form in (("int4", blocks), ("dynamic8", dynamic), ("qlinear8", operators), ("fp8", small_floats)):
        form(folder / "original.onnx", folder / f"{name}.onnx", [{"x": np.ones((1, 4), np.float32)}])
    overflowing(folder / "fp32.onnx")
    negative(folder / "negative.onnx")
    (folder / "net.engine").write_bytes(b"an engine")
    for name in ("mybug.yaml", "path/to/mybug.yaml"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("model: net.onnx\n")
    for name in ("path/to", "bugs"):
        (folder / name).mkdir(parents=True, exist_ok=True)
        shutil.copy(folder / "net.onnx", folder / name)
    for at, name in enumerate(("good", "bad")):
        tactics(folder / name / "0.json", at)
    x = np.linspace(-1, 1, 4, dtype=np.float32).reshape(1, 4)
    np.savez(folder / "inputs.npz", x=x, most=np.ones((1, 1), np.float32))
    stored = {one.name: numpy_helper.to_array(one) for one in onnx.load(folder / "original.onnx").graph.initializer}
    (right,) = ReferenceEvaluator(str(folder / "net.onnx")).run(None, {"x": x, "most": np.ones((1, 1), np.float32)})
    np.savez(folder / "golden.npz", y=right)
    np.savez(folder / "outputs.npz", y=np.tanh(np.tanh(x @ stored["w0"]) @ stored["w1"]))
    for at in range(4):
        (folder / "samples").mkdir(exist_ok=True)
        np.savez(folder / "samples" / f"{at}.npz", x=x * (at + 1))
    for name in ("new/bin/python", "envs/old/bin/python", "trt/bin/python"):
        (folder / name).parent.mkdir(parents=True)
        (folder / name).write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
        (folder / name).chmod(0o755)
    (folder / "check.py").write_text(CHECK)
    (folder / "examples").symlink_to(ROOT / "examples")
    return folder


BEFORE = {
    "docs/workarounds.md": (
        "winnow reduce net.onnx hydra.run.dir=outputs/REDUCE",
        "winnow passes net.onnx hydra.run.dir=outputs/PASSES",
    ),
    "docs/layerwise.md": ("cp negative.onnx net.onnx",),
    "docs/bugs.md": ("winnow reduce net.onnx hydra.run.dir=bugs/7",),
}
"""What ran before a page begins, of each page that speaks of earlier runs."""
