"""What a report says of tensors and outputs; names and numbers may come from anywhere."""

from __future__ import annotations

from typing import Any

from runner.report.diagnosis_sections import layers_section, outputs_section
from runner.report.markup import sections_text
from runner.report.result_parts import Layers
from runner.report.typed_json import from_json

ROW: dict[str, Any] = {
    "tensor": "logits",
    "output": True,
    "type": 1,
    "shape": [2],
    "bad": True,
    "kind": "nan",
    "of_limit": 50.0,
    "error": 0.5,
    "limit": 0.01,
    "max": 2.0,
    "sqnr": None,
    "nan": [3, 0],
    "inf": [0, 0],
    "range": [None, [-1.0, 1.0]],
    "top1": 0.75,
}


def test_where_nothing_was_compared_no_error_is_told() -> None:
    row = {**ROW, "bad": False, "kind": "", "error": 0.0, "compared": False, "shape": [0]}
    assert "| `logits` | nothing compared |  |" in sections_text(outputs_section([row]))


def test_layers_say_what_is_wrong_first() -> None:
    found = {"tensor": "a|b", "node": "n`1", "kind": "nan", "error": 0.0, "own": None}
    layers = {"tensors": 3, "runs": 2, "first_bad": found, "largest_own": {**found, "kind": "mismatch", "own": 0.25}}
    rest = {"marking": "hides", "suspects": ["n"], "outputs": [ROW], "worst": [{**ROW, "own": 0.1}], "files": ["f.csv"]}
    text = sections_text(layers_section(from_json(Layers, {**layers, **rest})))
    assert "First wrong tensor: a&#124;b of n&#96;1, NaN." in text and "0.25 of its largest value" in text
    assert "makes the failure go away" in text and "| with right inputs |" in text and layers_section(None) == []


def test_what_is_not_finite_has_no_error_and_parts_of_many_nodes_are_named_by_their_end() -> None:
    (row,) = [line for line in sections_text(outputs_section([ROW])).splitlines() if line.startswith("| `logits`")]
    assert row.startswith("| `logits` | NaN |  |  |")
    found = {"tensor": "t", "node": "n", "nodes": [], "kind": "mismatch", "error": 0.5, "own": 0.5}
    layers = {"tensors": 1, "runs": 1, "first_bad": found, "largest_own": found, "marking": "breaks", "suspects": []}
    layers |= {"outputs": [], "worst": [], "files": ["f.csv"], "unanswered": ["u"], "own_unknown": "it crashed"}
    text = sections_text(layers_section(from_json(Layers, layers), failing=False))
    assert "1 tensor compared in 1 run;" in text and "the part that ends in `t`" in text and "itself passes" in text
    assert "The model passes, and fails once" in text and "no answer: `u`" in text and "not known: it crashed" in text
