"""What a conversion made of the weights that nodes read, told from the values alone, each beside its partner.

A weight's partner is what does the same in the original: the matrix of a product, its bias, the filters of a
convolution, the gates of an LSTM. Where the weight stands among a node's inputs says little: a MatMul and the Add after
it may be one Gemm, or a Gemm these two, and a normalization may be folded into the convolution before it. Integers are
compared in the floats that they stand for.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, TypeAlias

import numpy as np
from onnx import AttributeProto, NodeProto, defs
from onnx.helper import get_attribute_value

from runner.model.graph.graph_index import Graph, Node
from runner.reference.changed_array import LOW, Array, alike, change_of, off_of, steps_between
from runner.reference.tensor_pairs import SYMMETRIC, operator
from runner.reference.weighted_graph import QUANTIZED_LSTM, QUANTIZED_WEIGHTS, WeightedGraph

_Turn: TypeAlias = Callable[[Array], Array]

MOST_OTHERS = 64
"""Weights that one may have been swapped with."""
_MOST_STEPS = 4
"""Nodes that may lie between a product and the addition of its bias, casts and reshapes."""
_PASSING = frozenset({"Identity", "Cast", "Dropout", "DequantizeLinear", "Reshape", "Squeeze", "Unsqueeze", "Flatten"})
_HANDING = _PASSING | {"QuantizeLinear", "DynamicQuantizeLinear"}
_PRODUCTS = frozenset({"MatMul", "Gemm", "com.microsoft:FusedMatMul", "com.microsoft:FusedGemm"})
_CONVOLUTIONS = frozenset({"Conv", "com.microsoft:FusedConv"})
_ACTIVATIONS = frozenset({"Relu", "Clip", "LeakyRelu", "Sigmoid", "HardSigmoid", "Tanh"})
"""What an operator with scales, or a fused one, does itself: the original's node that makes its tensor may be this."""
_NORMALIZED = "BatchNormalization"
_LINEAR = _PRODUCTS | _CONVOLUTIONS | QUANTIZED_WEIGHTS.keys()
_OF_QUANTIZER = re.compile(r"_quantized$|(_DQ)?_Q\d$")
"""What ONNX Runtime's quantizers add to the name of a weight."""


@dataclass(frozen=True, eq=False)
class Operand:
    """A weight as a node uses it.

    ``node``: whose. ``name``, ``stored``: as the model holds it. ``used``: float64, in the layout of a matrix behind
    the data, of a convolution's filters, or as it is stored. ``turns``: what makes ``used`` of ``stored``, one after
    another, each its own inverse. ``factor``: what the node multiplies it by. ``reading``: what the node's attributes,
    or another node, make of it. ``step``: of integers, which are here as the floats that they stand for.
    """

    node: Node
    name: str
    stored: Array
    used: Array
    turns: tuple[_Turn, ...] = ()
    factor: float = 1.0
    reading: str = ""
    step: Array | float = 0.0

    def laid(self, one: Array) -> Array:
        """Return an array of the layout that is used in the one that is stored."""
        for turn in reversed(self.turns):
            one = turn(one)
        return one


