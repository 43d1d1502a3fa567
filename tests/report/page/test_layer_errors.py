"""Errors of layers as a page colors them: NaN and Inf are the worst, whoever makes them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from runner.report.page.tensor_values import layers_of
from runner.report.result_parts import Layers, Precision
from runner.report.summary import Summary


def row(tensor: str, **told: Any) -> dict[str, Any]:
    plain = {"tensor": tensor, "node": tensor, "bad": True, "kind": "", "error": 0.0, "nan": [0, 0], "inf": [0, 0]}
    return {**plain, **told}


def test_what_overflows_on_the_reference_as_well_is_no_error_of_nothing(tmp_path: Path) -> None:
    rows = [
        row("both", inf=[75, 75]),
        row("both_nan", nan=[3, 3], inf=[75, 75]),
        row("target", kind="nan", nan=[12, 0]),
        row("meant", bad=False, error=0.001, inf=[63, 63]),
        row("far", kind="mismatch", error=0.5),
    ]
    (tmp_path / "layerwise.json").write_text(json.dumps({"tensors": rows}))
    summary = Summary(status="found", exit_code=0, strategy="layerwise", layers=Layers(files=("layerwise.json",)))
    layers = layers_of(tmp_path, summary)
    assert [one["error"] for one in layers] == ["inf", "nan", "nan", 0.001, 0.5]


def test_a_precision_search_tells_of_a_node_its_type_and_how_much_of_the_range_it_takes(tmp_path: Path) -> None:
    told = {"op": "Mul", "introduced": 0.1, "why": None, "error_low": 0.5, "error_mixed": None}
    rows = [
        {**told, "node": "up", "raised": True, "range": 2e5, "error_mixed": 1e-4, "not_finite": ["low"]},
        {**told, "node": "on", "raised": False, "range": 3.0, "not_finite": ["mixed"]},
        {**told, "node": "old", "raised": False, "not_finite": [], "why": "not finite"},
    ]
    rows[0]["error_low"] = None
    (tmp_path / "layers.json").write_text(json.dumps(rows))

    def known(low: str) -> list[Any]:
        precision = Precision(layers="layers.json", low=low, high="float32")
        summary = Summary(status="found", exit_code=0, strategy="precision", precision=precision)
        return [one["precision"] for one in layers_of(tmp_path, summary)]

    assert known("float16") == [
        {"held": "float32", "error": 1e-4, "most": 2e5, "limit": 65504.0, "why": ""},
        {"held": "float16", "error": "inf", "most": 3.0, "limit": 65504.0, "why": ""},
        {"held": "float16", "error": None, "most": None, "limit": 65504.0, "why": "not finite"},
    ]
    assert {one["limit"] for one in known("int8")} == {None}, "integers are scaled"
