"""What nodes read, beside what the original's read to make the same."""

from __future__ import annotations

from runner.model.graph.graph_index import Graph
from runner.reference.wiring import Wiring
from tests.model.models import model_of


def graph(tanh: str, sin: str) -> Graph:
    nodes = f"[n] a = Neg (x) [p] b = Abs (x) [t] c = Tanh ({tanh}) [s] d = Sin ({sin}) [m] y = Sub (c, d)"
    return Graph.of(model_of(nodes, ["x"], ["y"]))


def test_nodes_that_read_each_others_inputs_are_one_fault_and_are_told() -> None:
    mine = graph("b", "a")
    wiring = Wiring(mine, graph("a", "b"), {name: name for name in ("x", *mine.producers)})
    assert wiring.joined([2], [[0], [3]]) == {2, 3}
    assert wiring.told(["t", "m"]) == ("t reads the output of p; like the original it should read the output of n",)
