"""Finds the infinities that low precision makes inside a model, and which of them lead to wrong values.

The model is run as `rounding` rewrites it. The first run only asks whether all tensors are finite; where they are, that
is all. The second has, beside each that is not, what it would be without that, and tells where values that are finite
again are wrong: see `overflow_shadows`.
"""

# ruff: noqa: UP006, UP035
# ruff: noqa: UP006, UP035, PLC0415
from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any, Dict, FrozenSet, Iterator, List, Mapping, Sequence, Set, Tuple

from runner.backends.emulation.error_measurement import (
    UNMEASURED,
    Additions,
    Gauge,
    add_constants,
    add_owner_outputs,
    measured,
    run_session,
    session_of,
)
from runner.backends.emulation.lowering import LOW
from runner.backends.nested_graphs import bodies
from runner.backends.rounding import RAW, WIDE, final, node_label, plain, prefixes, rewritten

# Shadows of tensors that overflow: what they would hold without that, and what nodes that read them would make then.
#
# The shadow of a tensor that rounding made infinite has the unrounded value there, and the tensor's own elsewhere.
# Where a tensor is not finite although what it comes from is (a division by what became zero), the value in high
# precision is taken. Each node that reads a tensor with a shadow gets a copy that reads shadows. Where the node makes
# something that is not finite, the copy's value is the shadow of that, and goes on; where it makes something finite,
# the two are compared: they agree where the infinity is absorbed (tanh, a mask before a softmax), else the value is a
# wrong one. An ArgMax of infinities may agree by chance. So a copy reads other values in their places as well: the
# smallest for the largest, and far larger ones in one input. What the node makes must not depend on which it is.

# runs under Python 3.8 (and so without subscripted builtins); a runtime is imported when it is used


_FLOAT = 1
_COMPARED = (_FLOAT, 2, 3, 4, 5, 6, 7, 9, 11, 12, 13)
_WITHOUT_SHADOW = ("NonZero", "NonMaxSuppression", "Unique", "Compress", "Range", "Bernoulli", "Multinomial", "Dropout")
"""Operators that make another shape of other values, or another draw each time: there is nothing to compare."""
_MOVES = (
    *("Concat", "Expand", "Flatten", "Gather", "Identity", "Reshape", "Slice", "Split", "Squeeze", "Tile"),
    *("Transpose", "Unsqueeze"),
)
"""Operators that make no new values: what is finite behind them was right before."""
CONSTANTS = {
    "zero": 0.0,
    "far": 2.0**64,
    "nowhere": UNMEASURED,
    "infinity": math.inf,
    "near": 2.0**-8,
    "smallest": 2.0**-24,
}
"""What shadows read, after the prefix ``winnow__``. Near and smallest make no difference: a few roundings, or less than
the smallest number of float16."""


@dataclass(frozen=True)
class Root:
    """A tensor that rounding makes infinite; ``made``: that is not finite before it is rounded."""

    graph: int
    tensor: str
    node: str
    op: str
    made: bool


@dataclass(frozen=True)
class Reader:
    """An output of a node that reads shadows.

    ``roots``: where they come from; ``ends``: it is finite throughout; ``other``: it is compared with what the node
    makes of other lost values.
    """

    node: str
    op: str
    roots: FrozenSet[int]
    ends: bool
    other: bool


@dataclass(frozen=True)
class _Shadow:
    name: str
    roots: FrozenSet[int]


