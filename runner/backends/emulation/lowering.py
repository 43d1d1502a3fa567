"""Takes operators apart: reductions, norms, poolings and composites as steps, each of which is in low precision.

Sums are added up in pairs, each partial sum rounded, as a device does that accumulates in the low type; what importers
lower is lowered (a norm of order two to the root of a sum of squares, Softplus to a logarithm). That is pessimistic:
norms are computed so although their ``stash_type`` asks for fp32, for not every importer keeps that. What multiplies
matrices stays whole: that is accumulated in fp32 wherever there are units for it.
"""

# runs under Python 3.8 (and so without subscripted builtins); a runtime is imported when it is used
# ruff: noqa: UP006, UP035, PLC0415
from __future__ import annotations

import math
from typing import Any, Dict, List, Optional, Sequence, Tuple

FLOAT, INT64 = 1, 7
INSIDE = "__inside_"
"""What stands between the name of a node's output and the number of a step inside it."""
_UNKNOWN_LEVELS, _MOST_LEVELS = 10, 16
"""How often pairs are added where the length is not known (1024 values; what is left is added at once), and at most."""
_END = 1 << 62

Dims = List[Optional[int]]  # noqa: UP045 - an alias is evaluated

LOW = (10, 16)  # float16, bfloat16
_FIRST_OPSET = 11
# operator: (what is done to each value, what to the sum)
_REDUCTIONS = {
    "ReduceSum": ("", ""),
    "ReduceMean": ("", "mean"),
    "ReduceL1": ("Abs", ""),
    "ReduceL2": ("square", "Sqrt"),
    "ReduceSumSquare": ("square", ""),
    "ReduceLogSum": ("", "Log"),
    "ReduceLogSumExp": ("Exp", "Log"),
}


class Lowering:
    """Takes nodes of a model apart. It has to `enter` a graph before its nodes, and to `leave` it after.

    ``strict``: None is taken apart without that. What is known of tensors: shapes and constants by name. ``opset``: of
    ONNX's own operators.
    """

    def __init__(self, model: Any, *, strict: bool) -> None:
        self._model, self._strict = model, strict
        self.opset: int = max((one.version for one in model.opset_import if one.domain in ("", "ai.onnx")), default=0)
        self.dims: Dict[str, Dims] = {}
        self.constants: Dict[str, Any] = {}
        self._made: Dict[Tuple[int, str], str] = {}

    def integers(self, name: str) -> List[int] | None:
        """Return the values of a constant of integers."""
        from onnx import numpy_helper

        tensor = self.constants.get(name)
        if tensor is None or tensor.data_type != INT64 or tensor.data_location:
            return None
        return [int(one) for one in numpy_helper.to_array(tensor).reshape(-1)]

    def constant(self, dtype: int, shape: Sequence[int], values: Sequence[Any]) -> str:
        """Return the name of a constant that all graphs see."""
        from onnx import helper

        key = dtype, f"{list(shape)} {list(values)}"
        if key not in self._made:
            self._made[key] = f"winnow__step_{len(self._made)}"
            self._model.graph.initializer.append(helper.make_tensor(self._made[key], dtype, shape, values))
        return self._made[key]

    def enter(self, graph: Any) -> Tuple[Dict[str, Dims], Dict[str, Any]]:
        """Learn the shapes and small constants of a graph; return what `leave` takes."""
        before = dict(self.dims), dict(self.constants)
        for value in [*graph.value_info, *graph.output, *graph.input]:
            self.dims.pop(value.name, None)  # the name may shadow one of an outer graph
            if value.type.tensor_type.HasField("shape"):
                dims = value.type.tensor_type.shape.dim
                self.dims[value.name] = [one.dim_value if one.HasField("dim_value") else None for one in dims]
        for tensor in graph.initializer:
            self.dims[tensor.name] = list(tensor.dims)
            self.constants[tensor.name] = tensor
        for node in graph.node:
            if node.op_type == "Constant" and node.attribute and node.attribute[0].name == "value":
                self.constants[node.output[0]] = node.attribute[0].t
        return before

    def leave(self, before: Tuple[Dict[str, Dims], Dict[str, Any]]) -> None:
        """Forget a graph."""
        self.dims, self.constants = before

    def parts(self, node: Any, types: Dict[str, int]) -> List[Any]:
        """Return what a node consists of, itself where it is one step; ``types`` learns what is between the steps."""
        low = types.get(node.output[0], 0) if node.output else 0
        if not self._strict or low not in LOW or node.domain or self.opset < _FIRST_OPSET:
            return [node]
        steps = _Steps(self, node, types, low)
        return steps.nodes if steps.lower() else [node]


