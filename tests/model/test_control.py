"""Controls: harmless models that are like a cut, or share inputs and outputs with the model."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from runner.model.graph.cut import Form, control
from runner.model.graph.graph_index import Graph
from tests.model.models import model_of

DTYPES = [v for k, v in TensorProto.DataType.items() if k != "UNDEFINED"]


@pytest.mark.parametrize(
    "form", [Form(), Form(operator="Abs"), Form(True), Form(outputs=True), Form(True, True)], ids=str
)
@pytest.mark.parametrize("dtype", DTYPES)
def test_a_control_is_valid_for_every_dtype(dtype, form):
    info = helper.make_tensor_value_info("odd name/Ω", dtype, [2])
    model = model_of([helper.make_node("Size", ["odd name/Ω"], ["y"])], [info], ["y"], opset=25, ir=13)
    made = control(Graph.of(model), {"odd name/Ω": info.type, "y": info.type}, form, {})
    assert ("odd name/Ω" in made.cut.inputs) == form.inputs
    assert ("y" in made.cut.outputs) == (form.outputs and dtype not in (27, 28))
    if onnx.defs.onnx_opset_version() >= made.cut.model.opset_import[0].version:
        onnx.checker.check_model(made.cut.model, full_check=True)


def test_a_model_without_inputs_has_a_control_too():
    made = control(Graph.of(helper.make_model(helper.make_graph([], "", [], []))), {}, Form(), {})
    onnx.checker.check_model(made.cut.model)
    assert (made.cut.inputs, made.cut.outputs) == (("input_of_a_harmless_model",), ("output_of_a_harmless_model",))


def test_an_opset_that_cannot_be_is_none():
    info = helper.make_tensor_value_info("x", TensorProto.FLOAT, [2])
    graph = Graph.of(model_of([helper.make_node("Exp", ["x"], ["y"])], [info], ["y"], opset=-1))
    onnx.checker.check_model(control(graph, {"x": info.type}, Form(), {}).cut.model)


def test_what_a_control_shares_with_the_model():
    """Ids of int64 go in; a float tensor and one that counts come out."""
    ids, mask = (helper.make_tensor_value_info(name, TensorProto.INT64, ["N", 4]) for name in ("ids", "mask"))
    graph = Graph.of(model_of("y = Cast <to = 1> (ids)  sum = Add (ids, mask)", [ids, mask], ["y", "sum"]))
    types = {"ids": ids.type, "mask": mask.type}
    types |= {name: helper.make_tensor_type_proto(kind, [1, 4]) for name, kind in (("y", 1), ("sum", 7))}
    good = {"y": numpy_helper.from_array(np.full((1, 4), 7, np.float32))}
    good["sum"] = numpy_helper.from_array(np.ones(4, int))
    lone = control(graph, types, Form(), good).cut
    assert [node.op_type for node in lone.model.graph.node] == ["Identity"]
    assert not {*lone.inputs, *lone.outputs} & {"ids", "mask", "y", "sum"}
    (output,) = lone.model.graph.output
    assert output.type.tensor_type.elem_type == TensorProto.FLOAT
    assert [dim.dim_value for dim in output.type.tensor_type.shape.dim] == [1, 7]

    fed = control(graph, types, Form(inputs=True), good)
    assert (fed.cut.inputs, fed.cut.outputs) == (("ids", "mask"), ("output_of_a_harmless_model",))

    own = control(graph, types, Form(inputs=True, outputs=True), good)
    assert (own.cut.inputs, own.cut.outputs) == (("ids", "mask"), ("y", "sum"))
    assert own.given["sum"] == "ids"
    assert own.given["y"] == good["y"]

    held = control(graph, types, Form(inputs=True, outputs=True, good=True), good)
    assert held.given == good
