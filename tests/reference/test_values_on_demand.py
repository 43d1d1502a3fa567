"""Values that are not kept are, when they are asked for, what they would be if they were."""

from __future__ import annotations

import threading
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper, shape_inference

from runner.disk_space import NoRoom
from runner.exit_codes import NotTried
from runner.model.files.candidate_store import Store
from runner.model.graph.graph_index import Graph
from runner.model.values import recorded as values
from runner.reference.recording import Recorder, for_one_check
from runner.schema.backend import OnnxRuntimeBackend, Optimization
from runner.workers.pool import Pool
from runner.workers.reply import Failure, Reply
from tests.journal.test_disk_space import disk_with
from tests.model.models import model_of

ORT = OnnxRuntimeBackend(optimization=Optimization.none).to_json()
SIDE = 192
"""A value of SIDE x SIDE takes more than fits among the small ones."""
LARGE = SIDE * SIDE * 4


def info(name, dims=(SIDE, SIDE), dtype=TensorProto.FLOAT):
    return helper.make_tensor_value_info(name, dtype, dims)


def model(nodes, constants=(), dtype=TensorProto.FLOAT):
    return model_of(nodes, [info("x", dtype=dtype)], [info("y", None, dtype)], list(constants), opset=18)


def chain(dtype=np.float32, scale=0.1):
    """Layers with a skip connection over all of them, and a part that no data reaches."""
    weights = np.random.default_rng(1).standard_normal((SIDE, SIDE)) * scale
    middle = "Tanh" if scale < 1 else "Identity"
    text = "turned = Neg (w)  h0 = Relu (x) "
    for at in range(4):
        text += f"m{at} = MatMul (h{at}, turned)  t{at} = {middle} (m{at})  h{at + 1} = Add (t{at}, h0) "
    held = numpy_helper.from_array(weights.astype(dtype), "w")
    return model(f"{text} y = Softmax (h4)", [held], helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))


def branches():
    """An If that captures what lies outside, a sequence, and what comes out of both."""
    text = """a = Sin (x)
        b = If (yes) <then_branch = t () => (e) { e = Exp (a) }, else_branch = e () => (n) { n = Neg (a) }>
        s = SplitToSequence <axis = 0, keepdims = 1> (b)  c = ConcatFromSequence <axis = 1> (s)
        d = ReduceSum <keepdims = 0> (c)  y = Mul (a, d)"""
    return model(text, [numpy_helper.from_array(np.array(True), "yes")])


def drawn():
    """Random numbers in the middle."""
    return model("a = Cos (x)  r = RandomNormalLike (a)  b = Mul (a, r)  y = Tanh (b)")


MODELS = {
    "chain": chain(),
    "branches": branches(),
    "overflowing float16": chain(np.float16, 50.0),
}


def recorder(proto, folder: Path, pool: Pool, **given) -> Recorder:
    graph = Graph.of(shape_inference.infer_shapes(proto))
    return Recorder(graph, Store(folder), pool, ORT, graph.value_types, folder, **given)


def samples(proto, folder: Path, count=2):
    dtype = helper.tensor_dtype_to_np_dtype(proto.graph.input[0].type.tensor_type.elem_type)
    drawn = [np.random.default_rng(at).standard_normal((SIDE, SIDE)).astype(dtype) for at in range(count)]
    return [{"x": values.write(array, "x", folder / f"x{at}.pb")} for at, array in enumerate(drawn)]


def on_disk(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.rglob("*.pb"))


@pytest.mark.parametrize("name", MODELS)
def test_what_is_computed_again_is_the_same_to_the_bit(name, tmp_path, pool):
    proto = MODELS[name]
    given = samples(proto, tmp_path)
    every = recorder(proto, tmp_path / "all", pool).record(given).values
    lazy = recorder(proto, tmp_path / "lazy", pool, budget=4 * LARGE, disk=0, lazy=True).record(given)
    assert lazy.on_demand
    assert len([*(tmp_path / "lazy").glob("piece*")]) > 1 or name != "chain"
    assert every[0].keys() == lazy.values[0].keys()
    for kept, found in zip(every, lazy.values, strict=True):
        for tensor in sorted(kept, key=hash):  # in any order
            assert (found[tensor].finite, found[tensor].type) == (kept[tensor].finite, kept[tensor].type)
            assert found[tensor].size == kept[tensor].size
            assert for_one_check({tensor: found[tensor]})[tensor].content() == kept[tensor].content(), tensor