class Shadows:
    """Adds shadows to a model that was rewritten to round, and collects what they tell, over all samples.

    ``types`` and ``owners``: of each graph, in reading order. ``suspects``: "GRAPH/TENSOR" of all tensors that are not
    finite. ``good``: inputs of the model that hold what top-level tensors are in high precision, by their name.
    ``unknown``: roots that something reads which cannot be followed, and what. ``handed``: roots that arrive at an
    output of the model.
    """

    def __init__(
        self, types: Sequence[Mapping[str, int]], owners: Sequence[str], suspects: Set[str], good: Mapping[str, str]
    ) -> None:
        self.types, self.owners, self.suspects, self.good = types, owners, suspects, good
        self.roots: List[Root] = []
        self.readers: List[Reader] = []
        self.unknown: Dict[int, str] = {}
        self.handed: Set[int] = set()
        self._numbers = iter(range(1 << 30))
        self._largest: Dict[int, float] = {}
        self._worst: Dict[int, Dict[str, float]] = {}

    def add(self, graph: Any) -> List[Gauge]:
        """Add shadows and their gauges, which are no outputs of the model yet, and return the gauges.

        Kinds: ``largest`` (of the root with that number), ``error``, ``made`` and ``right`` (of the reader).
        """
        scope = _Scope(self, graph, next(self._numbers), {})
        scope.walk(self._numbers)
        for value in graph.output:
            found = scope.shadow.get(value.name + WIDE) or scope.shadow.get(value.name)
            self.handed |= found.roots if found else set()
        return scope.gauges

    def lose(self, shadows: Sequence[_Shadow], node: str) -> None:
        """Note a node that cannot be followed."""
        for root in (root for shadow in shadows for root in shadow.roots):
            self.unknown.setdefault(root, node)

    def take(self, gauges: Sequence[Gauge], values: Mapping[str, Any]) -> None:
        """Take what was measured on one sample."""
        readers: Dict[int, Dict[str, Any]] = {}
        for gauge in gauges:
            number = int(gauge.of)
            if gauge.kind == "largest":
                largest = max(values[gauge.name].tolist(), default=UNMEASURED)
                self._largest[number] = max(self._largest.get(number, UNMEASURED), largest)
            else:
                readers.setdefault(number, {})[gauge.kind] = values[gauge.name]
        for number, shown in readers.items():
            place = int(shown["error"].argmax()) if shown["error"].size else 0
            error = float(shown["error"][place]) if shown["error"].size else 0.0
            if error > self._worst.get(number, {"error": 0.0})["error"]:
                self._worst[number] = {kind: _plain(row[place]) for kind, row in shown.items()}

    def tensors(self) -> List[Dict[str, Any]]:
        """Return what `overflow` does."""
        found = []
        for number, root in enumerate(self.roots):
            if self._largest.get(number, UNMEASURED) == UNMEASURED:
                continue
            readers = [one for one in enumerate(self.readers) if number in one[1].roots]
            by_chance = sorted(readers, key=lambda one: one[1].other)
            wrong = next((one for one in by_chance if one[0] in self._worst), None)
            on = {reader.node for index, reader in readers if not reader.ends or index in self._worst}
            ends = dict.fromkeys(reader.node for _, reader in readers if reader.node not in on)
            if not ends and wrong is None:
                # in the strict emulation a node is several steps, and only the last of them absorbs
                ends = dict.fromkeys(reader.node for _, reader in readers if reader.ends)
            harm = None
            if wrong:
                reader = wrong[1]
                harm = {"node": reader.node, "op": reader.op, "by_chance": reader.other, **self._worst[wrong[0]]}
            found.append(
                {
                    **asdict(root),
                    "largest": _plain(self._largest[number]),
                    "harm": harm,
                    "absorbed_by": list(ends),
                    "unknown": self.unknown.get(number),
                    "output": number in self.handed,
                }
            )
        return found


