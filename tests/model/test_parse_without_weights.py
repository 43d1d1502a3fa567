"""A large model file is read without its weights: the same model, the same refusals, in little memory."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
from itertools import chain
from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import ModelProto, TensorProto, helper

from runner.checkers import command
from runner.exit_codes import ModelError
from runner.jobs.finished_jobs import weights_beside
from runner.model.files import parse_without_weights as parse_without_weights_module
from runner.model.files import read_model
from runner.model.files.parse_without_weights import OWN_FILE, is_own, parse, parse_without_weights
from runner.model.files.read_model import ingest
from runner.model.graph import scopes
from runner.model.values import tensor_bytes, wire
from tests.model.models import model_of, nodes_of

KINDS = [TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.INT64, TensorProto.FLOAT16, TensorProto.INT4]
COUNTS = [3, 900, 1024, 3000]


@st.composite
def tensors(draw, name: str) -> TensorProto:
    """A tensor whose elements lie as raw bytes or in the typed field; some are large enough to stay in the file."""
    dtype, count, seed = draw(st.sampled_from(KINDS)), draw(st.sampled_from(COUNTS)), draw(st.integers(0, 9))
    content = np.random.default_rng(seed).integers(0, 50, tensor_bytes.byte_size(dtype, [count]), np.uint8)
    made = TensorProto(name=name, data_type=dtype, dims=[count], doc_string=draw(st.sampled_from(["", "said"])))
    if not draw(st.booleans()):
        made.raw_data = content.tobytes()
    elif dtype == TensorProto.FLOAT:
        made.float_data.extend(content.view("<f4"))
    elif dtype == TensorProto.DOUBLE:
        made.double_data.extend(content.view("<f8"))
    elif dtype == TensorProto.INT64:
        made.int64_data.extend(content.view("<i8"))
    else:
        made.int32_data.extend(content.view("<u2" if dtype == TensorProto.FLOAT16 else "u1"))
    return made


@st.composite
def models(draw) -> ModelProto:
    """A model with tensors in all places: initializers, attributes, branches, functions, sparse ones."""

    def constant(name: str):
        return helper.make_node("Constant", [], [name], value=draw(tensors("")))

    use = helper.make_node("Use", ["c", "nested"], ["t"], domain="odd", many=[draw(tensors("m"))])
    made = [helper.make_tensor_value_info("t", 1, [2])]
    branch = helper.make_graph([constant("c"), use], "b", [], made, [draw(tensors("nested"))])
    nodes = [
        helper.make_node("If", ["yes"], ["z"], then_branch=branch, else_branch=branch),
        constant("lifted"),
        *nodes_of(
            f"y = odd.Use <numbers = {list(range(draw(st.integers(1, 99))))}> (z, w, lifted)  out = own.Called (y)"
        ),
    ]
    body = [constant("k"), *nodes_of("o = odd.Use (i, k)")]
    function = helper.make_function("own", "Called", ["i"], ["o"], body, [helper.make_opsetid("", 17)])
    made = model_of(
        *(nodes, ["x"], ["out"], [draw(tensors("w")), helper.make_tensor("yes", TensorProto.BOOL, [], [True])]),
        domains=["odd", "own"],
        functions=[function],
    )
    sparse = made.graph.sparse_initializer.add(dims=[5000])
    sparse.values.CopyFrom(draw(tensors("s")))
    sparse.indices.CopyFrom(
        helper.make_tensor("", TensorProto.INT64, list(sparse.values.dims), range(sparse.values.dims[0]))
    )
    return made


def every(model: ModelProto) -> list[TensorProto]:
    return list(chain(scopes.initializers(model), scopes.inline_tensors(model)))


@settings(max_examples=40, deadline=None)
@given(models())
def test_a_model_read_without_its_weights_is_the_same_once_they_are_taken_in(tmp_path_factory, model):
    path = tmp_path_factory.getbasetemp() / "same.onnx"
    path.write_bytes(model.SerializeToString())
    got = parse_without_weights(path)
    assert got is not None
    left = [tensor for tensor in every(got) if is_own(tensor)]
    assert [one.name for one in left] == [one.name for one in model.graph.initializer if len(one.raw_data) >= 4096]
    for tensor in left:
        _, offset, length = tensor_bytes.reference(tensor)
        tensor_bytes.set_raw(tensor, path.read_bytes()[offset : offset + length])
    assert got == model


def outcome(path: Path, without_weights: bool, monkeypatch) -> list[object]:
    """What reading a file says and makes, with its weights left in it or not."""
    store = path.with_name("store")
    shutil.rmtree(store, ignore_errors=True)
    with monkeypatch.context() as patch:
        if not without_weights:
            patch.setattr(read_model, "parse_without_weights", lambda path: None)
        try:
            said = ingest({"model": str(path), "store": str(store), "inline_limit": 0})
        except ModelError as error:
            return [str(error)]
    files = sorted(store.iterdir())
    return [said, *((file.name, hashlib.sha256(file.read_bytes()).hexdigest()) for file in files)]


def test_damaged_files_end_as_they_do_where_all_is_parsed(tmp_path, monkeypatch):
    weight = TensorProto(name="w", data_type=1, dims=[32, 32], raw_data=bytes(range(256)) * 16)
    typed = helper.make_tensor("v", TensorProto.FLOAT, [1024], range(1024))
    constant = helper.make_node("Constant", [], ["c"], value=weight)
    nodes = [constant, helper.make_node("Sum", ["w", "v", "c"], ["y"])]
    model = model_of(nodes, [], ["y"], [weight, typed])
    sound = model.SerializeToString()
    random = np.random.default_rng(0)
    structure = [at for at in range(len(sound)) if sound[at - 16 : at + 16] not in weight.raw_data * 2]
    files = [sound[: random.integers(len(sound))] for _ in range(20)]
    for _ in range(80):
        damaged = bytearray(sound)
        damaged[random.choice(structure)] ^= 1 << random.integers(8)
        files.append(bytes(damaged))
    twice, lying, named = (ModelProto.FromString(sound) for _ in range(3))
    tensor_bytes.set_reference(twice.graph.initializer[0], OWN_FILE, 0, 4096)
    lying.graph.initializer[0].dims[0] = 31
    named.graph.initializer[0].data_location = TensorProto.EXTERNAL
    files += [one.SerializeToString() for one in (twice, lying, named)]
    files += [sound + sound, sound + b"\x0b\x0c", sound + model_of([], [], [], [weight]).SerializeToString()]
    path = tmp_path / "m.onnx"
    refused = 0
    for content in files:
        path.write_bytes(content)
        want = outcome(path, False, monkeypatch)
        assert outcome(path, True, monkeypatch) == want
        refused += len(want) == 1
    assert refused > 20
    path.write_bytes(files[-6])
    with pytest.raises(ModelError, match="NUL"):
        ingest({"model": str(path), "store": str(tmp_path / "s"), "inline_limit": 0})


def test_a_model_whose_weights_stay_in_it_names_no_other_file(tmp_path, monkeypatch):
    model = model_of("location = Neg (w)", [], ["location"])
    model.graph.initializer.add(name="w", data_type=1, dims=[1024], raw_data=bytes(4096))
    beside = model.graph.initializer.add(name="v", data_type=1, dims=[1])
    tensor_bytes.set_reference(beside, "v.bin", 0, 4)
    path = tmp_path / "m.onnx"
    onnx.save(model, path)
    (tmp_path / "v.bin").write_bytes(bytes(4))
    monkeypatch.setattr(parse_without_weights_module, "LARGE_FILE", 0)
    assert [is_own(tensor) for tensor in every(parse(path))] == [True, False]
    assert weights_beside(path) == [tmp_path / "v.bin"]
    assert command._weights(path) == {"v.bin": tmp_path / "v.bin"}


@pytest.mark.parametrize("limit", [0, 1 << 20])
def test_a_file_that_is_written_while_it_is_read_is_refused(tmp_path, monkeypatch, limit):
    model = model_of("y = Neg (w)", [], ["y"], [])
    model.graph.initializer.add(name="w", data_type=1, dims=[1024], raw_data=bytes(4096))
    path = tmp_path / "m.onnx"
    onnx.save(model, path)

    def written(model: ModelProto) -> None:
        path.write_bytes(path.read_bytes().replace(bytes(4096), bytes([1]) * 4096))

    monkeypatch.setattr(read_model, "check_text", written)
    with pytest.raises(ModelError, match="changed while it was read"):
        ingest({"model": str(path), "store": str(tmp_path / "store"), "inline_limit": limit})


MEASURED = """
import re, sys
from pathlib import Path
from runner.jobs.repeat import Command
from runner.model.files.read_model import ingest
from runner.model.graph.graph_index import Graph
from runner.model.passes.lift_constants import as_nodes