def changed_weights(
    mine: WeightedGraph, theirs: WeightedGraph, origins: Mapping[str, str], names: Collection[str]
) -> tuple[str, ...]:
    """Return what a conversion made of these nodes' weights and attributes, a sentence each, as far as that is known.

    ``mine``: the converted model, of which ``names`` are nodes; ``theirs``: its original. ``origins``: the original's
    node by the one of ``mine`` that makes the same tensor.
    """
    said = list[str]()
    named = {node.name for node in mine.graph.nodes if node.name in names or _hands_weight_to(mine, node, names)}
    for node in mine.graph.nodes:
        pair = _same_tensor(mine, theirs, origins, node) if node.name in named else None
        if pair is None:
            continue
        last, origin = pair
        folded = last.op_type != _NORMALIZED
        good = operands(theirs, origin, folded=folded)
        own = operands(mine, last, folded=False) if last == node else _scaled_by(mine, last)
        pairs = [(one, good[role]) for role, one in own.items() if one.node == node and role in good]
        before = _without_partner(mine, origins, node)
        words = [(one, other, _told(one, other, theirs, undone=before is not None)) for one, other in pairs]
        told = [each for _, _, found in words for each in found]
        unlike = [
            (one, _unlike(one, other, theirs))
            for one, other, found in words
            if not (found or before) and _differs(one, other)
        ]
        told += [f"{one.name} differs too" if told else wrong for one, wrong in unlike if told or wrong]
        told += _attributes_told(mine, theirs, origins, node, origin) if last == node else ()
        others = [made for name in origin.inputs if before and (made := theirs.graph.producer(name))]
        if before and before.name in names and [operator(one) for one in others] == [operator(before)]:
            both = (mine.graph, mine.proto(before)), (theirs.graph, theirs.proto(others[0]))
            told += unlike_attributes(before.name, both)
        said += told or (_made_constant(mine, theirs, origins, node, origin) if last == node else ())
        lost = good.keys() - own.keys() == {"bias"} and last == node and operator(node) in _PRODUCTS | _CONVOLUTIONS
        if lost and good["bias"].used.any() and not _is_added_to(mine, node):
            said.append(f"{node.name} adds no bias; the original adds {good['bias'].name}")
    return tuple(dict.fromkeys(said))


def _hands_weight_to(side: WeightedGraph, node: Node, names: Collection[str]) -> bool:
    """Whether one of these nodes casts or turns a weight of a node, and is named in its place."""
    makers = (maker for name in node.inputs if (maker := side.graph.producer(name)) and side.numbers(name))
    return any(maker.name in names for maker in makers)


def _same_tensor(
    mine: WeightedGraph, theirs: WeightedGraph, origins: Mapping[str, str], node: Node
) -> tuple[Node, Node] | None:
    """Return the node itself, or the addition after it, with the original's node that makes the same tensor."""
    last = node
    for _ in range(_MOST_STEPS):
        if origin := theirs.named.get(origins.get(last.name, "")):
            fused = operator(node) in _LINEAR and operator(origin) in _ACTIVATIONS
            return last, (theirs.graph.producer(origin.inputs[0]) if fused else None) or origin
        readers = mine.graph.readers.get(last.outputs[0], ()) if last.outputs else ()
        if len(readers) != 1 or operator(node) not in _LINEAR:
            return None
        last = mine.graph.nodes[readers[0]]
        if last.op_type not in {*_PASSING, "Add"} and _scale(mine, last) is None:
            return None
    return None


def _without_partner(side: WeightedGraph, origins: Mapping[str, str], node: Node) -> Node | None:
    """Return what makes a tensor without a partner that a product or convolution reads: its weight may undo a scale."""
    for name in node.inputs if operator(node) in _LINEAR else ():
        maker = None if name in side.graph.data_independent else side.graph.producer(name)
        while maker and maker.name not in origins and maker.op_type in _HANDING:
            maker = side.graph.producer(maker.inputs[0])
        if maker and maker.name not in origins:
            return maker
    return None


def _is_added_to(side: WeightedGraph, node: Node) -> bool:
    readers = side.graph.readers.get(node.outputs[0], ())
    return any(side.graph.nodes[index].op_type in {*_PASSING, "Add"} for index in readers)


def operands(side: WeightedGraph, node: Node, *, folded: bool) -> dict[str, Operand]:
    """Return the weights that make a node's first output, by what they do.

    Those of the node; where it adds a bias, also those of the product or convolution before it. ``folded``: also those
    before a BatchNormalization, as they are where that is folded in.
    """
    if operator(node) == _NORMALIZED and folded:
        return _folded(side, node)
    found = dict(_own(side, node))
    if operator(node) == "Add" and "bias" in found:
        (data,) = [name for name in side.proto(node).input if side.numbers(name) is None] or [""]
        before, scale = _before(side, data)
        if before and operator(before) in _LINEAR | {"ConvTranspose"}:
            more = dict(_own(side, before))
            if "bias" in more:  # what both add is neither weight
                del found["bias"], more["bias"]
            found |= _times(more, scale)
    return found


