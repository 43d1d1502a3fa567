"""What nodes read, beside what the original's read to make the same."""

from __future__ import annotations

import numpy as np
from onnx import numpy_helper

from runner.model.graph.graph_index import Graph
from runner.reference.wiring import Wiring
from tests.model.models import model_of, nodes_of


def graph(tanh: str, sin: str) -> Graph:
    nodes = f"[n] a = Neg (x) [p] b = Abs (x) [t] c = Tanh ({tanh}) [s] d = Sin ({sin}) [m] y = Sub (c, d)"
    return Graph.of(model_of(nodes, ["x"], ["y"]))


def test_nodes_that_read_each_others_inputs_are_one_fault_and_are_told() -> None:
    mine = graph("b", "a")
    wiring = Wiring(mine, graph("a", "b"), {name: name for name in ("x", *mine.producers)})
    assert wiring.joined([2], [[0], [3]]) == {2, 3}
    assert wiring.told(["t", "m"]) == ("t reads the output of p; like the original it should read the output of n",)


def test_of_nodes_between_which_nothing_has_a_partner_it_is_told_of_all_together() -> None:
    """The original computes from b what the model computes from what it makes of a."""
    mine = graph("b", "u").model
    mine.graph.node.insert(3, nodes_of("[u] u = Floor (a)")[0])
    partners = {name: name for name in ("x", *"abcdy")}
    (said,) = Wiring(Graph.of(mine), graph("b", "b"), partners).told(["u", "s"])
    assert said == "u reads the output of n; like the original these nodes should read the output of p"


def test_transposes_that_undo_each_other_are_no_reason_and_what_the_original_computes_between_is_not_left_out() -> None:
    end = "[s] d = Sin (c) [m] y = Sub (d, e)"
    theirs = Graph.of(model_of(f"[n] a = Neg (x) [k] e = Tanh (a) [p] b = Abs (a) [c] c = Cos (b) {end}", ["x"], ["y"]))
    turned = "[u] u = Transpose <perm = [1, 0]> (b) [c] v = Cos (u) {0} [w] c = Transpose <perm = [1, 0]> (v)"
    said = []
    for part in (turned.format(""), turned.format("").replace("[w] c = Transpose <perm = [1, 0]>", "[w] c = Relu")):
        mine = Graph.of(model_of(f"[n] a = Neg (x) [k] e = Tanh (a) [p] b = Abs (a) {part} {end}", ["x"], ["y"]))
        wiring = Wiring(mine, theirs, {name: name for name in ("x", *theirs.producers)})
        said.append(wiring.told(["u", "c", "w"]))
    assert said == [(), ("Relu, which the original does not have there",)], said
    mine = Graph.of(model_of(f"[n] a = Neg (x) [k] e = Tanh (a) [c] c = Transpose (e) {end}", ["x"], ["y"]))
    wiring = Wiring(mine, theirs, {name: name for name in ("x", "a", "c", "d", "e", "y")})
    assert wiring.told(["c"]) == ()


def test_of_what_reads_nothing_but_constants_no_operator_is_told() -> None:
    """What the original computes from constants is one value to it, of however many nodes."""
    ends, text = (["x"], ["y"]), "[n] a = Neg (w) {} [m] y = Add (x, {})"
    held = [numpy_helper.from_array(np.ones((2, 3), np.float32), "w")]
    mine = Graph.of(model_of(text.format("", "a"), *ends, held))
    theirs = Graph.of(model_of(text.format("[k] b = Tanh (a)", "b"), *ends, held))
    assert Wiring(mine, theirs, {"x": "x", "a": "b", "y": "y"}).told(["n"]) == ()
