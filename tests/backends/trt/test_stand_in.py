"""The stand-in for TensorRT has the names, arguments, answers and numbers of the libraries that are here."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.fake_tensorrt import SITE, install
from tests.harness import ROOT

# what the bindings' documentation says that calls give back whose answer decides something
ANSWERS = {
    "IExecutionContext.set_input_shape": "bool",
    "IExecutionContext.set_tensor_address": "bool",
    "IExecutionContext.set_output_allocator": "bool",
    "IExecutionContext.execute_async_v3": "bool",
    "IExecutionContext.infer_shapes": "list[str]",
    "IOptimizationProfile.set_shape": "None",
    "IBuilderConfig.set_timing_cache": "bool",
    "IBuilderConfig.add_optimization_profile": "int",
    "init_libnvinfer_plugins": "bool",
}
REAL = """
import json, re, sys
from runner.backends.trt.library import load
api = load("tensorrt_rtx").api

def arguments(text):
    depth, found, part = 0, [], ""
    for sign in text + ",":
        depth += (sign in "([<{") - (sign in ")]>}")
        if sign == "," and not depth:
            found.append(part.split(":")[0].strip())
            part = ""
        else:
            part += sign
    return [name for name in found if name and name != "self"]

def told(function):
    # a binding's documentation begins with its signatures: name(self: T, a: T = .., b: T) -> T
    lines = re.findall(r"^(?:\\d+\\. )?\\w+\\((.*)\\) -> (.+)$", function.__doc__ or "", re.M)
    return [[arguments(text), answer.rpartition(".")[2] if "[" not in answer else answer] for text, answer in lines]

found = {"": {name: told(getattr(api, name)) for name in ["init_libnvinfer_plugins"]}, "numbers": {}, "documents": {}}
for name in json.loads(sys.argv[1]):
    kind = getattr(api, name)
    if hasattr(kind, "__members__"):
        found["numbers"][name] = {one: int(member) for one, member in kind.__members__.items()}
    else:
        found[name] = {one: told(getattr(kind, one)) for one in dir(kind) if not one.startswith("_")}
        found["documents"][name] = kind.__doc__ or ""
print(json.dumps(found))
"""
PRETENDED = """
import inspect, json
import tensorrt_rtx as api

found = {"numbers": {}}
for name in sorted(name for name, value in vars(api).items() if isinstance(value, type)):
    kind = getattr(api, name)
    if hasattr(kind, "__members__"):
        found["numbers"][name] = {one: int(member) for one, member in kind.__members__.items()}
    elif isinstance(kind, type):
        own = {one: value for one, value in vars(kind).items() if not one.startswith("_")}
        found[name] = {
            one: [name for name in inspect.signature(getattr(kind, one)).parameters if name != "self"]
            if callable(getattr(kind, one)) and not isinstance(getattr(kind, one), type) else None
            for one in own
        }
print(json.dumps(found))
"""


def said_by(python: str, script: str, *words: str) -> Any:
    done = subprocess.run([python, "-c", script, *words], capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_it_has_the_binding_s_names_arguments_and_numbers(rtx_python: str, tmp_path: Path) -> None:
    mine = said_by(str(install(tmp_path, "rtx").python), PRETENDED)
    names = [name for name in (*mine, *mine["numbers"]) if name != "numbers"]
    real = said_by(rtx_python, REAL, json.dumps(names))
    for kind, members in mine["numbers"].items():
        assert members.items() <= real["numbers"][kind].items(), kind
    for kind, own in mine.items():
        for name, arguments in own.items() if kind != "numbers" else ():
            assert name in real[kind], f"{kind} has no {name}"
            assert arguments is None or arguments in [one[0] for one in real[kind][name]], (kind, name, arguments)
    for call, answer in ANSWERS.items():
        kind, _, name = call.rpartition(".")
        assert {one[1] for one in real[kind][name]} == {answer}, call
    # what Python code may override stands in the documentation alone
    for line in (
        "def reallocate_output_async(self, tensor_name, memory, size, alignment, stream):",
        "def notify_shape(self, tensor_name, shape):",
    ):
        assert line in real["documents"]["IOutputAllocator"]


def test_an_allocator_is_made_by_the_real_binding(rtx_python: str) -> None:
    script = (
        "from runner.backends.trt.library import load; from runner.backends.trt.engine import allocator_of;"
        "api = load('tensorrt_rtx').api; made = allocator_of(api);"
        "print(isinstance(made, api.IOutputAllocator) * 1)"
    )
    assert said_by(rtx_python, script) == 1


def test_cuda_s_names_and_numbers() -> None:
    runtime = pytest.importorskip("cuda.bindings.runtime", reason="cuda-python is not installed")
    script = "import json; from stand_in import cuda; print(json.dumps([{k.name: int(k) for k in e} for e in "
    script += "(cuda.cudaError_t, cuda.cudaMemcpyKind)] + [[n for n in dir(cuda) if n.startswith('cuda')]]))"
    errors, kinds, names = said_by(sys.executable, f"import sys; sys.path.insert(0, {str(SITE)!r}); {script}")
    assert all(int(getattr(runtime.cudaError_t, name)) == number for name, number in errors.items())
    assert all(int(getattr(runtime.cudaMemcpyKind, name)) == number for name, number in kinds.items())
    assert set(names) <= set(dir(runtime))
