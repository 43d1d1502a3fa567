"""Simpler values and smaller shapes of a model in hand."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from runner.jobs.reduce import simpler_values
from runner.jobs.reduce.simpler_values import SmallerShapes, shorter_names, smaller_shapes
from runner.jobs.reduce.simplification_levels import Shrunk, Whole
from runner.model.graph.cut import CutError
from runner.model.values import recorded
from runner.model.values.recipes import Kind, recognize
from runner.verdict import Sample
from strategies.search import Trial
from tests.jobs.models import parsed
from tests.model.models import ingested, model_of, tensor

RNG = np.random.default_rng(99)
INFO = helper.make_tensor_value_info


def drawn(*shape, dtype=np.float32):
    return RNG.normal(0.3, 0.1, shape).astype(dtype)


def whole(model, folder, *feeds):
    folder.mkdir(parents=True, exist_ok=True)
    samples = []
    for at, sample in enumerate(feeds):
        files = {name: recorded.write(array, name, folder / f"{at}_{name}.pb") for name, array in sample.items()}
        samples.append(Sample(files))
    return Whole(model, tuple(samples))


def values(model):
    return {one.name: recorded.to_array(one) for one in model.graph.initializer}


def run(model, feeds):
    onnx.checker.check_model(model, full_check=True)
    return ReferenceEvaluator(model).run(None, {name: recorded.read(file) for name, file in feeds[0].items()})


def test_values_become_splats_or_drawn_ones(tmp_path):
    held = {
        "w": drawn(4, 8),
        "h": drawn(40).astype(ml_dtypes.bfloat16),
        "few": drawn(16),
        "same": np.full(99, 0.5, np.float32),
        "at": np.arange(30) % 8,
        "mask": np.arange(40) % 3 == 0,
        "text": np.array([f"t{at}" for at in range(20)], object),
    }
    constant = helper.make_node("Constant", [], ["c"], value=tensor("", drawn(30)))
    node = helper.make_node("Gather", ["w", "at"], ["y"], axis=1)
    model = model_of([constant, node], [INFO("x", 1, [40])], ["y"], [tensor(*one) for one in held.items()])
    base = whole(model, tmp_path, {"x": drawn(40)}, {"x": drawn(40)})
    simpler = simpler_values.plain_values(base, recorded.to_array, tmp_path / "new")
    # samples; w, h, at, mask and c; x
    assert simpler.levels.tops == (2,) * 7
    made, feeds = simpler.apply((0,) * 7), simpler.feeds((0,) * 7, tmp_path)
    new = values(made)
    assert len(feeds) == 1
    assert (recorded.read(feeds[0]["x"]) == 1).all()
    assert {name: np.unique(new[name]).tolist() for name in ("w", "h", "at", "mask")} == {
        "w": [1],
        "h": [1],
        "at": [1],
        "mask": [True],
    }
    for name in ("few", "same", "text"):
        assert (new[name] == held[name]).all()
    seeded = (2, *(1,) * 6)
    made, feeds = simpler.apply(seeded), simpler.feeds(seeded, tmp_path)
    new = values(made)
    everything = [*new.values(), *(recorded.read(fed["x"]) for fed in feeds)]
    everything.append(numpy_helper.to_array(made.graph.node[0].attribute[0].t))
    without = [array for array in everything if recognize(array) is None]
    assert [array.dtype.kind for array in without] == ["O"]
    assert new["at"].min() >= 0
    assert new["at"].max() < 8, "an index stays in range"
    assert not np.array_equal(recorded.read(feeds[0]["x"]), recorded.read(feeds[1]["x"]))
    tops = simpler.levels.tops
    assert simpler.apply(tops) == model
    assert simpler.feeds(tops, tmp_path) == tuple(sample.feeds for sample in base.samples)


def test_a_weight_in_its_file_is_read_there(tmp_path):
    weight = drawn(64, 64)
    model = model_of(
        [helper.make_node("MatMul", ["x", "w"], ["y"])], [INFO("x", 1, [2, 64])], ["y"], [tensor("w", weight)]
    )
    graph, store, _ = ingested(model, tmp_path, inline_limit=0)
    assert (store.array(graph.initializers["w"]) == weight).all()
    base = whole(graph.model, tmp_path, {"x": drawn(2, 64)})
    made = simpler_values.plain_values(base, store.array, tmp_path / "new").apply((1, 1))
    assert recognize(values(made)["w"]).kind is Kind.SEEDED
    made = SmallerShapes(base, store.array).apply((1, 1))
    assert (values(made)["w"] == weight[:2, :2]).all()


LARGE = """
import sys
from pathlib import Path
from onnx import TensorProto, helper
from runner.verdict import Sample
from runner.jobs.reduce.simplification_levels import Whole
from runner.jobs.reduce.simpler_values import smaller_shapes
from runner.model.files.candidate_store import Store
from runner.model.graph.cut import CutError
from runner.model.values import recorded, tensor_bytes
import numpy as np

