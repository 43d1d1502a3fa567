"""Where a reduction begins: at what a message names, or at what is wrong inside the model."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from runner.engine.session_question import AnswerExperiments, Cause
from runner.jobs.reduce.first_look import FirstLook, between
from runner.jobs.reduce.nodes_in_message import named_operators, named_tensors
from runner.judgment import CauseStatus, Experiment
from runner.model.graph.graph_index import Graph
from strategies.search import Outcome, Trial
from tests.harness import Run, by_command, check_script, winnow
from tests.jobs.models import parsed, steps
from tests.jobs.reduce.test_cause import command, pair

if TYPE_CHECKING:
    from runner.jobs.reduce.subgraph import Subgraph

SIZE = 8
ONCE = "checker.flaky=never", "strategy.find=one", "result.find_min_good=false"


def model(*nodes: onnx.NodeProto, before: int = 12, after: int = 12, opset: int = 17) -> onnx.ModelProto:
    """Nodes that make ``z`` of ``y``, with chains of additions before and after them."""

    def chain(first: str, last: str, count: int, kind: str) -> list[onnx.NodeProto]:
        names = [first, *(f"{kind}{at}" for at in range(1, count)), last]
        return [
            helper.make_node("Add", [names[at], "one"], [names[at + 1]], name=f"{kind}/{at}") for at in range(count)
        ]

    every = [*chain("x", "y", before, "before"), *nodes, *chain("z", "out", after, "after")]
    weights = [
        numpy_helper.from_array(np.full((SIZE, SIZE), 0.5, np.float32), "one"),
        numpy_helper.from_array(np.array(1e-5, np.float32), "epsilon"),
        numpy_helper.from_array(np.array(2, np.float32), "two"),
        numpy_helper.from_array(np.linspace(0.5, 1.5, SIZE, dtype=np.float32), "scale"),
    ]
    ends = [[helper.make_tensor_value_info(name, TensorProto.FLOAT, [SIZE, SIZE])] for name in ("x", "out")]
    graph = helper.make_graph(every, "g", *ends, weights)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])
    made.ir_version = 8
    return made


# ONNX Runtime fuses this into a norm over the last axis, whatever keepdims says
NORM = steps("""squared = Pow(y, two) mean = ReduceMean<axes = [-1], keepdims = 0>(squared) safe = Add(mean, epsilon)
    root = Sqrt(safe) normed = Div(y, root) z = Mul(normed, scale)""")


def saved(folder: Path, made: onnx.ModelProto) -> str:
    onnx.save(made, str(folder / "net.onnx"))
    return f"model={folder / 'net.onnx'}"


@pytest.fixture(scope="module")
def fused(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("fused")
    return winnow(saved(folder, model(*NORM)), *ONCE, folder=folder / "run")


def test_a_fused_pattern_is_found_by_one_look_at_the_optimized_model(fused: Run) -> None:
    assert fused.code == 0, fused.output
    assert sorted(fused.result["culprits"]) == sorted(node.name for node in NORM)
    # the look, the pattern alone, and one question for each of its nodes
    assert fused.result["checks"]["search"] == 2 + len(NORM)
    said = fused.result["first_look"]
    assert said == "squared, mean, safe and 3 more (z is clearly wrong with right inputs)"
    assert said in (fused.folder / "REPORT.md").read_text()


def test_a_wrong_shape_is_found_by_one_look_at_all_shapes(tmp_path: Path, rtx_python: str) -> None:
    """The builder rounds up what this pooling rounds down, and all that follows has a wrong shape too."""
    kinds = ["Relu"] * 12 + ["MaxPool<kernel_shape = [1, 1], strides = [2, 2], ceil_mode = 1>"] + ["Sigmoid"] * 11
    nodes = " ".join(f"[make_t{at + 1}] t{at + 1} = {kind}(t{at})" for at, kind in enumerate(kinds))
    made = parsed(f"g (float[1,1,56,56] t0) => (float[a,b,c,d] t24) {{ {nodes} }}")
    made.graph.output[0].type.tensor_type.ClearField("shape")
    builds = "checker=builds", "target=tensorrt", f"target.python={rtx_python}"
    run = winnow(saved(tmp_path, made), *builds, *ONCE, folder=tmp_path / "run")
    assert (run.code, run.result["culprits"]) == (0, ["make_t13"]), run.output
    assert run.result["checks"]["search"] == 2
    assert run.result["first_look"] == "make_t13 (t13 is the first wrong shape)"


@pytest.mark.slow
def test_a_look_that_was_paid_for_is_not_paid_for_again(fused: Run, tmp_path: Path) -> None:
    given = f"model={fused.folder.parent / 'net.onnx'}", f"journal.reuse=[{fused.folder}]"
    again = winnow(*given, *ONCE, folder=tmp_path / "again")
    assert again.result["checks"]["search"] == 0
    assert again.result["first_look"] == fused.result["first_look"]


@pytest.mark.variants
@pytest.mark.parametrize("look", [True, False])
def test_a_process_that_dies_has_named_what_it_was_at(tmp_path: Path, look: bool) -> None:
    dies = "import os; print('x ' * 999, 'before/3', 'x ' * 4500, 'running culprit_7', flush=True); os.abort()"
    check = check_script(tmp_path, f"if 'culprit' in nodes:\n    {dies}")
    given = saved(tmp_path, model(helper.make_node("Relu", ["y"], ["z"], name="culprit")))
    run = winnow(given, *by_command(check), *ONCE[1:], f"strategy.look_inside={look}", folder=tmp_path / "run")
    assert run.result["culprits"] == ["culprit"]
    assert (run.result["checks"]["search"] == 1) is look
    assert run.result["first_look"] == ("culprit (named by the error message)" if look else "")


@pytest.mark.parametrize(
    ("text", "tensors"),
    [
        ("Invalid Node - mean", ["mean"]),
        ("while running ReduceMean node. Name:'mean' Status Message: bad", ["mean"]),
        ("ITopKLayer mean: mean: K exceeds the maximum value allowed (3840)", ["mean"]),
        ("Assertion failed. normed_68 has no runners that implement it", ["normed"]),
        ("IConditionalOutputLayer root_OutputLayer: must have equal ranks", ["root"]),
        ("a name which does not exist:InsertedPrecisionFreeCast_before/3", ["before4"]),
        ("Node input 'squared' is not a graph input", ["squared"]),
        ("{ForeignNode[squared...normed]} could not be built", ["squared", "normed"]),
        ("no such name, and out is the model's own output", []),
    ],
)
def test_a_text_names_nodes_by_what_they_make(text: str, tensors: list[str]) -> None:
    assert list(named_tensors(Graph.of(model(*NORM)), text)) == tensors


def test_a_number_is_a_name_in_quotation_marks_alone() -> None:
    graph = Graph.of(model(helper.make_node("Relu", ["y"], ["3"], name="relu"), helper.make_node("Neg", ["3"], ["z"])))
    assert named_tensors(graph, "expected 3 dimensions") == ()
    assert named_tensors(graph, "Node input '3' is missing") == ("3",)


def test_a_node_inside_stands_for_its_owner() -> None:
    body = "body () => (float[8] deep) { [inner] deep = Exp(y) }"
    (choose,) = steps(f"z = If(flag) <then_branch = {body}, else_branch = {body}>")
    assert named_tensors(Graph.of(model(choose)), "Unsupported Node - inner") == ("z",)


def test_a_text_names_an_operator_of_which_there_are_few() -> None:
    graph = Graph.of(model(*NORM))
    assert named_operators(graph, "Sqrt operation was not supported by a dedicated kernel") == (15,)
    assert named_operators(graph, "Add was not supported") == ()


def test_the_nodes_between_tensors() -> None:
    graph = Graph.of(model(*NORM))
    assert between(graph, "z", {"y"}) == tuple(range(12, 18))
    assert between(graph, "root", {"squared", "z"}) == (13, 14, 15)
    # too many say nothing
    assert between(Graph.of(model(*NORM, before=80)), "z", ()) == ()


@pytest.mark.slow
def test_of_a_wrong_part_both_ends_are_named() -> None:
    """What its last node gives is wrong, though that node need not be: the part may be one kernel of the runtime."""
    graph = Graph.of(model(helper.make_node("Abs", ["y"], ["z"], name="abs"), before=4, after=1))
    cause = Cause(CauseStatus.PROVEN, Experiment(Outcome.FAIL), (AnswerExperiments(Trial.of([4])),), (0,))
    look = FirstLook(wrong=((3,), (0, 1, 2), (4,)))
    (said,) = look.above(cause, cast("Subgraph", SimpleNamespace(graph=graph)))
    assert said.startswith("before/0 to before/2, before/3: their outputs are wrong too, with right inputs")


@pytest.mark.slow
def test_what_a_reference_model_shows_to_be_wrong_is_asked_about_first(tmp_path: Path) -> None:
    """Recording the model has shown it already: a check of the user's, which may take long, need not search for it."""
    steps = [*((kind, f"t{at}", f"t{at + 1}") for at, kind in enumerate(["Neg", "Softsign"] * 10))]
    steps = [("Identity", "x", "t0"), *steps, ("Mul", "t20", "m", 1.0), ("Abs", "m", "a"), ("Neg", "a", "z")]
    given = pair(tmp_path, steps, ["z"], {"m": 1.1})
    run = winnow(*given, *command(tmp_path), folder=tmp_path / "run")
    assert (run.code, run.result["culprits"], run.result["checks"]["search"]) == (0, ["m"], 1), run.output
    assert run.result["first_look"] == "m (the original computes something else from the same values)"


def test_an_operator_that_tensorrt_does_not_know_is_asked_about_first(tmp_path: Path, rtx_python: str) -> None:
    """The parser says "false" of each of them, which tells neither the node nor one failure from another."""
    kinds = ["Relu"] * 9 + ["Bernoulli"] + ["Sigmoid"] * 9 + ["Multinomial"]
    nodes = " ".join(f"[n{at}] t{at + 1} = {kind}(t{at})" for at, kind in enumerate(kinds))
    made = parsed(f"g (float[2,3] t0) => (int32[2,1] t20) {{ {nodes} }}")
    builds = "checker=builds", "target=tensorrt", f"target.python={rtx_python}"
    run = winnow(saved(tmp_path, made), *builds, "checker.flaky=never", folder=tmp_path / "run")
    assert (run.code, run.result["culprits"], run.result["checks"]["search"]) == (8, ["n9"], 1), run.output
    assert run.result["first_look"] == "n9 (named by the error message)"
    # what is left without it fails in another way
    healed = run.result["cause"]["answers"][0]["good_outputs"]
    assert healed["outcome"] == "different"
    assert "Multinomial 'n19': the parser does not support it" in healed["reason"]
