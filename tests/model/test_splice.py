"""The whole model with good values in place of some nodes: equal to the original where nothing is wrong."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from runner.model.graph.cut import CutError, cut, depends_on, splice
from runner.model.graph.graph_index import Graph
from runner.model.passes.lift_constants import lower_constants
from tests.model.models import SHAPE, dags, model_of, recorded, tensor, types_of
from tests.model.nested import run_ort

X = np.linspace(-1, 1, 6, dtype=np.float32).reshape(SHAPE)


@pytest.fixture(autouse=True, scope="module")
def _needs_onnxruntime():
    pytest.importorskip("onnxruntime")


def graph_of(model):
    lower_constants(model.graph, model.ir_version)
    return Graph.of(model)


def spliced(graph, values, gone, **options):
    """The candidate that Winnow checks, its outputs by ONNX Runtime, and which tensor each input gets."""
    made = splice(graph, gone, **options)
    known = types_of(values)
    types = known | {alias: known[name] for alias, name in made.given.items()}
    candidate = cut(graph, made.keep, types=types, constants={}, expose="own", front=made.front, shown=made.shown)
    onnx.checker.check_model(candidate.model, full_check=True)
    feeds = {name: values[made.given.get(name, name)] for name in candidate.inputs}
    bare = onnx.ModelProto()
    bare.CopyFrom(candidate.model)
    for node in bare.graph.node:
        node.name = ""  # ONNX Runtime refuses two nodes of one name, which the random models have
    return candidate, run_ort(bare, feeds)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(dags(), st.data())
def test_where_nothing_is_wrong_it_computes_what_the_model_does(dag, data):
    model, feeds = dag
    graph = graph_of(model)
    if not graph.nodes:
        return
    values = recorded(model, feeds)
    every = range(len(graph.nodes))
    some = data.draw(st.sets(st.sampled_from(every), min_size=1))
    below = depends_on(graph, some)
    for gone in (some, frozenset(every) - below):
        made = {name for name in graph.outputs if name in graph.producers}
        if not made:
            with pytest.raises(CutError):
                spliced(graph, values, gone)
            continue
        candidate, found = spliced(graph, values, gone, alive=data.draw(st.booleans()))
        assert made <= set(candidate.outputs)
        for name in candidate.outputs:
            np.testing.assert_allclose(found[name], values[name], rtol=1e-5, atol=1e-6)
        kept = {node.SerializeToString() for index, node in enumerate(graph.protos) if index not in gone}
        found = {node.SerializeToString() for node in candidate.model.graph.node}
        assert kept <= found and found.isdisjoint(graph.protos[index].SerializeToString() for index in gone)


def chain():
    """Two outputs, one of them in the middle; a node that nobody reads."""
    text = "a = Neg (x)  y = Tanh (a)  b = Abs (y)  nobody = Exp (a)  z = Mul (b, w)"
    return model_of(text, ["x"], ["y", "z"], [tensor("w", np.float32(2))])


def test_an_output_that_is_given_good_stays_an_output():
    graph = graph_of(chain())
    values = recorded(chain(), {"x": X}) | {"y": X + 5}
    candidate, found = spliced(graph, values, {1})
    assert candidate.outputs == ("y", "z")
    np.testing.assert_array_equal(found["y"], X + 5)
    np.testing.assert_allclose(found["z"], np.abs(X + 5) * 2)


def test_an_output_without_a_good_value_is_left_out():
    graph = graph_of(chain())
    candidate, _ = spliced(graph, recorded(chain(), {"x": X}), {0, 1, 3}, good=lambda name: name != "y")
    assert candidate.outputs == ("z",)


def test_what_only_good_values_replace_can_be_kept_alive():
    graph = graph_of(chain())
    values = recorded(chain(), {"x": X})
    assert spliced(graph, values, {1, 3})[0].outputs == ("y", "z")
    assert spliced(graph, values, {1, 3}, alive=True)[0].outputs == ("y", "z", "a")
    assert not splice(graph, {3}, alive=True).shown, "a node that stays reads it too"
