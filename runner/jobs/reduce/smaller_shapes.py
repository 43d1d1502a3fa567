"""Smaller shapes: batch, sequence, channels. What has to change together has the same size: sizes are what shrinks.

Every axis of inputs and weights that is 64 long, say, becomes 2 long. The values are the first ones, or made by the
same recipe. Constants that hold shapes follow. Whether the shapes still fit together is left to the reference, which
has to run the model.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np
from onnx import ModelProto, TensorProto, TypeProto, numpy_helper

from runner.jobs.reduce.shrunk_subject import Feeds, Levels, Whole
from runner.jobs.reduce.simpler_values import LARGEST, ArrayOf
from runner.model.graph import scopes
from runner.model.graph.cut import CutError
from runner.model.graph.edits import copy_of
from runner.model.values import recorded, tensor_bytes
from runner.model.values.dtypes import BY_NUMBER, STRING
from runner.model.values.recipes import MOST_LITERAL, Array, Kind, make, recognize
from runner.model.values.recorded import TensorFile

SMALL = 8
"""Shapes in which no size is larger stay as they are."""
_SIZES = {("Reshape", 1), ("Expand", 1), ("ConstantOfShape", 0), ("Resize", 3), ("Slice", 2), ("Split", 1)}
"""Inputs (operator, place) that hold sizes of axes."""
_NUMBERS = {("Resize", 1), ("Resize", 2), ("Upsample", 1)}
"""Floats that are one for each axis, whatever its size."""
_KERNELS = {("Conv", 1), ("ConvTranspose", 1)}
"""Weights whose axes after the second are no sizes of anything else."""
_TOLD_BY = 1 << 16
"""Elements that tell by which recipe the whole was made."""
Place = tuple[str, int]


@dataclass(frozen=True)
class SmallerShapes:
    """Cuts inputs and weights down. ``steps``: for each size that occurs, those that it may become, the least first.

    What a model of some sizes is fed is written once: a check may read it while the next one of the same sizes is made.
    """

    whole: Whole
    array: ArrayOf
    folder: Path
    steps: Mapping[int, tuple[int, ...]]
    name: str = "sizes"
    _fed: dict[tuple[int, ...], Feeds] = field(default_factory=dict, compare=False)

    @staticmethod
    def of(whole: Whole, array: ArrayOf, folder: Path) -> SmallerShapes:
        """Look for sizes that may shrink: none where there are nested graphs, or samples of different shapes."""
        found = SmallerShapes(whole, array, folder, {})
        graph, samples = whole.model.graph, whole.samples
        nested = whole.model.functions or any(True for node in graph.node for _ in scopes.subgraphs(node))
        kinds = {tuple((name, file.dtype, file.shape) for name, file in sample.feeds.items()) for sample in samples}
        if nested or len(kinds) != 1 or any(file.structure for sample in samples for file in sample.feeds.values()):
            return found
        shapes = [file.shape[: found._axes(name)] for name, file in samples[0].feeds.items()]
        shapes += [tuple(tensor.dims)[: found._axes(name, tensor)] for name, tensor in found._tensors(whole.model)]
        sizes = sorted({size for shape in shapes for size in shape if size > 1})
        if max(sizes, default=0) <= SMALL:
            return found
        return SmallerShapes(whole, array, folder, {size: _steps(size) for size in sizes})

    @property
    def levels(self) -> Levels:
        """One part for each size."""
        return Levels(tuple(len(steps) - 1 for steps in self.steps.values()), self.name)

    def apply(self, levels: tuple[int, ...]) -> tuple[ModelProto, Feeds]:
        """Return the model in these sizes, and what it is fed."""
        sizes = {size: steps[level] for (size, steps), level in zip(self.steps.items(), levels, strict=True)}
        model = copy_of(self.whole.model)
        if all(size == other for size, other in sizes.items()):
            return model, tuple(sample.feeds for sample in self.whole.samples)
        left = LARGEST
        for name, tensor in self._tensors(model):
            smaller = self._smaller(name, self.array(tensor), sizes, self._axes(name, tensor))
            if smaller is not None:
                left -= smaller.nbytes
                if left < 0:
                    raise CutError(f"the weights would take more than {LARGEST >> 20} MiB")
                tensor.dims[:] = smaller.shape
                tensor_bytes.set_raw(tensor, tensor_bytes.raw_bytes(numpy_helper.from_array(smaller)))
        for node in model.graph.node:
            for attribute in node.attribute:
                if attribute.name == "group":
                    attribute.i = sizes.get(attribute.i, attribute.i)
        del model.graph.value_info[:]
        for value in (*model.graph.input, *model.graph.output):
            _resize(value.type, sizes, self._axes(value.name))
        known = {name for sample in self.whole.samples for name in sample.expected}
        for value in model.graph.output:
            if value.name in known:  # the reference tells
                value.type.tensor_type.ClearField("shape")
        if levels not in self._fed:
            place = self.folder / str(len(self._fed))
            every = range(len(self.whole.samples))
            self._fed[levels] = tuple(self._feeds(number, sizes, place / str(number)) for number in every)
        return model, self._fed[levels]

    def _feeds(self, number: int, sizes: Mapping[int, int], folder: Path) -> dict[str, TensorFile]:
        folder.mkdir(parents=True, exist_ok=True)
        found = {}
        for place, (name, file) in enumerate(self.whole.samples[number].feeds.items()):
            smaller = self._smaller(name, recorded.mapped(file), sizes, self._axes(name))
            found[name] = file if smaller is None else recorded.write(smaller, name, folder / f"{place}.pb")
        return found

    def _smaller(self, name: str, array: Array, sizes: Mapping[int, int], axes: int) -> Array | None:
        """The elements that are left of an array; None: all."""
        if self._uses[name] & _SIZES:
            numbers = [sizes.get(int(size), int(size)) for size in array.reshape(-1)] if array.dtype.kind == "i" else []
            found = np.array(numbers, array.dtype).reshape(array.shape) if numbers else array
            return None if (found == array).all() else found
        found = array[tuple(slice(sizes.get(size, size)) for size in array.shape[:axes])]
        if found.shape == array.shape:
            return None
        if found.nbytes > LARGEST:
            raise CutError(f"{name!r} would take more than {LARGEST >> 20} MiB")
        # a part of what was drawn would have none; weights lie in a file, of which only the start is read
        recipe = recognize(array.reshape(-1)[:_TOLD_BY])
        if recipe and recipe.kind is Kind.SEEDED:
            return make(recipe, found.shape, found.dtype)
        return np.ascontiguousarray(found)

    def _tensors(self, model: ModelProto) -> Iterator[tuple[str, TensorProto]]:
        """The weights and constants that can shrink, with the names by which nodes read them."""
        held = [(tensor.name, tensor) for tensor in model.graph.initializer]
        for node in model.graph.node:
            if node.op_type == "Constant":
                held += [(node.output[0], attribute.t) for attribute in node.attribute if attribute.HasField("t")]
        for name, tensor in held:
            if tensor.data_type in BY_NUMBER and tensor.data_type != STRING:
                yield name, tensor

    def _axes(self, name: str, tensor: TensorProto | None = None) -> int:
        """How many axes of a tensor have sizes that may shrink."""
        uses = self._uses[name]
        if uses & (_SIZES | _NUMBERS) or (tensor is not None and _is_list(tensor)):
            return 0
        return 2 if uses & _KERNELS else 99

    @cached_property
    def _uses(self) -> defaultdict[str, set[Place]]:
        found: defaultdict[str, set[Place]] = defaultdict(set)
        for node in self.whole.model.graph.node:
            for place, name in enumerate(node.input):
                found[name].add((node.op_type, place))
        return found


def _steps(size: int) -> tuple[int, ...]:
    return (*(1 << power for power in range((size - 1).bit_length())), size)


def _is_list(tensor: TensorProto) -> bool:
    """Whether a constant is a few numbers about axes: which, or how far."""
    small = len(tensor.dims) <= 1 and tensor_bytes.elements(tensor.dims) <= MOST_LITERAL
    return small and tensor.data_type == TensorProto.INT64


def _resize(declared: TypeProto, sizes: Mapping[int, int], axes: int) -> None:
    for dim in list(declared.tensor_type.shape.dim)[:axes]:
        if dim.dim_value:
            dim.dim_value = sizes.get(dim.dim_value, dim.dim_value)