def peak():
    return int(re.search(r"VmHWM:\\s*(\\d+)", Path("/proc/self/status").read_text())[1])

before, path = peak(), Path(sys.argv[1])
ingest({"model": str(path), "store": str(path.parent / "store")})
as_nodes(Graph.load(path.parent / "store" / "structure.onnx"), path)
Command(path).identity()
print(peak() - before)
"""


@pytest.mark.slow
def test_a_model_of_64_mb_is_read_in_a_third_of_that(tmp_path):
    weights = [TensorProto(name=f"w{at}", data_type=1, dims=[2048, 2048], raw_data=bytes(16 << 20)) for at in range(4)]
    small = helper.make_node("Constant", [], ["c"], value=helper.make_tensor("", TensorProto.FLOAT, [], [1.0]))
    nodes = [small, helper.make_node("Sum", ["c", "w0", "w1", "w2", "w3"], ["location"])]
    onnx.save(model_of(nodes, [], ["location"], weights), tmp_path / "m.onnx")
    done = subprocess.run(
        [sys.executable, "-c", MEASURED, str(tmp_path / "m.onnx")], capture_output=True, check=True, text=True
    )
    assert int(done.stdout) < 20 << 10


def test_a_file_of_countless_small_fields_is_parsed_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each would be a step in Python, of which an untrusted file may hold hundreds of millions."""
    weight = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[2000], raw_data=bytes(8000))
    model = model_of("y = Neg (w)", [], ["y"], [weight])
    path = tmp_path / "m.onnx"
    path.write_bytes(model.SerializeToString())
    assert parse_without_weights(path) is not None
    monkeypatch.setattr(parse_without_weights_module, "_MOST_STEPS", 5)
    assert parse_without_weights(path) is None
    assert parse(path) == model


