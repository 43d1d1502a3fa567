"""Steps that an operator consists of, each rounded where it makes new values; sums are added up in pairs."""

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


class Known:
    """What is known of a model's tensors: shapes by name, and constants by name. ``opset``: of ONNX's own operators."""

    def __init__(self, model: Any) -> None:
        self._model = model
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


class Steps:
    """Collects the steps of one node. ``types``: learns those of what is between steps; ``low``: what is rounded to."""

    def __init__(self, known: Known, node: Any, types: Dict[str, int], low: int) -> None:
        from onnx import helper

        self._helper, self._of, self._node, self._types, self._low = helper, known, node, types, low
        self._attributes = {one.name: helper.get_attribute_value(one) for one in node.attribute}
        self._numbers = iter(range(1 << 30))
        self.nodes: List[Any] = []

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
