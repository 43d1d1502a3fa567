"""A check that stands in for the imagined target: the candidate is rewritten to be wrong, and run by ONNX Runtime.

The rules are those of the simulation, read from a file; ONNX Runtime optimizes nothing.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import onnxruntime
from numpy.typing import NDArray
from onnx import ModelProto, NodeProto, helper, numpy_helper

from benchmarks.random_faults.target import LARGEST, TOLERANCE, Rules, Wrong, judged
from runner.model.graph.graph_index import Graph

Values = Mapping[str, NDArray[np.float32]]


def write_rules(rules: Rules, constant: frozenset[str], path: Path) -> None:
    """Write what is wrong with the target."""
    held = {
        "kernels": {name: [one.slope, one.limit] for name, one in rules.kernels.items()},
        "fusion": rules.fusion,
        "fused": [rules.fused.slope, rules.fused.limit] if rules.fused else None,
        "constant": sorted(constant),
    }
    path.write_text(json.dumps(held))


def checked(
    rules: str, model: str, inputs: Sequence[Values], expected: Sequence[Values], *, measures: bool
) -> dict[str, object]:
    """Return the verdict on a candidate; with its error in tolerances: that of the worst output and sample."""
    held = json.loads(Path(rules).read_text())
    kernels = {name: Wrong(*one) for name, one in held["kernels"].items()}
    read = Rules(kernels, tuple(held["fusion"]), Wrong(*held["fused"]) if held["fused"] else None)
    proto = faulty(Path(model), read, frozenset(held["constant"]))
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 3
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
    errors = [0.0]
    for feeds, good in zip(inputs, expected, strict=True):
        names = [one.name for one in session.get_outputs() if one.name in good]
        made = session.run(names, {one.name: feeds[one.name] for one in session.get_inputs()})
        errors += [_error(value, good[name]) for name, value in zip(names, made, strict=True)]
    told = judged(np.array(errors), "worst")
    return {"outcome": "fail" if told.fails else "pass"} | ({"measure": told.measure} if measures else {})


def faulty(path: Path, rules: Rules, constant: frozenset[str]) -> ModelProto:
    """Return a candidate as the target computes it."""
    graph = Graph.load(path)
    wrong = rules.wrong(graph.nodes, graph.output_set, constant)
    proto = graph.model
    nodes: list[NodeProto] = []
    for node in proto.graph.node:
        how = wrong.get(node.output[0])
        nodes.append(node)
        if how:
            name, raw = node.output[0], f"{node.output[0]}_raw"
            node.output[0] = raw
            nodes += _wrong(how, raw, name)
    made = ModelProto()
    made.CopyFrom(proto)
    del made.graph.node[:]
    made.graph.node.extend(nodes)
    return made


def _wrong(how: Wrong, raw: str, name: str) -> list[NodeProto]:
    def constant(what: str, value: float) -> NodeProto:
        tensor = numpy_helper.from_array(np.array(value, np.float32))
        return helper.make_node("Constant", [], [f"{name}_{what}"], value=tensor)

    if how.limit is None:
        return [constant("factor", 1 + how.slope), helper.make_node("Mul", [raw, f"{name}_factor"], [name])]
    return [
        constant("limit", how.limit),
        constant("slope", how.slope),
        helper.make_node("Sub", [raw, f"{name}_limit"], [f"{name}_beyond"]),
        helper.make_node("Relu", [f"{name}_beyond"], [f"{name}_relu"]),
        helper.make_node("Mul", [f"{name}_relu", f"{name}_slope"], [f"{name}_more"]),
        helper.make_node("Add", [raw, f"{name}_more"], [name]),
    ]


def _error(value: NDArray[np.float32], good: NDArray[np.float32]) -> float:
    with np.errstate(all="ignore"):
        error = float(np.abs(value - good).max() / np.abs(good).max()) / TOLERANCE
    return error if np.isfinite(error) else LARGEST