def _scaled_by(side: WeightedGraph, last: Node) -> dict[str, Operand]:
    """Return the weights behind a node that scales, casts or reshapes, as that has them; else those of the node."""
    before, scale = _before(side, last.outputs[0])
    return _times(operands(side, before or last, folded=False), scale)


def _times(found: Mapping[str, Operand], scale: float) -> dict[str, Operand]:
    return {role: replace(one, used=one.used * scale, factor=one.factor * scale) for role, one in found.items()}


def _before(side: WeightedGraph, name: str) -> tuple[Node | None, float]:
    """Return the node that makes a tensor, and what later ones scale that by; those that cast or reshape are none."""
    node, scale = side.graph.producer(name), 1.0
    for _ in range(_MOST_STEPS):
        if node is None or not node.inputs or operator(node) in _LINEAR:
            break
        factor = 1.0 if node.op_type in _PASSING else _scale(side, node)
        if factor is None:
            break
        scale *= factor
        data = [each for each in side.proto(node).input if side.numbers(each) is None]
        makers = [side.graph.producer(each) for each in data]
        node = next((one for one in makers if one and one.op_type == "Cast"), makers[0] if makers else None)
    return node, scale


def _scale(side: WeightedGraph, node: Node) -> float | None:
    """Return the one number that a node multiplies its data by; None: it does something else.

    What makes floats of an integer product multiplies by nothing: the weight is seen as the floats it stands for.
    """
    casts = [one for one in map(side.graph.producer, node.inputs) if one and one.op_type == "Cast"]
    cast = {made.op_type for one in casts if (made := side.graph.producer(one.inputs[0]))}
    if operator(node) == "Mul" and cast & {"MatMulInteger", "ConvInteger"}:
        return 1.0
    held = [side.numbers(name) for name in side.proto(node).input] if operator(node) in ("Mul", "Div") else []
    constants = [(slot, float(one.stored.reshape(()))) for slot, one in enumerate(held) if one and one.stored.size == 1]
    if len(held) != 2 or len(constants) != 1 or held.count(None) != 1:
        return None
    slot, number = constants[0]
    if operator(node) == "Mul":
        return number
    return 1 / number if slot == 1 and number else None


def _own(side: WeightedGraph, node: Node) -> Iterator[tuple[str, Operand]]:
    """Yield the weights that a node reads itself."""
    proto, kind = side.proto(node), operator(node)

    def one(slot: int, turn: _Turn | None = None, factor: float = 1.0, *said: str) -> Operand | None:
        held = side.read(node, slot)
        if held is None:
            return None
        through = f"behind {held.turned_by}" if held.turned_by else ""
        turns = (*([_last_two] if through else []), *([turn] if turn else []))
        used = held.stored.astype(np.float64)
        for each in turns:
            used = each(used)
        reading = ", ".join(word for word in (*said, through) if word)
        return Operand(node, held.name, held.stored, used * factor, turns, factor, reading, held.step)

    found: dict[str, Operand | None] = {}
    if kind in QUANTIZED_WEIGHTS:
        role, slot, bias = QUANTIZED_WEIGHTS[kind]
        turned, alpha = bool(_attribute(proto, "transB", 0)), float(_attribute(proto, "alpha", 1.0))
        words = ("transB=1" if turned else "", f"alpha={alpha:g}" if alpha != 1 else "")
        turn = _last_two if turned or proto.op_type == "MatMulNBits" else None
        found = {role: one(slot, turn, alpha, *words), "bias": one(bias)}
    elif proto.op_type.startswith("QLinear"):
        return
    elif kind in _PRODUCTS:
        alpha, beta = (float(_attribute(proto, name, 1.0)) for name in ("alpha", "beta"))
        for role, slot, flag in (("left matrix", 0, "transA"), ("matrix", 1, "transB")):
            turned = bool(_attribute(proto, flag, 0))
            words = (f"{flag}=1" if turned else "", f"alpha={alpha:g}" if alpha != 1 else "")
            found[role] = one(slot, _last_two if turned else None, alpha, *words)
        found["bias"] = one(2, None, beta, f"beta={beta:g}" if beta != 1 else "")
    elif kind in _CONVOLUTIONS or kind == "ConvTranspose":
        backward, grouped = kind == "ConvTranspose", _attribute(proto, "group", 1) != 1
        role = "filters of groups, transposed" if backward and grouped else "filters"
        turn = _backward if backward and not grouped else None
        found = {role: one(1, turn, 1.0, "as a transposed convolution" if turn else ""), "bias": one(2)}
    elif kind == QUANTIZED_LSTM:
        found = {f"LSTM {slot}": one(slot, _last_two if slot in (1, 2) else None) for slot in range(8)}
    elif kind in SYMMETRIC:
        constants = [slot for slot, name in enumerate(proto.input) if side.numbers(name)]
        found["bias" if kind == "Add" else kind] = one(constants[0]) if len(constants) == 1 else None
    else:
        found = {f"{kind} {slot}": one(slot) for slot in range(len(proto.input))}
    yield from ((role, held) for role, held in found.items() if held is not None)


