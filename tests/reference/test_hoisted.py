"""One level below: what the tensors of a body hold, in any iteration, for every sample."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

from runner.model.files.candidate_store import Store
from runner.model.graph.graph_index import Graph
from runner.model.nested.hoist import HoistError, bodies
from runner.reference.body_values import MOST_ITERATIONS, descend, iterations, ordered_bodies, trip_counts
from runner.reference.parent import Inherited, InheritedBody
from runner.reference.recording import Recorded
from runner.reference.teacher_forcing import RecordedModel
from tests.model.nested import (
    CALL,
    FEEDS,
    IF,
    LOOP,
    LOOP_FEEDS,
    PLAIN_SCAN,
    SCAN,
    SCAN_FEEDS,
    WHILE,
    close,
    everything,
    model_of,
    run_ort,
    run_reference,
)
from tests.reference.levels import ORT, REFERENCE, arrays, level, recorders

BOTH = [pytest.param(ORT, id="onnxruntime"), pytest.param(REFERENCE, id="reference")]


def named(level, path):
    return {body.path: body for body in bodies(level.graph)}[path]


def audit(descent, run=run_ort):
    """The recorded values are those of the hoisted model, run as a whole."""
    assert descent.level.recorded.unrunnable == ()
    for sample in descent.level.recorded.values:
        held = arrays(sample)
        again = run(descent.hoisted.model, held)
        for name, value in again.items():
            close(held[name], value)
        for index in descent.hoisted.inside:
            assert set(descent.level.graph.nodes[index].outputs) <= held.keys()


@pytest.mark.variants
@pytest.mark.parametrize("backend", BOTH)
def test_the_branch_that_is_taken_comes_first_and_the_other_is_recorded_too(tmp_path: Path, pool, backend):
    make = recorders(pool, Store(tmp_path), backend)
    for chosen, order in ((True, ["then", "else"]), (False, ["else", "then"])):
        feeds = [{**FEEDS, "c": np.array(chosen)}, {**FEEDS, "c": np.array(not chosen), "x": FEEDS["x"] * 2}]
        feeds = [{name: one[name] for name in ("x", "c")} for one in feeds]
        top = level(model_of(IF), feeds, make, tmp_path / str(chosen))
        found = ordered_bodies(top)
        assert [body.path for body in found] == [f"choice.{branch}_branch" for branch in order]
        for body in found:
            below = descend(top, body, make, tmp_path / f"{chosen}{body.attribute}")
            audit(below)
            assert {need.name for need in below.hoisted.needs} == {"y", "extra"}
            for sample, before in zip(below.level.recorded.values, top.recorded.values, strict=True):
                close(arrays(sample)["z"], arrays(before)["z"])
            # where a branch is taken it gives what the If gave
            taken = 0 if body is found[0] else 1
            given = arrays(below.level.recorded.values[taken])
            close(given[below.hoisted.names["r"]], given["y"])


def test_a_branch_that_all_samples_take_stays_connected(tmp_path: Path, pool):
    make = recorders(pool, Store(tmp_path))
    feeds = [{"x": FEEDS["x"] * factor, "c": FEEDS["c"]} for factor in (1, 2)]
    top = level(model_of(IF), feeds, make, tmp_path / "top")
    below = descend(top, ordered_bodies(top)[0], make, tmp_path / "below")
    assert below.hoisted.needs == ()
    audit(below)
    other = descend(top, ordered_bodies(top)[1], make, tmp_path / "other")
    assert [need.role for need in other.hoisted.needs] == ["result", "result"]
    audit(other)


@pytest.mark.variants
@pytest.mark.parametrize("backend", BOTH)
@pytest.mark.parametrize("iteration", [0, 1, 3])
def test_an_iteration_of_a_loop_gets_what_the_ones_before_left(tmp_path: Path, pool, backend, iteration):
    make = recorders(pool, Store(tmp_path), backend)
    feeds = [LOOP_FEEDS, {"x": np.array([2, 0.5], np.float32), "m": np.array(6)}]
    top = level(model_of(LOOP), feeds, make, tmp_path / "top")
    body = named(top, "loop.body")
    assert trip_counts(top, body, make, tmp_path / "trips") == (4, 6)
    assert iterations(top, body, make, tmp_path / "iterations") == 4
    below = descend(top, body, make, tmp_path / "below", iteration)
    for at, sample in enumerate(below.level.recorded.values):
        held = arrays(sample)
        whole = run_ort(model_of(LOOP), feeds[at])
        close(held["scanned"], whole["all"][iteration])
        close(held["w"], run_ort(model_of(LOOP), {**feeds[at], "m": np.array(iteration + 1)})["last"])
    if backend is ORT:
        audit(below)


@pytest.mark.parametrize(("text", "iteration"), [(SCAN, 2), (PLAIN_SCAN, 0)], ids=["axes", "plain"])
def test_a_step_of_a_scan(tmp_path: Path, pool, text, iteration):
    make = recorders(pool, Store(tmp_path))
    feeds = dict(SCAN_FEEDS) if text is SCAN else {**SCAN_FEEDS, "xs": SCAN_FEEDS["xs"].T.copy()}
    top = level(model_of(text), [feeds], make, tmp_path / "top")
    body = named(top, "scan.body")
    assert iterations(top, body, make, tmp_path / "iterations") == 4
    below = descend(top, body, make, tmp_path / "below", iteration)
    audit(below)
    audit(below, run_reference)
    held = arrays(below.level.recorded.values[0])
    close(held["o"], arrays(top.recorded.values[0])["out"][iteration])
    with pytest.raises(HoistError, match="makes 4 iterations"):
        descend(top, body, make, tmp_path / "beyond", 4)


LONG_SCAN = """
g (float[4096] s, float[100] xs) => (float[4096] last, float[100] ys) {
  last, ys = Scan <num_scan_inputs: int = 1, body: graph = body (float[4096] a, float x) => (float[4096] b, float y) {
    b = Add (a, x)
    y = ReduceMax <keepdims: int = 0> (b)
  }> (s, xs)
}
"""


def test_of_what_a_scan_carries_one_iteration_is_recorded(tmp_path: Path, pool):
    """Not the states of all: a hundred of 16 KB each."""
    make = recorders(pool, Store(tmp_path))
    feeds = {"s": np.zeros(4096, np.float32), "xs": np.ones(100, np.float32)}
    top = level(model_of(LONG_SCAN), [feeds], make, tmp_path / "top")
    (body,) = ordered_bodies(top)
    descend(top, body, make, tmp_path / "below", 99)
    assert sum(path.stat().st_size for path in (tmp_path / "below").rglob("*") if path.is_file()) < 200_000


@pytest.mark.variants
@pytest.mark.parametrize("backend", BOTH)
def test_functions_that_call_functions(tmp_path: Path, pool, backend):
    make = recorders(pool, Store(tmp_path), backend)
    model = model_of(CALL, more=', "f" : 1')
    now = level(model, [{"x": FEEDS["x"]}], make, tmp_path / "top")
    for number, path in enumerate(("call.Outer", "call.Outer/t.Inner", "b.Outer", "b.Outer/t.Inner")):
        below = descend(now, named(now, path), make, tmp_path / str(number))
        audit(below)
        now = below.level
    assert not bodies(now.graph)
    for name, value in everything(model, FEEDS, run_ort).items():
        if name in now.recorded.values[0]:
            close(arrays(now.recorded.values[0])[name], value)


def test_a_while_loop_is_counted_by_running_it_and_one_that_never_ends_is_left_alone(tmp_path: Path, pool):
    make = recorders(pool, Store(tmp_path))
    model = model_of(WHILE)
    x = np.array([0.75, 1], np.float32)
    top = level(model, [{"x": x, "stop": np.array([30], np.float32)}], make, tmp_path / "top")
    assert trip_counts(top, bodies(top.graph)[0], make, tmp_path / "trips") == (5,)
    assert iterations(top, bodies(top.graph)[0], make, tmp_path / "iterations") == 5
    below = descend(top, bodies(top.graph)[0], make, tmp_path / "below", 4)
    close(arrays(below.level.recorded.values[0])["w"], x * 32)
    with pytest.raises(HoistError, match="does not get to iteration 9"):
        descend(top, bodies(top.graph)[0], make, tmp_path / "beyond", 9)
    endless = np.array([np.inf], np.float32)
    held = {name: value for name, value in top.recorded.values[0].items() if name != "y"}
    stop = held["stop"].path
    stop.write_bytes(onnx.numpy_helper.from_array(endless, "stop").SerializeToString())
    assert trip_counts(top, bodies(top.graph)[0], make, tmp_path / "endless") == (MOST_ITERATIONS,)


def test_a_loop_that_does_not_run_has_no_iterations(tmp_path: Path, pool):
    make = recorders(pool, Store(tmp_path))
    top = level(model_of(LOOP), [{**LOOP_FEEDS, "m": np.array(0)}], make, tmp_path / "top")
    assert iterations(top, bodies(top.graph)[0], make, tmp_path / "iterations") == 0


@pytest.mark.parametrize(
    ("origins", "said"),
    [
        ({}, "loop has no partner in reference.model"),
        ({"loop": "abs"}, "the partner of loop, abs in reference.model, has no such nested graph"),
    ],
)
def test_why_nothing_is_known_of_a_body(tmp_path: Path, origins: dict[str, str], said: str) -> None:
    graph, store = Graph.of(model_of(LOOP)), Store(tmp_path)
    elder = RecordedModel(Graph.of(model_of("main (float[2] x) => (float[2] y) { [abs] y = Abs (x) }")), store, ())
    above = Inherited(Recorded(()), "", origins, (), elder, {})
    with pytest.raises(HoistError, match=said):
        InheritedBody.of(None, above, graph, bodies(graph)[0], store, None, placed=False, tell=print)
