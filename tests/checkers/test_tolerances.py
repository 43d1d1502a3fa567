"""Tolerances of each output, several metrics, and outputs that show nothing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from onnx import helper

from runner.checkers.compare_outputs import blank
from runner.checkers.tolerances import check_outputs, rules_of
from runner.exit_codes import UsageError
from runner.schema.checker import AutoChecker, CompareChecker, Golden, Metric, NonFinite, Tolerance
from runner.verdict import Candidate, Sample
from strategies.search import Outcome
from tests.checkers.conftest import Here
from tests.checkers.models import model, tensors
from tests.checkers.test_runtime import make

X = np.array([1, 2, 3, 4], np.float32)


@pytest.mark.parametrize(
    ("given", "logits", "others"),
    [
        (0.1, 0.1, 0.1),
        ("1e-1", 0.1, 0.1),
        ({"logits": 1e-1, "": 1e-3}, 0.1, 1e-3),
        ('{logits: 1e-1, "": 1e-3}', 0.1, 1e-3),
        ({"logits": 1e-1}, 0.1, 1e-2),
    ],
)
def test_tolerances(given: Any, logits: float, others: float) -> None:
    rules = rules_of(AutoChecker(rtol=given))
    assert [rules.of_output(name)[0].rtol for name in ("logits", "inner")] == [logits, others]


ODD = [-1, float("nan"), "loose", True, {"y": "much"}, {"y": -1}, "{y: 1", "{y: 2026-02-31}", "{y: " + "[" * 2999, None]


@pytest.mark.parametrize("given", ODD, ids=range(len(ODD)))
def test_what_is_no_tolerance(given: Any) -> None:
    with pytest.raises(UsageError, match=r"checker\.atol=.*at least 0.*checker\.atol='"):
        rules_of(CompareChecker(atol=given))


def test_an_output_that_is_not_there() -> None:
    with pytest.raises(UsageError, match=r"no output 'logit' \(did you mean logits\?\); its outputs are logits, mask"):
        check_outputs(CompareChecker(rtol={"logit": 1e-2, "": 1}), ("logits", "mask"))
    check_outputs(CompareChecker(rtol={"logits": 1e-2, "": 1}), ("logits", "mask"))


@pytest.mark.parametrize("given", ["scaled", ["scale", "cos"], [], None, 3])
def test_what_is_no_metric(given: Any) -> None:
    with pytest.raises(UsageError, match=r"checker\.metric=.*elementwise, scale, fraction, cosine"):
        rules_of(CompareChecker(metric=given))


def test_noise_is_measured_by_one_metric() -> None:
    with pytest.raises(UsageError, match="noise is measured by one metric"):
        rules_of(CompareChecker(metric=["scale", "cosine"], tolerance=Tolerance.auto))


def compared(here: Here, path: Path, expected: dict[str, np.ndarray], *feeds: Any, **settings: Any) -> Any:
    check = make(here, CompareChecker(golden=Golden.ahead, **settings))
    one: Candidate = here.candidate(path, *(feeds or ({"x": X},)), expected=expected)
    return check.check(one)


@pytest.fixture
def two(tmp_path: Path) -> Path:
    nodes = [helper.make_node("Identity", ["x"], [name]) for name in ("y", "z")]
    return model(nodes, tmp_path / "two.onnx", outputs=("y", "z"))


def test_any_of_several_metrics_fails(here: Here, two: Path) -> None:
    turned = {"y": X + np.array([0, 0, 0, 0.2], np.float32), "z": X}
    loose = {"rtol": 0.1, "cosine": 1e-4}
    assert compared(here, two, turned, metric=Metric.scale, **loose).outcome is Outcome.PASS
    verdict = compared(here, two, turned, metric=["scale", "cosine"], **loose)
    assert verdict.outcome is Outcome.FAIL and "cosine" in verdict.reason
    assert (verdict.metrics["metric"], verdict.metrics["outputs"], verdict.metrics["failing"]) == ("cosine", 2, 1)
    longer = {"y": X * np.float32(2), "z": X}
    assert compared(here, two, longer, metric=Metric.cosine, **loose).outcome is Outcome.PASS
    verdict = compared(here, two, longer, metric=["scale", "cosine"], **loose)
    assert verdict.outcome is Outcome.FAIL and verdict.metrics["metric"] == "scale"
    json.dumps(dict(verdict.metrics), allow_nan=False)


def test_nothing_left_to_compare_is_no_answer(here: Here, two: Path) -> None:
    nowhere = np.full(4, np.nan, np.float32)
    verdict = compared(here, two, {"y": nowhere, "z": nowhere}, nan=NonFinite.ignore)
    assert verdict.outcome is Outcome.UNRESOLVED
    assert verdict.reason == "nothing is left to compare of y, z (checker.nan=ignore)"
    verdict = compared(here, two, {"y": nowhere, "z": X}, nan=NonFinite.ignore)
    assert verdict.outcome is Outcome.PASS


@pytest.mark.parametrize(
    ("held", "alike", "different"),
    [
        ([[0, 0, 0]], True, True),
        ([[2, 2, 2]], True, True),
        ([[1, 2, 3]], False, False),
        ([[7]], False, False),
        ([[0]], True, True),
        ([[1, 2], [1, 2]], False, True),
        ([[1, 2], [1, 3]], False, False),
        ([[0, 0], [0, 0]], True, True),
        ([[5, 5], [6, 6]], True, False),
        ([[], []], True, True),
        ([[1, 2], [1, 2, 2]], False, False),
    ],
)
@pytest.mark.parametrize("dtype", [np.float32, np.int64, np.float16, ml_dtypes.bfloat16])
def test_what_shows_nothing(tmp_path: Path, held: list, alike: bool, different: bool, dtype: type) -> None:
    expected = [tensors({"y": np.array(one, dtype)}, tmp_path / str(at)) for at, one in enumerate(held)]
    for differ, wanted in ((False, alike), (True, different)):
        feeds = [np.array([at if differ else 0], np.float32) for at in range(len(held))]
        samples = [Sample(tensors({"x": feed}, tmp_path / f"x{at}{differ}"), {}) for at, feed in enumerate(feeds)]
        assert bool(blank(["y"], expected, samples)) is wanted


def test_texts_that_show_nothing(tmp_path: Path) -> None:
    for other, shown in (("b", True), ("c", False)):
        texts = [tensors({"y": np.array(["a", one], object)}, tmp_path / f"{one}{other}") for one in ("b", other)]
        samples = [Sample(tensors({"x": np.array([at])}, tmp_path / f"x{at}{other}"), {}) for at in range(2)]
        assert bool(blank(["y"], texts, samples)) is shown
