"""What made-up inputs must be like for a model to accept them: the sizes of open dimensions, the ranges of integers.

Nothing goes by the names of inputs. What an integer is for is read off the nodes that it reaches: an index stays below
the rows that it picks from, a mask is all ones, a length is the size of the axis that it is compared along. Sizes
follow from the names of axes: one name has one size, ``past + seq`` is computed, and where an output is an input that
grew along an axis (a cache), the longer axis is the sum. What remains open is 1, or what a later attempt says.
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations
from pathlib import Path

from onnx import NodeProto, TensorProto, TypeProto, numpy_helper

from runner.model.graph import scopes
from runner.model.graph.graph_index import Graph
from runner.model.values.dtypes import COMPUTED_IN, is_integer
from runner.model.values.recorded import TensorFile
from runner.samples.declared_inputs import Declared, concrete, declared
from runner.schema.inputs import InputsSettings, RandomInputs
from runner.schema.installed_choices import implementation
from runner.workers.pool import Pool

Dim = int | str | None
Size = int | str
"""A number, or an expression over the names of axes."""

# operators that hand on the values of their first input (of Concat, any), in another shape
_HAND_ON = frozenset(
    {"Identity", "Reshape", "Unsqueeze", "Squeeze", "Flatten", "Transpose", "Expand", "Slice", "Split", "Tile"}
)
# (operator, input that holds indices) -> (input that they pick from, attribute that names the axis, or the axis)
_PICKS: Mapping[tuple[str, int], tuple[int, str | int]] = {
    ("Gather", 1): (0, "axis"),
    ("GatherElements", 1): (0, "axis"),
    ("ScatterElements", 1): (0, "axis"),
    ("GatherND", 1): (0, 0),
    ("ScatterND", 1): (0, 0),
    ("GatherBlockQuantized", 1): (0, "gather_axis"),
    ("EmbedLayerNormalization", 0): (2, 0),
    ("EmbedLayerNormalization", 1): (4, 0),
    ("EmbedLayerNormalization", 8): (3, 0),
    ("com.microsoft.RotaryEmbedding", 1): (2, 0),
    ("RotaryEmbedding", 3): (1, 0),
}
# (operator, input) whose nonzero elements say what counts
_MASKS = frozenset(
    {("And", 0), ("And", 1), ("Or", 0), ("Or", 1), ("Not", 0), ("Where", 0), ("If", 0), ("ReduceSum", 0), ("CumSum", 0)}
    | {("EmbedLayerNormalization", 7), ("MultiHeadAttention", 4), ("com.microsoft.Attention", 3)}
)
# (operator, input) that is the length of an axis
_LENGTHS = frozenset({("GRU", 4), ("LSTM", 4), ("RNN", 4), ("ReverseSequence", 1), ("Range", 1), ("Slice", 2)})
_IN_TWO_DOMAINS = ("Attention", "RotaryEmbedding")
_COMPARES = frozenset({"Less", "LessOrEqual", "Greater", "GreaterOrEqual", "Equal"})
_OPERATIONS: Mapping[type, Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
}
_SIZES = (2, 8, 64, 224, 1024)
"""What open axes are taken as where 1 is not accepted."""
_MOST_OF_WEIGHTS = 8
"""How many sizes of weights are tried besides."""
_MOVES = frozenset(
    {"Concat", "Identity", "Cast", "Transpose", "Reshape", "Unsqueeze", "Squeeze", "Gather", "Slice", "Split"}
    | {"Expand", "Tile", "Where", "ScatterND", "ScatterElements", "TensorScatter"}
)
"""Operators that hand a cache on, and make it longer."""
_TYPED = re.compile(r"[A-Za-z_][A-Za-z0-9_./-]*")
"""Names that are keys of a mapping on a command line, which takes no quotes."""
_MOST_SUMS, _DEEPEST, _LONGEST = 6, 40, 200
"""Sums that are tried; nodes between an input and what tells its use; characters of an expression."""


@dataclass(frozen=True)
class Use:
    """What an integer input is for. ``kind``: index, mask or length; ``size``: of the axis; ``axis``: in words."""

    kind: str
    size: Size | None = None
    axis: str = ""

    @property
    def said(self) -> str:
        """What it is for, in words."""
        return {"index": f"picks from {self.axis}", "mask": "a mask: 1 counts"}.get(self.kind, "a length")


@dataclass(frozen=True)
class Accepted:
    """What inputs are made up as: ``shapes`` and ``ranges`` by input, as the keys take them.

    ``sizes``: of the open axes, in words: ``t=2 (p + s)``; ``why``: what an input is for, in words.
    """

    shapes: Mapping[str, list[int]]
    ranges: Mapping[str, list[int]]
    sizes: tuple[str, ...]
    why: Mapping[str, str]

    def applied(self, settings: RandomInputs) -> RandomInputs:
        """Return settings with all of this written out; what the user gave is in it."""
        shapes, ranges = {**settings.shapes, **self.shapes}, {**self.ranges, **settings.ranges}
        return replace(settings, shapes=shapes, ranges=ranges)


def accepted(settings: RandomInputs, graph: Graph) -> Accepted:
    """Return what inputs are made up as at first. Raises what `declared` and `concrete` do."""
    return next(attempts(settings, graph))


def larger(settings: RandomInputs, graph: Graph) -> str:
    """Return the override that gives open axes a size that shows more than 1 does, 2 for a batch and 7 for others.

    "" where all sizes are known, or the name of an input cannot be typed. Raises what `declared` and `concrete` do.
    """
    return override("shapes", larger_shapes(settings, graph))


def override(key: str, table: Mapping[str, Sequence[float]]) -> str:
    """Return the override that gives inputs shapes or ranges; "" where the name of one cannot be typed, or for none."""
    inside = ", ".join(f"{name}: {[*some]}" for name, some in table.items())
    return f"inputs.{key}={{{inside}}}" if table and all(map(_TYPED.fullmatch, table)) else ""


def larger_shapes(settings: RandomInputs, graph: Graph) -> Mapping[str, list[int]]:
    """Return the shapes of `larger`; none where all sizes are known. Raises what `declared` and `concrete` do."""
    model = MadeUp(graph, settings, concrete(declared(graph), settings.shapes))
    chosen = {name: 7 if name in model.free else 2 for name in model.names if name not in model.known}
    shapes = model.accepted(chosen).shapes
    return {} if shapes == model.accepted({}).shapes else shapes


def attempts(settings: RandomInputs, graph: Graph) -> Iterator[Accepted]:
    """Yield what inputs may be made up as, the likeliest first; of one kind each that the user's keys leave open."""
    model = MadeUp(graph, settings, concrete(declared(graph), settings.shapes))
    yield model.accepted({})
    free = model.free
    if model.spans:
        yield model.accepted(dict.fromkeys(model.spans, 1))
    # a total of a cache and of what is new
    sums = [(one, pair) for one in free for pair in combinations([other for other in free if other != one], 2)]
    for size in (1, 2):
        for whole, parts in sums[:_MOST_SUMS]:
            yield model.accepted(dict.fromkeys(free, size) | {whole: " + ".join(parts)})
    yield model.accepted({}, others=0)
    yield model.accepted({}, others=1)
    batches = [name for name in model.names if name not in model.known and name not in free]
    sizes = [size for one in graph.initializers.values() for size in one.dims if len(one.dims) > 1][:_MOST_OF_WEIGHTS]
    for axes in filter(None, (free, [*free, *batches] if batches else ())):
        for size in dict.fromkeys((*_SIZES, *sizes)):
            yield model.accepted(dict.fromkeys(axes, size))


