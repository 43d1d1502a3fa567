"""Infinities inside a model: which tensors, and whether what reads them is wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
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


def test_nothing_overflows(tmp_path: Path) -> None:
    assert looked_at(tmp_path, "h = Cast<to=10>(x) y = Mul(h, h)", x=floats(1, 200)) == []


def test_a_root_mean_square_that_overflows(tmp_path: Path) -> None:
    """The shape of RMSNorm: what is divided by infinity is zero, which a residual stream tolerates."""
    body = """h = Cast<to=10>(x) square = Mul(h, h) mean = ReduceMean(square) [root] rms = Sqrt(mean)
              [norm] normal = Div(h, rms) y = Add(h, normal)"""
    (one,) = looked_at(tmp_path, body, x=floats(3, 600, 20))
    assert (one["tensor"], one["node"], one["op"], one["largest"]) == ("square", "square", "Mul", 360000.0)
    assert one["harm"]["node"] == "norm" and one["harm"]["op"] == "Div"
    assert one["harm"]["made"] == 0 and one["harm"]["error"] > 0.99
    assert not one["made"] and not one["unknown"] and not one["absorbed_by"]


def test_what_is_absorbed_exactly_does_no_harm(tmp_path: Path) -> None:
    for op in ("Tanh", "Sigmoid", "Erf"):
        (one,) = looked_at(tmp_path, f"h = Cast<to=10>(x) big = Mul(h, h) [end] y = {op}(big)", x=floats(1, -600))
        assert one["harm"] is None and one["absorbed_by"] == ["end"], op
    (one,) = looked_at(tmp_path, "h = Cast<to=10>(x) big = Exp(h) [end] y = Reciprocal(big)", x=floats(1, 40))
    assert one["harm"] is None


def test_a_small_value_that_is_lost_is_harm(tmp_path: Path) -> None:
    (one,) = looked_at(tmp_path, "h = Cast<to=10>(x) big = Mul(h, h) [end] y = Reciprocal(big)", x=floats(1, 600))
    assert one["harm"]["node"] == "end" and one["harm"]["right"] > 2e-6


def test_masks_before_a_softmax(tmp_path: Path) -> None:
    """A mask added to scores, of the largest number there is and of a larger one that is made at run time."""
    body = """h = Cast<to=10>(x) low = Cast<to=10>(m) scores = Add(h, low) [end] y = Softmax(scores)"""
    for mask in (-65504.0, -3.4e38):
        found = looked_at(tmp_path, body, x=floats(3, -60, 2), m=floats(0, mask, 0))
        assert found and not any(one["harm"] or one["unknown"] for one in found), mask
    assert {one["tensor"] for one in found} == {"m"}


def test_a_row_that_is_masked_whole_is_no_number(tmp_path: Path) -> None:
    body = "h = Cast<to=10>(x) low = Cast<to=10>(m) scores = Add(h, low) y = Softmax(scores)"
    (one,) = looked_at(tmp_path, body, x=floats(3, 5), m=floats(-3.4e38, -3.4e38))
    assert one["output"] and one["harm"] is None  # the check sees what is handed out


def test_an_infinity_of_the_original_is_none_of_rounding(tmp_path: Path) -> None:
    found = looked_at(tmp_path, "h = Cast<to=10>(x) a = Mul(h, h) y = Reciprocal(a)", x=floats(1, np.inf))
    assert found == []


def test_what_is_made_of_an_infinity_and_is_no_float(tmp_path: Path) -> None:
    start = "h = Cast<to=10>(x) big = Mul(h, h)"
    greatest = f"{start} [end] n = ArgMax<axis=0>(big) y = Cast<to=10>(n)"
    (one,) = looked_at(tmp_path, greatest, x=floats(300, 600))  # two infinities, of which the second is the larger
    assert one["harm"]["node"] == "end" and (one["harm"]["made"], one["harm"]["right"]) == (0, 1)
    (one,) = looked_at(tmp_path, greatest, x=floats(1, 600))
    assert one["harm"] is None and one["absorbed_by"] == ["end"]
    chosen = f"{start} c = Greater(big, h) y = Where(c, h, h)"
    (one,) = looked_at(tmp_path, chosen, x=floats(1, 600))
    assert one["harm"] is None


def test_a_branch(tmp_path: Path) -> None:
    body = """h = Cast<to=10>(x)
      [gate] b = If(c) <then_branch = t () => (float16[N] t2) { [up] t1 = Mul(h, h) [down] t2 = Reciprocal(t1) },
                        else_branch = e () => (float16[N] eb) { [other] eb = Mul(h, h) }>
      [last] y = Sqrt(b)"""
    (one,) = looked_at(tmp_path, body, x=floats(1, 600), c=np.array(True))
    assert one["node"] == "gate.then_branch/up" and one["harm"]["node"] == "gate.then_branch/down"
    out = body.replace("Sqrt(b)", "Reciprocal(b)")
    (one,) = looked_at(tmp_path, out, x=floats(1, 600), c=np.array(False))
    assert one["node"] == "gate.else_branch/other" and one["harm"]["node"] == "last"


def test_what_a_branch_takes_from_outside(tmp_path: Path) -> None:
    body = """h = Cast<to=10>(x) big = Mul(h, h)
      [gate] y = If(c) <then_branch = t () => (float16[N] tb) { [down] tb = Reciprocal(big) },
                        else_branch = e () => (float16[N] eb) { [fine] eb = Tanh(big) }>"""
    (one,) = looked_at(tmp_path, body, x=floats(1, 600), c=np.array(True))
    assert one["harm"]["node"] == "gate.then_branch/down"
    (one,) = looked_at(tmp_path, body, x=floats(1, 600), c=np.array(False))
    assert one["harm"] is None


LOOP = """zero = Constant<value = int64[1] {0}>() h = Cast<to=10>(x)
  [round] last, rows = Loop(n, , h) <body = b
    (int64 i, bool go, float16[N] s) => (bool on, float16[N] s2, float16[N] r) {
      on = Identity(go) [up] big = Mul(s, s) [down] r = %s(big) [keep] s2 = %s }>
  [sum] flat = ReduceSum<keepdims=0>(rows, zero) y = Add(flat, last)"""


def test_inside_a_loop(tmp_path: Path) -> None:
    fed = {"x": floats(1, 600), "n": np.array(3)}
    (one,) = looked_at(tmp_path, LOOP % ("Reciprocal", "Identity(s)"), **fed)
    assert one["node"] == "round.body/up" and one["harm"]["node"] == "round.body/down"
    (one,) = looked_at(tmp_path, LOOP % ("Tanh", "Identity(s)"), **fed)
    assert one["harm"] is None and one["absorbed_by"] == ["round.body/down"] and one["unknown"] is None


def test_what_a_loop_carries_is_not_known(tmp_path: Path) -> None:
    found = looked_at(tmp_path, LOOP % ("Tanh", "Identity(big)"), x=floats(1, 600), n=np.array(3))
    assert [(one["node"], one["unknown"], one["harm"]) for one in found] == [("round.body/up", "round", None)]


def test_what_a_loop_hands_out_in_rows(tmp_path: Path) -> None:
    body = LOOP % ("Identity", "Identity(s)")
    body = body.replace("[sum]", "[less] part = Reciprocal(rows) [sum]").replace("(rows, zero)", "(part, zero)")
    (one,) = looked_at(tmp_path, body, x=floats(1, 600), n=np.array(3))
    assert one["node"] == "round.body/up" and one["harm"]["node"] == "less"


def test_a_scan(tmp_path: Path) -> None:
    body = """h = Cast<to=10>(x) start = Constant<value = float16[1] {0}>()
      [steps] last, rows = Scan(start, h) <num_scan_inputs = 1, scan_output_axes = [0], body = b
        (float16[1] s, float16 v) => (float16[1] s2, float16[1] r) {
          one = Constant<value = int64[1] {1}>() [up] big = Mul(v, v) r = Reshape(big, one) s2 = Add(s, v) }>
      [end] y = Reciprocal(rows)"""
    (one,) = looked_at(tmp_path, body, x=floats(1, 600))
    assert one["node"] == "steps.body/up" and one["harm"]["node"] == "end"


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


def test_a_sum_that_overflows_before_it_is_divided(tmp_path: Path) -> None:
    """On its own scale a mean is harmless; added up in float16 it is not."""
    body = "h = Cast<to=10>(x) [mean] m = ReduceMean(h) [end] y = Div(h, m)"
    fed = np.full(300, 1000, np.float32)
    assert looked_at(tmp_path, body, x=fed) == []
    (one,) = looked_at(tmp_path, body, rounding="strict", x=fed)
    assert one["node"] == "mean" and one["tensor"] == "m" and one["harm"]["node"] == "end"


def test_a_softplus_that_overflows(tmp_path: Path) -> None:
    body = "h = Cast<to=10>(x) [soft] s = Softplus(h) [end] y = Reciprocal(s)"
    assert looked_at(tmp_path, body, x=floats(1, 12)) == []
    found = looked_at(tmp_path, body, rounding="strict", x=floats(1, 12))
    assert found[0]["node"] == "soft" and found[0]["harm"]["node"] == "end"


def test_what_absorbs_is_named_where_the_strict_emulation_takes_it_apart(tmp_path: Path) -> None:
    body = "h = Cast<to=10>(x) low = Cast<to=10>(m) scores = Add(h, low) [end] y = Softmax(scores)"
    found = looked_at(tmp_path, body, rounding="strict", x=floats(3, -60, 2), m=floats(0, -65504.0, 0))
    assert [(one["tensor"], one["harm"], one["absorbed_by"]) for one in found] == [("scores", None, ["end"])]
