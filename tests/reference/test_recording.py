"""Recording values where the model as a whole cannot be run: what can be is, and the run goes on."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from runner.backends import tensor_files
from runner.backends.errors import StageError
from runner.checkers.metrics import compare_recorded
from runner.disk_space import NoRoom
from runner.exit_codes import UsageError
from runner.jobs.reduce.subgraph import Subgraph
from runner.model.files.candidate_store import Store
from runner.model.graph.graph_index import Graph
from runner.model.values import recorded as values
from runner.model.values.recorded import TensorFile
from runner.reference.recording import Recorded, Recorder, recorded_types
from runner.schema.backend import OnnxRuntimeBackend, Optimization
from runner.schema.checker import CompareChecker
from runner.schema.root import CutPolicy
from runner.verdict import Candidate, Invalid
from runner.workers.pool import Pool
from runner.workers.reply import Failure, Reply
from strategies.search import Trial
from tests.journal.test_disk_space import disk_with
from tests.model.models import model_of, tensor

ORT = OnnxRuntimeBackend(optimization=Optimization.none).to_json()


def info(name, dims=(2,), dtype=TensorProto.FLOAT):
    return helper.make_tensor_value_info(name, dtype, dims)


def endless():
    """A branch that can be run beside a Loop that does not end, and what depends on that."""
    text = """[before] a = Relu (x)  [loop] stuck = Loop (, yes, a) <
        body = b (int64 i, bool go, float[2] v) => (bool on, float[2] w) { on = Identity (go)  w = Identity (v) }>
        [after] y = Neg (stuck)  [beside] z = Exp (a)"""
    return Graph.of(model_of(text, [info("x")], [info("y"), info("z")], [tensor("yes", np.array(True))]))


def recorder(graph: Graph, folder: Path, pool: Pool, backend=ORT, **given) -> Recorder:
    pytest.importorskip("onnxruntime")
    return Recorder(graph, Store(folder), pool, backend, graph.value_types, folder / "values", **given)


def sample(tmp_path: Path):
    return {"x": values.write(np.array([1, -1], np.float32), "x", tmp_path / "x.pb")}


@pytest.mark.slow
def test_a_node_that_hangs_is_found_and_the_others_are_recorded(tmp_path, pool):
    recorded = recorder(endless(), tmp_path, pool, timeout=16.0).record([sample(tmp_path)])
    assert recorded.unrunnable == ("loop",)
    assert recorded.reason == "timeout"
    assert recorded.values[0].keys() == {"x", "a", "z"}
    assert not recorded.out_of_time


def test_a_full_disk_is_no_fault_of_a_node(tmp_path, pool, monkeypatch):
    """At the seam: the system says that nothing is free any more when the first piece has failed."""
    one = recorder(endless(), tmp_path, pool)

    def no_more(*_, **__):
        monkeypatch.setattr("runner.disk_space.os.statvfs", lambda _: disk_with(0))
        return Reply(None, Failure("infer", "OSError", "No space left on device"), None, 0.0, 0.0)

    monkeypatch.setattr(one.pool, "call", no_more)
    with pytest.raises(NoRoom, match="make room"):
        one.record([sample(tmp_path)])


def test_out_of_time_is_said_and_nothing_is_blamed(tmp_path):
    with Pool(tmp_path / "workers") as pool:
        recorded = recorder(endless(), tmp_path, pool, timeout=0.1).record([sample(tmp_path)])
    assert recorded.out_of_time
    assert recorded.unrunnable == ()
    assert recorded.values[0].keys() == {"x"}


@pytest.mark.parametrize(("dtype", "rounds"), [(TensorProto.FLOAT16, True), (TensorProto.DOUBLE, False)])
def test_parts_of_a_model_of_low_precision_round_where_they_meet(dtype, rounds, tmp_path, pool):
    text = f"a = Cast <to = {dtype}> (x)  b = nobody.Unknown (a)  y = Neg (a)"
    graph = Graph.of(model_of(text, [info("x")], [info("y", (2,), dtype)], domains=["nobody"]))
    found = recorder(graph, tmp_path, pool).record([sample(tmp_path)])
    assert (found.unrunnable, found.rounds) == (("b",), rounds)


def test_settings_that_cannot_work_are_not_tried_on_every_node(tmp_path, pool):
    with pytest.raises(UsageError, match=r"no values can be recorded with onnxruntime.*NoSuchProvider"):
        recorder(endless(), tmp_path, pool, backend={**ORT, "providers": ["NoSuchProvider"]}).record([sample(tmp_path)])


def sequences():
    """A sequence on the way, of tensors of other sizes, and one without elements; an optional at the end."""
    text = """[split] s = SplitToSequence <axis = 0> (x, parts)  [erase] shorter = SequenceErase (s)
        [none] none = SequenceEmpty <dtype = 1> ()  [insert] one = SequenceInsert (none, x)
        [at] y = SequenceAt (shorter, first)  [optional] o = Optional (shorter)  [get] again = OptionalGetElement (o)
        [concat] z = ConcatFromSequence <axis = 0> (again)  [length] n = SequenceLength (one)"""
    constants = [tensor("parts", np.array([2, 1, 1])), tensor("first", np.array(0))]
    outputs = [info("y", None), info("z", None), info("n", (), TensorProto.INT64)]
    return model_of(text, [info("x", (4,))], outputs, constants, opset=18)


def test_sequences_are_recorded_and_fed_to_every_candidate(tmp_path, pool):
    graph, store = Graph.of(sequences()), Store(tmp_path)
    x = [values.write(np.arange(4, dtype=np.float32) + at, "x", tmp_path / f"x{at}.pb") for at in range(2)]
    recorded = recorder(graph, tmp_path, pool).record([{"x": one} for one in x])
    assert recorded.unrunnable == ()
    sample = recorded.values[1]
    assert [item.tolist() for item in values.contents(sample["shorter"])] == [[1, 2], [3]]
    assert sample["o"].structure == ("optional", ("sequence", ("tensor", 1)))
    assert values.contents(sample["none"]) == []
    subject = Subgraph(graph, store, recorded, {}, tmp_path / "none.onnx", tmp_path / "seeded")
    for at, node in enumerate(graph.nodes):
        candidate = subject.make(Trial.of([at]), tmp_path / f"trial{at}")
        assert isinstance(candidate, Candidate), (node, candidate)
        onnx.checker.check_model(candidate.model)
        feeds = [{name: str(file.path) for name, file in one.feeds.items()} for one in candidate.samples]
        arguments = {"backend": ORT, "model": str(candidate.model), "samples": feeds, "out": str(tmp_path / f"o{at}")}
        reply = pool.call("run", arguments)
        assert reply.failure is None, (node, reply.failure)
        for one, found in zip(candidate.samples, reply.value["samples"], strict=True):
            assert found.keys() == one.expected.keys() == set(node.outputs)
            for name, entry in found.items():
                assert not compare_recorded(TensorFile.from_json(entry), one.expected[name], CompareChecker()).fails()


def test_a_candidate_whose_constants_no_file_can_hold_is_unresolved(tmp_path):
    graph = Graph.of(model_of("y = Neg (x)  z = Abs (y)", [info("x", (9,))], [info("z", (9,))]))
    held = {name: values.write(np.ones(9, np.float32), name, tmp_path / f"{name}.pb") for name in "xyz"}
    for limit, fits in ((37, True), (36, False)):
        store = Store(tmp_path / "store", file_limit=limit)
        where = tmp_path / "none.onnx", tmp_path / "seeded"
        subject = Subgraph(graph, store, Recorded((held,)), {}, *where, cut_policy=CutPolicy.constant)
        made = subject.make(Trial.of([1]), tmp_path / f"at{limit}")
        assert isinstance(made, Candidate) is fits
    assert "less than 2 GiB; cut.policy=input" in made.reason


def test_the_type_of_a_sequence_is_what_all_samples_have_in_common(tmp_path):
    def sequence(*shapes):
        proto = numpy_helper.from_list([np.zeros(shape, np.float32) for shape in shapes], dtype=1)
        return values.write_container(proto, ("sequence", ("tensor", 1)), "s", tmp_path / "s.pb")

    def shape(*files):
        proto = recorded_types([{"s": file} for file in files])["s"].sequence_type.elem_type.tensor_type
        return [dim.dim_value or None for dim in proto.shape.dim] if proto.HasField("shape") else None

    assert shape(sequence((2, 3)), sequence((2, 3), (2, 3))) == [2, 3]
    assert shape(sequence((2, 3)), sequence((2, 3), (4, 3))) == [None, 3]
    assert shape(sequence(), sequence((2, 3))) == [2, 3]
    assert shape(sequence((2,)), sequence((2, 3))) is None
    tensor = values.write(np.ones(2, np.float32), "s", tmp_path / "t.pb")
    assert recorded_types([{"s": tensor}, {"s": sequence((2,))}]) == {}


def test_a_nan_that_is_meant_can_be_fed(tmp_path, pool):
    """The model looks for it and replaces it: its output is finite."""
    text = "[root] r = Sqrt (x)  [is] bad = IsNaN (r)  [where] y = Where (bad, x, r)"
    for outputs, fits in (["y"], True), (["y", "r"], False):
        graph, folder = Graph.of(model_of(text, [info("x")], [*map(info, outputs)])), tmp_path / outputs[-1]
        folder.mkdir()
        recorded = recorder(graph, folder, pool).record([sample(folder)])
        assert recorded.values[0]["r"].nan
        subject = Subgraph(graph, Store(folder), recorded, {}, folder / "none.onnx", folder / "seeded")
        assert isinstance(subject.make(Trial.of([1]), folder / "trial"), Candidate if fits else Invalid)


def chain(tmp_path, nodes, dtype=TensorProto.FLOAT):
    """A graph of so many nodes, one after the other, with a skip from the first to the last; and a sample for it."""
    names = ["x", *(f"t{at}" for at in range(nodes))]
    text = "".join(f"{names[at + 1]} = {('Sin', 'Neg')[at % 2]} ({names[at]}) " for at in range(nodes - 1))
    text += f"{names[-1]} = Add ({names[-2]}, t0)"
    model = model_of(text, [info("x", (3,), dtype)], [info(names[-1], (3,), dtype)], opset=22)
    x = values.write(np.arange(3).astype(helper.tensor_dtype_to_np_dtype(dtype)), "x", tmp_path / "x.pb")
    return Graph.of(model), {"x": x}


def all_bytes(recorded: Recorded) -> list[dict[str, bytes]]:
    return [{name: value.content() for name, value in one.items()} for one in recorded.values]


@pytest.mark.parametrize(("dtype", "pieces"), [(TensorProto.FLOAT, 6), (TensorProto.FLOAT16, 1)])
def test_windows_give_what_one_run_gives_and_low_precision_has_none(tmp_path, pool, monkeypatch, dtype, pieces):
    graph, one = chain(tmp_path, 57, dtype)
    whole = recorder(graph, tmp_path / "whole", pool).record([one, one])
    monkeypatch.setattr("runner.reference.recording.WINDOW", 10)
    assert all_bytes(recorder(graph, tmp_path, pool).record([one, one])) == all_bytes(whole)
    assert len(list((tmp_path / "values").iterdir())) == pieces


def test_small_values_share_a_file_until_one_is_asked_for(tmp_path, pool):
    graph, one = chain(tmp_path, 20)
    held = recorder(graph, tmp_path, pool).record([one]).values[0]
    folder = tmp_path / "values" / "piece1"
    assert [path.name for path in folder.iterdir()] == ["0.pack"]
    np.testing.assert_array_equal(values.read(held["t1"]), -values.read(held["t0"]))
    assert held["t1"].size == len(held["t1"].content())
    copied = values.renamed(held["t1"], "other", tmp_path / "other.pb")
    np.testing.assert_array_equal(values.read(copied), values.read(held["t1"]))
    (place,) = values.paths({"t1": held["t1"]}).values()
    np.testing.assert_array_equal(tensor_files.read(place).array(), values.read(held["t1"]))
    assert [path.name for path in folder.iterdir()] == ["0.pack"], "neither a copy nor a worker needs a file of its own"
    written = held["t1"].path.name
    assert sorted(path.name for path in folder.iterdir()) == ["0.pack", written]
    assert values.load(held["t1"].path) == values.load(held["t1"])


def test_a_part_that_is_not_there_is_no_value(tmp_path):
    value = values.write(np.arange(3.0), "x", tmp_path / "x.pb")
    packed = values.pack(value, tmp_path / "pack", 1 << 16)
    assert not value.place.exists() and values.pack(packed, tmp_path / "pack", 1 << 16) is packed
    (place,) = values.paths({"x": packed}).values()
    np.testing.assert_array_equal(tensor_files.read(place).array(), np.arange(3.0))
    with pytest.raises(StageError, match="pack: not a tensor file that can be read: cut off"):
        tensor_files.read(f"{place}0")


def test_a_worker_may_have_what_it_has_where_little_else_is_free(tmp_path, pool, monkeypatch):
    """Its interpreter and its runtime are no longer free, and count as its memory."""
    monkeypatch.setattr("runner.machine.free_mb", lambda: 20.0)
    read = Graph.of(model_of("[only] y = Relu (x)", [info("x")], [info("y")]))
    found = recorder(read, tmp_path, pool).record([sample(tmp_path)])
    assert not found.unrunnable, found.reason