def made_up(settings: InputsSettings, graph: Graph) -> list[str]:
    """Return the inputs of which a size is made up, or integers of which nothing tells what they are for."""
    if not isinstance(settings, RandomInputs):
        return []
    inputs, told = concrete(declared(graph), settings.shapes), accepted(settings, graph).ranges
    return [
        name
        for name, one in inputs.items()
        if any(not isinstance(dim, int) for dim in one.dims or ())
        or (is_integer(one.inside.dtype) and one.inside.dtype != TensorProto.BOOL
            and not (name in told or given_range(settings, name)))
    ]  # fmt: skip


def given_range(settings: RandomInputs, name: str) -> bool:
    """Whether the user says which values an input has."""
    return name in settings.ranges or "" in settings.ranges


def _parsed(text: str) -> ast.expr:
    """Return an expression over the names of axes; a name may be any text."""
    try:
        return ast.parse(text if len(text) < _LONGEST else "", mode="eval").body
    except (SyntaxError, ValueError):
        return ast.Name(text)


def _number(text: Size, sizes: Mapping[str, Size], depth: int = 0) -> int | None:
    """Return the size that an expression has; None: it names an axis that nobody knows, or is none."""
    if isinstance(text, int):
        return text
    if text in sizes or depth > _DEEPEST:
        return _number(sizes[text], sizes, depth + 1) if depth <= _DEEPEST else None
    body = _parsed(text)
    if isinstance(body, ast.BinOp) and type(body.op) in _OPERATIONS:
        left, right = (_number(ast.unparse(one), sizes, depth + 1) for one in (body.left, body.right))
        if left is None or right is None or (not right and isinstance(body.op, ast.FloorDiv)):
            return None
        return _OPERATIONS[type(body.op)](left, right)
    return body.value if isinstance(body, ast.Constant) and isinstance(body.value, int) else None


