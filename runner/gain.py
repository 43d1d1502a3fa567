"""What a mixed-precision model gains."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from onnx import NodeProto, TensorProto

from runner.casting import Casting
from runner.errors import UsageError
from runner.loading import Loaded
from runner.model import storage
from runner.model.cast.quantized import pairs_of
from runner.prior import Facts
from runner.reasons import reason
from runner.schema.strategy import PrecisionSettings
from strategies.trial import Trial

_PRODUCTS = ("MatMul", "Gemm", "Conv", "ConvTranspose")


def gain(strategy: PrecisionSettings, casting: Casting, known: Facts, loaded: Loaded, raised: Trial) -> dict[str, Any]:
    """Return what ``precision`` in result.json holds."""
    layers, work = casting.layers, arithmetic(casting, loaded)
    names = [layers[index].path for index in sorted(raised.elements)]
    weights = _weights(casting)
    total_weights, total_work = sum(weights.values()), sum(work.values())
    high_weights = sum(count for index, count in weights.items() if index in raised.elements)
    high_work = sum(count for index, count in work.items() if index in raised.elements)
    return {
        "high": strategy.high.value,
        "low": strategy.low.value,
        "selected": [
            {
                "node": layers[index].path,
                "op": layers[index].op_type,
                "nested": layers[index].nested,
                "reason": reason(casting, known, loaded, index, strategy.low.value),
            }
            for index in sorted(raised.elements)
        ],
        "low_share": {
            "nodes": _share(len(raised), len(layers)),
            "flops": _share(high_work, total_work),
            "weights": _share(high_weights, total_weights),
        },
        "nodes_to_exclude": names,
        "inlined": {
            layers[index].path: casting.inlined[name]
            for index in sorted(raised.elements)
            for name in layers[index].writes[:1]
            if name in casting.inlined
        },
        "layer_precisions": {
            name: {"float32": "fp32", "float16": "fp16", "bfloat16": "bf16"}[strategy.high.value] for name in names
        },
        "clamped": dict(casting.clamped),
        "flushed": dict(casting.flushed),
    }


def table(strategy: PrecisionSettings, casting: Casting, loaded: Loaded) -> dict[int, float]:
    """Return what each layer costs in high precision: the user's table, else its arithmetic.

    Raises UsageError for names that are none, and for costs that are no costs.
    """
    if not strategy.costs:
        return arithmetic(casting, loaded)
    known = {layer.path for layer in casting.layers}
    if strangers := [name for name in strategy.costs if name not in known]:
        shown = ", ".join(sorted(known)[:3])
        raise UsageError(
            f"strategy.costs: no node that can run in both precisions is called {strangers[0]!r}; they are {shown}"
            f"{' and others' * (len(known) > 3)}"
        )
    for name, cost in strategy.costs.items():
        if not 0 <= cost < math.inf:
            raise UsageError(f"strategy.costs.{name}={cost}: a cost is a number that is not negative")
    return {index: float(strategy.costs.get(layer.path, 0.0)) for index, layer in enumerate(casting.layers)}


def arithmetic(casting: Casting, loaded: Loaded) -> dict[int, float]:
    """Estimate the floating-point operations of each top-level layer from the shapes that were recorded."""
    shapes: dict[str, tuple[int, ...]] = {}
    for sample in loaded.recorded.values[:1]:
        shapes = {name: tensor.shape for name, tensor in sample.items()}
    shapes |= {tensor.name: tuple(tensor.dims) for tensor in casting.mixer.model.graph.initializer}
    nodes = casting.mixer.model.graph.node
    return {
        index: 0.0 if layer.nested else _flops(nodes[layer.key[1]], shapes)
        for index, layer in enumerate(casting.layers)
    }


def _flops(node: NodeProto, shapes: Mapping[str, tuple[int, ...]]) -> float:
    made = float(sum(math.prod(shapes.get(name, ())) for name in node.output if name in shapes))
    if node.op_type not in _PRODUCTS or len(node.input) < 2:
        return made
    first, second = (shapes.get(name, ()) for name in node.input[:2])
    if not first or not second:
        return made
    if node.op_type in ("MatMul", "Gemm"):
        turned = any(attribute.name == "transA" and attribute.i for attribute in node.attribute)
        return 2.0 * made * (first[0] if turned else first[-1])
    inner = math.prod(second[1:])  # of a weight: (M, C/group, k...), or (C, M/group, k...)
    return 2.0 * (made if node.op_type == "Conv" else float(math.prod(first))) * inner


def _weights(casting: Casting) -> dict[int, int]:
    """Return the float weights that each layer reads."""
    sizes = {
        tensor.name: storage.elements(tensor.dims)
        for tensor in casting.mixer.model.graph.initializer
        if isinstance(tensor, TensorProto) and tensor.data_type in casting.pair
    }
    for pairs in pairs_of(casting.mixer.model.graph):
        sizes |= {name: storage.elements(pair.constant.dims) for name, pair in pairs.items() if pair.constant}
    return {index: sum(sizes.get(name, 0) for name in layer.reads) for index, layer in enumerate(casting.layers)}


def _share(high: float, total: float) -> float:
    return round(1.0 - high / total, 6) if total else 1.0