def _folded(side: WeightedGraph, node: Node) -> dict[str, Operand]:
    """Return the weights of a product or convolution with the BatchNormalization after it folded in."""
    proto = side.proto(node)
    held = [kept.stored.astype(np.float64) for name in proto.input[1:5] if (kept := side.numbers(name))]
    before, factor = _before(side, proto.input[0])
    found = operands(side, before, folded=False) if before and factor == 1 else {}
    role = next((role for role in ("matrix", "filters") if role in found), None)
    if role is None or len(held) != 4:
        return {}
    gain, shift, mean, variance = held
    scale = gain / np.sqrt(variance + _attribute(proto, "epsilon", 1e-5))
    one, bias = found[role], found.get("bias")
    wide = scale if role == "matrix" else scale.reshape(-1, *[1] * (one.used.ndim - 1))
    if one.used.shape[-1 if role == "matrix" else 0] != scale.size or (bias and bias.used.size != scale.size):
        return {}
    added = ((bias.used.reshape(-1) if bias else 0.0) - mean) * scale + shift
    name, reading = bias.name if bias else proto.input[2], f"with {node.name} folded into it"
    return {
        role: replace(one, used=one.used * wide, reading=reading),
        "bias": Operand(node, name, bias.stored if bias else added, added, reading=reading),
    }


def _last_two(one: Array) -> Array:
    return np.swapaxes(one, -1, -2) if one.ndim > 1 else one


def _backward(one: Array) -> Array:
    """Return the filters of a convolution that a transposed one with these is, with one step: and the other way."""
    return np.flip(np.swapaxes(one, 0, 1), tuple(range(2, one.ndim))) if one.ndim > 1 else one


def _attribute(proto: NodeProto, name: str, default: Any) -> Any:
    found = next((one for one in proto.attribute if one.name == name), None)
    return default if found is None else get_attribute_value(found)


