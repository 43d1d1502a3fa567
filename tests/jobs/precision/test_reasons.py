"""Why nodes are raised, in the words of result.json and layers.json."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest

from runner.jobs.model_concerns import values_in
from runner.jobs.precision.explanations import _largest, _outlier, worst_of
from runner.model.values import recorded as values
from tests.harness import Run, winnow
from tests.jobs.precision.test_precision import network

MODEL = """
<ir_version: 9, opset_import: ["": 18]>
g (float[4,6] x, float[1,6] keep, bool c) =>
  (float[4,6] y, float[4,6] far, float[4,6] chosen, float[4,1] length, float[4,6] other)
<float one = {1.0}, float least = {-3.4e38}, float tiny = {1e-12}, float up = {70000.0}, float zero = {0.0}>
{
  [hidden] hide = Sub(one, keep)
  [mask] m = Mul(hide, least)
  [masked] s = Add(x, m)
  hidden_at = Cast<to = 9>(hide)
  rows = Shape(x)
  [fill] all_least = ConstantOfShape<value = float[1] {-3.4e38}>(rows)
  [choose] w = Where(hidden_at, all_least, x)
  [soft_too] chosen = Softmax(w)
  [soft] y = Softmax(s)
  [big] b = Mul(x, up)
  [back] far = Div(b, up)
  none = Mul(x, zero)
  square = Mul(none, none)
  [sum] total = ReduceSum<keepdims = 1>(square)
  [safe] t = Add(total, tiny)
  [root] length = Sqrt(t)
  [iff] other = If(c) <then_branch = yes () => (float[4,6] u) { [untaken] u = Exp(x) },
                       else_branch = no () => (float[4,6] v) { [taken] v = Tanh(x) }>
}
"""
CHECK = """
import onnx

def check(model, inputs, expected):
    made = onnx.load(model)
    wide = {tensor.name for tensor in made.graph.initializer if tensor.data_type == 1}
    types = {node.output[0]: node.attribute[0].i for node in made.graph.node if node.op_type == "Cast"}
    def nodes(graph):
        for node in graph.node:
            yield node
            for attribute in node.attribute:
                if attribute.HasField("g"):
                    yield from nodes(attribute.g)
    def raised(node):
        read = [name for name in node.input if name in wide or name in ("x", "keep") or types.get(name) == 1]
        return bool(read) and not any(types.get(name) == 10 for name in node.input)
    return all(raised(node) for node in nodes(made.graph) if node.name in WANTED)
"""


def search(folder: Path, *wanted: str, strategy: str = "precision", code: int | None = 0) -> Run:
    onnx.save(onnx.parser.parse_model(MODEL), str(folder / "net.onnx"))
    (folder / "check.py").write_text(CHECK.replace("WANTED", repr(wanted)))
    x = np.linspace(-2, 3, 24, dtype=np.float32).reshape(4, 6)
    keep = np.array([[1, 1, 1, 1, 0, 0]], np.float32)
    np.savez(folder / "in.npz", x=x, keep=keep, c=np.array(False))
    options = (
        f"strategy={strategy}",
        f"model={folder / 'net.onnx'}",
        "checker=python",
        f"checker.file={folder / 'check.py'}",
    )
    inputs = ("inputs=files", f"inputs.path={folder / 'in.npz'}", "checker.flaky=never")
    run = winnow(*options, *inputs, folder=folder / "run")
    assert code is None or run.code == code, run.output
    return run


def reasons(run: Run) -> dict[str, str]:
    return {one["node"]: one["reason"] for one in run.result["precision"]["selected"]}


def test_what_stands_for_infinity_and_what_becomes_zero(tmp_path: Path) -> None:
    run = search(tmp_path, "mask", "big", "safe", "untaken")
    said = reasons(run)
    assert said["mask"] == "makes values of -3.4e+38 in m, which stand for minus infinity"
    assert said["big"].startswith("makes values up to 2.1e+05, beyond 6.55e+04, in b; ")
    assert said["big"].endswith("not finite when it alone is in float16")
    assert said["safe"].startswith(
        "reads tiny, which is too small for float16 and becomes 6e-08; introduces a relative error of"
    )
    assert run.result["precision"]["flushed_epsilons"] == [], "it is read by a raised node alone"
    nested = next(text for name, text in said.items() if name.endswith("untaken"))
    assert nested == "in a branch or loop that no sample took"
    rows = {row["node"]: row for row in json.loads((run.folder / "layers.json").read_text())}
    assert rows["big"]["introduced"] is None and rows["big"]["why"] == "not finite"
    assert rows["soft"]["introduced"] is not None and rows["soft"]["why"] is None
    # -3.4e38 that is made at run time leaves the range, and is no overflow that anybody should look for
    assert {rows["choose"]["why"], rows["masked"]["why"]} == {"not finite: what stands for infinity leaves the range"}
    # an overflow with everything low that is gone in what is handed over
    assert rows["big"]["not_finite"] == ["low"]


def test_the_median_of_a_mask_is_within_float32() -> None:
    mask = np.full((4, 8), -3.4e38, np.float32)
    mask[0, :3] = 1
    with np.errstate(all="raise"):
        assert not [*_outlier("it", mask)]
        assert values_in(onnx.TensorProto.FLOAT, [mask.tobytes()]).median == -float(mask.min())


def test_the_worst_layer_is_that_with_the_largest_error_of_the_model() -> None:
    """What it does to its own output counts where that is not known of each: nothing compares one with the other."""
    own = {0: 0.03, 1: 0.2, 2: 0.1}
    assert worst_of({0, 1}, {0: 91.0, 1: 29.0, 2: 99.0}, own) == 0
    assert worst_of({0, 1, 2}, {0: 91.0, 2: 29.0}, own) == 1
    assert worst_of((), {}, own) == -1


def test_what_a_relu_made_zero_hides_no_outlier(tmp_path: Path) -> None:
    rows = np.zeros((4, 8), np.float32)
    rows[:, 1::2] = 1
    assert not [*_outlier("it", rows)] and not [*_outlier("it", np.array(3.0))]
    rows[:, 5] = 200
    ((_, said),) = _outlier("it", rows)
    assert said == "it reaches 200 in channel 5 of axis 1, 200 times its median (zeros not counted)"
    tensors = [values.write(rows * at, "x", tmp_path / f"{at}.pb") for at in (1, 3, 2)]
    assert _largest([{"x": tensor} for tensor in tensors], ["x", "y"])["x"].max() == 600


@pytest.mark.slow
def test_where_no_ranking_is_wanted_that_is_why(tmp_path: Path) -> None:
    onnx.save(network(3), str(tmp_path / "net.onnx"))
    ranges = "inputs.ranges={x: [0.5, 3]}"
    run = winnow("strategy=precision_bisect", f"model={tmp_path / 'net.onnx'}", ranges, folder=tmp_path / "run")
    assert run.code == 0, run.output
    rows = json.loads((run.folder / "layers.json").read_text())
    why = "not measured: strategy=precision_bisect follows the model's order"
    assert {row["why"] for row in rows} == {*reasons(run).values()} == {why}
