from __future__ import annotations

import pytest

from runner.checkers.failure_text import last_line, normalize
from runner.schema.checker import SameFailure
from runner.verdict import LONGEST, Signature, same_failure


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (
            "Non-zero status code returned while running Add node. Name:'/m/Add_3' Status Message: axis 7",
            "Non-zero status code returned while running Add node. Name:'/q/Add_12' Status Message: axis 11",
        ),
        ("Load model from /tmp/a/model.onnx failed", "Load model from /home/u/b/c_3.onnx failed"),
        ("Type Error: Node (Conv_3) has input size 2", "Type Error: Node (Gemm_17) has input size 4"),
        ("shape mismatch {1,3,224} and {1,3,7}", "shape mismatch {1,3,12} and {1,3,9}"),
        ("at 0x7ffde3a0 in thread 12", "at 0xdeadbeef in thread 3"),
        ("error 1.5e-03 > 1e-5", "error 7.25e+01 > 2e-3"),
        ("/ort/core/graph.cc:1234 Resolve() failed", "/ort/core/graph.cc:99 Resolve() failed"),
        ("\x1b[31mbad thing 1\x1b[0m", "bad thing 2"),
        ("cannot build t12 and t3", "cannot build t7 and Conv_12"),
        ("missing: ['t1', 't2']", "missing: ['logits']"),
        ("1 element differs", "12 elements differs"),
        ("at [1 0 3] of x", "at [7 2] of x"),
        ("cannot load model_12.onnx", "cannot load reduced.onnx"),
        (" DESIRED: array([[0.1, -2],\n       [3.5, nan]])", " DESIRED: array([0.25, 1])"),
        (
            "Type parameter (T) of Optype (Add) bound to tensor(float) and tensor(int64) in node (a_1).",
            "Type parameter (T) of Optype (Add) bound to tensor(float) and tensor(int64) in node (bee).",
        ),
        (
            "Node (mm_3) Op (MatMul) [ShapeInferenceError] Incompatible",
            "Node (fc) Op (MatMul) [ShapeInferenceError] Incompatible",
        ),
    ],
)
def test_what_changes_between_candidates_goes(one: str, other: str) -> None:
    assert normalize(one) == normalize(other) != ""


def test_what_tells_failures_apart_stays() -> None:
    assert normalize("TypeError: no kernel for Add") != normalize("TypeError: no kernel for Mul")
    assert normalize("no kernel for fp16") != normalize("no kernel for i64") != normalize("no kernel for int64")
    assert "can't open file" in normalize("can't open file 'x.py': it isn't there")


# messages of ONNX Runtime as they came, of the whole model and of a cut one
RUNNING = "[ONNXRuntimeError] : 1 : FAIL : Non-zero status code returned while running"
SQUEEZE = (
    f"{RUNNING} Squeeze node. Name:'{{}}' Status Message: /onnxruntime_src/onnxruntime/core/providers/cpu/squeeze.h"
    ":53 static onnxruntime::TensorShapeVector onnxruntime::SqueezeBase::ComputeOutputShape() input_shape[i] == 1 was "
    "false. Dimension of input 0 must be 1 instead of {}"
)


@pytest.mark.parametrize(
    ("whole", "cut"),
    [
        ("logits: max diff 0.39 of 12 elements", "t12: max diff 0.05 of 3 elements"),
        ("pooled output, logits differ by 0.39", "t12 differ by 0.39"),
        (SQUEEZE.format("squeeze_3", "2. shape={2,3}"), SQUEEZE.format("/m/s", "4. shape={4,3,3}")),
        # cut off where the names in front left room for it
        (f"logits: {'word ' * 40}", f"t12: {'word ' * 40}"),
    ],
)
def test_names_of_the_model_are_no_part_of_a_message(whole: str, cut: str) -> None:
    one, other = (Signature("check", "exit 1", normalize(text)) for text in (whole, cut))
    names = {"logits", "t12", "pooled", "output"}
    assert same_failure(one, other, SameFailure.strict, names)
    changed = whole.replace("diff", "ratio").replace("Squeeze node", "Add node").replace("word", "work")
    third = Signature("check", "exit 1", normalize(changed))
    assert not same_failure(one, third, SameFailure.strict, names)


def test_the_last_line_that_says_something() -> None:
    assert last_line("first\nValueError: bad\n    ^^^^^\n\n---\n") == "ValueError: bad"
    assert last_line("AssertionError: off\n       [nan, 12.25]])\n") == "AssertionError: off"
    logged = "2026-11-29 08:05:10.8 [{}:onnxruntime:, graph.cc:5809 Clean] Removing initializer 'a2'.\n"
    assert last_line(logged.format("W")) == "" and last_line("off by 3\n" + logged.format("W")) == "off by 3"
    assert last_line("off by 3\n" + logged.format("E")).endswith("Removing initializer 'a2'.")
    assert last_line("0.125\n") == "0.125"
    assert last_line("") == normalize("\n \n") == ""
    assert len(normalize("word " * 500)) <= LONGEST


def test_one_error_of_a_runtime_under_another_class() -> None:
    """What is FAIL in one release of ONNX Runtime is RUNTIME_EXCEPTION in another, with the same words."""
    old = Signature("load", "error RUNTIME_EXCEPTION", "Exception during initialization: GetIndexFromName")
    new = Signature("load", "error FAIL", "Exception during initialization: GetIndexFromName")
    assert same_failure(old, new) and not same_failure(old, new, SameFailure.strict)
    assert not same_failure(old, Signature("load", "error FAIL", "Unsupported model IR version"))
    assert not same_failure(old, Signature("infer", "error FAIL", old.detail))
    assert not same_failure(Signature("load", "error A"), Signature("load", "error B"))  # no words to compare
    assert not same_failure(Signature("check", "exit 1", "x"), Signature("check", "exit 2", "x"))