folder, size = Path(sys.argv[1]), 12500
store = Store(folder)
with store.weights.open("wb") as file:
    file.truncate(4 * size * size)
weight = TensorProto(name="w", data_type=1, dims=[size, 2, size // 2])
tensor_bytes.set_reference(weight, store.weights.name, 0, 4 * size * size)
info = helper.make_tensor_value_info
graph = helper.make_graph([helper.make_node("Mul", ["x", "w"], ["y"])], "g", [info("x", 1, [9, 1])], [], [weight])
fed = recorded.write(np.ones((9, 1), np.float32), "x", folder / "x.pb")
smaller = smaller_shapes(Whole(helper.make_model(graph), (Sample({"x": fed}),)), store.array)
tops = smaller.levels.tops
made = smaller.apply((1,) * len(tops))
print(*made.graph.initializer[0].dims)
try:
    smaller.apply((0, *tops[1:]))
except CutError as error:
    print(error)
held = Path('/proc/self/status').read_text().partition('VmHWM:')[2]  # a process's own, and not that of its parent
print(int(held.split()[0]) >> 10)
"""


@pytest.mark.slow
def test_a_large_weight_is_not_read_into_the_job(tmp_path):
    """Its own recipe is told from the start of its file, and what would be left of it is not made to be refused."""
    done = subprocess.run(
        [sys.executable, "-c", LARGE, str(tmp_path)], capture_output=True, text=True, check=True, cwd=Path.cwd()
    )
    shape, refused, peak = done.stdout.splitlines()
    assert shape == "2 2 2" and refused == "'w' would take more than 32 MiB"
    assert int(peak) < 200


def test_sizes_shrink_together_with_the_constants_that_hold_them(tmp_path):
    seeded = (np.random.default_rng(5).standard_normal((12, 48)) * 0.25).astype(np.float32)
    held = {"w": seeded, "k": drawn(12, 1, 3, 3), "s": np.array([2, 4, 12]), "axes": np.array([1])}
    text = """g (float[2,12,4,48] x) => (float[2,4,48] y)
        <int64[1] zero = {0}, int64[1] end = {12}, int64[1] two = {2}> {
        a = Conv<group = 12, pads = [1, 1, 1, 1]>(x, k) b = ReduceSum<keepdims = 0>(a, axes)
        part = Slice(b, zero, end, two) t = Transpose<perm = [0, 2, 1]>(part) r = Reshape(t, s) y = MatMul(r, w) }"""
    model = parsed(text, **held)
    base = whole(model, tmp_path, {"x": drawn(2, 12, 4, 48)})
    simpler = SmallerShapes(base, recorded.to_array)
    assert list(simpler.steps) == [2, 4, 12, 48]
    assert simpler.steps[12] == (1, 2, 4, 8, 12)
    for levels, sizes in (((0, 0, 0, 0), (1, 1, 1, 1)), ((1, 1, 1, 3), (2, 2, 2, 8))):
        made, feeds = simpler.apply(levels), simpler.feeds(levels, tmp_path / str(levels))
        batch, height, channels, width = sizes
        assert feeds[0]["x"].shape == (batch, channels, height, width)
        assert values(made)["s"].tolist() == [batch, height, channels]
        assert values(made)["k"].shape == (channels, 1, 3, 3), "a kernel is no size of anything else"
        assert recognize(values(made)["w"]), "what was drawn is drawn again"
        assert run(made, feeds)[0].shape == (batch, height, width)
    assert simpler.apply(smaller_shapes(base, recorded.to_array).levels.tops) == model


def test_shapes_stay_where_they_are_small_or_differ(tmp_path):
    def tops(model, *feeds):
        return smaller_shapes(whole(model, tmp_path, *feeds), recorded.to_array).levels.tops

    small = model_of([helper.make_node("Abs", ["x"], ["y"])], ["x"], ["y"])
    assert tops(small, {"x": drawn(2, 3)}) == ()
    loose = model_of([helper.make_node("Abs", ["x"], ["y"])], [INFO("x", 1, ["n", 3])], ["y"])
    assert tops(loose, {"x": drawn(20, 3)}) == (2, 5)
    assert tops(loose, {"x": drawn(20, 3)}, {"x": drawn(21, 3)}) == ()
    body = helper.make_graph([helper.make_node("Abs", ["x"], ["b"])], "b", [], [INFO("b", 1, None)])
    nested = helper.make_node("If", ["c"], ["y"], then_branch=body, else_branch=body)
    assert tops(model_of([nested], [INFO("x", 1, [20, 3]), INFO("c", 9, [])], ["y"]), {"x": drawn(20, 3)}) == ()


def test_weights_take_no_more_than_a_candidate_carries(tmp_path, monkeypatch):
    monkeypatch.setattr(simpler_values, "LARGEST", 1000)
    nodes = [helper.make_node("MatMul", ["x", "a"], ["m"]), helper.make_node("MatMul", ["m", "b"], ["y"])]
    weights = [tensor(name, drawn(20, 20)) for name in "ab"]
    model = model_of(nodes, [INFO("x", 1, [20, 20])], ["y"], weights)
    simpler = SmallerShapes(whole(model, tmp_path, {"x": drawn(20, 20)}), recorded.to_array)
    assert simpler.feeds((3,), tmp_path / "3")[0]["x"].shape == (8, 8)
    with pytest.raises(CutError, match="would take more"):
        simpler.apply((4,))


def test_what_a_candidate_is_fed_is_written_once(tmp_path):
    """A check may read it while a repeat of it is made; and many sizes make no long names."""
    graph_inputs = [INFO(f"a_long_name{size}", 1, [size]) for size in range(1000, 1080)]
    model = model_of([helper.make_node("Neg", ["a_long_name1000"], ["y"])], graph_inputs, ["y"], [])
    sizes = {one.name: drawn(one.type.tensor_type.shape.dim[0].dim_value) for one in graph_inputs}
    held = whole(model, tmp_path / "fed", sizes)
    for simpler in (smaller_shapes(held, recorded.to_array), shorter_names(held)):
        shrunk = Shrunk(None, Trial.of([0]), held, simpler, 0, None, tmp_path / "new")
        lowest = simpler.levels.trial((0,) * len(simpler.levels.tops))
        (first,) = shrunk.cut(lowest).samples
        file = next(iter(first.feeds.values()))
        file.path.write_bytes(b"as it was")
        assert shrunk.cut(lowest).samples == (first,) and file.path.read_bytes() == b"as it was", simpler.name
    assert all(len(path.name) < 100 for path in (tmp_path / "new").rglob("*"))


def test_values_that_nobody_can_tell_from_another_failure_are_of_the_old_kind(tmp_path):
    """No negative number where there was none, and no index that is out of range."""
    held = {
        "both": RNG.normal(size=40) * 4,
        "roots": RNG.random(40),
        "at": np.arange(40) % 8,
        "far": np.arange(40) - 20,
    }
    initializers = [tensor(name, array.astype(array.dtype)) for name, array in held.items()]
    model = model_of([helper.make_node("Neg", ["both"], ["y"])], [], ["y"], initializers)
    one = whole(model, tmp_path / "fed", {})
    assert len(simpler_values.plain_values(one, recorded.to_array, tmp_path).levels.tops) == 4
    careful = simpler_values.plain_values(one, recorded.to_array, tmp_path, careful=True)
    made = values(careful.apply((0, 0)))
    assert [name for name, array in held.items() if (made[name] != array).any()] == ["both", "at"]