@pytest.mark.parametrize("lazy", [False, True])
def test_no_more_is_left_on_the_disk_than_may_be(lazy, tmp_path, pool):
    folder, limit = tmp_path / "values", 3 * LARGE + 1000
    found = recorder(chain(), folder, pool, disk=limit, lazy=lazy).record(samples(chain(), tmp_path, 1))
    least = sum(found.values[0][name].size for name in ("y", "turned"))
    assert on_disk(folder) <= least + (0 if lazy else limit)
    for name in ("m0", "h1", "t3", "m2", "h3", "m0"):
        one = for_one_check({name: found.values[0][name]})
        assert values.read(one[name]).shape == (SIDE, SIDE)
        assert on_disk(folder) <= least + limit + LARGE + 1000
    held = for_one_check({name: found.values[0][name] for name in ("m0", "m1", "m2", "m3", "t0")})
    places = values.paths(held)  # what a check uses stays, whatever the limit
    assert all(Path(place).is_file() for place in places.values())


def test_what_is_drawn_at_random_is_kept(tmp_path, pool):
    given = samples(drawn(), tmp_path, 1)
    found = recorder(drawn(), tmp_path / "values", pool, disk=0, lazy=True).record(given).values[0]
    a, r, b = (values.read(found[name]) for name in "arb")
    assert np.array_equal(a * r, b)
    assert found["r"].recompute is None


def test_checks_beside_each_other_get_what_they_ask_for(tmp_path, pool):
    proto = chain()
    given = samples(proto, tmp_path, 1)
    every = recorder(proto, tmp_path / "all", pool).record(given).values[0]
    lazy = recorder(proto, tmp_path / "lazy", pool, disk=0, lazy=True).record(given).values[0]
    wrong = []

    def ask(name):
        for _ in range(2):
            held = for_one_check({name: lazy[name]})
            wrong.extend([name] if Path(values.paths(held)[name]).read_bytes() != every[name].content() else [])

    threads = [threading.Thread(target=ask, args=(name,)) for name in ("m0", "t1", "h2", "m3")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_a_reference_that_cannot_run_again_is_no_verdict(tmp_path, pool, monkeypatch):
    found = recorder(chain(), tmp_path / "values", pool, disk=0, lazy=True).record(samples(chain(), tmp_path, 1))
    gone = Reply(None, Failure("infer", "Crash", "a device that is gone"), None, 0.0, 0.0)
    monkeypatch.setattr(pool, "call", lambda *_, **__: gone)
    with pytest.raises(
        NotTried, match=r"computed m1 once and cannot again \(infer: a device that is gone\).*cut.record"
    ):
        found.values[0]["m1"].content()


def test_room_is_wanted_for_what_is_kept_only(tmp_path, pool, monkeypatch):
    proto = chain()
    monkeypatch.setattr("runner.disk_space.os.statvfs", lambda _: disk_with(65 << 20))
    wide = helper.make_tensor_type_proto(TensorProto.FLOAT, [1 << 20, 1 << 6])
    for at, given in enumerate(({}, {"disk": 1 << 30, "lazy": False})):
        one = recorder(proto, tmp_path / f"all{at}", pool, **given)
        one.types = {f"m{layer}": wide for layer in range(4)}
        with pytest.raises(NoRoom, match=r"values of all tensors takes at least 1024 MiB"):
            one.record(samples(proto, tmp_path, 1))
    lazy = recorder(proto, tmp_path / "lazy", pool, disk=1 << 30, lazy=True)
    lazy.types = {f"m{layer}": wide for layer in range(4)}
    found = lazy.record(samples(proto, tmp_path, 1))
    assert found.unrunnable == ()
    monkeypatch.setattr("runner.disk_space.os.statvfs", lambda _: disk_with(64 << 20))
    with pytest.raises(NoRoom, match="computing recorded values again takes at least 0 MiB"):
        found.values[0]["m1"].content()
