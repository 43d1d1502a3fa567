"""`strategy.low=int8`, `int4`, `fp8` and `accuracy_level_4`: ONNX Runtime's tools make the low model first."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import numpy_helper

from runner.backends.quantize_model import weights_only
from runner.jobs.precision.from_float import tool_partners
from runner.jobs.precision.report import each_fails, within
from runner.journal.journal import Entry
from runner.verdict import Signature, Verdict
from strategies.search import Outcome, Trial
from tests.harness import Run, winnow
from tests.jobs.models import parsed, saved

pytest.importorskip("onnx_ir")

LAYERS, WIDTH, WORST = 4, 32, 2


def network(folder: Path, factor: float, *, named: bool = True) -> Path:
    """A chain of MatMuls, of which one has outlier channels: small in its input, as much larger in its weight."""
    draw, nodes, held, x = np.random.default_rng(3), "", {}, "x"
    for at in range(LAYERS):
        weight = draw.normal(0, WIDTH**-0.5, (WIDTH, WIDTH)).astype(np.float32)
        if at == WORST:
            scale = np.where(np.arange(WIDTH) % 16 == 5, np.float32(factor), np.float32(1))
            weight *= scale[:, None]
            held["small"] = 1 / scale
            nodes += f"[smaller] smaller = Mul({x}, small) "
            x = "smaller"
        held[f"w{at}"] = weight
        nodes += f"[layer{at}MatMul] m{at} = MatMul({x}, w{at}) [layer{at}Tanh] t{at} = Tanh(m{at}) "
        x = f"t{at}"
    model = parsed(f"g (float[4,{WIDTH}] x) => (float[4,{WIDTH}] {x}) {{ {nodes} }}", opset=21, ir=10, **held)
    for node in model.graph.node:
        node.name = re.sub(r"^layer(\d)", r"/layer.\1/", node.name) if named else ""
    onnx.save(model, folder / "net.onnx")
    return folder / "net.onnx"


def asked(folder: Path, model: Path, low: str, *more: str, rtol: float = 0.2, code: int | None = 0) -> Run:
    """Run Winnow on random inputs."""
    options = (
        "checker=compare",
        "checker.metric=scale",
        f"checker.rtol={rtol}",
        "strategy.layer_errors=false",
        "strategy.quantize.operators=[MatMul]",
    )
    run = winnow("strategy=precision", f"strategy.low={low}", f"model={model}", *options, *more, folder=folder / "run")
    assert code is None or run.code == code, run.output
    return run


def error(model: Path, parent: Path) -> float:
    """Return the error of a model at its output, as parts of the largest value, on fresh samples."""
    draw, found = np.random.default_rng(4), []
    sessions = [onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"]) for path in (model, parent)]
    for _ in range(4):
        feeds = {"x": draw.uniform(-1, 1, (4, WIDTH)).astype(np.float32)}
        mine, good = (session.run(None, feeds)[0] for session in sessions)
        found.append(float(np.abs(mine - good).max() / np.abs(good).max()))
    return max(found)


@pytest.mark.slow
def test_a_float_model_is_quantized_and_the_tool_is_told_what_stays(tmp_path: Path) -> None:
    parent = network(tmp_path, 200)
    run = asked(tmp_path, parent, "int8", "strategy.budget=3KB", "strategy.milliseconds=true", "inputs.samples=4")
    told = run.result["precision"]
    assert run.result["culprits"] == told["nodes_to_exclude"] == ["/layer.2/MatMul"]
    assert told["quantizers"]["patterns"] == ["^/layer\\.2/MatMul$"] and told["quantizers"]["holds"] == "pass"
    assert "int4_nodes_to_exclude" not in told["quantizers"]
    # each layer alone: the one with the outliers buys most, and is the only one that fails
    assert told["alone"][0]["nodes"] == ["/layer.2/MatMul"] and len(told["alone"]) == LAYERS
    assert [row["outcome"] for row in told["alone"]] == ["fail", *["pass"] * (LAYERS - 1)]
    assert told["alone"][0]["bytes"] == pytest.approx(3 * WIDTH**2, rel=0.15) and told["alone"][0]["raised"]
    assert all(isinstance(row["milliseconds"], float) for row in told["alone"])
    report = (run.folder / "REPORT.md").read_text()
    assert "The 3 of 4 layers with the largest error" in report and "milliseconds" in report
    assert not [*(run.folder / "store").glob("timed*")]
    # three KB are what one layer costs: the first
    assert told["within_budget"]["nodes"] == ["/layer.2/MatMul"] and told["within_budget"]["outcome"] == "pass"
    assert run.model("within_budget.onnx") == run.model("mixed.onnx")
    # the script that is left makes a model that holds on samples that nobody has seen
    assert "1 nodes stay in float" in made_again(run)
    assert error(run.folder / "excluded.onnx", parent) < 0.2 < error(run.folder / "quantized.onnx", parent)
    assert error(run.folder / "mixed.onnx", parent) < 0.2


def test_no_question_is_asked_twice(tmp_path: Path) -> None:
    """What is held out is run with the low end and the file that is handed over, which is also what the tool makes."""
    run = asked(tmp_path, network(tmp_path, 200), "int8", "strategy.quantize.operators=[MatMul]", "inputs.samples=4")
    told, checks = run.result["precision"], run.result["checks"]
    assert (checks["preflight"], checks["repeats"], checks["recheck"]) == (2, 0, 2)
    phases = [json.loads(line) for path in run.folder.glob("journal*.jsonl") for line in path.read_text().splitlines()]
    held = [one["label"] for one in phases if one.get("phase") == "held out"]
    assert sorted(held) == ["everything in quantized form", "mixed, as handed over"]
    assert told["samples"]["passed_held_out"] and told["quantizers"]["holds"] == "pass"
    assert told["error"]["held_out"]["after"] < 0.5 and told["error"]["held_out"]["before"] > 1


def test_each_layer_fails_alone_only_where_each_was_tried() -> None:
    """Two are searched, in every trial the third is high; one refusal by a runtime shows nothing of a tolerance."""

    def tried(trial: list[int], kind: str = "mismatch", stage: str = "compare") -> Entry:
        verdict = Verdict(Outcome.FAIL, Signature(stage, kind), seconds=1.0)
        return Entry(Trial.of(trial).ranges, "", 0, verdict, "", "", 0)

    both = [tried([0]), tried([1])]
    assert each_fails(both, frozenset, frozenset({0, 1}))
    assert not each_fails(both[:1], frozenset, frozenset({0, 1}))
    assert not each_fails([*both[:1], tried([1], "error FAIL", "load")], frozenset, frozenset({0, 1}))
    assert not each_fails(both, lambda trial: frozenset({*trial, 2}), frozenset({0, 1, 2})), "2 is excluded"


def test_a_budget_of_bytes_is_filled_in_both_orders() -> None:
    """A large layer that makes most error leaves no room for two small ones that make more together."""
    errors, sizes = [1.0, 0.9, 0.8, None], [1000, 500, 490, 5000]
    outcomes = ["fail", "pass", "pass", "unresolved"]
    rows = [
        (unit, {"nodes": [f"n{unit}"], "error": error, "bytes": size, "outcome": outcome})
        for unit, (error, size, outcome) in enumerate(zip(errors, sizes, outcomes, strict=True))
    ]
    assert within(rows, "1K") == (Trial.of([0]), Trial.of([1, 2]))
    assert within(rows, "2K") == (Trial.of([0, 1, 2]),)
    assert within(rows, "2") == (Trial.of([0, 1]),)


def test_what_lets_the_whole_model_pass_is_tried(tmp_path: Path) -> None:
    """One weight is far larger, and what it reads is zero: with a scale for each channel no node has to be raised."""
    model = onnx.load(network(tmp_path, 1))
    for tensor in model.graph.initializer:
        values = numpy_helper.to_array(tensor).copy()
        for name, place, value in (("w1", np.s_[:, 3], 0), ("w2", np.s_[3, 3], 60), ("w3", np.s_[3], 0)):
            if tensor.name == name:
                values[place] = value
        tensor.CopyFrom(numpy_helper.from_array(values, tensor.name))
    onnx.save(model, tmp_path / "net.onnx")
    more = ("strategy.quantize.per_channel=false", "inputs.samples=4")
    run = asked(tmp_path, tmp_path / "net.onnx", "int8", *more)
    assert run.result["culprits"] == ["/layer.2/MatMul"], run.output
    assert not any("without these nodes does not pass" in warning for warning in run.result["warnings"]), run.output
    cures = {one["setting"]: one for one in run.result["precision"]["cures"]}
    assert cures.keys() == {"strategy.quantize.per_channel=true", "strategy.quantize.calibration=percentile"}
    held = cures["strategy.quantize.per_channel=true"]
    assert held["outcome"] == "pass" and held["error"] < 0.5
    assert "with strategy.quantize.per_channel=true (error 0." in run.output
    assert "of the tolerance) no node has to be raised" in run.output
    assert "quantized otherwise, no node raised" in (run.folder / "REPORT.md").read_text()
    assert not [*run.folder.glob("with_*")]


@pytest.mark.slow
def test_what_is_raised_with_another_node_is_counted_apart(tmp_path: Path) -> None:
    """Not in the curve, nor in the first line; on the screen stands why the worst node that is searched is raised."""
    run = asked(tmp_path, network(tmp_path, 200), "int8", "inputs.samples=4", rtol=1e-5)
    assert run.code == 0 and run.result["precision"]["curve"][-1][0] == run.result["nodes"]["after"] == 4, run.output
    assert "and the rest in" not in run.output and "must stay" not in run.output
    told, report = run.result["precision"]["selected"], (run.folder / "REPORT.md").read_text()
    beside = [one["node"] for one in told if one["reason"].startswith("raised with /layer.")]
    assert "(4 of 4 layers); no layer may be quantized" in run.screen[0] and len(told) == 4 + len(beside) > 4, told
    assert report.startswith("# 4 of 4 layers have to be in float32")
    assert f"4 of 4 layers are in float32, and so are {len(beside)} nodes raised with them. In quantized form" in report
    assert "/layer.2/MatMul: its weight w2 reaches " in " ".join(run.screen[1:4])


@pytest.mark.slow
def test_what_only_the_margin_keeps_high_is_asked_about_without_it(tmp_path: Path) -> None:
    """The tolerance is between what one layer makes and what two make, the margin below what one makes."""
    (tmp_path / "each").mkdir()
    more = ("inputs.samples=4", "strategy.held_out=0", "strategy.curve=each")
    first = asked(tmp_path / "each", network(tmp_path, 1), "int8", *more, rtol=1e-4)
    least = min(one["error"] for one in first.result["precision"]["alone"]) * 1e-4
    run = asked(tmp_path, tmp_path / "net.onnx", "int8", "inputs.samples=4", "strategy.held_out=0", rtol=1.2 * least)
    fewer = len(run.result["precision"]["without_margin"])
    assert "(4 of 4 layers); keep all layers in float32 (" in run.screen[0] and fewer < 4, run.screen
    at = next(at for at, line in enumerate(run.screen) if line.startswith("  next "))
    assert run.screen[at].endswith(" strategy.margin=1"), run.output
    assert run.screen[at + 1].endswith(f"{fewer} nodes instead of 4)")
    assert "enough for the whole tolerance (strategy.margin=1); strategy.margin asks for 0.5 of it; error" in run.output


@pytest.mark.slow
def test_nodes_without_a_name_get_one_that_the_tool_knows(tmp_path: Path) -> None:
    run = asked(tmp_path, network(tmp_path, 200, named=False), "int8", "inputs.samples=4")
    assert run.result["precision"]["nodes_to_exclude"] == ["m2"], run.output
    assert {node.name for node in run.model("float.onnx").graph.node} >= {"m0", "t0", "smaller"}


@pytest.mark.slow
def test_fp8(tmp_path: Path) -> None:
    run = asked(tmp_path, network(tmp_path, 1e5), "fp8", "inputs.samples=4", rtol=0.3)
    assert run.result["culprits"] == ["/layer.2/MatMul"], run.output


@pytest.mark.slow
def test_int4(tmp_path: Path) -> None:
    run = asked(tmp_path, network(tmp_path, 200), "int4", "strategy.quantize.block_size=16", rtol=0.5)
    told = run.result["precision"]
    assert run.result["culprits"] == told["nodes_to_exclude"] == ["/layer.2/MatMul"], run.output
    assert told["quantizers"]["int4_nodes_to_exclude"] == "/layer.2/MatMul" and told["quantizers"]["holds"] == "pass"
    kinds = [node.op_type for node in run.model("mixed.onnx").graph.node if "MatMul" in node.op_type]
    assert sorted(kinds) == ["MatMul", *["MatMulNBits"] * (LAYERS - 1)]
    assert "by the quantizer" in run.output and "by map" not in run.output
    assert "int4_nodes_to_exclude=/layer.2/MatMul" in (run.folder / "REPORT.md").read_text()


def made_again(run: Run) -> str:
    """Run the script that is left; return what it prints."""
    script = [sys.executable, str(run.folder / "quantize.py")]
    return subprocess.run(script, capture_output=True, text=True, timeout=120, check=True).stdout


def nbits(model: Path) -> dict[str, tuple[int, int]]:
    """Return bits and accuracy level of each MatMulNBits, by what it makes; a MatMul has 32 bits."""
    found = {}
    for node in onnx.load(model).graph.node:
        how = {"bits": 32, **{one.name: one.i for one in node.attribute}}
        if "MatMul" in node.op_type:
            found[node.output[0]] = how["bits"], how.get("accuracy_level", 0)
    return found


@pytest.mark.slow
def test_a_raised_node_gets_weights_of_eight_bits(tmp_path: Path) -> None:
    parent = network(tmp_path, 24)
    run = asked(tmp_path, parent, "int4", "strategy.high=int8", "strategy.quantize.block_size=16", "strategy.budget=1")
    told = run.result["precision"]
    assert "/layer.2/MatMul" in run.result["culprits"] == told["nodes_to_exclude"], run.output
    assert "in int8 and the rest in quantized form" in run.output
    high = {f"m{name.split('.')[1][0]}" for name in told["nodes_to_exclude"]}
    assert nbits(run.folder / "mixed.onnx") == {f"m{at}": (8 if f"m{at}" in high else 4, 0) for at in range(LAYERS)}
    assert nbits(run.folder / "within_budget.onnx") == {"m0": (4, 0), "m1": (4, 0), "m2": (8, 0), "m3": (4, 0)}
    # 4 bits more for each number of the weight; no list of what stays in float
    assert {row["bytes"] for row in told["alone"]} == {WIDTH**2 // 2}
    assert told["quantizers"].keys() == {"low", "model", "script", "holds"} and told["quantizers"]["holds"] == "pass"
    assert error(run.folder / "mixed.onnx", parent) < 0.2 < error(run.folder / "quantized.onnx", parent)
    assert "nodes stay in int8" in made_again(run)
    assert nbits(run.folder / "excluded.onnx") == nbits(run.folder / "mixed.onnx")


@pytest.mark.slow
def test_all_weights_in_eight_bits_are_no_reason_not_to_quantize(tmp_path: Path) -> None:
    more = ("strategy.high=int8", "strategy.quantize.block_size=16", "strategy.held_out=0")
    run = asked(tmp_path, network(tmp_path, 24), "int4", *more, rtol=0.076)
    assert len(run.result["culprits"]) == LAYERS and "no layer may be" not in run.output, run.output
    assert "mixed.onnx" in run.output


@pytest.mark.slow
@pytest.mark.parametrize("level", [0, 4])
def test_the_accuracy_level_of_products_is_searched(tmp_path: Path, level: int) -> None:
    """Activations of one node have an outlier, which int8 does not hold beside the rest; levels are given, or not."""
    onnx.save(
        weights_only(onnx.load(network(tmp_path, 0.01)), 4, block_size=16, accuracy_level=level), tmp_path / "int4.onnx"
    )
    low, more = "accuracy_level_4", ("strategy.quantize.operators=[]", "inputs.samples=4", "strategy.curve=each")
    run = asked(tmp_path, tmp_path / "int4.onnx", low, *more, rtol=0.03)
    assert run.result["culprits"] == ["/layer.2/MatMul_Q4"], run.output
    assert "with 1 layer in another accuracy level and the rest in accuracy_level_4" in run.output
    assert "float32" not in run.output + (run.folder / "REPORT.md").read_text()
    told = run.result["precision"]
    assert (
        (told["low"], told["high"], told["layer_precisions"]) == (low, "another accuracy level", {})
        and told["alone"][0]["nodes"] == ["/layer.2/MatMul_Q4"]
        and told["alone"][0]["bytes"] == 0
    )
    raised = {"m2": (4, 1 if level else 0)}
    assert nbits(run.folder / "mixed.onnx") == {**{f"m{at}": (4, 4) for at in range(LAYERS)}, **raised}
    made_again(run)
    assert nbits(run.folder / "excluded.onnx") == nbits(run.folder / "mixed.onnx")
    # the model that was made, and its parent, ask the same again
    again = winnow(str(run.folder / "replay.yaml"), folder=tmp_path / "again")
    assert again.result["culprits"] == run.result["culprits"], again.output
    assert again.result["precision"]["high"] == "another accuracy level"


@pytest.mark.variants
@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["strategy.low=int8", "reference.model={model}"], "makes the low model of model="),
        (["strategy.low=int8", "strategy.high=int8"], "ONNX Runtime's tools quantize float32"),
        (["strategy.low=accuracy_level_4"], "it has no MatMulNBits"),
        (["strategy.low=float16", "strategy.high=int8"], "must be narrower than the high"),
        (["strategy.low=float32"], "low is float16, bfloat16, quantized"),
        (["strategy.low=int8", "strategy.budget=much"], "strategy.budget=much: give bytes"),
        (["strategy.low=int8", "sanitize.fold=true"], "quantizes your own file"),
        (["strategy.low=int8", "strategy.quantize.operators=[Conv]"], "finds no node to quantize to int8"),
    ],
    ids=lambda value: value[-1] if isinstance(value, list) else "",
)
def test_what_cannot_be_quantized_is_said(tmp_path: Path, options: list[str], said: str) -> None:
    model = network(tmp_path, 200)
    given = (one.format(model=model) for one in options)
    run = winnow("strategy=precision", f"model={model}", *given, folder=tmp_path / "run")
    assert run.code == 2 and said in run.output, run.output


@pytest.mark.slow
def test_a_relu_that_the_tool_takes_out_is_not_lost(tmp_path: Path) -> None:
    """What is before it gets the name of what the Relu gave: raised readers of it still need the Relu."""
    model = onnx.load(network(tmp_path, 64))
    for node in model.graph.node:
        if node.op_type == "Tanh":
            node.op_type = "Relu"
    onnx.save(model, tmp_path / "net.onnx")
    run = asked(tmp_path, tmp_path / "net.onnx", "int8", "strategy.quantize.operators=[]")
    quantized = {name for node in onnx.load(run.folder / "quantized.onnx").graph.node for name in node.output}
    partners = json.loads((run.folder / "partners.json").read_text())
    assert {f"t{at}" for at in range(LAYERS)} <= quantized
    assert [partners[f"t{at}"] for at in range(LAYERS - 1)] == [f"m{at}" for at in range(LAYERS - 1)]
    assert partners[f"t{LAYERS - 1}"] == f"t{LAYERS - 1}", "an output of the graph keeps its name"
    assert error(run.folder / "mixed.onnx", tmp_path / "net.onnx") < 0.2


def test_nodes_tell_what_the_tool_calls_their_tensors() -> None:
    """Of two activations that it takes out, the last gives what is before them its name; an output keeps its own."""
    theirs = "[a] m = MatMul(x, w) [b] r = Relu(m) [c] c = Clip(r, low, high) [d] n = MatMul(c, w) [e] y = Relu(n)"
    pair = "{0}_q = QuantizeLinear({0}, s, z) {1} = DequantizeLinear({0}_q, s, z)"
    mine = f"[a] c = MatMul(x, w) {pair.format('c', 'c_d')} [d] n_in = MatMul(c_d, w) {pair.format('n_in', 'y')}"
    graphs = (parsed(f"g (float[4,4] x) => (float[4,4] y) {{ {one} }}").graph for one in (theirs, mine))
    assert tool_partners(*graphs) == {"c": "m", "c_d": "c", "n_in": "n", "y": "y"}


@pytest.mark.slow
def test_the_tool_also_leaves_out_who_makes_what_a_node_reads(tmp_path: Path) -> None:
    """A mask of -1e9 ruins the scale of what Softmax reads; the tool quantizes that as long as its Add is quantized."""
    random = np.random.default_rng(3)
    held = {f"w{at}": random.normal(0, WIDTH**-0.5, (WIDTH, WIDTH)).astype(np.float32) for at in range(2)}
    held["mask"] = np.where(np.arange(WIDTH) % 4 == 3, np.float32(-1e9), np.float32(0))
    text = f"""g (float[4,{WIDTH}] x) => (float[4,{WIDTH}] y) {{
        [first] m = MatMul(x, w0) [masking] masked = Add(m, mask) [softmax] p = Softmax(masked)
        [last] y = MatMul(p, w1) }}"""
    parent = saved(tmp_path / "float.onnx", text, ir=9, **held)
    more = "strategy.quantize.operators=[]", "strategy.layer_errors=false", "inputs.samples=4"
    run = asked(tmp_path, parent, "int8", *more, rtol=0.2)
    assert run.code == 0 and run.result["culprits"] == ["softmax"], run.output
    told = run.result["precision"]
    assert {*told["nodes_to_exclude"]} == {"masking", "softmax"} and told["quantizers"]["holds"] == "pass", run.output
    assert "It passes without masking as well" in str(run.result["warnings"])
