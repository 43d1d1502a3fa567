"""Blocks of a model: layers whose names have one scope; what has none that says something is in no block."""

from __future__ import annotations

import onnx
import onnx.parser
from onnx import ModelProto, TensorProto

from runner.jobs.precision.layers import Pair, layers
from runner.jobs.precision.prepare_search import blocks

PAIR = Pair(TensorProto.FLOAT16, TensorProto.FLOAT)


def quoted(name: str) -> str:
    return name.replace("/", "__slash__")


def model(body: str) -> ModelProto:
    made = onnx.parser.parse_model(
        f'<ir_version: 9, opset_import: ["": 18]> g (float[2,6] x, bool c) => (float[2,6] y) {{ {body} }}'
    )
    for graph in (made.graph, *(one.g for node in made.graph.node for one in node.attribute if one.HasField("g"))):
        for node in graph.node:
            node.name = node.name.replace("__slash__", "/")
    return made


def found(made: ModelProto) -> dict[str, list[str]]:
    typed = onnx.shape_inference.infer_shapes(made)
    own = layers(typed, {}, PAIR)
    return {scope: [own[index].path for index in block] for scope, block in blocks(typed, {}, own).items()}


def chain(*names: str) -> str:
    """A node of each name, one behind the other."""
    values = ["x", *(f"v{at}" for at in range(1, len(names))), "y"]
    return " ".join(f"[{quoted(name)}] {values[at + 1]} = Tanh({values[at]})" for at, name in enumerate(names))


def test_one_scope_is_one_block() -> None:
    names = ["/net/a/T1", "/net/a/T2", "/net/b/T1", "/net/b/T2", "/net/b/T3", "/net/a/T4", "/head"]
    assert found(model(chain(*names))) == {
        "net/a": ["/net/a/T1", "/net/a/T2", "/net/a/T4"],
        "net/b": ["/net/b/T1", "/net/b/T2", "/net/b/T3"],
    }


def test_a_scope_that_all_have_says_nothing() -> None:
    assert found(model(chain("main/a", "main/b", "main/c"))) == {}
    inner = ["main/a/1", "main/b", "main/a/2", "main/c", "main/d"]
    assert found(model(chain(*inner))) == {"main/a": ["main/a/1", "main/a/2"]}


def test_nor_does_one_that_most_have() -> None:
    assert found(model(chain("main/a", "main/b", "main/c", "added", "too"))) == {}


def test_a_scope_may_be_too_large_for_a_block() -> None:
    names = [f"{scope}/{at}" for scope, many in (("a", 32), ("b", 33)) for at in range(many)]
    assert list(found(model(chain(*names)))) == ["a"]


def test_a_slash_in_front_is_no_scope() -> None:
    assert found(model(chain("/one", "/two", "three", "four", "five"))) == {}


def test_what_is_around_a_nested_graph_is_no_scope() -> None:
    body = (
        "[a__slash__if] z = If(c) <then_branch = yes () => (float[2,6] u) { [one] p = Tanh(x) [two] u = Tanh(p) }, "
        "else_branch = no () => (float[2,6] v) { [a__slash__one] q = Tanh(x) [a__slash__two] v = Tanh(q) }> "
        "[a__slash__three] b = Tanh(z) [a__slash__four] d = Tanh(b) [end] y = Tanh(d)"
    )
    blocks_found = found(model(body))
    assert "a/if.then_branch/" not in blocks_found
    assert blocks_found["a/if.else_branch/a"] == ["a/if.else_branch/a/one", "a/if.else_branch/a/two"]
    assert blocks_found["a"][-2:] == ["a/three", "a/four"]


def test_numbered_nodes_have_their_module_in_the_metadata() -> None:
    made = model(chain("node_1", "node_2", "node_3", "node_4", "node_5"))
    for node, module in zip(made.graph.node, ("a", "a", "b", "b", ""), strict=True):
        node.metadata_props.add(key="namespace", value=f": Net/{module}: Block/tanh: aten.tanh" if module else "")
    assert found(made) == {": Net/a: Block": ["node_1", "node_2"], ": Net/b: Block": ["node_3", "node_4"]}
