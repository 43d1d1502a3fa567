"""A reference with a model of its own: what it holds is right, whatever a conversion made of names, types and nodes."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

from tests.harness import Run, winnow
from tests.jobs.models import saved
from tests.matrix import slow
from tests.model.models import model_of, tensor
from tests.reference.families import fused, maker, parent, renamed, set_attribute, set_weight

Bug = Callable[[ModelProto, NodeProto], None]


@pytest.fixture(scope="module")
def elder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return parent(tmp_path_factory.mktemp("elder") / "parent.onnx")


def planted(source: Path, path: Path, output: str, bug: Bug, *, lost: bool) -> str:
    """Save the model with a bug in the node that makes ``output``; return what that node is called then."""
    model = onnx.load(source)
    node = maker(model, output)
    bug(model, node)
    place, name = list(model.graph.node).index(node), node.name
    onnx.save(renamed(model)[0] if lost else model, path)
    return f"n{place}" if lost else name


def judged(child: Path, elder: Path, *more: str) -> Run:
    return winnow(f"model={child}", f"reference.model={elder}", *more, folder=child.parent / "run")


def epsilon(model: ModelProto, node: NodeProto) -> None:
    set_attribute(node, "epsilon", 0.5)


def axis(model: ModelProto, node: NodeProto) -> None:
    set_attribute(node, "axis", 1)


def weight(model: ModelProto, node: NodeProto) -> None:
    set_weight(model, node.input[1], lambda held: -held)


def swapped(model: ModelProto, node: NodeProto) -> None:
    node.input[:] = list(node.input)[::-1]


@pytest.mark.slow
def test_samples_do_not_multiply_the_files(tmp_path: Path, elder: Path) -> None:
    """Small values of a sample share a file, in each recording: the model has three dozen tensors."""
    child = tmp_path / "child.onnx"
    planted(elder, child, "b1_f_ln", epsilon, lost=False)
    (tmp_path / "check.py").write_text(
        "import pathlib\nimport numpy as np\nimport onnxruntime as ort\n"
        "run, told = pathlib.Path(__file__).parent / 'run', pathlib.Path(__file__).parent / 'told'\n"
        "def check(model, inputs, expected):\n"
        "    most = int(told.read_text()) if told.exists() else 0\n"
        "    told.write_text(str(max(most, sum(1 for _ in run.rglob('*.p*')))))\n"
        "    session = ort.InferenceSession(model)\n    names = [one.name for one in session.get_outputs()]\n"
        "    return all(np.allclose(a, one[name], 1e-2, 1e-3) for fed, one in zip(inputs, expected)\n"
        "               for name, a in zip(names, session.run(names, fed)) if name in one)\n"
    )
    check = ("checker=python", f"checker.file={tmp_path / 'check.py'}", "checker.flaky=never")
    files = []
    for count in (2, 8):
        (tmp_path / "told").unlink(missing_ok=True)
        run = judged(child, elder, *check, f"inputs.samples={count}", f"hydra.run.dir={tmp_path / 'run'}")
        assert run.code == 0, run.output
        files.append(int((tmp_path / "told").read_text()))
        shutil.rmtree(tmp_path / "run")
    assert (files[1] - files[0]) / 6 < 20, files


@pytest.mark.parametrize(
    ("level", "output", "bug", "lost"),
    [
        (None, "b1_gd", swapped, False),
        slow(("basic", "b1_f_ln", epsilon, True)),
        slow(("basic", "b1_softmax", axis, True)),
        slow(("extended", "relu1", weight, False)),
        slow(("extended", "b1_q", weight, True)),
    ],
)
def test_the_node_that_a_conversion_spoilt_is_found(
    tmp_path: Path, elder: Path, level: str | None, output: str, bug: Bug, lost: bool
) -> None:
    source = fused(elder, tmp_path / "fused.onnx", level) if level else elder
    name = planted(source, tmp_path / "child.onnx", output, bug, lost=lost)
    run = judged(tmp_path / "child.onnx", elder)
    assert run.code == 0, run.output
    assert run.result["culprits"] == [name], run.output


def test_a_healthy_child_has_nothing_to_find(tmp_path: Path) -> None:
    elder = parent(tmp_path / "parent.onnx", "N")
    onnx.save(renamed(onnx.load(fused(elder, tmp_path / "fused.onnx", "extended")))[0], tmp_path / "child.onnx")
    run = judged(tmp_path / "child.onnx", elder, "inputs.samples=3")
    assert run.code == 4, run.output


def test_what_the_outputs_hide_is_said_with_a_tolerance_that_shows_it(tmp_path: Path) -> None:
    ends = [helper.make_tensor_value_info(name, 1, [8]) for name in "xy"]
    for name, weight in (("good", 2.0), ("bad", 2.1)):
        held = [tensor("w", np.float32([weight])), tensor("far", np.float32([60.0]))]
        model = model_of("[fault] t = Mul (x, w)  [end] y = Add (t, far)", ends[:1], ends[1:], held)
        onnx.save(model, tmp_path / f"{name}.onnx")
    run = judged(tmp_path / "bad.onnx", tmp_path / "good.onnx")
    assert run.code == 4 and "; what fault makes differs from the original's, but the outputs agree" in run.screen[0]
    assert run.result["lacks"] == ["checker.rtol=0.001"] and any("checker.rtol=0.001" in row for row in run.screen)
    (tmp_path / "own.py").write_text("def check(model, inputs, expected):\n    print('poor')\n")
    own = winnow(
        *(f"model={tmp_path / 'bad.onnx'}", f"reference.model={tmp_path / 'good.onnx'}", "checker=python"),
        *(f"checker.file={tmp_path / 'own.py'}", "checker.flaky=never"),
        folder=tmp_path / "own",
    )
    assert own.code == 4 and own.result["message"] == (
        "the whole model passes the check (it returned None and raised nothing; for a bad model it has to return "
        "False, or raise): there is nothing to reduce; but something else than the original is computed in fault. "
        'Your check passes the model and printed "poor": does it return False for a bad one?'
    )
    assert own.screen[-2].endswith("own/replay.yaml") and "once the check is mended" in own.screen[-1], own.output


HEADS = """g (float[4,6] x) => (float[4,6] {}, {} {}) {{ [mm] z = MatMul(x, w) [prob] {} = Softmax(z)
    [pick] {} = ArgMax<axis = 1, keepdims = 0>(z) {} }}"""


def heads(folder: Path, converted: str, *more: str) -> Run:
    """Run a model with two outputs, the original's are ``prob`` and ``label``."""
    held = np.random.default_rng(5).normal(size=(6, 6)).astype(np.float32)
    original = HEADS.format("prob", "int64[4]", "label", "prob", "label", "")
    paths = [saved(folder / f"{at}.onnx", text, w=held) for at, text in enumerate((original, converted))]
    return judged(paths[1], paths[0], *more)


