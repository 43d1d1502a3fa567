"""Metrics people judge a model by: what each measures, and what a user meets who asks for one."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import yaml
from onnx import TensorProto, helper

from runner import api
from runner.checkers import task_metrics
from runner.checkers.compare_outputs import MIXED_UP
from runner.checkers.task_metrics import TASKS
from runner.exit_codes import UsageError
from runner.schema.checker import CompareChecker, Metric
from tests.harness import Run, winnow

RNG = np.random.default_rng(5)
LOGITS = RNG.standard_normal((40, 10)).astype(np.float32)
LABELS = LOGITS.argmax(1)


def measured(metric: str, mine: np.ndarray, right: np.ndarray) -> float:
    return TASKS[Metric(metric)].measure([(mine, right)])


def test_shares_of_labels_are_counted_over_all_samples() -> None:
    wrong = LABELS.copy()
    wrong[:4] = (wrong[:4] + 1) % 10
    assert measured("accuracy", LOGITS, wrong) == 0.9
    wrong[:4] = -100  # of no class
    assert measured("accuracy", LOGITS, wrong) == 1.0
    pairs = [(LOGITS[:10], LABELS[:10]), (LOGITS[10:], (LABELS[10:] + 1) % 10)]
    assert task_metrics.accuracy(pairs) == 0.25
    maps = RNG.integers(0, 3, (2, 4, 4))
    by_channel = np.moveaxis(np.eye(3, dtype=np.float32)[maps], -1, 1)
    assert measured("miou", by_channel, maps) == measured("miou", maps, maps) == 1.0
    half = np.array([[0, 0, 1, 1]])
    assert measured("miou", np.array([[0, 1, 1, 1]]), half) == pytest.approx((1 / 2 + 2 / 3) / 2)
    with pytest.raises(UsageError, match="do not fit"):
        measured("accuracy", LOGITS, LABELS[:7])


def test_distances_of_logits_are_those_of_their_definitions() -> None:
    p = np.exp(LOGITS.astype(np.float64)) / np.exp(LOGITS.astype(np.float64)).sum(1, keepdims=True)
    moved = LOGITS + np.linspace(0, 0.5, 10, dtype=np.float32)
    q = np.exp(moved.astype(np.float64)) / np.exp(moved.astype(np.float64)).sum(1, keepdims=True)
    assert measured("kl", moved, LOGITS) == pytest.approx((p * np.log(p / q)).sum(1).mean())
    assert measured("kl", LOGITS + 1000, LOGITS) < 1e-6
    assert measured("perplexity", moved, LABELS) == pytest.approx(
        np.exp(-np.log(q[np.arange(40), LABELS]).mean())
    )  # fmt: skip
    assert measured("sqnr", LOGITS * np.float32(1.01), LOGITS) == pytest.approx(40, abs=0.01)
    assert measured("sqnr", LOGITS, LOGITS) == np.inf
    with np.errstate(all="ignore"):
        assert measured("sqnr", np.where(LOGITS > 0, np.inf, LOGITS), LOGITS) == -np.inf
        assert measured("sqnr", LOGITS, np.zeros_like(LOGITS)) == -np.inf
        assert np.isnan(measured("kl", np.full_like(LOGITS, np.nan), LOGITS))
        masked = np.where(np.arange(10) < 3, -np.inf, LOGITS)
        assert measured("kl", masked, masked) == 0 and measured("kl", masked, LOGITS) == np.inf
        assert np.isnan(measured("perplexity", np.full_like(LOGITS, np.nan), LABELS))
        assert measured("accuracy", np.full_like(LOGITS, np.nan), LABELS) == 0
        assert measured("top1", np.full_like(LOGITS, np.nan), LOGITS) == 0
    flipped = LOGITS.copy()
    flipped[:10] *= -1
    assert measured("top1", flipped, LOGITS) == 0.75 and measured("top5", flipped, LOGITS) == 0.75


def box(at: float, score: float, kind: int) -> list[float]:
    return [at, 0, at + 10, 10, score, kind]


def detections(*rows: list[float]) -> task_metrics.Detected:
    (one,) = task_metrics.images({"found": np.array([*rows, [0] * 6])}, ["found"])  # with a row of padding
    return one


def test_detections_are_sets() -> None:
    right = detections(box(0, 0.9, 1), box(50, 0.8, 2))
    assert task_metrics.matched([(detections(box(51, 0.7, 2), box(0, 0.6, 1)), right)], 0.5) == 1.0
    assert task_metrics.matched([(detections(box(0, 0.7, 2)), right)], 0.5) == 0.0  # another class
    twice = detections(box(0, 0.9, 1), box(1, 0.8, 1))
    assert task_metrics.matched([(twice, right)], 0.5) == 0.5  # one of them has no partner
    assert task_metrics.mean_precision([(right, right)], 0.5) == 1.0
    assert task_metrics.matched([(right, right)], 1.0) == 1.0  # the bound itself is enough
    # a false alarm that is surer than the hit: precision is 1/2 there
    alarmed = detections(box(200, 0.95, 1), box(0, 0.9, 1), box(50, 0.8, 2))
    assert task_metrics.mean_precision([(alarmed, right)], 0.5) == pytest.approx((0.5 + 1) / 2)
    parts = {"boxes": np.array([[box(0, 1, 1)[:4]]]), "scores": np.array([[0.9]]), "classes": np.array([[3]])}
    ((corners, scores, classes),) = task_metrics.images(parts, [*parts])
    assert corners.tolist() == [[0, 0, 10, 10]] and (scores.item(), classes.item()) == (0.9, 3)


def test_each_metric_says_which_way_is_better() -> None:
    for metric, task in TASKS.items():
        good, bad = (0.5, 0.1) if task.larger else (0.1, 0.5)
        rule = CompareChecker(bounds={metric.value: 0.3})
        assert not task.difference("y", metric, good, None, rule).fails()
        failed = task.difference("y", metric, bad, None, rule)
        assert failed.fails() and f"{'least' if task.larger else 'most'} allowed: 0.3" in failed.detail
        assert task.difference("y", metric, float("nan"), None, rule).kind == "nan"
        if task.labels:  # what the reference gets wrong is no error
            own, worse = (
                task.difference("y", metric, 0.5 * part, 0.5, CompareChecker())
                for part in (1, 0.99 if task.larger else 1.005)
            )
            assert own.rank()[1] == 0 and worse.rank()[1] == pytest.approx(0.5)


def model(folder: Path) -> list[str]:
    """Logits in float16 whose largest values are clear, and the classes as integers; 40 rows."""
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["logits"], name="head"),
        helper.make_node("ArgMax", ["logits"], ["classes"], name="classes", axis=1, keepdims=0),
    ]
    value, f = helper.make_tensor_value_info, TensorProto.FLOAT
    outputs = [value("logits", f, [40, 10]), value("classes", TensorProto.INT64, [40])]
    weight = onnx.numpy_helper.from_array(np.eye(10, dtype=np.float32), "w")
    graph = helper.make_graph(nodes, "net", [value("x", f, [40, 10])], outputs, [weight])
    net = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(net, str(folder / "original.onnx"))
    worse = np.eye(10, dtype=np.float32)
    worse[:, 0] += 0.3  # rows drift to class 0
    net.graph.initializer[0].CopyFrom(onnx.numpy_helper.from_array(worse, "w"))
    onnx.save(net, str(folder / "net.onnx"))
    np.savez(folder / "x.npz", x=LOGITS)
    np.savez(folder / "labels.npz", logits=LABELS)
    given = [f"model={folder / 'net.onnx'}", f"reference.model={folder / 'original.onnx'}", "inputs=files"]
    return [*given, f"inputs.path={folder / 'x.npz'}", "checker=compare"]


def asked(folder: Path, *words: str) -> Run:
    return winnow("strategy=repeat", "strategy.until=1", *model(folder), *words, folder=folder / "run")


@pytest.mark.variants
@pytest.mark.parametrize(
    ("words", "passes", "said"),
    [
        (["metric=accuracy", "labels={labels}"], False, "; the reference: 1)"),
        (["metric=accuracy", "labels={labels}", "bounds={{accuracy: 0.1}}"], True, ""),
        (["metric=top1"], False, "logits: top1 "),
        (["metric=sqnr", "bounds={{sqnr: 1}}", "ignore=[classes]"], True, ""),
        (["metric=scale", "rtol=2", "unequal=0.9"], True, ""),
        (["metric=scale", "rtol=2", "unequal=0.01"], False, "elements differ"),
    ],
)
def test_a_model_is_judged_by_what_was_asked_for(tmp_path: Path, words: list[str], passes: bool, said: str) -> None:
    run = asked(tmp_path, *(f"checker.{one.format(labels=tmp_path / 'labels.npz')}" for one in words))
    lines = map(json.loads, (run.folder / "journal.jsonl").read_text().splitlines())
    (verdict,) = (line["verdict"] for line in lines if "verdict" in line)
    assert (verdict["outcome"] == "pass") == passes and said in verdict["reason"], verdict


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["ignore=[clases]"], "checker.ignore: the model has no output 'clases'; its outputs are logits, classes"),
        (["boxes=[box]", "metric=detections"], "checker.boxes: the model has no output 'box'"),
        (["metric=accuracy"], "checker.labels=: checker.metric=accuracy needs it"),
        (["bounds={{sqnr: 3}}"], "checker.bounds: sqnr: no such metric was chosen"),
        (["metric=kl", "tolerance=auto"], "noise is measured by one metric, of values"),
        (["metric=accuracy", "labels={nothing}"], "checker.labels="),
    ],
)
def test_what_cannot_be_asked_is_a_usage_error(tmp_path: Path, words: list[str], said: str) -> None:
    model(tmp_path)
    typed = (one.format(nothing=tmp_path / "x.txt").partition("=") for one in words)
    checker = {"name": "compare", **{key: yaml.safe_load(text) for key, _, text in typed}}
    given: Any = {"inputs": tmp_path / "x.npz", "reference": {"model": tmp_path / "original.onnx"}, "checker": checker}
    with pytest.raises(UsageError, match=re.escape(said)):
        api.repeat(tmp_path / "net.onnx", strategy={"until": 1}, folder=tmp_path / "run", **given)


def test_an_output_of_integers_that_decides_alone_is_named(tmp_path: Path) -> None:
    run = winnow(*model(tmp_path), "checker.rtol=2", folder=tmp_path / "run")
    assert any(one.startswith("only 'classes' is wrong; the 1 other output passed") for one in run.result["warnings"])
    without = winnow(*model(tmp_path), "checker.rtol=2", "checker.ignore=[classes]", folder=tmp_path / "without")
    assert without.code == 4, without.output


@pytest.mark.parametrize("mixed", [False, True])
def test_labels_in_another_order_than_the_inputs_are_asked_about(tmp_path: Path, mixed: bool) -> None:
    given = model(tmp_path)
    np.savez(tmp_path / "labels.npz", logits=np.roll(np.sort(LABELS), 20) if mixed else LABELS)
    asked = ["checker.metric=accuracy", f"checker.labels={tmp_path / 'labels.npz'}"]
    run = winnow("strategy=repeat", "strategy.until=1", *given, *asked, folder=tmp_path / "run")
    assert (MIXED_UP in run.result["warnings"]) is mixed, run.output


def test_each_of_many_samples_has_labels_of_its_own(tmp_path: Path) -> None:
    """Searched and held out: rows of one file, 8 samples of 5 rows; the right labels of others would be wrong."""
    given = [one for one in model(tmp_path) if not one.startswith(("model=", "reference.model="))]
    net = onnx.load(str(tmp_path / "original.onnx"))
    for value in (*net.graph.input, *net.graph.output):
        value.type.tensor_type.shape.dim[0].dim_value = 5
    net.graph.initializer[0].CopyFrom(onnx.numpy_helper.from_array(np.eye(10, dtype=np.float32) * 1e5, "w"))
    onnx.save(net, str(tmp_path / "fp32.onnx"))
    labels = np.where(np.arange(40) % 5 == 0, (LABELS + 1) % 10, LABELS)  # of each sample the first is another
    np.savez(tmp_path / "labels.npz", logits=labels)
    asked = ["checker.metric=accuracy", f"checker.labels={tmp_path / 'labels.npz'}", "inputs.split=8"]
    run = winnow("strategy=precision", f"model={tmp_path / 'fp32.onnx'}", *given, *asked, folder=tmp_path / "run")
    assert run.code == 0 and run.result["precision"]["samples"]["held_out"] > 0, run.output
    lines = map(json.loads, (run.folder / "journal.jsonl").read_text().splitlines())
    said = [line["verdict"]["metrics"] for line in lines if "verdict" in line]
    assert {one["value"] for one in said if one["failing"] == 0} == {0.8}
    assert run.result["culprits"][0] == "head", "what has to stay in float32 so that the labels are met as before"
