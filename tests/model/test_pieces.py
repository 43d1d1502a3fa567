"""Small parts of models that runs reach in other rooms' tests: loops that stop, types that agree, edits, and words."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest
from onnx import TensorProto

from runner.model.files.read_model import is_seeded
from runner.model.graph import edits
from runner.model.graph.cut import CutError, cut, with_outputs
from runner.model.graph.data_dependence import handed_on
from runner.model.graph.graph_index import Graph
from runner.model.passes.infer_shapes import check_types, mend_types
from runner.model.values.dtypes import pack, unpack
from tests.model import models
from tests.model.nested import graph_of, model_of


@pytest.mark.parametrize("bits", [1, 2, 4, 8])
def test_integers_of_less_than_a_byte(bits: int) -> None:
    numbers = np.random.default_rng(bits).integers(-(1 << bits - 1), 1 << bits - 1, 17)
    packed = pack(numbers, bits)
    whole = [*(numbers & (1 << bits) - 1), *[0] * 7]
    parts = [whole[at : at + 8 // bits] for at in range(0, 17, 8 // bits)]
    assert packed.tolist() == [sum(int(one) << bits * at for at, one in enumerate(part)) for part in parts]
    assert unpack(packed.tobytes(), bits, 17, signed=True).tolist() == numbers.tolist()
    assert unpack(packed.tobytes(), bits, 16, signed=False).tolist() == whole[:16]


@pytest.mark.parametrize(
    ("text", "own", "exactly"),
    [
        ("y = RandomNormal <shape = [1], seed = 1.0> ()", False, True),
        ("y = RandomNormal <shape = [1]> ()", False, False),
        ("y = Bernoulli <seed = 1.0> (x)", True, True),
        ("y = mine.Bernoulli <seed = 1.0> (x)", False, False),
        ("y = Dropout <seed = 1> (x, r, t)", True, True),
        ("y = Dropout <seed = 1> (x, r)", False, False),
        ("y = Add <seed = 1> (x, r)", False, False),
    ],
)
def test_what_draws_by_a_seed_of_its_own(text: str, own: bool, exactly: bool) -> None:
    (node,) = models.nodes_of(text)
    assert (is_seeded(node, exactly=False), is_seeded(node, exactly=True)) == (own, exactly)


def test_what_a_mask_is_handed_on_to() -> None:
    text = "a = Add (x, mask) b = Softmax (a) c = MatMul (b, v) d = mine.Add (a, a) e, f = Split (b) g = Mul (x, v)"
    assert handed_on(models.nodes_of(text), ["mask"]) == {"mask", "a", "b", "e", "f"}


def test_outputs_of_a_cut_are_left_out() -> None:
    text = "a, b = Split <num_outputs = 2> (x)  c = Neg (a)"
    graph = Graph.of(models.model_of(text, ["x"], ["a", "b", "c"]))
    made = cut(graph, [0, 1], types={}, constants={})
    kept = with_outputs(made, {"c", "b"})
    assert kept.outputs == ("b", "c") == tuple(one.name for one in kept.model.graph.output)
    with pytest.raises(CutError, match="nothing but b, c, which is infinite on purpose"):
        with_outputs(kept, {"a"})


def test_edits_and_their_code_do_the_same() -> None:
    model = models.model_of("[first] a = Neg (x)  [second] b = Abs (a)", ["x"], ["b"])
    added = edits.weight("w", [1, 2], TensorProto.FLOAT16)
    put = models.nodes_of("[wide] c = Cast <to = 1> (a)  [narrow] b = Sqrt (c)")
    made = edits.edited(model, [*edits.replaced(put), added, edits.expose("a", 1, 2)])
    assert [f"{one.op_type} {one.name}" for one in made.graph.node] == ["Neg first", "Cast wide", "Sqrt second"]
    assert [one.name for one in made.graph.output] == ["b", "a"] and made.graph.initializer[-1].data_type == 10
    assert "CopyFrom(helper.make_node('Sqrt', ['c'], ['b']" in edits.put(put[1]).code
    assert added.code == "model.graph.initializer.append(helper.make_tensor('w', 10, [2], [1.0, 2.0]))"


TYPED = """
<ir_version: 8, opset_import: ["": 17]> main (float[2,3] x, int64[2] i) => (float16[2,3] y, float[6] z)
<float16[2,3] a> {
    [abs] a = Abs (x)
    [neg] y = Neg (a)
    [flat] z = Relu (x)
    [both] w = Add (x, i)
    [root] r = Sqrt (i)
    [lone] u = Clip (x, x, x, x)
}
"""


def test_types_that_contradict_each_other_are_found_and_mended(tmp_path: Path) -> None:
    model = onnx.parser.parse_model(TYPED)
    onnx.save(model, tmp_path / "m.onnx")
    args = {"model": str(tmp_path / "m.onnx"), "out": str(tmp_path / "out"), "limit": 0}
    (tmp_path / "out").mkdir()
    found = check_types(args)
    assert found["conflicts"] == [
        ("declared type", "abs", "a is declared float16, Abs makes float of x"),
        ("declared shape", "flat", "z is declared [6], Relu makes [2, 3] of x"),
        ("mixed types", "both", "Add reads x as float and i as int64"),
        ("type not taken", "root", "Sqrt takes no int64 (i)"),
        ("inputs", "lone", "Clip has 4 inputs, in opset 17 it takes 1 to 3"),
    ]
    assert [what for _, what, _ in found["lone"]] == [
        "Abs of float", "Neg of float16", "Relu of float", "Add of float, int64", "Sqrt of int64", "Clip of float",
    ]  # fmt: skip
    out = str(tmp_path / "mended.onnx")
    assert mend_types({**args, "out": out, "how": "cast"}) == {"written": True}
    nodes = onnx.load(out).graph.node
    assert [(one.op_type, *one.output) for one in nodes[:3]] == [("Abs", "a_as_made"), ("Cast", "a"), ("Neg", "y")]
    assert nodes[1].attribute[0].i == TensorProto.FLOAT16
    assert mend_types({**args, "out": out, "how": "infer"}) == {"written": True}
    made = onnx.load(out).graph
    assert not made.value_info and [one.type.tensor_type.elem_type for one in made.output] == [1, 1]
    assert [one.op_type for one in made.node] == [one.op_type for one in model.graph.node]


@pytest.mark.parametrize(("scanned", "fixed"), [("xs", True), ("found", False)])
def test_how_often_a_scan_runs_may_depend_on_data(scanned: str, fixed: bool) -> None:
    text = f"""
    main (float[2] s, float[4,3] xs) => (int64[2] n) {{
        where = NonZero (xs)
        turned = Transpose (where)
        found = Cast <to = 1> (turned)
        [scan] last, out = Scan (s, {scanned}) <num_scan_inputs = 1,
            body = step (float[2] p, float[3] a) => (float[2] q, float[2] o) {{ q = Identity (p) o = Neg (p) }}
        >
        n = Shape (out)
    }}
    """
    assert ("n" in graph_of(model_of(text)).data_independent) is fixed
