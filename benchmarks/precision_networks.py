"""Networks that fail in fp16 in natural ways, with their inputs; and a judge of mixed precision without Winnow.

The judge runs a model in emulated low precision on fresh samples, and tells what a new Inf or NaN inside does.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.random import Generator
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

from benchmarks import session
from benchmarks.planted_models import Network
from runner.backends.rounding import WIDE, rounded

Feeds = Mapping[str, Any]
TOKENS = 12


@dataclass(frozen=True)
class Case:
    """A model and where its inputs come from. ``held``: not looked at while anything is tuned."""

    name: str
    model: ModelProto
    draw: Callable[[Generator], Feeds]
    held: bool = False

    def samples(self, seed: int, count: int) -> list[Feeds]:
        """Return inputs of the one distribution; other seeds give others."""
        return [self.draw(np.random.default_rng([seed, number])) for number in range(count)]


class Net(Network):
    """A network with blocks that have names: those of its nodes begin with them."""

    block = ""

    def named(self, operator: str, _out: str) -> tuple[str, str]:
        """Return the names of the next node and of what it makes."""
        name = f"{self.block}{operator}_{len(self.nodes)}"
        return name, f"{name}_out"

    def const(self, value: Any, dtype: Any = np.float32) -> str:
        """Add an initializer; return its name."""
        return self.constant(np.asarray(value, dtype), f"{self.block}c")

    def drawn(self, *shape: int, scale: float = 1.0, mean: float = 0.0) -> str:
        """Add random weights."""
        return self.const(self.draw.normal(mean, scale, shape))

    def linear(self, x: str, width: int, out: int, gain: float = 1.0, mean: float = 0.0) -> str:
        """A projection with a bias."""
        made = self.add("MatMul", x, self.drawn(width, out, scale=gain / width**0.5))
        return self.add("Add", made, self.drawn(out, scale=0.1, mean=mean))

    def mean(self, x: str) -> str:
        """The mean over the last axis."""
        return self.add("ReduceMean", x, self.const([-1], np.int64), keepdims=1)

    def reshape(self, x: str, shape: Sequence[int]) -> str:
        """A reshape."""
        return self.add("Reshape", x, self.const(shape, np.int64))

    def ended(self, inputs: Sequence[tuple[str, int, Sequence[int]]], output: str, shape: Sequence[int]) -> ModelProto:
        """Return the model; its output is called ``y``."""
        self.nodes.append(helper.make_node("Identity", [output], ["y"], "out"))
        infos = [helper.make_tensor_value_info(*one) for one in (*inputs, ("y", TensorProto.FLOAT, shape))]
        made = self.between(infos[:-1], infos[-1:], "net", 18, 9)
        onnx.checker.check_model(made, full_check=True)
        return made


def _layer_norm(net: Net, x: str, width: int, epsilon: float) -> str:
    centered = net.add("Sub", x, net.mean(x))
    variance = net.mean(net.add("Mul", centered, centered))
    divisor = net.add("Sqrt", net.add("Add", variance, net.const(epsilon)))
    scaled = net.add("Mul", net.add("Div", centered, divisor), net.drawn(width, scale=0.1, mean=1.0))
    return net.add("Add", scaled, net.drawn(width, scale=0.1))


def _mlp(net: Net, x: str, width: int) -> str:
    hidden = net.add("Relu", net.linear(x, width, 2 * width))
    return net.linear(hidden, 2 * width, width, gain=0.7)


def _heads(net: Net, x: str, width: int, heads: int, gain: float = 1.0) -> str:
    made = net.reshape(net.linear(x, width, width, gain), [1, TOKENS, heads, width // heads])
    return net.add("Transpose", made, perm=[0, 2, 1, 3])


def _attended(net: Net, logits: str, values: str, width: int) -> str:
    """What attention makes of its logits and values."""
    mixed = net.add("MatMul", net.add("Softmax", logits, axis=-1), values)
    merged = net.reshape(net.add("Transpose", mixed, perm=[0, 2, 1, 3]), [1, TOKENS, width])
    return net.linear(merged, width, width)


def constant_rows(seed: int, width: int = 32, depth: int = 4) -> Case:
    """Padded tokens are rows of zeros: their variance is 0, and an epsilon of 1e-12 is 0 in fp16."""
    net = Net(seed)
    x = net.linear("x", width, width)
    for number in range(depth):
        net.block = f"block{number}/"
        padded = net.add("Mul", x, "mask")
        x = net.add("Add", padded, _mlp(net, _layer_norm(net, padded, width, 1e-12), width))
    inputs = [("x", TensorProto.FLOAT, [1, TOKENS, width]), ("mask", TensorProto.FLOAT, [1, TOKENS, 1])]
    model = net.ended(inputs, x, [1, TOKENS, width])

    def draw(rng: Generator) -> Feeds:
        mask = (np.arange(TOKENS) < rng.integers(TOKENS // 2, TOKENS)).astype(np.float32).reshape(1, TOKENS, 1)
        return {"x": rng.normal(0, 1, (1, TOKENS, width)).astype(np.float32), "mask": mask}

    return Case("eps 1e-12, constant rows", model, draw)


def large_scores(seed: int, width: int = 64, depth: int = 3, heads: int = 4) -> Case:
    """Queries and keys of a few hundred: their products are beyond 65504 before the scale makes logits of them."""
    net, x, gain = Net(seed), "x", 120.0
    for number in range(depth):
        net.block = f"block{number}/"
        normed = _layer_norm(net, x, width, 1e-5)
        query = _heads(net, normed, width, heads, gain)
        key = net.add("Transpose", _heads(net, normed, width, heads, gain), perm=[0, 1, 3, 2])
        # logits of about 3: the temperature was learnt to go with the gain
        scale = 3.0 / (gain**2 * (width // heads) ** 0.5)
        logits = net.add("Mul", net.add("MatMul", query, key), net.const(scale))
        x = net.add("Add", x, _attended(net, logits, _heads(net, normed, width, heads), width))
        x = net.add("Add", x, _mlp(net, _layer_norm(net, x, width, 1e-5), width))
    model = net.ended([("x", TensorProto.FLOAT, [1, TOKENS, width])], x, [1, TOKENS, width])
    return Case("Q.K overflows", model, lambda rng: {"x": rng.normal(0, 1, (1, TOKENS, width)).astype(np.float32)})


def cancelled_variance(seed: int, width: int = 32, depth: int = 5, mean: float = 14.0) -> Case:
    """A variance as E[x^2] - E[x]^2 where the mean is some 14 times the deviation."""
    net = Net(seed)
    x = net.linear("x", width, width)
    for number in range(depth):
        net.block = f"block{number}/"
        hidden = net.linear(x, width, width, mean=mean)
        average = net.mean(hidden)
        squares = net.mean(net.add("Mul", hidden, hidden))
        variance = net.add("Sub", squares, net.add("Mul", average, average))
        divisor = net.add("Sqrt", net.add("Add", variance, net.const(1e-3)))
        normed = net.add("Div", net.add("Sub", hidden, average), divisor)
        normed = net.add("Relu", net.add("Mul", normed, net.drawn(width, scale=0.1, mean=1.0)))
        x = net.add("Add", x, net.linear(normed, width, width))
    model = net.ended([("x", TensorProto.FLOAT, [8, width])], x, [8, width])
    return Case("E[x2] - E[x]2", model, lambda rng: {"x": rng.normal(0, 1, (8, width)).astype(np.float32)})


def _turned(net: Net, x: str, cosine: str, sine: str, size: int) -> str:
    axis = net.const([3], np.int64)
    bounds = [net.const([value], np.int64) for value in (0, size // 2, size)]
    first = net.add("Slice", x, bounds[0], bounds[1], axis)
    second = net.add("Slice", x, bounds[1], bounds[2], axis)
    half = net.add("Concat", net.add("Neg", second), first, axis=3)
    return net.add("Add", net.add("Mul", x, cosine), net.add("Mul", half, sine))


def rotary(seed: int, width: int = 32, depth: int = 2, heads: int = 2) -> Case:
    """Angles at positions of about 5000, made in the model: fp16 has only each fourth number there."""
    net, x, size = Net(seed), "x", width // heads
    for number in range(depth):
        net.block = f"block{number}/"
        where = net.reshape(net.add("Cast", "position", to=TensorProto.FLOAT), [1, 1, TOKENS, 1])
        frequency = 100.0 ** (-np.arange(size // 2) / (size // 2))
        angles = net.add("Mul", where, net.const(frequency.reshape(1, 1, 1, -1)))
        both = net.add("Concat", angles, angles, axis=3)
        cosine, sine = net.add("Cos", both), net.add("Sin", both)
        normed = _layer_norm(net, x, width, 1e-5)
        query = _turned(net, _heads(net, normed, width, heads), cosine, sine, size)
        key = _turned(net, _heads(net, normed, width, heads), cosine, sine, size)
        scores = net.add("MatMul", query, net.add("Transpose", key, perm=[0, 1, 3, 2]))
        logits = net.add("Mul", scores, net.const(size**-0.5))
        x = net.add("Add", x, _attended(net, logits, _heads(net, normed, width, heads), width))
    inputs = [("x", TensorProto.FLOAT, [1, TOKENS, width]), ("position", TensorProto.INT64, [TOKENS])]
    model = net.ended(inputs, x, [1, TOKENS, width])

    def draw(rng: Generator) -> Feeds:
        position = rng.integers(4000, 6000) + np.arange(TOKENS)
        return {"x": rng.normal(0, 1, (1, TOKENS, width)).astype(np.float32), "position": position.astype(np.int64)}

    return Case("rotary angles at 5000", model, draw)


def natural(seed: int = 0) -> list[Case]:
    """Return the four kinds, and the half that is held back: other seeds, widths and depths. ``seed``: all others."""
    shown = [constant_rows(seed + 11), large_scores(seed + 12), cancelled_variance(seed + 13), rotary(seed + 14)]
    held = [
        constant_rows(seed + 901, width=48, depth=6),
        large_scores(seed + 902, width=48, depth=2, heads=3),
        cancelled_variance(seed + 903, width=64, depth=8, mean=20.0),
        rotary(seed + 904, width=48, depth=3, heads=3),
    ]
    return [*shown, *(replace(one, held=True) for one in held)]


Table = dict[str, Any]
LEVELS = (0, 1, 2, 99)
LOW = (TensorProto.FLOAT16, TensorProto.BFLOAT16)


def error(found: Feeds, expected: Feeds, rtol: float, atol: float = 1e-5) -> float:
    """Return the worst error of any output in units of the tolerance, which goes by the output's largest value."""
    worst = 0.0
    for name, wanted in expected.items():
        got = wide(found[name])
        good = wide(wanted)
        if got.shape != good.shape or any((kind(got) != kind(good)).any() for kind in (np.isnan, np.isinf)):
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
        self._strict, self._module = strict, None
        if shared is not None:
            place = shared / "precision" / "rounding_evaluator.py"
            spec = importlib.util.spec_from_file_location("rounding_evaluator", place)
            assert spec and spec.loader
            self._module = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(self._module)

    def tables(self, model: ModelProto, samples: Sequence[Feeds]) -> list[tuple[Feeds, Table]]:
        """Return the outputs, and all tensors by name, for each sample."""
        if self._module is None:
            return [_exposed(model, feeds) for feeds in samples]
        evaluator, told = self._module.Ev(model, self._strict), []
        for feeds in samples:
            table: Table = {}
            told.append((evaluator.run(dict(feeds), table=table), table))
        return told

    def with_raised(self, model: ModelProto, raised: set[str], samples: Sequence[Feeds]) -> list[Feeds] | None:
        """Return the outputs with these nodes of an fp32 model in fp32 and all others in fp16."""
        if self._module is None:
            return None
        evaluator = self._module.Ev(model, self._strict)
        return [evaluator.run(dict(feeds), raised=raised, low=TensorProto.FLOAT16) for feeds in samples]


