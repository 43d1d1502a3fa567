"""What belongs together in a model: scopes of names, norms that are written out, single nodes."""

from __future__ import annotations

import onnx
import onnx.parser
from onnx import ModelProto, TensorProto

from runner.jobs.precision.blocks.find_blocks import blocks
from runner.jobs.precision.cast.layers import Pair, layers

PAIR = Pair(TensorProto.FLOAT16, TensorProto.FLOAT)
NORM = ("Pow", "ReduceMean", "Add", "Sqrt", "Div", "Mul")


def norm(at: str, x: str, y: str, scope: str = "") -> str:
    """A norm, its nodes named within a scope."""
    made = [f"{at}{number}" for number in range(5)] + [y]
    reads = [f"{x}, two", f"{made[0]}, last", f"{made[1]}, eps", made[2], f"{x}, {made[3]}", f"{made[4]}, scale"]
    return " ".join(
        f"[{quoted(f'{scope}{op}_{at}')}] {out} = {op}({read})" for op, out, read in zip(NORM, made, reads, strict=True)
    )


def quoted(name: str) -> str:
    return name.replace("/", "__slash__")


def model(body: str) -> ModelProto:
    made = onnx.parser.parse_model(
        '<ir_version: 9, opset_import: ["": 18]> g (float[2,6] x, bool c) => (float[2,6] y) '
        "<float two = {2.0}, float eps = {1e-5}, int64[1] last = {-1}, float[6] scale = {1., 2., 3., 4., 5., 6.}> "
        f"{{ {body} }}"
    )
    for graph in (made.graph, *(one.g for node in made.graph.node for one in node.attribute if one.HasField("g"))):
        for node in graph.node:
            node.name = node.name.replace("__slash__", "/")
    return made


def found(made: ModelProto) -> list[list[str]]:
    typed = onnx.shape_inference.infer_shapes(made)
    own = layers(typed, {}, PAIR)
    return [[own[index].path for index in block] for block in blocks(typed, {}, own, PAIR)]


def chain(*names: str) -> str:
    """A node of each name, one behind the other."""
    values = ["x", *(f"v{at}" for at in range(1, len(names))), "y"]
    return " ".join(f"[{quoted(name)}] {values[at + 1]} = Tanh({values[at]})" for at, name in enumerate(names))


def test_one_scope_is_one_block() -> None:
    names = ["/net/a/T1", "/net/a/T2", "/net/b/T1", "/net/b/T2", "/net/b/T3", "/net/a/T4", "/head"]
    assert found(model(chain(*names))) == [
        ["/net/a/T1", "/net/a/T2", "/net/a/T4"],
        ["/net/b/T1", "/net/b/T2", "/net/b/T3"],
        ["/head"],
    ]


def test_a_scope_that_all_have_says_nothing() -> None:
    assert found(model(chain("main/a", "main/b", "main/c"))) == [["main/a"], ["main/b"], ["main/c"]]
    inner = ["main/a/1", "main/b", "main/a/2", "main/c", "main/d"]
    assert found(model(chain(*inner))) == [["main/a/1", "main/a/2"], ["main/b"], ["main/c"], ["main/d"]]


def test_nor_does_one_that_most_have() -> None:
    names = ["main/a", "main/b", "main/c", "added", "too"]
    assert found(model(chain(*names))) == [[name] for name in names]


def test_a_norm_without_a_scope_is_a_block() -> None:
    body = "[before] t = Tanh(x) " + norm("n", "t", "u", "main/") + " [behind] y = Tanh(u)"
    own = [f"main/{op}_n" for op in NORM]
    assert found(model(body)) == [["before"], own, ["behind"]]


def test_a_scope_with_two_norms_is_a_layer_of_the_model() -> None:
    body = norm("n", "x", "t", "l0/") + " [l0__slash__act] u = Tanh(t) " + norm("m", "u", "v", "l0/") + " "
    body += " ".join(f"[l1__slash__t{at}] w{at} = Tanh({f'w{at - 1}' if at else 'v'})" for at in range(13))
    body += " [end] y = Tanh(w12)"
    assert found(model(body)) == [
        [f"l0/{op}_n" for op in NORM],
        ["l0/act"],
        [f"l0/{op}_m" for op in NORM],
        [f"l1/t{at}" for at in range(13)],
        ["end"],
    ]


def test_what_is_around_a_nested_graph_is_no_scope() -> None:
    body = (
        "[a__slash__if] z = If(c) <then_branch = yes () => (float[2,6] u) { [one] p = Tanh(x) [two] u = Tanh(p) }, "
        "else_branch = no () => (float[2,6] v) { [a__slash__one] q = Tanh(x) [a__slash__two] v = Tanh(q) }> "
        "[a__slash__three] b = Tanh(z) [a__slash__four] d = Tanh(b) [end] y = Tanh(d)"
    )
    within = "a/if.{}_branch/{}".format
    blocks_found = found(model(body))
    assert [within("then", "one")] in blocks_found and [within("then", "two")] in blocks_found
    assert [within("else", "a/one"), within("else", "a/two")] in blocks_found
    assert ["a/three", "a/four"] in blocks_found or ["a/if", "a/three", "a/four"] in blocks_found


def test_numbered_nodes_have_their_module_in_the_metadata() -> None:
    made = model(chain("node_1", "node_2", "node_3", "node_4", "node_5"))
    for node, module in zip(made.graph.node, ("a", "a", "b", "b", ""), strict=True):
        node.metadata_props.add(key="namespace", value=f": Net/{module}: Block/tanh: aten.tanh" if module else "")
    assert found(made) == [["node_1", "node_2"], ["node_3", "node_4"], ["node_5"]]
