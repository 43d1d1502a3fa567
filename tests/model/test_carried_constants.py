"""Nodes that compute of initializers alone come along with whatever reads them, as the nodes that they are."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from onnx import helper
from onnx.reference import ReferenceEvaluator

from runner.model.graph.cut import cut, splice
from runner.model.graph.graph_index import Graph
from runner.model.passes.lift_constants import lower_constants
from tests.model.models import SHAPE, dags, model_of, nodes_of, recorded, tensor, types_of

X = np.linspace(-1, 1, 6, dtype=np.float32).reshape(SHAPE)
W = np.float32([[1, 2, 3], [4, 5, 6]])


def graph_of(nodes, outputs, *, functions=(), domains=()) -> Graph:
    weights = [tensor("w", W), tensor("yes", np.array(True)), tensor("shape", np.array([2, 3]))]
    return Graph.of(model_of(nodes, ["x"], outputs, weights, functions=functions, domains=domains))


def named(graph: Graph, indices) -> list[str]:
    return [graph.names[index] for index in sorted(indices)]


TABLE = """[angle] angle = Neg (w)  [table] table = Cos (angle)  [first] first = Mul (x, table)
    [second] second = Sub (first, table)  [y] y = Tanh (second)"""


def cut_of(graph: Graph, keep, **options):
    values = recorded(graph.model, {"x": X})
    made = cut(graph, keep, types=types_of(values), constants={}, **options)
    onnx.checker.check_model(made.model, full_check=True)
    return made, values


def test_good_values_in_place_of_nodes_leave_constants_to_those_that_stay():
    graph = graph_of(TABLE, ["y"])
    values = recorded(graph.model, {"x": X})
    for gone, names, fed in (
        ([2], ["angle", "table", "second", "y"], ("first",)),
        ([2, 3], ["y"], ("second",)),
        ([4], ["angle", "table", "first", "second", "y_given"], ("x", "y_good")),
    ):
        made = splice(graph, gone, carried=graph.constants, alive=True)
        types = types_of({**values, "y_good": values["y"]})
        found = cut(
            graph,
            made.keep,
            types=types,
            constants={},
            expose="own",
            front=made.front,
            shown=made.shown,
            carried=graph.constants,
        )
        assert (sorted(one.name for one in found.model.graph.node), found.inputs) == (sorted(names), fed)


@pytest.mark.parametrize(
    ("nodes", "constants"),
    [
        ("s = Shape (x)  z = ConstantOfShape (s)  y = Add (x, z)", []),
        ("z = Expand (w, shape)  y = Add (x, z)", ["z"]),
        ("z = RandomNormalLike (w)  n = Neg (z)  y = Add (x, n)", []),
        ("z = RandomUniformLike <seed = 1.0> (w)  y = Add (x, z)", []),
        ("z = Neg (w)  unread = Abs (z)  y = Add (x, z)", ["z"]),
        ("""z = If (yes) <then_branch = b () => (float[2,3] t) { t = Neg (w) },
            else_branch = b () => (float[2,3] e) { e = Abs (w) }>  y = Add (x, z)""", []),
    ],
    ids=["shape of an input", "expand", "drawn", "drawn with a seed", "nobody reads it", "holds graphs"],
)  # fmt: skip
def test_what_is_a_constant(nodes, constants):
    graph = graph_of(nodes, ["y"])
    assert named(graph, graph.constants) == constants


def test_an_output_of_the_model_is_an_element_and_so_is_what_depends_on_it():
    assert graph_of("z = Neg (w)  a = Abs (z)  y = Add (x, a)", ["y", "z"]).constants == frozenset()


@pytest.mark.parametrize(("inner", "constants"), [("RandomNormalLike", []), ("Neg", ["z"])])
def test_a_function_that_draws_is_none(inner: str, constants: list[str]):
    body = nodes_of(f"b = {inner} (a)")
    function = helper.make_function("own", "F", ["a"], ["b"], body, [helper.make_opsetid("", 17)])
    graph = graph_of("z = own.F (w)  y = Add (x, z)", ["y"], functions=[function], domains=["own"])
    assert named(graph, graph.constants) == constants
    made, _ = cut_of(graph, [1], carried=graph.constants) if constants else (None, None)
    assert made is None or [one.name for one in made.model.functions] == ["F"]


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(dags(), st.data())
def test_a_cut_with_its_constants_computes_what_the_whole_does(dag, data):
    model, feeds = dag
    lower_constants(model.graph, model.ir_version)
    graph = Graph.of(model)
    elements = [index for index in range(len(graph.nodes)) if index not in graph.constants]
    if not elements:
        return
    values = recorded(model, feeds)
    keep = data.draw(st.sets(st.sampled_from(elements), min_size=1))
    freed = data.draw(st.sets(st.sampled_from(sorted(graph.constants)))) if graph.constants else set()
    made = cut(graph, keep, types=types_of(values), constants={}, carried=graph.constants - freed)
    given_up = {name for index in graph.constants - freed for name in graph.nodes[index].outputs}
    assert given_up.isdisjoint(made.inputs) and given_up.isdisjoint(made.outputs)
    kept = {graph.producers[one.output[0]] for one in made.model.graph.node}
    assert len(kept) == len(made.model.graph.node)
    assert keep <= kept <= keep | graph.constants - freed
    read = {name for index in kept for name in graph.nodes[index].inputs}
    assert all(read.intersection(graph.nodes[index].outputs) for index in kept - keep)
    found = ReferenceEvaluator(made.model).run(None, {name: values[name] for name in made.inputs})
    for name, one in zip(made.outputs, found, strict=True):
        np.testing.assert_allclose(one, values[name], rtol=1e-5, atol=1e-6)
