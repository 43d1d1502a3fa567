"""The benchmark of layers that must not be quantized, in small."""

from __future__ import annotations

import pytest

pytest.importorskip("onnxruntime.quantization")
from benchmarks.quantized_layers import SPECS, STANDS_OUT, Row, made


def test_the_layer_that_is_planted_is_the_worst_by_the_tool_itself() -> None:
    planted = made(next(spec for spec in SPECS if spec.name == "cnn dynamic int8"))
    (worst, largest), (_, second) = sorted(planted.alone.items(), key=lambda one: -one[1])[:2]
    assert worst == planted.worst and largest >= STANDS_OUT * second
    assert planted.error([]) > planted.rtol > 2 * planted.error([worst])
    # a tool names what it makes of a node after that
    row = Row(planted, {"exit": 0, "culprits": [f"{worst}_quant"], "checks": {"search": 1}}).cells()
    assert row[8:13] == ("yes",) * 5
