"""`strategy=precision`, as a user runs it: low precision is rounded after every operator."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import onnxruntime
import pytest
from onnx import TensorProto

from runner.report.bundled_check_files import rounds_itself
from runner.schema.checker import PythonChecker
from tests.harness import Run, winnow
from tests.jobs.models import parsed, saved
from tests.matrix import sample
from tests.report.page.pages import page_in

SIZE = 24


STEPS = {
    "overflow": "[gain{0}] g{0} = Mul(r{0}, more) [up{0}] u{0} = Mul(g{0}, huge) [down{0}] d{0} = Div(u{0}, huge) ",
    "cancellation": "[up{0}] u{0} = Add(r{0}, big) [down{0}] d{0} = Sub(u{0}, big) ",
}


def network(*planted: int, kind: str = "overflow") -> onnx.ModelProto:
    """A chain of layers; at the ``planted`` ones a value leaves the range of fp16 and comes back, or loses digits."""
    random, nodes, weights, x = np.random.default_rng(0), "", {}, "x"
    for at in range(10):
        weights[f"w{at}"] = random.normal(0, SIZE**-0.5, (SIZE, SIZE)).astype(np.float32)
        nodes += f"[product{at}] p{at} = MatMul({x}, w{at}) [relu{at}] r{at} = Relu(p{at}) "
        nodes += STEPS[kind].format(at) if at in planted else ""
        nodes += f"[tanh{at}] t{at} = Tanh({'d' if at in planted else 'r'}{at}) "
        x = f"t{at}"
    held = "<float more = {3.0}, float huge = {60000.0}, float big = {4096.0}>"
    return parsed(f"g (float[4,{SIZE}] x) => (float[4,{SIZE}] t9) {held} {{ {nodes} }}", opset=18, ir=9, **weights)


def search(
    folder: Path, model: onnx.ModelProto, *options: str, strategy: str = "precision", code: int | None = 0
) -> Run:
    """Search without what only reports show."""
    onnx.save(model, str(folder / "net.onnx"))
    given = (f"model={folder / 'net.onnx'}", "inputs.ranges={x: [0.5, 3]}", "strategy.layer_errors=false")
    run = winnow(f"strategy={strategy}", *given, *options, folder=folder / "run")
    assert code is None or run.code == code, run.output
    return run


def test_the_error_of_each_layer_before_and_after(tmp_path: Path) -> None:
    run = search(tmp_path, network(3, kind="cancellation"), "strategy.layer_errors=true")
    rows = {row["node"]: row for row in json.loads((run.folder / "layers.json").read_text())}
    assert [name for name, row in rows.items() if row["raised"]] == run.result["culprits"]
    assert next(iter(rows)) == "product0" and len(rows) == run.result["nodes"]["before"]
    # 4096 leaves 2 or 4 to the digits of fp16; before it, and without it, there are some 1e-3
    assert rows["down3"]["error_low"] > 0.1 > 0.01 > rows["down3"]["error_mixed"]
    assert rows["tanh2"]["error_low"] < 0.01
    # a tangent is no larger than one; the sum that loses its digits is some 4096
    assert 0.1 < rows["tanh2"]["range"] <= 1 < 4000 < rows["up3"]["range"] < 5000
    picture = (run.folder / "layers.svg").read_text()
    assert picture.startswith("<?xml") and "product0" not in picture
    assert "layers.svg" in (run.folder / "REPORT.md").read_text()


@pytest.mark.slow
def test_bfloat16(tmp_path: Path) -> None:
    run = search(tmp_path, network(5, kind="cancellation"), "strategy.low=bfloat16", "checker.rtol=0.05")
    assert set(run.result["culprits"]) >= {"up5", "down5"}
    assert run.result["precision"]["low"] == "bfloat16"


@pytest.mark.parametrize(
    "mode", sample(["auto", "always"], 2)
)  # that nothing ever fails is an answer, also of a flaky check
def test_nothing_has_to_be_raised(tmp_path: Path, mode: str) -> None:
    run = search(tmp_path, network(), f"checker.flaky={mode}", code=4)
    assert "everything passes in float16 (emulated: " in run.result["message"]
    assert ("it is taken as reliable" in run.output) is (mode == "auto"), run.output
    assert (run.folder / "REPORT.md").read_text().startswith("# all nodes can be in float16\n")
    onnx.checker.check_model(run.model("mixed.onnx"), full_check=True)


@pytest.mark.slow
@pytest.mark.parametrize("search_kind", sample(["precision_bisect", "precision_linear"], 2))
def test_from_the_other_end(tmp_path: Path, search_kind: str) -> None:
    run = search(tmp_path, network(3), "strategy.direction=reverse", strategy=search_kind)
    assert run.result["culprits"][0] == "up3" and run.result["minimality"] == "window"


@pytest.mark.slow
def test_by_a_search_of_reductions(tmp_path: Path) -> None:
    run = search(tmp_path, network(3), "strategy.search=minimal")
    assert run.result["culprits"] == ["up3", "down3"] and run.result["minimality"] == "1-minimal"


@pytest.mark.slow
def test_a_model_that_is_fp16_already(tmp_path: Path) -> None:
    """What was raised to fp32 is read back in fp16 where the rest of the model wants it."""
    onnx.save(network(3), str(tmp_path / "net.onnx"))
    everything = search_low(tmp_path / "low", tmp_path / "net.onnx")
    again = winnow(
        "strategy=precision",
        f"model={everything}",
        f"reference.model={tmp_path / 'net.onnx'}",
        "inputs.ranges={x: [0.5, 3]}",
        folder=tmp_path / "again",
    )
    assert again.code == 0, again.output
    assert again.result["culprits"] == ["up3", "down3"]


def search_low(folder: Path, model: Path) -> Path:
    """The model with everything in fp16: a check that always passes asks for nothing else."""
    folder.mkdir()
    command = f"checker.command={[sys.executable, '-c', 'pass', '{model}']}"
    given = (f"model={model}", "checker=command", command, "strategy.allow_overflow=true")
    run = winnow("strategy=precision", *given, folder=folder / "run")
    assert run.code == 4, run.output
    return run.folder / "mixed.onnx"


def test_a_model_without_floats(tmp_path: Path) -> None:
    run = search(tmp_path, parsed("g (int64[2] x) => (int64[2] y) { [sum] y = Add(x, x) }"), code=6)
    assert "no node of it can run in both" in run.result["message"]


@pytest.mark.slow
def test_a_large_model_shares_its_weights(tmp_path: Path) -> None:
    """Beyond 32 MiB each trial writes its graph alone; both precisions lie in one file each."""
    weight = np.random.default_rng(0).normal(0, 0.01, (3000, 3000)).astype(np.float32)
    text = """g (float[1,3000] x) => (float[1,3000] y) <float big = {60000.0}> {
        [product] a = MatMul(x, w) [up] b = Mul(a, big) [down] y = Div(b, big) }"""
    model = parsed(text, opset=18, ir=9, w=weight)
    run = search(tmp_path, model, "artifacts=all")
    assert run.result["culprits"] == ["up", "down"]
    kept = list((run.folder / "store").glob("kept.*"))
    assert kept and all(path.stat().st_size < 4096 for path in kept)
    assert run.model("mixed.onnx").ByteSize() > 2 * weight.size


METRIC = """
import numpy as np
from runner.backends.rounding import session

