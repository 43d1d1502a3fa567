"""Recorded values of any kind against each other."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from onnx import OptionalProto, TensorProto, numpy_helper

from runner.checkers.compare_outputs import non_finite
from runner.checkers.metrics import compare_recorded, has_inf
from runner.model.values import recorded
from runner.model.values.recorded import TensorFile
from runner.schema.checker import CompareChecker, Metric, Tolerance

F = ("tensor", int(TensorProto.FLOAT))
RULE = CompareChecker(metric=Metric.elementwise, rtol=1e-3, atol=0.0)


class Files:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._count = 0

    def _path(self) -> Path:
        self._count += 1
        return self._folder / f"{self._count}.pb"

    def tensor(self, *content: float) -> TensorFile:
        return recorded.write(np.array(content, np.float32), "x", self._path())

    def sequence(self, *items: list[float]) -> TensorFile:
        proto = numpy_helper.from_list([np.array(item, np.float32) for item in items], dtype=1)
        return recorded.write_container(proto, ("sequence", F), "s", self._path())

    def optional(self, *content: float) -> TensorFile:
        proto = OptionalProto(elem_type=OptionalProto.TENSOR)
        if content:
            proto.tensor_value.CopyFrom(numpy_helper.from_array(np.array(content, np.float32)))
        return recorded.write_container(proto, ("optional", F), "o", self._path())

    def map(self, **content: float) -> TensorFile:
        proto = numpy_helper.from_dict({ord(key): np.float32(value) for key, value in content.items()})
        return recorded.write_container(proto, ("map", int(TensorProto.INT64), F), "m", self._path())


@pytest.fixture
def make(tmp_path: Path) -> Files:
    return Files(tmp_path)


def test_element_by_element(make: Files) -> None:
    wanted = make.sequence([1, 2], [3])
    assert not compare_recorded(make.sequence([1, 2], [3]), wanted, RULE).fails()
    assert not compare_recorded(make.sequence([1, 2.001], [3]), wanted, RULE).fails()
    worst = compare_recorded(make.sequence([1, 2.01], [4]), wanted, RULE)
    assert worst.fails() and worst.max_abs == 1
    assert compare_recorded(make.sequence([1, 2], [np.nan]), wanted, RULE).kind == "nan"
    assert compare_recorded(make.sequence([1, 2], [np.nan]), wanted, RULE).detail.startswith("[1]: ")
    assert not compare_recorded(make.sequence(), make.sequence(), RULE).fails()


@pytest.mark.parametrize("swap", [False, True])
def test_what_cannot_be_laid_side_by_side_differs_in_shape(make: Files, swap: bool) -> None:
    pairs = [
        (make.sequence([1]), make.sequence([1], [2])),
        (make.sequence([1]), make.sequence([1, 2])),
        (make.sequence([1]), make.tensor(1)),
        (make.sequence([1]), make.optional(1)),
        (make.optional(), make.optional(1)),
        (make.map(a=1), make.map(a=1, b=2)),
        (make.map(a=1), make.map(b=1)),
    ]
    for first, second in pairs:
        found = compare_recorded(second, first, RULE) if swap else compare_recorded(first, second, RULE)
        assert found.kind == "shape" and found.detail


def test_optionals_and_maps(make: Files) -> None:
    assert not compare_recorded(make.optional(), make.optional(), RULE).fails()
    assert compare_recorded(make.optional(1), make.optional(2), RULE).fails()
    # the keys say which values belong together
    assert not compare_recorded(make.map(a=1, b=2), make.map(b=2, a=1), RULE).fails()
    assert compare_recorded(make.map(a=1, b=3), make.map(b=2, a=1), RULE).fails()


def test_the_noise_of_a_type_is_that_of_its_elements(make: Files) -> None:
    assert compare_recorded(make.sequence([1]), make.sequence([1]), replace(RULE, tolerance=Tolerance.auto)).floor > 0


def test_infinities_inside(make: Files) -> None:
    assert has_inf(make.sequence([1], [np.inf])) and not has_inf(make.sequence([1], [np.nan]))
    assert not has_inf(make.optional())
    found = {"s": make.sequence([1], [np.inf]), "o": make.optional(np.nan), "m": make.map(a=1)}
    assert list(non_finite(found, nan=True, inf=True)) == [("s", "inf"), ("o", "nan")]
