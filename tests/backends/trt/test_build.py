"""The real builder of TensorRT for RTX, through the operation of a worker."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto as T
from onnx import helper, numpy_helper

from runner.backends.trt.library import has_gpu
from runner.workers.pool import Pool
from runner.workers.reply import Reply


def info(name: str, shape: Any, dtype: int = T.FLOAT) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, dtype, shape)


def save(folder: Path, nodes: list[onnx.NodeProto], inputs: list[Any], output: Any, values: Mapping[str, Any]) -> Path:
    initializers = [numpy_helper.from_array(np.asarray(value), name) for name, value in values.items()]
    graph = helper.make_graph(nodes, "g", inputs, [output], initializers)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 9
    folder.mkdir(exist_ok=True)
    onnx.save(model, str(folder / "model.onnx"))
    return folder / "model.onnx"


def small(folder: Path) -> Path:
    nodes = [helper.make_node("Relu", ["x"], ["a"], name="first"), helper.make_node("Exp", ["a"], ["y"], name="second")]
    return save(folder, nodes, [info("x", [2, 3])], info("y", [2, 3]), {})


def reshaping(folder: Path) -> Path:
    node = helper.make_node("Reshape", ["x", "shape"], ["y"], name="reshape")
    return save(folder, [node], [info("x", ["n", 6]), info("shape", [2], T.INT64)], info("y", None), {})


def sample(folder: Path, **values: Any) -> dict[str, str]:
    folder.mkdir(parents=True)
    for name, value in values.items():
        (folder / f"{name}.pb").write_bytes(numpy_helper.from_array(np.asarray(value), name).SerializeToString())
    return {name: str(folder / f"{name}.pb") for name in values}


def build(
    pool: Pool, python: str, model: Path, *, samples: Any = (), out: Path | None = None, **settings: Any
) -> Reply:
    args = {
        "backend": {"name": "tensorrt", "flavor": "tensorrt_rtx", **settings},
        "model": str(model),
        "samples": list(samples),
        "out": str(out or model.parent),
        "keep": ["engine", "log", "layers"] if out else [],
    }
    return pool.call("build", args, python=python, timeout=120)


def test_an_engine_its_outputs_and_what_was_fused(pool: Pool, rtx_python: str, tmp_path: Path) -> None:
    reply = build(pool, rtx_python, small(tmp_path), out=tmp_path / "out")
    assert reply.value, reply
    assert reply.value["outputs"] == {"y": {"shape": [2, 3], "dtype": "float"}}
    assert (tmp_path / "out" / "model.engine").stat().st_size > 1000
    (layer,) = json.loads((tmp_path / "out" / "layers.json").read_text())
    assert sorted(layer["nodes"]) == ["first", "second"]
    assert "Parsing node: second" in (tmp_path / "out" / "build.log").read_text()


def test_builds_are_the_same_byte_for_byte(pool: Pool, rtx_python: str, tmp_path: Path) -> None:
    model = small(tmp_path)
    assert all(build(pool, rtx_python, model, out=tmp_path / name).value for name in "ab")
    one, other = (tmp_path / name / "model.engine" for name in "ab")
    assert one.read_bytes() == other.read_bytes()


def test_a_failing_build_leaves_the_worker_fit_for_the_next(pool: Pool, rtx_python: str, tmp_path: Path) -> None:
    node = helper.make_node("TopK", ["x", "k"], ["y", "i"], name="too_many")
    model = save(tmp_path, [node], [info("x", [1, 9000])], info("y", None), {"k": [5000]})
    for _ in range(2):
        failure = build(pool, rtx_python, model).failure
        assert failure and (failure.stage, failure.type) == ("build", "4: K exceeds the maximum value allowed #")
        again = build(pool, rtx_python, small(tmp_path / "small"))
        assert again.value, again


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"flags": ["FP16"]}, "flags=FP16 is not in tensorrt_rtx"),
        ({"clear_flags": ["NOPE"]}, "clear_flags=NOPE"),
        ({"config": {"level": 3}}, "config=level is not in"),
        ({"config": {"builder_optimization_level": "high"}}, "a whole number"),
        ({"config": {"runtime_platform": "BEOS"}}, "SAME_AS_BUILD"),
        ({"compute_capabilities": ["SM10"]}, "SM86"),
        ({"compute_capabilities": ["SM86", "NONE"]}, "NONE is refused"),
        ({"flags": ["fp16"]}, "strategy=precision"),
        ({"memory_pools": {"WORKSPACE": "1XB"}}, "512M"),
        ({"memory_pools": {"ATTIC": 1}}, "WORKSPACE"),
        ({"tactic_sources": ["CUBLAS_OLD"]}, "tactic_sources=CUBLAS_OLD"),
        ({"preview_features": {"X": True}}, "preview_features=X"),
        ({"parser_flags": ["X"]}, "NATIVE_INSTANCENORM"),
        ({"network_flags": ["X"]}, "STRONGLY_TYPED"),
        ({"strongly_typed": False}, "always strongly typed"),
        ({"plugins": ["/nowhere/lib.so"]}, "there is no such file"),
        ({"plugins": [__file__]}, "Unable to load library"),
        ({"flavor": "tensorrt_xtr"}, "flavor=tensorrt_xtr"),
        ({"config": {"builder_optimization_level": 99}}, "5 is as near as it goes"),
        ({"timing_cache": "/nowhere/cache"}, "times no tactics"),
    ],
)
def test_what_this_tensorrt_lacks(
    pool: Pool, rtx_python: str, tmp_path: Path, settings: dict[str, Any], said: str
) -> None:
    failure = build(pool, rtx_python, small(tmp_path), **settings).failure
    assert failure and failure.stage == "setup"
    assert said in failure.message


@pytest.mark.parametrize(
    "settings",
    [
        {"compute_capabilities": ["8.6", "sm120"]},
        {"config": {"builder_optimization_level": 1, "profiling_verbosity": "none"}},
        {"memory_pools": {"WORKSPACE": "64MiB"}, "flags": ["strict_nans"], "clear_flags": ["TF32"]},
    ],
)
def test_options_that_it_has(pool: Pool, rtx_python: str, tmp_path: Path, settings: dict[str, Any]) -> None:
    reply = build(pool, rtx_python, small(tmp_path), **settings)
    assert reply.value, reply


def test_profiles_are_made_of_the_samples_and_their_values(pool: Pool, rtx_python: str, tmp_path: Path) -> None:
    samples = [
        sample(tmp_path / "1", x=np.zeros((1, 6), np.float32), shape=np.array([2, 3])),
        sample(tmp_path / "2", x=np.zeros((4, 6), np.float32), shape=np.array([4, 6])),
    ]
    reply = build(pool, rtx_python, reshaping(tmp_path), samples=samples)
    assert reply.value, reply
    assert reply.value["outputs"]["y"]["shape"] == [-1, -1]


def test_without_samples_a_dynamic_input_says_what_to_give(pool: Pool, rtx_python: str, tmp_path: Path) -> None:
    model = reshaping(tmp_path)
    failure = build(pool, rtx_python, model).failure
    assert failure and failure.type == "MissingFeed"
    assert "target.profiles={x:" in failure.message
    given = {"profiles": {"x": {"min": [1, 6], "opt": [2, 6], "max": [4, 6]}}}
    given["shape_values"] = {"shape": {"min": [1, 6], "opt": [2, 6], "max": [4, 6]}}
    assert build(pool, rtx_python, model, **given).value


@pytest.mark.parametrize(
    "ranges", [[1], {"min": [1, 6]}, {"min": [2, 6], "opt": [1, 6], "max": [3, 6]}, "big", [[1, 5]]]
)
def test_ranges_that_are_none(pool: Pool, rtx_python: str, tmp_path: Path, ranges: Any) -> None:
    failure = build(
        pool, rtx_python, reshaping(tmp_path), profiles={"x": ranges}, shape_values={"shape": [2, 3]}
    ).failure
    assert failure and failure.stage == "setup"
    assert "profiles.x=" in failure.message


@pytest.mark.parametrize("held", [[2, 3, 1], [2, 2.5], {"min": [1, 1], "opt": [0, 6], "max": [4, 6]}, ["2", "3"]])
def test_shape_values_that_are_none(pool: Pool, rtx_python: str, tmp_path: Path, held: Any) -> None:
    given = {"profiles": {"x": [1, 6]}, "shape_values": {"shape": held}}
    failure = build(pool, rtx_python, reshaping(tmp_path), **given).failure
    assert failure and failure.stage == "setup"
    assert "shape_values.shape=" in failure.message


def test_a_flag_that_wants_a_gpu_is_no_failure_of_the_model(pool: Pool, rtx_python: str, tmp_path: Path) -> None:
    weights = np.ones((4, 3, 3, 3), np.float32)
    node = helper.make_node("Conv", ["x", "w"], ["y"], name="conv")
    model = save(tmp_path, [node], [info("x", [1, 3, 16, 16])], info("y", None), {"w": weights})
    reply = build(pool, rtx_python, model, flags=["REFIT"])
    if has_gpu():
        assert reply.value, reply
    else:
        assert reply.failure and (reply.failure.stage, reply.failure.type) == ("setup", "NoGpu"), reply


def test_not_installed(pool: Pool, tmp_path: Path) -> None:
    reply = pool.call(
        "build",
        {"backend": {"name": "tensorrt", "flavor": "tensorrt"}, "model": str(small(tmp_path)), "out": str(tmp_path)},
    )
    if reply.value:
        pytest.skip("TensorRT itself is installed here")
    failure = reply.failure
    assert failure and (failure.stage, failure.type) == ("setup", "NotInstalled")
    assert "pip install tensorrt" in failure.message and "target.python=" in failure.message