def test_an_output_under_another_name_is_judged_by_its_place(tmp_path: Path) -> None:
    """A node between it and the tensor that the original hands out is one that was added."""
    more = "[one] one = Constant<value_int = 1>() [plus] Identity_1 = Add(a, one)"
    run = heads(tmp_path, HEADS.format("Identity", "int64[4]", "Identity_1", "Identity", "a", more))
    assert (run.result["culprits"], run.result["cause"]["status"]) == (["plus"], "proven"), run.output
    cast = HEADS.format("prob", "int32[4]", "small", "prob", "a", "[cast] small = Cast<to = 6>(a)")
    (tmp_path / "cast").mkdir()
    run = heads(tmp_path / "cast", cast)
    assert run.code == 4 and not any("partner" in one for one in run.result["warnings"]), run.output


def test_what_of_outputs_is_not_known_is_said_with_a_pass(tmp_path: Path) -> None:
    """One that the original does not have is not judged; the values of two may stand in another order."""
    more = HEADS.format("prob", "int64[4]", "label", "prob", "label", "[more] extra = Tanh(z)")
    run = heads(tmp_path, more.replace("label) {", "label, float[4,6] extra) {"))
    said = "its outputs that have a partner in the original pass the check; extra was not judged"
    assert run.code == 4 and said in run.result["message"] and "whole model" not in run.screen[0], run.output
    run = judged(tmp_path / "1.onnx", tmp_path / "0.onnx", "strategy=triage")
    assert run.code == 4 and "; the output extra is not judged: name the partner" in run.result["message"], run.output
    (tmp_path / "order").mkdir()
    for name, order in (("good", "ab"), ("swapped", "ba")):
        text = "g (float[4,6] x) => (float[4,6] {0}0, float[4,6] {0}1) {{ {1} = Tanh(x) {2} = Sigmoid(x) }}"
        first = [f"{name}{'ab'.index(one)}" for one in order]
        saved(tmp_path / "order" / f"{name}.onnx", text.format(name, *first))
    run = judged(tmp_path / "order" / "swapped.onnx", tmp_path / "order" / "good.onnx")
    said = "another order than in the original: swapped0 holds good1, swapped1 holds good0"
    assert run.code == 4 and any(said in one for one in run.result["warnings"]), run.output