def test_weights_that_several_share_take_their_room_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = [f"w{number}" for number in range(5)]
    shared = [TensorProto(name=name, data_type=TensorProto.FLOAT, dims=[2000]) for name in names]
    for tensor in shared:
        tensor_bytes.set_reference(tensor, "w.bin", 0, 8000)
    onnx.save(model_of([helper.make_node("Sum", names, ["y"])], [], ["y"], shared), tmp_path / "m.onnx")
    (tmp_path / "w.bin").write_bytes(bytes(8000))
    room = shutil.disk_usage(tmp_path)._replace(free=10_000)
    monkeypatch.setattr(read_model.shutil, "disk_usage", lambda _: room)
    ingest({"model": tmp_path / "m.onnx", "store": tmp_path / "store", "inline_limit": 4096})
    assert (tmp_path / "store" / "weights.bin").stat().st_size == 8000


@pytest.mark.parametrize(("kind", "content"), [(0, b"\x85\1"), (1, bytes(8)), (2, b"\3abc"), (5, bytes(4))])
def test_a_field_ends_where_its_kind_says(kind: int, content: bytes) -> None:
    found = wire.field(bytes([(5 << 3) | kind]) + content + b"\xff\xff", 0)
    assert (found.number, found.kind, found.stop) == (5, kind, 1 + len(content))