DATA_MAX, INIT_MAX = 512.0, 65504.0
"""AutoCast's defaults."""


def run(model: ModelProto, feeds: Mapping[str, Any]) -> list[Any]:
    """Run a model in plain ONNX Runtime, without optimization."""
    loaded = session(model)
    wanted = {value.name for value in loaded.get_inputs()}
    return list(loaded.run(None, {name: value for name, value in feeds.items() if name in wanted}))


def beyond_range(model: ModelProto, feeds: Mapping[str, Any]) -> set[str]:
    """Return the names of the nodes that AutoCast's range rule keeps in high precision."""
    probed = deepcopy(model)
    floats = {
        value.name
        for value in onnx.shape_inference.infer_shapes(model).graph.value_info
        if value.type.tensor_type.elem_type == TensorProto.FLOAT
    }
    del probed.graph.output[:]
    probed.graph.output.extend(helper.make_empty_tensor_value_info(name) for name in sorted(floats))
    values = dict(zip(sorted(floats), run(probed, feeds), strict=True))
    large = {name for name, value in values.items() if value.size and np.abs(value).max() > DATA_MAX}
    for tensor in model.graph.initializer:
        if tensor.data_type == TensorProto.FLOAT:
            weight = numpy_helper.to_array(tensor)
            large |= {tensor.name} if weight.size and np.abs(weight).max() > INIT_MAX else set()
    return {node.name for node in model.graph.node if large & {*node.input, *node.output}}


