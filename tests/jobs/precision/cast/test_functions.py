"""Nodes of functions lead back to where they are in the original."""

from __future__ import annotations

from onnx import parser

from runner.jobs.precision.prepare_model import inlined

TEXT = """<ir_version: 10, opset_import: ["":18, "my":1]>
g (float[2,3] x, bool c) => (float[2,3] y, float[2,3] z) {
  [c1] a = my.Outer(x)
  [c2] b = my.Inner(a)
  [iff] y = If(c) <then_branch = t () => (float[2,3] t1) { [c3] t1 = my.Inner(b) },
                   else_branch = e () => (float[2,3] e1) { e1 = Identity(b) }>
  [plain] z = Neg(b)
}
<opset_import: ["":18], domain: "my">
Inner (i) => (o) { [n1] k = Exp(i)  [n2] o = Neg(k) }
<opset_import: ["":18, "my":1], domain: "my">
Outer (i) => (o) { [p1] k = my.Inner(i)  two = Constant<value = float {2.0}>()  [p2] o = Mul(k, two) }
"""


def test_where_nodes_come_from() -> None:
    made, origins = inlined(parser.parse_model(TEXT))
    named = {node.name: origins.get(node.output[0]) for node in made.graph.node if node.name}
    (branch,) = [a.g for node in made.graph.node for a in node.attribute if a.name == "then_branch"]
    by_call = [name for name in named.values() if name]
    assert by_call == [
        "node n1 of function my.Inner, called by node p1 of function my.Outer, called by node c1",
        "node n2 of function my.Inner, called by node p1 of function my.Outer, called by node c1",
        "node p2 of function my.Outer, called by node c1",
        "node n1 of function my.Inner, called by node c2",
        "node n2 of function my.Inner, called by node c2",
    ]
    assert named["plain"] is None and named["iff"] is None
    assert [origins[node.output[0]] for node in branch.node] == [
        "node n1 of function my.Inner, called by node c3",
        "node n2 of function my.Inner, called by node c3",
    ]


def test_a_model_without_functions_stays() -> None:
    model = parser.parse_model('<ir_version: 9, opset_import: ["":18]> g (float[2] x) => (float[2] y) { y = Exp(x) }')
    assert inlined(model) == (model, {})
