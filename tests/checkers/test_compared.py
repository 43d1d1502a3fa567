"""What a check compares, as a user meets it: outputs that show nothing, tolerances per output, several metrics."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper

from runner.checkers.compare_outputs import said
from runner.verdict import EMPTY
from tests.harness import winnow
from tests.jobs.reduce.test_hard_failures import saved
from tests.model.models import model_of, tensor

RIGHT = np.array([[0.3, -0.2, 0.7], [0.1, 0.9, -0.4]], np.float32)


def zero(folder: Path, *more: onnx.NodeProto, outputs: tuple[str, ...] = ("y",)) -> tuple[str, ...]:
    """``y`` is zero whatever goes in."""
    nodes = [
        helper.make_node("Tanh", ["x"], ["t"], name="tanh"),
        helper.make_node("Sub", ["t", "t"], ["y"], name="sub"),
        *more,
    ]
    return saved(model_of(nodes, ["x"], [*outputs]), folder, x=RIGHT)


def test_a_reduction_that_compares_zeros_cannot_say_that_nothing_fails(tmp_path: Path) -> None:
    run = winnow(*zero(tmp_path), folder=tmp_path / "run")
    assert run.code == 3, run.output
    assert run.result["message"].startswith(
        "the only output, 'y', is constant, so no fault could show. Give inputs that"
    ) and not any(row.startswith("  warning") for row in run.screen)
    # the second run knows as much
    again = winnow(*zero(tmp_path), f"journal.reuse=[{tmp_path / 'run'}]", folder=tmp_path / "again")
    assert again.code == 3, again.output


def test_an_output_that_shows_nothing_beside_others_is_a_warning(tmp_path: Path) -> None:
    more = helper.make_node("Neg", ["t"], ["z"], name="neg")
    run = winnow(*zero(tmp_path, more, outputs=("y", "z")), folder=tmp_path / "run")
    assert run.code == 4, run.output
    assert any(
        warning.startswith("'y' is constant, so no fault could show there. ") for warning in run.result["warnings"]
    )


def test_a_file_that_holds_a_constant_is_told_where_the_model_computes_others(tmp_path: Path) -> None:
    one = model_of([helper.make_node("Tanh", ["x"], ["y"], name="tanh")], ["x"], ["y"])
    np.savez(tmp_path / "good.npz", y=np.ones_like(RIGHT))
    run = winnow(
        *saved(one, tmp_path, x=RIGHT),
        f"reference.path={tmp_path / 'good.npz'}",
        "reference=files",
        folder=tmp_path / "run",
    )
    said = [warning for warning in run.result["warnings"] if "constant" in warning]
    assert said == ["your files of expected outputs hold constant values for 'y', and the model computes others"]


def test_of_an_empty_output_the_input_that_decides_it_is_named_with_what_fills_it(tmp_path: Path) -> None:
    value = helper.make_tensor_value_info
    nodes = [
        helper.make_node("ConstantOfShape", ["n"], ["ones"], value=tensor("", np.ones(1, np.float32))),
        helper.make_node("Mul", ["x", "ones"], ["all"], name="mul"),
    ]
    inputs = [value("x", TensorProto.FLOAT, [1]), value("n", TensorProto.INT64, [1])]
    onnx.save(model_of(nodes, inputs, [value("all", TensorProto.FLOAT, ["T"])]), str(tmp_path / "sized.onnx"))
    ask, named = (
        f"model={tmp_path / 'sized.onnx'}",
        "the only output, 'all', is empty with these inputs, so no fault could show. ",
    )
    filled = "What was made up decides that: inputs.ranges={n: [3, 4]} fills it"
    run = winnow(ask, folder=tmp_path / "run")
    assert run.code == 3 and run.result["message"].startswith(named), run.output
    assert f"{named}{filled}" in run.result["warnings"] and "are constant" not in run.output
    assert "replay.yaml 'inputs.ranges={n: [3, 4]}'" in run.output and "larger sizes" not in run.output
    # a look at layers, and a repeat, which has no pre-flight, know as much
    layers = winnow("strategy=layerwise", ask, folder=tmp_path / "layers")
    assert layers.code == 3 and "0 tensors compared" in layers.result["message"], layers.output
    assert "nothing is compared of 'all'" in layers.result["message"]
    part = named.replace("the only output, 'all',", "'all'").replace("show. ", "show there. ")
    assert f"{part}{filled}" in layers.result["warnings"]
    again = winnow("strategy=repeat", "strategy.until=2", ask, folder=tmp_path / "again")
    assert again.result["lacks"] == ["inputs.ranges={n: [3, 4]}"], again.output
    # where nothing that is made up decides it, what is so is told, and no more
    assert said({EMPTY: ["all"]}, "") == [f"{part}Give inputs that fill it (inputs=files inputs.path=..)"]


def test_everything_passes_in_low_precision_on_zeros_is_no_evidence(tmp_path: Path) -> None:
    run = winnow("strategy=precision", *zero(tmp_path), folder=tmp_path / "run")
    assert run.code == 3, run.output
    assert (
        "everything in float16 cannot be judged: the only output, 'y', is constant, so no fault could show"
        in run.result["message"]
    )
    assert not (run.folder / "mixed.onnx").exists()


def test_a_nan_that_the_original_has_too_is_said(tmp_path: Path) -> None:
    nodes = [helper.make_node("Log", ["x"], ["y"], name="log"), helper.make_node("Tanh", ["x"], ["z"], name="tanh")]
    given = saved(model_of(nodes, ["x"], ["y", "z"]), tmp_path, x=RIGHT)
    original = f"reference.model={tmp_path / 'model.onnx'}"
    run = winnow("strategy=precision", *given, original, "strategy.held_out=0", folder=tmp_path / "run")
    assert run.code == 4, run.output
    said = "2 of 6 values of 'y' are NaN or Inf in the original too, and were not compared. Give inputs of which"
    assert sum(warning.startswith(said) for warning in run.result["warnings"]) == 1, run.output


def test_of_an_output_without_a_finite_value_other_ranges_are_proposed(tmp_path: Path) -> None:
    nodes = [helper.make_node("Log", ["x"], ["t"]), helper.make_node("ReduceSum", ["t"], ["y"], keepdims=0)]
    path = saved(model_of(nodes, ["x"], ["y"]), tmp_path, x=RIGHT)[0]
    original = f"reference.model={tmp_path / 'model.onnx'}"
    said = "the only output, 'y', is NaN or Inf throughout, in the original too, so no fault could show. "
    given = winnow(path, original, "inputs.ranges={x: [-2, -1]}", folder=tmp_path / "given")
    assert given.code == 3 and f"{said}Give inputs of which the original makes none" in given.output, given.output
    run = winnow(path, original, "inputs.samples=9", folder=tmp_path / "run")
    assert run.code == 3 and run.result["message"].startswith(said), run.output
    assert run.result["lacks"] == ["inputs.ranges={x: [0.5, 1.5]}"]
    assert "replay.yaml 'inputs.ranges={x: [0.5, 1.5]}'" in run.output


def test_tolerances_and_metrics_are_typed_on_the_command_line(tmp_path: Path) -> None:
    half = onnx.TensorProto.FLOAT16
    nodes = [
        helper.make_node("Cast", ["x"], ["h"], name="down", to=half),
        helper.make_node("Cast", ["h"], ["y"], name="up", to=TensorProto.FLOAT),
        helper.make_node("Neg", ["x"], ["z"], name="neg"),
    ]
    given = saved(model_of(nodes, ["x"], ["y", "z"]), tmp_path, x=RIGHT)
    parent = model_of(
        [helper.make_node("Identity", ["x"], ["y"]), helper.make_node("Neg", ["x"], ["z"])], ["x"], ["y", "z"]
    )
    onnx.save(parent, str(tmp_path / "parent.onnx"))
    given += (f"reference.model={tmp_path / 'parent.onnx'}", "checker=compare", "checker.flaky=never")
    loose = winnow(*given, 'checker.rtol={y: 1e-2, "": 1e-6}', folder=tmp_path / "loose")
    assert loose.code == 4, loose.output
    strict = winnow(*given, 'checker.rtol={z: 1e-2, "": 1e-6}', "checker.atol=0", "checker.metric=[cosine,scale]",
                    folder=tmp_path / "strict")  # fmt: skip
    assert strict.code == 0, strict.output
    assert strict.result["culprits"] == ["down", "up"]  # what is between them has lost the digits


def test_an_output_that_the_low_type_cannot_hold_is_no_question(tmp_path: Path) -> None:
    """Rounded to fp16 the right value is an Inf, and the model in fp16, which overflows, would agree with it."""
    weight = tensor("w", np.array(3e5, np.float32))
    nodes = [helper.make_node("Tanh", ["x"], ["t"]), helper.make_node("Mul", ["t", "w"], ["y"])]
    given = saved(model_of(nodes, ["x"], ["y"], [weight]), tmp_path, x=RIGHT)
    run = winnow("strategy=precision", "strategy.keep_io=false", *given, folder=tmp_path / "run")
    assert run.code == 2, run.output
    assert "'y' holds" in run.output and "float16 cannot hold" in run.output and "strategy.keep_io=true" in run.output
