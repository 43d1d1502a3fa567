"""A model as ONNX text: either that says all of it, or it is said that it does not."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

from runner.model.files.onnx_text import WIDTH, bare, print_model, text_of, wrapped

ONE = np.ones(2, np.float32)


def model(*nodes: NodeProto, inputs: tuple[str, ...] = ("x",), outputs: tuple[str, ...] = ("y",)) -> ModelProto:
    declared = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, "N", None]) for name in inputs]
    made = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs]
    graph = helper.make_graph(nodes, "the graph/1", declared, made, doc_string="of it")
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=imports, ir_version=8, producer_name="it")


def relu(name: str) -> ModelProto:
    return model(helper.make_node("Relu", [name], ["y"], name=name), inputs=(name,))


def elu(alpha: float) -> ModelProto:
    return model(helper.make_node("Elu", ["x"], ["y"], alpha=alpha))


def foo(**attributes: object) -> ModelProto:
    return model(helper.make_node("Foo", ["x"], ["y"], domain="com.microsoft", **attributes))


def with_body() -> ModelProto:
    made = helper.make_tensor_value_info("/t", TensorProto.FLOAT, None)
    weight = numpy_helper.from_array(np.float32([0.1, -0.0]), "w")
    body = helper.make_graph([helper.make_node("Add", ["x", "w"], ["/t"])], "a body", [], [made], [weight])
    return model(helper.make_node("If", ["x"], ["y"], then_branch=body, else_branch=body))


SAID = {
    "names": [
        relu(name) for name in ("/a/b.0:1", 'a"b', "a\\b", "a\nb", "aéb\u202e", "12", "float", 'a """ b', "a, b")
    ],
    "no name": [model(helper.make_node("Clip", ["x", "", "m"], ["y"]), inputs=("x", "m"))],
    "numbers": [elu(one) for one in (1 / 3, -0.0, float("nan"), float("inf"), -float("inf"), 1e30, 1e-45, 16777217.0)],
    "attributes": [foo(mode='a"b\\c\n'), foo(all=["a", ""]), foo(some=[0.1, 1.0]), foo(n=[1, -(2**63)]), foo(one=1.0)],
    "a tensor": [model(helper.make_node("Constant", [], ["y"], value=numpy_helper.from_array(ONE / 3, "v")))],
    "a typed tensor": [model(helper.make_node("Constant", [], ["y"], value=helper.make_tensor("v", 1, [2], [0.1, 2])))],
    "a body": [with_body()],
    "a long line": [model(helper.make_node("Sum", [f"/layer.{n}/x" for n in range(30)], ["y"], name="it"))],
}


@pytest.mark.parametrize("name", SAID)
def test_what_text_says(name: str) -> None:
    for one in SAID[name]:
        text = text_of(one)
        parsed = onnx.parser.parse_model(text.whole())
        assert bare(parsed).SerializeToString(deterministic=True) == bare(one).SerializeToString(deterministic=True)
        assert max(map(len, text.lines)) <= WIDTH


def in_scopes(*scopes: str) -> ModelProto:
    """A chain whose names begin with these scopes, all of them ten times."""
    names = [f"{scope}/it_{number}" for scope in scopes for number in range(10)]
    nodes = [helper.make_node("Relu", [x], [y], name=y) for x, y in pairwise(names)]
    return model(*nodes, inputs=(names[0],), outputs=(names[-1],))


def test_scopes_that_many_names_begin_with_are_signs() -> None:
    short, long = "/encoder/layer.0", "/encoder/layer.1/attention/output"
    made = in_scopes(short, long)
    text = text_of(made)
    assert text.prefixes == {"~": f"{short}/", "@": f"{long}/"}
    assert len(text.lines) < len(text_of(in_scopes(*(f"{name}@" for name in (short, long)))).lines)
    assert bare(onnx.parser.parse_model(text.whole())) == bare(made)
    for whole in (in_scopes("/a"), in_scopes(f"{long}/@")):
        assert (text_of(whole).prefixes, bare(onnx.parser.parse_model(text_of(whole).whole()))) == ({}, bare(whole))


def sparse() -> ModelProto:
    made = relu("x")
    values, places = numpy_helper.from_array(ONE, "s"), numpy_helper.from_array(np.array([0, 3]), "i")
    made.graph.sparse_initializer.append(helper.make_sparse_tensor(values, places, [4]))
    return made


def annotated() -> ModelProto:
    made = relu("x")
    made.graph.quantization_annotation.add(tensor_name="x")
    return made


def test_what_text_does_not_say(tmp_path: Path) -> None:
    no_name = model(helper.make_node("Split", ["x"], ["a", "b"]), outputs=("a", "b"))
    no_name.graph.node[0].op_type = "Sp lit"
    for one in (sparse(), annotated(), no_name):
        with pytest.raises(Exception, match=r"another one|ParseError|rror"):
            text_of(one)
    path = tmp_path / "m.onnx"
    path.write_bytes(sparse().SerializeToString())
    told = print_model({"model": str(path)})
    assert (told["text"], told["why"]) == ([], "ValueError: the text of this model is that of another one")
    path.write_bytes(relu("x").SerializeToString())
    assert print_model({"model": str(path)}) == {"text": [*text_of(relu("x"))], "why": ""}


def test_lines_break_at_spaces_outside_of_quotes() -> None:
    name = '"' + "a b " * 21 + '"'
    line = f"   y = Sum ({name}, {name}, x)"
    assert wrapped(line) == ["   y = Sum", f"      ({name},", f"      {name},", "      x)"]
    assert wrapped("   }") == ["   }"]
    assert wrapped("   ") == []