def _told(mine: Operand, good: Operand, theirs: WeightedGraph, *, undone: bool) -> list[str]:
    """Say what became of a weight: the sentence, or nothing.

    ``undone``: it may undo what a tensor without a partner is scaled by, along the axis that meets that one.
    """
    if not mine.factor or not mine.stored.size:
        lost = mine.reading and good.used.any()
        return [f"{mine.node.name} reads {mine.name} with {mine.reading}, so it has no effect"] if lost else []
    wanted = _shaped(mine.laid(good.used) / mine.factor, mine.stored)
    raw, held = _shaped(good.stored.astype(np.float64), mine.stored), mine.stored.astype(np.float64)
    if np.ndim(mine.step) and (odd := np.asarray(mine.step)[~np.isfinite(mine.step)]).size:
        return [f"the scale of {mine.name} is {_odd(odd)} for {odd.size:,} of {held.size:,} elements"]
    if np.isfinite(good.used).all() and (odd := held[~np.isfinite(held)]).size:
        return [f"{odd.size:,} of {held.size:,} elements of {mine.name} {'is' if odd.size == 1 else 'are'} {_odd(odd)}"]
    shape = list(mine.stored.shape)
    named, every = _OF_QUANTIZER.sub("", mine.name), theirs.graph.initializers
    dims = ((name, getattr(every.get(name), "dims", ())) for name in dict.fromkeys((named, *every)))
    like_it = (name for name, one in dims if name in every and name != good.name and sorted(one) == sorted(shape))
    others = {name: mine.laid(one.stored) for name in islice(like_it, MOST_OTHERS) if (one := theirs.numbers(name))}
    if mine.stored.dtype in LOW.values():  # the type is what was asked for: only what else was done is told
        exact = wanted
        with np.errstate(over="ignore"):
            wanted, raw, *some = (
                one.astype(mine.stored.dtype).astype(np.float64) for one in (wanted, raw, *others.values())
            )
        if wanted.shape == held.shape:  # what the type makes 0 or Inf of, and the conversion did not, is told as it was
            kept = ((wanted == 0) & (held != 0)) | (~np.isfinite(wanted) & np.isfinite(held))
            wanted = np.where(kept, exact, wanted)
        others = dict(zip(others, some, strict=True))
    off = off_of(held, mine.step)
    as_there, right, unchanged = (
        one is not None and one.shape == held.shape and alike(held, one, off)
        for one in (raw, wanted, others.get(named))
    )
    if unchanged and not right:
        return [_read_elsewhere(mine, good)]
    if mine.reading != good.reading and as_there and not right:
        ways = [f"with {one.reading}" if "=" in one.reading else one.reading or "as it is" for one in (mine, good)]
        how = ways[0] if ways[1] == "as it is" else f"{ways[0]}, not {ways[1]}"
        return [f"{mine.name} is stored like {good.name} of the original, but {mine.node.name} reads it {how}"]
    told = change_of(held, wanted, others, mine.step)
    if told and undone and told.kind == "scaled" and told.axis in (None, _meeting(mine)):
        return []
    return [told.of(mine.name, good.name, _more(good))] if told else []


def _meeting(one: Operand) -> int:
    """Return the axis of a stored matrix or of filters along which these meet what their node reads."""
    convolves, turned = one.node.op_type.endswith(("Conv", "ConvInteger")), len(one.turns) % 2
    return 1 - turned if convolves else one.stored.ndim - 2 + turned


def _odd(found: Array) -> str:
    return " or ".join(word for word, some in (("NaN", np.isnan(found)), ("Inf", np.isinf(found))) if some.any())


def _more(good: Operand) -> str:
    return f" {good.reading}" if good.reading.startswith("with ") else ""


def _read_elsewhere(mine: Operand, good: Operand) -> str:
    return f"{mine.node.name} reads {mine.name}; the original reads {good.name} there"