def test_outputs_that_are_handed_on_are_judged_by_place_and_order(tmp_path: Path) -> None:
    """Where an Identity stands before each, the tensor before it and the output are one."""
    ends = "{0}0 = Identity({1}) {0}1 = Identity({2}) {0}2 = Identity(c) }}"
    text = f"g (float[4,6] x) => ({', '.join(f'float[4,6] {{0}}{at}' for at in range(3))}) {{{{ c = Tanh(x) {ends}"
    for name, a, b, more in (
        ("good", "a", "b", ""),
        ("swapped", "b", "a", ""),
        ("wrong", "a", "e", " e = Softplus(d)"),
    ):
        nodes = f"a = Exp(x) d = Neg(x) b = Sigmoid(d){more} c = Tanh"
        saved(tmp_path / f"{name}.onnx", text.format(name, a, b).replace("c = Tanh", nodes))
    run = judged(tmp_path / "swapped.onnx", tmp_path / "good.onnx")
    said = "in the original: swapped0 holds good1, swapped1 holds good0, swapped2 holds good2"
    assert run.code == 4 and any(said in one for one in run.result["warnings"]), run.output
    run = judged(tmp_path / "wrong.onnx", tmp_path / "good.onnx")
    assert run.code == 0 and run.result["cause"]["status"] == "proven", run.output


def test_a_cast_back_to_float32_is_never_at_fault(tmp_path: Path) -> None:
    ends = [helper.make_tensor_value_info(name, 1, [64]) for name in "xy"]
    weight = np.linspace(0.1, 0.9, 64, dtype=np.float32)
    casts = "[to] half = Cast <to = 10> (x)  [mul] h = Mul (half, w)  [end] t = Tanh (h)  [back] y = Cast <to = 1> (t)"
    for name, text, held in (
        ("high", "[mul] h = Mul (x, w)  [end] y = Tanh (h)", weight),
        ("low", casts, weight.astype(np.float16)),
    ):
        onnx.save(model_of(text, ends[:1], ends[1:], [tensor("w", held)]), tmp_path / f"{name}.onnx")
    run = judged(tmp_path / "low.onnx", tmp_path / "high.onnx", "checker.rtol=2e-5", "checker.atol=2e-6")
    assert run.result["status"] == "found" and run.result["culprits"] != ["back"], run.output
    run.folder.rename(tmp_path / "first")
    passes = judged(tmp_path / "low.onnx", tmp_path / "high.onnx")
    assert passes.code == 4 and any(row.endswith("run/replay.yaml target.rounding=on") for row in passes.screen)