def _exposed(model: ModelProto, feeds: Feeds) -> tuple[Feeds, Table]:
    names = [name for node in model.graph.node for name in node.output if name]
    made = rounded(deepcopy(model))
    there = {name for node in made.graph.node for name in node.output}
    shown = {name: f"{name}{WIDE}" if f"{name}{WIDE}" in there else name for name in names}
    outputs = [value.name for value in made.graph.output]
    known = set(outputs)
    extra = [name for name in shown.values() if name not in known]
    made.graph.output.extend(helper.make_empty_tensor_value_info(name) for name in extra)
    values = dict(zip([*outputs, *extra], run(made, feeds), strict=True))
    return {name: values[name] for name in outputs}, {name: values[one] for name, one in shown.items()}


def expected(model: ModelProto, samples: Sequence[Feeds]) -> list[Feeds]:
    """Return what plain ONNX Runtime makes of a model, without optimization."""
    names = [value.name for value in model.graph.output]
    return [dict(zip(names, run(model, feeds), strict=True)) for feeds in samples]


def refused(path: Path) -> dict[int, str]:
    """Return the optimization levels at which plain ONNX Runtime does not load a model, with what it says."""
    found = {}
    for level in LEVELS:
        try:
            session(path, level)
        except Exception as problem:  # noqa: BLE001, PERF203 - whatever it raises is what is reported
            found[level] = str(problem)
    return found


