"""A mixed model that a plain ONNX Runtime loads: its own fusions take some places of casts apart."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

from runner.jobs.precision.mixed_model import Loads
from tests.harness import Run, by_command, check_script, winnow
from tests.jobs.models import saved

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


def norm(name: str, x: str, *, unnamed: bool = False) -> list[NodeProto]:
    """A layer norm as exporters took it apart before ONNX had one."""
    steps = [
        ("ReduceMean", [x, "axes"], "mean"),
        ("Sub", [x, f"{name}mean"], "sub"),
        ("Pow", [f"{name}sub", "two"], "pow"),
        ("ReduceMean", [f"{name}pow", "axes"], "var"),
        ("Add", [f"{name}var", "eps"], "eps"),
        ("Sqrt", [f"{name}eps"], "sqrt"),
        ("Div", [f"{name}sub", f"{name}sqrt"], "div"),
        ("Mul", [f"{name}div", "scale"], "scale"),
        ("Add", [f"{name}scale", "bias"], "bias"),
    ]
    return [helper.make_node(op, inputs, [f"{name}{o}"], "" if unnamed else f"{name}{o}") for op, inputs, o in steps]


def network(blocks: int, *, first: bool = True, unnamed: bool = False) -> ModelProto:
    """Blocks of a norm and a product with a residual; ``first``: the first norm reads the graph's input."""
    nodes, x = [], "x"
    if not first:
        nodes, x = [helper.make_node("Tanh", ["x"], ["t"], name="tanh")], "t"
    for number in range(blocks):
        name = f"n{number}/"
        nodes += norm(name, x, unnamed=unnamed)
        nodes.append(helper.make_node("MatMul", [f"{name}bias", "w"], [f"{name}product"], name=f"{name}product"))
        out = "y" if number == blocks - 1 else f"{name}sum"
        nodes.append(helper.make_node("Add", [x, f"{name}product"], [out], name=f"{name}sum"))
        x = out
    random = np.random.default_rng(0)
    weights = {
        "axes": np.array([-1]),
        "two": np.array(2, np.float32),
        "eps": np.array(1e-5, np.float32),
        "scale": np.ones(WIDTH, np.float32),
        "bias": np.zeros(WIDTH, np.float32),
        "w": random.normal(0, WIDTH**-0.5, (WIDTH, WIDTH)).astype(np.float32),
    }
    x_in, y_out = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 4, WIDTH]) for name in "xy")
    tensors = [numpy_helper.from_array(value, name) for name, value in weights.items()]
    graph = helper.make_graph(nodes, "g", [x_in], [y_out], tensors)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])
    model.ir_version = 9
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


def search(folder: Path, model: ModelProto, passes: str) -> Run:
    """Search with a check that passes where the expression over ``raised`` is true."""
    onnx.save(model, str(folder / "net.onnx"))
    (folder / "check.py").write_text(CHECK % passes)
    check = ("checker=python", f"checker.file={folder / 'check.py'}", "checker.flaky=never")
    options = ("strategy=precision", "strategy.layer_errors=false", *check)
    return winnow(f"model={folder / 'net.onnx'}", *options, folder=folder / "run")


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
    assert run.code == 0, run.output
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
    wanted = {node.name for node in norm("n0/", "t")}
    run = search(tmp_path, model, f"raised >= {wanted}")
    assert run.code == 0, run.output
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
    assert run.code == 0 and wanted <= {*run.result["culprits"]} and run.result["minimality"] != "1-minimal", run.output
    assert any("tells nothing of its precision" in why for why in run.result["unresolved"])
    (said,) = [warning for warning in run.result["warnings"] if "not judged" in warning]
    assert said.startswith("1 mixed model not judged: a runtime refuses it") and "1 mixed model not" in run.output


@pytest.mark.slow
def test_a_model_that_is_refused_at_an_end_is_no_question_about_precision(tmp_path: Path) -> None:
    loads = "__import__('onnxruntime').InferenceSession(b'')"
    run = search(tmp_path, network(1, first=False), f"'n0/div' in raised and {loads}")
    assert run.code == 3 and "tells nothing of its precision" in run.result["message"]


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