class _Scope(Additions):
    """One graph. ``shadow``: by the name of the tensor, of outer graphs too."""

    def __init__(self, all_of: Shadows, graph: Any, number: int, outer: Mapping[str, _Shadow]) -> None:
        super().__init__(f"winnow__shadow_{number}")
        self._all, self._graph, self._number = all_of, graph, number
        self._types, self._owner = all_of.types[number], all_of.owners[number]
        own = {name for node in graph.node for name in node.output} | {value.name for value in graph.input}
        self.shadow = {name: shadow for name, shadow in outer.items() if name not in own}
        self._later: List[Any] = []  # nodes that read tensors made further down
        self._finites: Dict[str, str] = {}

    def walk(self, numbers: Iterator[int]) -> None:
        """Add everything to the graph and those below it; a nested one has its gauges among its outputs then."""
        narrow: Dict[str, str] = {}
        makers = {name: node for node in self._graph.node for name in node.output if name}
        for node in list(self._graph.node):
            self.nodes.append(node)
            if node.op_type == "Cast" and node.attribute[0].i in LOW:
                narrow[node.output[0]] = node.input[0]
            elif node.op_type == "Cast" and node.input[0] in narrow:
                self._rounding(narrow[node.input[0]], node.output[0], makers)
            elif any(True for _ in bodies(node)):
                self._owned(node, numbers)
            else:
                self._reader(node)
                for name in node.output:
                    if name and self._final(name) == name:
                        self._start_shadow(name, node)
        del self._graph.node[:]
        self._graph.node.extend([*self.nodes, *self._later])

    # ---- kinds of nodes

    def _rounding(self, raw: str, wide: str, makers: Mapping[str, Any]) -> None:
        if not self._is_suspect(wide) or raw not in makers:
            return
        self._start_shadow(raw, makers[raw])
        before = self.shadow.get(raw)
        root = self._root(makers[raw], raw, (raw, wide), made=False)
        name = self.add("Where", [self._finite(wide), wide, before.name if before else raw])
        self.shadow[wide] = _Shadow(name, (before.roots if before else frozenset()) | {root})

    def _start_shadow(self, name: str, maker: Any) -> None:
        """Give a tensor that comes from nothing but finite ones a shadow, if it is known what it should be."""
        good = self._all.good.get(plain(name)) if self._number == 0 else None
        if good and name not in self.shadow and self._is_suspect(self._final(name)):
            root = self._root(maker, name, (good, name), made=True)
            shadow = self.add("Where", [self._finite(name), name, good])
            self.shadow[name] = _Shadow(shadow, frozenset([root]))

    def _root(self, maker: Any, name: str, values: Tuple[str, str], *, made: bool) -> int:
        """Note where the first of two values is finite and the second is not."""
        root, (right, found) = len(self._all.roots), values
        # a cast is named after the tensor that it casts
        called = plain(maker.input[0] if maker.op_type == "Cast" else name)
        self._all.roots.append(Root(self._number, called, self._path(maker), maker.op_type, made))
        new = self.add("And", [self._finite(right), self.add("Not", [self._finite(found)])])
        size = self._flat(self.add("Where", [new, self.add("Abs", [right]), "winnow__nowhere"]), "winnow__nowhere")
        self.gauge("largest", root, self.add("ReduceMax", [size], keepdims=0))
        return root

    def _reader(self, node: Any) -> None:
        read = [self.shadow[name] for name in node.input if name in self.shadow]
        if not read:
            return
        types = [self._types.get(name, 0) for name in node.output if name]
        if node.op_type in _WITHOUT_SHADOW or node.op_type.startswith("Random") or not set(types) <= set(_COMPARED):
            self._all.lose(read, self._path(node))
            return
        moves = node.op_type in _MOVES and not node.domain
        if moves and not any(self._is_suspect(self._final(name)) for name in node.output):
            return
        path = self._path(node)
        roots: FrozenSet[int] = frozenset().union(*(shadow.roots for shadow in read))
        copy = self.copy(node, {name: shadow.name for name, shadow in self.shadow.items()})
        others = [] if moves else [self.copy(node, reads).output for reads in self._other_values(node)]
        for place, (name, other) in enumerate(zip(node.output, copy.output)):  # noqa: B905 - equally long
            if not name:
                continue
            final = self._final(name)
            suspect = self._is_suspect(final)
            if not moves:
                self._compare(name, other, final, Reader(path, node.op_type, roots, not suspect, other=False))
                for outputs in others:
                    chance = Reader(path, node.op_type, roots, not suspect, other=True)
                    self._compare(name, outputs[place], final, chance)
            if not suspect:
                continue
            shadow = other if final != name else self.add("Where", [self._finite(name), name, other])
            self.shadow[name] = _Shadow(shadow, roots)

    def _other_values(self, node: Any) -> Iterator[Dict[str, str]]:
        """Yield what to read in place of the node's inputs so that other values were lost, in the opposite order."""
        turned = {}
        for name in node.input:
            if name not in self.shadow or name in turned:
                continue
            shadow = self.shadow[name].name
            size = self.add("Abs", [shadow])
            lost = self.add("And", [self._finite(shadow), self.add("Not", [self._finite(name)])])
            ends = [
                self.add(op, [self._flat(self.add("Where", [lost, size, end]), end)], keepdims=0)
                for op, end in (("ReduceMin", "winnow__infinity"), ("ReduceMax", "winnow__nowhere"))
            ]
            scale = self.add("Mul", [self.add("Div", [end, size]) for end in ends])
            value = self.add("Mul", [shadow, scale])
            more = self.add("Mul", [value, "winnow__far"])
            turned[name] = [self.add("Where", [lost, one, shadow]) for one in (value, more)]
        for first in (1, 0) if len(turned) > 1 else (0,):
            sizes = [first, *[1 - first] * (len(turned) - 1)]
            yield {name: turned[name][size] for name, size in zip(turned, sizes)}  # noqa: B905 - equally long

    def _compare(self, name: str, other: str, final: str, of: Reader) -> None:
        reader = len(self._all.readers)
        self._all.readers.append(of)
        before, self.nodes = self.nodes, self._later
        made, right = name, other
        if self._types.get(name) != _FLOAT:
            made, right = (self.add("Cast", [one], to=_FLOAT) for one in (name, other))
            final = made
        size = self.add("Abs", [right])
        distance = self.add("Abs", [self.add("Sub", [made, right])])
        allowed = self.add("Add", [self.add("Mul", [size, "winnow__near"]), "winnow__smallest"])
        wrong = self.add("And", [self._finite(final), self._finite(right)])
        wrong = self.add("And", [wrong, self.add("Greater", [distance, allowed])])
        error = self.add("Div", [distance, self.add("Add", [size, "winnow__smallest"])])
        error = self._flat(self.add("Where", [wrong, error, "winnow__zero"]))
        worst = self.add("ArgMax", [error], axis=0, keepdims=1)
        for kind, values in (("error", error), ("made", self._flat(made)), ("right", self._flat(right))):
            self.gauge(kind, reader, self.add("Gather", [values, worst]))
        self.nodes = before

    def _owned(self, node: Any, numbers: Iterator[int]) -> None:
        followed = node.op_type in ("If", "Loop", "Scan") and not node.domain
        scopes: List[Tuple[str, Any, _Scope]] = []
        for attribute_name, body in bodies(node):
            scope = _Scope(self._all, body, next(numbers), self.shadow if followed else {})
            scope.walk(numbers)
            scopes.append((attribute_name, body, scope))
        # a carried state that is infinite stays so in the next iteration, where no good value is known
        if lost := [self.shadow[name] for name in node.input if name in self.shadow]:
            self._all.lose(lost, self._path(node))
        if not followed:
            inside = {name for _, body, _ in scopes for one in body.node for name in one.input}
            self._all.lose([shadow for name, shadow in self.shadow.items() if name in inside], self._path(node))
            return
        self._add_shadow_outputs(node, [(body, scope) for _, body, scope in scopes])
        for attribute_name, body, scope in scopes:
            self.gauges += add_owner_outputs(node, attribute_name, body, scope.gauges)

    def _add_shadow_outputs(self, node: Any, scopes: Sequence[Tuple[Any, _Scope]]) -> None:
        """Give an owner outputs for the shadows of what its bodies hand out."""
        first = 1 if node.op_type == "Loop" else 0
        scanned = next((one.i for one in node.attribute if one.name == "num_scan_inputs"), 0)
        states = {"If": 0, "Loop": len(node.input) - 2, "Scan": len(node.input) - scanned}[node.op_type]
        count = len(scopes[0][0].output) - first
        handed = list(node.output)
        node.output.extend([""] * (count - len(node.output)))
        for place, name in enumerate([*handed, *[""] * (count - len(handed))]):
            given = [scope.shadow.get(body.output[first + place].name) for body, scope in scopes]
            found = [shadow for shadow in given if shadow]
            if place < states and found:
                self._all.lose(found, self._path(node))
            elif found and name and self._is_suspect(self._final(name)):
                for (body, scope), shadow in zip(scopes, given):  # noqa: B905 - equally long; older interpreters
                    inner = scope.name()
                    source = shadow.name if shadow else body.output[first + place].name
                    body.node.append(self.helper.make_node("Identity", [source], [inner]))
                    body.output.append(self.helper.make_tensor_value_info(inner, _FLOAT, None))
                for attribute in node.attribute:
                    if attribute.name in ("scan_output_axes", "scan_output_directions"):
                        attribute.ints.append(attribute.ints[place - states])
                node.output.append(self.name())
                roots: FrozenSet[int] = frozenset().union(*(shadow.roots for shadow in found))
                self.shadow[name] = _Shadow(node.output[-1], roots)

    # ---- pieces

    def _is_suspect(self, name: str) -> bool:
        return f"{self._number}/{name}" in self._all.suspects

    def _final(self, name: str) -> str:
        """Return the name under which others read what a node makes."""
        wide = final(name)
        return wide if wide in self._types else name

    def _path(self, node: Any) -> str:
        return self._owner + node_label(node)

    def _finite(self, name: str) -> str:
        known = self._finites.get(name) or self.add("Less", [self.add("Abs", [name]), "winnow__infinity"])
        if self.nodes is not self._later:
            self._finites[name] = known
        return known

    def _flat(self, name: str, end: str = "winnow__zero") -> str:
        """Return values in one row, and one more behind them: there may be none."""
        end = self.add("Reshape", [end, "winnow__one"])
        return self.add("Concat", [self.add("Reshape", [name, "winnow__flat"]), end], axis=0)