def _unlike(mine: Operand, good: Operand, theirs: WeightedGraph) -> str:
    """Say that a weight differs, and by how many steps; "": integers, and any bias of them, may be fitted to data."""
    named = _OF_QUANTIZER.sub("", mine.name)
    if named != good.name and np.any(mine.step) and named in theirs.graph.initializers:
        return _read_elsewhere(mine, good)
    said = f"{mine.name} differs from {good.name} of the original{_more(good)}"
    held, wanted = _both(mine, good)
    if not np.any(mine.step):
        wrong = np.abs(held - wanted) > off_of(held, _step(mine, held))
        count, size = int(wrong.sum()), held.size
        if not 0 < count <= size / 2:
            return said
        places = ((axis, {*at.tolist()}) for axis, at in enumerate(np.nonzero(wrong)) if held.shape[axis] > 1)
        where = next((f", at place {min(one)} of axis {axis}" for axis, one in places if len(one) == 1), "")
        differ, are = ("differs", "it is") if count == 1 else ("differ", "they are")
        here = f"; here {are} 0" * (not held[wrong].any())
        told = f"{differ} from {good.name} of the original{_more(good)}{where}{here}"
        return f"{count:,} of {size:,} elements of {mine.name} {told}"
    if max(held.shape, default=0) == held.size:  # what is fitted to data keeps to the size of a bias
        most, largest = (float(np.max(np.abs(one), initial=0.0)) for one in (held - wanted, wanted))
        return f"{said} by up to {most:.3g}, where its values reach {largest:.3g}" if most > largest > 0 else ""
    steps = steps_between(held, wanted, mine.step)
    return f"{said} by up to {steps} steps" if steps else ""


def _both(mine: Operand, good: Operand) -> tuple[Array, Array]:
    """Return what a weight holds, and what it should, as it is stored."""
    return mine.stored.astype(np.float64), _shaped(mine.laid(good.used) / (mine.factor or 1.0), mine.stored)


def _differs(mine: Operand, good: Operand) -> bool:
    """Whether a weight differs, in a way that has no name if nothing was told of it."""
    held, wanted = _both(mine, good)
    off = off_of(held, _step(mine, held))
    return bool(mine.factor) and wanted.shape == held.shape and not alike(held, wanted, off)


def _step(mine: Operand, held: Array) -> Array | float:
    """Return by how much numbers of a weight may be off: its steps, or what a type of few bits rounds off."""
    low: float = 1e-2 * np.max(np.abs(held), initial=0.0)
    return low if mine.stored.dtype in LOW.values() else mine.step


_NUMBERS = frozenset({"FLOAT", "FLOATS", "INT", "INTS", "STRING"})
_UNTOLD = frozenset({"to", "dtype", "momentum", "training_mode", "auto_pad"})
"""Attributes of a type that is asked for, of training, or that say pads otherwise."""
_LEFT_OUT: Mapping[str, int] = {"strides": 1, "dilations": 1, "output_padding": 0} | {
    f"scan_{side}_{what}": 0 for side in ("input", "output") for what in ("axes", "directions")
}
"""What a list holds throughout that is left out."""
_FAR = 1 << 30
"""Places from here on stand for the end of an axis."""
_OF_PRODUCTS = frozenset({"transA", "transB", "alpha", "beta"})
"""Attributes of products that a weight's words tell of."""


def _attributes_told(
    mine: WeightedGraph, theirs: WeightedGraph, origins: Mapping[str, str], node: Node, origin: Node
) -> Iterator[str]:
    """Yield the attributes of a node that differ from those of the original's, where both do the same with the same."""
    sides = ((mine, node), (theirs, origin))
    reads = [[name for name in one.inputs if name not in side.graph.data_independent] for side, one in sides]
    makers = [
        [made.name if (made := side.graph.producer(name)) else "" for name in some]
        for (side, _), some in zip(sides, reads, strict=True)
    ]
    if operator(node) != operator(origin) or [origins.get(one, one) for one in makers[0]] != makers[1]:
        return
    told = _OF_PRODUCTS if operator(node) in _LINEAR else frozenset[str]()
    yield from unlike_attributes(node.name, [(side.graph, side.proto(one)) for side, one in sides], told)
    held = [(_attributes(side.graph, side.proto(one)), _constants(side, one)) for side, one in sides]
    for own, good in ((held[0][1], held[1][0]), (held[0][0], held[1][1])):  # one reads the other's attribute
        for name in sorted(own.keys() & good.keys()):
            one, other = np.ravel(own[name]), np.ravel(good[name])
            counted = one.dtype.kind == "i" and ((one < 0).any() != (other < 0).any() or max(*one, *other) > _FAR)
            numbers = {one.dtype.kind, other.dtype.kind} <= {"i", "f"} and one.size and not counted
            if numbers and (one.shape != other.shape or not alike(one, other, off_of(one))):
                yield f"{node.name} has {name}={_in_words(own[name])}; the original has {name}={_in_words(good[name])}"


