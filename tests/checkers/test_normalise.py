from __future__ import annotations

import pytest

from runner.checkers.normalise import LONGEST, last_line, normalise


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
    ],
)
def test_what_changes_between_candidates_goes(one: str, other: str) -> None:
    assert normalise(one) == normalise(other) != ""


def test_what_tells_failures_apart_stays() -> None:
    assert normalise("TypeError: no kernel for Add") != normalise("TypeError: no kernel for Mul")
    assert "can't open file" in normalise("can't open file 'x.py': it isn't there")


def test_the_last_line_that_says_something() -> None:
    assert last_line("first\nValueError: bad\n    ^^^^^\n\n---\n") == "ValueError: bad"
    assert last_line("") == normalise("\n \n") == ""
    assert len(normalise("word " * 500)) <= LONGEST


def test_long_hostile_lines_do_not_take_long() -> None:
    normalise("/" * 100_000)
    normalise("a/" * 50_000 + "'" * 1000)