# runs under Python 3.8 (and so without subscripted builtins); a runtime is imported when it is used


def overflow(args: Dict[str, Any]) -> Dict[str, Any]:
    """Return ``tensors``: those that rounding makes infinite, in the model's order.

    ``args``: ``model`` (its low tensors have low types in the file), ``high`` (the same with nothing low, or null),
    ``rounding`` (on, strict), ``samples``: [{input: path}]. Of each tensor: ``graph`` (its number in reading order,
    outer ones first), ``tensor``, ``node`` (the path of what makes it), ``op``, ``largest`` (the largest magnitude that
    is not finite here), ``made`` (it is not finite before it is rounded either), ``harm`` (null; or ``node``, ``op``,
    ``error``, ``made`` and ``right`` of the first finite values that are wrong; ``by_chance``: they are right, and
    ``right`` is what other lost values would give), ``absorbed_by`` (paths of nodes that read it, or what is not finite
    by it, and make what is right all the same), ``unknown`` (the path of a node that reads it and cannot be followed,
    so that harm is not known; else null), ``output`` (it arrives at an output of the model). Raises StageError (load,
    infer) where the model cannot be run so, and ValueError for a model with functions.
    """
    import onnx

    path = args["model"]
    model = onnx.load(path, load_external_data=False)
    types = rewritten(model, strict=args.get("rounding") == "strict")
    first = onnx.ModelProto()
    first.CopyFrom(model)
    gauges = _gauged(first.graph, iter(range(1 << 30)), types)
    add_constants(first, {}, gauges)
    session = session_of(first, path)
    bad = []
    for sample in args["samples"]:
        found = measured(session, gauges, sample)
        bad.append({str(gauge.of) for gauge in gauges if _is_broken(found[gauge.name])})
    suspects: Set[str] = set().union(*bad)
    if not suspects:
        return {"tensors": []}
    del session, first
    samples = [sample for sample, broken in zip(args["samples"], bad) if broken]  # noqa: B905 - as many; see above
    good = _good(args.get("high"), sorted(_origins(model.graph, suspects)), samples)
    # as many of each sample
    fed = {name: f"winnow__good_{number}" for number, name in enumerate(good[0])}
    model.graph.input.extend(onnx.helper.make_tensor_value_info(name, _FLOAT, None) for name in fed.values())
    shadows = Shadows(types, list(prefixes(model.graph)), suspects, fed)
    gauges = shadows.add(model.graph)
    model.graph.initializer.append(onnx.helper.make_tensor("winnow__flat", onnx.TensorProto.INT64, [1], [-1]))
    add_constants(model, CONSTANTS, gauges)
    session = session_of(model, path)
    for sample, values in zip(samples, good):  # noqa: B905 - see above
        more = {fed[name]: value for name, value in values.items()}
        shadows.take(gauges, measured(session, gauges, sample, more))
    return {"tensors": shadows.tensors()}


