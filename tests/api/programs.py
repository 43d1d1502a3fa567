"""What a program gives: a chain of seven nodes of which one is bad, and a check for it."""

from __future__ import annotations

import sys
from typing import Any

import onnx
from onnx import TensorProto, helper

from tests.harness import ROOT

BAD = "n3"
QUICK: dict[str, Any] = {"strategy": {"find": "one", "shrink": False}, "checker": {"flaky": "never"}}
"""Options for a reduction of few checks."""


def chain(bad: str = "Neg") -> onnx.ModelProto:
    nodes = [
        helper.make_node(bad if number == 3 else "Softsign", [f"t{number}"], [f"t{number + 1}"], name=f"n{number}")
        for number in range(7)
    ]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2, 3]) for name in ("t0", "t7")]
    graph = helper.make_graph(nodes, "chain", ends[:1], ends[1:])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def lacks(operator: str) -> Any:
    """A check that closes over what it looks for."""

    def check(model: str, inputs: list[Any], expected: list[Any]) -> bool:
        return all(node.op_type != operator for node in onnx.load(model).graph.node)

    return check


def script(body: str) -> list[str]:
    """A command that runs ``body`` as a program, which is not guarded against being imported again."""
    return [sys.executable, "-c", f"import sys\nsys.path.insert(0, {str(ROOT)!r})\n{body}"]
