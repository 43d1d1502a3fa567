"""Which tensors depend on the input data: with their value, their shape, or even their rank.

The shape of an activation is the same for all data of the same input shapes, so ``Shape`` of it is a constant. The
shape of what ``NonZero`` gives is not. A node gives the least of what its inputs have, with these exceptions: operators
that read a shape, operators whose output's shape is decided by the value of an input, and bodies, which are looked at
from inside. Of an operator that nobody knows only what the file declares is believed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import onnx
from onnx import FunctionProto, GraphProto, ModelProto, NodeProto, TypeProto

from runner.model.graph import scopes

# what is the same for all data of the same input shapes: nothing, the rank, the shape, the value
NOTHING, RANK, SHAPE, VALUE = range(4)

# substrings of operators whose value is drawn, in any domain
_RANDOM = ("Random", "Dropout", "Multinomial", "Bernoulli", "Sampling")
# these give one number that follows from their input's shape; a sequence's shape is how many tensors of which shapes
_COUNTS = frozenset({"Size", "SequenceLength", "OptionalHasElement"})
# the inputs whose values decide the shape of the outputs, and the operators of which they do
_DECIDED = {
    operator: places
    for places, operators in (
        ((0,), "BlackmanWindow ConstantOfShape HammingWindow HannWindow ImageDecoder NonZero"),
        ((0,), "StringNormalizer StringSplit Unique"),
        ((1,), "AffineGrid CenterCropPad Compress Expand OneHot Reshape SequenceErase Split SplitToSequence"),
        ((1,), "Squeeze TopK Unsqueeze Upsample"),
        ((1,), "ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean ReduceMin ReduceProd"),
        ((1,), "ReduceSum ReduceSumSquare"),
        ((2,), "MaxUnpool SequenceInsert"),
        ((0, 1), "MelWeightMatrix"),
        ((1, 2), "Col2Im DFT Tile"),
        ((1, 3), "Pad STFT"),
        ((0, 1, 2), "Range"),
        ((1, 2, 3), "Resize"),
        ((1, 2, 3, 4), "Slice"),
        ((0, 1, 2, 3, 4), "NonMaxSuppression"),
    )
    for operator in operators.split()
}
# of these even the rank follows from those values: from how many there are
_RANK_BY_LENGTH = frozenset(
    {"AffineGrid", "Col2Im", "ConstantOfShape", "Expand", "MaxUnpool", "Reshape", "Squeeze", "Unsqueeze"}
    | {name for name in _DECIDED if name.startswith("Reduce")}
)
# operators of ONNX Runtime (com.microsoft and its internal layouts) whose shapes follow from those of their inputs
_RUNTIME_DOMAINS = frozenset({"com.microsoft", "com.microsoft.nchwc", "com.ms.internal.nhwc"})
_RUNTIME = frozenset([
    "Attention", "BiasAdd", "BiasDropout", "BiasGelu", "BiasSoftmax", "BiasSplitGelu", "BitmaskDropout",
    "CDist", "DequantizeLinear", "DynamicQuantizeLSTM", "DynamicQuantizeMatMul", "EmbedLayerNormalization",
    "FastGelu", "FusedConv", "FusedGemm", "FusedMatMul", "FusedMatMulActivation", "GatedRelativePositionBias",
    "Gelu", "GemmFastGelu", "GemmFloat8", "GridSample", "GroupNorm", "Inverse", "Irfft", "LongformerAttention",
    "MatMulBnb4", "MatMulFpQ4", "MatMulInteger16", "MatMulIntegerToFloat", "MatMulNBits", "MoE", "MulInteger",
    "MultiHeadAttention", "MurmurHash3", "NhwcConv", "NhwcFusedConv", "NhwcMaxPool", "PackedAttention",
    "QAttention", "QEmbedLayerNormalization", "QGemm", "QLinearAdd", "QLinearAveragePool", "QLinearConcat",
    "QLinearConv", "QLinearGlobalAveragePool", "QLinearLeakyRelu", "QLinearMul", "QLinearReduceMean",
    "QLinearSigmoid", "QLinearSoftmax", "QLinearWhere", "QMoE", "QuantizeLinear", "QuantizeWithOrder",
    "QuickGelu", "ReorderInput", "ReorderOutput", "Rfft", "RotaryEmbedding", "SimplifiedLayerNormalization",
    "SkipGroupNorm", "SkipLayerNormalization", "SkipSimplifiedLayerNormalization", "TransposeMatMul", "Trilu",
])  # fmt: skip
_RUNTIME_DECIDED = {"CropAndResize": (3,), "ExpandDims": (1,), "Pad": (1, 3), "Range": (0, 1, 2), "Unique": (0,)}
# nested graphs and functions that are followed; beyond that nothing is said
_DEEPEST = 40

_Scope = Mapping[str, int]


def levels(model: ModelProto, nodes: Sequence[NodeProto], constants: Iterable[str]) -> dict[str, int]:
    """Return of every top-level tensor what is the same for all data.

    ``nodes``: the top-level ones, in an executable order. ``constants``: names with a value of their own.
    """
    walk = _Walk(model)
    found = dict.fromkeys(constants, VALUE)
    for value in model.graph.input:
        # how many tensors a sequence has, and whether an optional has one, is data
        tensor = value.type.WhichOneof("value") in (None, "tensor_type")
        found.setdefault(value.name, SHAPE if tensor else NOTHING)
    walk.nodes(nodes, found, _declared(model.graph))
    return found


FILLS = frozenset({"Constant", "ConstantOfShape"})
MOVES = frozenset(
    {"Concat", "Expand", "Flatten", "Gather", "Identity", "Pad", "Reshape", "Slice", "Split", "Squeeze", "Tile"}
)
PUTS = frozenset({*MOVES, "Add", "ScatterND", "Transpose", "Trilu", "Unsqueeze", "Where"})
"""Operators that hand an Inf on as it is, or put it in place of something else: what masks are made with."""

_LEAVES = frozenset({"Cast", "Div", "Log", "LogSoftmax", "Mul", "Softmax", "Sub"})
"""What leaves of scores that are masked what they are, or makes probabilities and their logarithms of them."""


def handed_on(nodes: Iterable[NodeProto], names: Iterable[str]) -> frozenset[str]:
    """Return what hands these on: moved, put in place of scores, or as probabilities. ``nodes``: in their order."""
    found = {*names}
    for node in nodes:
        if node.op_type in (*PUTS, *_LEAVES) and not node.domain and not found.isdisjoint(node.input):
            found.update(node.output)
    return frozenset(found)


def draws(node: NodeProto) -> bool:
    """Whether a node's own operator draws random numbers."""
    return any(part in node.op_type for part in _RANDOM)


