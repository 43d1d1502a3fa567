"""A mixed model that a plain ONNX Runtime loads: its own fusions take some places of casts apart."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import ModelProto, TensorProto, helper

from runner.jobs.precision.mixed_model import Loads
from tests.harness import Run, by_command, check_script, winnow
from tests.jobs.models import parsed, saved

WIDTH = 16
LEVELS = ("disable", "basic", "extended", "layout", "all")
# a node is raised where it makes float32; the last one is cast to what the graph hands out
CHECK = """
import onnx


def check(path, inputs, expected):
    graph = onnx.shape_inference.infer_shapes(onnx.load(path)).graph
    kinds = {value.name: value.type.tensor_type.elem_type for value in [*graph.value_info, *graph.output]}
    raised = {node.name for node in graph.node if kinds[node.output[0]] == 1 and not node.name.endswith("__cast")}
    return bool(%s)
"""


# a layer norm as exporters took it apart before ONNX had one
NORM = """[{0}mean] {0}mean = ReduceMean({1}, axes) [{0}sub] {0}sub = Sub({1}, {0}mean)
    [{0}pow] {0}pow = Pow({0}sub, two) [{0}var] {0}var = ReduceMean({0}pow, axes) [{0}eps] {0}eps = Add({0}var, small)
    [{0}sqrt] {0}sqrt = Sqrt({0}eps) [{0}div] {0}div = Div({0}sub, {0}sqrt)
    [{0}scale] {0}scale = Mul({0}div, ones) [{0}bias] {0}bias = Add({0}scale, none) """
HELD = "<int64[1] axes = {-1}, float two = {2.0}, float small = {0.00001}>"


def network(blocks: int, *, first: bool = True, unnamed: bool = False) -> ModelProto:
    """Blocks of a norm and a product with a residual; ``first``: the first norm reads the graph's input."""
    nodes, x = ("", "x") if first else ("[tanh] t = Tanh(x) ", "t")
    for at in range(blocks):
        out = "y" if at == blocks - 1 else f"n{at}_sum"
        nodes += NORM.format(f"n{at}_", x)
        nodes += f"[n{at}_product] n{at}_product = MatMul(n{at}_bias, w) [n{at}_sum] {out} = Add({x}, n{at}_product) "
        x = out
    weight = np.random.default_rng(0).normal(0, WIDTH**-0.5, (WIDTH, WIDTH)).astype(np.float32)
    even = {"ones": np.ones(WIDTH, np.float32), "none": np.zeros(WIDTH, np.float32)}
    text = f"g (float[1,4,{WIDTH}] x) => (float[1,4,{WIDTH}] y) {HELD} {{ {nodes} }}"
    model = parsed(text, opset=18, ir=9, w=weight, **even)
    for node in model.graph.node:
        node.name = "" if unnamed else node.name.replace("_", "/")
    return model


def refused(model: ModelProto, disabled: Collection[str] = ()) -> list[str]:
    """The levels at which a plain ONNX Runtime refuses a model."""
    found = []
    for name in ("ORT_DISABLE_ALL", "ORT_ENABLE_BASIC", "ORT_ENABLE_EXTENDED", "ORT_ENABLE_ALL"):
        options = onnxruntime.SessionOptions()
        options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, name)
        options.log_severity_level = 4
        try:
            onnxruntime.InferenceSession(
                model.SerializeToString(),
                options,
                providers=["CPUExecutionProvider"],
                disabled_optimizers=list(disabled) or None,
            )
        except Exception:  # noqa: BLE001 - native code
            found.append(name)
    return found


def search(folder: Path, model: ModelProto, passes: str, code: int | None = 0) -> Run:
    """Search with a check that passes where the expression over ``raised`` is true."""
    onnx.save(model, str(folder / "net.onnx"))
    (folder / "check.py").write_text(CHECK % passes)
    check = ("checker=python", f"checker.file={folder / 'check.py'}", "checker.flaky=never")
    options = ("strategy=precision", "strategy.layer_errors=false", *check)
    run = winnow(f"model={folder / 'net.onnx'}", *options, folder=folder / "run")
    assert code is None or run.code == code, run.output
    return run


def assert_loads(run: Run) -> dict[str, object]:
    loads = run.result["precision"]["loads"]
    mixed = run.model("mixed.onnx")
    onnx.checker.check_model(mixed, full_check=True)
    assert refused(mixed) == []
    assert set(loads["levels"].values()) == {"ok"} and set(loads["levels"]) >= {"disable", "basic", "extended", "all"}
    assert not [warning for warning in run.result["warnings"] if "refuses" in warning]
    return loads


@pytest.mark.variants
@pytest.mark.parametrize("unnamed", [False, True])
def test_a_cast_that_a_fusion_takes_apart_is_put_elsewhere(tmp_path: Path, unnamed: bool) -> None:
    """Nothing has to be high, but the graph's input is float32 and the norm that reads it float16."""
    model = network(1, unnamed=unnamed)
    del model.graph.node[-1]
    model.graph.node[-1].output[0] = "y"
    onnx.save(model, str(tmp_path / "net.onnx"))
    run = winnow("strategy=precision", f"model={tmp_path / 'net.onnx'}", folder=tmp_path / "run")
    assert run.code == 4, run.output
    loads = assert_loads(run)
    told = run.result["precision"]
    assert len(loads["raised"]) == 1 and loads["raised"] == told["nodes_to_exclude"] == run.result["culprits"]
    assert [one["reason"] for one in told["selected"]] == ["raised so that ONNX Runtime loads the model"]
    assert "1 node raised so that ONNX Runtime loads the model" in run.result["message"]