def test_names_that_were_given_anew_mislead_nobody(tmp_path: Path, elder: Path) -> None:
    onnx.save(renamed(onnx.load(elder))[0], tmp_path / "parent.onnx")
    name = planted(fused(elder, tmp_path / "fused.onnx"), tmp_path / "child.onnx", "b1_softmax", axis, lost=True)
    both = [onnx.load(tmp_path / f"{who}.onnx").graph for who in ("parent", "child")]
    names = [{name for node in graph.node for name in node.output} for graph in both]
    assert len(names[0] & names[1]) > 50  # the same names, for other tensors
    run = judged(tmp_path / "child.onnx", tmp_path / "parent.onnx")
    assert run.result["culprits"] == [name], run.output


@pytest.mark.parametrize("since", [0, 13])
def test_numbers_that_name_the_tensor_before_mislead_nobody(tmp_path: Path, since: int) -> None:
    """Fed with the values of its namesakes no node makes anything that is known; what it makes by itself is."""
    draw = np.random.default_rng(3)
    kept = [numpy_helper.from_array(draw.normal(size=(8, 8)).astype(np.float32), f"w{at}") for at in range(0, 20, 2)]
    ends = [helper.make_tensor_value_info(name, 1, [4, 8]) for name in "xy"]
    for who in ("parent", "child"):
        made = ["x", *(str(at + (who == "child" and at >= since)) for at in range(19)), "y"]
        done = [f'MatMul ("{made[at]}", w{at})' if at % 2 == 0 else f'Tanh ("{made[at]}")' for at in range(20)]
        done[17] = done[17].replace("Tanh", "Sigmoid" if who == "child" else "Tanh")
        text = "".join(f'[n{at}] "{made[at + 1]}" = {one} ' for at, one in enumerate(done))
        onnx.save(model_of(text, ends[:1], ends[1:], kept), tmp_path / f"{who}.onnx")
    run = judged(tmp_path / "child.onnx", tmp_path / "parent.onnx")
    assert run.result["culprits"] == ["n17"], run.output


@pytest.mark.parametrize("fault", ["Softsign", "Sin"])
def test_counters_that_name_tensors_of_the_block_before_mislead_nobody(tmp_path: Path, fault: str) -> None:
    """A block that does nothing was left out, so each operator's number is one less, and names its like."""
    draw = np.random.default_rng(17)
    kept = [tensor(f"h{at}", (draw.normal(size=(16, 16)) / 4).astype(np.float32)) for at in range(8)]
    for who, first in (("parent", 0), ("child", 1)):
        text, last = "", "x"
        for block, number in zip(range(first, 7), range(7), strict=False):
            operator = fault if who == "child" and block == 4 else "Tanh"
            text += f"[m{block}] mm_{number} = MatMul ({last}, h{block}) "
            text += f"[t{block}] act_{number} = {operator} (mm_{number}) "
            text += f"[z] gone = Mul (act_{number}, zero) " if block == 0 else ""
            text += f"[a{block}] add_{number} = Add ({last}, {'gone' if block == 0 else f'act_{number}'}) "
            last = f"add_{number}"
        text += f"[head] y = MatMul ({last}, h7)"
        ends = [helper.make_tensor_value_info(name, 1, [6, 16]) for name in "xy"]
        onnx.save(model_of(text, ends[:1], ends[1:], [*kept, tensor("zero", np.float32(0))]), tmp_path / f"{who}.onnx")
    run = judged(tmp_path / "child.onnx", tmp_path / "parent.onnx")
    assert run.result["culprits"] == ["t4"] and run.result["cause"]["status"] == "proven", run.output