def _declared(graph: GraphProto) -> dict[str, TypeProto]:
    return {value.name: value.type for group in (graph.value_info, graph.output) for value in group}


class _Walk:
    """One pass over a model, into what is nested; what was found of a body is kept."""

    def __init__(self, model: ModelProto) -> None:
        self._functions = {scopes.function_key(function): function for function in model.functions}
        self._symbols = {
            dim.dim_param for value in model.graph.input for dim in value.type.tensor_type.shape.dim if dim.dim_param
        }
        # by id of the body; the body is kept so that its id is not given to another one
        self._known: dict[Any, tuple[Any, list[int]]] = {}
        self._depth = 0

    def nodes(self, nodes: Iterable[NodeProto], found: dict[str, int], declared: Mapping[str, TypeProto]) -> None:
        """Add to ``found`` what the nodes give."""
        for node in nodes:
            given = self._outputs(node, found, declared)
            found.update((name, level) for name, level in zip(node.output, given) if name)  # noqa: B905 - as above

    def _outputs(self, node: NodeProto, found: _Scope, declared: Mapping[str, TypeProto]) -> list[int]:
        # an input that is left out is the same for all data
        inputs = [found.get(name, NOTHING) if name else VALUE for name in node.input]
        key = scopes.call_key(node)
        if key in self._functions:
            return self._call(self._functions[key], inputs)
        bodies = scopes.subgraphs(node)
        if bodies:
            return self._with_bodies(node, bodies, inputs, found)
        if all(level == VALUE for level in inputs) and not draws(node):
            return [VALUE] * len(node.output)
        domain, least = key[0], min(inputs, default=VALUE)
        if not domain and node.op_type == "Shape":
            return [min(inputs[0] + 1, VALUE)]
        if not domain and node.op_type in _COUNTS:
            return [VALUE if inputs[0] >= SHAPE else SHAPE]
        if domain in _RUNTIME_DOMAINS and node.op_type == "GroupQueryAttention":
            # the caches are as long as the value of an input says
            return [min(least, SHAPE)] + [NOTHING] * (len(node.output) - 1)
        decided = _decided_by(domain, node.op_type)
        if decided is None:
            return [min(least, self._believed(declared.get(name))) for name in node.output]
        deciding = [inputs[at] for at in decided if at < len(inputs)]
        return [_ordinary(node, inputs, least, min(deciding, default=VALUE))] * len(node.output)

    def _believed(self, declared: TypeProto | None) -> int:
        """What a declared type says: sizes, and names that the model's inputs have as well, are the same for all."""
        if declared is None or not declared.tensor_type.HasField("shape"):
            return NOTHING
        dims = declared.tensor_type.shape.dim
        return SHAPE if all(dim.HasField("dim_value") or dim.dim_param in self._symbols for dim in dims) else RANK

    # ---- nested graphs and functions

    def _call(self, function: FunctionProto, inputs: Sequence[int]) -> list[int]:
        given = [*inputs, *[VALUE] * (len(function.input) - len(inputs))]
        found = dict(zip(function.input, given))  # noqa: B905 - there may be more than it takes
        return self._enter(function, function.output, found)

    def _body(self, body: GraphProto, inputs: Sequence[int], outer: _Scope) -> list[int]:
        """What the outputs of a nested graph have, if its own inputs have this."""
        found = {name: outer.get(name, NOTHING) for name in scopes.captured(body)}
        found.update(zip((value.name for value in body.input), inputs))  # noqa: B905 - of what lacks nothing is said
        found.update((tensor.name, VALUE) for tensor in body.initializer)
        found.update((sparse.values.name, VALUE) for sparse in body.sparse_initializer)
        return self._enter(body, [value.name for value in body.output], found)

    def _enter(self, holder: Any, outputs: Sequence[str], found: dict[str, int]) -> list[int]:
        key = id(holder), tuple(found.items())
        if key not in self._known:
            self._known[key] = (holder, [NOTHING] * len(outputs))  # what a recursive call finds
            if self._depth < _DEEPEST:
                self._depth += 1
                self.nodes(holder.node, found, _declared(holder) if isinstance(holder, GraphProto) else {})
                self._depth -= 1
                self._known[key] = (holder, [found.get(name, NOTHING) for name in outputs])
        return self._known[key][1]

    def _with_bodies(
        self, node: NodeProto, bodies: Sequence[GraphProto], inputs: Sequence[int], outer: _Scope
    ) -> list[int]:
        if not scopes.domain_of(node.domain):
            if node.op_type == "If" and inputs:
                # the same branch for all data, or nothing is the same
                branches = [self._body(body, [], outer) for body in bodies] if inputs[0] == VALUE else []
                return [min(levels) for levels in zip(*branches)] or [NOTHING] * len(node.output)  # noqa: B905 - may differ
            if node.op_type == "Loop":
                return self._loop(bodies[0], inputs, outer)
            if node.op_type == "Scan":
                return self._scan(node, bodies[0], inputs, outer)
        every = [*inputs, *(outer.get(name, NOTHING) for body in bodies for name in scopes.captured(body))]
        drawn = any(draws(inner) for inner in scopes.all_nodes([node]))
        return [VALUE if not drawn and min(every, default=VALUE) == VALUE else NOTHING] * len(node.output)

    def _loop(self, body: GraphProto, inputs: Sequence[int], outer: _Scope) -> list[int]:
        states, given = self._fixpoint(body, [VALUE, VALUE], inputs[2:], [], outer, skipped=1)
        often = min([*inputs[:2], *given[:1]], default=VALUE)
        return _repeated(states, given[1 + len(states) :], fixed=often == VALUE)

    def _scan(self, node: NodeProto, body: GraphProto, inputs: Sequence[int], outer: _Scope) -> list[int]:
        scanned = next((one.i for one in node.attribute if one.name == "num_scan_inputs"), 1)
        # before opset 9 the sequence lengths come first
        lengths, inputs = inputs[: -len(body.input)], inputs[-len(body.input) :]
        over = list(inputs[len(inputs) - scanned :])
        states, given = self._fixpoint(body, [], inputs[: len(inputs) - scanned], over, outer, skipped=0)
        fixed = min(over, default=NOTHING) >= SHAPE and min(lengths, default=VALUE) == VALUE
        return _repeated(states, given[len(states) :], fixed=fixed)

    def _fixpoint(
        self,
        body: GraphProto,
        before: list[int],
        start: Sequence[int],
        after: list[int],
        outer: _Scope,
        *,
        skipped: int,
    ) -> tuple[list[int], list[int]]:
        """What is carried from one iteration to the next has in all of them, and what the body gives then."""
        states = list(start)
        while True:
            given = self._body(body, [*before, *states, *after], outer)
            result = given[skipped : skipped + len(states)]
            result += [NOTHING] * (len(states) - len(result))
            lower = [min(pair) for pair in zip(states, result)]  # noqa: B905 - equally long
            if lower == states:
                return states, given
            states = lower


