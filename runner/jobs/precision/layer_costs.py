"""What layers cost in high precision, and how much of a mixed model is low: nodes, FLOPs, weights."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

from onnx import NodeProto, TensorProto

from runner.jobs.precision.prepare_model import FloatNode, float_nodes
from runner.jobs.precision.regions import RegionMixer
from runner.jobs.precision.setup import PrecisionModel
from runner.judgment import UsageError
from runner.model.graph.low_precision import pairs_of
from runner.model.graph.scopes import initializers
from runner.model.values import tensor_bytes
from runner.model.values.dtypes import FLOATS
from runner.reference.load import Loaded
from runner.schema.strategy import PrecisionSettings

Shapes = Mapping[str, tuple[int, ...]]

_PRODUCTS = ("MatMul", "Gemm", "FusedMatMul", "FusedGemm")
_CONVOLUTIONS = ("Conv", "FusedConv", "NhwcFusedConv")
_ATTENTIONS = ("Attention", "MultiHeadAttention", "GroupQueryAttention")


def nodes_of(casting: PrecisionModel) -> tuple[FloatNode, ...]:
    """Return the float nodes that count: all; where only Q/DQ pairs make the difference, those that read one."""
    mixer = casting.mixer
    found = float_nodes(mixer.model, mixer.types, mixer.pair, mixer.layers, mixer.contrib)
    return tuple(one for one in found if one.index is not None or not casting.quantized)


def low_share(casting: PrecisionModel, loaded: Loaded, raised: frozenset[int]) -> dict[str, float]:
    """Return the shares that are low in the model in which the layers of ``raised`` are high, between 0 and 1.

    ``nodes``; ``flops``: of the top-level ones, estimated from the shapes that were recorded; ``weights``: of the
    numbers that nodes read, those of a weight that is there in both types twice.
    """
    counts, work, stored = [0.0, 0.0], [0.0, 0.0], dict[tuple[str, bool], int]()
    for high, flops, weights in _parts(casting, loaded, raised):
        counts[high] += 1
        work[high] += flops
        stored |= {(name, high): size for name, size in weights.items()}
    numbers = (float(sum(size for (_, high), size in stored.items() if high is side)) for side in (False, True))
    return {"nodes": _share(*counts), "flops": _share(*work), "weights": _share(*numbers)}


def _parts(
    casting: PrecisionModel, loaded: Loaded, raised: frozenset[int]
) -> Iterator[tuple[bool, float, Mapping[str, int]]]:
    """Yield of each part of a model whether it is high, its arithmetic, and its weights with their sizes."""
    mixer = casting.mixer
    if isinstance(mixer, RegionMixer):
        work = arithmetic(casting, loaded)
        yield from ((at in raised, work[at], {str(at): one.weights}) for at, one in enumerate(mixer.found))
        return
    shapes = _shapes(casting, loaded)
    held = {one.name: one for one in initializers(mixer.model) if one.data_type in FLOATS}
    held |= {name: one.constant for pairs in pairs_of(mixer.model.graph) for name, one in pairs.items() if one.constant}
    sizes = {name: tensor_bytes.elements(one.dims) for name, one in held.items()}
    for one in nodes_of(casting):
        weights = {name: sizes[name] for name in one.node.input if name in sizes}
        yield one.is_high(raised), 0.0 if one.number else _flops(one.node, shapes), weights


def arithmetic(casting: PrecisionModel, loaded: Loaded) -> dict[int, float]:
    """Estimate the floating-point operations of each top-level layer from the shapes that were recorded."""
    shapes, nodes = _shapes(casting, loaded), casting.mixer.model.graph.node
    if isinstance(casting.mixer, RegionMixer) and loaded.inherited:
        parent = loaded.inherited.parent
        shapes = {name: one.shape for sample in parent.values[:1] for name, one in sample.items()}
        weights = ((name, one) for name, one in parent.graph.initializers.items() if isinstance(one, TensorProto))
        shapes |= {name: tuple(one.dims) for name, one in weights}
        return {
            index: sum(_flops(parent.graph.protos[at], shapes) for at in one.parent)
            for index, one in enumerate(casting.mixer.found)
        }
    return {
        index: 0.0 if layer.nested else _flops(nodes[layer.key[1]], shapes)
        for index, layer in enumerate(casting.layers)
    }


def costs_of(strategy: PrecisionSettings, casting: PrecisionModel, loaded: Loaded) -> dict[int, float]:
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


def _shapes(casting: PrecisionModel, loaded: Loaded) -> Shapes:
    shapes: dict[str, tuple[int, ...]] = {}
    for sample in loaded.recorded.values[:1]:
        shapes = {name: tensor.shape for name, tensor in sample.items()}
    return shapes | {tensor.name: tuple(tensor.dims) for tensor in casting.mixer.model.graph.initializer}


def _flops(node: NodeProto, shapes: Shapes) -> float:
    made = float(sum(math.prod(shapes.get(name, ())) for name in node.output if name in shapes))
    first, second = (*(shapes.get(name, ()) for name in node.input[:2]), (), ())[:2]
    if node.op_type in _ATTENTIONS:
        return made + _attention(node, first, second)
    if not first or not second:
        return made
    if node.op_type in _PRODUCTS:
        turned = any(attribute.name == "transA" and attribute.i for attribute in node.attribute)
        return 2.0 * made * (first[-2] if turned and len(first) > 1 else first[-1])
    inner = math.prod(second[1:])  # of a weight: (M, C/group, k...), or (C, M/group, k...)
    if node.op_type in _CONVOLUTIONS:
        return 2.0 * made * inner
    return 2.0 * math.prod(first) * inner if node.op_type == "ConvTranspose" else made


def _attention(node: NodeProto, first: tuple[int, ...], second: tuple[int, ...]) -> float:
    """Return the work of ONNX Runtime's attentions: logits and their product with the values, and what they project."""
    if len(first) != 3 or not node.domain:
        return 0.0
    batch, length, width = first
    if node.op_type == "Attention":
        projected = 2.0 * batch * length * width * (second[-1] if second else 0)
        return projected + 4.0 * batch * length * length * width
    return 4.0 * batch * length * (second[1] if len(second) == 3 else length) * width


def _share(low: float, high: float) -> float:
    return round(low / (low + high), 6) if low + high else 1.0
