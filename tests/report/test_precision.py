"""REPORT.md of a mixed-precision model: what it is called, and how it is used."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from runner.jobs.precision.report import plot_curve, plot_layers
from runner.report.result_parts import KnownFailure, Precision
from runner.report.summary import Summary
from runner.report.typed_json import from_json
from tests.report.rendered import report
from tests.report.test_markdown import NASTY, rows


def summary(*names: str, low: str = "float16", status: str = "found", **more: object) -> Summary:
    told = {
        "high": "float32",
        "low": low,
        "selected": [{"node": name, "op": "Mul", "nested": False, "reason": "why"} for name in names],
        "low_share": {"nodes": 0.5, "flops": 0.25, "weights": 1.0},
        "layer_precisions": dict.fromkeys(names, "fp32"),
        "layers": None,
        "plot": None,
        **more,
    }
    return Summary(
        status,
        0 if status == "found" else 4,
        "precision",
        nodes_before=9,
        nodes_after=len(names),
        minimality="1-minimal",
        culprits=names,
        model="mixed.onnx",
        input_model="my models/net.onnx",
        signature=KnownFailure("compare", "mismatch"),
        precision=from_json(Precision, told),
    )


def commands(markdown: str) -> list[list[str]]:
    """Return the lines of shell, split as a shell splits them."""
    blocks = re.findall(r"^(`{3,})sh\n(.*?)\n\1$", markdown, re.DOTALL | re.MULTILINE)
    return [shlex.split(line) for _, block in blocks for line in block.splitlines()]


def test_everything_low_is_no_failure_that_is_missing() -> None:
    said = report(summary(status="nothing_to_find"))
    assert said.startswith("# all nodes can be in float16\n")
    assert "nothing to find" not in said and "| node | op | why |" not in said
    assert commands(said)[1] == ["trtexec", "--onnx=my models/net.onnx", "--fp16"]
    fixed = summary(status="nothing_to_find", stays_high=[{"node": "a", "op": "Mul", "why": "it is"}])
    assert report(fixed).startswith("# all nodes that were searched can be in float16\n")


def test_a_quantized_model_is_built_strongly_typed_only() -> None:
    said = report(summary("a", low="quantized"))
    assert len(commands(said)) == 1 and "weakly typed" not in said
    assert "In quantized form: 50.0% of the nodes" in said


def test_a_model_that_tensorrt_refuses_is_not_handed_to_it() -> None:
    said = report(summary("a", low="quantized", tensorrt_refuses=["MatMulNBits", "uint8"]))
    assert not commands(said) and "onnxruntime.InferenceSession" in said
    assert "TensorRT's parser refuses `MatMulNBits`, `uint8`." in said


def test_a_command_with_many_names_is_opened_to_be_seen() -> None:
    said = report(summary(*(f"n{number}" for number in range(40))))
    _, weak = commands(said)
    assert weak[-2].startswith("--layerPrecisions=n0:fp32,n1:fp32,") and "<summary>1 line</summary>" in said


def test_what_has_no_name_there_is_said() -> None:
    told = summary("a:0", "n1__2", "plain", inlined={"n1__2": "node n1 of function my.F, called by node c"})
    said = report(told)
    assert commands(said)[1][-1] == "--layerOutputTypes=plain:fp32"
    assert "2 of them cannot be named there" in said
    (row,) = [row for row in rows(said) if row[0] == "`n1__2`"]
    assert row[2] == "why (node n1 of function my.F, called by node c)"
    assert len(commands(report(summary("a:0")))) == 1


def test_a_name_is_never_markup_nor_a_word_of_a_shell() -> None:
    for name in NASTY:
        said = report(summary(name, "b", inlined={"b": f"node {name} of function f"}))
        outside = re.sub(r"^(`{3,})\w*\n.*?\n\1$", "", said, flags=re.DOTALL | re.MULTILINE)
        assert "<script>" not in outside
        table = outside.split("## Raised nodes")[1].split("## How to use it")[0]
        assert [len(row) for row in rows(table)] == [3, 3, 3, 3], name
        assert all(command[0] == "trtexec" for command in commands(said)), name


def test_the_plots_tell_infinity_from_a_large_error(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    row = {"error_low": 0.1, "error_mixed": 0.01, "raised": False, "not_finite": []}
    unknown = {**row, "error_low": None, "error_mixed": None}
    plain, infinite = tmp_path / "plain.svg", tmp_path / "infinite.svg"
    assert plot_layers([row, row, unknown], plain, "float16")
    last = {**unknown, "not_finite": ["low"], "raised": True}
    assert plot_layers([row, row, last], infinite, "float16")
    # the legend's texts are comments of the file
    texts = [path.read_text() for path in (plain, infinite)]
    assert ["Inf or NaN, everything in float16" in text for text in texts] == [False, True]
    assert ["<!-- raised -->" in text for text in texts] == [False, True]
    assert "mixed model" in texts[0]
    assert plot_curve([[0, 2e3], [1, 3.0], [4, 0.5]], tmp_path / "curve.svg", "float32")
    assert "<!-- tolerance -->" in (tmp_path / "curve.svg").read_text()


def test_what_is_raised_as_a_whole_is_one_row() -> None:
    names = [f"l0/n{number}" for number in range(5)]
    groups = [
        {"scope": "l0", "nodes": names[:3], "raised": names[:3], "whole": True, "worst": names[1]},
        {"scope": "l1", "nodes": [names[4], "other"], "raised": names[4:], "whole": False, "worst": names[4]},
    ]
    said = rows(report(summary(*names, groups=groups)))
    block = "the block l0 of 3 nodes as a whole; l0/n1: why"
    own = [line for line in said if "l0/" in line[0]]
    assert own == [["`l0/n0 ... l0/n2`", "`block`", block], ["`l0/n3`", "`Mul`", "why"], ["`l0/n4`", "`Mul`", "why"]]