def valid(path: Path) -> bool:
    """Whether the checker of ONNX takes a file, with full type inference."""
    try:
        onnx.checker.check_model(str(path), full_check=True)
    except Exception:  # noqa: BLE001 - whatever it raises
        return False
    return True


WRONG = 0.02
"""Beyond this share of the largest value the first finite tensor after an infinity is wrong."""


@dataclass(frozen=True)
class Infinity:
    """A tensor that is not finite in the mixed model and was in the original.

    ``harmed``: the finite tensors right after it that are wrong because of it; ``wrong``: those that are wrong.
    """

    tensor: str
    wrong: tuple[str, ...]
    harmed: tuple[str, ...]


def infinities(
    mixed: ModelProto, samples: Sequence[Feeds], before: Sequence[Table], after: Sequence[Table]
) -> list[Infinity]:
    """Return the tensors that became Inf or NaN in any sample, with what comes of them."""
    nodes = list(mixed.graph.node)
    constants = {tensor.name: numpy_helper.to_array(tensor) for tensor in mixed.graph.initializer}
    outputs = {value.name for value in mixed.graph.output}
    wrong: dict[str, set[str]] = {}
    harmed: dict[str, set[str]] = {}
    for feeds, own, table in zip(samples, before, after, strict=True):
        plain = _with_casts(own, nodes)
        for name in (name for name, value in table.items() if not finite(value) and finite(plain.get(name))):
            beyond, harm = wrong.setdefault(name, set()), harmed.setdefault(name, set())
            for node in (node for node in nodes if name in node.input):
                off = {made for made in node.output if made and _differ(table.get(made), plain.get(made))}
                beyond |= off
                if off:
                    again = _repaired(mixed, node, {**constants, **feeds, **table}, plain)
                    harm |= {made for made in off if again is None or _differ(table[made], again.get(made))}
            beyond |= {name} & outputs
            harm |= {name} & outputs
    return [Infinity(name, tuple(sorted(wrong[name])), tuple(sorted(harmed[name]))) for name in wrong]