def check(model, inputs, expected):
    found = session(model).run(None, inputs[0])[0]
    return {"value": 1 - float(np.abs(found - expected[0][session(model).get_outputs()[0].name]).mean())}
"""


def test_a_check_that_rounds_is_known_by_its_text(tmp_path: Path) -> None:
    """Its own, or that of a module beside it."""
    for text, rounds in (
        (METRIC, True),
        ("from runner.backends import onnxruntime, rounding", True),
        ("import runner.backends.rounding", True),
        ("import numpy as rounding\nfrom runner.backends import onnxruntime", False),
    ):
        (tmp_path / "metric.py").write_text(text)
        (tmp_path / "check.py").write_text("from metric import check")
        for name in ("metric.py", "check.py"):
            assert rounds_itself(PythonChecker(file=name), tmp_path) == rounds, text


@pytest.mark.slow
def test_a_metric_of_the_users_against_that_in_high_precision(tmp_path: Path) -> None:
    (tmp_path / "metric.py").write_text(METRIC)
    options = ("checker=python", f"checker.file={tmp_path / 'metric.py'}", "checker.max_drop=1%")
    run = search(tmp_path, network(5, kind="cancellation"), *options)
    assert run.result["culprits"] == ["up5", "down5"]
    assert "cannot round their tensors" not in run.output, "its session rounds"
    other = winnow("strategy=reduce", f"model={tmp_path / 'net.onnx'}", *options, folder=tmp_path / "reduce")
    assert other.code == 2
    assert "checker.baseline=" in other.output


@pytest.mark.slow
def test_a_branch_is_searched_too_and_its_ranges_are_known(tmp_path: Path) -> None:
    text = """g (float[2,3] x, bool c) => (float[2,3] y) <float up = {8192.0}, float down = {0.0001220703125}> {
        a = Relu(x)
        [gate] b = If(c) <
            then_branch = t () => (float[2,3] t4) {
                [u1] t1 = Mul(a, up) [u2] t2 = Mul(t1, up) [d1] t3 = Mul(t2, down) [d2] t4 = Mul(t3, down) },
            else_branch = e () => (float[2,3] eb) { [em] eb = Mul(a, up) }>
        y = Tanh(b) }"""
    np.savez(tmp_path / "given.npz", x=np.ones((2, 3), np.float32), c=np.array(True))
    saved(tmp_path / "net.onnx", text, opset=18, ir=9)
    given = ("inputs=files", f"inputs.path={tmp_path / 'given.npz'}")
    run = winnow("strategy=precision", f"model={tmp_path / 'net.onnx'}", *given, folder=tmp_path / "run")
    assert run.code == 0, run.output
    assert run.result["culprits"] == ["gate.then_branch/u2", "gate.then_branch/d1"]
    assert run.result["checks"]["search"] <= 3
    assert "beyond 6.55e+04" in run.result["precision"]["selected"][0]["reason"]
    # their values are not recorded; what was measured of them is told, on the page as well
    rows = {row["node"]: row for row in json.loads((run.folder / "layers.json").read_text())}
    inner, outer = rows["gate.then_branch/u2"], rows["y"]
    assert inner["nested"] and inner["raised"] and inner["range"] == 8192.0**2 and inner["error_low"] is None
    assert not outer["nested"] and outer["error_low"] is not None
    page = page_in(run.folder)
    told = {one["node"]: one for one in page.layers}
    held = {"held": "float32", "error": None, "most": 8192.0**2, "limit": 65504.0, "why": "not finite"}
    assert told["gate.then_branch/u2"]["precision"] == held
    # of the branch that no sample took nothing was measured but what it is
    why = "not measured: in a branch or loop that no sample took"
    assert told["gate.else_branch/em"]["precision"]["why"] == why


@pytest.mark.slow
def test_a_reduction_on_a_cpu_says_what_it_does_not_show(tmp_path: Path) -> None:
    search(tmp_path, network(3))
    half = tmp_path / "run" / "mixed.onnx"
    given = (f"model={half}", "checker=finite", "plan=true")
    plain = winnow(*given, folder=tmp_path / "plain")
    assert "target.rounding=on" in plain.output
    assert "target.rounding=on rounds" not in winnow(*given, "target.rounding=on", folder=tmp_path / "on").output


@pytest.mark.slow
def test_a_node_of_a_function_leads_back_to_it(tmp_path: Path) -> None:
    text = """<ir_version: 10, opset_import: ["":18, "my":1]>
    g (float[4,24] x) => (float[4,24] z) <float up = {60000.0}> {
      [first] a = my.Scale(x, up)
      [last] z = Tanh(a)
    }
    <opset_import: ["":18], domain: "my">
    Scale (i, by) => (o) { [grow] k = Mul(i, by)  [back] o = Div(k, by) }
    """
    run = search(tmp_path, onnx.parser.parse_model(text))
    told = run.result["precision"]
    assert set(told["inlined"]) == set(told["nodes_to_exclude"])
    (grow,) = [origin for name, origin in told["inlined"].items() if name.startswith("grow")]
    assert grow == "node grow of function my.Scale, called by node first"
    assert "node grow of function my.Scale, called by node first" in (run.folder / "REPORT.md").read_text()


@pytest.mark.slow
def test_an_operator_that_onnx_defines_with_constants_of_one_type_stays_in_that(tmp_path: Path) -> None:
    text = """<ir_version: 8, opset_import: ["": 12]> g (float[1,2,2,2] x) => (float[1,2,2,2] y)
      <float much = {3000}> { [norm] n = MeanVarianceNormalization(x) [up] u = Mul(n, much) [square] s = Mul(u, u)
      [root] y = Sqrt(s) }"""
    onnx.save(onnx.parser.parse_model(text), str(tmp_path / "net.onnx"))
    run = winnow("strategy=precision", f"model={tmp_path / 'net.onnx'}", folder=tmp_path / "run")
    assert run.code == 0, run.output
    assert run.result["precision"]["stays_high"][0]["node"] == "norm"
    onnx.checker.check_model(run.model("mixed.onnx"), full_check=True)


@pytest.mark.slow
def test_the_recipe_of_the_converter_makes_a_model_that_passes(tmp_path: Path) -> None:
    """A value between two raised nodes that float16 does not hold stays in float32 there as well."""
    text = """g (float[2,4] x) => (float[2,4] y) <float small = {0.00001}> {
        [product] m = MatMul(x, w) [scale] s = Mul(m, small) [softmax] y = Softmax(s) }"""
    saved(tmp_path / "net.onnx", text, w=np.full((4, 4), 2e4, np.float32) * np.eye(4, dtype=np.float32))
    x = np.linspace(-9, 9, 8, dtype=np.float32).reshape(2, 4)
    np.savez(tmp_path / "x.npz", x=x)
    asked = ("strategy=precision", "inputs=files", f"inputs.path={tmp_path / 'x.npz'}")
    run = winnow(f"model={tmp_path / 'net.onnx'}", *asked, folder=tmp_path / "run")
    assert run.result["culprits"] == ["product", "scale"], run.output
    blocks = (run.folder / "REPORT.md").read_text().split("```python\n")[1:]
    recipe = next(one.partition("```")[0] for one in blocks if "convert_float_to_float16" in one)
    subprocess.run([sys.executable, "-c", recipe], cwd=tmp_path, check=True)
    values = onnxruntime.InferenceSession(tmp_path / "float16.onnx").run(None, {"x": x})[0]
    assert np.isfinite(values).all()


FP32, FP16 = TensorProto.FLOAT, TensorProto.FLOAT16


def stored(model: onnx.ModelProto) -> dict[int, int]:
    counts = {FP32: 0, FP16: 0}
    for tensor in model.graph.initializer:
        if tensor.data_type in counts:
            counts[tensor.data_type] += int(np.prod(tensor.dims))
    return counts


def test_what_has_no_low_kind_is_listed_and_counted(tmp_path: Path) -> None:
    """`CDist` knows no float16, and what is inside the branch neither; `w` is there in both types."""
    text = """<ir_version: 9, opset_import: ["": 18, "com.microsoft": 1]> g (float[4,8] x) => (float[n,m] y)
        <float big = {60000.0}, bool yes = {1}> {
        [distance] a = com.microsoft.CDist<metric = "euclidean">(x, w) [product] b = MatMul(a, w)
        [up] c = Mul(b, big) [down] down = Div(c, big)
        [if] y = If(yes) <
            then_branch = then () => (float[n,m] taken) {
                [neg] n = Neg(down) [far] taken = com.microsoft.CDist<metric = "euclidean">(n, w) },
            else_branch = other () => (float[n,m] other) { [same] other = Identity(down) }> }"""
    model = parsed(text, w=np.random.default_rng(0).normal(0, 1, (8, 8)).astype(np.float32))
    run = search(tmp_path, model, "strategy.untaken=low")
    told = run.result["precision"]
    assert run.result["culprits"] == ["up", "down"]
    assert told["stays_high"] == [
        {"node": name, "op": "com.microsoft.CDist", "why": "its operator has no float16 kind"}
        for name in ("distance", "if.then_branch/far")
    ]
    assert told["nodes_to_exclude"] == ["distance", "up", "down", "if.then_branch/far"]
    assert told["layer_precisions"] == dict.fromkeys(told["nodes_to_exclude"], "fp32")
    assert stored(run.model("mixed.onnx")) == {FP32: 65, FP16: 64}
    assert told["low_share"]["weights"] == round(64 / 129, 6)
    assert told["low_share"]["nodes"] == 0.5  # product, if, neg and same of eight
    assert told["low_share"]["flops"] < 0.9
    report = (run.folder / "REPORT.md").read_text()
    assert "2 more float nodes stay in float32: 2 `com.microsoft.CDist`." in report


def detector(folder: Path) -> Path:
    """Boxes of a few pixels in a picture of 4000, and a score for each."""
    random = np.random.default_rng(0)
    shapes = {"wp": (1, 2), "we": (0.2, 2), "ws": (1, 1)}
    weights = {name: random.normal(0, by, (16, wide)).astype(np.float32) for name, (by, wide) in shapes.items()}
    text = """g (float[200,16] x) => (float[200,4] boxes, float[200,1] scores)
        <float size = {4000.0}, float usual = {6.0}> {
        [places] p0 = MatMul(x, wp) [within] p1 = Sigmoid(p0) [corner] low = Mul(p1, size)
        [extents] e0 = MatMul(x, we) [positive] e1 = Exp(e0) [wide] e2 = Mul(e1, usual) [other] high = Add(low, e2)
        [both] boxes = Concat<axis = 1>(low, high) [score] s0 = MatMul(x, ws) [share] scores = Sigmoid(s0) }"""
    return saved(folder / "detector.onnx", text, ir=9, **weights)


def detected(folder: Path, *options: str, code: int | None = 0) -> Run:
    folder.mkdir()
    given = (f"model={detector(folder)}", "checker.flaky=never", "strategy.layer_errors=false", *options)
    run = winnow("strategy=precision", *given, folder=folder / "run")
    assert code is None or run.code == code, run.output
    return run


def test_a_tolerance_that_is_wider_than_boxes_gets_a_word(tmp_path: Path) -> None:
    run = detected(tmp_path / "one", code=4)
    (word,) = [text for text in run.result["warnings"] if text.startswith("boxes")]
    assert "an error of 39.8" in word and "checker.rtol={boxes: 5e-05" in word
    assert word in run.output.replace("\n", " ")
    assert "boxes has values up to" in (run.folder / "REPORT.md").read_text()
    # as it is proposed, it is taken, and found out of what
    again = detected(tmp_path / "of_its_own", 'checker.rtol={boxes: 5e-05, "": 0.01}')
    assert "boxes has values" not in again.output
    raised = set(again.result["culprits"])
    assert raised >= {"corner", "other", "both"} and not raised & {"score", "share", "positive"}
