"""Values of tensors: samples of every kind of element, and errors of layers, of which NaN and Inf are the worst."""

from __future__ import annotations

import json
import math
import tracemalloc
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from onnx import TensorProto

from runner.model.values import recorded
from runner.model.values.recorded import TensorFile
from runner.report.page.tensor_values import MOST_TENSORS, compared, layers_of, sample, tensors
from runner.report.result_parts import Layers, Precision
from runner.report.summary import Summary


def stored(array: np.ndarray, path: Path, name: str = "t") -> TensorFile:
    return recorded.write(array, name, path)


def test_what_is_not_finite_is_counted_apart_from_the_range() -> None:
    shown = sample(np.array([[1.0, math.nan], [math.inf, -3.0]], np.float32), TensorProto.FLOAT)
    assert (shown["low"], shown["high"], shown["nan"], shown["inf"], shown["mean"]) == (-3.0, 1.0, 1, 1, -1.0)
    assert shown["first"] == [1.0, "nan", "inf", -3.0] and sum(shown["counts"]) == 2 and shown["shape"] == [2, 2]
    nothing = sample(np.full((3,), math.nan, np.float16), TensorProto.FLOAT16)
    assert nothing["nan"] == 3 and not nothing["counts"] and not nothing["edges"]
    empty = sample(np.zeros((0, 4), np.float32), TensorProto.FLOAT)
    assert empty["first"] == [] and empty["shape"] == [0, 4]
    texts = sample(np.array(["a", "b"], object), TensorProto.STRING)
    assert all(one[key] is None for one in (nothing, empty, texts) for key in ("low", "high", "mean"))


@pytest.mark.parametrize(
    ("array", "first"),
    [
        (np.array([True, False]), [1, 0]),
        (np.array([-(2**62), 2**62]), [-(2**62), 2**62]),
        (np.array([1, 3], ml_dtypes.int4), [1, 3]),
        (np.array([1.5, math.inf], ml_dtypes.bfloat16), [1.5, "inf"]),
        (np.array([1.5, math.nan], ml_dtypes.float8_e4m3fn), [1.5, "nan"]),
        (np.array([1 + 1j]), ["(1+1j)"]),
        (np.array(["<b>", "y" * 100], object), ["<b>", "y" * 64]),
        (np.array([1e308, -1e308]), [1e308, -1e308]),
        (np.array(7.0), [7.0]),
        (np.array([1, 1 + 2.3e-16]), [1.0, 1 + 2.3e-16]),
        (np.array([2**53, 2**53 + 2]), [2**53, 2**53 + 2]),
        (np.array([1e-320, 2e-320]), [1e-320, 2e-320]),
    ],
    ids=lambda value: str(getattr(value, "dtype", "")),
)
def test_each_type_of_element(array: np.ndarray, first: list[object], tmp_path: Path) -> None:
    file = stored(array, tmp_path / "a.pb")
    (shown,), left = tensors("the reduced model", ["t"], {"t": file}, {"t": file})
    assert shown["good"] and shown["good"]["first"] == first and shown["good"] == shown["wrong"] and not left
    assert shown["differing"] == 0 and shown["differences"] == []
    finite = array.size - shown["good"]["nan"] - shown["good"]["inf"]
    assert array.dtype.kind == "O" or sum(shown["good"]["counts"]) == finite


def test_values_near_each_other_have_edges_that_tell_them_apart() -> None:
    shown = sample(np.array([1, 1 + 1e-9, 1 + 2e-9]), TensorProto.DOUBLE)
    assert len(set(shown["edges"])) == 65 and shown["mean"] == pytest.approx(1 + 1e-9, abs=1e-12)


@settings(deadline=None, max_examples=50)
@given(arrays.arrays(st.sampled_from([np.float16, np.float32, np.float64, np.int8]), arrays.array_shapes(max_side=6)))
def test_every_finite_element_is_in_the_histogram_and_within_its_edges(array: np.ndarray) -> None:
    shown = sample(array, TensorProto.FLOAT)
    finite = int(np.isfinite(array).sum())
    assert sum(shown["counts"]) == finite and len(shown["counts"]) <= 64
    assert shown["edges"] == sorted(shown["edges"]) and all(map(math.isfinite, shown["edges"]))
    assert (shown["low"] is None) == (not finite)
    assert shown["low"] is None or shown["high"] is None or float(shown["low"]) <= float(shown["high"])


def test_the_worst_elements_that_differ_are_named_and_two_nans_are_alike(tmp_path: Path) -> None:
    good = np.zeros((4, 20), np.float32)
    good[0, 0] = math.nan
    wrong = good.copy()
    wrong[1:] = 2
    wrong[2, 5] = math.nan
    sides = [stored(one, tmp_path / f"{at}.pb") for at, one in enumerate((good, wrong))]
    (shown,), _ = tensors("", ["t"], {"t": sides[0]}, {"t": sides[1]})
    assert shown["differing"] == 60 and len(shown["differences"]) == 32
    assert shown["differences"][:2] == [
        {"index": [2, 5], "good": 0.0, "wrong": "nan"},
        {"index": [1, 0], "good": 0.0, "wrong": 2.0},
    ]
    other = stored(good.reshape(20, 4), tmp_path / "other.pb")
    assert compared(sides[0], other) == (None, [])
    (shown,), _ = tensors("", ["t"], {"t": sides[0]}, {"t": other})
    assert shown["differing"] is None and not shown["differences"]


def test_a_page_has_so_many_tensors_and_says_how_many_are_left_out(tmp_path: Path) -> None:
    file = stored(np.ones(3, np.float32), tmp_path / "a.pb")
    good = {str(at): file for at in range(MOST_TENSORS + 5)}
    shown, left = tensors("", list(good), good, {})
    assert (len(shown), left) == (MOST_TENSORS, 5)


def test_a_tensor_that_cannot_be_read_costs_no_other(tmp_path: Path) -> None:
    held = stored(np.ones(3, np.float32), tmp_path / "a.pb")
    (tmp_path / "lost.pb").write_bytes(b"no tensor")
    lost = TensorFile("lost", tmp_path / "lost.pb", TensorProto.FLOAT, (3,))
    shown, left = tensors("", ["lost", "t"], {"t": held, "lost": lost}, {})
    assert ([one["name"] for one in shown], left) == (["t"], 1)


def test_a_large_tensor_is_read_in_blocks(tmp_path: Path) -> None:
    path = tmp_path / "large.pb"
    file = stored(np.ones(8 << 20, np.float16), path)
    tracemalloc.start()
    tensors("", ["t"], {"t": file}, {"t": file})
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < 12 << 20, "16 MiB lie in the file, and twice 64 would be needed as numbers"


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
        {"tensor": "apart", "node": "apart", "own": 0.25, "own_bad": True},  # it was only made of good values
        row("empty", bad=False, error=None),
    ]
    (tmp_path / "layerwise.json").write_text(json.dumps({"tensors": rows}))
    summary = Summary(status="found", exit_code=0, strategy="layerwise", layers=Layers(files=("layerwise.json",)))
    layers = layers_of(tmp_path, summary)
    assert [one["error"] for one in layers] == ["inf", "nan", "nan", 0.001, 0.5, None]
    assert [one["own"] for one in layers if one["error"] is None] == [0.25]


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