def _names_in(text: str) -> list[str]:
    """Return the axes in an expression; of what is none, the whole text."""
    body = _parsed(text)
    if isinstance(body, ast.BinOp) and type(body.op) in _OPERATIONS:
        return list(dict.fromkeys(name for one in (body.left, body.right) for name in _names_in(ast.unparse(one))))
    return [] if isinstance(body, ast.Constant) else [text]


def _cast_to(node: NodeProto) -> int:
    """Return the type that a Cast makes; 0 of any other node."""
    return next((one.i for one in node.attribute if one.name == "to"), 0) if node.op_type == "Cast" else 0


def _is_name(text: Size) -> bool:
    """Whether a size is the name of an axis, and no expression."""
    return isinstance(text, str) and _names_in(text) == [text]


class MadeUp:
    """One model and what the user says of its inputs: ``inputs`` has the shapes that were given."""

    def __init__(self, graph: Graph, settings: RandomInputs, inputs: Mapping[str, Declared]) -> None:
        self.graph, self.settings = graph, settings
        self.declared, self.inputs = declared(graph), inputs
        self.dims: dict[str, list[Dim]] = {
            name: [dim if dim is not None else f"{name}[{axis}]" for axis, dim in enumerate(one.dims or ())]
            for name, one in self.declared.items()
        }

    # ---- sizes

    @cached_property
    def known(self) -> dict[str, Size]:
        """The axes whose size was given, or follows from what outputs show."""
        found: dict[str, Size] = {}
        for name in self.settings.shapes:
            pairs = zip(self.dims[name], self.inputs[name].dims or (), strict=False)  # a rank may be open
            found.update((dim, size) for dim, size in pairs if isinstance(dim, str) and isinstance(size, int))
        for whole, total in self._grown():
            found.setdefault(whole, total)
        return found

    @cached_property
    def names(self) -> list[str]:
        """The open axes of the inputs, and those that only expressions name."""
        dims = [dim for some in self.dims.values() for dim in some if isinstance(dim, str)]
        return list(dict.fromkeys(part for dim in dims for part in _names_in(dim)))

    @cached_property
    def free(self) -> list[str]:
        """The axes whose size is anybody's choice, but for batches: the first axis, and no other one."""
        first = {dims[0] for dims in self.dims.values() if len(dims) > 1}
        later = {dim for dims in self.dims.values() for dim in (dims[1:] or dims)}
        return [name for name in self.names if name not in self.known and (name not in first or name in later)]

    @cached_property
    def spans(self) -> dict[str, str]:
        """The axis of a mask that no other input has, with the total that a cache comes out with: it spans that."""
        every = [dim for dims in self.dims.values() for dim in dims]
        alone = [dim for dim in self._last("mask") if isinstance(dim, str) and _is_name(dim) and every.count(dim) == 1]
        totals = [total for _, total in self.caches if total is not None and total not in every]
        return {alone[0]: str(totals[0])} if len(alone) == 1 and totals else {}

    def _last(self, kind: str) -> list[Dim]:
        """Return the last axes of the inputs of this kind."""
        return [self.dims[name][-1] for name, use in self.uses.items() if use and use.kind == kind and self.dims[name]]

    @cached_property
    def caches(self) -> list[tuple[Dim, Dim]]:
        """The axes along which an output is an input that grew: how long before and after."""
        return [
            (before[axis[0]], after[axis[0]])
            for past, before in self.dims.items()
            for name in self.graph.outputs
            if len(before) == len(after := self._declared_dims(name)) > 2
            and self._dtype(name) == self.declared[past].inside.dtype
            and name in self._moved(past)
            and len(axis := [at for at, pair in enumerate(zip(before, after, strict=True)) if pair[0] != pair[1]]) == 1
        ]

    def _moved(self, tensor: str) -> set[str]:
        """Return the tensors that hold what another one does, moved about or with more at one end of it."""
        found, waiting = {tensor}, [tensor]
        while waiting:
            nodes = (self.graph.nodes[index] for index in self.graph.readers.get(waiting.pop(), ()))
            moving = (node for node in nodes if node.op_type in _MOVES or "Attention" in node.op_type)
            new = {name for node in moving for name in node.outputs} - found
            found |= new
            waiting += new
        return found

    def _grown(self) -> Iterator[tuple[str, str]]:
        """Yield axes of inputs that have to be a sum: a cache comes out longer by what is new, and a mask spans all."""
        for past, total in self.caches:
            new = self._new({past, total}) if isinstance(total, str) and _is_name(total) else None
            if new is not None:
                yield str(total), f"{past} + {new}"
        yield from self.spans.items()

    def _new(self, others: set[Dim]) -> Size | None:
        """Return the axis of what is new beside a cache: the last one of indices, else the second one that is left."""
        left = [dims[1] for dims in self.dims.values() if len(dims) > 1 and isinstance(dims[1], str)]
        return next((dim for dim in (*self._last("index"), *left) if dim is not None and dim not in others), None)

    def _declared_dims(self, name: str) -> list[Dim]:
        kind = self.graph.value_types.get(name) or TypeProto()
        dims = kind.tensor_type.shape.dim
        return [dim.dim_param or (dim.dim_value if dim.HasField("dim_value") else None) for dim in dims]

    def _dtype(self, name: str) -> int:
        return int((self.graph.value_types.get(name) or TypeProto()).tensor_type.elem_type)

    # ---- what integers are for

    @cached_property
    def nodes(self) -> list[NodeProto]:
        """All nodes, those of nested graphs too: a name means the same everywhere, but in the rarest of models."""
        return list(scopes.all_nodes(self.graph.model.graph.node))

    @cached_property
    def readers(self) -> dict[str, list[tuple[NodeProto, int]]]:
        """Who reads a tensor, as which input."""
        found: dict[str, list[tuple[NodeProto, int]]] = {}
        for node in self.nodes:
            for at, name in enumerate(node.input):
                found.setdefault(name, []).append((node, at))
        return found

    @cached_property
    def makers(self) -> dict[str, NodeProto]:
        """Who makes a tensor."""
        return {name: node for node in self.nodes for name in node.output}

    @cached_property
    def held(self) -> dict[str, TensorProto]:
        """The tensors that the file holds."""
        graphs = [self.graph.model.graph, *(inner for node in self.nodes for inner in scopes.subgraphs(node))]
        lone = {node.output[0]: one.t for node in self.nodes if node.op_type == "Constant"
                for one in node.attribute if one.HasField("t")}  # fmt: skip
        return lone | {tensor.name: tensor for graph in graphs for tensor in graph.initializer}

    @cached_property
    def uses(self) -> dict[str, Use | None]:
        """What each integer or bool input is for; None where nothing tells."""
        kinds = {name: one.inside.dtype for name, one in self.declared.items() if one.structure is None}
        return {name: self._use(name) for name, dtype in kinds.items() if is_integer(dtype)}

    def _use(self, name: str) -> Use | None:
        found = list(self._uses(name))
        indices = [one for one in found if one.kind == "index"]
        # the fewest rows, of those whose number is in the file
        if indices:
            return min(indices, key=lambda one: one.size if isinstance(one.size, int) else 1 << 62)
        lengths = [one for one in found if one.kind == "length"] if self._for_each_sample(name) else []
        masks = [one for one in found if one.kind == "mask"]
        return next(iter([*sorted(lengths, key=lambda one: one.size is None), *masks]), None)

    def _for_each_sample(self, name: str) -> bool:
        """Whether an input has one number a sample, or one in all."""
        others = {dims[0] for other, dims in self.dims.items() if other != name and len(dims) > 1}
        return len(self.dims[name]) < 2 and set(self.dims[name]) <= others | {1}

    def _uses(self, name: str) -> Iterator[Use]:
        """Yield what the nodes tell that an input's values reach unchanged, as integers or as floats."""
        seen, waiting = {name}, [(name, False)]
        while waiting:
            tensor, is_float = waiting.pop()
            for node, at in self.readers.get(tensor, ()):
                if not is_float:
                    yield from self._told(node, at)
                elif node.op_type == "Sub" and at == 1 and self.constant(node.input[0]) == 1:
                    yield Use("mask")  # 1 - mask, which is then made very large
                fresh = [out for out in self.onward(node, at) if out not in seen]
                seen.update(fresh)
                waiting += [(out, is_float or _cast_to(node) in COMPUTED_IN) for out in fresh]

    def _told(self, node: NodeProto, at: int) -> Iterator[Use]:
        """Yield what a node tells of integers that it reads as this input."""
        domain, op = scopes.domain_of(node.domain), node.op_type
        key = f"{domain}.{op}" if domain and op in _IN_TWO_DOMAINS else op, at
        if key in _PICKS:
            yield self._index(node, *_PICKS[key])
        elif key in _LENGTHS:
            yield Use("length")
        elif key in _MASKS or _cast_to(node) == TensorProto.BOOL:
            yield Use("mask")
        elif op in _COMPARES and len(node.input) == 2:
            yield from self._compared(node.input[1 - at])

    def onward(self, node: NodeProto, at: int) -> Sequence[str]:
        """Return the tensors that hold what a node reads as this input."""
        hands_on = node.op_type == "Concat" or (node.op_type in _HAND_ON and at == 0)
        return [out for out in node.output if out] if hands_on or _cast_to(node) not in (0, TensorProto.BOOL) else []

    def _index(self, node: NodeProto, data: int, axis: str | int) -> Use:
        at = axis if isinstance(axis, int) else next((one.i for one in node.attribute if one.name == axis), 0)
        dims = self._dims_of(node.input[data]) if data < len(node.input) else []
        where = f"axis {at} of {node.input[data]}" if data < len(node.input) else ""
        return Use("index", dims[at] if -len(dims) <= at < len(dims) else None, where)

    def _compared(self, other: str) -> Iterator[Use]:
        """Yield what it means that an input is compared with a tensor: 0 and 1, or the places along an axis."""
        value = self.constant(other)
        if value is not None:
            yield from [Use("mask")] if value in (0, 1) else []
            return
        above = [other]
        for tensor in above:  # and what that is computed from, as far as a few nodes
            if tensor in self.held and max(self.held[tensor].dims, default=0) > 1:
                yield Use("length", max(self.held[tensor].dims))
                return
            if tensor in self.makers and len(above) < _DEEPEST:
                if self.makers[tensor].op_type == "Shape":
                    yield Use("length")
                    return
                above += [name for name in self.makers[tensor].input if name and name not in above]

    def constant(self, name: str) -> int | float | None:
        """Return the number that a tensor holds, where the file has it and it is a single one."""
        tensor = self.held.get(name)
        if tensor is None or any(dim != 1 for dim in tensor.dims) or tensor.data_location == TensorProto.EXTERNAL:
            return None
        with suppress(ValueError, TypeError, IndexError):
            number = numpy_helper.to_array(tensor).reshape(-1)[0].item()
            return number if isinstance(number, int | float) else None
        return None

    def _dims_of(self, name: str) -> list[Dim]:
        """Return the dimensions of a tensor: held, computed of one that is, or declared."""
        for _ in range(_DEEPEST):
            if name in self.held:
                return list(self.held[name].dims)
            if name in self.dims:
                return self.dims[name]
            maker = self.makers.get(name)
            if maker is None or maker.op_type not in ("Identity", "Cast", "DequantizeLinear"):
                break
            name = maker.input[0]
        return self._declared_dims(name)

    # ---- all together

    def accepted(self, chosen: Mapping[str, Size], others: int | None = None) -> Accepted:
        """Return what inputs are made up as, with these sizes; ``others``: integers that nothing is known of."""
        sizes: dict[str, Size] = {**dict.fromkeys(self.names, 1), **self.known, **chosen}
        shapes = {
            name: [
                1 if (size := _number(dim if dim is not None else 1, sizes)) is None else max(size, 0)
                for dim in self.dims[name]
            ]
            for name, one in self.inputs.items()
            if one.dims is not None and any(not isinstance(dim, int) for dim in one.dims)
        }
        ranges: dict[str, list[int]] = {}
        for name, use in self.uses.items():
            size = _number(use.size, sizes) if use and use.size is not None else None
            if use and use.kind == "index" and size:
                ranges[name] = [0, size]
            elif use and use.kind == "length":
                ranges[name] = [length := size or self._longest(name, shapes), length + 1]
            elif use and use.kind == "mask":
                ranges[name] = [1, 2]
            elif others is not None and self.declared[name].inside.dtype != TensorProto.BOOL:
                ranges[name] = [others, others + 1]
        why = {name: use.said for name, use in self.uses.items() if use}
        ranges = {name: span for name, span in ranges.items() if not given_range(self.settings, name)}
        told = tuple(
            f"{dim}={_number(dim, sizes)}" + (f" ({sizes[dim]})" if isinstance(sizes[dim], str) else "")
            for dim in self.names
            if not isinstance(self.known.get(dim), int)
        )
        return Accepted(shapes, ranges, told, why)

    def _longest(self, name: str, shapes: Mapping[str, list[int]]) -> int:
        """Return the size of the axis that a length may count: an open one of another input, else the longest."""
        of_floats = [other for other, one in self.inputs.items() if other != name and one.inside.dtype in COMPUTED_IN]
        axes = [(dim, size) for other in of_floats
                for dim, size in zip(self.dims[other][1:], self._shape(other, shapes)[1:], strict=True)]  # fmt: skip
        return max([size for dim, size in axes if not isinstance(dim, int)] or [size for _, size in axes] or [1])

    def _shape(self, name: str, shapes: Mapping[str, list[int]]) -> list[int]:
        return shapes.get(name) or [dim for dim in self.inputs[name].dims or () if isinstance(dim, int)]


# The choices of `inputs=` by name.


def samples(settings: InputsSettings, graph: Graph, pool: Pool, folder: Path) -> tuple[dict[str, TensorFile], ...]:
    """Values for the model's inputs: one mapping (name to tensor, in the model's order) for each sample, at least one.

    Tensor files are written into ``folder``; relative paths of the settings start at the current folder. Raises
    UsageError for values that are missing or do not fit the model, for files that cannot be read and for an unknown
    choice; NotApplicable for a model with inputs of an unknown type.
    """
    if isinstance(settings, RandomInputs):
        settings = accepted(settings, graph).applied(settings)
    inputs = concrete(declared(graph), settings.shapes)
    folder.mkdir(parents=True, exist_ok=True)
    choice = implementation("inputs", settings)
    found: tuple[dict[str, TensorFile], ...] = choice(settings, inputs, pool, folder)
    return found
