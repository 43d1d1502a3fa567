"""A mixed-precision model judged without Winnow; ``python -m benchmarks.precision_natural --shared DIR`` asks.

With ``--shared DIR`` the evaluator of ``DIR/precision/rounding_evaluator.py`` runs models node by node and rounds each
output to the type that the file declares. Without it, ONNX Runtime runs the model as ``runner.backends.rounding``
rewrites it, with optimization disabled: the same emulation that Winnow itself uses, so the judgment is not its own.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import GraphProto, ModelProto, TensorProto, helper

from benchmarks.precision_networks import Feeds
from benchmarks.precision_rivals import run
from runner.backends.emulation.rounding import rounded

Table = dict[str, Any]
LEVELS = (0, 1, 2, 99)
LOW = (TensorProto.FLOAT16, TensorProto.BFLOAT16)
_FLOATS = (*LOW, TensorProto.FLOAT)


def error(found: Feeds, expected: Feeds, rtol: float, atol: float = 1e-5) -> float:
    """Return the worst error of any output in units of the tolerance, which goes by the output's largest value."""
    worst = 0.0
    for name, wanted in expected.items():
        got = wide(found[name])
        good = wide(wanted)
        if (
            got.shape != good.shape
            or (np.isnan(got) != np.isnan(good)).any()
            or (np.isinf(got) != np.isinf(good)).any()
        ):
            return float("inf")
        finite = np.isfinite(good)
        if finite.any():
            scale = np.abs(good[finite]).max()
            worst = max(worst, float(np.abs(got - good)[finite].max() / (atol + rtol * scale)))
    return worst


def wide(value: Any) -> Any:
    """Return numbers as float64, which holds all that others do."""
    value = np.asarray(value)
    return value.astype(np.float64) if value.dtype != object else value


class Judge:
    """Runs models with low precision rounded, by the evaluator that is given or by the emulation of Winnow."""

    def __init__(self, shared: Path | None, *, strict: bool = False) -> None:
        self.independent = shared is not None
        self._strict = strict
        if shared is not None:
            place = shared / "precision" / "rounding_evaluator.py"
            spec = importlib.util.spec_from_file_location("rounding_evaluator", place)
            assert spec and spec.loader
            self._module = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(self._module)

    def tables(self, model: ModelProto, samples: Sequence[Feeds]) -> list[tuple[Feeds, Table]]:
        """Return the outputs, and all tensors by name, for each sample."""
        if not self.independent:
            return [_exposed(model, feeds) for feeds in samples]
        evaluator, told = self._module.Ev(model, self._strict), []
        for feeds in samples:
            table: Table = {}
            told.append((evaluator.run(dict(feeds), table=table), table))
        return told

    def with_raised(self, model: ModelProto, raised: set[str], samples: Sequence[Feeds]) -> list[Feeds] | None:
        """Return the outputs with these nodes of an fp32 model in fp32 and all others in fp16."""
        if not self.independent:
            return None
        evaluator = self._module.Ev(model, self._strict)
        return [evaluator.run(dict(feeds), raised=raised, low=TensorProto.FLOAT16) for feeds in samples]


def _exposed(model: ModelProto, feeds: Feeds) -> tuple[Feeds, Table]:
    names = [name for node in model.graph.node for name in node.output if name]
    copy = ModelProto()
    copy.CopyFrom(model)
    made = rounded(copy)
    there = {name for node in made.graph.node for name in node.output}
    shown = {name: f"{name}__wide" if f"{name}__wide" in there else name for name in names}
    outputs = [value.name for value in made.graph.output]
    known = set(outputs)
    extra = [name for name in shown.values() if name not in known]
    made.graph.output.extend(helper.make_empty_tensor_value_info(name) for name in extra)
    values = dict(zip([*outputs, *extra], run(made, feeds, emulated=False), strict=True))
    return {name: values[name] for name in outputs}, {name: values[one] for name, one in shown.items()}


def expected(model: ModelProto, samples: Sequence[Feeds]) -> list[Feeds]:
    """Return what plain ONNX Runtime makes of a model, without optimization."""
    names = [value.name for value in model.graph.output]
    return [dict(zip(names, run(model, feeds, emulated=False), strict=True)) for feeds in samples]


def refused(path: Path) -> dict[int, str]:
    """Return the optimization levels at which plain ONNX Runtime does not load a model, with what it says."""
    found = {}
    for level in LEVELS:
        options = onnxruntime.SessionOptions()
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel(level)
        options.log_severity_level = 4
        try:
            onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        except Exception as problem:  # noqa: BLE001 - whatever it raises is what is reported
            found[level] = str(problem)
    return found


def low_weights(model: ModelProto) -> tuple[int, int]:
    """Return how many elements of matrices a file has in a low type, and how many in any float type."""
    low = total = 0
    for tensor in _tensors(model.graph):
        if len(tensor.dims) >= 2 and tensor.data_type in _FLOATS:
            size = int(np.prod(tensor.dims))
            total += size
            low += size if tensor.data_type in LOW else 0
    return low, total


def _tensors(graph: GraphProto) -> Iterator[TensorProto]:
    yield from graph.initializer
    for node in graph.node:
        for attribute in node.attribute:
            if node.op_type == "Constant" and attribute.HasField("t"):
                yield attribute.t
            if attribute.HasField("g"):
                yield from _tensors(attribute.g)


def valid(path: Path) -> bool:
    """Whether the checker of ONNX takes a file, with full type inference."""
    try:
        onnx.checker.check_model(str(path), full_check=True)
    except Exception:  # noqa: BLE001 - whatever it raises
        return False
    return True