def test_names_count_where_every_layer_is_coarse(tmp_path: Path) -> None:
    """Weights of 4 bits change every tensor by more than a match by value allows, and no other tensor is nearer."""
    random = np.random.default_rng(3)
    kept = [random.standard_normal((32, size)).astype(np.float32) / 5 for size in (32, 32, 32, 8)]
    coarse = [np.round(one / (step := np.abs(one).max() / 4)) * step for one in kept]
    coarse[1] = np.roll(coarse[1], 1, axis=1)
    for who, weights in (("parent", kept), ("child", coarse)):
        text, product = "", "MatMul" if who == "parent" else 'Einsum <equation = "ab,bc->ac">'
        for layer in range(4):
            text += f"[layer{layer}] m{layer} = {product} ({f't{layer - 1}' if layer else 'x'}, w{layer}) "
            text += f"[tanh{layer}] t{layer} = Tanh (m{layer}) "
        ends = [helper.make_tensor_value_info(name, 1, [4, size]) for name, size in (("x", 32), ("t3", 8))]
        held = [tensor(f"w{layer}", one) for layer, one in enumerate(weights)]
        model = model_of(text, ends[:1], ends[1:], held)
        onnx.save(model, tmp_path / f"{who}.onnx")
    run = judged(tmp_path / "child.onnx", tmp_path / "parent.onnx")
    assert "9 of 9 tensors have a partner in the original (9 by name)" in run.output, run.output
    assert run.result["culprits"] == ["layer1"], run.output


def test_another_shape_at_the_end(tmp_path: Path, elder: Path) -> None:
    model = onnx.load(elder)
    set_attribute(maker(model, "pooled"), "keepdims", 1)
    last = maker(model, "logits")
    last.op_type, last.input[:] = "MatMul", last.input[:2]
    set_weight(model, "c_head", lambda held: held * 0)
    model.graph.output[0].type.tensor_type.ClearField("shape")
    onnx.save(model, tmp_path / "child.onnx")
    run = judged(tmp_path / "child.onnx", elder)
    assert run.result["culprits"] == ["/pooled"], run.output
    assert run.result["signature"]["kind"] == "shape"


def half(model: ModelProto) -> ModelProto:
    """The model in half precision, input and output too."""
    result = ModelProto()
    result.CopyFrom(model)
    for one in result.graph.initializer:
        if one.data_type == TensorProto.FLOAT:
            array = np.clip(numpy_helper.to_array(one), -6e4, 6e4).astype(np.float16)
            one.CopyFrom(numpy_helper.from_array(array, one.name))
    for value in (*result.graph.input, *result.graph.output):
        value.type.tensor_type.elem_type = TensorProto.FLOAT16
    return result


@pytest.mark.slow
@pytest.mark.parametrize(("checker", "lost"), [("auto", True), ("compare", False), ("finite", False)])
def test_an_overflow_in_half_precision(tmp_path: Path, elder: Path, checker: str, lost: bool) -> None:
    model = onnx.load(elder)
    for name, factor in (("w_q1", 3000), ("w_k1", 3000), ("root1", 1e4)):
        set_weight(model, name, lambda held, factor=factor: held * factor)
    onnx.save(model, tmp_path / "parent.onnx")
    onnx.save(half(model), tmp_path / "half.onnx")
    name = planted(tmp_path / "half.onnx", tmp_path / "child.onnx", "b1_scores", lambda *_: None, lost=lost)
    run = judged(tmp_path / "child.onnx", tmp_path / "parent.onnx", "target=onnx_reference", f"checker={checker}")
    assert run.result["culprits"] == [name], run.output


@pytest.fixture(scope="module")
def quantized(elder: Path) -> Path:
    from onnxruntime.quantization import (  # noqa: PLC0415 - slow to import
        CalibrationDataReader,
        QuantFormat,
        QuantType,
        quantize_static,
    )

    class Samples(CalibrationDataReader):  # type: ignore[misc]
        def __init__(self) -> None:
            self.left = iter(
                [{"image": np.random.default_rng(at).uniform(0, 1, (2, 3, 6, 6)).astype(np.float32)} for at in range(8)]
            )

        def get_next(self) -> dict[str, np.ndarray] | None:
            return next(self.left, None)

    path = elder.parent / "quantized.onnx"
    kinds = ["Conv", "MatMul", "Gemm"]
    quantize_static(
        elder, path, Samples(), quant_format=QuantFormat.QDQ, weight_type=QuantType.QInt8, op_types_to_quantize=kinds
    )
    return path


