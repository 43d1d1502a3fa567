"""`strategy=precision` on models that overflow inside, where outputs do not show it."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import parser

from tests.harness import Run, winnow


def model(body: str, weights: str = "") -> str:
    return f"""<ir_version: 9, opset_import: ["": 18]>
    g (float[2,4] x) => (float[2,4] y) <{weights}> {{ {body} }}"""


BLOCK = """square = Mul(x, x) mean = ReduceMean(square, last) [root] rms = Sqrt(mean) [norm] normal = Div(x, rms)
  [branch] little = Mul(normal, small) [sum] y = Add(x, little)"""
RMS = model(BLOCK, "float small = {0.01}, int64[1] last = {-1}")
"""A branch whose zeros the sum tolerates: less than a thousandth of the largest value."""


def search(folder: Path, text: str, *options: str, x: list[list[float]], code: int | None = 0) -> Run:
    onnx.save(parser.parse_model(text), str(folder / "net.onnx"))
    np.savez(folder / "given.npz", x=np.array(x, np.float32))
    given = ("inputs=files", f"inputs.path={folder / 'given.npz'}", "strategy.layer_errors=false")
    check = () if any(one.startswith("checker=") for one in options) else ("checker=compare", "checker.metric=scale")
    place = folder / f"run{len(list(folder.glob('run*')))}"
    run = winnow("strategy=precision", f"model={folder / 'net.onnx'}", *given, *check, *options, folder=place)
    assert code is None or run.code == code, run.output
    return run


PASSES = "checker=command", f"checker.command={[sys.executable, '-c', 'pass', '{model}']}"
LARGE = [[1, 2, 3, 400], [4, 3, 2, 1]]


@pytest.mark.slow
def test_a_branch_of_zeros_is_a_failure_whatever_the_outputs_say(tmp_path: Path) -> None:
    run = search(tmp_path, RMS, x=LARGE)
    assert set(run.result["culprits"]) == {"square", "mean"}
    assert run.result["precision"]["overflows"] == []
    assert run.result["signature"]["stage"] == "overflow" and run.result["signature"]["kind"] == "inf"
    journal = (run.folder / "journal.jsonl").read_text()
    assert "square becomes Inf in float16 (largest 1.6e+05); after that Div norm makes 0 where" in journal
    # what every search said before
    allowed = search(tmp_path, RMS, "strategy.allow_overflow=true", x=LARGE, code=4)
    (one,) = allowed.result["precision"]["overflows"]
    assert (one["tensor"], one["harm"]["node"], one["largest"]) == ("square", "norm", 160000.0)
    assert any("square becomes Inf in float16" in warning for warning in allowed.result["warnings"])


@pytest.mark.slow
def test_what_is_absorbed_is_named_and_stays(tmp_path: Path) -> None:
    run = search(tmp_path, model("square = Mul(x, x) [end] y = Tanh(square)"), x=LARGE, code=4)
    assert "emulated: each tensor is rounded when it is computed" in run.result["message"]
    (one,) = run.result["precision"]["overflows"]
    assert one["harm"] is None and one["absorbed_by"] == ["end"]
    assert any("absorb that: square (by end)" in warning for warning in run.result["warnings"])


def test_what_cannot_be_followed_is_not_absorbed(tmp_path: Path) -> None:
    text = model("square = Mul(x, x) [where] n = NonZero(square) c = Cast <to = 1> (n) s = ReduceSum(c) y = Mul(x, s)")
    run = search(tmp_path, text, x=LARGE)
    assert "square" in run.result["culprits"]
    said = "square becomes Inf in float16 (largest 1.6e+05), which where reads: whether that does harm is not known"
    assert said in (run.folder / "journal.jsonl").read_text()
    (one,) = search(tmp_path, text, "strategy.allow_overflow=true", x=LARGE, code=4).result["precision"]["overflows"]
    assert one["unknown"] == "where"


@pytest.mark.slow
def test_a_command_is_asked_first_and_then_the_model_is_looked_into(tmp_path: Path) -> None:
    run = search(tmp_path, RMS, *PASSES, x=LARGE)
    assert set(run.result["culprits"]) == {"square", "mean"}


@pytest.mark.slow
def test_verdicts_are_not_shared_with_a_search_that_allows_it(tmp_path: Path) -> None:
    first = search(tmp_path, RMS, "strategy.allow_overflow=true", x=LARGE, code=4)
    again = search(tmp_path, RMS, f"journal.reuse=[{first.folder}]", x=LARGE, code=2)
    assert "check.overflow changed" in again.output, again.output
    search(tmp_path, RMS, x=LARGE)


EPSILON = model(
    """[mean] m = ReduceMean(x, last) d = Sub(x, m) square = Mul(d, d) v = ReduceMean(square, last)
    [guard] more = Add(v, epsilon) root = Sqrt(more) [norm] n = Div(d, root) [gone] none = Mul(x, nothing)
    y = Add(n, none)""",
    "float epsilon = {0.000000000001}, int64[1] last = {-1}, float[4] nothing = {1e-9, 1e-9, 1e-9, 1e-10}",
)


def test_an_epsilon_and_a_weight_that_vanish_are_named(tmp_path: Path) -> None:
    run = search(tmp_path, EPSILON, x=[[1, 2, 3, 4], [4, 3, 2, 1]], code=4)
    told = run.result["precision"]
    assert [(one["constant"], one["node"]) for one in told["flushed_epsilons"]] == [("epsilon", "guard")]
    assert told["zeroed"] == ["nothing"]
    assert any("1e-12 in Add guard" in warning for warning in run.result["warnings"])


@pytest.mark.slow
def test_an_epsilon_that_a_sample_needs_does_not_become_zero(tmp_path: Path) -> None:
    """A row of equal values has no variance: with an epsilon of zero it is 0 / 0."""
    run = search(tmp_path, EPSILON, x=[[1, 2, 3, 4], [5, 5, 5, 5]], code=4)
    (one,) = run.result["precision"]["flushed_epsilons"]
    assert one["becomes"] == 2.0**-24
    stored = {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in run.model("mixed.onnx").graph.initializer}
    assert stored["epsilon__fp16"] == 2.0**-24


@pytest.mark.slow
def test_strict_rounding_fails_a_mean_whose_sum_overflows(tmp_path: Path) -> None:
    text = model("[mean] m = ReduceMean(x, last) y = Add(x, m)", "int64[1] last = {-1}")
    rows = [[20000.0, 20100.0, 20200.0, 20300.0]] * 2
    search(tmp_path, text, x=rows, code=4)
    run = search(tmp_path, text, "target.rounding=strict", x=rows)
    assert run.result["culprits"] == ["mean"]


@pytest.mark.slow
def test_a_model_that_cannot_be_looked_into(tmp_path: Path) -> None:
    """The check's own word counts then, and it is said once."""
    text = RMS.replace('"": 18', '"": 18, "of.mine": 1').replace("y = Add(x, little)", "y = of.mine.Own(little)")
    run = search(tmp_path, text, *PASSES, x=LARGE, code=4)
    assert run.output.count("is not looked at") == 1
    assert run.result["precision"]["overflows"] is None
    assert any("is not looked at" in warning for warning in run.result["warnings"])


def test_a_low_tensor_near_the_end_of_the_range_is_named(tmp_path: Path) -> None:
    run = search(tmp_path, model("square = Mul(x, x) [end] y = Tanh(square)"), x=[[220.0, 230.0, 1.0, 2.0]] * 2, code=4)
    (near,) = [warning for warning in run.result["warnings"] if "near float16's limit" in warning]
    assert near.startswith("square reaches 5.29e+04, ") and "strategy.at_least=['range > 32752']" in near


@pytest.mark.slow
def test_what_is_low_in_the_model_as_it_is_gets_a_word(tmp_path: Path) -> None:
    text = model(
        """h = Cast <to = 10> (x) s = Sigmoid(h) w = Cast <to = 1> (s)
        a = Tanh(w) b = Relu(a) c = Mul(b, b) d = Mul(c, c) y = Mul(d, big)""",
        "float big = {3.0}",
    )
    run = search(tmp_path, text, x=[[0.1, 0.2, 0.3, 0.4]] * 2, code=None)
    assert any("1 node is low in the given model already" in warning for warning in run.result["warnings"]), run.output