def _repaired(mixed: ModelProto, node: NodeProto, values: Mapping[str, Any], plain: Table) -> Table | None:
    """Return what a node makes, in fp32, of its inputs with what is not finite as the original has it, or None."""
    feeds, alone = {}, deepcopy(node)
    for place, name in enumerate(node.input):
        if not name:
            continue
        if name not in values:
            return None
        value = np.asarray(values[name])
        if not _is_integral(value):
            value = wide(value).astype(np.float32)
            good = plain.get(name)
            if good is not None and np.shape(good) == value.shape:
                value = np.where(np.isfinite(value), value, wide(good).astype(np.float32))
        alone.input[place] = f"in_{place}"
        feeds[f"in_{place}"] = value
    for attribute in alone.attribute:
        if attribute.name in ("to", "dtype", "output_dtype") and attribute.i in LOW:
            attribute.i = TensorProto.FLOAT
    inputs = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(value.dtype), value.shape)
        for name, value in feeds.items()
    ]
    made = [helper.make_empty_tensor_value_info(name) for name in node.output if name]
    graph = helper.make_graph([alone], "again", inputs, made)
    model = helper.make_model(graph, opset_imports=mixed.opset_import, ir_version=min(mixed.ir_version, 10))
    try:
        return dict(zip(filter(None, node.output), session(model).run(None, feeds), strict=True))
    except Exception:  # noqa: BLE001 - what cannot be run again is held to be harmed
        return None


def _with_casts(plain: Table, nodes: Sequence[NodeProto]) -> Table:
    """Return a table of the original with what casts were added for: what goes in should be what comes out."""
    found = dict(plain)
    for source, made in ((node.input[0], node.output[0]) for node in nodes if node.op_type == "Cast"):
        if source in found:
            found.setdefault(made, found[source])
        elif made in found:
            found.setdefault(source, found[made])
    return found


def finite(value: Any) -> bool:
    """Whether all is finite; a tensor that the original does not have is held to be."""
    return value is None or _is_integral(value) or bool(np.isfinite(wide(value)).all())


def _is_integral(value: Any) -> bool:
    return np.asarray(value).dtype.kind in "iubOSU"


def _differ(found: Any, good: Any) -> bool:
    if found is None or good is None or not finite(found) or not finite(good):
        return False
    found, good = np.asarray(found), np.asarray(good)
    if found.shape != good.shape or _is_integral(good):
        return not np.array_equal(found, good)
    difference = np.abs(wide(found) - wide(good))
    return bool(difference.size and difference.max() > WRONG * np.abs(wide(good)).max())
