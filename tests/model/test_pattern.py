"""Where the pattern of some nodes stands: the same operators, attributes, types and wiring."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from onnx import ModelProto, TensorProto

from runner.model.graph.find_pattern import instances, pieces
from runner.model.graph.graph_index import Graph
from runner.model.passes.lift_constants import lower_constants
from tests.model.models import SHAPE, dags, model_of, recorded, tensor, types_of


def found(model: ModelProto, *names: str, types=None) -> list[set[str]]:
    """The instances of the nodes that give some tensors, by what their nodes give."""
    lower_constants(model.graph, model.ir_version)
    graph = Graph.of(model)
    nodes = {graph.producers[name] for name in names}
    known = types_of(recorded(model, {"x": np.ones(SHAPE, np.float32)})) if types is None else types
    return [{graph.nodes[index].outputs[0] for index in one} for one in instances(graph, nodes, known)]


def blocks(count=3, alphas=None, extra=""):
    """Mul, Add, LeakyRelu, several times over."""
    text, at = "", "x"
    for block, alpha in enumerate(alphas or [0.1] * count):
        text += f"m{block} = Mul ({at}, w{block})  a{block} = Add (m{block}, {at}) "
        text += f"r{block} = LeakyRelu <alpha = {alpha}> (a{block}) "
        at = f"r{block}"
    weights = [tensor(f"w{block}", np.full(SHAPE, block + 2, np.float32)) for block in range(count)]
    return model_of(text + extra, ["x"], [at], weights)


def test_a_repeated_block_is_found_wherever_it_stands():
    assert found(blocks(), "m1", "a1", "r1") == [{f"m{at}", f"a{at}", f"r{at}"} for at in range(3)]
    assert found(blocks(), "a2") == [{"a0"}, {"a1"}, {"a2"}]


def test_weights_may_differ_and_attributes_may_not():
    assert found(blocks(alphas=[0.1, 0.2, 0.1]), "m0", "a0", "r0") == [{"m0", "a0", "r0"}, {"m2", "a2", "r2"}]
    assert found(blocks(alphas=[0.1, 0.2, 0.1]), "r1") == [{"r1"}]


def test_the_wiring_counts():
    """An Add whose summands stand the other way round, and one that does not read the Mul."""
    extra = "m = Mul (r2, w0)  other = Add (r2, m)  elsewhere = Add (r2, x)"
    assert found(blocks(extra=extra), "m0", "a0") == [{f"m{at}", f"a{at}"} for at in range(3)]


def test_a_weight_is_no_activation():
    assert found(blocks(extra="m = Mul (r2, r0)"), "m0") == [{"m0"}, {"m1"}, {"m2"}]


def test_another_type_is_another_pattern():
    text = f"h = Cast <to = {TensorProto.FLOAT16}> (x)  n = Neg (h)  m = Neg (x)  y = Abs (n)  z = Neg (m)"
    assert found(model_of(text, ["x"], ["z"]), "m") == [{"m"}, {"z"}]


def test_which_output_is_read_counts():
    text = "".join(
        f"{one}, {two} = Split <axis = 0> (x, halves)  n{read} = Neg ({read}) "
        for one, two, read in ("pqp", "stt", "uvu", "eff")
    )
    model = model_of(text, ["x"], ["np", "nt", "nu", "nf"], [tensor("halves", np.array([1, 1]))])
    assert found(model, "p", "np") == [{"p", "np"}, {"u", "nu"}]
    assert found(model, "s", "nt") == [{"s", "nt"}, {"e", "nf"}]


def test_nested_graphs_count_by_their_operators():
    text = "".join(
        f"""i{at} = If (yes) <then_branch = t () => (float[2,3] t{at}) {{ t{at} = {op} (x) }},
            else_branch = e () => (float[2,3] e{at}) {{ e{at} = Abs (x) }}> """
        for at, op in enumerate(["Neg", "Exp", "Neg"])
    )
    model = model_of(text, ["x"], ["i0", "i1", "i2"], [tensor("yes", np.array(True))])
    assert found(model, "i0") == [{"i0"}, {"i2"}]


def test_the_nodes_themselves_are_found_beside_others_that_look_alike():
    model = model_of("a = Relu (x)  b = Neg (a)  c = Abs (b)  d = Abs (b)", ["x"], ["c", "d"])
    assert {"a", "b", "d"} in found(model, "a", "b", "d")


def test_of_nodes_in_pieces_each_piece_is_looked_for():
    assert found(blocks(), "m0", "r1") == [{"m0"}, {"r0"}, {"m1"}, {"r1"}, {"m2"}, {"r2"}]
    graph = Graph.of(blocks())
    assert pieces(graph, [0, 1, 5, 8]) == (frozenset({0, 1}), frozenset({5}), frozenset({8}))


@pytest.mark.parametrize("count", [1, 80])
def test_large_pieces_are_not_looked_for(count):
    model = blocks(count)
    names = [f"{what}{at}" for at in range(count) for what in "mar"]
    assert found(model, *names) == [set(names)]


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(dags(), st.data())
def test_each_instance_looks_like_the_nodes_and_they_are_among_them(dag, data):
    model, feeds = dag
    lower_constants(model.graph, model.ir_version)
    graph = Graph.of(model)
    if not graph.nodes:
        return
    nodes = data.draw(st.sets(st.sampled_from(range(len(graph.nodes))), min_size=1, max_size=5))
    made = instances(graph, nodes, types_of(recorded(model, feeds)))
    for piece in pieces(graph, nodes):
        assert piece in made
    sizes = {len(piece) for piece in pieces(graph, nodes)}
    kinds = [sorted(graph.nodes[index].op_type for index in piece) for piece in pieces(graph, nodes)]
    for one in made:
        assert len(one) in sizes
        assert sorted(graph.nodes[index].op_type for index in one) in kinds
