"""Any nodes of a body are a valid model, in which the owner stays, and which gives the recorded values."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from runner.model.graph.cut import CutError, depends_on
from runner.model.graph.graph_index import Graph
from runner.model.nested.cut_body import Inner, Knowledge, cut_inside
from runner.model.nested.hoist import Kind, bodies, hoist
from tests.model.models import SHAPE, step, tensor, types_of
from tests.model.nested import (
    CALL,
    FEEDS,
    IF,
    LOOP,
    LOOP_FEEDS,
    PLAIN_SCAN,
    body_of,
    close,
    everything,
    graph_of,
    model_of,
    run_ort,
    run_reference,
)

SLOW = (HealthCheck.too_slow, HealthCheck.data_too_large)


@pytest.fixture(autouse=True, scope="module")
def _needs_onnxruntime():
    pytest.importorskip("onnxruntime")


def info(name, dtype=TensorProto.FLOAT, shape=SHAPE):
    return helper.make_tensor_value_info(name, dtype, shape)


@st.composite
def nodes_of(draw, outside, prefix):
    """Up to 8 steps over float32 [2, 3] that start from ``outside``; returns (nodes, names of what they give)."""
    values, nodes = list(outside), []
    for at in range(draw(st.integers(1, 8))):
        first, second = draw(st.sampled_from(values[-5:])), draw(st.sampled_from(values))
        out, name = f"{prefix}{at}", draw(st.sampled_from(["", f"node {at}"]))
        kind = draw(st.sampled_from(["Neg", "Tanh", "Sub", "Mul", "Split", "If", "Constant", "Shape", "Dropout"]))
        nodes += step(kind, [first, second], out, name, at)
        values.append(out)
    return nodes, values[len(outside) :]


def picked(draw, made, count):
    return [draw(st.sampled_from(made)) for _ in range(count)]


@st.composite
def owners(draw, kind):
    """A model with one owner in the middle of it; returns (model, path of a body, feeds)."""
    extra, feeds = [tensor("yes", np.array(True))], {"x": np.random.default_rng(3).standard_normal(SHAPE).astype("f")}
    inputs, functions = [info("x")], []
    if kind is Kind.IF:
        count = draw(st.integers(1, 3))
        branches = []
        for name, prefix in (("then", "v"), ("else", draw(st.sampled_from(["v", "u"])))):
            nodes, made = draw(nodes_of(["x", "a"], prefix))
            # the same tensor twice: ONNX Runtime leaves one of the two outputs without a value
            nodes += [
                helper.make_node("Identity", [out], [f"r{at}"]) for at, out in enumerate(picked(draw, made, count))
            ]
            outputs = [info(f"r{at}") for at in range(count)]
            branches.append(helper.make_graph(nodes, name, [], outputs))
        outputs = [f"o{at}" for at in range(count)]
        owner = helper.make_node("If", ["c"], outputs, name="owner", then_branch=branches[0], else_branch=branches[1])
        inputs.append(info("c", TensorProto.BOOL, []))
        feeds["c"] = np.array(draw(st.booleans()))
        path = draw(st.sampled_from(["owner.then_branch", "owner.else_branch"]))
    elif kind is Kind.FUNCTION:
        nodes, made = draw(nodes_of(["p", "q"], "v"))
        nodes.insert(0, helper.make_node("Constant", [], ["yes"], value=numpy_helper.from_array(np.array(True))))
        outputs = [f"o{at}" for at in range(draw(st.integers(1, 3)))]
        imports = [helper.make_opsetid("", 17)]
        results = draw(st.lists(st.sampled_from(made), min_size=1, max_size=len(outputs), unique=True))
        outputs = outputs[: len(results)]
        functions = [helper.make_function("f", "F", ["p", "q"], results, nodes, imports)]
        owner = helper.make_node("F", ["x", "a"], outputs, domain="f", name="owner")
        path = "owner.F"
    else:
        carried, stacked = draw(st.integers(0, 2)), draw(st.integers(0, 2))
        carried, stacked = (1, 0) if not carried + stacked else (carried, stacked)
        formal = [f"s{at}" for at in range(carried)] + (["scanned"] if kind is Kind.SCAN else [])
        nodes, made = draw(nodes_of([*formal, "x", "a"], "v"))
        results = picked(draw, made, carried + stacked)
        outputs = [f"o{at}" for at in range(carried + stacked)]
        sources = picked(draw, ["x", "a"], carried)
        given, leading = [info(name) for name in formal], []
        if kind is Kind.LOOP:
            nodes.append(helper.make_node("Identity", ["go"], ["on"]))
            given = [info("i", TensorProto.INT64, []), info("go", TensorProto.BOOL, []), *given]
            leading = [info("on", TensorProto.BOOL, [])]
            sources = ["m", "yes", *sources]
            inputs.append(info("m", TensorProto.INT64, []))
            feeds["m"] = np.array(draw(st.sampled_from([1, 3])))
        else:
            sources.append("xs")
            feeds["xs"] = np.stack([feeds["x"] * at for at in range(1, draw(st.sampled_from([2, 4])))])
            inputs.append(info("xs", shape=list(feeds["xs"].shape)))
        # the same tensor twice is no output of a Scan's or Loop's body that every runtime takes
        renamed = [helper.make_node("Identity", [name], [f"result{at}"]) for at, name in enumerate(results)]
        body = helper.make_graph(
            [*nodes, *renamed], "body", given, [*leading, *(info(f"result{at}") for at in range(len(results)))]
        )
        more = {"num_scan_inputs": 1} if kind is Kind.SCAN else {}
        owner = helper.make_node(kind.value, sources, outputs, name="owner", body=body, **more)
        path = "owner.body"
    after = [helper.make_node("Neg", [name], [f"n{at}"]) for at, name in enumerate(outputs) if draw(st.booleans())]
    shown = [name for name in outputs if draw(st.booleans())] + [node.output[0] for node in after]
    before = helper.make_node("Cos", ["x"], ["a"])
    graph = helper.make_graph(
        [before, owner, *after], "g", inputs, [onnx.ValueInfoProto(name=name) for name in shown or outputs], extra
    )
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("f", 1)]
    model = helper.make_model(graph, opset_imports=imports, ir_version=8, functions=functions)
    return onnx.shape_inference.infer_shapes(model), path, feeds


def recorded(graph, path, feeds):
    """The values of the model's and the body's tensors (these by their names in the body), of the first iteration."""
    made = hoist(graph, body_of(graph, path))
    held = everything(graph.model, feeds, run_ort)
    known = dict(held)
    for need in made.needs:
        if need.role == "slice":
            known[need.name] = np.take(held[need.source], -1 if need.reverse else 0, need.axis)
    below = everything(made.model, known, run_ort)
    return held, {name: below[now] for name, now in made.names.items() if now in below}


def made_of(graph, path, keep, feeds, *, fixed=()):
    inner = Inner.of(graph, body_of(graph, path))
    above, below = recorded(graph, path, feeds)
    limit = "limit" if inner.body.kind is Kind.LOOP else ""
    constants = {name: numpy_helper.from_array(below[name], name) for name in fixed if name in below}
    known = Knowledge(types_of(above), types_of(below), constants, limit)
    made = cut_inside(inner, keep, known)
    values = {**above, "limit": np.array(feeds.get("m", 1))}
    for name, value in below.items():
        if name in inner.outer:
            values[inner.outer[name]] = values[inner.shown[name]] = value
    return inner, made, values


@pytest.mark.variants
@pytest.mark.parametrize("kind", list(Kind))
@settings(max_examples=60, deadline=None, suppress_health_check=SLOW)
@given(data=st.data())
def test_any_nodes_of_a_body_give_the_recorded_values(kind, data):
    model, path, feeds = data.draw(owners(kind))
    graph = graph_of(model)
    elements = Inner.of(graph, body_of(graph, path)).elements.nodes
    if not elements:
        return
    keep = data.draw(st.sets(st.sampled_from(range(len(elements))), min_size=1))
    names = [name for node in elements for name in node.outputs]
    fixed = data.draw(st.sets(st.sampled_from(names)))
    inner, made, values = made_of(graph, path, keep, feeds, fixed=fixed)

    onnx.checker.check_model(made.model, full_check=True)
    found = Graph.of(made.model)
    left = Inner.of(found, next(b for b in bodies(found) if b.attribute == inner.body.attribute))
    stand_ins = f"{inner.body.path}/"
    kept = [node.name for node in left.elements.protos if not node.name.startswith(stand_ins)]
    assert kept == [inner.elements.protos[index].name for index in sorted(keep)]
    once = kind in (Kind.IF, Kind.FUNCTION) or feeds.get("m", 2) == 1 or len(feeds.get("xs", "..")) == 1
    # what a Loop or Scan hands out anew, and what follows it once nodes are gone, is not what is recorded
    changed = set(inner.shown.values())
    if len(keep) < len(elements):
        below = depends_on(graph, [inner.body.owner])
        changed |= {name for index in below for name in graph.nodes[index].outputs}
    for run in (run_reference, run_ort):
        results = run(made.model, values)
        for name in made.outputs:
            if name.endswith("/out") and kind is Kind.SCAN:
                close(results[name][0], values[name])
            elif once or name not in changed:
                # the reference evaluator stacks what a Loop scans along an axis that is there already
                close(results[name].reshape(values[name].shape), values[name])


def test_new_names_are_none_that_the_model_or_the_body_uses():
    graph = graph_of(model_of(CALL))
    inner = Inner.of(graph, body_of(graph, "call.Outer"))
    for name in ("side", "limit", *inner.outer.values(), *inner.shown.values()):
        assert inner.supply().fresh(name) != name


def test_a_carried_value_and_a_condition_that_nobody_needs_leave():
    graph = graph_of(model_of(LOOP))
    inner, made, values = made_of(graph, "loop.body", [1, 2], LOOP_FEEDS)  # Cast, Add: of the iteration's number
    owner = Graph.of(made.model).protos[1]
    body = owner.attribute[0].g
    assert [node.op_type for node in body.node] == ["Cast", "Constant", "Add", "Identity", "Identity"]
    # `last` is read below, so what gives it stands in; the stacked ones are gone; the sum is carried out
    assert owner.output[:] == ["last", "loop.body/g/out"]
    assert owner.input[:] == ["limit", "yes", "half", "loop.body/g"]
    assert [value.name for value in body.output] == ["on", "w", "g"]
    assert not inner.keeps_condition({1, 2})
    assert run_ort(made.model, values)["loop.body/g/out"] == 4  # the last iteration's
    assert inner.keeps_condition({0})


def test_a_scan_keeps_axes_in_step_with_its_outputs():
    graph = graph_of(model_of(PLAIN_SCAN))
    owner = graph.protos[1]
    owner.attribute.append(helper.make_attribute("scan_output_directions", [1]))
    feeds = {"s0": np.array([0.5, -1], np.float32), "xs": np.ones((4, 3), "f"), "ys": np.ones((4, 2), "f")}
    _, made, values = made_of(graph, "scan.body", [0, 3], feeds)  # Add, Mul
    found = Graph.of(made.model).protos[1]
    assert found.output[:] == ["s", "out", "scan.body/t/out"]
    assert next(a.ints[:] for a in found.attribute if a.name == "scan_output_directions") == [1, 0]
    assert run_ort(made.model, values)["scan.body/t/out"].shape == (4, 2)
    _, made, values = made_of(graph, "scan.body", [0], feeds)
    found = Graph.of(made.model).protos[1]
    assert found.output[:] == ["s", "scan.body/t/out"]
    assert "scan_output_directions" not in [attribute.name for attribute in found.attribute]
    run_ort(made.model, values)


def test_an_output_that_the_other_branch_works_for_stays():
    graph = graph_of(model_of(IF))
    _, made, _ = made_of(graph, "choice.then_branch", [0], FEEDS)
    owner = Graph.of(made.model).protos[1]
    assert owner.output[:] == ["y", "extra", "choice.then_branch/t/out"]
    # then nothing is left that the else branch would have to do
    again = Graph.of(made.model)
    owner.attribute[1].g.CopyFrom(owner.attribute[1].g)
    feeds = {**FEEDS, **{name: np.zeros(SHAPE, "f") for name in made.inputs if name not in FEEDS}}
    _, made, _ = made_of(again, "choice.else_branch", [1], feeds)
    assert "choice.else_branch/a2/out" in Graph.of(made.model).protos[1].output


def test_nothing_kept_and_values_that_nobody_knows_are_said():
    graph = graph_of(model_of(IF))
    inner = Inner.of(graph, bodies(graph)[0])
    with pytest.raises(CutError, match="no node"):
        cut_inside(inner, [], Knowledge({}, {}))
    with pytest.raises(CutError, match=r"choice.then_branch/t"):
        cut_inside(inner, [1], Knowledge({}, {}))
