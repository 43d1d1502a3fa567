"""Errors of layers as a page colors them: NaN and Inf are the worst, whoever makes them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from runner.report.page.collect.layer_errors import layers_of
from runner.report.summary import Summary


def row(tensor: str, **told: Any) -> dict[str, Any]:
    return {
        "tensor": tensor,
        "node": tensor,
        "bad": True,
        "kind": "",
        "error": 0.0,
        "nan": [0, 0],
        "inf": [0, 0],
    } | told


def test_what_overflows_on_the_reference_as_well_is_no_error_of_nothing(tmp_path: Path) -> None:
    rows = [
        row("both", inf=[75, 75]),
        row("both_nan", nan=[3, 3], inf=[75, 75]),
        row("target", kind="nan", nan=[12, 0]),
        row("meant", bad=False, error=0.001, inf=[63, 63]),
        row("far", kind="mismatch", error=0.5),
    ]
    (tmp_path / "layerwise.json").write_text(json.dumps({"tensors": rows}))
    summary = Summary(status="found", exit_code=0, strategy="layerwise", layers={"files": ["layerwise.json"]})
    layers, left = layers_of(tmp_path, summary)
    assert [one["error"] for one in layers] == ["inf", "nan", "nan", 0.001, 0.5] and not left
