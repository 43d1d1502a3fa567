"""Models with owners, in the text form of ONNX, and ways to run them."""

from __future__ import annotations

import numpy as np
import onnx
import onnx.parser
from onnx.reference import ReferenceEvaluator

from runner.model.graph.graph_index import Graph
from runner.model.nested.hoist import bodies
from runner.model.passes.lift_constants import lower_constants

HEAD = '<ir_version: 8, opset_import: ["" : {opset}{more}]>\n'

IF = """
main (float[2,3] x, bool c) => (float[2,3] y, float[2,3] z) {
    a = Neg (x)
    [choice] y, extra = If (c) <
        then_branch = then () => (float[2,3] r, float[2,3] s) {
            k = Constant <value = float {2.0}> ()
            [first] t = Mul (a, k)
            r = Add (t, x)
            s = Tanh (r)
        },
        else_branch = other () => (float[2,3] r, float[2,3] q) <float[1] w = {0.5}> {
            t = Sub (a, w)
            a2 = Exp (t)
            q = Abs (a2)
            r = Sqrt (q)
        }
    >
    t = Cos (extra)
    z = Add (t, y)
}
"""

# names of inner tensors are those of outer ones that come later, and of tensors beside them
DEEP = """
main (float[2,3] x, bool c, bool d, bool e) => (float[2,3] y) {
    a = Neg (x)
    [If_0] y = If (c) <
        then_branch = then () => (float[2,3] p) {
            [outer] b = Sin (x)
            [If_1] p = If (d) <
                then_branch = t1 () => (float[2,3] q1) { q1 = Identity (b) },
                else_branch = e1 () => (float[2,3] q) {
                    [If_2] u = If (e) <
                        then_branch = t2 () => (float[2,3] r) {
                            one = Constant <value = float {1.0}> ()
                            [Plus] y = Add (b, one)
                            [Div] r = Div (x, y)
                        },
                        else_branch = e2 () => (float[2,3] y) { y = Cos (a) }
                    >
                    q = Mul (u, b)
                }
            >
        },
        else_branch = other () => (float[2,3] p) { p = Identity (a) }
    >
}
"""

LOOP = """
main (float[2] x, int64 m) => (float[2] last, float[N,2] all, float[2] z) {
    yes = Constant <value = bool {1}> ()
    half = Mul (x, x)
    [loop] last, all, gone = Loop (m, yes, half) <
        body = step (int64 i, bool go, float[2] v) => (bool on, float[2] w, float[2] scanned, float twice) {
            on = Identity (go)
            f = Cast <to = 1> (i)
            one = Constant <value = float {1.0}> ()
            g = Add (f, one)
            [grow] u = Mul (v, g)
            w = Add (u, x)
            scanned = Sqrt (u)
            twice = Mul (g, one)
        }
    >
    z = Neg (last)
}
"""

SCAN = """
main (float[2] s0, float[3,4] xs, float[4,2] ys) => (float[2] s, float[4,3] out, float[2] z) {
    k = Abs (s0)
    [scan] s, out = Scan (k, xs, ys) <num_scan_inputs = 2, scan_input_axes = [1, 0], scan_input_directions = [1, 0],
        body = step (float[2] p, float[3] a, float[2] b) => (float[2] n, float[3] o) {
            t = Add (p, b)
            n = Tanh (t)
            m = ReduceSum <keepdims = 0> (n)
            o = Mul (a, m)
        }
    >
    z = Neg (s)
}
"""

PLAIN_SCAN = SCAN.replace("float[3,4] xs", "float[4,3] xs").replace(
    ", scan_input_axes = [1, 0], scan_input_directions = [1, 0]", ""
)

CALL = """
main (float[2,3] x) => (float[2,3] y, float[2,3] side) {
    a = Neg (x)
    [call] y, side = f.Outer <slope = 0.25, low = -0.5> (a, x)
    b, c = f.Outer <slope = 0.5, low = -0.25> (y, x)
}
<domain: "f", opset_import: ["" : 17]>
Inner (p) => (r)
{
    a = Abs (p)
    r = Sub (p, a)
}
<domain: "f", opset_import: ["" : 17, "f" : 1]>
Outer <slope, low> (p, q) => (r, t)
{
    t = f.Inner (p)
    limit = Constant <value_float : float = @low> ()
    s = Constant <value_float : float = @slope> ()
    u = Mul (t, s)
    v = Add (q, u)
    r = Max (v, limit)
}
"""

WHILE = """
main (float[2] x, float[1] stop) => (float[2] y) {
    yes = Constant <value = bool {1}> ()
    [loop] y = Loop (, yes, x) <
        body = step (int64 i, bool go, float[2] v) => (bool on, float[2] w) {
            two = Constant <value = float[1] {2.0}> ()
            w = Mul (v, two)
            biggest = ReduceMax <keepdims = 0> (w)
            less = Less (biggest, stop)
            on = Squeeze (less)
        }
    >
}
"""


FEEDS = {
    "x": np.array([[-1.5, 0.25, 3], [2, -0.75, 1]], np.float32),
    "c": np.array(True),
    "d": np.array(False),
    "e": np.array(True),
}
LOOP_FEEDS = {"x": np.array([0.5, 1.5], np.float32), "m": np.array(4)}
_rng = np.random.default_rng(0)
SCAN_FEEDS = {
    "s0": np.array([0.5, -1], np.float32),
    "xs": _rng.random((3, 4), dtype=np.float32),
    "ys": _rng.random((4, 2), dtype=np.float32),
}


def model_of(text: str, opset: int = 17, more: str = "") -> onnx.ModelProto:
    return onnx.parser.parse_model(HEAD.format(opset=opset, more=more) + text)


def graph_of(model: onnx.ModelProto) -> Graph:
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    lower_constants(copy.graph, copy.ir_version)
    return Graph.of(copy)


def body_of(graph: Graph, path: str):
    return {body.path: body for body in bodies(graph)}[path]


def only(feeds: dict, model: onnx.ModelProto) -> dict:
    wanted = {value.name for value in model.graph.input}
    return {name: value for name, value in feeds.items() if name in wanted}


def run_reference(model: onnx.ModelProto, feeds: dict) -> dict:
    with np.errstate(all="ignore"):
        found = ReferenceEvaluator(model).run(None, only(feeds, model))
    return dict(zip([value.name for value in model.graph.output], found, strict=True))


def run_ort(model: onnx.ModelProto, feeds: dict, optimize: bool = False) -> dict:
    import onnxruntime  # noqa: PLC0415 - tests that need it skip where it is not

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    if not optimize:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    names = [value.name for value in session.get_outputs()]
    return dict(zip(names, session.run(None, only(feeds, model)), strict=True))


def everything(model: onnx.ModelProto, feeds: dict, run=run_reference) -> dict:
    """What every top-level tensor holds."""
    marked = onnx.ModelProto()
    marked.CopyFrom(model)
    shown = {value.name for value in model.graph.output}
    for node in model.graph.node:
        marked.graph.output.extend(onnx.ValueInfoProto(name=name) for name in node.output if name and name not in shown)
    return {**feeds, **run(marked, feeds)}


def close(found, expected) -> None:
    assert found.dtype == expected.dtype
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