def _gauged(graph: Any, numbers: Iterator[int], types: Sequence[Mapping[str, int]]) -> List[Gauge]:
    """Add a gauge to each float tensor that is made: zero, or no number where one of its values is not finite."""
    number = next(numbers)
    added = Additions(f"winnow__{number}")
    for node in graph.node:
        for name in node.output:
            if RAW not in name and types[number].get(name) == _FLOAT:
                zeros = added.add("Sub", [name, name])
                added.gauge("finite", f"{number}/{name}", added.add("ReduceSum", [zeros], keepdims=0))
        for attribute, body in bodies(node):
            added.gauges += add_owner_outputs(node, attribute, body, _gauged(body, numbers, types))
    graph.node.extend(added.nodes)
    return added.gauges


def _origins(graph: Any, suspects: Set[str]) -> Set[str]:
    """Return the top-level tensors that are not finite although what they are made of is."""
    found = set()
    for node in graph.node:
        if not any(f"0/{name}" in suspects for name in node.input):
            # of what an operator was taken apart into that of the operator counts
            ends = {name: plain(name) + WIDE if RAW in name else name for name in node.output}
            found |= {plain(name) for name, end in ends.items() if f"0/{end}" in suspects}
    return found


def _good(path: Any, names: Sequence[str], samples: Sequence[Mapping[str, str]]) -> List[Dict[str, Any]]:
    """Return what float tensors are in high precision, for each sample."""
    import onnx

    if not path or not names:
        return [{} for _ in samples]
    model = onnx.load(path, load_external_data=False)
    made = {name for node in model.graph.node for name in node.output}
    wanted = [name for name in names if name in made]
    there = {value.name for value in model.graph.output}
    for name in wanted:
        if name not in there:
            model.graph.output.append(onnx.helper.make_empty_tensor_value_info(name))
    session = session_of(model, path)
    floats = {value.name for value in session.get_outputs() if value.type == "tensor(float)"}
    wanted = [name for name in wanted if name in floats]
    return [run_session(session, wanted, sample) for sample in samples]


def _is_broken(values: Any) -> bool:
    return any(number != UNMEASURED and not math.isfinite(number) for number in values.tolist())


def _plain(number: Any) -> float:
    return float(f"{float(number):.4g}")