@pytest.mark.slow
@pytest.mark.parametrize(
    ("scale", "culprits"),
    [
        (None, []),
        ("b1_gelu_scale", ["b1_gelu_QuantizeLinear", "b1_gelu_DequantizeLinear"]),
        ("w_u1_scale", ["w_u1_DequantizeLinear"]),
    ],
)
def test_a_wrong_scale_of_a_quantized_child(
    tmp_path: Path, elder: Path, quantized: Path, scale: str | None, culprits: list[str]
) -> None:
    model = onnx.load(quantized)
    if scale:
        set_weight(model, scale, lambda held: held * 0.15)
    onnx.save(model, tmp_path / "child.onnx")
    run = judged(tmp_path / "child.onnx", elder, "inputs.ranges={image: [0, 1]}", "+experiment=quantized")
    assert run.code == (0 if scale else 4), run.output
    assert run.result["culprits"] == culprits, run.output


def chain(path: Path, wrong: float = 2.0, prefix: str = "", steps: int = 6) -> Path:
    """Nodes x * 2, abs, x * 2 ...: nothing but names and places tells one from another."""
    held = [tensor(f"w{at}", np.float32([2.0 if at != 3 else wrong])) for at in range(steps)]
    made = ["x", *(f"{prefix}{at}" for at in range(steps))]
    text = "".join(f'[n{at}] "{made[at + 1]}" = Mul ("{made[at]}", w{at}) ' for at in range(steps))
    ends = [helper.make_tensor_value_info(name, 1, [8]) for name in ("x", made[-1])]
    onnx.save(model_of(text, ends[:1], ends[1:], held), path)
    return path


@pytest.mark.variants
@pytest.mark.parametrize(("golden", "tolerance"), [("ahead", "fixed"), ("candidate", "auto")])
def test_golden_values_of_each_candidate_are_those_that_were_recorded(
    tmp_path: Path, golden: str, tolerance: str
) -> None:
    """It can run no candidate: both mean the same."""
    good, bad = chain(tmp_path / "good.onnx"), chain(tmp_path / "bad.onnx", wrong=2.5, prefix="c")
    run = judged(bad, good, "checker=compare", f"checker.golden={golden}", f"checker.tolerance={tolerance}")
    assert run.result["culprits"] == ["n3"], run.output


def test_a_map_says_what_belongs_together(tmp_path: Path) -> None:
    good, bad = chain(tmp_path / "good.onnx"), chain(tmp_path / "bad.onnx", wrong=2.5, prefix="c")
    (tmp_path / "map.json").write_text(json.dumps({"c2": "1", "c5": "5", "c3": None}))
    # as the map has it n2 is wrong already: what it makes is compared with what the node before makes in the parent;
    # so are n3 and n4 together, which have to make of that what the parent makes of its own
    run = judged(bad, good, f"reference.map={tmp_path / 'map.json'}", "strategy.first=end")
    assert [one["culprits"] for one in run.result["cause"]["answers"]] == [["n2"], ["n3", "n4"]], run.output
    wrong = "these nodes, or some of them, compute something else than the original: n2, n3, n4\n"
    assert f"INFO with right inputs, {wrong}" in run.output


@pytest.mark.parametrize(
    ("key", "said"),
    [
        ("reference.map={c33: 3}", "model has no tensor 'c33'; close: 'c3'"),
        ("cut.record=off", "its values are recorded"),
    ],
)
def test_what_is_wrong_is_said(tmp_path: Path, key: str, said: str) -> None:
    good, bad = chain(tmp_path / "good.onnx"), chain(tmp_path / "bad.onnx", wrong=2.5, prefix="c")
    run = judged(bad, good, key)
    assert run.code == 2
    assert said in run.output