class _Steps:
    """Collects the steps of one node. ``types``: learns those of what is between steps; ``low``: what is rounded to."""

    def __init__(self, known: Lowering, node: Any, types: Dict[str, int], low: int) -> None:
        from onnx import helper

        self._helper, self._of, self._node, self._types, self._low = helper, known, node, types, low
        self._attributes = {one.name: helper.get_attribute_value(one) for one in node.attribute}
        self._numbers = iter(range(1 << 30))
        self.nodes: List[Any] = []

    def lower(self) -> bool:
        """Take the node apart; return whether that was done."""
        op = self._node.op_type
        known = {
            "Softmax": self._softmax,
            "LogSoftmax": self._softmax,
            "Softplus": self._softplus,
            "Mish": self._mish,
            "CumSum": self._running,
            "LpNormalization": self._unit,
            "AveragePool": self._pool,
            "GlobalAveragePool": self._global_pool,
            "LayerNormalization": self._layer_norm,
            "RMSNormalization": self._layer_norm,
            "InstanceNormalization": self._group_norm,
            "GroupNormalization": self._group_norm,
            "MeanVarianceNormalization": self._variance_norm,
        }
        made = self._reduction(*_REDUCTIONS[op]) if op in _REDUCTIONS else known[op]() if op in known else None
        if made is not None:
            self._emit("Identity", [made], [self._node.output[0]], {})
        return made is not None

    # ---- operators

    def _reduction(self, each: str, after: str) -> str | None:
        x, axes = self._node.input[0], self._axes()
        if axes is None:
            return None
        if each:
            x = self._low_step("Mul", x, x) if each == "square" else self._low_step(each, x)
        total = self._sum(x, axes, self._node.input[0])
        if after == "mean":
            total = self._low_step("Div", total, self._count(axes))
        elif after:
            total = self._low_step(after, total)
        return total if self._attributes.get("keepdims", 1) else self._squeezed(total, axes)

    def _softmax(self) -> str | None:
        x = self._node.input[0]
        axis = self._attributes.get("axis", -1 if self._of.opset >= 13 else 1)
        if self._of.opset < 13 and axis not in (-1, len(self._of.dims.get(x) or []) - 1):
            return None  # before opset 13 it flattens the axes from this one on
        most = self._reduced("ReduceMax", x, axis, first_with_input=18)
        distance = self._low_step("Sub", x, most)
        each = self._low_step("Exp", distance)
        total = self._sum(each, [axis], x)
        if self._node.op_type == "Softmax":
            return self._low_step("Div", each, total)
        return self._low_step("Sub", distance, self._low_step("Log", total))

    def _softplus(self) -> str:
        one = self._of.constant(FLOAT, [], [1.0])
        return self._low_step("Log", self._low_step("Add", self._low_step("Exp", self._node.input[0]), one))

    def _mish(self) -> str:
        return self._low_step("Mul", self._node.input[0], self._low_step("Tanh", self._softplus()))

    def _running(self) -> str | None:
        x, axes = self._node.input[0], self._of.integers(self._node.input[1])
        if not axes:
            return None
        helper, name = self._helper, self._name()
        state, value, total, shown = (f"{name}_{part}" for part in ("state", "value", "total", "shown"))
        self._types.update({total: self._low, shown: self._low})
        given = state if self._attributes.get("exclusive") else total
        body = helper.make_graph(
            [
                helper.make_node("Add", [state, value], [total]),
                helper.make_node("Identity", [given], [shown]),
            ],
            "running_sum",
            [helper.make_tensor_value_info(one, self._low, None) for one in (state, value)],
            [helper.make_tensor_value_info(one, self._low, None) for one in (total, shown)],
        )
        turned = [int(bool(self._attributes.get("reverse")))]
        first = self._wide_step("Gather", x, self._of.constant(INT64, [], [0]), axis=axes[0])
        zero = self._zeros(first)
        last, made = self._name(), self._name()
        self._types.update({last: self._low, made: self._low})
        directions = {"scan_input_directions": turned, "scan_output_directions": turned}
        places = {"scan_input_axes": axes, "scan_output_axes": axes}
        self._emit("Scan", [zero, x], [last, made], {"body": body, "num_scan_inputs": 1, **places, **directions})
        return made

    def _unit(self) -> str:
        x, axis = self._node.input[0], self._attributes.get("axis", -1)
        squared = self._attributes.get("p", 2) == 2
        total = self._sum(self._low_step("Mul", x, x) if squared else self._low_step("Abs", x), [axis], x)
        return self._low_step("Div", x, self._low_step("Sqrt", total) if squared else total)

    def _pool(self) -> str:
        # at the edges a window has fewer values than this count, so that the emulated sum is too large there
        count = self._of.constant(FLOAT, [], [float(math.prod(self._attributes["kernel_shape"]))])
        mean = self._wide_step("AveragePool", *self._node.input, **self._attributes)
        return self._low_step("Div", self._low_step("Mul", mean, count), count)

    def _global_pool(self) -> str | None:
        dims = self._of.dims.get(self._node.input[0])
        return self._mean(self._node.input[0], list(range(2, len(dims)))) if dims else None

    def _layer_norm(self) -> str | None:
        x, axis = self._node.input[0], self._attributes.get("axis", -1)
        dims = self._of.dims.get(x)
        if axis >= 0 and dims is None:
            return None
        axes = list(range(axis - len(dims or []) if axis >= 0 else axis, 0))
        centered = self._node.op_type == "LayerNormalization"
        y, mean, root = self._normal(x, axes, centered=centered)
        others = [*self._node.output[1:], "", ""]
        if others[0]:
            self._emit("Identity", [mean], [others[0]], {})
        if others[1]:
            self._emit("Reciprocal", [root], [others[1]], {})
        return self._scaled(y, *self._node.input[1:])

    def _group_norm(self) -> str | None:
        x, scale, bias = self._node.input[:3]
        groups = self._attributes.get("num_groups", 0)  # 0: as many as there are channels
        flat = self._wide_step("Reshape", x, self._of.constant(INT64, [3], [0, groups, -1]))
        dims = self._of.dims.get(x)
        length = None if dims is None or None in dims[1:] else math.prod(one or 0 for one in dims[1:])
        channels = groups or (dims[1] if dims else None)
        self._of.dims[flat] = [None, channels, length // channels if length and channels else None]
        y, _, _ = self._normal(flat, [-1], centered=True)
        if self._node.op_type == "GroupNormalization" and self._of.opset >= 21:  # a scale for each channel
            y = self._wide_step("Reshape", y, self._wide_step("Shape", x))
            y = self._wide_step("Reshape", y, self._of.constant(INT64, [3], [0, 0, -1]))
        column = self._of.constant(INT64, [2], [-1, 1])
        y = self._scaled(y, *(self._wide_step("Reshape", one, column) for one in (scale, bias)))
        return self._wide_step("Reshape", y, self._wide_step("Shape", x))

    def _variance_norm(self) -> str:
        x, axes = self._node.input[0], list(self._attributes.get("axes", [0, 2, 3]))
        mean, square = self._mean(x, axes), self._low_step("Mul", x, x)
        variance = self._low_step("Sub", self._mean(square, axes), self._low_step("Mul", mean, mean))
        root = self._low_step("Add", self._low_step("Sqrt", variance), self._small(1e-9))
        return self._low_step("Div", self._low_step("Sub", x, mean), root)

    # ---- what they have in common

    def _normal(self, x: str, axes: List[int], *, centered: bool) -> Tuple[str, str, str]:
        """Return values over the root of their mean square, the mean that was taken off, and the root."""
        mean = self._mean(x, axes) if centered else ""
        distance = self._low_step("Sub", x, mean) if centered else x
        square = self._mean(self._low_step("Mul", distance, distance), axes, x)
        root = self._low_step("Sqrt", self._low_step("Add", square, self._small(self._attributes.get("epsilon", 1e-5))))
        return self._low_step("Div", distance, root), mean, root

    def _scaled(self, y: str, scale: str, bias: str = "") -> str:
        y = self._low_step("Mul", y, scale)
        return self._low_step("Add", y, bias) if bias else y

    def _mean(self, x: str, axes: List[int], like: str = "") -> str:
        return self._low_step("Div", self._sum(x, axes, like or x), self._count(axes, like or x))

    def _small(self, value: float) -> str:
        """Return a constant of the low type."""
        return self._low_step("Identity", self._of.constant(FLOAT, [], [value]))

    def _count(self, axes: List[int], of: str = "") -> str:
        """Return how many values are added up, in fp32."""
        of = of or self._node.input[0]
        dims = self._of.dims.get(of)
        if dims is not None and all(dims[axis] is not None for axis in axes):
            return self._of.constant(FLOAT, [], [float(math.prod(dims[axis] or 0 for axis in axes))])
        shape = self._wide_step("Shape", of)
        some = self._wide_step("Gather", shape, self._of.constant(INT64, [len(axes)], axes), axis=0)
        return self._wide_step("Cast", self._wide_step("ReduceProd", some, keepdims=0), to=FLOAT)

    def _sum(self, x: str, axes: List[int], like: str) -> str:
        """Return the sum along axes, which stay; ``like``: what ``x`` has the shape of."""
        dims = self._of.dims.get(like)
        for axis in axes:
            x = self._sum_along(x, axis, dims[axis] if dims is not None else None)
        return x

    def _sum_along(self, x: str, axis: int, length: int | None) -> str:
        levels = 0
        while length and length > 1 and levels < _MOST_LEVELS:
            half = length // 2
            made = self._low_step("Add", self._piece(x, axis, 0, half), self._piece(x, axis, half, 2 * half))
            if length % 2:
                made = self._wide_step("Concat", made, self._piece(x, axis, 2 * half, length), axis=axis)
            x, length, levels = made, half + length % 2, levels + 1
        if length == 1:
            return x
        if length is None:
            zero = self._zeros(self._piece(x, axis, 0, 1))
            for _ in range(_UNKNOWN_LEVELS):
                longer = self._wide_step("Concat", x, zero, axis=axis)
                x = self._low_step("Add", self._piece(x, axis, 0, _END, 2), self._piece(longer, axis, 1, _END, 2))
        return self._reduced("ReduceSum", x, axis, first_with_input=13)

    def _zeros(self, like: str) -> str:
        shape = self._wide_step("Shape", like)
        value = self._helper.make_tensor("value", FLOAT, [1], [0.0])
        return self._wide_step("ConstantOfShape", shape, value=value)

    def _piece(self, x: str, axis: int, start: int, end: int, step: int = 1) -> str:
        return self._wide_step("Slice", x, *(self._of.constant(INT64, [1], [one]) for one in (start, end, axis, step)))

    def _reduced(self, op: str, x: str, axis: int, first_with_input: int) -> str:
        if self._of.opset < first_with_input:
            return self._low_step(op, x, axes=[axis], keepdims=1)
        return self._low_step(op, x, self._of.constant(INT64, [1], [axis]), keepdims=1)

    def _squeezed(self, x: str, axes: List[int]) -> str:
        if self._of.opset < 13:
            return self._wide_step("Squeeze", x, axes=axes)
        return self._wide_step("Squeeze", x, self._of.constant(INT64, [len(axes)], axes))

    def _axes(self) -> List[int] | None:
        """Return the axes of a reduction; None: they are not known, or nothing is reduced."""
        given = self._attributes.get("axes")
        if given is None and len(self._node.input) > 1 and self._node.input[1]:
            given = self._of.integers(self._node.input[1])
            if given is None:
                return None
        if given:
            return [int(axis) for axis in given]
        dims = self._of.dims.get(self._node.input[0])
        if dims is None or self._attributes.get("noop_with_empty_axes"):
            return None
        return list(range(len(dims)))

    # ---- steps

    def _name(self) -> str:
        return f"{self._node.output[0]}{INSIDE}{next(self._numbers)}"

    def _low_step(self, op: str, *inputs: str, **attributes: Any) -> str:
        """Add a step whose result is rounded."""
        return self._step(op, inputs, attributes, self._low)

    def _wide_step(self, op: str, *inputs: str, **attributes: Any) -> str:
        """Add a step whose result is not rounded: it has no new values, or is no part of what a device computes."""
        return self._step(op, inputs, attributes, 0)

    def _step(self, op: str, inputs: Sequence[str], attributes: Dict[str, Any], dtype: int) -> str:
        name = self._name()
        whole = op == "Shape" or (op in ("Gather", "ReduceProd") and "__shape" in inputs[0])
        name += "__shape" * whole
        self._types[name] = dtype or (INT64 if whole else FLOAT)
        self._emit(op, list(inputs), [name], attributes)
        return name

    def _emit(self, op: str, inputs: List[str], outputs: List[str], attributes: Dict[str, Any]) -> None:
        # a runtime takes no two nodes of one name
        name = self._node.name and f"{self._node.name}{INSIDE}{len(self.nodes)}"
        self.nodes.append(self._helper.make_node(op, inputs, outputs, name=name, **attributes))
