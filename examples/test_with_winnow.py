"""Winnow in a suite for pytest: one test that checks a model, and three that ask about one that fails.

pytest examples/test_with_winnow.py
pytest --winnow ...   (a model that fails in onnx_model_check is reduced, and the report says to what)
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx.reference import ReferenceEvaluator

import winnow_onnx as winnow

MODEL = Path(__file__).parent / "overflow.onnx"
CULPRIT = "/bert/encoder/layer.5/output/dense/MatMul"
NET = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["" : 17]>
net (float[4,8] x) => (float[4,8] y) <float big = {300.0}> {
  scaled = Mul(x, big)
  beyond = Mul(scaled, big)
  back = Div(beyond, big)
  y = Div(back, big)
}""")


def finite(model, inputs, expected):
    for feeds in inputs:
        outputs = ReferenceEvaluator(model).run(None, feeds)
        assert all(np.isfinite(output).all() for output in outputs), "not finite"


def test_model(onnx_model_check):
    onnx_model_check(NET, finite)


def test_reduce(tmp_path):
    found = winnow.reduce(MODEL, finite, strategy="reduce_bisect", folder=tmp_path / "run")
    assert found.culprits == (CULPRIT,)


def test_precision(tmp_path):
    found = winnow.precision(NET, folder=tmp_path / "run").raise_for_status()
    assert found.found
    assert len(found.culprits) < len(NET.graph.node)


def test_triage(tmp_path):
    steps = {"steps": ["reduce"]}
    found = winnow.triage(MODEL, target="onnx_reference", strategy=steps, folder=tmp_path / "run")
    assert found.culprits == (CULPRIT,)
    assert "NaN" in found.message
