"""Fewer attributes, plain floats and shorter names of a model in hand, and in a run."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import ModelProto, TensorProto, helper
from onnx.reference import ReferenceEvaluator

from runner.jobs.reduce import simpler_values
from runner.jobs.reduce.simpler_values import default_attributes, plain_floats, shorter_names
from runner.jobs.reduce.simplification_levels import Feeds, Whole
from runner.model.graph.cut import CutError
from runner.model.values import recorded
from runner.verdict import Sample
from tests.harness import by_command, check_script, winnow
from tests.jobs.models import parsed
from tests.model.models import model_of, tensor

INFO = helper.make_tensor_value_info
LONG = "/encoder/layer.0/attention/"
X = np.arange(6, dtype=np.float16).reshape(2, 3)


def made() -> ModelProto:
    nodes = [
        helper.make_node("Gemm", [f"{LONG}x", "w"], [f"{LONG}product"], name=f"{LONG}Gemm", alpha=2.0, transB=1),
        helper.make_node("Cast", [f"{LONG}product"], [f"{LONG}cast"], name="cast", to=TensorProto.FLOAT16),
        helper.make_node("Softmax", [f"{LONG}cast"], [f"{LONG}output"], name="last", axis=0),
    ]
    half = TensorProto.FLOAT16
    ends = [INFO(f"{LONG}x", half, [2, 3])], [INFO(f"{LONG}output", half, [2, 3])]
    model = model_of(nodes, *ends, [tensor("w", np.eye(3, dtype=np.float16))])
    told = model.graph.quantization_annotation.add(tensor_name=f"{LONG}product")
    told.quant_parameter_tensor_names.add(key="SCALE_TENSOR", value=f"{LONG}x")
    return model


def whole(folder: Path) -> Whole:
    return Whole(made(), (Sample({f"{LONG}x": recorded.write(X, f"{LONG}x", folder / "x.pb")}),))


def run(model: ModelProto, feeds: Feeds) -> np.ndarray:
    onnx.checker.check_model(model, full_check=True)
    (found,) = ReferenceEvaluator(model).run(None, {name: recorded.read(file) for name, file in feeds[0].items()})
    return np.asarray(found)


def test_attributes_that_are_not_required_are_left_out(tmp_path: Path) -> None:
    simpler = default_attributes(whole(tmp_path))
    assert simpler.levels.tops == (1, 1, 1), "alpha, transB and axis"
    model = simpler.apply((0, 1, 0))
    kept = [[one.name for one in node.attribute] for node in model.graph.node]
    assert kept == [["transB"], ["to"], []]
    assert simpler.apply(simpler.levels.tops) == made()


def test_all_floats_become_plain_ones(tmp_path: Path) -> None:
    simpler = plain_floats(whole(tmp_path), recorded.to_array)
    model, feeds = simpler.apply((0,)), simpler.feeds((0,), tmp_path / "new")
    found = run(model, feeds)
    assert found.dtype == np.float32
    assert np.allclose(found, run(made(), (whole(tmp_path).samples[0].feeds,)), atol=1e-3)
    assert simpler.apply((1,)) == made()
    assert not plain_floats(Whole(model, ()), recorded.to_array).levels.tops


def test_plain_floats_take_no_more_than_a_candidate_carries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(simpler_values, "LARGEST", 4 * 9 + 4 * 9 - 1)
    one = whole(tmp_path)
    plain_floats(one, recorded.to_array).apply((0,))
    one.model.graph.initializer.append(tensor("more", np.eye(3, dtype=np.float16)))
    with pytest.raises(CutError, match="would take more"):
        plain_floats(one, recorded.to_array).apply((0,))


def test_long_names_of_tensors_get_short_but_for_outputs(tmp_path: Path) -> None:
    simpler = shorter_names(whole(tmp_path))
    model, feeds = simpler.apply((0,)), simpler.feeds((0,), tmp_path / "new")
    assert (run(model, feeds) == run(made(), (whole(tmp_path).samples[0].feeds,))).all()
    assert [(list(node.input), list(node.output)) for node in model.graph.node] == [
        (["t0", "w"], ["t1"]),
        (["t1"], ["t2"]),
        (["t2"], [f"{LONG}output"]),
    ]
    assert [node.name for node in model.graph.node] == [f"{LONG}Gemm", "cast", "last"], "they are the culprits"
    assert onnx.load_tensor(str(feeds[0]["t0"].path)).name == "t0"
    (told,) = model.graph.quantization_annotation
    assert (told.tensor_name, told.quant_parameter_tensor_names[0].value) == ("t1", "t0")
    assert simpler.apply((1,)) == made()


@pytest.fixture
def given(tmp_path: Path) -> tuple[str, ...]:
    """The model and its input."""
    onnx.save(made(), tmp_path / "m.onnx")
    np.savez(tmp_path / "x.npz", **{f"{LONG}x": X})
    return f"model={tmp_path / 'm.onnx'}", "inputs=files", f"inputs.path={tmp_path / 'x.npz'}"


def test_a_run_proves_each_by_the_check(given: tuple[str, ...], tmp_path: Path) -> None:
    """A check that knows a tensor by its name keeps the names, and nothing else.

    All is tried in one candidate. Where that does not fail, the passes go one by one, and the last of them has asked
    that very question: it is not paid for again. What they make of an answer is repeated as it is handed over only.
    """
    names, paid = {}, {}
    for name, more in (("free", ""), ("by_name", f" and '{LONG}x' in inputs")):
        check = check_script(tmp_path, f"sys.exit(int('{LONG}Gemm' in nodes{more}))", f"{name}.py")
        done = winnow(*given, *by_command(check, "{inputs}"), "checker.flaky=auto", folder=tmp_path / name)
        assert done.result["culprits"] == [f"{LONG}Gemm"], done.output
        (node,) = done.model().graph.node
        names[name] = node.input[0]
        assert not node.attribute, "the failure needs none"
        assert done.model().graph.input[0].type.tensor_type.elem_type == TensorProto.FLOAT
        assert ("shorter names" in done.result["message"]) is (name == "free")
        paid[name] = done.result["checks"]["refine"]
        assert (done.result["checks"]["repeats"], done.log.count(", all at once (1 node)")) == (2, 1), done.output
    assert names == {"free": "t0", "by_name": f"{LONG}x"}
    control, together, attributes, dtypes = 1, 1, 1, 1
    assert paid == {"free": control + together, "by_name": control + together + attributes + dtypes}


@pytest.mark.variants
@pytest.mark.parametrize("most", [0, 1])
def test_one_question_of_each_pass_is_enough_where_all_hold_and_none_asks_nothing(
    given: tuple[str, ...], tmp_path: Path, most: int
) -> None:
    check = by_command(check_script(tmp_path, f"sys.exit(int('{LONG}Gemm' in nodes))"), "{inputs}")
    done = winnow(*given, *check, f"strategy.shrink_checks={most}", folder=tmp_path / "run")
    assert done.result["status"] == "found", done.output
    assert ("shorter names" in done.result["message"]) is (most == 1)
    assert done.result["checks"]["refine"] == 2 * most, "whether values may change, and all at once"


@pytest.mark.slow
def test_a_check_that_is_flaky_with_short_names_keeps_these_alone(given: tuple[str, ...], tmp_path: Path) -> None:
    """What all passes lead to fails once and then no more: the others are not given up for it."""
    seen = tmp_path / "seen"
    body = f"""