@pytest.mark.slow
def test_norms_that_are_raised_as_a_whole(tmp_path: Path) -> None:
    """Each reads what is float16 and has a scale in float32; the sum behind them reads the same in float16."""
    model = network(3, first=False)
    wanted = {node.name for node in model.graph.node if node.name[:3] in ("n0/", "n1/", "n2/")}
    wanted -= {f"n{number}/{name}" for number in range(3) for name in ("product", "sum")}
    run = search(tmp_path, model, f"raised >= {wanted}")
    loads = assert_loads(run)
    culprits = set(run.result["culprits"])
    assert culprits == wanted | set(loads["raised"]) and wanted.isdisjoint(loads["raised"])
    assert 1 <= len(loads["raised"]) <= 3
    # what costs as little as possible: no product
    assert not any("product" in name for name in loads["raised"])


@pytest.mark.slow
def test_what_cannot_be_avoided_is_said_with_what_to_disable(tmp_path: Path) -> None:
    """The input is float16 as it is, and the norm that reads it has to be float32: no other place is left for the cast.

    ONNX Runtime refuses the model that was given for the same reason.
    """
    cast = helper.make_node("Cast", ["x"], ["t"], name="cast", to=TensorProto.FLOAT)
    model = network(1, first=False)
    nodes = [cast, *(node for node in model.graph.node if node.name not in ("tanh", "n0/sum"))]
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    model.graph.node[-1].output[0] = "y"
    model.graph.input[0].type.tensor_type.elem_type = TensorProto.FLOAT16
    wanted = {node.name for node in model.graph.node if node.name not in ("cast", "n0/product")}
    run = search(tmp_path, model, f"raised >= {wanted}")
    assert set(run.result["culprits"]) == wanted
    mixed, loads = run.model("mixed.onnx"), run.result["precision"]["loads"]
    assert refused(mixed) == refused(model) != [] and loads["raised"] == []
    assert loads["levels"]["disable"] == "ok" and "LayerNormFusion" in loads["levels"]["basic"]
    assert "LayerNormFusion" in loads["original"]["basic"]
    disabled = loads["disabled_optimizers"]
    assert disabled and refused(mixed, disabled) == []
    assert all(refused(mixed, [other for other in disabled if other != one]) for one in disabled)
    (said,) = [warning for warning in run.result["warnings"] if "refuses mixed.onnx" in warning]
    assert f"disabled_optimizers={disabled}" in said and "at graph optimization level basic" in said
    assert "it refuses the model that was given there too" in said


def test_a_mixed_model_that_is_refused_is_no_verdict_on_precision(tmp_path: Path) -> None:
    """A part of the norm that is raised is refused: such a model is neither good nor bad, and the screen says so."""
    model = network(1, first=False)
    wanted, loads = {"n0/div", "n0/scale", "n0/bias"}, "__import__('onnxruntime').InferenceSession(%s)"
    run = search(tmp_path, model, f"{loads % 'path'} and raised >= {wanted}")
    assert wanted <= {*run.result["culprits"]} and run.result["minimality"] != "1-minimal", run.output
    assert any("tells nothing of its precision" in why for why in run.result["unresolved"])
    (said,) = [warning for warning in run.result["warnings"] if "not judged" in warning]
    assert said.startswith("1 mixed model not judged: a runtime refuses it") and "1 mixed model not" in run.output


@pytest.mark.slow
def test_a_model_that_is_refused_at_an_end_is_no_question_about_precision(tmp_path: Path) -> None:
    loads = "__import__('onnxruntime').InferenceSession(b'')"
    run = search(tmp_path, network(1, first=False), f"'n0/div' in raised and {loads}", code=3)
    assert "tells nothing of its precision" in run.result["message"]


@pytest.mark.slow
def test_a_model_that_no_onnx_runtime_knows_is_no_failure(tmp_path: Path) -> None:
    text = """<ir_version: 9, opset_import: ["": 18, "com.acme": 1]> g (float[4] x) => (float[4] y) {
        [tanh] a = Tanh(x) [riddle] y = com.acme.Riddle(a) }"""
    saved(tmp_path / "net.onnx", text)
    check = by_command(check_script(tmp_path, "sys.exit(0)"))
    run = winnow("strategy=precision", f"model={tmp_path / 'net.onnx'}", *check, folder=tmp_path / "run")
    assert run.code == 4, run.output
    told = run.result["precision"]
    assert all("com.acme:Riddle" in why for why in told["loads"]["levels"].values())
    (said,) = [warning for warning in run.result["warnings"] if "refuses" in warning]
    assert "it refuses the model that was given there too" in said and str(tmp_path / "run" / "store") not in said
    assert told["stays_high"] == [
        {"node": "riddle", "op": "com.acme.Riddle", "why": "no schema of its operator is known"}
    ]


def test_what_is_said() -> None:
    fine = Loads(frozenset(), dict.fromkeys(LEVELS, ""))
    assert fine.warning == "" and fine.blamed == []
    nowhere = Loads(frozenset(), dict.fromkeys(LEVELS, "no kernel"))
    assert nowhere.blamed == [] and "no kernel" in nowhere.warning
    assert "without any optimization too" in nowhere.warning
    untried = Loads(frozenset(), {}, untried="No module named 'onnxruntime'")
    assert untried.warning == "whether ONNX Runtime loads mixed.onnx was not tried: No module named 'onnxruntime'"
