"""Small models and random DAGs for the tests of the model room."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx.parser
from hypothesis import strategies as st
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from runner.model.files.candidate_store import Store
from runner.model.files.read_model import ingest
from runner.model.graph.graph_index import Graph

SHAPE = [2, 3]


def model_of(nodes, inputs, outputs, initializers=(), *, opset=17, ir=8, domains=(), functions=(), value_info=()):
    """A model whose inputs and outputs are float32 [2, 3] where only a name is given; ``nodes`` may be text."""
    nodes = nodes_of(nodes) if isinstance(nodes, str) else list(nodes)
    graph = helper.make_graph(nodes, "g", [*map(_info, inputs)], [*map(_info, outputs)], list(initializers))
    graph.value_info.extend(value_info)
    imports = [helper.make_opsetid("", opset), *(helper.make_opsetid(domain, 1) for domain in domains)]
    return helper.make_model(graph, opset_imports=imports, ir_version=ir, functions=list(functions))


def nodes_of(text: str) -> list[NodeProto]:
    """Nodes as ONNX writes them: ``[name] y = Add (x, w)  z = own.Call <alpha = 0.5> (y, , w)``."""
    return list(onnx.parser.parse_graph(f"g () => () {{ {text} }}").node)


def _info(value):
    return helper.make_tensor_value_info(value, TensorProto.FLOAT, SHAPE) if isinstance(value, str) else value


def tensor(name, array):
    return numpy_helper.from_array(np.asarray(array), name)


def ingested(model: ModelProto, folder: Path, **options) -> tuple[Graph, Store, dict]:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "model.onnx"
    onnx.save(model, path)
    report = ingest({"model": str(path), "store": str(folder / "store"), **options})
    store = Store(folder / "store", options.get("inline_limit", 32 << 20))
    return Graph.load(store.structure), store, report


def recorded(model: ModelProto, feeds: dict) -> dict:
    """Every top-level value of a model, by the reference evaluator."""
    marked = ModelProto()
    marked.CopyFrom(model)
    del marked.graph.output[:]
    names = [name for node in model.graph.node for name in node.output if name]
    marked.graph.output.extend(helper.make_empty_tensor_value_info(name) for name in names)
    values = dict(zip(names, ReferenceEvaluator(marked).run(None, feeds), strict=True))
    return {**feeds, **values}


def types_of(values: dict) -> dict:
    return {
        name: helper.make_tensor_type_proto(helper.np_dtype_to_tensor_dtype(np.asarray(value).dtype), value.shape)
        for name, value in values.items()
    }


@st.composite
def dags(draw, most=25):
    """A random DAG of up to ``most`` nodes over float32 [2, 3]; returns (model, feeds).

    It has all that makes cutting hard: shared values, several outputs, omitted optional inputs, captures, constants,
    dead ends, unnamed nodes.
    """
    values = ["in 0", "in/1"]
    weights = [tensor(f"w:{at}", np.full(SHAPE, at + 0.5, np.float32)) for at in range(2)]
    nodes: list[NodeProto] = []
    names = st.sampled_from(["", "same", "näme/😀", "in 0"])
    for at in range(draw(st.integers(1, most))):
        pick = st.sampled_from([*values[-6:], *values[:2], "w:0", "w:1"])
        first, second = draw(pick), draw(pick)
        out = f"v{at}"
        kind = draw(
            st.sampled_from(["Neg", "Tanh", "Sub", "Mul", "Clip", "Split", "If", "Constant", "Shape", "Dropout"])
        )
        name = draw(names)
        made = step(kind, [first, second], out, name, at, sizes=["halves"])
        nodes += made
        values.append(out)
    outputs = draw(st.lists(st.sampled_from(values[2:]), min_size=1, max_size=3, unique=True))
    extra = [tensor("limit", np.float32(0.75)), tensor("halves", np.array([1, 1])), tensor("yes", np.array(True))]
    model = model_of(nodes, values[:2], outputs, [*weights, *extra])
    rng = np.random.default_rng(draw(st.integers(0, 9)))
    feeds = {name: rng.standard_normal(SHAPE).astype(np.float32) for name in values[:2]}
    return model, feeds


def step(kind, reads, out, name, at, sizes=()):
    """The nodes of one step over float32 [2, 3]; both branches of an If have tensors of the same name."""
    first, second = reads
    node = helper.make_node
    if kind in ("Neg", "Tanh"):
        return [node(kind, [first], [out], name=name)]
    if kind in ("Sub", "Mul"):
        return [node(kind, [first, second], [out], name=name)]
    if kind == "Clip":
        return [node("Clip", [first, "", "limit"], [out], name=name)]
    if kind == "Split":
        halves = [f"{out}.a", f"{out}.b"]
        parts = node("Split", [first, *sizes], halves, name=name, axis=0)
        return [parts, node("Concat", [halves[1], halves[0]], [out], axis=0)]
    if kind == "If":
        ends = [_info(f"{out}.r")]
        then = helper.make_graph([node("Add", [first, second], [f"{out}.r"])], "then", [], ends)
        other = helper.make_graph([node("Neg", [first], [f"{out}.r"])], "else", [], ends)
        return [node("If", ["yes"], [out], name=name, then_branch=then, else_branch=other)]
    if kind == "Constant":
        value = numpy_helper.from_array(np.full(SHAPE, at / 7, np.float32))
        return [node("Constant", [], [out], name=name, value=value)]
    if kind == "Shape":
        return [node("Shape", [first], [f"{out}.s"]), node("Reshape", [second, f"{out}.s"], [out], name=name)]
    return [node("Dropout", [first], [out, f"{out}.mask"], name=name)]