import pathlib
again = 't0' in inputs and pathlib.Path({str(seen)!r}).exists()
if 't0' in inputs:
    pathlib.Path({str(seen)!r}).touch()
sys.exit(int('{LONG}Gemm' in nodes and not again))"""
    check = check_script(tmp_path, body)
    done = winnow(*given, *by_command(check, "{inputs}"), "checker.flaky=auto", folder=tmp_path / "run")
    assert done.result["culprits"] == [f"{LONG}Gemm"], done.output
    assert "has fewer attributes and float32 in place of other floats than" in done.result["message"]
    assert done.model().graph.node[0].input[0] == f"{LONG}x"


@pytest.mark.slow
@pytest.mark.parametrize("workers", [2, 4])
def test_more_workers_make_the_same_of_an_answer_in_as_many_checks(
    given: tuple[str, ...], tmp_path: Path, workers: int
) -> None:
    check = check_script(tmp_path, f"sys.exit(int('{LONG}Gemm' in nodes))")
    models, refined = [], []
    for count in (1, workers):
        words = ("workers=parallel", f"workers.count={count}") if count > 1 else ()
        done = winnow(*given, *by_command(check, "{inputs}"), *words, folder=tmp_path / str(count))
        models.append(done.model())
        refined.append(done.result["checks"]["refine"])
    assert models[0] == models[1]
    assert refined == [2, 2]


@pytest.mark.slow
def test_what_is_tried_at_once_is_what_the_passes_make_one_after_the_other(
    given: tuple[str, ...], tmp_path: Path
) -> None:
    """The same model, byte for byte, and the same values of its inputs and outputs."""
    check = check_script(tmp_path, f"sys.exit(int('{LONG}Gemm' in nodes))")
    words = (*given, *by_command(check, "{inputs}"))
    together = winnow(*words, folder=tmp_path / "together")
    alone = tmp_path / "alone"
    patched = (
        "from runner.jobs.reduce.refinements import Shrinking\n"
        "Shrinking._together = lambda self, one: []\n"
        "from runner.__main__ import main\n"
        "main()"
    )
    argv = [sys.executable, "-c", patched, *words, f"hydra.run.dir={alone}"]
    done = subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0 and "all at once (1 node)" not in done.stdout, done.stdout + done.stderr
    paid = [json.loads((folder / "result.json").read_text())["checks"]["refine"] for folder in (together.folder, alone)]
    assert paid == [2, 4], "a control, then one question, or one of each pass"
    for name in ("reduced.onnx", "test_data_set_0/input_0.pb", "test_data_set_0/output_0.pb"):
        assert (together.folder / name).read_bytes() == (alone / name).read_bytes(), name


@pytest.mark.slow
def test_what_lost_its_strides_declares_the_shape_that_it_has(tmp_path: Path) -> None:
    """The file says what each tensor is like, and what is handed over passes the checker and inference as the file."""
    text = """g (float[1,2,6,6] x) => (float[1,2,3,3] y) <float[1,2,3,3] a, float[1,2,3,3] b> {
        [conv] a = Conv<strides = [2, 2], kernel_shape = [1, 1]>(x, k) [abs] b = Abs(a) [relu] y = Relu(b) }"""
    model = parsed(text, k=np.ones((2, 2, 1, 1), np.float32))
    onnx.checker.check_model(model, full_check=True)
    onnx.save(model, tmp_path / "m.onnx")
    for name, condition in (("alone", "'conv' in nodes"), ("followed", "{'conv', 'abs'} <= nodes")):
        check = by_command(check_script(tmp_path, f"sys.exit(int({condition}))"), "{inputs}")
        done = winnow(f"model={tmp_path / 'm.onnx'}", *check, folder=tmp_path / name)
        assert "fewer attributes" in done.result["message"], done.output
        assert not done.model().graph.node[0].attribute
        onnx.checker.check_model(done.model(), full_check=True)
        onnx.shape_inference.infer_shapes(done.model(), check_type=True, strict_mode=True)