def _constants(side: WeightedGraph, node: Node) -> dict[str, Any]:
    """Return what a node reads as constants, by what its operator calls that input."""
    proto = side.proto(node)
    version = next((one.version for one in side.graph.model.opset_import if one.domain == proto.domain), 1)
    known = defs.has(proto.op_type, version, proto.domain)
    names = [one.name for one in defs.get_schema(proto.op_type, version, proto.domain).inputs] if known else []
    held = ((name, side.numbers(read)) for name, read in zip(names, proto.input, strict=False) if read)
    return {name: one.stored.tolist() for name, one in held if one}


def unlike_attributes(
    said: str, sides: Sequence[tuple[Graph, NodeProto]], untold: Collection[str] = ()
) -> Iterator[str]:
    """Yield the attributes of a node, called as is ``said``, that differ from those of the original's."""
    own, good = (_attributes(*one) for one in sides)
    for name in (own.keys() ^ good.keys()) & _LEFT_OUT.keys():
        usual = {name: [_LEFT_OUT[name]] * len(own.get(name) or good[name])}
        own, good = usual | own, usual | good
    for name in sorted(own.keys() & good.keys() - _UNTOLD - {*untold}):
        one, other = own[name], good[name]
        counted_back = [any(each < 0 for each in np.ravel(value)) for value in (one, other) if name.startswith("ax")]
        if one != other and len({*counted_back}) < 2:
            yield f"{said} has {name}={_in_words(one)}; the original has {name}={_in_words(other)}"


def _made_constant(
    mine: WeightedGraph, theirs: WeightedGraph, origins: Mapping[str, str], node: Node, origin: Node
) -> Iterator[str]:
    """Yield what a node reads as a constant where the original's computes it, or is given it."""
    own = [name for name in node.inputs if mine.numbers(name)]
    if operator(node) != operator(origin) or len(own) != 1 or any(map(theirs.numbers, origin.inputs)):
        return
    makers = [made.name for name in node.inputs if (made := mine.graph.producer(name))]
    known = {origins.get(name, name) for name in makers} | {*mine.graph.inputs}
    read = [made.name if (made := theirs.graph.producer(name)) else name for name in origin.inputs]
    others = [name for name in read if name not in known]
    if len(others) == 1 and len(read) == len(node.inputs):
        what = f"the output of {others[0]}" if others[0] in theirs.named else f"the input {others[0]}"
        yield f"{node.name} reads the constant {own[0]}; the original reads {what} there"


def _attributes(graph: Graph, proto: NodeProto) -> dict[str, Any]:
    """Return the attributes of a node, those that it leaves out with their usual values; padding that is told once."""
    found = dict[str, AttributeProto]()
    version = next((one.version for one in graph.model.opset_import if one.domain == proto.domain), 1)
    if defs.has(proto.op_type, version, proto.domain):
        usual = defs.get_schema(proto.op_type, version, proto.domain).attributes
        found = {name: one.default_value for name, one in usual.items() if one.default_value.name}
    found |= {one.name: one for one in proto.attribute}
    held = {name: one for name, one in found.items() if AttributeProto.AttributeType.Name(one.type) in _NUMBERS}
    return {name: get_attribute_value(one) for name, one in held.items()}


def _in_words(value: Any) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(_in_words, value))}]"
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    return f"{value:.7g}" if isinstance(value, float) else str(value)  # an integer has all its digits


def _shaped(one: Array, like: Array) -> Array:
    """Return an array in the shape of another that has the same axes, but for those of size 1."""
    mine, wanted = ([size for size in each.shape if size != 1] for each in (one, like))
    return one.reshape(like.shape) if mine == wanted else one
