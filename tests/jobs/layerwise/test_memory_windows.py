"""As many tensors in one run as there is room for."""

from __future__ import annotations

from onnx import TensorProto, helper

from runner.jobs.layerwise.run import alive, halves, windows
from runner.model.graph.graph_index import Graph


def test_windows_hold_what_there_is_room_for_in_order() -> None:
    sizes = {"a": 3, "b": 3, "c": 9, "d": 1, "e": 1, "f": 1}
    assert windows(sizes, 6) == [("a", "b"), ("c",), ("d", "e", "f")]
    assert windows(sizes, 100, most=4) == [("a", "b", "c", "d"), ("e", "f")]
    assert windows({}, 6) == []


def test_halves() -> None:
    assert halves(("a", "b", "c")) == (("a",), ("b", "c"))


def test_values_alive_at_one_moment() -> None:
    """x -> a -> b -> d and a -> c -> d: at most a, b and c, then b, c and d."""
    nodes = [
        helper.make_node("Abs", ["x"], ["a"]),
        helper.make_node("Abs", ["a"], ["b"]),
        helper.make_node("Neg", ["a"], ["c"]),
        helper.make_node("Add", ["b", "c"], ["d"]),
    ]
    ends = [[helper.make_tensor_value_info(name, TensorProto.FLOAT, [1])] for name in ("x", "d")]
    graph = Graph.of(helper.make_model(helper.make_graph(nodes, "g", *ends)))
    assert alive(graph, {"a": 10, "b": 3, "c": 2, "d": 1}) == 15
    assert alive(graph, {"a": 1, "b": 3, "c": 2, "d": 10}) == 15
