"""Subject `inside`: candidates of one body, with the values that belong to them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest

from runner.jobs.reduce.nested_graphs import BodySubject as Inside
from runner.jobs.reduce.subgraph import Subgraph
from runner.model.files.candidate_store import Store
from runner.model.graph.cut import whole
from runner.model.graph.graph_index import Graph
from runner.model.nested.hoist import bodies
from runner.model.values import recorded as values
from runner.reference.body_values import descend, level_of, trip_counts
from runner.reference.recording import Recorded
from runner.verdict import Candidate, Invalid, Sample
from strategies.search import Trial
from tests.model.nested import (
    FEEDS,
    IF,
    LOOP,
    LOOP_FEEDS,
    PLAIN_SCAN,
    SCAN_FEEDS,
    WHILE,
    close,
    graph_of,
    model_of,
    run_ort,
)
from tests.reference.levels import arrays, level, recorders


def subject(model, feeds, path, pool, folder: Path, **given) -> Inside:
    make = recorders(pool, Store(folder))
    top = level(model, feeds, make, folder / "top")
    body = {body.path: body for body in bodies(top.graph)}[path]
    below = descend(top, body, make, folder / "below")
    return Inside(below, trip_counts(top, body, make, folder / "trips"), folder / "own", **given)


def made(inside: Inside, keep, folder: Path):
    folder.mkdir(parents=True)
    found = inside.make(Trial.of(keep), folder)
    assert not isinstance(found, Invalid), found.reason
    model = onnx.load(str(found.model))
    onnx.checker.check_model(model, full_check=True)
    results = []
    for sample in found.samples:
        assert set(sample.feeds) == {value.name for value in model.graph.input}
        results.append(run_ort(model, arrays(sample.feeds)))
        for name, value in arrays(sample.expected).items():
            close(results[-1][name], value)
    return found, model, results


def if_feeds():
    one = {name: FEEDS[name] for name in ("x", "c")}
    return [one, {"x": np.abs(FEEDS["x"]) * 3, "c": np.array(False)}]


@pytest.mark.parametrize("path", ["choice.then_branch", "choice.else_branch"])
def test_every_set_of_a_branch_is_a_candidate_with_all_its_values(tmp_path: Path, pool, path):
    inside = subject(model_of(IF), [{**one, "x": -np.abs(one["x"]) - 1} for one in if_feeds()], path, pool, tmp_path)
    count = len(inside.space.order)
    for number in range(1, 1 << count):
        keep = [at for at in range(count) if number >> at & 1]
        found, _, results = made(inside, keep, tmp_path / f"trial{number}")
        assert found.nodes == tuple(f"{path}/{inside.inner.elements.nodes[at].name}" for at in keep)
        for sample in found.samples:
            assert set(sample.expected) == set(results[0])
        found.discard()
        assert not Path(found.model).exists()


def test_a_value_that_is_not_finite_is_no_question(tmp_path: Path, pool):
    # Sqrt of a negative number: the else branch's own work
    text = IF.replace("q = Abs (a2)", "q = Neg (a2)")
    inside = subject(model_of(text), [if_feeds()[0]], "choice.else_branch", pool, tmp_path)
    assert inside.space.parents == ((), (0,), (1,), (2,))
    text = text.replace("r = Sqrt (q)", "u = Sqrt (q)\n r = Mul (u, x)")
    inside = subject(model_of(text), [if_feeds()[0]], "choice.else_branch", pool, tmp_path / "more")
    found = inside.make(Trial.of([4]), tmp_path)
    assert isinstance(found, Invalid)
    assert "choice.else_branch/u" in found.reason and "not finite" in found.reason
    unread = replace(inside, fed=False)
    assert isinstance(unread.make(Trial.of([4]), tmp_path), Candidate)


def test_a_loop_ends_though_its_condition_was_cut(tmp_path: Path, pool):
    text = LOOP.replace("on = Identity (go)", "more = Less (i, limit) on = And (more, go)")
    text = text.replace("float[2] x, int64 m)", "float[2] x, int64 limit)").replace("Loop (m,", "Loop (,")
    feeds = [{"x": LOOP_FEEDS["x"], "limit": np.array(count)} for count in (2, 4)]
    inside = subject(model_of(text), feeds, "loop.body", pool, tmp_path)
    assert inside.trips == (3, 5)
    names = [node.name for node in inside.inner.elements.nodes]
    keep = [names.index("f"), names.index("g")]
    found, model, results = made(inside, keep, tmp_path / "trial")
    assert [result["loop.body/g/out"] for result in results] == [3, 5]
    assert "loop.body/iterations" in {value.name for value in model.graph.input}
    # nothing else can be said of a loop whose iterations are not the recorded ones
    assert [set(sample.expected) for sample in found.samples] == [set(), set()]
    _, model, results = made(inside, range(len(names)), tmp_path / "whole")
    assert "loop.body/iterations" not in {value.name for value in model.graph.input}
    for result, sample in zip(results, inside.level.recorded.values, strict=True):
        close(result["z"], arrays(sample)["z"])


def test_values_that_no_data_reach_are_constants(tmp_path: Path, pool):
    inside = subject(model_of(LOOP), [LOOP_FEEDS], "loop.body", pool, tmp_path)
    names = [node.name for node in inside.inner.elements.nodes]
    _, model, _ = made(inside, [names.index("grow")], tmp_path / "trial")
    assert "loop.body/g" in {tensor.name for tensor in model.graph.initializer}
    assert "loop.body/g" not in {value.name for value in model.graph.input}


@pytest.mark.parametrize("kind", ["If", "Loop", "Scan"])
def test_an_answer_is_a_level_again(tmp_path: Path, pool, kind):
    text, feeds, path, keep = {
        "If": (IF, if_feeds(), "choice.then_branch", [1]),
        "Loop": (LOOP, [LOOP_FEEDS], "loop.body", [0, 3]),
        "Scan": (PLAIN_SCAN, [{**SCAN_FEEDS, "xs": SCAN_FEEDS["xs"].T.copy()}], "scan.body", [1]),
    }[kind]
    inside = subject(model_of(text), feeds, path, pool, tmp_path)
    answer = inside.cut(Trial.of(keep))
    make = recorders(pool, inside.level.store)
    samples = inside.samples(answer)
    changed = inside._changed(answer)
    known = [{name: value for name, value in sample.items() if name not in changed} for sample in inside.values]
    again = level_of(answer, samples, known, inside.level.store, {}, (make, tmp_path / "again"))
    assert len(again.recorded.values) == len(feeds)
    for sample in again.recorded.values:
        held = arrays(sample)
        assert {name for node in again.graph.nodes for name in node.outputs} <= held.keys()
        for name, value in run_ort(answer.model, held).items():
            close(held[name], value)
    # and what was kept can be hoisted from there
    body = next(body for body in bodies(again.graph) if body.path == path)
    below = descend(again, body, make, tmp_path / "lower")
    kept = inside.inner.elements.nodes[keep[-1]].name
    assert f"{path}/{kept}" in {node.name for node in below.level.graph.nodes}


def test_a_loop_that_never_ends_is_bounded_once_its_condition_is_cut(tmp_path: Path, pool):
    model = model_of(WHILE)
    model.graph.output[0].ClearField("type")  # nobody could run it to find out
    store = Store(tmp_path)
    make = recorders(pool, store)
    feeds = {"x": np.array([0.75, 1], np.float32), "stop": np.array([np.inf], np.float32)}
    held = {name: values.write(value, name, tmp_path / f"{name}.pb") for name, value in feeds.items()}
    top = level_of(whole(graph_of(model)), [Sample(held)], [held], store, {})
    body = bodies(top.graph)[0]
    trips = trip_counts(top, body, make, tmp_path / "trips")
    inside = Inside(descend(top, body, make, tmp_path / "below"), trips, tmp_path / "own")
    names = [node.name for node in inside.inner.elements.nodes]
    (tmp_path / "whole").mkdir()
    everything = inside.make(inside.space.whole, tmp_path / "whole")
    onnx.checker.check_model(str(everything.model), full_check=True)
    _, model, results = made(inside, [names.index("w"), names.index("biggest")], tmp_path / "cut")
    assert "loop.body/iterations" in {value.name for value in model.graph.input} | {
        t.name for t in model.graph.initializer
    }
    close(results[0]["y"], feeds["x"] * np.float32(2.0**64))


def test_what_the_reference_cannot_run_is_not_run_again(tmp_path: Path, pool):
    """It may hang there as it did before."""
    top = level(model_of(IF), if_feeds()[:1], recorders(pool, Store(tmp_path)), tmp_path / "top")
    held = [{name: one for name, one in top.recorded.values[0].items() if name not in top.graph.producers}]
    record = (lambda *_: pytest.fail("it is run"), tmp_path)
    recorded = Recorded((), unrunnable=tuple(node.name for node in top.graph.nodes))
    again = level_of(whole(top.graph), [Sample(held[0])], held, top.store, {}, record, recorded)
    assert again.recorded.values == tuple(held)


def test_what_must_not_be_fed_must_not_one_level_down_either(tmp_path: Path, pool):
    """The parent's value of ``a``, say, is none that the child's type can hold."""
    make = recorders(pool, Store(tmp_path))
    top = level(model_of(IF), if_feeds()[:1], make, tmp_path / "top")
    why = {"a": "the good value of 'a' does not fit", "other": "of another answer"}
    held, recorded = top.recorded.values, Recorded((), unfit=why)
    kept = level_of(whole(top.graph), [Sample(held[0])], held, top.store, {}, None, recorded)
    body = next(one for one in bodies(top.graph) if one.path == "choice.then_branch")
    below = descend(kept, body, make, tmp_path / "below").level
    assert below.recorded.unfit == {"a": why["a"]}
    flat = Subgraph(below.graph, below.store, below.recorded, below.types, tmp_path, tmp_path)
    reader = next(node.index for node in below.graph.nodes if "a" in node.inputs)
    (tmp_path / "trial").mkdir()
    found = flat.make(Trial.of([reader]), tmp_path / "trial")
    assert isinstance(found, Invalid) and found.reason == why["a"]


DRAWING = """
main (float[2,3] x, bool c) => (float[2,3] y) {
    [before] a = OUTSIDE (x)
    [choice] y = If (c) <
        then_branch = then () => (float[2,3] r) {
            [first] t = INSIDE (a)
            [second] r = Tanh (t)
        },
        else_branch = other () => (float[2,3] r2) { r2 = Neg (a) }
    >
}
"""


@pytest.mark.parametrize(
    ("outside", "inside", "drawn"),
    [
        ("Neg", "Neg", [False, False]),
        ("Neg", "RandomNormalLike", [True, False]),
        ("RandomNormalLike", "Neg", [True] * 2),
    ],
)
def test_a_candidate_tells_whether_it_draws_random_numbers(tmp_path: Path, pool, outside, inside, drawn):
    text = DRAWING.replace("OUTSIDE", outside).replace("INSIDE", inside)
    feeds = {"x": FEEDS["x"], "c": np.array(True)}
    made_of = subject(model_of(text), [feeds], "choice.then_branch", pool, tmp_path)
    for at, draws in enumerate(drawn):
        found = made_of.make(Trial.of([at]), tmp_path / f"trial{at}")
        assert found.draws == draws == bool(Graph.of(onnx.load(str(found.model))).drawing)