def _decided_by(domain: str, op_type: str) -> tuple[int, ...] | None:
    """The inputs whose values decide the outputs' shape; None where nobody knows."""
    if domain in _RUNTIME_DOMAINS:
        if op_type in _RUNTIME_DECIDED:
            return _RUNTIME_DECIDED[op_type]
        layout = domain != "com.microsoft" and onnx.defs.has(op_type, "")
        return _DECIDED.get(op_type, ()) if op_type in _RUNTIME or layout else None
    if domain == "ai.onnx.ml":
        return () if onnx.defs.has(op_type, domain) else None
    if not domain and (op_type in _RUNTIME or onnx.defs.has(op_type, "")):
        return _DECIDED.get(op_type, ())
    return None


def _ordinary(node: NodeProto, inputs: Sequence[int], least: int, deciding: int) -> int:
    """What the outputs of an operator that is known have, if some of its inputs are data."""
    if node.op_type == "SequenceAt":  # tensors of a sequence need not have one shape, nor one rank
        return SHAPE if inputs[0] >= SHAPE and inputs[-1] == VALUE else NOTHING
    if least >= SHAPE and deciding == VALUE:
        return SHAPE
    if node.op_type == "Squeeze" and len(inputs) < 2 and not node.attribute:
        return NOTHING  # it takes all dimensions that are 1
    if least >= RANK and (deciding >= SHAPE or node.op_type not in _RANK_BY_LENGTH):
        return RANK
    return NOTHING


def _repeated(states: list[int], stacked: Sequence[int], *, fixed: bool) -> list[int]:
    """What a Loop or Scan gives whose number of iterations is the same for all data, or not."""
    if fixed:
        return [*states, *stacked]
    return [*[NOTHING] * len(states), *(min(level, RANK) for level in stacked)]
