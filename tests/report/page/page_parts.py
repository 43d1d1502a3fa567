"""Graphs, values, layers and trials that the pages of `tests.report.page.page_values` are made of."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from typing import Any

from onnx import ModelProto, TensorProto, helper

from runner.report.page.data import LayerError, PageGraph, PageTensor, PageTrial, PageValues

#: names that would end an element, run or turn round what follows them, were they taken for anything but text


_LAYER = ("MatMul", "Add", "Mul", "Softmax", "MatMul", "LayerNormalization", "Gelu", "MatMul", "Add")


def transformer(nodes: int, culprits: Sequence[int] = (), names: Mapping[int, str] | None = None) -> PageGraph:
    """A chain of blocks of nine nodes with a residual each, and a weight for each product."""
    names = names or {}
    operators = [*dict.fromkeys(_LAYER)]
    tensors, types, inputs, constants = ["input"], ["float16[1, 128, 768]"], [], []
    blocks: list[str] = []
    block, called = [], []
    attributes: dict[str, list[list[str]]] = {}
    before = residual = 0
    for node in range(nodes):
        layer, at = divmod(node, len(_LAYER))
        kind = _LAYER[at]
        path = f"model/encoder/stage.{layer // 24}/layer.{layer}/{'attention' if at < 5 else 'mlp'}"
        if not blocks or blocks[-1] != path:
            blocks.append(path)
        block.append(len(blocks) - 1)
        called.append(names.get(node, f"/{path}/{kind}_{at}"))
        read = [before]
        if kind == "MatMul":
            tensors.append(f"{path}.{at}.weight")
            types.append("float16[768, 768]")
            constants.append(len(tensors) - 1)
            read.append(len(tensors) - 1)
        if kind == "Add":
            read.append(residual)
        if kind in {"Softmax", "LayerNormalization"}:
            attributes[str(node)] = [["axis", "-1"]]
        inputs.append(read)
        tensors.append(f"{called[-1]}_output_0")
        types.append("float16[1, 128, 768]")
        before = len(tensors) - 1
        residual = before if kind == "Add" else residual
    made = sorted({*range(1, len(tensors))} - {*constants})
    return PageGraph(
        names=called,
        operators=operators,
        operator=[operators.index(_LAYER[node % len(_LAYER)]) for node in range(nodes)],
        blocks=blocks,
        block=block,
        tensors=tensors,
        types=types,
        inputs=inputs,
        outputs=[[place] for place in made],
        constants=constants,
        feeds=[0],
        results=made[-1:],
        attributes=attributes,
        culprits=[*culprits],
        bodies=[],
        undrawn=0,
    )


def values(seed: int, spread: float = 1.0, bad: int = 0) -> PageValues:
    """A sample as of 4,096 normal values."""
    chance = random.Random(seed)
    drawn = sorted(chance.gauss(0, spread) for _ in range(4096))
    low, high, count = drawn[0], drawn[-1], 32
    edges = [low + (high - low) * at / count for at in range(count + 1)]
    counts = [0] * count
    for value in drawn:
        counts[min(count - 1, int((value - low) / (high - low) * count))] += 1
    first = [round(chance.gauss(0, spread), 5) for _ in range(8)]
    return PageValues(
        dtype="float16",
        shape=[1, 128, 768],
        low=low,
        high="inf" if bad else high,
        mean=0.01,
        nan=0,
        inf=bad,
        edges=edges,
        counts=counts,
        first=[*first],
    )


def tensor(name: str, where: str = "the reduced model", seed: int = 1) -> PageTensor:
    good, wrong = values(seed), values(seed + 1, 1.8, bad=3)
    differences: Any = [
        {"index": [0, 3, at], "good": 0.125 * at, "wrong": "inf" if at == 2 else 0.5} for at in range(6)
    ]
    return PageTensor(name=name, where=where, good=good, wrong=wrong, differences=differences, differing=1284)


def layers(graph: PageGraph, start: int, worst: int | None = None) -> list[LayerError]:
    """Errors that begin at a node."""

    def error(node: int) -> float | str:
        if node == worst:
            return "inf"
        return 1e-6 * (1 + node % 7) if node < start else 0.02 + 0.01 * (node % 40)

    return [
        LayerError(
            tensor=graph["tensors"][graph["outputs"][node][0]],
            node=name,
            error="inf"
            if node == worst
            else 1e-6 * (1 + node % 7)
            if node < start
            else min(0.9, 0.02 + 0.01 * (node % 40)),
            own=None if node % 3 else 1e-5 if node != start else 0.21,
            nan=0,
            inf=2 if node == worst else 0,
            precision=None,
        )
        for node, name in enumerate(graph["names"])
    ]


def bisection(size: int, culprits: Sequence[int], log: str = "") -> list[PageTrial]:
    """What a search by halves asks: stretches around the culprits."""
    given: Any = {"number": 1, "phase": "pre-flight", "label": "the model file", "size": size, "kept": []}
    given |= {"outcome": "fail", "seconds": 0.9, "reason": "max error 0.41 > 0.01", "log": log}
    trials, low, high = [PageTrial(**given)], 0, size
    first, last = min(culprits), max(culprits) + 1
    while (low, high) != (first, last):
        middle = (low + high) // 2
        for kept, shrunk in (((low, middle), last <= middle), ((middle, high), first >= middle)):
            number = len(trials)
            outcome = "fail" if shrunk else "unresolved" if number % 5 == 0 else "pass"
            trials.append(
                PageTrial(
                    number=0 if number == 1 else number,
                    phase="search",
                    label="prefix" if kept[0] == low else "suffix",
                    size=kept[1] - kept[0],
                    kept=[[kept[0], kept[1] - 1]],
                    outcome=outcome,
                    seconds=0.2 + math.sin(number) ** 2,
                    reason="max error 0.41 > 0.01" if outcome == "fail" else "",
                    log=log,
                )
            )
            if shrunk:
                low, high = kept
                break
        else:
            low, high = (low, last) if last < high else (first, high)
    return trials


def slice_of(graph: PageGraph, first: int, last: int) -> PageGraph:
    """Some nodes in a row, as a graph of their own, all of them culprits."""
    used = sorted({at for part in (graph["inputs"], graph["outputs"]) for row in part[first:last] for at in row})
    place = {at: number for number, at in enumerate(used)}
    made = {at for row in graph["outputs"][first:last] for at in row}
    paths = sorted({graph["block"][node] for node in range(first, last)})
    return PageGraph(
        names=graph["names"][first:last],
        operators=graph["operators"],
        operator=graph["operator"][first:last],
        blocks=[graph["blocks"][path] for path in paths],
        block=[paths.index(path) for path in graph["block"][first:last]],
        tensors=[graph["tensors"][at] for at in used],
        types=[graph["types"][at] for at in used],
        inputs=[[place[at] for at in row] for row in graph["inputs"][first:last]],
        outputs=[[place[at] for at in row] for row in graph["outputs"][first:last]],
        constants=[place[at] for at in graph["constants"] if at in place],
        feeds=[place[at] for at in used if at not in made and at not in graph["constants"]],
        results=[place[graph["outputs"][last - 1][0]]],
        attributes={str(int(at) - first): rows for at, rows in graph["attributes"].items() if first <= int(at) < last},
        culprits=[*range(last - first)],
        bodies=[],
        undrawn=0,
    )


def nested_model(bad: str = "bad", steps: int = 2) -> ModelProto:
    """An If whose first branch has a Loop with so many nodes and one named ``bad``, and a function called twice."""
    value, node, graph = helper.make_tensor_value_info, helper.make_node, helper.make_graph
    kind, shape = TensorProto.FLOAT, [1, 8]
    names = ["s", *(f"s{at}" for at in range(1, steps + 1))]
    repeated = [
        *(node("Mul", [names[at], "a"], [names[at + 1]], f"step{at}") for at in range(steps)),
        node("Exp", [names[-1]], ["e"], bad),
        node("Identity", ["c"], ["again"], "condition"),
    ]
    carried = [value("i", TensorProto.INT64, []), value("c", TensorProto.BOOL, []), value("s", kind, shape)]
    body = graph(repeated, "body", carried, [value("again", TensorProto.BOOL, []), value("e", kind, shape)])
    then = [
        node("Neg", ["a"], ["n"], "turn"),
        node("Constant", [], ["count"], value_int=3),
        node("Loop", ["count", "", "n"], ["u"], "loop", body=body),
    ]
    branches = {
        "then_branch": graph(then, "then", [], [value("u", kind, shape)]),
        "else_branch": graph([node("Relu", ["a"], ["u"], "plain")], "else", [], [value("u", kind, shape)]),
    }
    nodes = [
        node("Abs", ["x"], ["a"], "before"),
        node("If", ["yes"], ["b"], "gate", **branches),
        node("Swish", ["b"], ["d"], "first", domain="own"),
        node("Swish", ["d"], ["y"], "second", domain="own"),
    ]
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("own", 1)]
    swish = [node("Sigmoid", ["v"], ["w"], "sigmoid"), node("Mul", ["v", "w"], ["r"], "product")]
    function = helper.make_function("own", "Swish", ["v"], ["r"], swish, imports[:1])
    ends = [value("x", kind, shape), value("yes", TensorProto.BOOL, [])]
    made = graph(nodes, "nested", ends, [value("y", kind, shape)])
    return helper.make_model(made, opset_imports=imports, functions=[function], ir_version=9)