def test_a_reference_that_is_no_relative(tmp_path: Path) -> None:
    bad = chain(tmp_path / "bad.onnx")
    ends = [helper.make_tensor_value_info("x", 1, [8]), helper.make_tensor_value_info("y", 1, [1])]
    onnx.save(model_of("y = ReduceSum (x)", ends[:1], ends[1:]), tmp_path / "stranger.onnx")
    run = judged(bad, tmp_path / "stranger.onnx")
    assert run.code == 2
    assert "none of the model's outputs (5) has a partner among its tensors; its outputs are y" in run.output


def test_an_original_that_cannot_take_the_models_inputs_is_told_so(tmp_path: Path) -> None:
    """Under the same name, or by the user's map: no size is compared then, as a run may do."""
    ends = [[helper.make_tensor_value_info(name, 1, [*dims])] for name, dims in (("x", (1, 4, 2)), ("y", (1, 4, 3)))]
    held = [numpy_helper.from_array(np.ones((2, 3), np.float32), "w")]
    onnx.save(model_of("[product] y = MatMul (x, w)", *ends, held), tmp_path / "good.onnx")
    ends[0] = [helper.make_tensor_value_info("x", 1, [1, 2, 4])]
    moved = "t = Transpose <perm = [0, 2, 1]> (x)  [product] y = MatMul (t, w)"
    onnx.save(model_of(moved, *ends, held), tmp_path / "bad.onnx")
    run = judged(tmp_path / "bad.onnx", tmp_path / "good.onnx")
    assert run.code == 2
    assert "reference.model does not run on the model's inputs: its input x (float [1, 4, 2]) gets x" in run.output


def layers(path: Path, prefix: str, scaled: tuple[int, ...] = (), transposed: int | None = None) -> Path:
    """Five layers of product, sum and Relu; a scale is multiplied in before a scaled one and divided out after it."""
    rng, nodes, held, at = np.random.default_rng(1000), list[NodeProto](), list[TensorProto](), "x"

    def add(operator: str, *reads: str | np.ndarray) -> None:
        nonlocal at
        made = f"{prefix}{len(nodes)}"
        names = [one if isinstance(one, str) else f"{made}_{slot}" for slot, one in enumerate(reads)]
        held.extend(
            numpy_helper.from_array(one.astype(np.float32), name)
            for one, name in zip(reads, names, strict=True)
            if not isinstance(one, str)
        )
        nodes.append(helper.make_node(operator, names, [made], name=f"{operator}{layer}"))
        at = made

    for layer in range(6):
        weight, bias = rng.normal(size=(16, 16)) * 0.4, rng.normal(size=16) * 0.3
        scale = np.array(2.0)
        if layer in scaled:
            add("Mul", at, scale)
        add("MatMul", at, weight.T if layer == transposed else weight)
        add("Add", at, bias * scale if layer in scaled else bias)
        add("Relu", at)
        if layer in scaled:
            add("Div", at, scale)
    ends = [helper.make_tensor_value_info(name, 1, [4, 16]) for name in ("x", at)]
    onnx.save(model_of(nodes, ends[:1], ends[1:], held), path)
    return path


@pytest.mark.variants
@pytest.mark.parametrize("wrong", [0, 3])
def test_a_scale_that_is_divided_out_again_is_not_called_the_cause(tmp_path: Path, wrong: int) -> None:
    """By their place the tensors between seem to have partners, which they are twice as large as."""
    good = layers(tmp_path / "good.onnx", "h")
    run = judged(layers(tmp_path / "bad.onnx", "c", (2, 3, 4), wrong), good)
    assert f"MatMul{wrong}" in run.result["culprits"], run.output
    if wrong == 0:
        assert run.result["culprits"] == ["MatMul0"], run.output
