"""Infinities inside a model: which tensors, and whether what reads them is wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper, parser

from runner.backends.emulation.overflow import overflow


def looked_at(folder: Path, body: str, *, rounding: str = "on", high: str = "", **fed: Any) -> list[dict[str, Any]]:
    """Return what is said of a graph of ``body``, float16 from ``h`` on; ``high``: the same in float32."""

    def written(name: str, text: str, kind: str) -> str:
        outputs = "float16[N] y" if kind == "float16" else "float[N] y"
        inputs = ", ".join(f"{_kind(np.asarray(value))} {name}" for name, value in fed.items())
        model = parser.parse_model(f'<ir_version: 9, opset_import: ["": 18]> g ({inputs}) => ({outputs}) {{ {text} }}')
        onnx.save(model, str(folder / name))
        return str(folder / name)

    sample = {}
    for name, value in fed.items():
        sample[name] = str(folder / f"{name}.pb")
        array = np.asarray(value)
        (folder / f"{name}.pb").write_bytes(numpy_helper.from_array(array, name).SerializeToString())
    args = {
        "model": written("mixed.onnx", body, "float16"),
        "high": written("high.onnx", high, "float") if high else None,
        "rounding": rounding,
        "samples": [sample],
    }
    found: list[dict[str, Any]] = overflow(args)["tensors"]
    return found


def _kind(array: np.ndarray) -> str:
    name = {"float32": "float", "bool": "bool", "int64": "int64"}[array.dtype.name]
    return f"{name}[{', '.join(map(str, array.shape))}]" if array.ndim else name


def floats(*values: float) -> np.ndarray:
    return np.array(values, np.float32)


HALF = "h = Cast<to=10>(x) "
SQUARE = HALF + "big = Mul(h, h) "
MASKED = HALF + "low = Cast<to=10>(m) scores = Add(h, low) [end] y = Softmax(scores)"
GREATEST = SQUARE + "[end] n = ArgMax<axis=0>(big) y = Cast<to=10>(n)"
GATE = (
    HALF
    + """
  [gate] b = If(c) <then_branch = t () => (float16[N] t2) { [up] t1 = Mul(h, h) [down] t2 = Reciprocal(t1) },
                    else_branch = e () => (float16[N] eb) { [other] eb = Mul(h, h) }> """
)
FROM_OUTSIDE = (
    SQUARE
    + """
  [gate] y = If(c) <then_branch = t () => (float16[N] tb) { [down] tb = Reciprocal(big) },
                    else_branch = e () => (float16[N] eb) { [fine] eb = Tanh(big) }>"""
)
LOOP = """zero = Constant<value = int64[1] {0}>() h = Cast<to=10>(x)
  [round] last, rows = Loop(n, , h) <body = b
    (int64 i, bool go, float16[N] s) => (bool on, float16[N] s2, float16[N] r) {
      on = Identity(go) [up] big = Mul(s, s) [down] r = %s(big) [keep] s2 = %s }>
  [less] part = Reciprocal(rows) [sum] flat = ReduceSum<keepdims=0>(%s, zero) y = Add(flat, last)"""
SCAN = (
    HALF
    + """start = Constant<value = float16[1] {0}>()
  [steps] last, rows = Scan(start, h) <num_scan_inputs = 1, scan_output_axes = [0], body = b
    (float16[1] s, float16 v) => (float16[1] s2, float16[1] r) {
      one = Constant<value = int64[1] {1}>() [up] big = Mul(v, v) r = Reshape(big, one) s2 = Add(s, v) }>
  [end] y = Reciprocal(rows)"""
)
LARGE = floats(1, 600)
TRUE, FALSE, THRICE = {"c": np.array(True)}, {"c": np.array(False)}, {"n": np.array(3)}


@pytest.mark.parametrize(
    ("body", "x", "more", "node", "harm"),
    [
        *((f"{SQUARE} [end] y = {op}(big)", floats(1, -600), {}, "big", None) for op in ("Tanh", "Sigmoid", "Erf")),
        pytest.param(HALF + "big = Exp(h) [end] y = Reciprocal(big)", floats(1, 40), {}, "big", None, id="less than"),
        pytest.param(SQUARE + "[end] y = Reciprocal(big)", LARGE, {}, "big", "end", id="a small value that is lost"),
        pytest.param(GREATEST, floats(300, 600), {}, "big", "end", id="of two infinities the second is larger"),
        pytest.param(GREATEST, LARGE, {}, "big", None, id="integers that are right"),
        pytest.param(SQUARE + "c = Greater(big, h) y = Where(c, h, h)", LARGE, {}, "big", None, id="a boolean"),
        pytest.param(GATE + "y = Sqrt(b)", LARGE, TRUE, "gate.then_branch/up", "gate.then_branch/down", id="a branch"),
        pytest.param(
            GATE + "[last] y = Reciprocal(b)", LARGE, FALSE, "gate.else_branch/other", "last", id="behind a branch"
        ),
        pytest.param(FROM_OUTSIDE, LARGE, TRUE, "big", "gate.then_branch/down", id="read by a branch"),
        pytest.param(FROM_OUTSIDE, LARGE, FALSE, "big", None, id="absorbed by a branch"),
        pytest.param(
            LOOP % ("Reciprocal", "Identity(s)", "rows"), LARGE, THRICE, "round.body/up", "round.body/down", id="a loop"
        ),
        pytest.param(LOOP % ("Tanh", "Identity(s)", "rows"), LARGE, THRICE, "round.body/up", None, id="in a loop"),
        pytest.param(
            LOOP % ("Identity", "Identity(s)", "part"), LARGE, THRICE, "round.body/up", "less", id="rows of a loop"
        ),
        pytest.param(SCAN, LARGE, {}, "steps.body/up", "end", id="a scan"),
    ],
)
def test_whether_an_infinity_does_harm(
    body: str, x: np.ndarray, more: dict[str, Any], node: str, harm: str | None, tmp_path: Path
) -> None:
    (one,) = looked_at(tmp_path, body, x=x, **more)
    assert one["node"] == node and one["unknown"] is None
    assert (one["harm"] and one["harm"]["node"]) == harm
    assert harm or one["absorbed_by"], "whatever reads it makes what is right"
    if body is GREATEST and harm:
        assert (one["harm"]["made"], one["harm"]["right"]) == (0, 1)


COMPARED = {
    "ArgMax": SQUARE + "[end] n = ArgMax<axis=0>(big) y = Cast<to=10>(n)",
    "TopK": SQUARE + "k = Constant<value = int64[1] {1}>() [end] v, n = TopK(big, k) y = Cast<to=10>(n)",
    "Equal": SQUARE + "most = ReduceMax(big) [end] same = Equal(big, most) y = Cast<to=10>(same)",
    "Less": SQUARE + "less = Div(big, h) four = Mul(less, big) [end] n = Less(four, big) y = Cast<to=10>(n)",
}


@pytest.mark.parametrize(
    ("op", "x", "by_chance"),
    [
        ("ArgMax", floats(1, 600, 500), True),
        ("ArgMax", floats(1, 2, 600), False),
        ("ArgMax", floats(1, 600, 600), False),
        ("TopK", floats(600, 1, 500), True),
        ("TopK", floats(1, 600, 2), False),
        ("Equal", floats(1, 600, 2), True),
        ("Less", floats(1, 600, 2), True),
    ],
)
def test_what_compares_infinities_is_right_by_chance(
    op: str, x: np.ndarray, tmp_path: Path, *, by_chance: bool
) -> None:
    found = looked_at(tmp_path, COMPARED[op], x=x)
    harms = [one["harm"] for one in found if one["harm"]]
    assert [(harm["node"], harm["by_chance"]) for harm in harms] == [("end", True)] * len(harms)
    assert bool(harms) == by_chance


def test_nothing_overflows(tmp_path: Path) -> None:
    """Nor is an infinity of the original one of rounding."""
    assert looked_at(tmp_path, "h = Cast<to=10>(x) y = Mul(h, h)", x=floats(1, 200)) == []
    assert looked_at(tmp_path, "h = Cast<to=10>(x) a = Mul(h, h) y = Reciprocal(a)", x=floats(1, np.inf)) == []


def test_a_root_mean_square_that_overflows(tmp_path: Path) -> None:
    """The shape of RMSNorm: what is divided by infinity is zero, which a residual stream tolerates."""
    body = """h = Cast<to=10>(x) square = Mul(h, h) mean = ReduceMean(square) [root] rms = Sqrt(mean)
              [norm] normal = Div(h, rms) y = Add(h, normal)"""
    (one,) = looked_at(tmp_path, body, x=floats(3, 600, 20))
    assert (one["tensor"], one["node"], one["op"], one["largest"]) == ("square", "square", "Mul", 360000.0)
    assert one["harm"]["node"] == "norm" and one["harm"]["op"] == "Div"
    assert one["harm"]["made"] == 0 and one["harm"]["error"] > 0.99
    assert not one["made"] and not one["unknown"] and not one["absorbed_by"]


def test_masks_before_a_softmax(tmp_path: Path) -> None:
    """A mask added to scores, of the largest number there is and of a larger one that is made at run time."""
    for mask in (-65504.0, -3.4e38):
        found = looked_at(tmp_path, MASKED, x=floats(3, -60, 2), m=floats(0, mask, 0))
        assert found and not any(one["harm"] or one["unknown"] for one in found), mask
    assert {one["tensor"] for one in found} == {"m"}
    # in the strict emulation a Softmax is several steps, of which the last absorbs
    found = looked_at(tmp_path, MASKED, rounding="strict", x=floats(3, -60, 2), m=floats(0, -65504.0, 0))
    assert [(one["tensor"], one["harm"], one["absorbed_by"]) for one in found] == [("scores", None, ["end"])]
    # a row that is masked whole is no number, which the check sees
    (one,) = looked_at(tmp_path, MASKED, x=floats(3, 5), m=floats(-3.4e38, -3.4e38))
    assert one["output"] and one["harm"] is None


def test_what_a_loop_carries_is_not_known(tmp_path: Path) -> None:
    found = looked_at(tmp_path, LOOP % ("Tanh", "Identity(big)", "rows"), x=LARGE, **THRICE)
    assert [(one["node"], one["unknown"], one["harm"]) for one in found] == [("round.body/up", "round", None)]


def test_no_number_out_of_finite_ones(tmp_path: Path) -> None:
    """Equal values, and an epsilon that float16 has not: only the model in high precision tells what is right."""
    body = """h = Cast<to=KIND>(x) epsilon = Constant<value = EPSILON>() mean = ReduceMean(h) d = Sub(h, mean)
      square = Mul(d, d) v = ReduceMean(square) more = Add(v, epsilon) root = Sqrt(more) [norm] n = Div(d, root)
      [end] e = Equal(n, n) y = Cast<to=KIND>(e)"""
    kinds = (("10", "float16 {0}"), ("1", "float {1e-12}"))
    low, high = (body.replace("KIND", kind).replace("EPSILON", epsilon) for kind, epsilon in kinds)
    assert looked_at(tmp_path, low, x=floats(7, 7)) == []
    low = low.replace("Equal(n, n)", "Less(n, h)")
    (one,) = looked_at(tmp_path, low, high=high, x=floats(7, 7))
    assert one["made"] and one["tensor"] == "n" and one["node"] == "norm"
    assert (one["harm"]["node"], one["harm"]["made"], one["harm"]["right"]) == ("end", 0, 1)


@pytest.mark.parametrize(
    ("body", "x", "node"),
    [
        ("[mean] m = ReduceMean(h) [end] y = Div(h, m)", np.full(300, 1000, np.float32), "mean"),
        ("[soft] s = Softplus(h) [end] y = Reciprocal(s)", floats(1, 12), "soft"),
    ],
)
def test_what_overflows_inside_an_operator(body: str, x: np.ndarray, node: str, tmp_path: Path) -> None:
    """On its own scale a mean is harmless; added up in float16 it is not."""
    assert looked_at(tmp_path, HALF + body, x=x) == []
    one, *_ = looked_at(tmp_path, HALF + body, rounding="strict", x=x)
    assert one["node"] == node and one["harm"]["node"] == "end"
